"""Open a table: its header, its first rows and all its rows, whatever it is stored as."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from ingest.io.encoding import HEAD_BYTES, check_is_text
from ingest.io.lines import BadLine, read_lines
from ingest.io.report import NUL_CHARACTER, TOO_MANY_COLUMNS
from ingest.io.source import ByteSource
from ingest.readers.arrow_rows import check_path, open_arrow, read_workbook
from ingest.readers.cells import find_path, parse_path, shown
from ingest.readers.columns import MAX_COLUMNS, TableColumns, is_header
from ingest.readers.delimited import find_dialect, read_rows
from ingest.readers.json_records import find_prefix, looks_like_json, read_records
from ingest.readers.layouts import Base, find_shape, known_bases
from pearl_qdrant.errors import FormatError, InputError, OptionError

if TYPE_CHECKING:
    from ingest.base.format import Head
    from ingest.formats import ReadOptions

_N_SAMPLE = 200  # rows by which layouts, separators and suspicions are found
_N_TITLES = 20  # rows of a sheet in which the header is looked for

Row = tuple[int, list[Any] | BadLine]


@dataclass(slots=True)
class Table:
    """An open table.

    Attributes:
        path: For the report.
        about: What it is, for the note.
        header: Names of the columns; of JSON it grows with the rows. None if it has none.
        header_line: The number of its row.
        rows: Each with its number.
        sample: The first rows.
        has_numbers: Columns have an order, so that an option may give a number.
        is_typed: Cells may be other than text.
        has_comments: Rows that begin with # and are too short are comments.
        is_unquoted: Text that knows no quotes.
    """

    path: str
    about: str
    header: list[str] | None
    rows: Iterator[Row]
    sample: list[list[Any]] = field(default_factory=list)
    header_line: int | None = None
    has_numbers: bool = True
    is_typed: bool = False
    has_comments: bool = False
    is_unquoted: bool = False


def bases_of(options: ReadOptions) -> Sequence[Base]:
    """The known bases, those of the options first."""
    return (*options.bases, *known_bases())


def _header_test(options: ReadOptions) -> Callable[[Sequence[str]], bool]:
    """Whether a row is a header, by its words or as that of a known base."""
    columns, bases = options.columns or TableColumns(), bases_of(options)
    return lambda cells: is_header(cells, columns) or find_shape(bases, cells, ()) is not None


def open_text(source: ByteSource, options: ReadOptions, *, kind: str = "auto") -> Table:
    """Open a text with separated cells; see `find_dialect` for `kind` and errors."""
    check_is_text(source.path, source.head(HEAD_BYTES))
    dialect = find_dialect(source, options, _header_test(options), kind)
    rows = read_rows(islice(read_lines(source), dialect.n_skipped, None), dialect)
    table = Table(source.path, dialect.describe(), dialect.header, rows, dialect.sample)
    table.header_line = dialect.header_line or dialect.n_skipped + 1
    table.has_comments = dialect.has_comments
    table.is_unquoted = not dialect.is_quoted
    return table


def open_json(source: ByteSource, options: ReadOptions) -> Table:
    """Open JSON; paths that the options or a known base name are columns too. Raises FormatError if it has no object at
    its start.
    """
    check_is_text(source.path, source.head(HEAD_BYTES))
    columns = options.columns or TableColumns()
    prefix = find_prefix(source.head(HEAD_BYTES)) or ""
    records = read_records(source)
    first = list(islice(records, _N_SAMPLE))
    objects = [record for _, record in first if isinstance(record, dict)]
    if not objects:
        raise FormatError(source.path, 1, "has no JSON object at its start")
    folded = {key.casefold(): key for record in reversed(objects) for key in reversed(record)}
    header = list(dict.fromkeys(folded[key.casefold()] for record in objects for key in record if "\0" not in key))
    header = header[:MAX_COLUMNS]
    wanted = columns.names()
    found = find_shape(bases_of(options), header, ())
    if found is not None:
        wanted += [*found[1].columns.names(), *filter(None, (found[1].needs,))]
    paths = {path: parse_path(path) for path in wanted if path.casefold() not in folded and set(path) & set(".[")}
    header += paths
    sample = [row for _, row in _json_rows(iter(first), list(header), paths) if isinstance(row, list)]
    rows = _json_rows(chain(first, records), header, paths)
    about = f"JSON, the list '{prefix.removesuffix('.item')}'" if prefix.endswith(".item") else "JSON"
    return Table(source.path, about, header, rows, sample, has_numbers=False, is_typed=True)


def open_container(path: str, options: ReadOptions, stack: ExitStack) -> Table:
    """Open Parquet, Arrow or a workbook; it is closed with the stack. Raises FormatError if it is another kind of file,
    or damaged.
    """
    container = check_path(path)
    return _open_workbook(path, options) if container == "workbook" else _open_arrow(path, container, options, stack)


def _open_workbook(path: str, options: ReadOptions) -> Table:
    notes: list[str] = []
    rows = enumerate(read_workbook(path, options.sheet, notes), 1)
    first = list(islice(rows, options.skip_lines or 0, (options.skip_lines or 0) + _N_SAMPLE))
    is_known, start = _header_test(options), 0
    for i, (_, cells) in enumerate(first[:_N_TITLES]):
        if is_known(list(map(shown, cells))):
            start = i + 1
            break
    header = list(map(shown, first[start - 1][1])) if start else None
    sample = [cells for _, cells in first[start:]]
    about = notes[0] if notes else "workbook"
    return Table(path, about, header, chain(first[start:], rows), sample, header_line=start or 1, is_typed=True)


def _open_arrow(path: str, container: str, options: ReadOptions, stack: ExitStack) -> Table:
    schema, chunks = stack.enter_context(open_arrow(path, container))
    header = list(schema.names)
    place = {name: i for i, name in enumerate(header)}
    steps = []
    for column in (options.columns or TableColumns()).names():
        outer, _, inner = column.partition(".")
        if column not in place and outer in place and inner:
            header.append(column)
            steps.append((place[outer], parse_path(inner)))
    rows: Iterator[Row] = enumerate(
        (row + [find_path(row[i], path) for i, path in steps] for chunk in chunks for row in chunk), 1
    )
    first = list(islice(rows, _N_SAMPLE))
    sample = [row for _, row in first if isinstance(row, list)]
    return Table(path, container, header, chain(first, rows), sample, is_typed=True)


def _json_rows(
    records: Iterator[tuple[int, dict[str, Any] | BadLine]], header: list[str], paths: dict[str, list[str]]
) -> Iterator[Row]:
    """Values of each object in the order of the header, which grows with new keys."""
    place = {key: i for i, key in enumerate(header)}
    folded = {key.casefold(): i for i, key in reversed(list(enumerate(header)))}
    for number, record in records:
        if isinstance(record, BadLine):
            yield number, record
            continue
        for key in record:
            if key not in place:
                if len(header) >= MAX_COLUMNS or "\0" in key:
                    break
                if key.casefold() in folded:  # "NAME" in some objects is "name" in others
                    place[key] = folded[key.casefold()]
                    continue
                place[key] = folded[key.casefold()] = len(header)
                header.append(key)
        else:
            row: list[Any] = [None] * len(header)
            for key, value in record.items():
                row[place[key]] = value
            for path, steps in paths.items():
                row[place[path]] = find_path(record, steps)
            yield number, row
            continue
        reason = NUL_CHARACTER if any("\0" in key for key in record) else TOO_MANY_COLUMNS
        yield number, BadLine(reason, str(record)[:256])


def recognise(head: Head, options: ReadOptions) -> str | None:
    """The format of a table by its beginning: a known base, jsonl, csv or tsv; None if it is no table."""
    source, is_json = _Beginning(head.path, head.data), looks_like_json(head.data)
    try:
        try:
            table = open_json(source, options) if is_json else open_text(source, options)
        except InputError:
            if not is_json or len(head.data) == HEAD_BYTES:
                raise
            table, is_json = open_text(source, options), False
            if table.header is None and not table.about.startswith("tab"):
                return "jsonl"  # its reader says where the JSON is broken
    except (InputError, OptionError):
        return "jsonl" if is_json else None
    found = find_shape(bases_of(options), table.header, table.sample)
    if found is not None:
        return found[0].name
    return "jsonl" if is_json else "tsv" if table.is_unquoted and table.about.startswith("tab") else "csv"


class _Beginning(ByteSource):
    """The first bytes of a file as a source."""

    def __init__(self, path: str, data: bytes) -> None:
        self.path, self.size, self._data = path, len(data), data

    def chunks(self) -> Iterator[bytes]:
        if self._data:
            yield self._data

    def close(self) -> None:
        """Nothing to close."""
