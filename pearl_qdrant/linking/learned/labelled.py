r"""Reads labelled mentions: tab-separated pairs, or JSON Lines with documents or pairs.

    NYC<TAB>Q60                                                    a mention and an entity id
    the University<TAB>NIL                                         NIL or nothing: the base has no entity for it
    {"text": "She left NYC.", "mentions": [{"start": 9, "end": 12, "id": "Q60"}]}
    {"mention": "NYC", "id": "Q60"}

The first line of tab-separated pairs may be a header. Further columns and keys are ignored; `entity_id` is another name
of `id`. Offsets count characters from 0.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pearl_qdrant.errors import FormatError
from pearl_qdrant.linking.mention_detection.given_spans import read_spans
from pearl_qdrant.linking.text_lines import read_text_lines

NIL = "NIL"

_HEADERS = ("entity_id", "id")
_JSONL_ENDINGS = (".jsonl", ".ndjson")
_SHOWN = 80  # characters of a value in an error
_EXAMPLE = '{"text": "She left NYC.", "mentions": [{"start": 9, "end": 12, "id": "Q60"}]}'


@dataclass(frozen=True, slots=True)
class LabelledMention:
    """A mention with its right entity, and where it was read.

    Attributes:
        mention: The string as it is in the file.
        entity_id: The entity, or None for NIL.
        line: Number of its line, from 1.
    """

    mention: str
    entity_id: str | None
    line: int


def read_labelled(path: Path) -> Iterator[LabelledMention]:
    """Yield the labelled mentions of a file, repeated ones too; blank lines yield nothing.

    Args:
        path: JSON Lines if its name ends in .jsonl or .ndjson, else tab-separated pairs.

    Raises:
        FormatError: If the file cannot be read or is not UTF-8, or a line is too long or has another form.
    """
    parse = _of_json if path.name.lower().endswith(_JSONL_ENDINGS) else _of_pair
    try:
        with path.open("rb") as file:
            for number, line in read_text_lines(file, str(path)):
                if line.strip():
                    yield from parse(line, str(path), number)
    except OSError as error:
        raise FormatError(str(path), None, f"cannot be read ({error.strerror or error}).") from error


def _of_pair(line: str, path: str, number: int) -> Iterator[LabelledMention]:
    fields = line.split("\t")
    if number == 1 and len(fields) > 1 and fields[1].strip().casefold() in _HEADERS:
        return
    if len(fields) < 2 or not fields[0].strip():
        raise FormatError(path, number, "expected a mention, a tab and an entity id, or NIL for no entity.")
    yield LabelledMention(fields[0], as_id(fields[1]), number)


def as_id(text: str) -> str | None:
    """An entity id as it is written in a file; None for nothing and for NIL."""
    key = text.strip()
    return None if key in ("", NIL) else key


def _of_json(line: str, path: str, number: int) -> Iterator[LabelledMention]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FormatError(path, number, f"not JSON ({error}). A line looks like this: {_EXAMPLE}") from error
    if isinstance(row, dict) and isinstance(row.get("text"), str) and isinstance(row.get("mentions"), list):
        try:
            spans = read_spans(row["text"], row["mentions"])
        except ValueError as error:
            raise FormatError(path, number, f"{error}. A line looks like this: {_EXAMPLE}") from error
        for given, span in zip(row["mentions"], spans, strict=True):
            mention = row["text"][span.start : span.end]
            if not mention.strip():
                raise FormatError(path, number, f"the mention from {span.start} to {span.end} is white space.")
            yield LabelledMention(mention, _id_of(given, path, number), number)
    elif isinstance(row, dict) and isinstance(row.get("mention"), str) and row["mention"].strip():
        yield LabelledMention(row["mention"], _id_of(row, path, number), number)
    else:
        raise FormatError(
            path, number, f"neither a text with mentions nor a mention. A line looks like this: {_EXAMPLE}"
        )


def _id_of(row: object, path: str, number: int) -> str | None:
    """The entity id of a mention; a number is taken as text, since many bases have such ids."""
    for name in ("id", "entity_id"):
        if isinstance(row, dict) and name in row:
            value = row[name]
            if value is None:
                return None
            if isinstance(value, str):
                return as_id(value)
            if isinstance(value, int) and not isinstance(value, bool):
                return str(value)
            raise FormatError(path, number, f"the id is {_shown(value)}. Give a string, or null for no entity.")
    raise FormatError(
        path, number, f"a mention without id. Give null for no entity. A line looks like this: {_EXAMPLE}"
    )


def _shown(value: object) -> str:
    return json.dumps(value)[:_SHOWN]
