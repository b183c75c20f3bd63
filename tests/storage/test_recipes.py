"""Recipes: their keys, and what differs between two."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from rnnsearch.storage.digests import Digest, canonical_json, hash_bytes
from rnnsearch.storage.recipes import Change, Recipe, compare_recipes, nearest_recipe, parse_recipe

A, B = hash_bytes(b"a"), hash_bytes(b"b")


@pytest.fixture
def base(recipe: Callable[..., Recipe]) -> Recipe:
    return recipe(
        config={"budget": {"words": 10, "share": None}, "seeds": (1, 2)},
        inputs={"pairs": A},
        libraries={"pyarrow": "26.0.1"},
    )


@pytest.mark.parametrize(
    ("changed", "change"),
    [
        ({"code": B}, Change("code", "", hash_bytes(b"code"), B)),
        ({"python": "3.12"}, Change("python", "", "3.11", "3.12")),
        ({"inputs": {"pairs": B}}, Change("input", "pairs", A, B)),
        ({"inputs": {}}, Change("input", "pairs", A, None)),
        ({"libraries": {"pyarrow": "27.0"}}, Change("library", "pyarrow", "26.0.1", "27.0")),
        (
            {"config": {"budget": {"words": 11, "share": None}, "seeds": (1, 2)}},
            Change("config", "budget.words", "10", "11"),
        ),
        (
            {"config": {"budget": {"words": 10, "share": None}, "seeds": (2, 1)}},
            Change("config", "seeds", "[1, 2]", "[2, 1]"),
        ),
        (
            {"config": {"budget": {"words": 10, "share": None}, "seeds": (1, 2), "new": {}}},
            Change("config", "new", None, "{}"),
        ),
        (
            {"config": {"budget": {"words": 10.0, "share": None}, "seeds": (1, 2)}},
            Change("config", "budget.words", "10", "10.0"),
        ),
    ],
)
def test_every_part_decides_the_key_and_is_named_when_it_changes(
    base: Recipe, changed: Mapping[str, Any], change: Change
) -> None:
    other = replace(base, **changed)
    assert other.key != base.key
    assert compare_recipes(base, other) == (change,)


def test_the_stage_decides_the_key(base: Recipe) -> None:
    assert replace(base, stage="clean/dev").key != base.key


def test_the_order_of_keys_and_the_kind_of_sequence_do_not_decide(base: Recipe) -> None:
    turned = {"seeds": [1, 2], "budget": {"share": None, "words": 10}}
    assert replace(base, config=turned).key == base.key
    assert parse_recipe(base.to_json()).key == base.key
    assert compare_recipes(base, replace(base, config=turned)) == ()


def test_a_key_does_not_depend_on_the_hash_seed() -> None:
    code = (
        "from rnnsearch.storage.recipes import Recipe\n"
        "names = {str(n): str(n) for n in {'a', 'b', 'c', 'd'}}\n"
        "print(Recipe(stage='s', code='c', config=names, inputs=names, python='3', libraries=names).key)\n"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in "12"
    }
    assert len(seen) == 1


def test_a_number_that_json_does_not_know_is_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json({"x": float("nan")})


def test_the_nearest_recipe_has_the_fewest_differences_and_is_the_last_of_equals(base: Recipe) -> None:
    far = replace(base, code=B, python="3.12")
    near = replace(base, code=B)
    also = replace(base, code=Digest("c"))
    assert nearest_recipe(base, [far, near, also]) == also
    assert nearest_recipe(base, [near, far]) == near
    assert nearest_recipe(base, []) is None
