"""What this host has verified: the size and fingerprint that a blob had when its bytes were last hashed.

A log of short lines, one file a host, appended to by all its processes. It may be lost, torn or out of date: then
blobs are hashed again. It is never an input of anything.
"""

import contextlib
import os
import threading
from pathlib import Path

from rnnsearch.storage.backends import FileState
from rnnsearch.storage.cache import MakeFolder, temporary_path
from rnnsearch.storage.digests import Digest, is_digest
from rnnsearch.storage.errors import StoreError

_FORGOTTEN = FileState(-1, "-")
_WASTE = 4  # the log is written anew when it has this many lines for each blob …
_SMALL = 20_000  # … and more lines than this


class Seen:
    """The memory of one host about one store."""

    def __init__(self, path: Path, make: MakeFolder) -> None:
        """Use the log at `path`, which need not exist or be writable; `make` creates its folder."""
        self._path = path
        self._make = make
        self._states: dict[Digest, FileState] = {}
        self._offset = 0
        self._lines = 0
        self._inode = 0
        self._lock = threading.Lock()

    def matches(self, digest: Digest, state: FileState) -> bool:
        """Whether the blob had just this size and fingerprint when its bytes were last hashed here."""
        with self._lock:
            if self._states.get(digest) != state:
                self._catch_up()
            return self._states.get(digest) == state

    def remember(self, digest: Digest, state: FileState) -> None:
        """Note that the blob was hashed and found good in this state."""
        with self._lock:
            if not self._offset:  # what is in the log already is not written again
                self._catch_up()
            if self._states.get(digest) != state:
                self._states[digest] = state
                self._append(digest, state)

    def forget(self, digest: Digest) -> None:
        """Note that the blob was found missing or damaged."""
        self.remember(digest, _FORGOTTEN)

    def drop(self) -> None:
        """Give the log's space back: all is hashed again when it is looked at."""
        with self._lock, contextlib.suppress(OSError):
            self._states.clear()
            self._path.unlink()

    def _append(self, digest: Digest, state: FileState) -> None:
        line = f"{digest} {state.size} {state.fingerprint}\n".encode()
        with contextlib.suppress(OSError, StoreError):  # a read-only store, a full disk: then we hash again
            self._make(self._path.parent)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            try:
                os.write(descriptor, line)
            finally:
                os.close(descriptor)

    def _catch_up(self) -> None:
        """Read the lines that this and other processes have appended since."""
        with contextlib.suppress(OSError, StoreError):
            with self._path.open("rb") as file:
                inode = os.fstat(file.fileno()).st_ino
                if inode != self._inode:
                    self._inode, self._offset, self._lines = inode, 0, 0
                file.seek(self._offset)
                data = file.read()
            whole = data.rfind(b"\n") + 1  # the last line may be half written
            self._offset += whole
            for line in data[:whole].decode(errors="replace").splitlines():
                self._lines += 1
                fields = line.split(" ")
                if len(fields) == 3 and is_digest(fields[0]) and fields[1].lstrip("-").isdigit():
                    self._states[Digest(fields[0])] = FileState(int(fields[1]), fields[2])
            if self._lines > max(_SMALL, _WASTE * len(self._states)):
                self._rewrite()

    def _rewrite(self) -> None:
        """Keep one line a blob; what others append meanwhile may be lost, and is then hashed again."""
        temporary = temporary_path(self._path.parent, self._make)
        lines = [
            f"{digest} {state.size} {state.fingerprint}\n"
            for digest, state in self._states.items()
            if state != _FORGOTTEN
        ]
        temporary.write_text("".join(lines), encoding="utf-8")
        temporary.replace(self._path)
        self._lines = len(lines)
        self._inode = 0
