"""Read lists of names with their entity types: TSV with a header, or PEARL's `phrase <TAB> entity type`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import chain

from ingest.io.lines import BadLine, read_lines
from ingest.io.report import NO_NAME, TOO_FEW_COLUMNS, ReadReport
from ingest.io.streams import Source
from training.corpus.files import UNKNOWN_TYPE, entity_type_of

_NAME_HEADERS = ("name", "phrase", "text")
_TYPE_HEADERS = ("onto_type", "entity_type", "type")


def read_typed_names(path: str | os.PathLike[str], report: ReadReport) -> Iterator[tuple[str, str]]:
    """Yield names with their types.

    A header has one of the columns `name`, `phrase`, `text` and one of `onto_type`, `entity_type`, `type`. Without a
    header the name is the first column and the type the last. Raises as `read_lines`.
    """
    source = Source(path)
    try:
        lines = read_lines(source)
        first = next(lines)
        columns = None if isinstance(first[1], BadLine) else _header(first[1].split("\t"))
        if columns is None:
            lines, columns = chain([first], lines), (0, -1)
        for number, line in lines:
            if not isinstance(line, BadLine) and not line.strip():
                continue
            report.rows += 1
            found = line.reason if isinstance(line, BadLine) else _typed(line.split("\t"), columns)
            if isinstance(found, tuple):
                yield found
            else:
                text = line.text if isinstance(line, BadLine) else line
                report.skip(found, path=source.path, line=number, text=text)
    finally:
        source.close()


def _header(cells: list[str]) -> tuple[int, int] | None:
    """Return the columns of name and type, if these cells are a header."""
    lower = [cell.strip().lower() for cell in cells]
    name = next((lower.index(one) for one in _NAME_HEADERS if one in lower), None)
    kind = next((lower.index(one) for one in _TYPE_HEADERS if one in lower), None)
    return None if name is None or kind is None else (name, kind)


def _typed(cells: list[str], columns: tuple[int, int]) -> tuple[str, str] | str:
    """Return a name with its type; or the reason why the row is skipped."""
    if len(cells) < 2 or len(cells) <= max(columns):
        return TOO_FEW_COLUMNS
    name, kind = cells[columns[0]].strip(), entity_type_of(cells[columns[1]])
    if not name:
        return NO_NAME
    return UNKNOWN_TYPE if kind is None else (name, kind)
