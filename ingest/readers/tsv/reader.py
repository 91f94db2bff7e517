r"""Bases as tab-separated text: one row an entity, or several.

Form: UTF-8 (a byte order mark is dropped), fields cut at tabs and rows at ``\n`` or ``\r\n``, nothing else; no
quoting, so that a name may begin with a quote or be ``None``. Aliases, and several types in one cell, are joined by
``|``, where ``\|`` is a bar and ``\\`` a backslash. Space around a field is dropped. Blank lines are passed over.

Columns, found for each file by itself:

- Options name them: `TsvColumns`. A name makes the first row the header; a number counts from 1.
- Else the first row is the header if it has an id column (``id``, ``entity_id``, ``cui``, ``qid``) and a name column
  (``canonical_name``, ``name``), in upper or lower case. Then ``type`` and ``types`` give types, ``aliases`` or
  ``alias`` aliases, ``description`` the description, a ``name`` beside ``canonical_name`` one more alias, and any
  other column goes to `Entity.extra` under its own name, with ``column_`` before it where a point has a field of
  that name.
- Else there is no header: id, name, type, aliases in this order, of which the last two may be absent.

A row needs its id and its name; cells missing at its end count as empty. Of its types the first
`limits.MAX_KB_TYPES` are kept.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, islice
from typing import TYPE_CHECKING, BinaryIO

from ingest.base.merge import merge_adjacent, merge_scattered
from ingest.base.reader import Hashes
from ingest.base.scan import find_scattered
from ingest.base.type_map import TypeMap
from ingest.io import limits
from ingest.io.lines import BadLine, read_lines
from ingest.io.report import NO_ID, NO_NAME, TOO_FEW_COLUMNS, TOO_MANY_COLUMNS, ReadReport
from ingest.io.streams import Source, open_sources
from ingest.io.text_check import HEAD_BYTES
from ingest.readers.tsv.layout import Layout, TsvColumns, find_layout
from pearl_qdrant.errors import FormatError
from pearl_qdrant.records import Entity

if TYPE_CHECKING:
    from typing_extensions import Self

_ESCAPE = re.compile(r"\\([\\|])")
_BAR_OR_ESCAPE = re.compile(r"\||\\[\\|]")
_MAX_CACHED_LENGTH = 1 << 10  # of the cells with types


class TsvReader:
    """A base in one or several TSV files; a `Reader`."""

    def __init__(
        self,
        paths: Sequence[str | os.PathLike[str]],
        columns: TsvColumns | None = None,
        *,
        type_map: TypeMap | None = None,
        limit: int | None = None,
        stdin: BinaryIO | None = None,
    ) -> None:
        """Open the files; standard input and pipes are copied to a temporary file now.

        Args:
            paths: Files to read one after the other; ``-`` is standard input.
            columns: Which column is what, in each of them.
            type_map: From types in the file to coarse types; the shipped one by default.
            limit: Read only so many runs of rows of one id: that many entities, if none is scattered.
            stdin: What ``-`` means; the process's own by default.

        Raises:
            FormatError: If a file is not there, is a directory, or may not be read.
        """
        self._columns = columns or TsvColumns()
        self._type_map = type_map or TypeMap.load()
        self._limit = limit
        self._sources = open_sources(paths, stdin)

    def read(self, report: ReadReport, *, scattered: Hashes | None = None) -> Iterator[Entity]:
        """Entities, each id once; see `Reader.read`."""
        if scattered is None:
            scattered = find_scattered(self)
        yield from merge_scattered(self.read_runs(report), scattered, report)

    def read_runs(self, report: ReadReport) -> Iterator[Entity]:
        """Entities in the order of the input; see `Reader.read_runs`."""
        rows = chain.from_iterable(self._read_rows(source, report) for source in self._sources)
        return islice(merge_adjacent(rows, report), self._limit)

    def close(self) -> None:
        """Remove the copy of standard input, if there is one."""
        for source in self._sources:
            source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _read_rows(self, source: Source, report: ReadReport) -> Iterator[Entity]:
        """One entity for each good row of a file."""
        lines = read_lines(source)
        for number, first in lines:  # noqa: B007 - used after the loop
            text = first.text if isinstance(first, BadLine) else first
            if text.strip():
                break
        else:
            raise FormatError(source.path, None, "holds nothing but blank lines")
        layout = find_layout(source.path, number, text.split("\t"), self._columns)
        _check_tabs(source, layout)
        if layout.header is None:
            lines = chain(((number, first),), lines)
        elif isinstance(first, BadLine):
            raise FormatError(source.path, number, f"the header is damaged: {first.reason}")
        report.notes.append(f"{source.path}: {layout.describe()}")
        rows_before = report.rows
        yield from _make_entities(_read_cells(source.path, lines, layout, report), layout, self._type_map, report)
        if report.rows == rows_before:
            raise FormatError(source.path, None, "has a header and no rows")


def split_list(cell: str) -> tuple[str, ...]:
    r"""Items of a cell joined by ``|``, with ``\|`` and ``\\`` unescaped; empty ones and repetitions are dropped."""
    if "|" not in cell:
        item = cell.strip().replace("\\\\", "\\")
        return (item,) if item else ()
    items = [_ESCAPE.sub(r"\1", item) for item in _split_at_bars(cell)] if "\\" in cell else cell.split("|")
    return tuple(dict.fromkeys(filter(None, map(str.strip, items))))


def _split_at_bars(cell: str) -> Iterator[str]:
    """Items of a cell in which there may be escaped bars, as written."""
    start = 0
    for found in _BAR_OR_ESCAPE.finditer(cell):
        if found[0] == "|":
            yield cell[start : found.start()]
            start = found.end()
    yield cell[start:]


def _read_cells(
    path: str, lines: Iterable[tuple[int, str | BadLine]], layout: Layout, report: ReadReport
) -> Iterator[list[str]]:
    """Cells of the good rows, at least `layout.width` of them; id and name are stripped and not empty."""
    i_id, i_name, width = layout.id, layout.name, layout.width
    n_needed = 1 + max(i_id, i_name)
    n_header = sys.maxsize if layout.header is None else len(layout.header)
    for number, line in lines:
        if isinstance(line, BadLine):
            report.rows += 1
            report.skip(line.reason, path=path, line=number, text=line.text)
            continue
        cells = line.split("\t")
        n_cells = len(cells)
        if n_cells < width:
            cells += [""] * (width - n_cells)
        cells[i_id], cells[i_name] = cells[i_id].strip(), cells[i_name].strip()
        if cells[i_id] and cells[i_name] and n_cells <= n_header:
            report.rows += 1
            report.place = path, number
            yield cells
        elif line.strip():
            report.rows += 1
            reason = _find_fault(cells, layout, n_cells < n_needed)
            if reason is None:
                report.place = path, number
                yield cells
            else:
                report.skip(reason, path=path, line=number, text=line)


def _find_fault(cells: list[str], layout: Layout, is_short: bool) -> str | None:
    """Why a row is passed over; None for one that merely has tabs at its end."""
    if is_short:
        return TOO_FEW_COLUMNS
    if not cells[layout.id]:
        return NO_ID
    if not cells[layout.name]:
        return NO_NAME
    # A tab inside a name shifts all that follows: types would become aliases.
    is_shifted = layout.header is not None and any(cell.strip() for cell in cells[len(layout.header) :])
    return TOO_MANY_COLUMNS if is_shifted else None


def _make_entities(
    rows: Iterable[list[str]], layout: Layout, type_map: TypeMap, report: ReadReport
) -> Iterator[Entity]:
    """One entity for each row of cells."""
    i_name, i_alias, i_alias_name = layout.name, layout.alias, layout.alias_name
    i_id, i_description, extra_columns = layout.id, layout.description, layout.extra

    def find_types(*type_cells: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Native and coarse types."""
        each = dict.fromkeys(chain.from_iterable(map(split_list, type_cells)))
        kb_types = tuple(islice(each, limits.MAX_KB_TYPES))
        return kb_types, type_map.map_types(kb_types)

    # Most rows share a few combinations of cells.
    find_known_types = lru_cache(maxsize=65_536)(find_types)

    for cells in rows:
        name = cells[i_name]
        aliases = split_list(cells[i_alias]) if i_alias is not None and cells[i_alias] else ()
        if i_alias_name is not None:
            aliases = tuple(dict.fromkeys(filter(None, (cells[i_alias_name].strip(), *aliases))))
        if name in aliases:
            aliases = tuple(alias for alias in aliases if alias != name)
        if len(aliases) >= limits.MAX_NAMES:
            aliases = report.bound_names(cells[i_id], (name, *aliases))[1:]
        type_cells = [cells[i] for i in layout.types]
        is_honest = sum(map(len, type_cells)) <= _MAX_CACHED_LENGTH
        kb_types, types = (find_known_types if is_honest else find_types)(*type_cells)
        description = (cells[i_description].strip() or None) if i_description is not None else None
        extra = {}
        for i, key in extra_columns:
            if i >= len(cells):
                break
            if value := cells[i].strip():
                extra[key] = value
        yield Entity(cells[i_id], name, aliases, kb_types, types, description, extra)


def _check_tabs(source: Source, layout: Layout) -> None:
    """Refuse a file without a tab, unless it is meant to have one column; says what it looks like."""
    if layout.id == layout.name == 0:
        return
    head = source.head(HEAD_BYTES)
    if b"\t" in head:
        return
    lines = [line for line in head.split(b"\n") if line.strip()]
    looks = "This is no table"
    for separator, kind in ((b",", "comma-separated"), (b";", "semicolon-separated"), (b"|", "separated by bars")):
        if 2 * sum(separator in line for line in lines) > len(lines):
            looks = f"It looks {kind}"
            break
    if head.lstrip()[:1] in (b"{", b"[", b"<"):
        looks = "It looks like JSON, XML or RDF"
    raise FormatError(
        source.path, 1, f"no tab in its first {len(lines)} lines, but a tab-separated file was expected. {looks}"
    )
