"""What stands beside our systems: another system's output, links made by people, other beams. On the smoke profile."""

import dataclasses
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from rnnsearch.flows.command_export_text import export_text
from rnnsearch.flows.report.gather import gather
from rnnsearch.flows.report.html import to_html
from rnnsearch.flows.report.markdown import to_markdown
from rnnsearch.flows.report.tables import comparison, table_1
from rnnsearch.flows.settings import load_settings
from rnnsearch.pipeline.errors import TextError
from rnnsearch.pipeline.schemas import words
from rnnsearch.storage.store import Store

if TYPE_CHECKING:
    from conftest import Lab, Ran, Smoke

pytestmark = [pytest.mark.ray, pytest.mark.flow, pytest.mark.slow, pytest.mark.timeout(1800)]

SECTIONS = """
[sources.moses]
url = "moses.fr"

[sources.gold]
url = "gold"

[sources.backward]
url = "backward"

[external.moses]
source = "moses"
tokens = false
row = "Moses"

[alignment]
gold = "gold"
backward = "backward"

[sweep]
beams = [1, 3]
sentences = 12
systems = ["rnnsearch"]
"""


BACKWARD = """
[alignment.backward]
max_words = 20
network = { kind = "rnnsearch", units = 16, embedding = 12, alignment_units = 16, maxout_units = 8 }
train = { updates = 10, batch = 16, optimizer = "adam", learning_rate = 5e-3, checkpoint_every = 10 }
"""


class Beside(NamedTuple):
    """The smoke run with sections of its own, and where its files lie."""

    store: Store
    profile: Path
    run: str
    ran: "Ran"

    def output(self, stage: str, output: str) -> bytes:
        (file,) = self.store.read_artifact(self.ran.outputs[stage][output]).files
        return bytes(self.store.get_bytes(file.digest))

    def rows(self, stage: str, output: str) -> list[dict[str, Any]]:
        files = self.store.read_artifact(self.ran.outputs[stage][output]).files
        return [row for file in files for row in self.store.get_table(file.digest).to_pylist()]


def write(path: Path, lines: Sequence[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


@pytest.fixture
def beside(smoke: "Smoke", lab: "Lab", own_profile: Path, tmp_path: Path) -> Beside:
    assert smoke.done.returncode == 0, smoke.done.stderr
    store = Store.open(shutil.copytree(smoke.store, tmp_path / "store"))
    folder = own_profile.parent
    uses = {use.stage: use for use in store.runs.list()[-1].uses}
    test = store.ledger.attempt(uses["normalize/test"].key, uses["normalize/test"].attempt, "normalize/test")
    assert test is not None
    texts = [
        text
        for file in store.read_artifact(test.outputs["kept"]).files
        for text in store.get_table(file.digest)["target"].to_pylist()
    ]
    write(folder / "moses.fr", ["" if k == 3 else text for k, text in enumerate(texts)])
    write(folder / "gold", ["0-0" if k % 2 else "" for k in range(len(texts))])
    write(folder / "backward", ["0-0"] * len(texts))
    own_profile.write_text(own_profile.read_text(encoding="utf-8") + SECTIONS, encoding="utf-8")
    return again(Beside(store, own_profile, "", None), lab)  # type: ignore[arg-type]


def again(beside: Beside, lab: "Lab") -> Beside:
    """Run the profile as it is now."""
    settings = load_settings(str(beside.profile))
    stages = [stage.name for stage in lab.stages(profile=str(beside.profile), until="evaluate/moses")]
    run = beside.store.runs.start(
        {"profile": "beside", "settings": settings.model_dump(mode="json"), "stages": stages}
    )
    session = dataclasses.replace(lab.session(beside.store), run=run.id)
    ran = lab.run(beside.store, profile=str(beside.profile), session=session, until="evaluate/moses")
    beside.store.runs.finish(run.id, "finished")
    return beside._replace(run=run.id, ran=ran)


def test_another_system_links_made_by_people_and_a_sweep_of_beams_join_a_finished_run(
    beside: Beside, lab: "Lab"
) -> None:
    # Nothing of ours is computed again; downloads are, since the profile's files lie elsewhere.
    assert {name for name in beside.ran.computed if not name.startswith("download/")} == {
        "external/moses",
        "evaluate/moses",
        "align/rnnsearch",
        "evaluate-alignment/rnnsearch",
        "sweep/rnnsearch",
    }
    report = gather(beside.store, beside.run)
    assert report.missing == ()
    systems = {system.name: system for system in report.systems}

    # The same sentences, the same signature but for the search that the other system did not do.
    moses, ours = systems["moses"], systems["rnnsearch"]
    assert moses.external
    for subset in ("all", "no-unk", "no-unk-allowed"):
        scores = [system.score(subset) for system in (moses, ours)]
        assert scores[0] is not None
        assert scores[1] is not None
        assert scores[0].sentences == scores[1].sentences
        signatures = [score.signature.partition("|artifact:")[0] for score in scores if score]
        assert signatures[1].startswith(signatures[0])
        assert "beam" not in signatures[0]
        assert {m.name: m.signature for m in scores[0].metrics} == {
            m.name: m.signature for m in scores[1].metrics
        }
    (row,) = [row for row in table_1(report) if row.name == "Moses"]
    assert row.ours is moses
    assert row.all is not None
    assert row.all.bleu.value > 90  # the references, but for one line
    assert moses.behaviour.empty == 1
    assert moses.by_length
    assert [cell.sentences for cell in moses.by_length] == [cell.sentences for cell in ours.by_length]
    test = comparison(report, "all", "moses", "rnnsearch")
    assert test is not None
    assert test.difference > 0
    assert report.best is not None
    assert not report.best.external

    # Links: half of the sentences have some. RNNencdec has nothing to hold against them.
    links = ours.links
    assert systems["rnnencdec"].links is None
    assert links is not None
    assert (links.sentences, links.gold_sentences) == (40, 20)
    assert links.error_rate is not None
    assert 0 <= links.error_rate <= 1
    found = beside.rows("align/rnnsearch", "alignments")
    pairs = beside.rows("tokenize/test", "pairs")
    for row, pair in zip(found, pairs, strict=True):
        assert (row["corpus"], row["line"]) == (pair["corpus"], pair["line"])
        assert (row["source_words"], row["target_words"]) == (
            len(words(pair["source"])),
            len(words(pair["target"])),
        )

    # Beams: seconds are seen, not part of what was made.
    assert systems["rnnencdec"].beams == ()
    assert [(point.beam, point.sentences) for point in ours.beams] == [(1, 12), (3, 12)]
    assert all(point.seconds and point.seconds > 0 for point in ours.beams)
    assert "seconds" not in beside.output("sweep/rnnsearch", "scores").decode()
    assert [row["beam"] for row in json.loads(beside.output("sweep/rnnsearch", "scores"))] == [1, 3]

    page, markdown = to_html(report), to_markdown(report)
    for words_ in ("Against other links", "BLEU by beam width", "Time by beam width"):
        assert words_ in page
    for line in ("| Moses (moses) |", "| against other links |", "beam-bleu.png"):
        assert line in markdown

    # The links of a run, turned around, are what another run gives as `backward`. So young a network may have none.
    folder = beside.profile.parent / "exported"
    export_text(beside.store.location, beside.run, "align/rnnsearch:alignments", folder)
    lines = (folder / "links.txt").read_text().split("\n")[:-1]
    assert lines == [row["links"] for row in found]
    turned = [" ".join("-".join(reversed(link.split("-"))) for link in words(line)) for line in lines]
    write(beside.profile.parent / "backward", turned)
    second = again(beside, lab)
    assert second.ran.computed == {"download/backward", "evaluate-alignment/rnnsearch"}
    agreed = json.loads(second.output("evaluate-alignment/rnnsearch", "scores")).get("agreement")
    assert agreed == (1 if any(lines) else None)

    # Or the other direction is trained beside ours, from the same pairs turned around.
    beside.profile.write_text(beside.profile.read_text().replace('backward = "backward"', BACKWARD))
    third = again(beside, lab)
    trained = {"turn/train", "turn/dev", "turn/test", "encode/backward", "order/backward", "train/backward"}
    assert third.ran.computed == trained | {"align/backward", "evaluate-alignment/rnnsearch"}
    theirs = third.rows("align/backward", "alignments")
    assert [(row["source_words"], row["target_words"]) for row in theirs] == [
        (row["target_words"], row["source_words"]) for row in found
    ]
    links_ = [[set(words(row["links"])) for row in rows] for rows in (found, theirs)]
    common = sum(
        len(ours_ & {"-".join(reversed(link.split("-"))) for link in their})
        for ours_, their in zip(*links_, strict=True)
    )
    size = sum(len(one) for side in links_ for one in side)
    agreed = json.loads(third.output("evaluate-alignment/rnnsearch", "scores")).get("agreement")
    assert agreed == (pytest.approx(2 * common / size, abs=1e-6) if size else None)
    assert gather(beside.store, third.run).missing == ()

    # A line too many is no translation of ours to guess about.
    with (beside.profile.parent / "moses.fr").open("a") as file:
        file.write("une ligne de trop\n")
    with pytest.raises(TextError, match="41 lines for 40 test sentences"):
        again(beside, lab)
