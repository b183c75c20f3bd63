"""One front door for every input: kinds by first bytes, compression, bounds, drops and refusals by name."""

import bz2
import gzip
import io
import lzma
import os
import sqlite3
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pydantic import ValidationError

from rnnsearch.pipeline.config import Format, GettextFormat, PlainFormat, SgmlFormat, SqliteFormat, TmxFormat
from rnnsearch.pipeline.errors import FormatError
from rnnsearch.pipeline.formats.reader import check_files, read_pairs
from rnnsearch.pipeline.formats.sniff import sniff
from rnnsearch.pipeline.formats.sqlite import read_sqlite

EN, FR = b"one\ntwo\nthree\n", b"un\ndeux\ntrois\n"
PAIRS = [("one", "un"), ("two", "deux"), ("three", "trois")]
Squeeze = Callable[[bytes], bytes]


def zstd(data: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(data, asbytes=True))


SQUEEZES = {"gz": gzip.compress, "xz": lzma.compress, "bz2": bz2.compress, "zst": zstd}


def write(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def both(folder: Path, source: bytes, target: bytes) -> list[Path]:
    return [write(folder / "s", source), write(folder / "t", target)]


def texts(paths: Path | list[Path], config: Format, longest: int = 65_536) -> list[tuple[str, str]]:
    tables = [read.pairs for read in read_pairs(paths, "c", config, 2, longest)]
    return [(row["source"], row["target"]) for table in tables for row in table.to_pylist()]


def drops(paths: Path | list[Path], config: Format, longest: int = 65_536) -> list[tuple[int, str]]:
    tables = [read.dropped for read in read_pairs(paths, "c", config, 2, longest)]
    return [(row["line"], row["reason"]) for table in tables for row in table.to_pylist()]


def test_files_of_one_name_are_told_apart_by_their_side(tmp_path: Path) -> None:
    paths = [write(tmp_path / "en/train.txt", EN), write(tmp_path / "fr/train.txt", FR)]
    assert texts(paths, PlainFormat(source="train.txt", target="train.txt")) == PAIRS
    assert texts(paths, PlainFormat()) == PAIRS


def test_a_link_to_a_blob_is_read_by_its_side(tmp_path: Path) -> None:
    for name, data in (("en", EN), ("fr", FR)):
        write(tmp_path / f"blobs/{name}", data)
        (tmp_path / f"train.{name}").symlink_to(f"blobs/{name}")
    assert texts([tmp_path / "train.en", tmp_path / "train.fr"], PlainFormat(source="a", target="b")) == PAIRS


@pytest.mark.parametrize("config", [PlainFormat(), SgmlFormat()])
def test_one_file_for_both_sides_is_refused(tmp_path: Path, config: Format) -> None:
    path = write(tmp_path / "a", EN)
    (tmp_path / "b").symlink_to("a")
    for paths in ([path, path], [path, tmp_path / "b"]):
        with pytest.raises(FormatError, match="both source and target"):
            texts(paths, config)


def test_two_files_of_equal_text_are_refused_when_all_is_read(tmp_path: Path) -> None:
    lines = b"".join(b"line %d\n" % number for number in range(30))
    with pytest.raises(FormatError, match="the same text in all 30 pairs"):
        texts(both(tmp_path, lines, lines), PlainFormat())
    assert len(texts(both(tmp_path, lines, lines.replace(b"29", b"30")), PlainFormat())) == 30


def test_two_sides_of_one_archive_are_read_by_member(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "z", "w") as archive:
        archive.writestr("a/x", EN)
        archive.writestr("b/x", FR)
    paths = [tmp_path / "z", tmp_path / "z"]
    assert texts(paths, PlainFormat(source="a/x", target="b/x")) == PAIRS
    with pytest.raises(FormatError, match="both source and target"):
        texts(paths, PlainFormat(source="a/x", target="a/x"))


@pytest.mark.parametrize("name", ["/abs/real.en", "../../x", "a/../../x"])
def test_no_format_names_a_file_outside_its_source(name: str) -> None:
    for make in (
        lambda: PlainFormat(source=name, target="b"),
        lambda: PlainFormat(source="a", target="b", key=name),
        lambda: SgmlFormat(source="a", target=name),
        lambda: GettextFormat(member=name),
        lambda: TmxFormat(source="en", target="fr", member=name),
    ):
        with pytest.raises(ValidationError, match="is not a name inside a source"):
            make()


@pytest.mark.parametrize("squeeze", SQUEEZES.values(), ids=SQUEEZES)
def test_every_compression_is_read_through_its_concatenated_members(tmp_path: Path, squeeze: Squeeze) -> None:
    source = b"".join(squeeze(part) for part in (b"one\ntw", b"o\n", b"three\n"))
    assert texts(both(tmp_path, source, squeeze(FR)), PlainFormat()) == PAIRS


@pytest.mark.parametrize("squeeze", SQUEEZES.values(), ids=SQUEEZES)
def test_a_truncated_file_is_an_error(tmp_path: Path, squeeze: Squeeze) -> None:
    lines = b"".join(b"%d\n" % (number * 7919 % 10007) for number in range(20_000))
    whole = squeeze(lines)
    with pytest.raises(FormatError, match="is damaged"):
        texts(both(tmp_path, whole[: len(whole) // 2], lines), PlainFormat())


@pytest.mark.parametrize("squeeze", SQUEEZES.values(), ids=SQUEEZES)
def test_a_tar_is_read_under_every_compression(tmp_path: Path, squeeze: Squeeze) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, data in (("s", EN), ("t", FR)):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    path = write(tmp_path / "x", squeeze(packed.getvalue()))
    assert texts(path, PlainFormat(source="s", target="t")) == PAIRS


def test_a_tar_that_holds_a_zip_or_its_marks_is_a_tar(tmp_path: Path) -> None:
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("x", b"y")
    with tarfile.open(tmp_path / "t", "w") as tar:
        for name, data in (("s", EN), ("t", b"un\nPK\x05\x06 deux\ntrois\n"), ("z", inner.getvalue())):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    assert texts(tmp_path / "t", PlainFormat(source="s", target="t"))[0] == ("one", "un")
    with pytest.raises(FormatError, match="itself a zip archive"):
        texts(tmp_path / "t", PlainFormat(source="s", target="z"))


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d\nsize 12\n"
WMT = b'<?xml version="1.0"?>\n<dataset id="w"><doc></doc></dataset>'
TMX = b'<?xml version="1.0"?><!DOCTYPE tmx SYSTEM "tmx14.dtd"><tmx version="1.4"></tmx>'
KINDS = {
    "lfs": (LFS, "Git LFS pointer"),
    "html": (b"\n<!DOCTYPE html>\n<title>No</title>", "is a web page"),
    "utf-16": ("one\n".encode("utf-16"), "is UTF-16"),
    "pdf": (b"%PDF-1.4", "is a PDF"),
    "wmt": (WMT, 'use format = "wmt"'),
    "tmx": (TMX, 'use format = "tmx"'),
    "xml": (b'<?xml version="1.0"?><lexicon/>', "XML of an unknown kind"),
    "binary": (b"\x7fELF\x00\x00\x01", "is binary"),
    "zip": (b"PK\x05\x06" + bytes(18), "archive of 0 files|no file"),
    "sqlite": (b"SQLite format 3\x00", 'use format = "sqlite"'),
}


@pytest.mark.parametrize(("kind", "data", "said"), [(kind, *rest) for kind, rest in KINDS.items()], ids=KINDS)
@pytest.mark.parametrize("config", [PlainFormat(), SgmlFormat()], ids=["plain", "sgml"])
def test_what_is_no_text_is_refused_by_name(
    tmp_path: Path, kind: str, data: bytes, said: str, config: Format
) -> None:
    assert sniff(data) == kind
    paths = both(tmp_path, data, FR)
    for read in (texts, check_files):
        with pytest.raises(FormatError, match=said):
            read(paths, config)
    packed = both(tmp_path / "gz", gzip.compress(data), FR)
    with pytest.raises(FormatError, match=said if kind != "zip" else "archive|damaged"):
        check_files(packed, config)


@pytest.mark.parametrize(
    "text", [b"< less than\n", b"<b>bold</b>\n", b"BZ is\n", b"PK\n", b"{}\n", b"# po\n"]
)
def test_text_that_begins_strangely_is_text(text: bytes) -> None:
    assert sniff(text) == "text"


@pytest.mark.parametrize("squeeze", [bytes, gzip.compress], ids=["plain", "gz"])
def test_a_line_above_the_bound_is_a_counted_drop_and_shifts_no_pair(
    tmp_path: Path, squeeze: Squeeze
) -> None:
    long = b"a" * 3_000_000
    source = squeeze(b"one\n" + long + b"\nthree\n" + b"x" * 10 + b"\n" + b"y" * 11)
    paths = both(tmp_path, source, b"un\ndeux\ntrois\nx\ny")
    assert texts(paths, PlainFormat(), longest=10) == [("one", "un"), ("three", "trois"), ("x" * 10, "x")]
    assert drops(paths, PlainFormat(), longest=10) == [(1, "too_long"), (4, "too_long")]
    lines = [
        row["line"] for read in read_pairs(paths, "c", PlainFormat(), 2, 10) for row in read.pairs.to_pylist()
    ]
    assert lines == [0, 2, 3]


def test_keys_lose_line_ends_outer_spaces_and_the_byte_order_mark(tmp_path: Path) -> None:
    keys = write(tmp_path / "k", "\ufeff1:1\r\n1:2 \n \n".encode())
    reads = read_pairs([*both(tmp_path, EN, FR), keys], "c", PlainFormat(key="k"), 3)
    assert next(reads).pairs["key"].to_pylist() == ["1:1", "1:2", None]


@pytest.mark.parametrize("count", [1, 3, 4])
def test_as_many_sources_as_sides_are_wanted(tmp_path: Path, count: int) -> None:
    path = write(tmp_path / "a", EN)
    config = PlainFormat(key="k" if count < 3 else "")
    with pytest.raises(FormatError, match="source"):
        check_files([path] * count, config)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    with sqlite3.connect(tmp_path / "d") as connection:
        connection.execute("CREATE TABLE t (en TEXT, fr TEXT)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(str(row), "x") for row in range(400)])
    connection.close()
    return tmp_path / "d"


@pytest.mark.parametrize(
    "query",
    [
        "VACUUM INTO 'copy'",
        "ATTACH 'other' AS o",
        "PRAGMA journal_mode = wal",
        "CREATE TABLE u (a)",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS source, i AS target FROM n",
    ],
)
def test_a_query_does_nothing_but_read(
    database: Path, query: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(os.listdir(tmp_path))  # noqa: PTH208
    with pytest.raises(FormatError, match="more than read"):
        texts(database, SqliteFormat(query=query))
    assert sorted(os.listdir(tmp_path)) == before  # noqa: PTH208


def test_a_query_that_gives_no_row_comes_to_an_end(database: Path) -> None:
    query = "SELECT a.en AS source, a.fr AS target FROM t a, t b, t c, t d WHERE a.fr = 'y' || d.fr"
    with pytest.raises(FormatError, match="no row for a long time"):
        list(read_sqlite(database, SqliteFormat(query=query), 2, 10, most_work=1))


def po(text: str, tmp_path: Path) -> Path:
    return write(tmp_path / "x.po", text.encode())


def test_a_string_without_its_closing_quote_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="line 1 has a string that does not end"):
        texts(po('msgid "Save\nmsgstr "Enregistrer"\n', tmp_path), GettextFormat())


HEADER = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=utf-8\\n{}\\n"\n\n'
FORMS = 'msgid "one file"\nmsgid_plural "%d files"\nmsgstr[0] "zéro"\nmsgstr[1] "un"\nmsgstr[2] "deux"\n'


@pytest.mark.parametrize(
    ("rule", "one", "many"),
    [
        (
            "Plural-Forms: nplurals=3; plural=(n == 0 || n == 1) ? 0 : n % 1000000 == 0 ? 1 : 2;",
            "zéro",
            "deux",
        ),
        ("Plural-Forms: nplurals=3; plural=n == 1 ? 1 : n == 2 ? 2 : 0;", "un", "zéro"),
        ("Plural-Forms: nplurals=INTEGER; plural=EXPRESSION;", "zéro", "deux"),
    ],
    ids=["french", "last", "unfilled"],
)
def test_of_three_forms_the_plural_gets_the_one_for_many(
    tmp_path: Path, rule: str, one: str, many: str
) -> None:
    path = po(HEADER.format(rule) + FORMS, tmp_path)
    assert texts(path, GettextFormat()) == [("one file", one), ("%d files", many)]


def test_messages_that_are_no_translations_are_counted_by_reason(tmp_path: Path) -> None:
    finished = 'msgid "a"\nmsgstr "b"\n\n'
    messages = (
        f'#, fuzzy\n{finished}msgid "c"\nmsgstr ""\n\nmsgid "d"\nmsgstr "e"\n\n#~ msgid "f"\n#~ msgstr "g"\n'
    )
    path = po(HEADER.format("Language: fr") + messages, tmp_path)
    assert texts(path, GettextFormat()) == [("d", "e")]
    assert drops(path, GettextFormat()) == [(0, "fuzzy"), (1, "untranslated"), (3, "obsolete")]
