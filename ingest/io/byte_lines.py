"""Read lines as bytes, for formats whose parser takes bytes and whose lines may have many MB."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from ingest.io.lines import BadLine
from ingest.io.report import LINE_TOO_LONG
from ingest.io.streams import ByteSource
from ingest.io.text_check import HEAD_BYTES, check_is_text
from pearl_qdrant.errors import FormatError

_BOM = b"\xef\xbb\xbf"
_PREFIX_BYTES = 1 << 10


def byte_lines(source: ByteSource, *, max_bytes: int) -> Iterator[tuple[int, bytes | BadLine]]:
    r"""Line numbers, from 1, and lines without ``\n``; a line that is too long is skipped without being held.

    Args:
        source: The file.
        max_bytes: Bytes of the longest line, without its end.

    Raises:
        FormatError: If the file is empty, the content is not text, or the compressed data is damaged; the last
            with the line that was reached.
        InputError: If reading fails.
    """
    number = 0
    try:
        for block in _blocks(source, max_bytes):
            if isinstance(block, BadLine):
                number += 1
                yield number, block
                continue
            for line in block.split(b"\n"):
                number += 1
                yield number, line
    except FormatError as error:
        raise _with_line(source, number, error) from error


def lines_with(source: ByteSource, wanted: bytes, *, max_bytes: int) -> Iterator[bytes]:
    """The lines that contain these bytes, as fast as a search. Raises as `byte_lines`."""
    number = 0
    try:
        for block in _blocks(source, max_bytes):
            if isinstance(block, BadLine):
                number += 1
                continue
            found = block.find(wanted)
            while found >= 0:
                end = block.find(b"\n", found)
                end = len(block) if end < 0 else end
                yield block[block.rfind(b"\n", 0, found) + 1 : end]
                found = block.find(wanted, end)
            number += block.count(b"\n") + 1
    except FormatError as error:
        raise _with_line(source, number, error) from error


def _with_line(source: ByteSource, number: int, error: FormatError) -> FormatError:
    """The error, with the last line that was read."""
    if error.line is not None or not number:
        return error
    message = str(error).removeprefix(f"{source.path}: ")
    return FormatError(source.path, number, f"after this line, {message}")


def _blocks(source: ByteSource, max_bytes: int) -> Iterator[bytes | BadLine]:
    """Blocks of whole lines without the last newline, and the lines that are too long between them."""
    chunks = source.chunks()
    head = next(chunks, b"")
    check_is_text(source.path, head[:HEAD_BYTES])
    rest = bytearray()
    too_long: bytes | None = None
    for chunk in chain((head.removeprefix(_BOM),), chunks):
        first, last = chunk.find(b"\n"), chunk.rfind(b"\n")
        if first < 0:
            if too_long is None:
                rest += chunk
        else:
            if too_long is None and len(rest) + first > max_bytes:
                too_long = bytes(rest[:_PREFIX_BYTES])
            if too_long is not None:
                yield BadLine(LINE_TOO_LONG, too_long.decode("utf-8", "replace"))
                too_long = None
                if first < last:
                    yield chunk[first + 1 : last]
            else:
                rest += chunk[:last]
                yield bytes(rest)
            rest = bytearray(chunk[last + 1 :])
        if len(rest) > max_bytes:
            too_long, rest = bytes(rest[:_PREFIX_BYTES]), bytearray()
    if too_long is not None:
        yield BadLine(LINE_TOO_LONG, too_long.decode("utf-8", "replace"))
    elif rest:
        yield bytes(rest)
