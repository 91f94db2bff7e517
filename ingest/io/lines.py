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
from ingest.io.streams import ByteSource
from ingest.io.text_check import HEAD_BYTES, check_is_text
from pearl_qdrant.errors import FormatError

_PREFIX_BYTES = 1 << 10
_BOM = b"\xef\xbb\xbf"


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
    number = 0
    try:
        for number, line in _number_lines(source):
            yield number, line
    except FormatError as error:
        if error.line is not None or not number:
            raise
        message = str(error).removeprefix(f"{source.path}: ")
        raise FormatError(source.path, number, f"after this line, {message}") from error


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
    """Blocks of whole lines without the last newline, and the lines that are too long between them.

    Raises:
        FormatError: As `read_lines`, without a line.
        InputError: If reading fails.
    """
    rest = b""
    too_long: bytes | None = None
    chunks = source.chunks()
    head = next(chunks, b"")
    check_is_text(source.path, head[:HEAD_BYTES])
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
            # A chunk is shorter than the limit, so only a line that began in an earlier chunk can be too long.
            if len(rest) + first - start > limits.MAX_LINE_BYTES:
                yield _too_long(rest)
                if first < last:
                    yield chunk[first + 1 : last]
            else:
                yield rest + chunk[start:last]
            rest = chunk[last + 1 :]
        if len(rest) > limits.MAX_LINE_BYTES:
            too_long, rest = rest[:_PREFIX_BYTES], b""
    if too_long is not None:
        yield _too_long(too_long)
    elif rest:
        yield rest


def _too_long(start: bytes) -> BadLine:
    return BadLine(LINE_TOO_LONG, start[:_PREFIX_BYTES].decode("utf-8", "replace"))
