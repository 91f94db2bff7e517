"""Reads files of mentions line by line: UTF-8 with or without a byte order mark, in constant memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from pearl_qdrant.errors import FormatError
from pearl_qdrant.settings import MAX_LINE_BYTES


def read_text_lines(file: BinaryIO, name: str) -> Iterator[tuple[int, str]]:
    r"""Yield line numbers, from 1, and lines without their ending (``\n`` or ``\r\n``). Raises FormatError at a line
    that is not UTF-8, or longer than `MAX_LINE_BYTES`.
    """
    number = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
            raise FormatError(name, number, f"longer than {MAX_LINE_BYTES:,} bytes. Is this a text with short lines?")
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise FormatError(name, number, "not UTF-8. Convert the file, as with iconv") from error
        yield number, text.rstrip("\r\n")
