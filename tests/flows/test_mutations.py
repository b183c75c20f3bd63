"""Every statement between a recipe and its bytes is in the key of the stages that it can change.

Each statement of the modules below is taken out, one by one, in a copy of the package that is only read. The keys of
the stages that it can change must miss, or the definition is listed as one that decides no bytes, with the reason.
"""

import ast
import shutil
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import rnnsearch
from rnnsearch.flows import kinds
from rnnsearch.flows.recipe import BOUNDARY, code_of
from rnnsearch.flows.shapes import Fold, Kind, Map
from rnnsearch.storage.code import code_digest

KINDS = tuple(value for value in vars(kinds).values() if isinstance(value, Kind))
MAPS = frozenset(kind.name for kind in KINDS if isinstance(kind.work, Map))
FOLDS = frozenset(kind.name for kind in KINDS if isinstance(kind.work, Fold))
PROCESSES = frozenset(kind.name for kind in KINDS) - MAPS - FOLDS - {"download"}
ALL = MAPS | FOLDS | PROCESSES
DOWNLOADS = frozenset({"download"})
WRITE_TABLES = MAPS | FOLDS | {"ingest", "order", "external"}
READ_TABLES = ALL - {"ingest"}
SECTIONS = MAPS | FOLDS | {"ingest", "language-models", "order", "train", "sweep"}

DECIDED: Mapping[str, Mapping[str, frozenset[str]]] = {
    "flows/execution.py": {
        "execute_map": MAPS,
        "execute_fold": FOLDS,
        "execute_process": PROCESSES,
        "compute_process": PROCESSES,
        "ProcessTask": PROCESSES,
        "Request": MAPS | FOLDS,  # of a process only its stage, its store and its engine are read
        "Made": MAPS | FOLDS,  # a process only fills it
        "_store": ALL,
        "_over_shards": MAPS | FOLDS,
        "zip_shards": MAPS | FOLDS,
        "_known_shard": MAPS | FOLDS,
    },
    "flows/shards.py": {
        "ShardTask": MAPS | FOLDS,
        "ShardResult": MAPS | FOLDS,
        "Needs": MAPS | FOLDS,
        "MergeTask": FOLDS,
        "Merged": FOLDS,
        "compute_shard": MAPS | FOLDS,
        "compute_merge": FOLDS,
        "output_files": FOLDS,
        "stored": WRITE_TABLES,
        "shard_name": MAPS | FOLDS | {"ingest", "order", "external"},
        "needs": MAPS | FOLDS,
        "section": SECTIONS,
        "call": MAPS | FOLDS,
        "whole_table": ALL - {"ingest", "order", "external"},
        "_section": MAPS | FOLDS,
        "_named": MAPS | FOLDS,
        "open_store": ALL,
    },
    "flows/train_stage.py": {
        name: frozenset({"train"}) for name in ("train", "encode_dev", "_tree", "_ANY_LENGTH")
    },
    "flows/run_stages.py": {
        "ingest": frozenset({"ingest"}),
        "language_models": frozenset({"language-models"}),
        "order": frozenset({"order"}),
        "_ORDER_ROW_GROUP": frozenset({"order"}),
        "_BUCKETS_AT_ONCE": frozenset({"order"}),
    },
    "storage/parquet.py": {
        "put_table": WRITE_TABLES,
        "write_table": WRITE_TABLES,
        "canonical": WRITE_TABLES,
        "_canonical_column": WRITE_TABLES,
        "_has_dictionary": WRITE_TABLES,
        "ROWS_PER_GROUP": WRITE_TABLES,
        "_COLUMN_LIMIT": WRITE_TABLES,
        "get_table": READ_TABLES,
        "read_table": READ_TABLES,
    },
    "storage/artifacts.py": {
        "FileEntry": ALL | DOWNLOADS,
        "Artifact": ALL | DOWNLOADS,
        "Manifest": ALL | DOWNLOADS,
        "write_artifact": ALL | DOWNLOADS,
        "make_manifest": ALL | DOWNLOADS,
        "_VERSION": ALL | DOWNLOADS,
        "read_artifact": ALL,
        "parse_manifest": ALL,
    },
}
DECIDES_NOTHING = {
    "flows/execution.py:Engine": "a protocol: its methods have no bodies",
    "flows/execution.py:StageError": "an error",
    "flows/execution.py:T": "a type variable",
    "flows/execution.py:R": "a type variable",
    "flows/shards.py:C": "a type variable",
    "flows/shards.py:Function": "a type",
    "storage/parquet.py:Shape": "what `read_shape` returns",
    "storage/parquet.py:read_shape": "describes a file for people",
}


class Mutant(NamedTuple):
    """A module without one of its statements."""

    definition: str
    line: int
    source: str


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package's code."""
    ignore = shutil.ignore_patterns("__pycache__", "*.toml", "smoke*", "report", "web", "profiles")
    return Path(
        shutil.copytree(rnnsearch.__path__[0], tmp_path_factory.mktemp("copy") / "rnnsearch", ignore=ignore)
    )


@cache
def _source(path: str) -> str:
    return (Path(rnnsearch.__path__[0]) / path).read_text(encoding="utf-8")


def _definitions(path: str) -> dict[str, ast.stmt]:
    found: dict[str, ast.stmt] = {}
    for node in ast.parse(_source(path)).body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found[name] = node
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                found[name] = node
    return found


def _mutants(path: str, definition: str) -> Iterator[Mutant]:
    """The module without each statement inside a definition; a constant is replaced."""
    for position in range(10_000):
        tree = ast.parse(_source(path))
        node = next(each for each in tree.body if _name(each) == definition)
        if isinstance(node, ast.Assign | ast.AnnAssign):
            if position == 0:
                node.value = ast.Constant("another")
                yield Mutant(definition, node.lineno, ast.unparse(tree))
            return
        places = list(_places(node))
        if position >= len(places):
            return
        body, index = places[position]
        line = body[index].lineno
        body[index] = ast.copy_location(ast.Raise(ast.Name("NotImplementedError", ast.Load())), body[index])
        yield Mutant(definition, line, ast.unparse(ast.fix_missing_locations(tree)))


def _places(node: ast.AST) -> Iterator[tuple[list[ast.stmt], int]]:
    """Where the statements inside a node stand, docstrings left out."""
    for _, value in ast.iter_fields(node):
        if not isinstance(value, list):
            continue
        for index, item in enumerate(value):
            if isinstance(item, ast.stmt) and not _is_text(item):
                yield value, index
            if isinstance(item, ast.stmt | ast.ExceptHandler | ast.match_case):
                yield from _places(item)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _name(node: ast.stmt) -> str | None:
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name
    return None


@pytest.mark.parametrize("path", DECIDED)
def test_every_definition_of_these_modules_decides_some_stages_or_says_why_it_decides_none(path: str) -> None:
    listed = {name.partition(":")[2] for name in DECIDES_NOTHING if name.startswith(f"{path}:")}
    assert set(_definitions(path)) == set(DECIDED[path]) | listed
    assert not set(DECIDED[path]) & listed


@pytest.mark.parametrize("path", DECIDED)
def test_a_definition_is_in_the_key_of_every_stage_that_it_can_change(path: str) -> None:
    module = f"rnnsearch.{path.removesuffix('.py').replace('/', '.')}"
    for definition, deciding in DECIDED[path].items():
        counting = {kind.name for kind in KINDS if f"{module}:{definition}" in code_of(kind.roots).parts}
        assert deciding <= counting, f"{definition} is not counted by {sorted(deciding - counting)}"


@pytest.mark.parametrize("path", DECIDED)
def test_without_any_one_statement_the_key_is_another(package: Path, path: str) -> None:
    file = package / path
    kept = []
    for definition, deciding in DECIDED[path].items():
        roots = next(kind for kind in KINDS if kind.name == min(deciding)).roots
        before = _code(package, roots)
        for mutant in _mutants(path, definition):
            file.write_text(mutant.source, encoding="utf-8")
            if _code(package, roots) == before:
                kept.append(f"{path}:{mutant.line} in {definition}")
        file.write_text(_source(path), encoding="utf-8")
    assert kept == []


@pytest.mark.parametrize("boundary", BOUNDARY)
def test_what_the_digest_does_not_go_into_has_a_reason_and_exists(boundary: str) -> None:
    place = Path(rnnsearch.__path__[0], *boundary.split(".")[1:])
    assert place.with_suffix(".py").is_file()
    assert BOUNDARY[boundary]


def _code(package: Path, roots: tuple[str, ...]) -> str:
    files = [root for root in roots if "/" in root]
    names = [root for root in roots if "/" not in root]
    return code_digest(names, files, outside=BOUNDARY, package=package).digest
