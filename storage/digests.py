"""Names by content: SHA-256 of bytes, and the one JSON text of a value."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NewType

Digest = NewType("Digest", str)
"""64 lower-case hexadecimal digits of a SHA-256."""

DIGEST_LENGTH = 64


def hash_bytes(data: bytes) -> Digest:
    """The digest of these bytes."""
    return Digest(hashlib.sha256(data).hexdigest())


def hash_file(path: Path) -> Digest:
    """The digest of a file's bytes, read in pieces."""
    with path.open("rb") as file:
        return Digest(hashlib.file_digest(file, "sha256").hexdigest())


def is_digest(text: str) -> bool:
    """Whether `text` is written as a digest."""
    return len(text) == DIGEST_LENGTH and not text.strip("0123456789abcdef")


def canonical_json(value: Mapping[str, Any] | Sequence[Any]) -> bytes:
    """The one JSON text of a value: sorted keys, no spaces, UTF-8; NaN and infinities are a ValueError."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode()
