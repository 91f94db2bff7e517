"""Read lines of UTF-8 text. A bad line is yielded as a `BadLine`, not raised.

Lines end at newlines only: `str.splitlines` would also split at U+2028, U+0085, vertical tab and form feed, which
occur in names. A line that is too long is skipped without being held in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ingest.io import limits
from ingest.io.encoding import HEAD_BYTES, check_is_text
from ingest.io.report import INVALID_UTF8, LINE_TOO_LONG, NUL_CHARACTER
from ingest.io.source import ByteSource
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

    A byte order mark at the start is dropped. Blank lines are yielded as they are. Raises FormatError if the file is
    empty, the content is not text, or the compressed data is damaged; the last with the line that was reached;
    InputError if reading fails.
    """
    for number, line in byte_lines(source, max_bytes=limits.MAX_LINE_BYTES):
        if isinstance(line, BadLine):
            yield number, line
            continue
        try:
            text = line.decode()
        except UnicodeDecodeError:
            yield number, BadLine(INVALID_UTF8, line.decode("utf-8", "replace"))
        else:
            yield number, BadLine(NUL_CHARACTER, text) if "\0" in text else text.removesuffix("\r")


def byte_lines(source: ByteSource, *, max_bytes: int) -> Iterator[tuple[int, bytes | BadLine]]:
    r"""Line numbers, from 1, and lines without ``\n`` as bytes, for parsers that take bytes. Raises as `read_lines`.

    Args:
        max_bytes: Bytes of the longest line, without its end.
    """
    number, rest, is_long, is_begun = 0, b"", False, False
    try:
        for chunk in source.chunks():
            if not is_begun:
                check_is_text(source.path, chunk[:HEAD_BYTES])
                chunk, is_begun = chunk.removeprefix(BOM), True
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                number += 1
                is_long = is_long or len(line) > max_bytes
                yield number, _too_long(line) if is_long else line
                is_long = False
            if is_long or len(rest) > max_bytes:
                rest, is_long = rest[:_PREFIX_BYTES], True
    except FormatError as error:
        if error.line is not None or not number:
            raise
        message = str(error).removeprefix(f"{source.path}: ")
        raise FormatError(source.path, number, f"after this line, {message}") from error
    if not is_begun:
        check_is_text(source.path, b"")
    if rest:
        yield number + 1, _too_long(rest) if is_long else rest


def _too_long(line: bytes) -> BadLine:
    return BadLine(LINE_TOO_LONG, line[:_PREFIX_BYTES].decode("utf-8", "replace"))
