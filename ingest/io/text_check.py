"""Say what a file is that cannot be read as it was meant: other kinds are recognised by their first bytes."""

from __future__ import annotations

import re

from pearl_qdrant.errors import FormatError

HEAD_BYTES = 1 << 16
"""Bytes examined to tell text from other files."""

_CONTROL = bytes(byte for byte in (*range(32), 127) if byte not in b"\t\n\r")

_BY_NAME = "It is read from an uncompressed file, by its path"

_FOREIGN = (
    (b"PK\x03\x04", "a zip archive or a workbook inside another file. Name the file itself"),
    (b"PK\x05\x06", "an empty zip archive"),
    (b"\xd0\xcf\x11\xe0", f"an old office document (.xls, .doc). {_BY_NAME}, if it is a workbook"),
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"%PDF-", "a PDF document"),
    (b"SQLite format 3\x00", "an SQLite database. Export the table: sqlite3 -header -csv FILE 'SELECT ...'"),
    (b"PAR1", f"a Parquet file. {_BY_NAME}"),
    (b"ARROW1", f"an Arrow file. {_BY_NAME}"),
    (b"FEA1", "a Feather file of version 1. Write it as version 2, or as Parquet"),
    (b"\x7fELF", "a program"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive. Unpack it: 7z x"),
    (b"Rar!\x1a\x07", "a RAR archive. Unpack it"),
    (b"\x04\x22\x4d\x18", "compressed with lz4. Decompress it, or use gzip, bzip2, xz or zstd"),
    (b"\x1f\x9d", "compressed with compress (.Z). Decompress it"),
    (b"\x1f\x8b\x08", "compressed twice. Decompress it once"),
)

_TEXTS = (
    (rb"(?i)\A\s*(?:<!doctype html|<html)", "a web page (HTML). Was an error page downloaded instead"),
    (rb"<rdf:RDF|xmlns:rdf=", "RDF/XML. Read it with format rdf"),
    (rb"<(?:DescriptorRecordSet|SupplementalRecordSet)", "MeSH as XML. Read it with format mesh"),
    (rb"\A\s*<(?s:.)*<(?:\w+:)?Ontology\b", "an ontology in OWL/XML. Convert it: robot convert -o base.obo"),
    (
        rb"\A\s*(?:Prefix|Ontology)\(",
        "an ontology in OWL functional syntax. Convert it: robot convert -o base.obo",
    ),
    (rb"\A\s*<(?:\?xml|[A-Za-z][\w:.-]*[\s>](?s:.)*?</)", "XML that is no known base of names. Convert it to a table"),
    (rb"(?mi)^[ \t]*(?:@prefix|@base|prefix\s+\w*:\s*<)", "Turtle (RDF). Read it with format rdf"),
    (rb"\A\s*(?:<[^>\s]+>|_:\w+)\s+<[^>\s]+>\s", "N-Triples (RDF). Read it with format rdf"),
    (rb"\A\s*[\[{]", "JSON. Read it with format jsonl, and name the columns"),
    (rb"(?m)^format-version:|^\[Term\]", "an ontology in OBO. Read it with format obo"),
    (rb"(?i)\A\s*(?:create table|insert into|-- mysql dump|-- postgresql)", "an SQL dump. Export the table as CSV"),
    (rb"\A\s*(?:---[ \t]*\n|[\w-]+:[ \t]*\n[ \t-]+[\w-]+:)", "YAML. Convert it to JSON Lines"),
)


def describe_text(head: bytes) -> str | None:
    """What a text that is no table looks like, with what to do; None if it is nothing known."""
    head = head[: 1 << 13]
    return next((kind for pattern, kind in _TEXTS if re.search(pattern, head)), None)


def check_is_text(path: str, head: bytes, *, may_be_wide: bool = False) -> None:
    """Refuse a file that is clearly not text with newlines.

    Args:
        path: The file, for the error.
        head: Its first bytes, decompressed.
        may_be_wide: It may be UTF-16, which is converted later.

    Raises:
        FormatError: If it is empty or another kind of file; names the kind.
    """
    if not head:
        raise FormatError(path, None, "is empty")
    for magic, kind in _FOREIGN:
        if head.startswith(magic):
            raise FormatError(path, None, f"is not text but {kind}")
    if head[257:262] == b"ustar":
        raise FormatError(path, None, "is a tar archive. Unpack it: tar -xf")
    lines = head.split(b"\n")
    if head.startswith((b"\xff\xfe", b"\xfe\xff")) or wide_encoding(head) is not None:
        if may_be_wide:
            return
        raise FormatError(path, None, "is UTF-16 text. Convert it: iconv -f UTF-16 -t UTF-8")
    if b"\0" in head and _is_mostly_binary(lines):
        raise FormatError(path, None, "is not text: it is full of NUL bytes. Is it a binary file?")
    if len(lines) == 1 and head.count(b"\r") > 1 and len({part.count(b"\t") for part in head.split(b"\r")[:-1]}) == 1:
        raise FormatError(path, None, r"ends its lines with \r alone. Convert it: tr '\r' '\n'")


def wide_encoding(head: bytes) -> str | None:
    """UTF-16 without its mark: nearly every second byte of text in Latin letters is NUL."""
    n = len(head) // 2
    for name, nuls, others in (("utf-16-le", head[1::2], head[::2]), ("utf-16-be", head[::2], head[1::2])):
        if n >= 4 and nuls.count(0) > 0.6 * n and others.count(0) < 0.01 * n:
            return name
    return None


def _is_mostly_binary(lines: list[bytes]) -> bool:
    """Whether most lines that are not blank have control characters. A few such lines are bad lines, not a bad file."""
    filled = [line for line in lines if line.strip()]
    return 2 * sum(len(line.translate(None, _CONTROL)) == len(line) for line in filled) < len(filled)
