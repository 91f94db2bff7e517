"""Rows of text files whose cells are separated by a sign: TSV, CSV and their relatives.

What a file does is found in its first lines (`open_text`): the sign between cells, whether cells may be quoted,
lines before the header (comments, titles, ``sep=;``), and the header.

In quoted files (RFC 4180) a cell may have separators, line breaks and doubled quotes. A quote that is never closed
would make one cell of all that follows, so a record that turns out to be damaged costs its first line only: the others
are read again, each from its own start, up to a budget that keeps the time linear.
"""

from __future__ import annotations

import csv
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from ingest.base.format import ReadOptions, TableColumns
from ingest.io import limits, reasons
from ingest.io.encoding import HEAD_BYTES, BadLine, check_is_text, describe_text, read_lines
from ingest.io.report import make_excerpt
from ingest.io.streams import ByteSource
from ingest.readers.columns import Row, Table
from ingest.readers.headers import find_header, is_no_row
from ingest.readers.json_records import decode_object
from pearl_qdrant.errors import FormatError, OptionError

DELIMITERS = {
    "\t": "tab",
    ",": "comma",
    ";": "semicolon",
    "|": "bar",
    "~": "tilde",
    "$": "dollar",
    "\t|\t": "tab, bar, tab",
    "||": "two bars",
}
"""Tried in this order when no delimiter is given."""

_N_LINES = 1000
_LEAST_LINES = 5  # to see columns at fixed places
_GRACE = 1 << 20  # characters that may be read again beside as many as the file had so far
_EXCERPT = 1 << 8
_LEAST = 0.8, 0.5  # share of the rows with the usual number of cells; tabs are in few texts
_MARKS = ("#", "!", "%", "//")

Line = tuple[int, str | BadLine]
IsHeader = Callable[[Sequence[str]], bool]


@dataclass(slots=True)
class TextTable(Table):
    """A table in a text file: the sign between cells, lines before the first row, usual number of cells, and what the
    line under the header has if it is no row.
    """

    delimiter: str = "\t"
    n_skipped: int = 0
    n_columns: int = 0
    below: list[str] = field(default_factory=list)

    def describe(self) -> str:
        kind = "tab-separated" if self.delimiter == "\t" else f"delimiter '{self.delimiter.strip()}'"
        skipped = self.n_skipped - bool(self.header_line) - bool(self.below)
        more = f", {skipped} lines before the header skipped" if skipped > 0 else ""
        if self.below:
            more += f", the line under the header is no row ({make_excerpt(', '.join(filter(None, self.below)))})"
        return f"{kind}{', quoted' if not self.is_unquoted and self.delimiter == chr(9) else ''}{more}"

    def share(self) -> float:
        """The share of the first rows that have the usual number of cells."""
        n_usual = sum(len(row) == self.n_columns for row in self.sample)
        return n_usual / len(self.sample) if self.sample else float(self.header is not None)


class UnclearDelimiterError(FormatError):
    """Several signs would make a table of a text."""


def check_delimiter(given: str) -> str:
    """The character that a delimiter option means. Raises OptionError if it is not one, or a quote or a blank."""
    delimiter = "\t" if given in ("tab", "\\t") else given
    if len(delimiter) != 1 or delimiter in '"\r\n\0 ':
        message = f"the delimiter is one character that is not a quote, space or line break, not {given!r}"
        raise OptionError("delimiter", message)
    return delimiter


def open_text(source: ByteSource, options: ReadOptions, known: IsHeader, kind: str = "auto") -> TextTable:
    """Find how a file of UTF-8 text is written, and open it; `known` says whether a row is a header. `kind` ``tsv``:
    tabs, and quotes only if the cells show them; ``csv``: quoted; any other: found. Raises FormatError if it is no
    text, or if no separator makes a table of the first lines, or several do.
    """
    check_is_text(source.path, source.head(HEAD_BYTES))
    head, columns, n_skipped = source.head(HEAD_BYTES), options.columns or TableColumns(), options.skip_lines or 0
    delimiter = check_delimiter(options.delimiter) if options.delimiter is not None else None
    lines = list(islice(_first_lines(source, head), _N_LINES + n_skipped))[n_skipped:]
    if lines and (sep := lines[0].strip().strip('"')).lower().startswith("sep=") and 4 < len(sep) <= 6:
        delimiter, lines, n_skipped = delimiter or sep[4:], lines[1:], n_skipped + 1
    if not any(line.strip() for line in lines):
        raise _no_lines(source)
    delimiter = delimiter or ("\t" if kind == "tsv" else None)
    signs = [delimiter] if delimiter else DELIMITERS
    tried = [one for sign in signs if (one := _try_sign(source.path, lines, sign, columns, known, kind)) is not None]
    if tried and tried[0].delimiter == "\t" and tried[0].n_columns > 2 and tried[0].share() >= _LEAST[0]:
        tried = [one for one in tried if "\t" in one.delimiter]  # others are inside its cells
    with_header = [one for one in tried if one.header is not None and known(one.header)]
    if options.delimiter is None and not columns.given() and _is_foreign(head, is_table=bool(with_header)):
        raise _no_table(source.path, head, lines, delimiter)
    usable = with_header or [one for one in tried if delimiter or one.share() >= _LEAST[one.delimiter == "\t"]]
    is_list = columns.id is not None and columns.id == columns.name
    if is_list and not with_header:
        sample: list[list[Any]] = [[line] for line in lines if line.strip()]
        is_plain = kind != "csv"
        usable = [TextTable(source.path, None, sample=sample, is_unquoted=is_plain, delimiter=delimiter or "\t")]
    if usable and usable[-1].delimiter == "||":  # ids may have bars ("D1|D2||name"), and cells between bars be empty
        n = next((one.n_columns for one in usable if one.delimiter == "|"), None)
        usable = usable[-1:] if n in (None, 2 * usable[-1].n_columns - 1) else usable[:-1]
    if usable and usable[0].delimiter == "\t":
        usable = usable[-1:] if usable[-1].delimiter == "\t|\t" else usable[:1]
    if not usable or (delimiter and not is_list and usable[0].n_columns < 2 and columns.id != columns.name):
        raise _no_table(source.path, head, lines, delimiter)
    if len(usable) > 1 and not with_header:
        whole = [one for one in usable if one.sample and len(one.sample[0]) == one.n_columns]
        usable = whole if len(whole) == 1 else usable  # a sign that joins lists is not in the first row
    if len(usable) > 1 and not with_header:
        named = " and ".join(DELIMITERS[one.delimiter] for one in usable)
        message = f"the delimiter is not clear: {named} would all do. Name it."
        raise UnclearDelimiterError(source.path, n_skipped + 1, message, option="delimiter")
    best = usable[0]
    width = _fixed_width(lines) if best.header is None and not delimiter and best.delimiter in ",;" else 0
    if width and all(line.find(best.delimiter) > width for line in lines if best.delimiter in line):
        raise _fixed_error(source.path, width)
    best.n_skipped += n_skipped
    best.header_line = best.header_line + n_skipped if best.header_line else 0
    best.about = best.describe()
    best.rows = read_rows(islice(read_lines(source), best.n_skipped, None), best)
    _refuse_json(best)
    best.header_line = best.header_line or best.n_skipped + 1
    return best


def _is_foreign(head: bytes, *, is_table: bool) -> bool:
    """Whether a text shows another format; one with a header may look so, but for a mail."""
    kind = describe_text(head) or "JSON"
    return not kind.startswith(("JSON", "N-Triples")) and (not is_table or kind.startswith("an e-mail"))


def _refuse_json(table: TextTable) -> None:
    for i in range(table.n_columns if table.header is None and table.sample else 0):
        cells = [row[i] for row in table.sample if len(row) > i]
        if all(cell[:2] == '{"' and isinstance(decode_object(cell.encode()), dict) for cell in cells):
            message = (
                f"column {i + 1} holds a JSON object in each row. Read it by itself, with cut -f{i + 1}, as JSON Lines"
            )
            raise FormatError(table.path, 1, message)


def _first_lines(source: ByteSource, head: bytes) -> Iterator[str]:
    """Whole lines of the head; a first line that is longer is read whole."""
    if len(head) == HEAD_BYTES:
        head = head[: head.rfind(b"\n") + 1]
    if not head:
        return (line if isinstance(line, str) else "" for _, line in read_lines(source))
    lines = head.decode("utf-8-sig", "replace").split("\n")
    return (line.rstrip("\r") for line in lines)


def _no_lines(source: ByteSource) -> FormatError:
    """The error for a text without a first line that can be used."""
    for number, line in islice(read_lines(source), _N_LINES):
        if isinstance(line, BadLine) and line.reason == reasons.LINE_TOO_LONG:
            message = f"this line has more than {limits.MAX_LINE_BYTES:,} bytes (limit). Is it a table, a row a line?"
            return FormatError(source.path, number, f"{message} It begins: {make_excerpt(line.text)}")
        if isinstance(line, BadLine):
            return FormatError(source.path, number, f"no line before or after this one can be read ({line.reason})")
    return FormatError(source.path, None, "holds nothing but blank lines")


def _try_sign(
    path: str, lines: list[str], delimiter: str, columns: TableColumns, known: IsHeader, kind: str
) -> TextTable | None:
    """The table with this delimiter, or None if no line has it."""
    is_quoted = len(delimiter) == 1 and (kind == "csv" or delimiter != "\t" or _looks_quoted(lines))
    table = TextTable(path, None, is_unquoted=not is_quoted, delimiter=delimiter)
    records = read_rows(enumerate(lines, 1), table)
    filled = [(number, row) for number, row in records if isinstance(row, list) and any(map(str.strip, row))]
    widths = Counter(len(row) for _, row in filled if len(row) > 1)
    if not widths:
        return None
    table.n_columns = width = widths.most_common(1)[0][0]
    n_comments = next((i for i, (_, row) in enumerate(filled) if not row[0].lstrip().startswith(_MARKS)), len(filled))
    whole = next((i for i, (_, row) in enumerate(filled[:n_comments]) if len(row) >= width), n_comments)
    start = whole
    for i, (number, row) in enumerate(filled[whole:n_comments], whole):  # "#tax_id<TAB>name": the header itself
        row = [row[0].lstrip("#!/% ").strip(), *row[1:]]
        is_last = i == whole == n_comments - 1 and not columns.names()
        if (len(row) == width or (len(row) > width and delimiter == "\t")) and (known(row) or is_last):
            table.header, table.header_line, start = row, number, n_comments
    table.has_comments = start > 0
    if table.header is None:
        rows = [row for _, row in filled[start:]]
        place = find_header(rows, known, width=width, may_guess=not columns.given())
        if place is not None:
            table.header_line, table.header = filled[start + place]
    if table.header is not None:
        table.n_skipped = table.header_line
        if filled[:start] and table.header_line <= filled[start - 1][0]:
            table.n_skipped = filled[start - 1][0]
        under = [(number, row) for number, row in filled if number > table.n_skipped]
        if under and is_no_row(table.header, under[0][1], [row for _, row in under[1:]], known):
            table.n_skipped, table.below = under[0][0], [cell.strip() for cell in under[0][1]]
        table.sample = [row for number, row in under if number > table.n_skipped]
        if _has_row_numbers(table.header, table.sample):
            table.header.insert(0, "")
    else:
        table.n_skipped = filled[start][0] - 1 if start < len(filled) else 0
        table.sample = [row for _, row in filled[start:]]
    return table


def _has_row_numbers(header: list[str], rows: list[list[Any]]) -> bool:
    """Whether the rows begin with their number, for which the header has no cell, as R writes them."""
    first = [row[0] for row in rows[:_LEAST_LINES]]
    return first == [str(i + 1) for i in range(len(first))] != [] and all(len(row) == len(header) + 1 for row in rows)


def _looks_quoted(lines: list[str]) -> bool:
    """Whether cells between tabs are quoted as in CSV; names may begin and end with a quote.

    Quoted are a cell with doubled quotes or a bar inside its quotes, and a column all of whose cells are in quotes.
    """
    rows = [line.split("\t") for line in lines if line.strip()]
    cells = [cell for row in rows for cell in row if _is_quoted(cell)]
    if not cells or any(
        cell.startswith('"') and not cell.endswith('"') for row in rows for cell in row if len(cell) > 1
    ):
        return any(
            '""' in cell[1:-1] and not cell[1:-1].replace('""', "").count('"') for cell in cells if len(cell) > 4
        )
    if any(("|" in cell or '""' in cell[1:-1]) for cell in cells if len(cell) > 4):
        return True
    columns = Counter(i for row in rows for i, cell in enumerate(row) if _is_quoted(cell))
    filled = Counter(i for row in rows for i, cell in enumerate(row) if cell.strip())
    return any(n >= 2 and n >= filled[i] - 1 for i, n in columns.items())


def _is_quoted(cell: str) -> bool:
    return len(cell) > 1 and cell[0] == '"' == cell[-1] and '"' not in cell[1:-1].replace('""', "")


def _no_table(path: str, head: bytes, lines: list[str], delimiter: str | None) -> FormatError:
    kind = describe_text(head)
    if kind is not None:
        return FormatError(path, 1, f"is not a table: it looks like {kind}.", option="format")
    if delimiter in (None, "\t") and (width := _fixed_width(lines)):
        return _fixed_error(path, width)
    first = make_excerpt(next(line for line in lines if line.strip()))
    sign = f"'{delimiter}'" if delimiter and delimiter != "\t" else "tab"
    what = f"no {sign}" if delimiter else "no tab, comma, semicolon or bar"
    message = (
        f"{what} separates the same number of cells in its first lines (the first is: {first}). Name the delimiter, or "
        "for a plain list of names one column for both ids and names."
    )
    return FormatError(path, 1, message, option="delimiter")


def _fixed_error(path: str, width: int) -> FormatError:
    message = f"its columns stand at fixed places (the second at {width}). Make a table of it, as with pandas.read_fwf"
    return FormatError(path, 1, message)


def _fixed_width(lines: list[str]) -> int:
    """Where the second column of a table without separators begins, behind spaces in all lines but titles; 0 if there
    is none.
    """
    filled = [line for line in lines if line.strip()]
    filled = filled[len(filled) // 2 if len(filled) > 2 * _LEAST_LINES else 0 :]
    starts = [{i for i in range(2, len(line)) if line[i] != " " == line[i - 1]} for line in filled]
    is_padded = any("  " in line.strip() for line in filled)
    return min(set.intersection(*starts), default=0) if is_padded and len(filled) >= _LEAST_LINES else 0


def read_rows(lines: Iterable[Line], table: TextTable) -> Iterator[Row]:
    """Line number and cells of each row; blank lines are left out."""
    delimiter = table.delimiter
    if not table.is_unquoted:
        yield from _read_quoted(iter(lines), delimiter)
        return
    end = delimiter.rstrip("\t ") if len(delimiter) > 1 else ""  # "\t|" ends each line of such files
    for number, line in lines:
        if isinstance(line, BadLine):
            yield number, line
        elif line and not line.isspace():
            yield number, line.removesuffix(end).split(delimiter)


def _split_odd_quotes(line: str, delimiter: str) -> list[str]:
    """The cells of a line with text behind a closing quote.

    Quotes may be escaped by a backslash, or stand undoubled within others (`"Weird "Al" Yankovic"`); those of a cell
    that only begins with them (`"Weird Al" Yankovic`) are part of it.
    """
    if '\\"' in line:
        with suppress(csv.Error):
            return next(csv.reader([line], delimiter=delimiter, doublequote=False, escapechar="\\", strict=True))
    cells = line.split(delimiter)
    return [cell[1:-1] if len(cell) > 1 and cell[0] == '"' == cell[-1] else cell for cell in cells]


def _parse_record(feed: Iterator[str], record: list[Line], delimiter: str) -> list[str] | str:
    """The cells of a record, or why it is bad; `record` has the lines that were read of it."""
    try:
        return next(csv.reader(feed, delimiter=delimiter, strict=True, skipinitialspace=True))
    except StopIteration:  # the end of the file inside quotes
        return reasons.BAD_QUOTING
    except csv.Error as error:
        if len(record) == 1 and "expected after" in str(error):
            return _split_odd_quotes(str(record[0][1]), delimiter)
        is_long = "limit" in str(error) or reasons.LINE_TOO_LONG in str(error)
        return reasons.LINE_TOO_LONG if is_long else reasons.BAD_QUOTING


def _read_quoted(lines: Iterator[Line], delimiter: str) -> Iterator[Row]:
    again, record, budget = deque[Line](), list[Line](), _GRACE
    csv.field_size_limit(limits.MAX_LINE_BYTES)

    def next_line() -> Line | None:
        return again.popleft() if again else next(lines, None)

    def feed(numbered: Line | None) -> Iterator[str]:
        """The lines of one record, from this one on, as `csv.reader` asks for them."""
        size = 0
        while numbered is not None:
            record.append(numbered)
            line = numbered[1]
            if isinstance(line, BadLine):
                raise csv.Error(line.reason)
            size += len(line) + 1
            if size > limits.MAX_LINE_BYTES:
                raise csv.Error(reasons.LINE_TOO_LONG)
            yield line + "\n"
            numbered = next_line()

    while (first := next_line()) is not None:
        number, line = first
        if isinstance(line, BadLine):
            yield number, line
            continue
        budget += len(line)
        if '"' not in line:
            if line and not line.isspace():
                yield number, line.split(delimiter)
            continue
        record.clear()
        found = _parse_record(feed(first), record, delimiter)
        if isinstance(found, list):
            yield number, found
            continue
        yield number, BadLine(found, line[:_EXCERPT])
        size = sum(len(one) + 1 for _, one in record if isinstance(one, str))
        if size <= budget:  # all lines of the record but the first are read again
            budget -= size
            again.extendleft(reversed(record[1:]))
