"""Identity of a source is its content: whatever address it has, equal bytes are one recipe, and other bytes another."""

import hashlib
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rnnsearch.flows import bring as bringing
from rnnsearch.flows.bring import bring
from rnnsearch.flows.dag import build
from rnnsearch.flows.download import doubt_downloads
from rnnsearch.flows.proof import CodeMismatchError, proof_of
from rnnsearch.flows.recipe import look_up, recipe_of
from rnnsearch.flows.settings import PROFILES, load_settings
from rnnsearch.flows.shapes import Stage
from rnnsearch.flows.sources import file as local_files
from rnnsearch.flows.sources import known
from rnnsearch.flows.sources.checks import SourceError
from rnnsearch.storage.digests import hash_bytes, hash_file
from rnnsearch.storage.runs import StageUse
from rnnsearch.storage.store import Store
from rnnsearch.storage.transfer import carry_run

TEXT = b"".join(b"line %d\n" % n for n in range(400))
SHA = hashlib.sha256(TEXT).hexdigest()
MD5 = hashlib.md5(TEXT).hexdigest()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "store")


def stage_of(*overrides: str, profile: str = "smoke") -> Stage:
    """The download of `lines-en`."""
    stages = build(load_settings(profile, overrides))
    return next(stage for stage in stages if stage.name == "download/lines-en")


def at(url: str, *more: str) -> Stage:
    return stage_of(f"sources.lines-en.url='{url}'", *(f"sources.lines-en.{each}" for each in more))


def silent(note: str) -> None:
    """Show no progress."""


def stored(store: Store, stage: Stage) -> bytes:
    """The bytes of a download, and a check that its file has no name of its own."""
    attempt = bring(stage, store, silent)
    (entry,) = store.read_artifact(attempt.outputs["file"]).files
    assert entry.path == "file"
    return store.get_bytes(entry.digest)


def test_a_pinned_digest_at_a_mirror_is_a_hit(serve, store: Store) -> None:
    first, second = serve(body=TEXT), serve(body=TEXT)
    assert stored(store, at(first.url("a.en"), f"sha256='{SHA}'")) == TEXT
    assert stored(store, at(second.url("b.txt"), f"sha256='{SHA}'")) == TEXT
    assert (len(first.seen), len(second.seen)) == (1, 0)


def test_a_local_file_and_a_pinned_address_of_the_same_bytes_are_one_recipe(
    store: Store, tmp_path: Path
) -> None:
    (tmp_path / "mine.txt").write_bytes(TEXT)
    local = at((tmp_path / "mine.txt").as_uri())
    assert stored(store, local) == TEXT
    assert stored(store, at("http://127.0.0.1:9/nobody", f"sha256='{SHA}'")) == TEXT


def test_an_address_without_a_digest_stays_in_the_key(serve, store: Store) -> None:
    first, second = serve(body=TEXT), serve(body=TEXT)
    bring(at(first.url("a.txt")), store, silent)
    bring(at(second.url("a.txt")), store, silent)
    assert (len(first.seen), len(second.seen)) == (1, 1)


def test_a_digest_learned_at_an_address_serves_when_it_becomes_a_pin(serve, store: Store) -> None:
    site = serve(body=TEXT)
    bring(at(site.url("a.txt")), store, silent)
    assert stored(store, at(site.url("a.txt"), f"sha256='{SHA}'")) == TEXT
    assert len(site.seen) == 1


def test_another_member_of_the_same_archive_is_another_recipe() -> None:
    keys = {
        recipe_of(at("http://host/a.zip", f"sha256='{SHA}'", f"member='{name}'"), {}).key
        for name in ("a.en", "a.fr")
    }
    assert len(keys) == 2


def test_nothing_in_a_recipe_tells_where_the_profile_and_its_texts_lie(tmp_path: Path) -> None:
    for path in PROFILES.glob("smoke*"):
        shutil.copy(path, tmp_path)
    here, there = (build(load_settings(profile)) for profile in ("smoke", str(tmp_path / "smoke.toml")))
    for one, other in zip(here, there, strict=True):
        assert one.config == other.config
        assert list(one.inputs()) == list(other.inputs())
        if one.kind == "download":
            assert recipe_of(one, {}).key == recipe_of(other, {}).key
        assert str(tmp_path) not in str(other.config)


def test_an_imported_run_is_a_hit_whatever_the_folder_of_its_texts(store: Store, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(TEXT)
    stage = at((tmp_path / "a.txt").as_uri())
    attempt = bring(stage, store, silent)
    run = store.runs.start({"profile": "smoke", "overrides": []})
    store.runs.record_stage(run.id, StageUse(stage.name, attempt.key, attempt.number, False, "", 0.0))
    store.runs.finish(run.id, "finished")
    here = Store.open(tmp_path / "here")
    carry_run(store, here, store.runs.get(run.id))
    (tmp_path / "a.txt").rename(tmp_path / "b.txt")
    moved = at((tmp_path / "b.txt").as_uri())
    assert look_up(here, recipe_of(moved, {}), moved.roots).attempt is not None


@pytest.mark.parametrize("when", ["before the copy", "before it is stored"])
def test_a_file_that_changes_between_its_hash_and_its_copy_is_recorded_under_no_key(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    text = tmp_path / "mine.txt"
    text.write_bytes(TEXT)
    if when == "before the copy":
        copy = local_files.copy

        def late(url: str, target: Path, progress: Callable[[int, int | None], None]) -> None:
            text.write_bytes(b"other\n")
            copy(url, target, progress)

        monkeypatch.setattr(local_files, "copy", late)
    else:
        put = Store.put_file

        def changed(self: Store, path: Path) -> object:
            path.write_bytes(b"other\n")
            return put(self, path)

        monkeypatch.setattr(Store, "put_file", changed)
    stage = at(text.as_uri())
    with pytest.raises(SourceError, match=r"run again"):
        bring(stage, store, silent)
    assert store.ledger.history(stage.name) == []
    monkeypatch.undo()
    assert stored(store, stage) == text.read_bytes()


@pytest.mark.parametrize(
    ("pin", "doubted"), [((), True), ((f"sha256='{SHA}'",), False), ((f"md5='{MD5}'",), False)]
)
def test_only_a_download_without_a_digest_is_doubted_when_a_stage_cannot_read_it(
    serve, store: Store, pin: tuple[str, ...], doubted: bool
) -> None:
    overrides = [f"sources.lines-en.{each}" for each in (f"url='{serve(body=TEXT).url('a.en')}'", *pin)]
    stages = {stage.name: stage for stage in build(load_settings("smoke", overrides))}
    ingest = stages["ingest/lines"]
    upstream = {name: dict(bring(stages[name], store, silent).outputs) for name in ingest.upstream()}
    doubt_downloads(store, ingest, recipe_of(ingest, upstream), "no pairs")
    states = {name: store.ledger.history(name)[-1].withdrawn for name in upstream}
    wanted = "doubted" if doubted else None
    assert states == {"download/lines-en": wanted, "download/lines-fr": None, "download/lines-key": None}
    stage = stages["download/lines-en"]
    assert (look_up(store, recipe_of(stage, {}), stage.roots).attempt is None) == doubted


# What is remembered of local files


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file large enough to be remembered, last changed some time ago."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(known, "_SMALL", 10)
    monkeypatch.setattr(known, "_SETTLED", -1e9)
    path = tmp_path / "large.en"
    path.write_bytes(TEXT)
    return path


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that are hashed."""
    seen: list[Path] = []

    def look(path: Path) -> str:
        seen.append(path)
        return hash_file(path)

    monkeypatch.setattr(known, "hash_file", look)
    return seen


def test_a_file_that_did_not_change_is_hashed_once(large: Path, hashed: list[Path]) -> None:
    assert known.content_of(large) == known.content_of(large) == hash_bytes(TEXT)
    assert hashed == [large]


@pytest.mark.parametrize("keep_dates", [False, True])
def test_a_file_that_changed_is_hashed_again_even_with_its_old_size_and_date(
    large: Path, hashed: list[Path], keep_dates: bool
) -> None:
    state = large.stat()
    known.content_of(large)
    with large.open("r+b") as file:
        file.write(b"LINE")
    if keep_dates:
        os.utime(large, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert known.content_of(large) == hash_file(large)
    assert len(hashed) == 2


def test_a_file_that_was_written_just_now_may_change_at_the_same_dates_and_is_not_remembered(
    large: Path, hashed: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known, "_SETTLED", 1e9)
    known.content_of(large)
    known.content_of(large)
    assert len(hashed) == 2


@pytest.mark.parametrize("harm", [b"\xff\xfe torn", b"0 0", b""])
def test_a_damaged_memory_is_no_memory(large: Path, hashed: list[Path], harm: bytes) -> None:
    known.content_of(large)
    known._log().write_bytes(harm)
    assert known.content_of(large) == hash_bytes(TEXT)
    assert len(hashed) == 2


def test_a_wrong_memory_ends_in_an_error_and_is_given_up(
    large: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known, "hash_file", lambda path: hash_bytes(b"of another time"))
    stage = at(large.as_uri())
    with pytest.raises(SourceError, match="run again when nothing writes to it"):
        bring(stage, store, silent)
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(large.parent / "cache"))
    monkeypatch.setattr(known, "_SMALL", 10)
    assert stored(store, stage) == TEXT


def test_the_memory_is_bounded(large: Path, hashed: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "_MOST", 4)
    for n in range(12):
        path = large.with_name(f"{n}.en")
        path.write_bytes(TEXT)
        known.content_of(path)
    assert len(known._log().read_text().splitlines()) <= 5
    assert known.content_of(large.with_name("11.en")) == hash_bytes(TEXT)
    assert len(hashed) == 12


def test_fetching_again_asks_the_server_even_where_the_bytes_are_there(serve, store: Store) -> None:
    site = serve(body=TEXT)
    stage = at(site.url("a.txt"), f"sha256='{SHA}'")
    bring(stage, store, silent)
    bring(stage, store, silent, again=True)
    assert len(site.seen) == 2
    assert bringing.look_up(store, recipe_of(stage, {}), stage.roots).attempt is not None


def test_a_fetch_outside_a_run_records_nothing_where_other_code_was_loaded(
    serve, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = at(serve(body=TEXT).url("a.en"))
    proof = proof_of(stage.roots)
    (module, *_) = [name for name in proof.modules if name in sys.modules]
    monkeypatch.setattr(
        bringing,
        "proof_of",
        lambda roots: proof._replace(code=hash_bytes(b"other"), modules={module: "other"}),
    )
    with pytest.raises(CodeMismatchError, match="nothing was recorded"):
        bring(stage, store, silent)
    assert store.ledger.history(stage.name) == []
