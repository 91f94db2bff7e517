"""Lines of UTF-8 text, cut at newlines only, with what cannot be a line counted instead of raised.

`str.splitlines` would also cut at U+2028, U+0085, vertical tab and form feed, which are parts of names. A block is
decoded at once, and line by line only where that fails. A line that is too long is passed over without being held.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from ingest.reader import INVALID_UTF8, LINE_TOO_LONG, NUL_CHARACTER
from ingest.streams import ByteSource
from pearl_qdrant.errors import FormatError

MAX_LINE_BYTES = 1 << 20
"""A longer line is skipped. The longest honest ones hold the aliases of one entity, some 100 KB."""

HEAD_BYTES = 1 << 16
"""How much is looked at to tell text from other files."""

_PREFIX_BYTES = 1 << 10
_BOM = b"\xef\xbb\xbf"
_CONTROL = bytes(byte for byte in (*range(32), 127) if byte not in b"\t\n\r")

_FOREIGN = (
    (
        b"PK\x03\x04",
        "a zip archive, perhaps cut off, or an office document (.xlsx). Fetch it again, unpack it, or save it as text",
    ),
    (b"PK\x05\x06", "an empty zip archive"),
    (b"\xd0\xcf\x11\xe0", "an office document (.xls). Save the sheet as tab-separated text"),
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"%PDF-", "a PDF document"),
    (b"SQLite format 3\x00", "an SQLite database. Export the table as tab-separated text"),
    (b"PAR1", "a Parquet file. Convert it to tab-separated text"),
    (b"\x7fELF", "a program"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive. Unpack it"),
    (b"Rar!\x1a\x07", "a RAR archive. Unpack it"),
    (b"\x04\x22\x4d\x18", "compressed with lz4. Decompress it, or use gzip, bzip2, xz or zstd"),
    (b"\x1f\x9d", "compressed with compress (.Z). Decompress it"),
    (b"\x1f\x8b\x08", "compressed twice. Decompress it once"),
    (b"\xff\xfe", "UTF-16 text. Convert it: iconv -f UTF-16 -t UTF-8"),
    (b"\xfe\xff", "UTF-16 text. Convert it: iconv -f UTF-16 -t UTF-8"),
)


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that is no text.

    Attributes:
        reason: Why, as a key of `ReadReport.skipped`.
        text: The line, or its start if it is long, with what is wrong replaced.
    """

    reason: str
    text: str


def read_lines(source: ByteSource) -> Iterator[tuple[int, str | BadLine]]:
    r"""Line numbers, from 1, and lines without their ending (``\n`` or ``\r\n``).

    A byte order mark at the start is dropped. Blank lines come as they are.

    Raises:
        FormatError: If there is not a byte, the content is no text, or the compressed data is damaged; the last
            with the line that was reached.
        InputError: If reading fails.
    """
    number = 0
    try:
        for number, line in _number_lines(source):
            yield number, line
    except FormatError as error:
        if error.line is not None or not number:
            raise
        message = str(error).removeprefix(f"{source.path}: ")
        raise FormatError(source.path, number, f"after this line, {message}") from error


def check_is_text(source: ByteSource, head: bytes) -> None:
    """Refuse what is plainly not UTF-8 text with newlines.

    Args:
        source: What is read; its path goes into the error.
        head: Its first bytes, decompressed.

    Raises:
        FormatError: If it is empty, or another kind of file; says which.
    """
    if not head:
        raise FormatError(source.path, None, "is empty")
    for magic, kind in _FOREIGN:
        if head.startswith(magic):
            raise FormatError(source.path, None, f"is not text but {kind}")
    if head[257:262] == b"ustar":
        raise FormatError(source.path, None, "is a tar archive. Unpack it: tar -xf")
    lines = head.split(b"\n")
    if b"\0" in head and _is_mostly_binary(lines):
        raise FormatError(source.path, None, "is not text: it is full of NUL bytes. Is it a binary file, or UTF-16?")
    if len(lines) == 1 and head.count(b"\r") > 1 and len({part.count(b"\t") for part in head.split(b"\r")[:-1]}) == 1:
        raise FormatError(source.path, None, r"ends its lines with \r alone. Convert it: tr '\r' '\n'")


def _is_mostly_binary(lines: list[bytes]) -> bool:
    """Whether most lines that are not blank have control characters; a few of them make bad lines, not a bad file."""
    filled = [line for line in lines if line.strip()]
    return 2 * sum(len(line.translate(None, _CONTROL)) == len(line) for line in filled) < len(filled)


def _number_lines(source: ByteSource) -> Iterator[tuple[int, str | BadLine]]:
    number = 0
    for block in line_blocks(source):
        if isinstance(block, BadLine):
            number += 1
            yield number, block
            continue
        if not number:
            block = block.removeprefix(_BOM)
        lines: Sequence[str | BadLine]
        try:
            lines = block.decode("utf-8").split("\n")
        except UnicodeDecodeError:
            lines = [_decode(line) for line in block.split(b"\n")]
        has_nul = b"\0" in block
        for line in lines:
            number += 1
            if isinstance(line, BadLine):
                yield number, line
            elif has_nul and "\0" in line:
                yield number, BadLine(NUL_CHARACTER, line)
            else:
                yield number, line[:-1] if line[-1:] == "\r" else line


def _decode(line: bytes) -> str | BadLine:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        return BadLine(INVALID_UTF8, line.decode("utf-8", "replace"))


def line_blocks(source: ByteSource) -> Iterator[bytes | BadLine]:
    """Blocks of whole lines, the last newline cut off, and the lines that are too long between them.

    Raises:
        FormatError: As `read_lines`, without a line.
        InputError: If reading fails.
    """
    rest = b""
    too_long: bytes | None = None
    chunks = source.chunks()
    head = next(chunks, b"")
    check_is_text(source, head[:HEAD_BYTES])
    for chunk in chain((head,), chunks):
        start = 0
        if too_long is not None:
            start = chunk.find(b"\n") + 1
            if not start:
                continue
            yield _too_long(too_long)
            too_long = None
        first, last = chunk.find(b"\n", start), chunk.rfind(b"\n", start)
        if first < 0:
            rest += chunk[start:]
        else:
            # A chunk is shorter than the limit, so that only a line begun in an earlier chunk can be too long.
            if len(rest) + first - start > MAX_LINE_BYTES:
                yield _too_long(rest)
                if first < last:
                    yield chunk[first + 1 : last]
            else:
                yield rest + chunk[start:last]
            rest = chunk[last + 1 :]
        if len(rest) > MAX_LINE_BYTES:
            too_long, rest = rest[:_PREFIX_BYTES], b""
    if too_long is not None:
        yield _too_long(too_long)
    elif rest:
        yield rest


def _too_long(start: bytes) -> BadLine:
    return BadLine(LINE_TOO_LONG, start[:_PREFIX_BYTES].decode("utf-8", "replace"))
