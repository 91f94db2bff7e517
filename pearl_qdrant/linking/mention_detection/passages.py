"""Reads files of passages: one a line, JSON Lines with id and text, or one passage in the whole file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Literal

from pearl_qdrant.errors import FormatError, InputError
from pearl_qdrant.linking.text_lines import read_text_lines
from pearl_qdrant.settings import MAX_PASSAGE_BYTES

PassageFormat = Literal["lines", "jsonl", "whole"]
"""One passage a line; one JSON object a line, with "text" and maybe "id"; the whole file is one passage."""

JSONL_ENDINGS = (".jsonl", ".ndjson")


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage of a file.

    Attributes:
        line: The number of its line, from 1.
        text: The passage. That of a whole file has its line ends as they are, so that offsets match the file.
        id: Its id, if it has one.
    """

    line: int
    text: str
    id: str | int | None = None


def format_of(name: str) -> PassageFormat:
    """The format that the ending of a file suggests."""
    return "jsonl" if name.lower().endswith(JSONL_ENDINGS) else "lines"


def read_passages(file: BinaryIO, name: str, kind: PassageFormat | None = None) -> Iterator[Passage]:
    """Yield the passages of a file in constant memory. Blank lines are counted and yield nothing.

    Args:
        file: An open binary file, UTF-8.
        name: Its path, for errors.
        kind: Its format; by default `format_of` its path.

    Raises:
        FormatError: At a line that is not UTF-8, longer than `MAX_LINE_BYTES`, or not an object with a text.
        InputError: If a whole file is not UTF-8, or longer than `MAX_PASSAGE_BYTES`.
    """
    kind = kind or format_of(name)
    if kind == "whole":
        yield Passage(1, _read_whole(file, name))
        return
    for number, line in read_text_lines(file, name):
        if line.strip():
            yield _parse(line, name, number) if kind == "jsonl" else Passage(number, line)


def _parse(line: str, name: str, number: int) -> Passage:
    """The passage of a line of JSON."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FormatError(
            name, number, f"not JSON ({error}). A line looks like this: {_EXAMPLE}. Is this a file with plain lines?"
        ) from error
    if not isinstance(row, dict) or not isinstance(row.get("text"), str):
        raise FormatError(name, number, f"not an object with a text. A line looks like this: {_EXAMPLE}")
    key = row.get("id")
    if isinstance(key, bool) or not isinstance(key, (str, int, type(None))):
        shown = json.dumps(key)[:50]
        raise FormatError(name, number, f"the id is {shown}. Give a string or an integer, or leave it out")
    return Passage(number, row["text"], key)


_EXAMPLE = '{"id": "report-7", "text": "She read the NYTimes."}'


def _read_whole(file: BinaryIO, name: str) -> str:
    content = file.read(MAX_PASSAGE_BYTES + 1)
    if len(content) > MAX_PASSAGE_BYTES:
        limit = f"longer than {MAX_PASSAGE_BYTES:,} bytes, the maximum for one passage"
        raise InputError(name, None, f"{limit}. Split it, for example by chapters, one a line")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(name, None, f"not UTF-8 at byte {error.start}. Convert it, for example with iconv") from error
