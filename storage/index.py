"""An index of small records: their bodies in one local file a folder, so that thousands are read at once.

It is derived from the records and never trusted over them: each body counts only while its record has the size and
fingerprint that it had when it was read. A file that is missing, damaged, or behind is read from the records and
written anew. It is replaced whole, so a killed writer leaves the old one; of two writers the last one wins, and what
it lacks is read from the records the next time.
"""

import contextlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rnnsearch.storage.backends import Backend, FileState
from rnnsearch.storage.cache import temporary_path
from rnnsearch.storage.digests import hash_bytes
from rnnsearch.storage.errors import StoreError

Body = Mapping[str, Any]
Parse = Callable[[str, bytes], Body | None]
"""The body of the record of a name from its bytes, or None if it is damaged."""


class Index:
    """The bodies of the records of one backend, by folder."""

    def __init__(self, backend: Backend) -> None:
        """Keep files in the backend's local cache, which need not be writable."""
        self._backend = backend
        self._folder = backend.cache / "index"
        self._loaded: dict[str, dict[str, tuple[FileState, Body]]] = {}

    def bodies(self, folder: str, parse: Parse) -> dict[str, Body]:
        """The body of every sound record below a folder, by name, sorted."""
        if folder not in self._loaded:
            self._loaded[folder] = _load(self._path(folder))
        known = self._loaded[folder]
        states = self._backend.states(folder)
        fresh = {name: known[name] for name in states if name in known and known[name][0] == states[name]}
        unread = [name for name in states if name not in fresh]
        for name, data in zip(unread, self._backend.read_many(unread), strict=True):
            body = None if data is None else parse(name, data)
            # A record replaced since it was listed has another state: then it is read again the next time.
            if body is not None:
                fresh[name] = (states[name], body)
        if fresh.keys() != known.keys() or unread:
            self._loaded[folder] = fresh
        if any(name in fresh for name in unread) or len(fresh) < len(known):
            self._write(folder, fresh)
        return {name: fresh[name][1] for name in sorted(fresh)}

    def _path(self, folder: str) -> Path:
        return self._folder / f"{quote(folder, safe='')}.json"

    def _write(self, folder: str, entries: Mapping[str, tuple[FileState, Body]]) -> None:
        rows = {name: [*state, body] for name, (state, body) in entries.items()}
        data = json.dumps(rows, separators=(",", ":")).encode()
        with contextlib.suppress(OSError, StoreError):  # a read-only store, a full disk: read again next time
            self._backend.make_folder(self._folder)
            temporary = temporary_path(self._backend.cache, self._backend.make_folder)
            try:
                temporary.write_bytes(hash_bytes(data).encode() + b"\n" + data)
                temporary.replace(self._path(folder))
            finally:
                temporary.unlink(missing_ok=True)


def _load(path: Path) -> dict[str, tuple[FileState, Body]]:
    """The entries of an index file; none if it is missing or not as it was written."""
    try:
        check, _, data = path.read_bytes().partition(b"\n")
    except OSError:
        return {}
    if hash_bytes(data).encode() != check:
        return {}
    return {name: (FileState(size, mark), body) for name, (size, mark, body) in json.loads(data).items()}
