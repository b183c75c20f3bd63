"""What can go wrong with a store, said as: what was found, what was expected, what to do."""

import errno

_REMEDIES = {
    errno.ENOSPC: (
        "the disk is full",
        "free some space (`rnnsearch gc` removes what no kept run needs), then run again",
    ),
    errno.EDQUOT: ("the disk quota is used up", "free some space or raise the quota, then run again"),
    errno.EROFS: ("the file system is read-only", "mount it writable, or choose another store"),
    errno.EACCES: (
        "permission was denied",
        "give this user the right to read and write there, or choose another store",
    ),
    errno.EPERM: (
        "the operation is not permitted",
        "give this user the right to read and write there, or choose another store",
    ),
    errno.EIO: (
        "the device reported an input/output error",
        "check the disk or the network mount, then run `rnnsearch verify`",
    ),
    errno.ESTALE: ("the network mount is stale", "mount it again, then run again"),
    errno.EMFILE: ("this process has too many files open", "raise the limit (`ulimit -n`)"),
    errno.ENOTSUP: (
        "the file system lacks the operation",
        "the store needs hard links; choose another file system",
    ),
    errno.ENAMETOOLONG: ("the name is too long", "choose a store with a shorter path"),
}


class StoreError(Exception):
    """A store cannot do what was asked; its message says what was found and what to do."""


class MissingError(StoreError):
    """A name that should be in the store is not there."""


class DamagedError(StoreError):
    """Stored bytes are not those that were stored."""


class FullError(StoreError):
    """There is no room left."""


class VanishedError(StoreError):
    """The folder of the store is gone, or another one is in its place."""


def explained(error: OSError, doing: str) -> StoreError:
    """The StoreError for an operating system's error met while `doing` ("write blobs/ab/…")."""
    found, remedy = _REMEDIES.get(
        error.errno or 0, (error.strerror or str(error), "see to it, then run again")
    )
    kind = FullError if error.errno in {errno.ENOSPC, errno.EDQUOT} else StoreError
    return kind(f"could not {doing}: {found}; {remedy}")
