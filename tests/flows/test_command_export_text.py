"""`rnnsearch export --as text`, on the data stages of the smoke profile."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rnnsearch.flows.command_export_text import export_text
from rnnsearch.flows.errors import UsageError
from rnnsearch.flows.settings import PROFILES
from rnnsearch.storage.store import Store

if TYPE_CHECKING:
    from conftest import Ran

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture
def finished(store: Store) -> Store:
    """A store whose run has finished."""
    store.runs.finish(store.runs.list()[-1].id, "finished")
    return store


def test_every_row_of_a_table_is_one_line_of_each_of_its_texts_over_all_shards_in_order(
    finished: Store, made: tuple[Path, "Ran"], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export_text(finished.location, None, "tokenize/train:pairs", tmp_path / "new/pairs")
    digest = made[1].outputs["tokenize/train"]["pairs"]
    said = capsys.readouterr()
    assert said.out == f"{tmp_path / 'new/pairs'}\n"
    assert digest in said.err
    files = finished.read_artifact(digest).files
    assert len(files) > 1
    rows = [row for file in files for row in finished.get_table(file.digest).to_pylist()]
    assert {path.name for path in (tmp_path / "new/pairs").iterdir()} == {
        "source.txt",
        "target.txt",
        "key.txt",
    }
    for side in ("source", "target"):
        text = (tmp_path / f"new/pairs/{side}.txt").read_bytes().decode()
        assert text == "".join(f"{row[side]}\n" for row in rows)


def test_what_is_no_table_is_copied(finished: Store, tmp_path: Path) -> None:
    export_text(finished.location, None, "download/lines-en:file", tmp_path / "file")
    assert {path.name: path.read_bytes() for path in (tmp_path / "file").iterdir()} == {
        "file": (PROFILES / "smoke.en").read_bytes()
    }


@pytest.mark.parametrize(
    ("of", "said"),
    [
        (None, r"--as text wants --of STAGE:OUTPUT"),
        ("tokenize/train:kept", r"made no tokenize/train:kept; it made tokenize/train:pairs$"),
        ("tokenise/train:pairs", r"it made download/lines-en:file, .*tokenize/train:pairs"),
        ("encode/20:kept", r"no column of text, only corpus, line, order, source, target"),
    ],
)
def test_what_cannot_be_text_is_told_and_leaves_nothing(
    finished: Store, tmp_path: Path, of: str | None, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        export_text(finished.location, None, of, tmp_path / "out")
    assert list(tmp_path.glob("*out*")) == []


def test_a_folder_that_is_there_is_not_touched(finished: Store, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with pytest.raises(UsageError, match="is there already"):
        export_text(finished.location, None, "tokenize/test:pairs", tmp_path / "mine")
    assert list((tmp_path / "mine").iterdir()) == []
