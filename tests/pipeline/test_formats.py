import gzip
import io
import sqlite3
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import polib
import pytest
from pydantic import ValidationError

from rnnsearch.pipeline.config import GettextFormat, PlainFormat, SgmlFormat, SqliteFormat
from rnnsearch.pipeline.errors import FormatError
from rnnsearch.pipeline.formats.reader import read_pairs
from rnnsearch.pipeline.schemas import PAIRS

EN = "a\u2028b\r c\x85d\nsecond\n\nlast ||| line\n".encode()
FR = b"un\ndeux\ntrois\nquatre\n"
PLAIN = PlainFormat(source="x/t.en", target="x/t.fr")
Pack = Callable[[Path, dict[str, bytes]], Path]


def sides(
    path: Path, config: PlainFormat | SgmlFormat | SqliteFormat | GettextFormat
) -> list[tuple[str, str]]:
    tables = [read.pairs for read in read_pairs(path, "c", config, 3)]
    return [(row["source"], row["target"]) for table in tables for row in table.to_pylist()]


def folder(path: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


def tar(mode: str) -> Pack:
    def pack(path: Path, files: dict[str, bytes]) -> Path:
        with tarfile.open(path, f"w:{mode}") as archive:
            for name, data in files.items():
                member = tarfile.TarInfo(f"./{name}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
        return path

    return pack


def zipped(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


@pytest.mark.parametrize("gz", [False, True], ids=["plain", "gz"])
@pytest.mark.parametrize(
    "pack", [folder, tar(""), tar("gz"), tar("xz"), zipped], ids=["folder", "tar", "tgz", "txz", "zip"]
)
def test_two_files_are_read_wherever_they_lie(tmp_path: Path, pack: Pack, gz: bool) -> None:
    squeeze = gzip.compress if gz else bytes
    path = pack(tmp_path / "download", {"x/t.fr": squeeze(FR), "other": b"no", "x/t.en": squeeze(EN)})
    assert sides(path, PLAIN) == [
        ("a\u2028b\r c\x85d", "un"),  # protocol trap 25: one line
        ("second", "deux"),
        ("", "trois"),
        ("last ||| line", "quatre"),
    ]


def test_pairs_come_in_shards_with_their_position_in_the_corpus(tmp_path: Path) -> None:
    path = folder(tmp_path, {"x/t.en": EN, "x/t.fr": FR})
    tables = [read.pairs for read in read_pairs(path, "europarl", PLAIN, 3)]
    assert [table.num_rows for table in tables] == [3, 1]
    assert all(table.schema.equals(PAIRS, check_metadata=True) for table in tables)
    assert [line for table in tables for line in table["line"].to_pylist()] == [0, 1, 2, 3]
    assert tables[1]["corpus"].to_pylist() == ["europarl"]
    assert tables[0]["key"].null_count == 3


def test_keys_may_lie_in_a_third_file(tmp_path: Path) -> None:
    path = folder(tmp_path, {"x/t.en": EN, "x/t.fr": FR, "k": b"1:1\n1:2\n1:3\n1:4\n"})
    config = PlainFormat(source="x/t.en", target="x/t.fr", key="k")
    assert [key for read in read_pairs(path, "c", config, 3) for key in read.pairs["key"].to_pylist()] == [
        "1:1",
        "1:2",
        "1:3",
        "1:4",
    ]
    (path / "k").write_bytes(b"1:1\n")
    with pytest.raises(FormatError, match="'k' has 1"):
        list(read_pairs(path, "c", config, 3))


def test_a_last_line_needs_no_line_end(tmp_path: Path) -> None:
    path = folder(tmp_path, {"x/t.en": b"a\nb", "x/t.fr": b"c\nd\n"})
    assert sides(path, PLAIN) == [("a", "c"), ("b", "d")]


def test_a_line_is_taken_as_it_stands(tmp_path: Path) -> None:
    path = folder(tmp_path, {"x/t.en": b" a \r\n", "x/t.fr": "\ufeffb\t\n".encode()})
    assert sides(path, PLAIN) == [(" a \r", "\ufeffb\t")]


def test_empty_files_are_a_corpus_of_no_pairs(tmp_path: Path) -> None:
    assert sides(folder(tmp_path, {"x/t.en": b"", "x/t.fr": b""}), PLAIN) == []


@pytest.mark.parametrize(("english", "french"), [(3, 5), (6, 4), (3, 2), (0, 1), (9, 3)])
def test_sides_of_unequal_length_are_an_error_that_tells_both_lengths(
    tmp_path: Path, english: int, french: int
) -> None:
    path = folder(tmp_path, {"x/t.en": b"a\n" * english, "x/t.fr": b"b\n" * french})
    with pytest.raises(FormatError, match=rf"'x/t.en' has {english}, 'x/t.fr' has {french}"):
        sides(path, PLAIN)


def test_bytes_that_are_not_utf8_are_told_by_line_and_byte(tmp_path: Path) -> None:
    path = folder(tmp_path, {"x/t.en": b"a\n" * 4 + b"caf\xe9\n", "x/t.fr": b"b\n" * 5})
    with pytest.raises(FormatError, match=r"line 5 of 'x/t.en' is not UTF-8 at byte 3"):
        sides(path, PLAIN)


@pytest.mark.parametrize(
    "bad", [b"\xed\xa0\x80", b"\xc0\xaf", b"\xf5\x80\x80\x80"], ids=["surrogate", "overlong", "high"]
)
def test_no_sloppy_utf8_passes(tmp_path: Path, bad: bytes) -> None:
    with pytest.raises(FormatError, match="not UTF-8"):
        sides(folder(tmp_path, {"x/t.en": bad, "x/t.fr": b"b"}), PLAIN)


@pytest.mark.parametrize("pack", [folder, tar("gz"), zipped], ids=["folder", "tgz", "zip"])
def test_a_missing_member_is_an_error_that_names_the_nearest(tmp_path: Path, pack: Pack) -> None:
    path = pack(tmp_path / "download", {"x/t.en": EN, "x/t.fr": FR})
    with pytest.raises(FormatError, match=r"no file 'x/t.de' among its 2; nearest: .*x/t\."):
        sides(path, PlainFormat(source="x/t.en", target="x/t.de"))


def test_a_file_that_is_no_archive_says_so(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(EN)
    with pytest.raises(FormatError, match="neither a folder nor a tar nor a zip"):
        sides(tmp_path / "f", PLAIN)
    with pytest.raises(FormatError, match="names no file"):
        sides(tmp_path / "f", PlainFormat())


@pytest.mark.parametrize("cut", [0.3, 0.9])
def test_a_cut_off_archive_is_damaged_not_short(tmp_path: Path, cut: float) -> None:
    lines = b"".join(f"line {number * 7919 % 10007}\n".encode() for number in range(20_000))
    whole = tar("gz")(tmp_path / "whole", {"x/t.en": lines, "x/t.fr": lines}).read_bytes()
    (tmp_path / "cut").write_bytes(whole[: int(len(whole) * cut)])
    with pytest.raises(FormatError, match="is damaged"):
        sides(tmp_path / "cut", PLAIN)


def test_a_link_in_an_archive_is_not_followed(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "t", "w") as archive:
        link = tarfile.TarInfo("x/t.en")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        archive.addfile(link)
    with pytest.raises(FormatError, match="not a regular file"):
        sides(tmp_path / "t", PLAIN)


def sgm(*segments: str, kind: str = "src") -> bytes:
    body = "\n".join(segments)
    return f'<{kind}set setid="t"><doc docid="d">\n<p>\n{body}\n</p></doc></{kind}set>\n'.encode()


def test_sgml_segments_are_unescaped_and_empty_ones_kept(tmp_path: Path) -> None:
    source = sgm(
        '<seg id="1"> A &amp; B &lt;x&gt; AT&T </seg>', '<seg id="2"></seg>', "<SEG ID='3'>c&#233;\nd</SEG >"
    )
    target = sgm(
        '<seg id="1">A &quot;et&quot; B</seg>',
        '<seg id="2">deux</seg>',
        '<seg id="3">trois</seg>',
        kind="ref",
    )
    path = tar("gz")(tmp_path / "t", {"s.sgm": source, "r.sgm": target})
    assert sides(path, SgmlFormat(source="s.sgm", target="r.sgm")) == [
        ("A & B <x> AT&T", 'A "et" B'),
        ("", "deux"),  # protocol trap 33
        ("cé\nd", "trois"),
    ]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (sgm('<seg id="1">a</seg>'), "has 2 segments but 'r.sgm' has 1"),
        (sgm('<seg id="1">a</seg>', '<seg id="3">b</seg>'), "segment 2 is called '2' in 's.sgm' but '3'"),
        (sgm('<seg id="1">a</seg>', '<seg id="2">b'), "without its end"),
        (b"two\nlines\n", "has no <seg>"),
        (b'<seg id="1">\xe9</seg>', "not UTF-8"),
    ],
)
def test_sgml_sides_that_do_not_belong_together_are_an_error(
    tmp_path: Path, target: bytes, message: str
) -> None:
    source = sgm('<seg id="1">a</seg>', '<seg id="2">b</seg>')
    path = folder(tmp_path, {"s.sgm": source, "r.sgm": target})
    with pytest.raises(FormatError, match=message):
        sides(path, SgmlFormat(source="s.sgm", target="r.sgm"))


CATALOGUE = r"""
msgid ""
msgstr "Content-Type: text/plain; charset=utf-8\nPlural-Forms: nplurals=2; plural=n>1;\n"

msgctxt "a menu"
msgid "Open"
msgstr "Ouvrir"

msgid "two "
"lines"
msgstr "deux lignes"

msgid "not done"
msgstr ""

#, fuzzy
msgid "guessed"
msgstr "deviné"

msgid "one file"
msgid_plural "%d files"
msgstr[0] "un fichier"
msgstr[1] "%d fichiers"

#~ msgid "old"
#~ msgstr "vieux"
"""
MESSAGES = [
    ("Open", "Ouvrir"),
    ("two lines", "deux lignes"),
    ("one file", "un fichier"),
    ("%d files", "%d fichiers"),
]


def test_only_finished_translations_of_a_catalogue_are_pairs(tmp_path: Path) -> None:
    (tmp_path / "fr").write_text(CATALOGUE)
    assert sides(tmp_path / "fr", GettextFormat()) == MESSAGES


def test_a_compiled_catalogue_gives_the_same_pairs(tmp_path: Path) -> None:
    (tmp_path / "fr.po").write_text(CATALOGUE)
    polib.pofile(str(tmp_path / "fr.po")).save_as_mofile(str(tmp_path / "fr"))
    assert sorted(sides(tmp_path / "fr", GettextFormat())) == sorted(MESSAGES)


def test_a_context_written_into_the_message_is_cut_off(tmp_path: Path) -> None:
    (tmp_path / "fr").write_text('msgid "menu\\x04Open"\nmsgstr "Ouvrir"\n'.replace("\\x04", "\x04"))
    assert sides(tmp_path / "fr", GettextFormat()) == [("Open", "Ouvrir")]


@pytest.mark.parametrize("data", [b"no catalogue", struct.pack("<IIIIIII", 0x950412DE, 0, 9, 28, 28, 0, 0)])
def test_a_file_that_is_no_catalogue_is_an_error(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "fr").write_bytes(data)
    with pytest.raises(FormatError, match="not a gettext catalogue"):
        sides(tmp_path / "fr", GettextFormat())


@pytest.fixture
def verses(tmp_path: Path) -> Path:
    path = tmp_path / "a verse?.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (en TEXT, fr TEXT, v INTEGER)")
        rows = [("God`s [own]", "de Dieu", 1), ("b", "(3:1) b", 2), ("c", "c [x]", None), ("d", "d", 4)]
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
    connection.close()
    return path


def test_a_query_gives_pairs_keys_and_its_replacements(verses: Path) -> None:
    config = SqliteFormat(
        query="SELECT fr AS target, en AS source, '1:' || v AS key FROM t ORDER BY rowid",
        replace=(("source", "`", "'"), ("source", r"[\[\]]", ""), ("target", r"^\((\d+):\d+\) ", r"\1. ")),
    )
    before = verses.read_bytes()
    verses.chmod(0o444)
    tables = [read.pairs for read in read_pairs(verses, "c", config, 3)]
    rows = [(row["source"], row["target"], row["key"]) for table in tables for row in table.to_pylist()]
    assert rows == [
        ("God's own", "de Dieu", "1:1"),
        ("b", "3. b", "1:2"),
        ("c", "c [x]", None),  # a rule touches its own side only
        ("d", "d", "1:4"),
    ]
    assert verses.read_bytes() == before
    assert [path.name for path in verses.parent.iterdir()] == [verses.name]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT en AS source, v AS target FROM t", "row 0 of the query has int as target"),
        ("SELECT en AS source, NULL AS target FROM t", "has NoneType as target"),
        ("SELECT en, fr AS target FROM t", "gives the columns en, target"),
        ("SELECT en AS source, fr AS target, v FROM t", "gives the columns source, target, v"),
        ("SELECT en AS source FROM nowhere", "no such table"),
        ("DELETE FROM t", "more than read this file"),
    ],
)
def test_a_query_that_gives_no_pairs_is_an_error(verses: Path, query: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        sides(verses, SqliteFormat(query=query))


def test_a_file_that_is_no_database_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"not a database at all" * 100)
    with pytest.raises(FormatError, match="is text; expected was sqlite"):
        sides(tmp_path / "f", SqliteFormat(query="SELECT name AS source, sql AS target FROM sqlite_master"))


@pytest.mark.parametrize(("pattern", "replacement"), [("[", ""), ("a", r"\1"), ("a", r"\g<b>")])
def test_a_bad_replacement_is_refused_with_the_configuration(pattern: str, replacement: str) -> None:
    with pytest.raises(ValidationError, match=r"is not a rule of re\.sub"):
        SqliteFormat(query="", replace=(("source", pattern, replacement),))
