"""Reads files of passages: one a line, JSON Lines with id, text and spans, or one passage in the whole file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Literal

from pearl_qdrant.errors import FormatError, InputError
from pearl_qdrant.linking.mention_detection.blocks import Utf16, read_spans
from pearl_qdrant.linking.mention_detection.spans import Span
from pearl_qdrant.linking.mentions import read_text_lines
from pearl_qdrant.linking.options import OffsetUnit
from pearl_qdrant.settings import MAX_PASSAGE_BYTES

PassageFormat = Literal["lines", "jsonl", "whole"]
"""One passage a line; one JSON object a line, with "text" and maybe "id" and "spans"; the whole file is one passage."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage of a file, with the number of its line, from 1, and the places of its mentions if they are known.

    That of a whole file has its line ends as they are, so that offsets match the file.
    """

    line: int
    text: str
    id: str | int | None = None
    ents: tuple[Span, ...] | None = None


def format_of(name: str) -> PassageFormat:
    """The format that the ending of a file suggests."""
    return "jsonl" if name.lower().endswith((".jsonl", ".ndjson")) else "lines"


def read_passages(
    file: BinaryIO,
    name: str,
    kind: PassageFormat | None = None,
    *,
    offsets: OffsetUnit = "characters",
    spans_key: str = "spans",
) -> Iterator[Passage]:
    """Yield the passages of a file in constant memory. Blank lines are counted and yield nothing. Raises FormatError at
    a line that is not UTF-8, longer than `MAX_LINE_BYTES`, or not an object with a text; InputError if a whole file is
    not UTF-8, or longer than `MAX_PASSAGE_BYTES`.

    The format is by default `format_of` the name. `spans_key` names a list of the places of mentions: mappings with
    `start` and `end`, as `offsets` counts, and maybe a `label`.
    """
    kind = kind or format_of(name)
    if kind == "whole":
        content = file.read(MAX_PASSAGE_BYTES + 1)
        if len(content) > MAX_PASSAGE_BYTES:
            message = f"longer than {MAX_PASSAGE_BYTES:,} bytes, the maximum for one passage. Split it, as by chapters"
            raise InputError(name, None, message)
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError as error:
            message = f"not UTF-8 at byte {error.start}. Convert it, for example with iconv"
            raise InputError(name, None, message) from error
        yield Passage(1, text)
        return
    for number, line in read_text_lines(file, name):
        if not line.strip():
            continue
        if kind == "lines":
            yield Passage(number, line)
            continue
        try:
            yield _parse(line, number, offsets, spans_key)
        except ValueError as error:
            raise FormatError(
                name, number, f"{error}. A line looks like this: {_EXAMPLE.replace('SPANS', spans_key)}"
            ) from error


def _parse(line: str, number: int, offsets: OffsetUnit, spans_key: str) -> Passage:
    """The passage of a line of JSON. Raises ValueError if it is none."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON ({error})") from error
    if not isinstance(row, dict) or not isinstance(row.get("text"), str):
        raise ValueError("not an object with a text")  # noqa: TRY004 - of a file, as the others
    key, text, spans = row.get("id"), row["text"], row.get(spans_key)
    if not isinstance(key, (str, int, type(None))) or isinstance(key, bool):
        raise ValueError(f"the id is {json.dumps(key)[:50]}. Give a string or an integer, or leave it out")  # noqa: TRY004
    if not isinstance(spans, (list, type(None))):
        raise ValueError(f"not an object with a text and {spans_key}, which are a list")  # noqa: TRY004
    in_characters = Utf16(text).characters if offsets == "utf-16" else None
    return Passage(number, text, key, None if spans is None else tuple(read_spans(text, spans, in_characters)))


_EXAMPLE = '{"id": "report-7", "text": "She read the NYTimes.", "SPANS": [{"start": 13, "end": 20}]}'
