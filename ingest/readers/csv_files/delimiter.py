"""Which character separates the columns of a CSV file."""

from __future__ import annotations

import os

from ingest.base.format import PathLike
from ingest.io.streams import STDIN, ByteSource, Source
from ingest.io.text_check import HEAD_BYTES
from ingest.readers.csv_files.records import first_records
from ingest.readers.tables.columns import TableColumns, has_all_columns
from pearl_qdrant.errors import FormatError, InputError

DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
"""Tried when no delimiter is given."""

_DETECTED = (",", ";")
_N_RECORDS = 20


def read_head(source: ByteSource) -> str:
    r"""The first whole lines of a file as text, with ``\n`` between them. Raises as `ByteSource.head`."""
    head = source.head(HEAD_BYTES)
    if len(head) == HEAD_BYTES:
        head = head[: head.rfind(b"\n") + 1] or head
    return head.decode("utf-8-sig", "replace").replace("\r\n", "\n")


def find_delimiter(path: str, head: str, columns: TableColumns) -> str:
    """The delimiter of a file.

    With it, the first row is a header that names the columns. If no delimiter gives such a header, it is the only one
    that gives each of the first rows the same number of cells, and more than one.

    Raises:
        FormatError: If no delimiter does, or several do.
    """
    candidates = []
    for delimiter in DELIMITERS:
        records = first_records(head, delimiter, _N_RECORDS)
        if not records:
            continue
        if len(records[0]) > 1 and has_all_columns(records[0], columns):
            return delimiter
        if len(records[0]) > 1 and len({len(cells) for cells in records}) == 1:
            candidates.append(delimiter)
    if len(candidates) == 1:
        return candidates[0]
    if not candidates and columns.id is not None and columns.id == columns.name:
        return ","  # a list of names has one column and no delimiter
    named = " and ".join(DELIMITERS[delimiter] for delimiter in candidates)
    what = f"{named} would all do" if candidates else "no character separates the same number of cells in each row"
    raise FormatError(path, 1, f"the delimiter of this CSV file is not clear: {what}. Name it.", option="delimiter")


def is_csv(path: PathLike, columns: TableColumns | None) -> bool:
    """Whether a file begins with a header with commas or semicolons that names the columns. Never raises."""
    if os.fspath(path) == STDIN or not os.path.isfile(path):  # noqa: PTH113 - a path with NUL is no error here
        return False
    try:
        head = read_head(Source(path))
    except InputError:
        return False
    first = next((line for line in head.split("\n") if line.strip()), "")
    if "\t" in first:
        return False
    columns = columns or TableColumns()
    records = (first_records(head, delimiter, 1) for delimiter in _DETECTED)
    return any(found and len(found[0]) > 1 and has_all_columns(found[0], columns) for found in records)
