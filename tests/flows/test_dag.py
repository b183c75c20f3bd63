"""The DAG: what hangs on what, and that its strings name the code which does the work."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from rnnsearch.flows import dag, kinds
from rnnsearch.flows.dag import build
from rnnsearch.flows.recipe import code_of, libraries_of
from rnnsearch.flows.references import resolve
from rnnsearch.flows.settings import load_settings
from rnnsearch.flows.shapes import Kind, Map, Process, Ref, Stage
from rnnsearch.flows.shards import needs
from rnnsearch.storage.syntax import Module, parse_module

PROFILES = ("smoke", "demo", "wmt14")
BESIDE = (  # what a profile may have besides, and the shipped ones have not
    "sources.other-system.url=moses.fr",
    "sources.links.url=links",
    "external.moses={ source = 'other-system', tokens = false, row = 'Moses' }",
    "external.commercial={ source = 'other-system', tokens = true }",
    "alignment={ gold = 'links', backward = 'links' }",
    "sweep.beams=[1, 2]",
)
TRAINED = (*BESIDE, "alignment={ gold = 'links', backward = { max_words = 20 } }")


@cache
def _stages(profile: str, *overrides: str) -> tuple[Stage, ...]:
    return build(load_settings(profile, overrides))


def _by_name(profile: str, *overrides: str) -> dict[str, Stage]:
    return {stage.name: stage for stage in _stages(profile, *overrides)}


def _all_stages() -> list[Stage]:
    shipped = [stage for profile in PROFILES for stage in _stages(profile)]
    return [*shipped, *_stages("smoke", *BESIDE), *_stages("smoke", *TRAINED)]


def _one_of_each_kind() -> list[object]:
    """Stages of a kind share their roots and their work."""
    kinds: dict[str, Stage] = {}
    for stage in _all_stages():
        kinds.setdefault(stage.kind, stage)
    return [pytest.param(stage, id=kind) for kind, stage in kinds.items()]


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("overrides", [(), BESIDE, TRAINED])
def test_what_a_stage_takes_is_made_before_it_by_a_stage_that_promises_it(
    profile: str, overrides: tuple[str, ...]
) -> None:
    made: set[Ref] = set()
    for stage in _stages(profile, *overrides):
        assert {ref for _, ref in stage.inputs()} <= made, stage.name
        assert len({name for name, _ in stage.inputs()}) == len(list(stage.inputs()))
        made |= {Ref(stage.name, output) for output in stage.outputs}
    stages = _stages(profile, *overrides)
    assert len({stage.name for stage in stages}) == len(stages)


def test_only_results_and_what_a_person_asks_about_are_taken_by_nobody() -> None:
    stages = _stages("smoke", *BESIDE)
    taken = {ref for stage in stages for _, ref in stage.inputs()}
    left = {Ref(stage.name, output) for stage in stages for output in stage.outputs} - taken
    assert {re.sub(r"/.*", "", ref.stage) + "." + ref.output for ref in left} == {
        "holdout.dropped",
        "clean.dropped",
        "gate-dev.dropped",
        "survey.survey",
        "ingest.dropped",
        "gate.dropped",
        "gate.leaks",
        "threshold.summary",
        "select.dropped",
        "shortlist.source_counts",
        "shortlist.target_counts",
        "encode.dropped",
        "train.state",
        "train.curve",
        "evaluate.sentences",
        "evaluate.scores",
        "evaluate-alignment.scores",
        "sweep.scores",
    }


def test_every_kind_that_is_declared_is_in_some_profile_and_is_declared_once() -> None:
    declared = [value for value in vars(kinds).values() if isinstance(value, Kind)]
    assert {stage.declared for stage in _all_stages()} == set(declared)
    assert [kind.name for kind in declared].count("download") == 2, (
        "one of them takes a file out of an archive"
    )
    assert len({kind.name for kind in declared}) == len(declared) - 1


@pytest.mark.parametrize("stage", _one_of_each_kind())
def test_the_function_that_is_executed_is_the_one_that_is_counted(stage: Stage) -> None:
    work = stage.declared.work
    references = [value for value in vars(work).values() if isinstance(value, str)]
    assert references
    for reference in references:
        function = resolve(reference)
        assert f"{function.__module__}:{function.__qualname__}" == reference
        if stage.kind != "download":  # its bytes are checked against the digest that is in its key
            assert reference in code_of(stage.roots).parts


@pytest.mark.parametrize("stage", _one_of_each_kind())
def test_the_digest_of_a_stages_code_covers_each_of_its_roots(stage: Stage) -> None:
    parts = code_of(stage.roots).parts
    for root in stage.roots:
        module, _, symbol = root.partition(":")
        if "/" in root:
            assert f"file:{root}" in parts
        else:
            assert any(part.startswith(f"{module}:{symbol}") for part in parts), root
            assert hasattr(import_module(module), symbol or "__name__")


def test_what_a_pure_function_asks_for_is_what_its_stage_gives() -> None:
    for stage in _all_stages():
        work = stage.declared.work
        given = {*stage.sharded, *stage.whole}
        if isinstance(work, Process):
            continue
        if isinstance(work, Map):
            wanted, sections = needs(resolve(work.function))
        else:
            partial, merge = needs(resolve(work.partial)), needs(resolve(work.merge))
            assert set(stage.sharded) <= partial.names <= given, stage.name
            assert "partials" in merge.names
            assert merge.names - {"partials"} <= set(stage.whole), stage.name
            wanted = partial.names | merge.names - {"partials"}
            sections = partial.sections | merge.sections
        assert wanted == given, f"{stage.name}: an input that nobody reads would cost a key for nothing"
        assert sections == set(stage.config), stage.name


@pytest.mark.parametrize("stage", _one_of_each_kind())
def test_the_outputs_of_a_stage_are_the_fields_of_what_its_function_returns(stage: Stage) -> None:
    work = stage.declared.work
    if isinstance(work, Process):
        return
    function = resolve(work.function if isinstance(work, Map) else work.merge)
    returned = function.__annotations__["return"]
    assert returned._fields == stage.outputs


@pytest.mark.parametrize("stage", _one_of_each_kind())
def test_every_package_of_others_that_a_stages_code_uses_is_declared_or_decides_no_bytes(
    stage: Stage,
) -> None:
    used: set[str] = set()
    for part in code_of(stage.roots).parts:
        module, _, symbol = part.partition(":")
        if module != "file":
            used.update(_distributions(module, symbol))
    harmless = {"pydantic", "langcodes"}  # they check settings
    if stage.kind in ("translate", "align", "sweep"):
        harmless.add("safetensors")  # it only reads
    assert used - set(stage.libraries) <= harmless
    through_others = {"numpy", "regex"}  # of pyarrow and of sacremoses
    assert set(stage.libraries) - used <= through_others, "declared, but not used"
    assert all(libraries_of(stage).values())


def _distributions(module: str, symbol: str) -> set[str]:
    """The distributions of other people whose names a definition uses, other than in annotations of functions."""
    syntax = _syntax(module)
    names = {name for node in syntax.definitions.get(symbol, ()) for name in _names(node)}
    targets = {target.module.partition(".")[0] for name in names for target in syntax.imports.get(name, ())}
    foreign = targets - sys.stdlib_module_names - {"rnnsearch"}
    return {name.replace(".", "-") for target in foreign for name in _packages()[target]}


def _names(node: ast.AST) -> Iterator[str]:
    for name, value in ast.iter_fields(node):
        if name == "returns" or (name == "annotation" and isinstance(node, ast.arg)):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _names(child)
    if isinstance(node, ast.Name):
        yield node.id


@cache
def _packages() -> Mapping[str, list[str]]:
    """The installed distributions by the modules that they bring; slow to gather."""
    return packages_distributions()


@cache
def _syntax(module: str) -> Module:
    path = Path(str(import_module(module).__file__))
    return parse_module(module, path.read_bytes(), is_package=path.name == "__init__.py")


def test_the_source_of_the_kernels_decides_what_is_trained_and_translated() -> None:
    for name, stage in _by_name("smoke", *BESIDE).items():
        kernels = [part for part in code_of(stage.roots).parts if part.startswith("file:")]
        trained = name.startswith(("train/", "translate/", "align/", "sweep/"))
        assert kernels == (["file:model/kernels/kernels.cpp"] if trained else []), name


@pytest.mark.parametrize("stage", _one_of_each_kind())
def test_how_the_store_keeps_and_finds_bytes_is_part_of_no_key(stage: Stage) -> None:
    machinery = (
        "store",
        "leases",
        "loading",
        "ledger",
        "runs",
        "blobs",
        "backends",
        "s3",
        "gc",
        "processes",
        "seen",
    )
    modules = {part.partition(":")[0] for part in code_of(stage.roots).parts}
    assert not modules & {f"rnnsearch.storage.{name}" for name in machinery}


def test_the_paper_has_five_networks_and_the_starred_one_goes_on_from_the_shorter_training() -> None:
    stages = _by_name("wmt14")
    systems = [name.removeprefix("train/") for name in stages if name.startswith("train/")]
    assert systems == ["rnnencdec-30", "rnnsearch-30", "rnnencdec-50", "rnnsearch-50", "rnnsearch-50-star"]
    state = Ref("train/rnnsearch-50", "state")
    assert dict(stages["train/rnnsearch-50-star"].inputs())["initial_state"] == state
    for system in systems[:-1]:
        assert "initial_state" not in dict(stages[f"train/{system}"].inputs())
    taken = [stage.name for stage in stages.values() if state in dict(stage.inputs()).values()]
    assert taken == ["train/rnnsearch-50-star"], "translation does not wait for an optimiser's state"


def test_systems_of_one_length_share_their_examples() -> None:
    stages = _by_name("wmt14")
    assert [name for name in stages if name.startswith("encode/")] == ["encode/30", "encode/50"]
    for system, words in (("rnnencdec-30", 30), ("rnnsearch-30", 30), ("rnnsearch-50-star", 50)):
        assert dict(stages[f"train/{system}"].inputs())["examples"] == Ref(f"order/{words}", "examples")


def test_a_system_may_stand_in_the_profile_before_the_one_that_it_continues() -> None:
    stages = _stages(
        "smoke", "systems.rnnencdec={ continues = 'rnnsearch' }", "systems.rnnsearch={ max_words = 20 }"
    )
    names = [stage.name for stage in stages]
    assert names.index("train/rnnsearch") < names.index("train/rnnencdec")


def test_without_selection_training_takes_all_tokenised_pairs() -> None:
    settings = load_settings("smoke").model_copy(update={"select": None})
    stages = {stage.name: stage for stage in build(settings)}
    assert "select" not in stages
    assert "language-models" not in stages
    assert dict(stages["shortlist"].inputs()) == {"pairs": Ref("tokenize/train", "pairs")}
    assert dict(stages["encode/20"].inputs())["pairs"] == Ref("tokenize/train", "pairs")


@pytest.mark.parametrize(
    ("override", "changed"),
    [
        ("placement.train_workers=3", set()),
        ("title=Another", set()),
        ("corpora.lines.licence=another", set()),
        ("corpora.lines.declared_pairs=3", set()),
        ("systems.rnnsearch.row=another", set()),
        ("sources.lines-en.mirrors=['https://example.org/smoke.en']", set()),
        ("sources.lines-en.size=3", set()),
        ("select.budget.pairs=400", {"threshold"}),
        ("language_model.order=2", {"selection-vocabulary", "selection-sample", "language-models"}),
        ("shortlist.source_words=200", {"shortlist"}),
        ("search.beam=2", {"translate/*/all", "translate/*/no-unk", "evaluate/*"}),
        ("evaluate.seed=3", {"evaluate/*"}),
        ("systems.rnnsearch.train.seed=3", {"train/rnnsearch"}),
        ("systems.rnnsearch.network.units=31", {"train/rnnsearch"}),
        ("tokenize.escape=true", {"tokenize/train", "tokenize/dev", "tokenize/test", "evaluate/*"}),
        ("leakage.action=report", {"gate", "gate-dev", "overlap"}),
        ("ingest.rows_per_shard=100", {"ingest/lines", "ingest/other"}),
        ("encode.seed=3", {"encode/20", "order/20"}),
        ("holdout.seed=3", {"holdout-keys", "holdout"}),
        ("clean.straight_quotes=true", {"clean/train", "normalize/dev", "normalize/test", "survey"}),
        ("filter.min_words=2", {"clean/train", "survey"}),
        ("duplicates.max_partners=5", {"duplicates"}),
        ("sources.lines-en.url=https://example.org/smoke.en", {"download/lines-en"}),
    ],
)
def test_a_setting_is_part_of_just_the_stages_whose_output_it_decides(
    override: str, changed: set[str]
) -> None:
    before, after = _by_name("smoke"), _by_name("smoke", override)
    assert before.keys() == after.keys()
    differing = {name for name, stage in before.items() if stage.config != after[name].config}
    assert {re.sub(r"/rnn\w+", "/*", name) if "*" in str(changed) else name for name in differing} == changed


def test_every_setting_of_a_section_that_decides_bytes_stands_in_some_recipe() -> None:
    settings = load_settings("smoke")
    written: dict[str, set[str]] = {}
    for stage in build(settings):
        for name, section in stage.config.items():
            if isinstance(section, dict):
                written.setdefault(name, set()).update(section)
    for name in (
        "ingest",
        "holdout",
        "clean",
        "filter",
        "duplicates",
        "leakage",
        "tokenize",
        "select",
        "shortlist",
        "encode",
        "evaluate",
    ):
        assert written[name] == set(getattr(settings, name).model_dump()), name
    assert written["languagemodel"] == set(settings.language_model.model_dump())
    system = settings.systems["rnnsearch"]
    assert written["network"] == set(system.network.model_dump())
    assert written["train"] == set(system.train.model_dump())
    assert written["search"] == set(settings.search.model_dump())


def test_what_stands_beside_our_systems_changes_no_recipe_of_theirs() -> None:
    before, after = _by_name("smoke"), _by_name("smoke", *BESIDE)
    assert {name: after[name] for name in before} == before
    assert {re.sub(r"^download/.*", "download", name) for name in after.keys() - before.keys()} == {
        "download",
        "external/moses",
        "evaluate/moses",
        "external/commercial",
        "evaluate/commercial",
        "align/rnnsearch",  # RNNencdec looks at no source word
        "evaluate-alignment/rnnsearch",
        "sweep/rnnencdec",
        "sweep/rnnsearch",
    }
    named = _by_name("smoke", *BESIDE, "sweep.systems=['rnnsearch']")
    assert after.keys() - named.keys() == {"sweep/rnnencdec"}


def test_the_other_direction_learns_from_the_same_pairs_turned_around_and_only_aligns() -> None:
    ours, both = _by_name("smoke"), _by_name("smoke", *TRAINED)
    assert {name: both[name] for name in ours} == ours
    stages = {
        name: stage for name, stage in both.items() if name.endswith("/backward") or stage.kind == "turn"
    }
    assert list(stages) == [
        "turn/train", "turn/dev", "turn/test", "encode/backward", "order/backward", "train/backward", "align/backward",
    ]  # fmt: skip
    assert dict(stages["turn/train"].inputs()) == {"pairs": dict(ours["encode/20"].inputs())["pairs"]}
    for stage in ("encode/backward", "train/backward", "align/backward"):
        inputs = dict(stages[stage].inputs())
        assert (inputs["source"], inputs["target"]) == (
            Ref("shortlist", "target"),
            Ref("shortlist", "source"),
        )
    assert dict(stages["train/backward"].inputs())["dev"] == Ref("turn/dev", "pairs")
    scored = dict(both["evaluate-alignment/rnnsearch"].inputs())
    assert scored["backward"] == Ref("align/backward", "alignments")
    assert scored["alignments"] == Ref("align/rnnsearch", "alignments")


def test_another_system_is_scored_by_the_code_and_the_settings_that_score_ours() -> None:
    stages = _by_name("smoke", *BESIDE)
    ours, theirs = stages["evaluate/rnnsearch"], stages["evaluate/moses"]
    assert (theirs.roots, theirs.libraries) == (ours.roots, ours.libraries)
    assert {name: value for name, value in ours.config.items() if name != "search"} == {
        name: value for name, value in theirs.config.items() if name != "search"
    }
    assert theirs.config["search"] == {}, "it has no beam of ours"
    assert {name: refs for name, refs in theirs.sharded.items() if name in ("tokens", "raw")} == {
        name: refs for name, refs in ours.sharded.items() if name in ("tokens", "raw")
    }
    assert "tokenize" in stages["external/moses"].config
    assert stages["external/commercial"].config == {"tokens": True}, "given tokens are taken as they are"


def test_the_recipe_of_a_file_source_without_a_digest_asks_for_the_content_of_the_file() -> None:
    stages = _by_name("smoke")
    local = stages["download/lines-en"].local
    assert local is not None
    assert local.name == "smoke.en"
    digest = "0" * 64
    pinned = _by_name("smoke", f"sources.lines-en.sha256='{digest}'")
    assert pinned["download/lines-en"].local is None
    assert pinned["download/lines-en"].config == {"content": digest}
    assert _by_name("demo")["download/bible"].local is None


def test_a_path_with_spaces_and_accents_is_found_again_in_a_file_address() -> None:
    settings = load_settings("smoke", ["sources.lines-en.url='mes phrases/été.en'"])
    stages = {stage.name: stage for stage in build(settings)}
    local = stages["download/lines-en"].local
    assert local is not None
    assert local.parts[-2:] == ("mes phrases", "été.en")


@pytest.mark.parametrize("module", ["dag", "plan", "recipe", "settings", "command_plan", "cli"])
def test_planning_imports_neither_torch_nor_prefect_nor_ray(module: str) -> None:
    forbidden = ("torch", "prefect", "ray", "matplotlib", "sacrebleu", "kenlm", "sacremoses")
    code = (
        f"import sys, rnnsearch.flows.{module}\n"
        f"print(*[name for name in {forbidden!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == []


def test_a_stage_is_a_value_that_names_its_kind_and_whom_it_waits_for_once() -> None:
    stage = _by_name("smoke")["evaluate/rnnsearch"]
    assert stage.kind == "evaluate"
    assert stage.upstream() == (
        "translate/rnnsearch/all",
        "translate/rnnsearch/no-unk",
        "tokenize/test",
        "normalize/test",
        "shortlist",
        "overlap",
    )
    assert dag.SPLITS == ("train", "dev", "test")
