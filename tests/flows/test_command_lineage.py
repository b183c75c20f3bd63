"""`rnnsearch lineage --row` on runs that were written by hand."""

import json
from typing import NamedTuple

import pyarrow as pa
import pytest
from typer.testing import CliRunner
from written_run import dropped, pairs, write_run

from rnnsearch.flows.cli import app
from rnnsearch.flows.errors import UsageError
from rnnsearch.pipeline.schemas import DROPPED, SCORES


class Written(NamedTuple):
    """A store of two finished runs."""

    location: str
    whole: str  # its gate drops lines 0 and 1 because of line 1000
    selecting: str  # newer; drops lines 0 to 5, which have a difference of 250,000 micro-bits, at 125,000


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    bridge = write_run(tmp_path_factory.mktemp("lineage") / "store")
    whole, bridge.run = bridge.run, bridge.store.runs.start({"profile": "tiny"})
    scores = {name: pa.array(range(6)).cast(SCORES.field(name).type) for name in SCORES.names[1:]}
    scores |= {
        "corpus": pa.array(["river"] * 6).dictionary_encode(),
        "difference": pa.array([250_000] * 6, pa.int64()),
    }
    lost = dropped("river", {"not_selected": 6})
    cut = lost.set_column(4, DROPPED.field("threshold"), pa.array([125_000] * 6, pa.int64()))
    bridge.stage("score", {"scores": [pa.table(scores).select(SCORES.names).cast(SCORES)]})
    bridge.stage("select", {"kept": [pairs("river", 20, 6)], "dropped": [cut.cast(DROPPED)]})
    bridge.store.runs.finish(bridge.run.id, "finished")
    return Written(str(bridge.store.location), whole.id, bridge.run.id)


def lineage(written: Written, *words: str) -> str:
    asked = ["lineage", *words, "--store", written.location]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 0, result.output
    return " ".join(result.stdout.split())  # however the table is wrapped


def test_the_row_of_a_named_run_is_shown_with_its_partner_and_the_text_of_it(written: Written) -> None:
    found = json.loads(lineage(written, "--row", "river:1", "--run", written.whole, "--json"))
    (lost,) = [each for each in found if (each["stage"], each["output"]) == ("gate", "dropped")]
    (partner,) = pairs("river", 1, 1000).select(["corpus", "line", "source", "target"]).to_pylist()
    assert lost["row"]["reason"] == "in_test"
    assert lost["partner"] == partner
    told = lineage(written, "--row", "river:1", "--run", written.whole)
    assert f"partner river:1000: {partner['source']} | {partner['target']}" in told
    assert "select" not in told


def test_the_row_of_the_last_finished_run_is_shown_with_its_score_beside_the_threshold(
    written: Written,
) -> None:
    found = json.loads(lineage(written, "--row", "river:5", "--json"))
    assert [each["stage"] for each in found] == ["score", "select"]
    assert (found[1]["difference"], found[1]["threshold"]) == (250_000, 125_000)
    told = lineage(written, "--row", "river:5")
    assert "difference 0.250000, threshold 0.125000 bits a token" in told
    assert "gate" not in told
    assert lineage(written, "--row", "river:5", "--run", written.selecting) == told


def test_a_row_that_the_named_run_does_not_have_is_a_usage_error(written: Written) -> None:
    asked = ["lineage", "--row", "river:1000", "--run", written.selecting, "--store", written.location]
    error = CliRunner().invoke(app, asked).exception
    assert isinstance(error, UsageError)
    assert f"no stage of run {written.selecting} has line 1000" in str(error)
