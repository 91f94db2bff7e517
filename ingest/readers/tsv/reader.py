r"""Bases as tab-separated text: one row an entity, or several.

The text is UTF-8; a byte order mark is dropped. Fields end at tabs, rows at ``\n`` or ``\r\n``, and nothing else. There
is no quoting, so a name may begin with a quote or be ``None``. Aliases, and several types in one cell, are joined by
``|``, where ``\|`` is a bar and ``\\`` a backslash. Blank lines are skipped.

Each file has its own header or none; `ingest.readers.tables.columns` has the rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from ingest.io.lines import BadLine, read_lines
from ingest.io.report import ReadReport
from ingest.io.streams import Source
from ingest.io.text_check import HEAD_BYTES
from ingest.readers.tables.columns import Layout, find_layout
from ingest.readers.tables.reader import TableReader
from ingest.readers.tables.rows import TEXT_CELLS, TypeFinder, check_rows, make_entities
from ingest.readers.tables.suspicions import header_warning, looks_like_header, split_with_suspicion
from pearl_qdrant.errors import FormatError
from pearl_qdrant.records import Entity


class TsvReader(TableReader):
    """A base in one or several TSV files; a `Reader`."""

    def read_table(self, source: Source, report: ReadReport) -> Iterator[Entity]:
        """One entity for each good row of a file."""
        lines = read_lines(source)
        for number, first in lines:  # noqa: B007 - used after the loop
            text = first.text if isinstance(first, BadLine) else first
            if text.strip():
                break
        else:
            raise FormatError(source.path, None, "holds nothing but blank lines")
        layout = find_layout(source.path, number, text.split("\t"), self.columns)
        _check_tabs(source, layout)
        if layout.header is None:
            self._suspect_header(source, number, text, report)
            lines = chain(((number, first),), lines)
        elif isinstance(first, BadLine):
            raise FormatError(source.path, number, f"the header is damaged: {first.reason}")
        report.notes.append(f"{source.path}: {layout.describe()}")
        split = split_with_suspicion(source.path, report, has_ids=layout.id != layout.name)
        rows = check_rows(source.path, lines, layout, report, split=split, show=str)
        yield from make_entities(rows, layout, TypeFinder(self.type_map, TEXT_CELLS), report)

    def _suspect_header(self, source: Source, number: int, first: str, report: ReadReport) -> None:
        """Warn if the first row, which is read as an entity, looks like a header."""
        if self.columns.given():
            return
        head = source.head(HEAD_BYTES).decode("utf-8", "replace").split("\n")[number:-1]
        others = [line.split("\t") for line in head if line.strip()]
        if looks_like_header(first.split("\t"), others):
            report.warnings.append(header_warning(source.path, number, first.split("\t")))


def _check_tabs(source: Source, layout: Layout) -> None:
    """Refuse a file without a tab, unless one column is enough; the error describes what it looks like."""
    if layout.id == layout.name == 0:
        return
    head = source.head(HEAD_BYTES)
    if b"\t" in head:
        return
    lines = [line for line in head.split(b"\n") if line.strip()]
    looks = "This is not a table"
    for separator, kind in ((b",", "comma-separated"), (b";", "semicolon-separated"), (b"|", "separated by bars")):
        if 2 * sum(separator in line for line in lines) > len(lines):
            looks = f"It looks {kind}. Read it with format csv, and name the delimiter and the columns if the header "
            looks += "is not clear"
            break
    if head.lstrip()[:1] in (b"{", b"[", b"<"):
        looks = "It looks like JSON, XML or RDF. Of JSON, one object a line is read (JSON Lines)"
    raise FormatError(
        source.path,
        1,
        f"no tab in its first {len(lines)} lines, but a tab-separated file was expected. {looks}.",
        option="format",
    )
