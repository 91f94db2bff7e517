"""Read lines of UTF-8 text. A bad line is yielded as a `BadLine`, not raised.

Lines end at newlines only: `str.splitlines` would also split at U+2028, U+0085, vertical tab and form feed, which
occur in names. A block is decoded at once, and line by line only if that fails. A line that is too long is skipped
without being held in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from ingest.io import limits
from ingest.io.report import INVALID_UTF8, LINE_TOO_LONG, NUL_CHARACTER
from ingest.io.source import ByteSource
from ingest.io.text_check import HEAD_BYTES, check_is_text
from pearl_qdrant.errors import FormatError

BOM = b"\xef\xbb\xbf"

_PREFIX_BYTES = 1 << 10


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that cannot be used.

    Attributes:
        reason: Why, as a key of `ReadReport.skipped`.
        text: The line, or its start if it is long, with invalid bytes replaced.
    """

    reason: str
    text: str


def read_lines(source: ByteSource) -> Iterator[tuple[int, str | BadLine]]:
    r"""Line numbers, from 1, and lines without their ending (``\n`` or ``\r\n``).

    A byte order mark at the start is dropped. Blank lines are yielded as they are.

    Raises:
        FormatError: If the file is empty, the content is not text, or the compressed data is damaged; the last
            with the line that was reached.
        InputError: If reading fails.
    """
    for first, block in _numbered_blocks(source, limits.MAX_LINE_BYTES):
        if isinstance(block, BadLine):
            yield first, block
            continue
        lines: Sequence[str | BadLine]
        try:
            lines = block.decode("utf-8").split("\n")
        except UnicodeDecodeError:
            lines = [_decode(line) for line in block.split(b"\n")]
        has_nul = b"\0" in block
        for number, line in enumerate(lines, first):
            if isinstance(line, BadLine):
                yield number, line
            elif has_nul and "\0" in line:
                yield number, BadLine(NUL_CHARACTER, line)
            else:
                yield number, line[:-1] if line[-1:] == "\r" else line


def byte_lines(source: ByteSource, *, max_bytes: int) -> Iterator[tuple[int, bytes | BadLine]]:
    r"""Line numbers, from 1, and lines without ``\n`` as bytes, for parsers that take bytes. Raises as `read_lines`.

    Args:
        source: The file.
        max_bytes: Bytes of the longest line, without its end.
    """
    for number, block in _numbered_blocks(source, max_bytes):
        if isinstance(block, BadLine):
            yield number, block
        else:
            yield from enumerate(block.split(b"\n"), number)


def _decode(line: bytes) -> str | BadLine:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        return BadLine(INVALID_UTF8, line.decode("utf-8", "replace"))


def _numbered_blocks(source: ByteSource, max_bytes: int) -> Iterator[tuple[int, bytes | BadLine]]:
    """Number of the first line of each block, and the block; damage is an error with the line that was reached."""
    number = 1
    try:
        for block in _blocks(source, max_bytes):
            yield number, block
            number += 1 if isinstance(block, BadLine) else block.count(b"\n") + 1
    except FormatError as error:
        if error.line is not None or number == 1:
            raise
        message = str(error).removeprefix(f"{source.path}: ")
        raise FormatError(source.path, number - 1, f"after this line, {message}") from error


def _blocks(source: ByteSource, max_bytes: int) -> Iterator[bytes | BadLine]:
    """Blocks of whole lines without the last newline, and the lines that are too long between them."""
    chunks = source.chunks()
    head = next(chunks, b"")
    check_is_text(source.path, head[:HEAD_BYTES])
    rest = bytearray()
    too_long: bytes | None = None
    for chunk in chain((head.removeprefix(BOM),), chunks):
        first, last = chunk.find(b"\n"), chunk.rfind(b"\n")
        if first < 0:
            if too_long is None:
                rest += chunk
        else:
            if too_long is None and len(rest) + first > max_bytes:
                too_long = bytes((rest + chunk[:_PREFIX_BYTES])[:_PREFIX_BYTES])
            if too_long is not None:
                yield _too_long(too_long)
                too_long = None
                if first < last:
                    yield chunk[first + 1 : last]
            else:
                yield bytes(rest) + chunk[:last]
            rest = bytearray(chunk[last + 1 :])
        if len(rest) > max_bytes:
            too_long, rest = bytes(rest[:_PREFIX_BYTES]), bytearray()
    if too_long is not None:
        yield _too_long(too_long)
    elif rest:
        yield bytes(rest)


def _too_long(start: bytes) -> BadLine:
    return BadLine(LINE_TOO_LONG, start.decode("utf-8", "replace"))
