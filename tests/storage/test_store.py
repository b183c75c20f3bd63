"""The store as a whole: opening it, and artifacts."""

import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rnnsearch.storage.artifacts import Artifact, FileEntry, make_manifest
from rnnsearch.storage.blobs import blob_name
from rnnsearch.storage.code import code_digest
from rnnsearch.storage.digests import Digest
from rnnsearch.storage.errors import DamagedError, MissingError, StoreError
from rnnsearch.storage.parts import Sourced, changed_lines, pack_sources, unpack_sources
from rnnsearch.storage.store import Store


@pytest.fixture
def artifact(store: Store) -> Artifact:
    return store.write_artifact(
        FileEntry(path, *store.put_bytes(data), None) for path, data in (("b/two", b"2"), ("a", b"one"))
    )


def test_an_artifact_is_named_by_its_files_in_any_order(store: Store, artifact: Artifact) -> None:
    assert [entry.path for entry in artifact.files] == ["a", "b/two"]
    assert store.write_artifact(reversed(artifact.files)) == artifact
    assert store.read_artifact(artifact.digest) == artifact
    assert artifact.size == 4
    renamed = [artifact.files[0]._replace(path="c"), artifact.files[1]]
    assert store.write_artifact(renamed).digest != artifact.digest


def test_the_name_of_an_artifact_is_known() -> None:
    entry = FileEntry("shard-00000.parquet", Digest("0" * 64), 10, 2)
    assert make_manifest([entry]).data == (
        b'{"artifact":1,"files":[{"digest":"'
        + b"0" * 64
        + b'","path":"shard-00000.parquet","rows":2,"size":10}]}'
    )


def test_rows_are_summed_where_all_files_are_tables(store: Store, artifact: Artifact) -> None:
    assert artifact.rows is None
    assert Artifact(artifact.digest, tuple(entry._replace(rows=3) for entry in artifact.files)).rows == 6


@pytest.mark.parametrize("paths", [("a", "a"), ("../a",), ("/a",), ("",), ("a/../b",)])
def test_bad_and_repeated_paths_are_refused(paths: tuple[str, ...]) -> None:
    with pytest.raises(StoreError):
        make_manifest(FileEntry(path, Digest("0" * 64), 1) for path in paths)


def test_a_folder_has_the_files_read_only(store: Store, artifact: Artifact) -> None:
    folder = store.local_folder(artifact.digest)
    files = {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }
    assert files == {"a": b"one", "b/two": b"2"}
    assert not any(path.stat().st_mode & 0o222 for path in folder.rglob("*") if path.is_file())
    assert store.local_folder(artifact.digest) == folder


def test_a_folder_that_was_changed_is_laid_out_again(store: Store, artifact: Artifact) -> None:
    folder = store.local_folder(artifact.digest)
    (folder / "a").unlink()
    (folder / "a").write_bytes(b"harm")
    (folder / "more").write_bytes(b"harm")
    folder = store.local_folder(artifact.digest)
    assert (folder / "a").read_bytes() == b"one"
    assert not (folder / "more").exists()


def test_a_folder_of_damaged_blobs_is_not_served(store: Store, artifact: Artifact) -> None:
    folder = store.local_folder(artifact.digest)
    path = folder / "a"  # the blob itself, by another name
    path.chmod(0o644)
    path.write_bytes(b"eno")
    with pytest.raises(DamagedError):
        store.local_folder(artifact.digest)


def test_threads_lay_out_one_folder(store: Store, artifact: Artifact) -> None:
    found: list[bytes] = []
    threads = [
        threading.Thread(
            target=lambda: found.append((store.local_folder(artifact.digest) / "a").read_bytes())
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [b"one"] * 8
    assert [path.name for path in (store.backend.cache / "folders").iterdir()] == [artifact.digest]


@pytest.mark.parametrize("which", ["manifest", "a", "b/two"])
@pytest.mark.parametrize("harm", ["deleted", "truncated", "flipped"])
def test_an_artifact_with_any_harm_is_not_intact(
    store: Store, artifact: Artifact, which: str, harm: str
) -> None:
    assert store.intact(artifact.digest)
    digests = {entry.path: entry.digest for entry in artifact.files} | {"manifest": artifact.digest}
    path = Path(store.location) / blob_name(digests[which])
    path.chmod(0o644)
    if harm == "deleted":
        path.unlink()
    elif harm == "truncated":
        os.truncate(path, path.stat().st_size - 1)
    else:
        path.write_bytes(b"X" * path.stat().st_size)
    assert not store.intact(artifact.digest)
    assert not Store.open(store.location).intact(artifact.digest)


def test_a_blob_that_is_no_manifest_is_refused(store: Store) -> None:
    for data in (b"bytes", b"{}", b"[]", b'{"artifact":2,"files":[]}', b'{"artifact":1,"files":[{"a":1}]}'):
        with pytest.raises(DamagedError, match="no artifact of layout 1"):
            store.read_artifact(store.put_bytes(data).digest)
    with pytest.raises(MissingError):
        store.read_artifact(Digest("0" * 64))


def test_a_store_can_be_pickled(store: Store, artifact: Artifact) -> None:
    assert pickle.loads(pickle.dumps(store)).read_artifact(artifact.digest) == artifact


def test_the_parts_of_a_code_digest_come_back(store: Store) -> None:
    code = code_digest(["rnnsearch.storage.digests"])
    assert store.code_parts(code.digest) is None
    assert store.code_sources(code.digest) is None
    store.put_code(code)
    assert store.code_parts(code.digest) == code.parts
    assert store.code_sources(code.digest) == code.sources
    assert "def hash_bytes" in code.sources["rnnsearch.storage.digests:hash_bytes"]


def test_sources_come_to_a_code_digest_whose_parts_were_stored_without(store: Store) -> None:
    code = code_digest(["rnnsearch.storage.digests"])
    store.bring_code(code.digest, code.parts)
    assert store.code(code.digest) is None
    store.put_code(code)
    assert store.code(code.digest) == (code.parts, code.sources)


def test_equal_sources_give_equal_bytes_and_other_bytes_are_damaged() -> None:
    packed = pack_sources({"a:x": "x = 1\n", "a:y": "y = 2\n"})
    assert packed == pack_sources({"a:y": "y = 2\n", "a:x": "x = 1\n"})
    for data in (b"", packed[:-1], packed.replace(packed[-3:], b"abc"), b"x" + packed):
        with pytest.raises(DamagedError, match="damaged"):
            unpack_sources(data)


def test_the_lines_of_a_changed_definition_are_told_under_its_present_name() -> None:
    old = Sourced({"a:x": "1 10", "a:y": "2 20", "a:gone": "3 30"}, {"a:x": "x = 1\n", "a:y": "y = 2\n"})
    new = Sourced({"b:x": "1 10", "a:y": "4 40"}, {"b:x": "x = 1\n", "a:y": "y = 3\n"})
    assert list(changed_lines(old, new)) == [("a:y", ("@@ -1 +1 @@", "-y = 2", "+y = 3"))]


def test_a_folder_with_other_things_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(StoreError, match=r"it holds thesis.tex"):
        Store.open(tmp_path)


def test_a_store_is_not_made_where_it_should_be_found(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no folder"):
        Store.open(tmp_path / "x", create=False)
    (tmp_path / "x").mkdir()
    with pytest.raises(StoreError, match="it is empty"):
        Store.open(tmp_path / "x", create=False)
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="is a file"):
        Store.open(tmp_path / "file")


def test_another_layout_is_refused(store: Store) -> None:
    path = Path(store.location) / "store.json"
    path.write_text('{"layout": 2}')
    with pytest.raises(StoreError, match="has layout 2, this version of rnnsearch knows 1"):
        Store.open(store.location)
    path.write_text("{")
    with pytest.raises(DamagedError, match="write"):
        Store.open(store.location)


def test_a_store_killed_while_it_was_made_can_be_opened(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "local" / "host").mkdir(parents=True)
    Store.open(tmp_path)


def test_the_store_imports_neither_torch_nor_s3fs_nor_prefect() -> None:
    code = "import sys, rnnsearch.storage.store; print(*sorted(m for m in sys.modules if '.' not in m))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"torch", "s3fs", "aiobotocore", "prefect", "ray", "pandas", "fsspec"} & set(loaded)
