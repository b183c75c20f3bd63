"""Recipes of stages, and what the ledger says of them: a hit that can be used, or the exact reasons for none."""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import rnnsearch
from rnnsearch.flows import recipe as recipes
from rnnsearch.flows.dag import build
from rnnsearch.flows.errors import UsageError
from rnnsearch.flows.recipe import PYTHON, Finding, code_of, libraries_of, look_up, recipe_of
from rnnsearch.flows.settings import load_settings
from rnnsearch.flows.shapes import Kind, Map, Ref, Stage
from rnnsearch.storage.artifacts import FileEntry
from rnnsearch.storage.code import CodeError, code_digest
from rnnsearch.storage.digests import Digest, hash_bytes
from rnnsearch.storage.ledger import Attempt
from rnnsearch.storage.recipes import Recipe
from rnnsearch.storage.store import Store

KIND = Kind(
    name="tokenize",
    work=Map("rnnsearch.pipeline.duplicates:pair_hashes"),
    outputs=("pairs", "dropped"),
    libraries=("pyarrow",),
)
STAGE = KIND.stage(
    "dev",
    sharded={"pairs": (Ref("clean/dev", "kept"),)},
    whole={"sentences": (Ref("leakage", "sentences"), Ref("leakage", "more"))},
    config={"tokenize": {"escape": False, "limits": {"words": 50}}},
)
OTHER_CODE = replace(KIND, work=Map("rnnsearch.pipeline.duplicates:find_duplicates"))
UPSTREAM = {
    "clean/dev": {"kept": hash_bytes(b"kept")},
    "leakage": {"sentences": hash_bytes(b"sentences"), "more": hash_bytes(b"more")},
}

Recorder = Callable[..., Attempt]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "store")


@pytest.fixture
def record(store: Store) -> Recorder:
    """Makes an attempt of a recipe whose outputs hold the text given."""

    def make(recipe: Recipe, text: str = "") -> Attempt:
        outputs = {name: _artifact(store, f"{name}{text}") for name in STAGE.outputs}
        store.put_code(code_of(STAGE.roots))
        return store.ledger.record(recipe, outputs)

    return make


def _artifact(store: Store, text: str) -> Digest:
    blob = store.put_bytes(text.encode())
    return store.write_artifact([FileEntry("file", blob.digest, blob.size, None)]).digest


def _file(store: Store, digest: Digest) -> Path:
    path = store.backend.local_path(f"blobs/{digest[:2]}/{digest}")
    assert path is not None
    return path


def _blob(store: Store, attempt: Attempt, output: str) -> Path:
    (entry,) = store.read_artifact(attempt.outputs[output]).files
    return _file(store, entry.digest)


def _local(path: Path) -> Stage:
    return replace(STAGE, local=path, sharded={}, whole={})


def test_a_recipe_holds_the_digests_of_what_a_stage_takes_by_name_and_position() -> None:
    recipe = recipe_of(STAGE, UPSTREAM)
    assert recipe.inputs == {
        "pairs": UPSTREAM["clean/dev"]["kept"],
        "sentences[0]": UPSTREAM["leakage"]["sentences"],
        "sentences[1]": UPSTREAM["leakage"]["more"],
    }
    assert recipe.stage == STAGE.name
    assert recipe.config == {**STAGE.config, "sharded": ["pairs"]}
    assert recipe.code == code_of(STAGE.roots).digest
    assert recipe.python == PYTHON
    assert recipe.libraries == libraries_of(STAGE)
    assert set(recipe.libraries) == {"pyarrow"}


def test_the_key_depends_on_the_content_of_inputs_and_not_on_who_made_them() -> None:
    renamed = replace(STAGE, sharded={"pairs": (Ref("holdout", "dev"),)})
    same = {**UPSTREAM, "holdout": {"dev": UPSTREAM["clean/dev"]["kept"]}}
    assert recipe_of(renamed, same).key == recipe_of(STAGE, UPSTREAM).key
    other = {**UPSTREAM, "clean/dev": {"kept": hash_bytes(b"other")}}
    assert recipe_of(STAGE, other).key != recipe_of(STAGE, UPSTREAM).key


@pytest.mark.parametrize(
    "stage",
    [
        replace(STAGE, config={"tokenize": {"escape": True, "limits": {"words": 50}}}),
        replace(STAGE, declared=OTHER_CODE),
        replace(STAGE, declared=replace(KIND, libraries=("pyarrow", "numpy"))),
        replace(STAGE, name="tokenize/test"),
        replace(STAGE, whole={}),
        replace(STAGE, sharded={}, whole={**STAGE.whole, **STAGE.sharded}),
    ],
    ids=["config", "code", "libraries", "name", "inputs", "an input given whole"],
)
def test_whatever_decides_bytes_changes_the_key(stage: Stage) -> None:
    assert recipe_of(stage, UPSTREAM).key != recipe_of(STAGE, UPSTREAM).key


@pytest.mark.parametrize("change", ["python", "library"])
def test_another_python_or_another_version_of_a_library_is_another_key(
    monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    before = recipe_of(STAGE, UPSTREAM)
    if change == "python":
        monkeypatch.setattr(recipes, "PYTHON", "3.99")
    else:
        monkeypatch.setattr(recipes, "version", lambda name: f"{name} of tomorrow")
    assert recipe_of(STAGE, UPSTREAM).key != before.key


def test_the_content_of_a_file_outside_the_store_is_read_even_if_size_time_and_inode_stay(
    tmp_path: Path,
) -> None:
    path = tmp_path / "text.en"
    path.write_text("one line\n")
    state = path.stat()
    before = recipe_of(_local(path), {})
    with path.open("r+") as file:
        file.write("two")
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns, after.st_ino) == (
        state.st_size,
        state.st_mtime_ns,
        state.st_ino,
    )
    assert recipe_of(_local(path), {}).key != before.key
    path.write_text("one line\n")
    assert recipe_of(_local(path), {}).key == before.key


def test_a_file_that_is_gone_is_a_users_mistake_that_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"tokenize/dev: .*gone\.en cannot be read \(No such file"):
        recipe_of(_local(tmp_path / "gone.en"), {})


def test_a_stage_that_never_ran_says_so(store: Store) -> None:
    assert look_up(store, recipe_of(STAGE, UPSTREAM), STAGE.roots) == Finding(None, ("not computed yet",))


def test_the_newest_attempt_whose_outputs_are_all_there_is_a_hit(store: Store, record: Recorder) -> None:
    recipe = recipe_of(STAGE, UPSTREAM)
    record(recipe, "first")
    second = record(recipe, "second")
    found = look_up(store, recipe, STAGE.roots)
    assert found.attempt is not None
    assert (found.attempt.number, found.attempt.outputs) == (2, second.outputs)
    assert found.reasons == ()


@pytest.mark.parametrize("damage", ["missing", "truncated", "flipped", "flipped, dates restored"])
def test_an_attempt_with_a_damaged_blob_is_no_hit_and_the_output_is_named(
    store: Store, record: Recorder, damage: str
) -> None:
    recipe = recipe_of(STAGE, UPSTREAM)
    attempt = record(recipe)
    path = _blob(store, attempt, "dropped")
    state, data = path.stat(), path.read_bytes()
    path.chmod(0o644)
    if damage == "missing":
        path.unlink()
    elif damage == "truncated":
        path.write_bytes(data[:-1])
    else:
        with path.open("r+b") as file:
            file.write(bytes([data[0] ^ 1]))
    if damage == "flipped, dates restored":
        os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert look_up(store, recipe, STAGE.roots) == Finding(None, ("output dropped is missing or damaged",))


def test_an_attempt_whose_manifest_is_gone_is_no_hit(store: Store, record: Recorder) -> None:
    recipe = recipe_of(STAGE, UPSTREAM)
    _file(store, record(recipe).outputs["pairs"]).unlink()
    assert look_up(store, recipe, STAGE.roots).reasons == ("output pairs is missing or damaged",)


def test_an_older_attempt_that_is_whole_stands_in_for_a_newer_one_that_is_not(
    store: Store, record: Recorder
) -> None:
    recipe = recipe_of(STAGE, UPSTREAM)
    first, second = record(recipe, "first"), record(recipe, "second")
    _blob(store, second, "pairs").unlink()
    found = look_up(store, recipe, STAGE.roots).attempt
    assert found is not None
    assert found.outputs == first.outputs


def test_the_reasons_are_those_against_the_nearest_earlier_recipe_key_by_key(
    store: Store, record: Recorder
) -> None:
    recipe = recipe_of(STAGE, UPSTREAM)
    far = {"tokenize": {"escape": True, "limits": {"words": 10}}}
    walked = {"sharded": ["pairs"]}
    record(replace(recipe, config=far | walked, inputs={}))
    near: Mapping[str, object] = {"tokenize": {"escape": False, "limits": {"words": 40}}}
    inputs = {**recipe.inputs, "pairs": hash_bytes(b"old")}
    record(replace(recipe, config={**near, **walked}, inputs=inputs))
    old, new = inputs["pairs"][:12], recipe.inputs["pairs"][:12]
    assert look_up(store, recipe, STAGE.roots).reasons == (
        "tokenize.limits.words 40 → 50",
        f"input pairs {old} → {new}",
    )


def test_versions_that_changed_are_named_with_old_and_new(store: Store, record: Recorder) -> None:
    recipe = recipe_of(STAGE, UPSTREAM)
    record(replace(recipe, python="3.9", libraries={"pyarrow": "1.0", "numpy": "2.0"}))
    assert look_up(store, recipe, STAGE.roots).reasons == (
        f"Python 3.9 → {PYTHON}",
        "numpy 2.0 → None",
        f"pyarrow 1.0 → {recipe.libraries['pyarrow']}",
    )


def test_code_that_changed_is_named_by_module_and_function(store: Store, record: Recorder) -> None:
    before = recipe_of(STAGE, UPSTREAM)
    record(before)
    reasons = look_up(
        store, recipe_of(replace(STAGE, declared=OTHER_CODE), UPSTREAM), OTHER_CODE.roots
    ).reasons
    module = "rnnsearch.pipeline.duplicates"
    assert f"code {module}:pair_hashes is gone" in reasons
    assert f"code {module}:find_duplicates is new" in reasons
    assert f"code {module}:np changed" not in reasons
    assert all(reason.startswith("code rnnsearch.") for reason in reasons)


def test_code_whose_parts_were_lost_is_said_to_have_changed(store: Store, record: Recorder) -> None:
    recipe = recipe_of(STAGE, UPSTREAM)
    record(replace(recipe, code=hash_bytes(b"forgotten")))
    assert look_up(store, recipe, STAGE.roots).reasons == ("its code changed",)


def test_what_gc_collected_is_told_apart_from_damage(store: Store, record: Recorder) -> None:
    recipe = recipe_of(STAGE, UPSTREAM)
    attempt = record(recipe)
    _blob(store, attempt, "pairs").unlink()
    store.ledger.withdraw_collected(attempt)
    assert look_up(store, recipe, STAGE.roots) == Finding(None, ("gc removed its output",))


def test_an_adoption_is_a_hit_until_it_is_undone(store: Store, record: Recorder) -> None:
    recipe = recipe_of(STAGE, UPSTREAM)
    old = record(replace(recipe, python="3.9"))
    store.ledger.adopt(recipe, old, "the same bytes")
    found = look_up(store, recipe, STAGE.roots).attempt
    assert found is not None
    assert found.outputs == old.outputs
    store.ledger.undo(recipe.key, recipe.stage)
    assert look_up(store, recipe, STAGE.roots) == Finding(None, (f"Python 3.9 → {PYTHON}",))


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the package, which codes are read from: it may be changed."""
    ignore = shutil.ignore_patterns("__pycache__", "*.toml", "smoke*")
    folder = shutil.copytree(rnnsearch.__path__[0], tmp_path / "rnnsearch", ignore=ignore)
    monkeypatch.setattr(recipes, "code_digest", partial(code_digest, package=folder))
    code_of.cache_clear()
    yield folder
    code_of.cache_clear()


def _codes() -> dict[str, str]:
    """The code digest of each kind of stage of the smoke profile."""
    return {stage.kind: code_of(stage.roots).digest for stage in build(load_settings("smoke"))}


WRITE_TABLES = {stage.kind for stage in build(load_settings("smoke"))} - {
    "download",
    "language-models",
    "train",
}


@pytest.mark.parametrize(
    ("path", "old", "new", "changed"),
    [
        ("pipeline/sieve.py", '"""Drop each row', '"""Leave out each row', set()),
        (
            "pipeline/sieve.py",
            "    first = _first_reason(",
            "    # the reasons\n    first = _first_reason(",
            set(),
        ),
        ("pipeline/encode.py", "import numpy as np\n", "import numpy as np\n\n\n", set()),
        ("storage/leases.py", "LEASE_SECONDS = 30.0", "LEASE_SECONDS = 31.0", set()),
        ("storage/store.py", "LAYOUT = 1", "LAYOUT = 2", set()),
        ("flows/console.py", "_LINE_SECONDS = 30.0", "_LINE_SECONDS = 31.0", set()),
        ("flows/report/templates/report.css", "{", "{ ", set()),
        # One line two modules away: run_stages → selection → ngram.
        ("pipeline/ngram.py", "{backoff:.7f}", "{backoff:.6f}", {"language-models"}),
        # Three away: training → train_stage → encode; the sample of the pool is drawn by the same hash.
        (
            "pipeline/encode.py",
            "0xBF58476D1CE4E5B9",
            "0xBF58476D1CE4E5BB",
            {"encode", "selection-sample", "train"},
        ),
        ("pipeline/tokenization.py", "import re", "import regex as re", {"evaluate", "tokenize"}),
        ("storage/parquet.py", "compression_level=3", "compression_level=4", WRITE_TABLES),
        ("model/kernels/kernels.cpp", "#include", "#include ", {"train", "translate"}),
        ("model/adadelta.py", "import torch\n", "import torch\nprint()\n", {"train"}),
    ],
)
def test_a_change_of_code_changes_the_keys_of_just_the_stages_that_it_reaches(
    package: Path, path: str, old: str, new: str, changed: set[str]
) -> None:
    before = _codes()
    file = package / path
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    code_of.cache_clear()
    after = _codes()
    assert {kind for kind, digest in after.items() if before[kind] != digest} == changed


def test_the_copy_of_the_package_elsewhere_has_the_same_codes(package: Path) -> None:
    there = _codes()
    assert {
        stage.kind: code_digest(
            [root for root in stage.roots if "/" not in root],
            [root for root in stage.roots if "/" in root],
            outside=recipes.BOUNDARY,
        ).digest
        for stage in build(load_settings("smoke"))
    } == there


def test_an_import_that_hides_code_is_refused_wherever_a_stage_reaches_it(package: Path) -> None:
    file = package / "pipeline" / "sieve.py"
    text = file.read_text()
    line = "    first = _first_reason("
    file.write_text(text.replace(line, f"    __import__('os')\n{line}", 1))
    with pytest.raises(CodeError, match=r"rnnsearch\.pipeline\.sieve:sieve uses __import__"):
        _codes()
