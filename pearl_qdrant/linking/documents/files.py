r"""Reads documents with the places of their mentions: JSON Lines.

    {"id": "report-7", "text": "She left NYC.", "mentions": [{"start": 9, "end": 12}]}

The id may be missing. Offsets count characters from 0. Further keys are ignored, so that a file of labelled documents
(`learned.labelled`) can be linked too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from pearl_qdrant.errors import FormatError
from pearl_qdrant.linking.mention_detection.given_spans import read_spans
from pearl_qdrant.linking.mention_detection.passages import Passage
from pearl_qdrant.linking.text_lines import read_text_lines

_EXAMPLE = '{"id": "report-7", "text": "She left NYC.", "mentions": [{"start": 9, "end": 12}]}'
_SHOWN = 50  # characters of an id in an error


@dataclass(frozen=True, slots=True)
class DocumentFile:
    """A document of a file.

    Attributes:
        passage: Its line, text and id.
        spans: The places of its mentions, as offsets.
    """

    passage: Passage
    spans: tuple[tuple[int, int], ...]


def read_document_lines(file: BinaryIO, name: str) -> Iterator[DocumentFile]:
    """Yield the documents of a file; blank lines yield nothing.

    Args:
        file: An open binary file.
        name: Its path, for errors.

    Raises:
        FormatError: At a line that is not UTF-8, too long, no JSON, or has another form.
    """
    for number, line in read_text_lines(file, name):
        if line.strip():
            yield _parse(line, name, number)


def _parse(line: str, name: str, number: int) -> DocumentFile:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FormatError(name, number, f"not JSON ({error}). A line looks like this: {_EXAMPLE}") from error
    if not isinstance(row, dict) or not isinstance(row.get("text"), str) or not isinstance(row.get("mentions"), list):
        raise FormatError(name, number, f"not an object with a text and mentions. A line looks like this: {_EXAMPLE}")
    key = row.get("id")
    if isinstance(key, bool) or not isinstance(key, (str, int, type(None))):
        shown = json.dumps(key)[:_SHOWN]
        raise FormatError(name, number, f"the id is {shown}. Give a string or an integer, or leave it out")
    try:
        spans = read_spans(row["text"], row["mentions"])
    except ValueError as error:
        raise FormatError(name, number, f"{error}. A line looks like this: {_EXAMPLE}") from error
    return DocumentFile(Passage(number, row["text"], key), tuple((span.start, span.end) for span in spans))
