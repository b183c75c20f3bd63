"""Small JSON records that carry a check of themselves, so that a damaged one is never believed."""

import json
from collections.abc import Mapping
from typing import Any

from rnnsearch.storage.digests import canonical_json, hash_bytes
from rnnsearch.storage.errors import DamagedError

_CHECK = "check"


def seal(body: Mapping[str, Any]) -> bytes:
    """The record's bytes: canonical JSON of the body with the digest of the body beside it."""
    return canonical_json({**body, _CHECK: hash_bytes(canonical_json(body))}) + b"\n"


def unseal(data: bytes, name: str) -> dict[str, Any]:
    """The body of a sealed record; DamagedError if its bytes are not those that were written."""
    try:
        body = json.loads(data)
        check = body.pop(_CHECK)
        sound = hash_bytes(canonical_json(body)) == check
    except (ValueError, KeyError, AttributeError, TypeError):
        sound = False
    if not sound:
        raise DamagedError(
            f"{name} was changed after it was written: its check does not fit; delete it and run again"
        )
    return dict(body)


def is_sealed(data: bytes, name: str) -> bool:
    """Whether these are the bytes of a record as it was written."""
    try:
        unseal(data, name)
    except DamagedError:
        return False
    return True
