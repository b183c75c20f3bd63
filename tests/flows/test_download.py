"""What the bridge does around one long piece of work: here, what an interrupted download leaves to the next."""

import fcntl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rnnsearch.flows.download import download
from rnnsearch.flows.job import Job, Place, work_folder
from rnnsearch.flows.proof import Proof
from rnnsearch.storage.digests import Digest, hash_bytes
from rnnsearch.storage.store import Store

BODY = bytes(range(256)) * 4_000


class _Ranges(BaseHTTPRequestHandler):
    """Serves the end of the body from the byte that is asked for."""

    asked: list[int]

    def do_GET(self) -> None:
        offset = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").removesuffix("-"))
        self.asked.append(offset)
        self.send_response(206 if offset else 200)
        self.send_header("ETag", '"one"')
        self.send_header("Content-Length", str(len(BODY) - offset))
        if offset:
            self.send_header("Content-Range", f"bytes {offset}-{len(BODY) - 1}/{len(BODY)}")
        self.end_headers()
        self.wfile.write(BODY[offset:])

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base class calls it
        """Say nothing."""


@contextmanager
def _site() -> Iterator[tuple[str, list[int]]]:
    asked: list[int] = []
    handler = type("Ranges", (_Ranges,), {"asked": asked})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/text.en", asked
        server.shutdown()


def _job(store: Store, url: str, epoch: int) -> Job:
    return Job(
        location=store.location,
        stage="download/text",
        key=hash_bytes(b"download"),
        epoch=epoch,
        inputs={},
        config={"url": url},
        place=Place(),
        proof=Proof((), Digest(""), {}, {}),
        unkeyed={"source": {"url": url}},
    )


def _begin(folder: Path, url: str) -> Path:
    """What a killed download leaves; returns the unfinished file."""
    fetched = folder / "fetched"
    fetched.mkdir()
    part = fetched / "text.en.part"
    part.write_bytes(BODY[:1_000])
    record = f'{{"url": "{url}", "validator": "\\"one\\"", "total": {len(BODY)}}}'
    (fetched / "text.en.part.json").write_text(record)
    return part


def test_a_download_goes_on_where_an_earlier_epoch_was_killed_and_leaves_nothing_of_it(
    tmp_path: Path,
) -> None:
    store = Store.open(tmp_path / "store")
    with _site() as (url, asked):
        _begin(_job(store, url, 1).workdir(), url)
        done = download(_job(store, url, 2), lambda _: None)
    assert asked == [1_000]
    assert done.files["file"][0].digest == hash_bytes(BODY)
    assert [path.name for path in work_folder(store, hash_bytes(b"download")).iterdir()] == ["epoch-00002"]


@pytest.mark.timeout(20)
def test_a_holder_that_slept_and_writes_late_writes_into_no_file_of_its_heir(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store")
    with _site() as (url, asked):
        folder = _job(store, url, 1).workdir()
        part = _begin(folder, url)
        with (folder / "lock").open("w") as lock, part.open("ab") as late:
            fcntl.flock(lock, fcntl.LOCK_EX)  # the sleeper has it, and will for ever

            def wake(_: str) -> None:
                late.write(b"late")
                late.flush()

            done = download(_job(store, url, 2), wake)
    assert asked == [1_000]
    assert done.files["file"][0].digest == hash_bytes(BODY)


def test_a_kill_while_earlier_files_are_taken_over_loses_none_of_them(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store")
    with _site() as (url, asked):
        _begin(_job(store, url, 1).workdir(), url)
        torn = _job(store, url, 2).workdir() / "copying"
        torn.mkdir()
        (torn / "text.en.part").write_bytes(BODY[:10])
        done = download(_job(store, url, 3), lambda _: None)
    assert asked == [1_000]
    assert done.files["file"][0].digest == hash_bytes(BODY)
