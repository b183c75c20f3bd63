"""One contract for every exchange format: the pairs, the units dropped by reason, and damage by name."""

import gzip
import io
import json
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rnnsearch.pipeline.config import (
    Format,
    JsonLinesFormat,
    ParquetFormat,
    PlainFormat,
    TableFormat,
    TmxFormat,
    WmtFormat,
    XliffFormat,
)
from rnnsearch.pipeline.errors import FormatError
from rnnsearch.pipeline.formats.reader import check_files, read_pairs

Rows = list[tuple[int, str, str]]

TMX = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en"/><body>
<tu><tuv xml:lang="FR-ca"><seg>un <bpt i="1">&lt;b&gt;</bpt>gras<ept i="1">&lt;/b&gt;</ept> &amp;
  <hi>mot</hi><ph><sub>x</sub></ph></seg></tuv><tuv xml:lang="EN"><note>n</note><seg>a bold word</seg></tuv></tu>
<tu><tuv lang="en-GB"><seg>two</seg></tuv><tuv lang="fr"><seg>deux</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>three</seg></tuv><tuv xml:lang="de"><seg>drei</seg></tuv></tu>
<tu><tuv xml:lang="fr"><seg>quatre</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>five</seg></tuv><tuv xml:lang="fr"><seg>cinq</seg></tuv></tu>
</body></tmx>"""
XLIFF_12 = """<?xml version="1.0"?><xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
<file source-language="en" target-language="fr"><body>
<trans-unit id="1"><source>Open <x id="1"/><g id="2">now</g></source>
 <seg-source><mrk mtype="seg">Open</mrk></seg-source><target>Ouvrir</target>
 <alt-trans><source>Other</source><target>Autre</target></alt-trans></trans-unit>
<trans-unit id="2"><source>Two</source></trans-unit>
<trans-unit id="3"><source>Three</source><target>Trois</target></trans-unit>
</body></file></xliff>"""
XLIFF_20 = """<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en" trgLang="fr"><file id="f">
<unit id="1"><segment><source>Open <pc id="1">now</pc></source><target>Ouvrir</target></segment>
<segment><source>Two</source><target/></segment></unit>
<unit id="2"><segment><source>Three</source><target>Trois</target></segment></unit></file></xliff>"""
WMT = """<?xml version='1.0' encoding='utf-8'?><dataset id="w"><collection id="g"><doc id="d" origlang="en">
<src lang="en"><p><seg id="1">one</seg><seg id="2">two</seg></p><p><seg id="3">three &amp; more</seg></p></src>
<ref lang="fr" translator="A"><p><seg id="1">un</seg></p><p><seg id="3">trois</seg></p></ref>
<ref lang="fr" translator="B"><p><seg id="3">drei</seg><seg id="1">eins</seg><seg id="2">zwei</seg></p></ref>
<hyp system="S"><p><seg id="1">no</seg></p></hyp></doc></collection></dataset>"""
TSV = 'en\tfr\tscore\none "big\tun "grand\t1\r\ntwo\n three\ttrois\t3\n'
CSV = 'fr,en\nun,"one, ""big""\nor so"\nseul\ntrois,three\n'
JSON = [
    {"id": 1, "translation": {"en": "one\u2028line", "fr": "un"}},
    {"translation": {"en": "two"}},
    {"translation": {"fr": "deux"}},
    {"translation": {"en": "three", "fr": "trois"}},
]
OPEN: Rows = [(0, "Open now", "Ouvrir"), (2, "Three", "Trois")]
TAKEN: Rows = [(0, "one", "un"), (2, "three & more", "trois")]
CONTRACTS: dict[str, tuple[str, Format, Rows, list[tuple[int, str]]]] = {
    "tmx": (
        TMX,
        TmxFormat(source="en", target="fr"),
        [(0, "a bold word", "un gras & mot"), (1, "two", "deux"), (4, "five", "cinq")],
        [(2, "no_target"), (3, "no_source")],
    ),
    "xliff 1.2": (XLIFF_12, XliffFormat(), OPEN, [(1, "no_target")]),
    "xliff 2.0": (XLIFF_20, XliffFormat(), OPEN, [(1, "no_target")]),
    "wmt": (WMT, WmtFormat(reference="A"), TAKEN, [(1, "no_target")]),
    "tsv": (
        TSV,
        TableFormat(format="tsv", source="en", target="fr"),
        [(0, 'one "big', 'un "grand'), (2, " three", "trois")],
        [(1, "few_columns")],
    ),
    "tsv by number": (
        TSV,
        TableFormat(format="tsv", source=2, target=1),
        [(0, "fr", "en"), (1, 'un "grand', 'one "big'), (3, "trois", " three")],
        [(2, "few_columns")],
    ),
    "csv": (
        CSV,
        TableFormat(format="csv", source="en", target="fr"),
        [(0, 'one, "big"\nor so', "un"), (2, "three", "trois")],
        [(1, "few_columns")],
    ),
    "jsonl": (
        "".join(json.dumps(row) + "\n" for row in JSON),
        JsonLinesFormat(source="translation.en", target="translation.fr"),
        [(0, "one\u2028line", "un"), (3, "three", "trois")],
        [(1, "no_target"), (2, "no_source")],
    ),
}


def read(path: Path, config: Format, longest: int = 65_536) -> tuple[Rows, list[tuple[int, str]]]:
    parts = list(read_pairs(path, "c", config, 2, longest))
    kept = [(r["line"], r["source"], r["target"]) for part in parts for r in part.pairs.to_pylist()]
    return kept, [(r["line"], r["reason"]) for part in parts for r in part.dropped.to_pylist()]


def put(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("name", CONTRACTS)
def test_pairs_and_drops_are_numbered_by_their_units(tmp_path: Path, name: str) -> None:
    text, config, kept, dropped = CONTRACTS[name]
    path = put(tmp_path / "f", text.encode())
    check_files([path], config)
    assert read(path, config) == (kept, dropped)
    assert read(put(tmp_path / "g", gzip.compress(text.encode())), config) == (kept, dropped)


@pytest.mark.parametrize("name", CONTRACTS)
def test_a_member_of_an_archive_is_read_as_the_file_itself(tmp_path: Path, name: str) -> None:
    text, config, kept, dropped = CONTRACTS[name]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("README", "x")
        archive.writestr("in/f", text)
    path = put(tmp_path / "z", packed.getvalue())
    assert read(path, config.model_copy(update={"member": "in/f"})) == (kept, dropped)
    with pytest.raises(FormatError, match="archive of 2 files"):
        read(path, config)


@pytest.mark.parametrize("name", ["tmx", "xliff 1.2", "xliff 2.0", "wmt"])
def test_damaged_xml_is_told_by_line_and_column(tmp_path: Path, name: str) -> None:
    text, config, *_ = CONTRACTS[name]
    lines = text.encode().splitlines(keepends=True)
    with pytest.raises(FormatError, match=rf"damaged at line {len(lines) - 1},? column"):
        read(put(tmp_path / "f", b"".join(lines[:-2]) + lines[-2].replace(b"</", b"<", 1) + b"<"), config)


@pytest.mark.parametrize(
    "doctype",
    [
        '<!DOCTYPE tmx [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>',
        '<!DOCTYPE tmx [<!ENTITY a SYSTEM "file:///etc/hostname">]>',
        '<!DOCTYPE tmx SYSTEM "tmx14.dtd">',
    ],
    ids=["internal", "external", "of the dtd"],
)
def test_entities_of_a_document_type_are_refused(tmp_path: Path, doctype: str) -> None:
    body = "<tmx><body><tu><tuv xml:lang='en'><seg>&a;</seg></tuv></tu></body></tmx>"
    with pytest.raises(FormatError, match=r"line 1, column \d+: the entity 'a' comes from a document type"):
        read(put(tmp_path / "f", (doctype + body).encode()), TmxFormat(source="en", target="fr"))


def test_a_language_that_no_unit_has_is_an_error_that_names_those_there_are(tmp_path: Path) -> None:
    path = put(tmp_path / "f", TMX.encode())
    with pytest.raises(FormatError, match="its languages are de, en, en-gb, fr, fr-ca"):
        read(path, TmxFormat(source="en", target="cs"))


@pytest.mark.parametrize(("name", "said"), [("", "references by A, B; set"), ("C", "one of them, not 'C'")])
def test_of_several_references_one_is_taken_by_name(tmp_path: Path, name: str, said: str) -> None:
    path = put(tmp_path / "f", WMT.encode())
    assert read(path, WmtFormat(reference="B"))[0][2] == (2, "three & more", "drei")
    with pytest.raises(FormatError, match=said):
        read(path, WmtFormat(reference=name))


@pytest.mark.parametrize(
    ("data", "config", "said"),
    [
        (b"a\tb\n", TableFormat(format="tsv", source="en"), "no column 'en'; its first line has a, b"),
        (b"a\tb\nc\xe9\td\n", TableFormat(format="tsv"), "line 2 is not UTF-8"),
        (b'a,b\n"c,d\n', TableFormat(format="csv"), "is not CSV"),
        (b'{"source": "a"\n', JsonLinesFormat(), "line 1 is not JSON"),
        (b"[1]\n", JsonLinesFormat(), "line 1 is a list, not an object"),
        (b'{"en": "a", "fr": "b"}\n', JsonLinesFormat(), "no line with 'source' and 'target'"),
    ],
)
def test_rows_that_cannot_be_read_are_told_by_line(
    tmp_path: Path, data: bytes, config: Format, said: str
) -> None:
    with pytest.raises(FormatError, match=said):
        read(put(tmp_path / "f", data), config)


@pytest.mark.parametrize("name", ["tmx", "xliff 1.2", "wmt", "csv", "jsonl"])
def test_a_side_above_the_bound_is_dropped(tmp_path: Path, name: str) -> None:
    text, config, *_ = CONTRACTS[name]
    long = text.replace("three", "three" * 30).replace("Three", "Three" * 30).replace("five", "five" * 40)
    kept, dropped = read(put(tmp_path / "f", long.encode()), config, longest=100)
    assert "too_long" in {reason for _, reason in dropped}
    assert all(len(source) <= 100 for _, source, _ in kept)


def test_half_a_surrogate_pair_in_json_is_no_text(tmp_path: Path) -> None:
    path = put(tmp_path / "f", b'{"source": "\\ud800", "target": "b"}\n{"source": "a", "target": "b"}\n')
    assert read(path, JsonLinesFormat()) == ([(1, "a", "b")], [(0, "no_source")])


def test_columns_of_a_parquet_file_are_pairs(tmp_path: Path) -> None:
    rows = [
        {"translation": {"en": e, "fr": f}, "id": i} for e, f, i in (("one", "un", "k"), (None, "x", None))
    ]
    pq.write_table(pa.Table.from_pylist([*rows, rows[0]]), tmp_path / "f")
    config = ParquetFormat(source="translation.en", target="translation.fr", key="id")
    assert read(tmp_path / "f", config) == ([(0, "one", "un"), (2, "one", "un")], [(1, "no_source")])
    assert next(read_pairs(tmp_path / "f", "c", config, 3)).pairs["key"].to_pylist() == ["k", "k"]
    with pytest.raises(FormatError, match=r"no column 'source'; it has translation\.en, translation\.fr, id"):
        read(tmp_path / "f", ParquetFormat())
    put(tmp_path / "cut", (tmp_path / "f").read_bytes()[:100])
    with pytest.raises(FormatError, match="not a whole Parquet file"):
        read(tmp_path / "cut", config)


def test_a_zip_of_opus_is_read_by_its_members(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "z", "w") as archive:
        for name, text in (
            ("LICENSE", "x"),
            ("B.en-fr.en", "one\ntwo\n"),
            ("B.en-fr.fr", "un\ndeux\n"),
            ("README", ""),
        ):
            archive.writestr(name, text)
    config = PlainFormat(source="B.en-fr.en", target="B.en-fr.fr")
    assert read(tmp_path / "z", config)[0] == [(0, "one", "un"), (1, "two", "deux")]


def test_a_line_of_csv_above_the_bound_is_a_counted_drop_and_the_rows_after_it_are_read(
    tmp_path: Path,
) -> None:
    text = "one,un\n" + "x" * 2_000 + ',"y"\nthree,trois\n"open ' + "z" * 2_000 + "\nfive,cinq\n"
    kept, dropped = read(put(tmp_path / "f", text.encode()), TableFormat(format="csv"), longest=20)
    assert [row[1:3] for row in kept] == [("one", "un"), ("three", "trois"), ("five", "cinq")]
    assert [reason for _, reason in dropped] == ["too_long", "too_long"]
