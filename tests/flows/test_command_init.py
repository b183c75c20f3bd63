"""`rnnsearch init`: what it writes can be run as it is, and what it refuses it says."""

import gzip
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rnnsearch.flows.command_init import write_profile
from rnnsearch.flows.dag import build, by_side
from rnnsearch.flows.errors import UsageError
from rnnsearch.flows.inputs import check_inputs
from rnnsearch.flows.settings import PROFILES, SettingsError, load_settings
from rnnsearch.storage.store import Store

if TYPE_CHECKING:
    from conftest import Lab

Text = tuple[Path, Path]


def write_text(folder: Path, pairs: int, more: int = 0) -> Text:
    """Two files whose lines correspond; the target has `more` lines."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / "train.en", folder / "train.fr"
    for path, count, word in zip(paths, (pairs, pairs + more), ("line", "ligne"), strict=True):
        path.write_text("".join(f"{word} number {row} .\n" for row in range(count)))
    return paths


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize("packed", [False, True])
def test_what_is_written_for_two_files_ingests_all_their_pairs(
    lab: "Lab", tmp_path: Path, packed: bool
) -> None:
    text = write_text(tmp_path / "data", 300)
    if packed:
        for path in text:
            path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        text = text[0].with_name("train.en.gz"), text[1].with_name("train.fr.gz")
    profile = tmp_path / "profiles" / "mine.toml"
    write_profile(profile, text, ("en", "fr"), None)
    store = Store.open(tmp_path / "store")
    ran = lab.run(store, profile=str(profile), until="order/30")

    def rows(stage: str, output: str) -> int:
        return sum(file.rows or 0 for file in store.read_artifact(ran.outputs[stage][output]).files)

    assert rows("ingest/text", "pairs") == 300
    assert [rows("holdout", split) for split in ("train", "dev", "test")] == [270, 15, 15]
    assert rows("order/30", "examples") == 270


@pytest.mark.parametrize(
    ("pairs", "held", "updates"),
    [(3, 1, 100), (900, 45, 100), (20_000, 1_000, 2_200), (200_000, 1_000, 20_000)],
)
def test_the_size_of_the_text_decides_what_is_held_out_and_how_long_is_trained(
    tmp_path: Path, pairs: int, held: int, updates: int
) -> None:
    write_profile(tmp_path / "mine.toml", write_text(tmp_path, pairs), ("en", "de"), 'A "title" \x7f')
    settings = load_settings(str(tmp_path / "mine.toml"))
    assert settings.title == 'A "title" \x7f'
    assert (settings.holdout.dev, settings.holdout.test) == (held, held)
    assert settings.systems["rnnsearch"].train.updates == updates
    assert settings.tokenize.target_language == "de"


def test_without_text_it_names_files_to_be_put_in_their_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_profile(tmp_path / "mine.toml", None, ("cs", "en"), None)
    settings = load_settings(str(tmp_path / "mine.toml"))
    assert settings.sources["text-source"].url == (tmp_path / "train.cs").as_uri()
    said = capsys.readouterr()
    assert said.out == f"{tmp_path / 'mine.toml'}\n"
    assert "no text was given; set the two urls" in said.err


def test_every_setting_that_is_commented_out_is_one(tmp_path: Path) -> None:
    """A section or a key that was renamed would make a trap of its comment."""
    write_profile(tmp_path / "mine.toml", None, ("en", "fr"), None)
    setting = re.compile(r"^# (\[[a-z.]+\]|[a-z0-9_]+ = .*)")
    lines = []
    for line in (tmp_path / "mine.toml").read_text().splitlines():
        commented = setting.match(line)
        lines.append(line[2:] if commented and "…" not in line else line)
    (tmp_path / "all.toml").write_text("\n".join(lines))
    values = tomllib.loads("\n".join(lines))
    assert {"select", "placement"} <= values.keys()
    assert {"rnnsearch", "rnnencdec"} == values["systems"].keys()
    names = {stage.name for stage in build(load_settings(str(tmp_path / "all.toml")))}
    assert {"select", "train/rnnsearch", "train/rnnencdec"} <= names


def _unequal(folder: Path) -> tuple[Path, Text | None]:
    return folder / "mine.toml", write_text(folder, 300, more=1)


def _too_short(folder: Path) -> tuple[Path, Text | None]:
    return folder / "mine.toml", write_text(folder, 2)


def _not_toml(folder: Path) -> tuple[Path, Text | None]:
    return folder / "mine", None


def _there(folder: Path) -> tuple[Path, Text | None]:
    (folder / "mine.toml").write_text("precious")
    return folder / "mine.toml", None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (_unequal, "train.en has 300 lines and .*train.fr 301; line n of one must translate line n"),
        (_too_short, "has 2 lines; a dev, a test and a training sentence are the least"),
        (_not_toml, "a profile is a .toml file; name it .*mine.toml"),
        (_there, "mine.toml is there already"),
    ],
)
def test_what_cannot_be_written_is_refused_and_nothing_is_lost(
    tmp_path: Path, given: Callable[[Path], tuple[Path, Text | None]], message: str
) -> None:
    path, text = given(tmp_path)
    before = sorted((each.name, each.read_bytes()) for each in tmp_path.iterdir())
    with pytest.raises(UsageError, match=message):
        write_profile(path, text, ("en", "fr"), None)
    assert sorted((each.name, each.read_bytes()) for each in tmp_path.iterdir()) == before


@pytest.mark.parametrize("language", ["english", "zz", ""])
def test_a_profile_of_a_language_that_is_none_is_not_left_behind(tmp_path: Path, language: str) -> None:
    path = tmp_path / "mine.toml"
    with pytest.raises(SettingsError, match="is not a language code"):
        write_profile(path, None, ("en", language), None)
    write_profile(path, None, ("en", "fr"), None)


def test_what_a_new_profile_is_written_from_is_no_profile_that_ships() -> None:
    assert (PROFILES / "own.toml.in").is_file()
    assert "own" not in {path.stem for path in PROFILES.glob("*.toml")}


@pytest.mark.parametrize(
    ("source", "target"),
    [("odd/my corpus.en", "odd/données.fr"), ("en/train.txt", "fr/train.txt"), ("train.en", "train.fr")],
    ids=["odd names", "one name", "links"],
)
def test_names_of_files_only_label_them(
    tmp_path: Path, source: str, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / source, tmp_path / target
    for path, data in zip(text, write_text(tmp_path / "blobs", 20), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(data)
    write_profile(tmp_path / "mine.toml", text, ("en", "fr"), None)
    settings = load_settings(str(tmp_path / "mine.toml"))
    check_inputs(settings)
    assert [settings.sources[name].local for name in by_side(settings, settings.corpora["text"])] == [
        path.resolve() for path in text
    ]
    assert "  line number 0 .\n    = ligne number 0 .\n" in capsys.readouterr().err


def test_a_file_that_is_no_text_is_refused_before_anything_runs(tmp_path: Path) -> None:
    text = write_text(tmp_path, 20)
    write_profile(tmp_path / "mine.toml", text, ("en", "fr"), None)
    text[0].write_bytes(b"%PDF-1.4")
    with pytest.raises(UsageError, match=r"corpora\.text: .* is a PDF"):
        check_inputs(load_settings(str(tmp_path / "mine.toml")))
    with pytest.raises(UsageError, match="is a PDF"):
        write_profile(tmp_path / "other.toml", text, ("en", "fr"), None)
    with pytest.raises(UsageError, match="both source and target"):
        write_profile(tmp_path / "other.toml", (text[1], text[1]), ("en", "fr"), None)


def test_a_profile_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    write_profile(tmp_path / "mine.toml", None, ("en", "fr"), None)
    data = (tmp_path / "mine.toml").read_bytes()
    (tmp_path / "mine.toml").write_bytes(b"\xef\xbb\xbf" + data)
    assert load_settings(str(tmp_path / "mine.toml")).title == "mine"
