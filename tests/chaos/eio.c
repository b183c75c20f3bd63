/* Makes system calls fail as a broken disk does. LD_PRELOAD it; CHAOS_EIO names a file that says what fails:
   "CALL PART SKIP", where CALL is fsync, link, rename, unlink, write or read, PART a piece of the path, and SKIP how
   many such calls go well before. While the file is missing all is well. Only commands and Ray's workers feel it:
   looking at every call made some of Ray's own processes lose their log, and with it their life. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int armed, seen;

__attribute__((constructor)) static void arm(void) {
    char words[1024] = {0};
    int file = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    long size = syscall(SYS_read, file, words, sizeof words - 1);
    syscall(SYS_close, file);
    for (long i = 0; i < size; i++)
        if (!words[i]) words[i] = ' ';
    armed = strstr(words, "default_worker.py ") || strstr(words, "commands.py ");
}

static int fails(const char *call, const char *path) {
    const char *plan = getenv("CHAOS_EIO");
    char text[512] = {0}, which[16], part[256];
    int skip, file;
    if (!armed || !plan || !path || (file = (int)syscall(SYS_openat, AT_FDCWD, plan, O_RDONLY | O_CLOEXEC)) < 0) return 0;
    long size = syscall(SYS_read, file, text, sizeof text - 1);
    syscall(SYS_close, file);
    if (size <= 0 || sscanf(text, "%15s %255s %d", which, part, &skip) != 3) return 0;
    if (strcmp(which, call) || !strstr(path, part)) return 0;
    if (__sync_fetch_and_add(&seen, 1) < skip) return 0;
    errno = EIO;
    return 1;
}

static int fails_on(const char *call, int descriptor) {
    char name[64], path[PATH_MAX];
    if (!armed) return 0;
    snprintf(name, sizeof name, "/proc/self/fd/%d", descriptor);
    long size = syscall(SYS_readlinkat, AT_FDCWD, name, path, sizeof path - 1);
    if (size <= 0) return 0;
    path[size] = 0;
    return fails(call, path);
}

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

int fsync(int descriptor) {
    REAL(int, fsync, int);
    return fails_on("fsync", descriptor) ? -1 : real(descriptor);
}

int link(const char *from, const char *to) {
    REAL(int, link, const char *, const char *);
    return fails("link", to) ? -1 : real(from, to);
}

int linkat(int a, const char *from, int b, const char *to, int flags) {
    REAL(int, linkat, int, const char *, int, const char *, int);
    return fails("link", to) ? -1 : real(a, from, b, to, flags);
}

int rename(const char *from, const char *to) {
    REAL(int, rename, const char *, const char *);
    return fails("rename", to) ? -1 : real(from, to);
}

int renameat(int a, const char *from, int b, const char *to) {
    REAL(int, renameat, int, const char *, int, const char *);
    return fails("rename", to) ? -1 : real(a, from, b, to);
}

int unlink(const char *path) {
    REAL(int, unlink, const char *);
    return fails("unlink", path) ? -1 : real(path);
}

ssize_t write(int descriptor, const void *data, size_t size) {
    REAL(ssize_t, write, int, const void *, size_t);
    return fails_on("write", descriptor) ? -1 : real(descriptor, data, size);
}

ssize_t read(int descriptor, void *data, size_t size) {
    REAL(ssize_t, read, int, void *, size_t);
    return fails_on("read", descriptor) ? -1 : real(descriptor, data, size);
}
