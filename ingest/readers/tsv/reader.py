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
from ingest.io.streams import ByteSource, Source
from ingest.io.text_check import HEAD_BYTES
from ingest.readers.tables.columns import Layout, find_layout
from ingest.readers.tables.reader import LineTableReader
from ingest.readers.tables.rows import TEXT_CELLS, TypeFinder, check_rows, make_entities
from ingest.readers.tables.suspicions import header_warning, looks_like_header, split_with_suspicion
from pearl_qdrant.errors import FormatError
from pearl_qdrant.records import Entity


class TsvReader(LineTableReader):
    """A base in one or several TSV files; a `Reader`."""

    def read_table(self, source: ByteSource, report: ReadReport) -> Iterator[Entity]:
        """One entity for each good row of a file."""
        lines = read_lines(source)
        number, first = _first_line(source.path, lines)
        text = _text_of(first)
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

    def read_lines(self, whole: Source, part: ByteSource, report: ReadReport) -> Iterator[Entity]:
        """See `LineTableReader.read_lines`."""
        number, first = _first_line(whole.path, read_lines(whole))
        layout = find_layout(whole.path, number, _text_of(first).split("\t"), self.columns)
        split = split_with_suspicion(part.path, report, has_ids=False)  # which only matters in the first row
        rows = check_rows(part.path, read_lines(part), layout, report, split=split, show=str)
        return make_entities(rows, layout, TypeFinder(self.type_map, TEXT_CELLS), report)

    def _suspect_header(self, source: ByteSource, number: int, first: str, report: ReadReport) -> None:
        """Warn if the first row, which is read as an entity, looks like a header."""
        if self.columns.given():
            return
        head = source.head(HEAD_BYTES).decode("utf-8", "replace").split("\n")[number:-1]
        others = [line.split("\t") for line in head if line.strip()]
        if looks_like_header(first.split("\t"), others):
            report.warnings.append(header_warning(source.path, number, first.split("\t")))


def _first_line(path: str, lines: Iterator[tuple[int, str | BadLine]]) -> tuple[int, str | BadLine]:
    """The first line that is not blank, with its number."""
    for number, line in lines:
        if _text_of(line).strip():
            return number, line
    raise FormatError(path, None, "holds nothing but blank lines")


def _text_of(line: str | BadLine) -> str:
    return line.text if isinstance(line, BadLine) else line


def _check_tabs(source: ByteSource, layout: Layout) -> None:
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
