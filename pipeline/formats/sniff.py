"""The kind of a file, told by its first bytes: a blob has no name, and a name may be wrong.

Every input passes here, in `init`, `plan`, the taking apart of downloads and ingest, so that all agree on it.
"""

import re
import tarfile

HEAD = 4_096  # bytes that `sniff` wants; it takes fewer where the file has fewer

COMPRESSED = ("gzip", "bzip2", "xz", "zstd")
ARCHIVES = ("zip", "tar")

_MAGIC = (
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"7z\xbc\xaf\x27\x1c", "7z"),
    (b"Rar!\x1a\x07", "rar"),
    (b"PK\x03\x04", "zip"),
    (b"PK\x05\x06", "zip"),  # one without members
    (b"SQLite format 3\x00", "sqlite"),
    (b"PAR1", "parquet"),
    (b"\xde\x12\x04\x95", "mo"),
    (b"\x95\x04\x12\xde", "mo"),
    (b"%PDF-", "pdf"),
    (b"version https://git-lfs.github.com/spec/", "lfs"),
    (b"\xff\xfe\x00\x00", "utf-32"),
    (b"\x00\x00\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
_BOM = b"\xef\xbb\xbf"
# What may stand before the first element: a declaration, comments, a document type.
_PROLOGUE = re.compile(
    rb"\s*(?:<\?.*?\?>\s*|<!--.*?-->\s*|<!doctype\b[^>\[]*(?:\[.*?\]\s*)?>\s*)*", re.I | re.S
)
_ELEMENT = re.compile(rb"<([A-Za-z][\w:.-]*)[\s/>]")
_XML = re.compile(rb"\s*<\?xml\s", re.I)
_DOCTYPE = re.compile(rb"<!doctype\s+([A-Za-z][\w:.-]*)", re.I)
_ROOTS = {
    "html": "html",
    "tmx": "tmx",
    "xliff": "xliff",
    "dataset": "wmt",
    "mteval": "sgml",
    "srcset": "sgml",
    "refset": "sgml",
    "tstset": "sgml",
}

REMEDIES = {
    "lfs": "is a Git LFS pointer, not the file; fetch it with `git lfs pull`",
    "utf-16": "is UTF-16; convert it: iconv -f UTF-16 -t UTF-8",
    "utf-32": "is UTF-32; convert it: iconv -f UTF-32 -t UTF-8",
    "pdf": "is a PDF; extract its text first",
    "sqlite": 'is an SQLite database; use format = "sqlite" with a query',
    "parquet": 'is a Parquet file; use format = "parquet"',
    "mo": 'is a compiled gettext catalogue; use format = "gettext"',
    "lz4": "is compressed as lz4; unpack it first",
    "7z": "is a 7z archive; unpack it first",
    "rar": "is a RAR archive; unpack it first",
    "zip": "is a zip archive; name the file in it that is meant",
    "tar": "is a tar archive; name the file in it that is meant",
    "binary": "is binary, not text",
    "xml": "is XML of an unknown kind; known are TMX, XLIFF, NIST SGML and the XML of WMT",
    "html": "is a web page, not a corpus; look at the address in a browser",
    "tmx": 'is TMX; use format = "tmx"',
    "xliff": 'is XLIFF; use format = "xliff"',
    "wmt": 'is XML of WMT; use format = "wmt"',
    "sgml": 'is SGML of a test set; use format = "sgml"',
}
"""What to do about a file of a kind that was not expected."""


def sniff(head: bytes) -> str:
    """The kind of the file that begins with `head`: `text`, `empty`, of COMPRESSED, of ARCHIVES or of REMEDIES."""
    if not head:
        return "empty"
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return kind
    if _is_tar(head):
        return "tar"
    if b"\x00" in head:
        return "binary"
    return _markup(head.removeprefix(_BOM)) or "text"


def _is_tar(head: bytes) -> bool:
    """Whether a tar begins here: a header with the right checksum, or the zeros of one without members."""
    block = head[: tarfile.BLOCKSIZE]
    if len(block) < tarfile.BLOCKSIZE:
        return False
    if not any(block):
        return not any(head)
    try:
        tarfile.TarInfo.frombuf(block, tarfile.ENCODING, "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def _markup(head: bytes) -> str | None:
    """The kind of XML, SGML or HTML, None for text that only begins with a `<`."""
    if not head.lstrip().startswith(b"<"):
        return None
    prologue = _PROLOGUE.match(head)
    element = _ELEMENT.match(head, prologue.end() if prologue else 0)
    doctype = _DOCTYPE.search(head)
    for named in (element, doctype):
        if named and (root := named[1].decode("ascii", "replace").lower().rpartition(":")[2]) in _ROOTS:
            return _ROOTS[root]
    return "xml" if _XML.match(head) or doctype else None
