r"""Reads documents with the places of their mentions: JSON Lines.

    {"id": "report-7", "text": "She left NYC.", "mentions": [{"start": 9, "end": 12}]}

The id may be missing. Offsets count characters from 0. Further keys are ignored, so that a file of labelled documents
(`learned.labelled`) can be linked too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from pearl_qdrant.errors import FormatError
from pearl_qdrant.linking.mention_detection.passages import Passage, read_passages


def read_document_lines(file: BinaryIO, name: str) -> Iterator[Passage]:
    """Yield the documents of a file, each with its `ents`; blank lines yield nothing.

    Args:
        file: An open binary file.
        name: Its path, for errors.

    Raises:
        FormatError: At a line that is not UTF-8, too long, no JSON, or has another form.
    """
    for passage in read_passages(file, name, "jsonl", spans_key="mentions"):
        if passage.ents is None:
            raise FormatError(name, passage.line, "not an object with a text and mentions, which may be []")
        yield passage
