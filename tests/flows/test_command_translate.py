"""`rnnsearch translate` as a user meets it: what each option prints and writes."""

import os
import pty
import select
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch

from rnnsearch.flows import command_translate
from rnnsearch.flows.command_translate import Wish, load, translate_lines
from rnnsearch.flows.errors import UsageError
from rnnsearch.flows.export import Card, export_model
from rnnsearch.flows.settings import SettingsError
from rnnsearch.flows.translator import TextConfig
from rnnsearch.model.checkpoint import write_model
from rnnsearch.model.config import GROUNDHOG, NetworkConfig, SearchConfig
from rnnsearch.model.network import Network
from rnnsearch.pipeline.config import CleanConfig, TokenizeConfig
from rnnsearch.pipeline.schemas import EOS_ID, SHORTLIST, UNK_ID
from rnnsearch.storage.artifacts import FileEntry
from rnnsearch.storage.digests import Digest
from rnnsearch.storage.store import Store

SOURCE = ["the", "a", "cat", "dog", "sees", "."]  # other sizes on either side (protocol trap 44)
TARGET = ["le", "un", "chat", "chien", "voit", ".", "dort", "mange", "là"]
PROGRAM = Path(sys.executable).with_name("rnnsearch")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported system whose network is random and often unsure."""
    folder = tmp_path_factory.mktemp("exported")
    config = NetworkConfig(units=7, embedding=5, alignment_units=6, maxout_units=4)
    sizes = len(SOURCE) + 2, len(TARGET) + 2
    network, generator = Network(config, *sizes), torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(
                torch.randn(parameter.shape, generator=generator) * 1.5 / parameter.shape[-1] ** 0.5
            )
        network.readout.b_out[UNK_ID] += 3.5
        network.readout.b_out[EOS_ID] -= 1.0
    write_model(folder / "trained", config, sizes, dict(network.state_dict()), None)
    store = Store.open(folder / "store")

    def artifact(name: str, data: bytes) -> FileEntry:
        blob = store.put_bytes(data)
        return FileEntry(name, blob.digest, blob.size, None)

    trained = store.write_artifact(
        [artifact(path.name, path.read_bytes()) for path in sorted((folder / "trained").iterdir())]
    )
    shortlists = []
    for words in (SOURCE, TARGET):
        blob = store.put_table(pa.table({"word": words}, schema=SHORTLIST))
        shortlists.append(
            store.write_artifact([FileEntry("words", blob.digest, blob.size, len(words))]).digest
        )
    export_model(
        store,
        folder / "model",
        model=trained.digest,
        source=shortlists[0],
        target=shortlists[1],
        text=TextConfig(clean=CleanConfig(), tokenize=TokenizeConfig()),
        search=SearchConfig(beam=4),
        card=Card("small", [], {}, [], Digest("0" * 64)),
    )
    return folder / "model"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.en"
    path.write_text("The cat sees a dog.\n\na zebra\n", encoding="utf-8")
    return path


def printed(wish: Wish, capsys: pytest.CaptureFixture[str]) -> list[str]:
    translate_lines(wish)
    return capsys.readouterr().out.split("\n")[:-1]


def test_each_line_has_as_many_candidates_as_asked_for_best_first_with_their_costs(
    model: Path, text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    search = ("beam=8", "keep_unfinished=false")  # one that did not end comes last, whatever its cost
    plain = printed(Wish(store="", model=model, file=text, search=search), capsys)
    assert len(plain) == 3
    assert plain[1] == ""
    found = printed(Wish(store="", model=model, file=text, search=search, n_best=3, scores=True), capsys)
    costs, texts = zip(*(line.split("\t") for line in found), strict=True)
    assert len(found) == 3 + 1 + 3, "an empty line has the empty translation only"
    assert (texts[0], texts[3], texts[4]) == tuple(plain)
    for first in (0, 4):
        values = [float(cost) for cost in costs[first : first + 3]]
        assert values == sorted(values)
        assert len(set(texts[first : first + 3])) == 3


def test_more_lines_than_are_translated_together_come_out_in_order(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    search = ("beam=1", "max_length_ratio=1.0")
    lines = ["a cat sees the dog .", "", "a dog", "the cat ."] * 70  # 280: 256 are taken together
    (tmp_path / "many").write_text("\n".join(lines) + "\n")
    (tmp_path / "few").write_text("\n".join(lines[:4]) + "\n")
    few = printed(Wish(store="", model=model, file=tmp_path / "few", search=search), capsys)
    assert len(set(few)) == 4
    assert printed(Wish(store="", model=model, file=tmp_path / "many", search=search), capsys) == few * 70


def test_unknown_words_are_replaced_by_copies_or_from_a_dictionary(
    model: Path, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = printed(Wish(store="", model=model, file=text), capsys)
    assert any("[UNK]" in line for line in plain)
    copied = printed(Wish(store="", model=model, file=text, replace_unknown="copy"), capsys)
    assert not any("[UNK]" in line for line in copied)
    dictionary = tmp_path / "words"
    dictionary.write_text("".join(f"{word}\tmot\n" for word in (*SOURCE, "The", "zebra")))
    found = printed(Wish(store="", model=model, file=text, replace_unknown=str(dictionary)), capsys)
    assert [line.count("mot") for line in found] == [line.count("[UNK]") for line in plain]


@pytest.mark.parametrize(
    ("ending", "start"), [("svg", b"<?xml"), ("png", b"\x89PNG"), ("html", b"<!doctype html>")]
)
def test_attention_is_shown_in_the_terminal_or_written_to_a_file(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], ending: str, start: bytes
) -> None:
    one = tmp_path / "one.en"
    one.write_text("the cat sees a dog .\n")
    shown = printed(Wish(store="", model=model, file=one, attention="terminal"), capsys)
    assert any(block in "".join(shown[1:]) for block in "░▒▓█")
    picture = tmp_path / f"attention.{ending}"
    assert printed(Wish(store="", model=model, file=one, attention=str(picture)), capsys) == shown[:1]
    assert picture.read_bytes().startswith(start)


def test_the_search_is_as_evaluated_unless_a_preset_or_a_key_changes_it(model: Path) -> None:
    def search(*changes: str, n_best: int = 1) -> SearchConfig:
        return load(Wish(store="", model=model, search=changes, n_best=n_best))[1]

    assert search() == SearchConfig(beam=4)
    assert search("beam=7", n_best=2) == SearchConfig(beam=7, n_best=2)
    assert search("preset=groundhog") == GROUNDHOG
    assert search("normalize=true", "preset=groundhog") == GROUNDHOG.model_copy(update={"normalize": True})
    with pytest.raises(SettingsError, match="one of plain, groundhog, not 'moses'"):
        search("preset=moses")


def test_what_cannot_be_read_or_written_is_told(model: Path, tmp_path: Path, text: Path) -> None:
    with pytest.raises(UsageError, match=r"absent\.en cannot be read"):
        translate_lines(Wish(store="", model=model, file=tmp_path / "absent.en"))
    with pytest.raises(UsageError, match=r"ends in '\.doc'"):
        translate_lines(Wish(store="", model=model, file=text, attention=str(tmp_path / "a.doc")))


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ({"file": "absent.en"}, r"absent\.en cannot be read: No such file"),
        ({"file": "."}, r"cannot be read: Is a directory"),
        ({"attention": "nodir/a.html"}, r"nodir is not a folder; make it first"),
        ({"attention": "a.gif"}, r"ends in '\.gif'; expected \.html, \.svg, \.png, \.pdf"),
        ({"attention": "folder.html"}, r"folder\.html is a folder"),
        ({"replace_unknown": "nofile.tsv"}, r"nofile\.tsv cannot be read: No such file"),
        ({"replace_unknown": "folder.html"}, r"cannot be read: Is a directory"),
        ({"replace_unknown": "binary"}, r"binary is not UTF-8 at byte 0"),
        ({"search": ("beam=inf",)}, r"search cannot be used:\n  beam"),
        ({"search": ("preset",)}, r"one of plain, groundhog, not ''"),
    ],
)
def test_what_the_user_gave_is_checked_before_anything_is_translated(
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: Path,
    wanted: dict[str, Any],
    says: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    given = {"file": text, **wanted}
    given["file"] = Path(given["file"])
    with pytest.raises((UsageError, SettingsError), match=says):
        translate_lines(Wish(store="", model=model, **given))
    assert capsys.readouterr().out == ""


def test_a_sentence_is_translated_as_a_line_of_a_file_is(
    model: Path, text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (first, *_) = printed(Wish(store="", model=model, file=text), capsys)
    assert printed(Wish(store="", model=model, sentence="The cat sees a dog."), capsys) == [first]


def test_a_line_that_is_not_utf_8_is_told_after_those_before_it(
    model: Path, text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (first, *_) = printed(Wish(store="", model=model, file=text), capsys)
    text.write_bytes(b"The cat sees a dog.\n\xff\na dog\n")
    with pytest.raises(UsageError, match="line 2 of the input is not UTF-8 at byte 0"):
        translate_lines(Wish(store="", model=model, file=text))
    assert capsys.readouterr().out == f"{first}\n"


def test_a_picture_of_many_sentences_is_refused_at_the_second(
    model: Path, tmp_path: Path, text: Path
) -> None:
    text.write_text("a cat\n" * 1_000, encoding="utf-8")
    with pytest.raises(UsageError, match="can show one sentence, and there are more"):
        translate_lines(Wish(store="", model=model, file=text, attention=str(tmp_path / "a.svg")))


@pytest.mark.parametrize(
    ("blocks", "batches"),
    [
        ([b"a\nb\n"], [["a", "b"]]),
        ([b"a\n", b"b\n"], [["a"], ["b"]]),  # the input pauses between them
        ([b"a", b"b\nc"], [["ab"], ["c"]]),
        ([b"\n\n"], [["", ""]]),
        ([b"a\r\nb"], [["a"], ["b"]]),
        ([b"1\n2\n3\n4\n5\n"], [["1", "2", "3"], ["4", "5"]]),
        ([], []),
    ],
)
def test_lines_leave_the_input_as_they_come_some_at_a_time(
    blocks: list[bytes], batches: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = iter(blocks)
    monkeypatch.setattr(command_translate, "select", lambda *_: ([], [], []))  # a pause after every block
    monkeypatch.setattr(os, "read", lambda *_: next(given, b""))
    found = command_translate._decoded(command_translate._as_they_come(0, 3))
    assert list(found) == batches


def test_a_line_without_an_end_is_refused_before_memory_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "read", lambda *_: b"x" * (1 << 16))
    with pytest.raises(UsageError, match="a line of the input has more than 10 MB"):
        next(command_translate._as_they_come(0, 3))


@pytest.mark.slow
def test_on_a_pipe_a_line_leaves_before_the_next_one_comes(
    model: Path, clean_environment: Mapping[str, str], tmp_path: Path
) -> None:
    lines = [b"a cat sees the dog .\n", b"\n", b"a dog\n", b"the cat .\n"]
    with subprocess.Popen(
        [str(PROGRAM), "translate", "--model", str(model)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=clean_environment,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        answers = []
        for some in (lines[:1], lines[1:]):
            process.stdin.write(b"".join(some))
            process.stdin.flush()
            answers += [process.stdout.readline() for _ in some]  # waits for ever if lines are held back
        process.stdin.close()
        assert process.wait(60) == 0
        assert process.stdout.read() == b""
    (tmp_path / "all").write_bytes(b"".join(lines))
    done = subprocess.run(
        [str(PROGRAM), "translate", "--model", str(model), str(tmp_path / "all")],
        capture_output=True,
        env=clean_environment,
        check=True,
    )
    assert b"".join(answers) == done.stdout


@pytest.mark.slow
def test_a_person_at_a_terminal_has_an_answer_to_each_line_before_the_next(
    model: Path, clean_environment: Mapping[str, str]
) -> None:
    ours, theirs = pty.openpty()
    arguments = [str(PROGRAM), "translate", "--model", str(model)]
    with subprocess.Popen(
        arguments, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=clean_environment
    ) as process:
        os.close(theirs)
        assert process.stdout is not None
        answers = []
        for line in (b"a cat sees the dog .\n", b"a dog\n"):
            os.write(ours, line)
            ready, _, _ = select.select([process.stdout], [], [], 120)
            assert ready, "no answer came"
            answers.append(process.stdout.readline().decode())
        os.write(ours, b"\x04")  # end of input
        assert process.wait(60) == 0
        assert process.stdout.read() == b""
    os.close(ours)
    assert all(answer.endswith("\n") for answer in answers)
    assert answers[0] != answers[1]
