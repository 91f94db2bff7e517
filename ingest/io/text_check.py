"""Refuse files that are not text: other kinds of files are recognised by their first bytes and named."""

from __future__ import annotations

from pearl_qdrant.errors import FormatError

HEAD_BYTES = 1 << 16
"""Bytes examined to tell text from other files."""

_CONTROL = bytes(byte for byte in (*range(32), 127) if byte not in b"\t\n\r")

_BY_NAME = "It is read from an uncompressed file, by its path, with format parquet or auto"

_FOREIGN = (
    (
        b"PK\x03\x04",
        "a zip archive, perhaps truncated, or an office document (.xlsx). Fetch it again, unpack it or save it as text",
    ),
    (b"PK\x05\x06", "an empty zip archive"),
    (b"\xd0\xcf\x11\xe0", "an office document (.xls). Save the sheet as tab-separated text"),
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"%PDF-", "a PDF document"),
    (b"SQLite format 3\x00", "an SQLite database. Export the table as tab-separated text"),
    (b"PAR1", f"a Parquet file. {_BY_NAME}"),
    (b"ARROW1", f"an Arrow file. {_BY_NAME}"),
    (b"FEA1", "a Feather file of version 1. Write it as version 2, or as Parquet"),
    (b"\x7fELF", "a program"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive. Unpack it"),
    (b"Rar!\x1a\x07", "a RAR archive. Unpack it"),
    (b"\x04\x22\x4d\x18", "compressed with lz4. Decompress it, or use gzip, bzip2, xz or zstd"),
    (b"\x1f\x9d", "compressed with compress (.Z). Decompress it"),
    (b"\x1f\x8b\x08", "compressed twice. Decompress it once"),
    (b"\xff\xfe", "UTF-16 text. Convert it: iconv -f UTF-16 -t UTF-8"),
    (b"\xfe\xff", "UTF-16 text. Convert it: iconv -f UTF-16 -t UTF-8"),
)


def check_is_text(path: str, head: bytes) -> None:
    """Refuse a file that is clearly not UTF-8 text with newlines.

    Args:
        path: The file, for the error.
        head: Its first bytes, decompressed.

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
    if b"\0" in head and _is_mostly_binary(lines):
        raise FormatError(path, None, "is not text: it is full of NUL bytes. Is it a binary file, or UTF-16?")
    if len(lines) == 1 and head.count(b"\r") > 1 and len({part.count(b"\t") for part in head.split(b"\r")[:-1]}) == 1:
        raise FormatError(path, None, r"ends its lines with \r alone. Convert it: tr '\r' '\n'")


def _is_mostly_binary(lines: list[bytes]) -> bool:
    """Whether most lines that are not blank have control characters. A few such lines are bad lines, not a bad file."""
    filled = [line for line in lines if line.strip()]
    return 2 * sum(len(line.translate(None, _CONTROL)) == len(line) for line in filled) < len(filled)
