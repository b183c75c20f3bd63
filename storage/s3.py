"""A bucket as a backend: the two primitives are conditional puts.

Imported only when an `s3://` location is opened. Endpoint, region and credentials are those of the environment and
of AWS's configuration files (`AWS_ENDPOINT_URL`, `AWS_PROFILE`, …).
"""

import hashlib
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import s3fs
from botocore.exceptions import BotoCoreError, ClientError

from rnnsearch.storage.backends import TEMPORARY, FileState, Versioned, check_name, left_over_files
from rnnsearch.storage.cache import make_folder
from rnnsearch.storage.digests import Digest, hash_bytes, hash_file
from rnnsearch.storage.errors import MissingError, StoreError

_T = TypeVar("_T")

_WRITER = "writer"  # metadata of an object: a mark of the one put that made it
_TRIES = 8  # of a conditional put that met another one in flight


class S3Backend:
    """Names below `bucket/prefix`."""

    def __init__(self, place: str) -> None:
        """Take an existing bucket; MissingError if there is none."""
        self._bucket, _, prefix = place.strip("/").partition("/")
        self._prefix = f"{prefix}/" if prefix else ""
        # No instance of before: it has the credentials that there were, or none.
        self._files = s3fs.S3FileSystem(
            use_listings_cache=False, default_fill_cache=False, skip_instance_cache=True
        )
        self._call("head_bucket", f"look at bucket {self._bucket}")

    @property
    def location(self) -> str:
        """`s3://bucket/prefix`."""
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    @property
    def cache(self) -> Path:
        """A folder of this user, one a store."""
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        return Path(base).expanduser() / "rnnsearch" / hash_bytes(self.location.encode())[:16]

    def make_folder(self, folder: Path) -> None:
        """Create a folder of the cache and those above it."""
        make_folder(folder)

    def create_exclusive(self, name: str, data: bytes) -> bool:
        """Make `name` hold `data` if there is no such name; of many racers exactly one gets True."""
        return self._put_if(name, data, {"IfNoneMatch": "*"}) is not None

    def replace_if(self, name: str, data: bytes, expected: str | None) -> str | None:
        """Give a register new data if its version is `expected` (None: if there is none); the new version, or None."""
        return self._put_if(name, data, {"IfNoneMatch": "*"} if expected is None else {"IfMatch": expected})

    def read(self, name: str) -> bytes:
        """The bytes of a record or blob; MissingError if it is not there."""
        found = self.read_versioned(name)
        if found is None:
            raise MissingError(f"{self.location}/{name} is missing")
        return found.data

    def read_versioned(self, name: str) -> Versioned | None:
        """The data and the version of a register, or None."""
        try:
            answer = self._call("get_object", f"read {name}", Key=self._key(name))
        except MissingError:
            return None
        body = self._guard(f"read {name}", lambda: s3fs.core.sync(self._files.loop, answer["Body"].read))
        return Versioned(body, answer["ETag"])

    def read_many(self, names: Sequence[str]) -> list[bytes | None]:
        """The bytes of each name, None for a missing one; many at a time."""
        if not names:
            return []
        paths = [f"{self._bucket}/{self._key(name)}" for name in names]
        found = self._guard("read many names", lambda: self._files.cat(paths, on_error="return"))
        if isinstance(found, bytes):  # of a single path
            found = {paths[0]: found}
        return [self._read_one(name, found[path]) for name, path in zip(names, paths, strict=True)]

    def put(self, name: str, data: bytes) -> None:
        """Write an immutable blob, whole or not at all; replaces what is there."""
        path = f"{self._bucket}/{self._key(name)}"
        self._guard(f"write {name}", lambda: self._files.pipe_file(path, data))

    def put_file(self, name: str, path: Path, digest: Digest) -> None:
        """Write an immutable blob from a local file; StoreError if the file's bytes are not those of `digest`."""
        target = f"{self._bucket}/{self._key(name)}"
        self._guard(f"write {name}", lambda: self._files.put_file(str(path), target))
        if hash_file(path) != digest:
            self.delete(name)
            raise StoreError(f"{path} changed while it was being stored; store it again when it is finished")

    def fetch(self, name: str, destination: Path) -> None:
        """Copy a blob into a new local file."""
        path = f"{self._bucket}/{self._key(name)}"
        self._guard(f"read {name}", lambda: self._files.get_file(path, str(destination)))

    def local_path(self, name: str) -> Path | None:
        """None: objects have no local file."""
        check_name(name)
        return None

    def digest(self, name: str) -> Digest:
        """The digest of the bytes as they are now; MissingError if there are none."""
        path = f"{self._bucket}/{self._key(name)}"

        def hashed() -> str:
            with self._files.open(path, "rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()

        return Digest(self._guard(f"read {name}", hashed))

    def stat(self, name: str) -> FileState | None:
        """Size and ETag, or None if it is not there."""
        try:
            answer = self._call("head_object", f"look at {name}", Key=self._key(name))
        except MissingError:
            return None
        return FileState(answer["ContentLength"], answer["ETag"])

    def names(self, prefix: str) -> list[str]:
        """All names inside the folder `prefix`, at any depth, sorted."""
        keys = [item["Key"] for page in self._pages(prefix, "") for item in page.get("Contents", ())]
        return sorted(key.removeprefix(self._prefix) for key in keys)

    def states(self, prefix: str) -> dict[str, FileState]:
        """Size and ETag of every name inside the folder `prefix`, at any depth."""
        return {
            item["Key"].removeprefix(self._prefix): FileState(item["Size"], item["ETag"])
            for page in self._pages(prefix, "")
            for item in page.get("Contents", ())
        }

    def children(self, prefix: str) -> list[str]:
        """The first parts of the names inside the folder `prefix`, without the prefix, sorted."""
        found: set[str] = set()
        for page in self._pages(prefix, "/"):
            found.update(item["Key"] for item in page.get("Contents", ()))
            found.update(item["Prefix"].rstrip("/") for item in page.get("CommonPrefixes", ()))
        return sorted(key.rpartition("/")[2] for key in found)

    def move(self, name: str, to: str) -> bool:
        """Give a blob another name, replacing it; False if it was not there. Two steps: both may be seen between."""
        source, target = (f"{self._bucket}/{self._key(part)}" for part in (name, to))
        try:
            self._guard(f"copy {name}", lambda: self._files.cp_file(source, target))
        except MissingError:
            return False
        return self.delete(name)

    def delete(self, name: str) -> bool:
        """Remove a name; False if it was not there."""
        if self.stat(name) is None:
            return False
        self._call("delete_object", f"delete {name}", Key=self._key(name))
        return True

    def sweep(self) -> list[str]:
        """Remove what dead processes of this host left unfinished; the names removed."""
        left = [f"{TEMPORARY}/{name}" for name in left_over_files(self.children(TEMPORARY))]
        return [name for name in left if self.delete(name)]

    def _key(self, name: str) -> str:
        return self._prefix + check_name(name)

    def _put_if(self, name: str, data: bytes, condition: Mapping[str, str]) -> str | None:
        """Put under a condition; the version, or None if the condition did not hold."""
        mark = secrets.token_hex(16)
        for attempt in range(_TRIES):
            try:
                answer = self._call(
                    "put_object",
                    f"write {name}",
                    Key=self._key(name),
                    Body=data,
                    Metadata={_WRITER: mark},
                    **condition,
                )
            except MissingError:  # replacing what is gone
                return None
            except _ConditionFailedError:
                return self._made_by(name, mark)
            except _ConflictError:  # another conditional put is in flight
                time.sleep(0.05 * 2**attempt)
            else:
                return str(answer["ETag"])
        raise StoreError(
            f"could not write {self.location}/{name}: other writers were in the way {_TRIES} times; run again"
        )

    def _made_by(self, name: str, mark: str) -> str | None:
        """The version of `name` if our own put made it: its answer may have been lost, and the put tried again."""
        try:
            answer = self._call("head_object", f"look at {name}", Key=self._key(name))
        except MissingError:
            return None
        return str(answer["ETag"]) if answer.get("Metadata", {}).get(_WRITER) == mark else None

    def _read_one(self, name: str, found: bytes | Exception) -> bytes | None:
        if isinstance(found, FileNotFoundError):
            return None
        return self.read(name) if isinstance(found, Exception) else found

    def _pages(self, folder: str, delimiter: str) -> list[Mapping[str, Any]]:
        prefix = f"{self._prefix}{check_name(folder)}/" if folder else self._prefix
        pages = []
        token: dict[str, str] = {}
        while True:
            page = self._call(
                "list_objects_v2", f"list {folder}", Prefix=prefix, Delimiter=delimiter, **token
            )
            pages.append(page)
            if not page.get("IsTruncated"):
                return pages
            token = {"ContinuationToken": page["NextContinuationToken"]}

    def _call(self, method: str, doing: str, **arguments: Any) -> Any:
        return self._guard(doing, lambda: self._files.call_s3(method, Bucket=self._bucket, **arguments))

    def _guard(self, doing: str, action: Callable[[], _T]) -> _T:
        """What `action` returns; its errors as ours."""
        try:
            return action()
        except (OSError, ClientError, BotoCoreError) as error:
            raise self._explained(error, doing) from error

    def _explained(self, error: Exception, doing: str) -> StoreError:
        cause = error if isinstance(error, ClientError) else error.__cause__
        code = str(cause.response.get("Error", {}).get("Code", "")) if isinstance(cause, ClientError) else ""
        if code in {"PreconditionFailed", "412"} or isinstance(error, FileExistsError):
            return _ConditionFailedError(doing)
        if code in {"ConditionalRequestConflict", "OperationAborted", "409"}:
            return _ConflictError(doing)
        if isinstance(error, FileNotFoundError) or code in {"NoSuchKey", "NoSuchBucket", "404"}:
            return MissingError(f"{self.location}: nothing there to {doing}; check the bucket and the name")
        if isinstance(error, PermissionError):
            return StoreError(
                f"{self.location}: may not {doing}: {error}; check the credentials and the bucket's policy"
            )
        return StoreError(
            f"{self.location}: could not {doing}: {error}; check the network and AWS_ENDPOINT_URL, then run again"
        )


class _ConditionFailedError(StoreError):
    """The condition of a put did not hold."""


class _ConflictError(StoreError):
    """Another conditional put of the same name was in flight."""
