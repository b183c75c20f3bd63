"""What the tests of the store share."""

import os
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from rnnsearch.storage.digests import Digest, hash_bytes
from rnnsearch.storage.recipes import Recipe
from rnnsearch.storage.store import Store

RecipeMaker = Callable[..., Recipe]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "store")


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one, for tests that would flush to the disk a thousand times."""
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        yield Path(folder)


@pytest.fixture
def recipe() -> RecipeMaker:
    """A recipe of a stage, with what the caller sets."""

    def make(
        stage: str = "clean/train",
        *,
        code: Digest | None = None,
        config: Mapping[str, Any] | None = None,
        inputs: Mapping[str, Digest] | None = None,
        libraries: Mapping[str, str] | None = None,
    ) -> Recipe:
        return Recipe(
            stage=stage,
            code=code or hash_bytes(b"code"),
            config=config or {},
            inputs=inputs or {},
            python="3.11",
            libraries=libraries or {},
        )

    return make


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """A server with S3's interface on a free port of the loopback."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(s3_server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A new bucket; the environment says where, and where copies are kept."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    name = f"bucket-{secrets.token_hex(8)}"
    boto3.client("s3").create_bucket(Bucket=name)
    return name
