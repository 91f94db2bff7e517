"""Which column of a table is what: named by an option, by the header, or by its position.

- Options name columns: `TableColumns`. A name makes a row the header; a number counts from 1. In JSON, Parquet and
  Arrow a path names a field inside another: ``names.0.value``, ``names.*.value``, ``names[types=label].value``.
- Without options, a row is the header if it has a word for ids and one for names: the whole cell (`HEADERS`), or its
  last word (`LAST_WORDS`: "Security Name"). Of several such columns the first is taken whose cells are filled, and do
  not repeat (ids) or are no numbers (names), id and name of one thing together; first and last name are one name. Other
  known words give aliases, types, description and popularity. Any other column goes to `Entity.extra` under its own
  name, with ``column_`` before it if a point has a field of that name.
- Without a header and options, the first two columns are id and name; the third is the type and the fourth gives
  aliases only if they look so (`_by_position`). With options, only the columns that they name are used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import Any

from ingest.base.format import TableColumns
from ingest.base.type_map import default_types
from ingest.io.encoding import BadLine
from ingest.io.report import MAX_BAD_SHARE, ReadWarning, make_excerpt
from ingest.readers.headers import (
    DIGIT,
    HEADERS,
    INDEX,
    KNOWN,
    LANGUAGES,
    NUMBER,
    OTHER_NAMES,
    columns_of,
    find_all,
    find_name,
    parts_of_name,
    ranked,
    shown,
    words_of,
)
from pearl_qdrant.errors import FormatError
from pearl_qdrant.store.schema import FILTER_FIELD, NamePoint

RESERVED = frozenset(NamePoint.__struct_fields__) | {"id", FILTER_FIELD}
"""Names that an extra column must not have in the payload."""

MAX_COLUMNS = 4_096  # Columns of a table. The time for each row grows with them.

_LOWER_WORD = re.compile(r"[a-z][a-z0-9_ ]*")
_EXTRA_PREFIX = "column_"
_MAX_COLUMNS_SHOWN = 30
_ONLY_HEADERS = ("entity_id", "cui", "qid", "concept_id", "curie", "wikidata_id")  # "ID" may be the name of something


Row = tuple[int, list[Any] | BadLine]


@dataclass(slots=True)
class Table:
    """An open table.

    Attributes:
        header: Names of the columns; of JSON it grows with the rows. None if it has none.
        sample: The first rows.
        about: What it is, for the note.
        header_line: The number of the header's row, or of the first row.
        has_numbers: Columns have an order, so that an option may give a number.
        is_typed: Cells may be other than text.
        has_comments: Rows that begin with # and are too short are comments.
        is_unquoted: Text that knows no quotes.
        warnings: What was seen when it was opened.
    """

    path: str
    header: list[str] | None
    rows: Iterator[Row] = field(default_factory=lambda: iter(()))
    sample: list[list[Any]] = field(default_factory=list)
    about: str = ""
    header_line: int = 0
    has_numbers: bool = True
    is_typed: bool = False
    has_comments: bool = False
    is_unquoted: bool = False
    warnings: list[ReadWarning] = field(default_factory=list)


@dataclass(slots=True)
class Layout:
    """Positions of the columns of one file, counted from 0.

    Attributes:
        alias_names: Columns with one more name, which is not split; the first one is the name where there is no other.
        extra: Further columns with the payload field of each; grows with a header that grows.
        separators: What separates the items of a cell, by column; see `rows.split_items`.
        is_open: No option names columns, so that a later one with a known word has its meaning.
        n_columns: Of a table without a header.
        parts: Columns that the name is made of.
    """

    id: int
    name: int
    types: tuple[int, ...] = ()
    aliases: tuple[int, ...] = ()
    description: int | None = None
    popularity: int | None = None
    alias_names: tuple[int, ...] = ()
    extra: dict[int, str] = field(default_factory=dict)
    header: list[str] | None = None
    separators: dict[int, str] = field(default_factory=dict)
    is_open: bool = True
    n_columns: int = 0
    parts: tuple[int, ...] = ()

    @property
    def width(self) -> int:
        """One more than the last column that has a meaning."""
        return 1 + max(self.used())

    def used(self) -> set[int]:
        some = (self.id, self.name, self.description, self.popularity)
        return {i for i in (*some, *self.types, *self.aliases, *self.alias_names) if i is not None}

    def add_extra(self, start: int) -> None:
        """Columns of the header from `start` on that have no meaning become further fields."""
        used = self.used()
        taken = set(self.extra.values())
        for i, cell in enumerate((self.header or [])[start:], start):
            key = _EXTRA_PREFIX + cell if cell.casefold() in RESERVED else cell
            if cell and i not in used and key not in taken:
                self.extra[i] = key
                taken.add(key)

    def grow(self, start: int) -> None:
        """Take in columns of the header from `start` on, which came with later rows."""
        for i, cell in enumerate((self.header or [])[start:], start):
            word = "".join(words_of(cell)) if self.is_open else ""
            what = next((one for one, words in KNOWN.items() if word in words), "")
            if what == "alias":
                self.aliases = (*self.aliases, i)
            elif what == "type":
                self.types = (*self.types, i)
            elif what in ("description", "popularity") and getattr(self, what) is None:
                setattr(self, what, i)
        self.add_extra(start)

    def describe(self, *, by_name: bool = False) -> str:
        """One line for the user: the number, or the name, of each column."""
        header = self.header or []
        meanings: list[tuple[str, int | None]] = [("id", self.id), ("name", self.name)]
        meanings += [("aliases", i) for i in (*self.aliases, *self.alias_names)]
        meanings += [("description", self.description), ("popularity", self.popularity)]
        meanings += [("type", i) for i in self.types]

        def place(i: int) -> str:
            some = self.parts if self.parts and i == self.name else (i,)
            return " + ".join(f"'{make_excerpt(header[i])}'" if by_name else str(i + 1) for i in some)

        shown = [f"{meaning} {place(i)}" for meaning, i in meanings if i is not None]
        extra = list(self.extra.items())
        shown += [
            make_excerpt(key) if by_name else f"{make_excerpt(key)} {i + 1}" for i, key in extra[:_MAX_COLUMNS_SHOWN]
        ]
        more = f", and {len(extra) - _MAX_COLUMNS_SHOWN} more" if len(extra) > _MAX_COLUMNS_SHOWN else ""
        if unused := [str(i + 1) for i in range(self.n_columns) if i not in self.used()][:_MAX_COLUMNS_SHOWN]:
            more += f"; not used: {', '.join(unused)}"
        without = "no known header, so the first line is a row unless options name the columns; "
        start = "" if by_name else without if self.header is None else "header; "
        return f"{start}columns: {', '.join(shown)}{more}"


def find_layout(table: Table, columns: TableColumns) -> Layout:
    """Decide where the columns of a table are. Raises FormatError if an option names a column that does not exist, the
    id or name column is not known, or the header has more than `MAX_COLUMNS`.
    """
    if table.header is None:
        first = list(map(shown, table.sample[0])) if table.sample else []
        if not columns.given():
            _refuse_half_a_header(table)
        elif columns.names() and first:
            table.header = first
    parts = parts_of_name(table.header) if table.header is not None and columns.name is None else ()
    if table.header is not None and parts:
        _join(table, table.header, parts)
    header = None if table.header is None else [cell.strip() for cell in table.header]
    if header is not None and len(header) > MAX_COLUMNS:
        message = f"the header has {len(header):,} columns (limit: {MAX_COLUMNS:,}). Is the first row really a header?"
        raise FormatError(table.path, table.header_line or None, message)
    given = {
        what: tuple(dict.fromkeys(_find_given(table, header, what, value) for value in values))
        for what, values in columns.given().items()
    }
    if header is None:
        return _by_position(table, given)
    layout = _by_header(table, header, given)
    return replace(layout, parts=parts) if layout.name == len(header) - 1 else layout


def _join(table: Table, header: list[str], parts: Sequence[int]) -> None:
    """Add a column ``name`` with the text of others, one after the other."""
    at = len(header)
    header.append("name")

    def joined(row: list[Any]) -> list[Any]:
        name = " ".join(text for i in parts if i < len(row) and (text := " ".join(shown(row[i]).split())))
        if not table.has_numbers and len(row) > at:  # JSON, whose rows are as long as the header
            row[at] = row[at] or name
            return row
        return [*row[:at], *[""] * (at - len(row)), name, *row[at:]]

    table.sample = list(map(joined, table.sample))
    rows = table.rows
    table.rows = ((number, row if isinstance(row, BadLine) else joined(row)) for number, row in rows)


def _refuse_half_a_header(table: Table) -> None:
    """Refuse a first row with words that only a header has, where its column of ids or names is not known."""
    rows = [[shown(cell).strip() for cell in row] for row in table.sample]
    while len(rows) > 1 and sum(map(bool, rows[0])) < 2 <= sum(map(bool, rows[1])):
        del rows[0]  # a title
    cells, below = (*rows[:2], [], [])[:2]
    words = [cell for i, cell in enumerate(cells) if cell.casefold() in (("id", *_ONLY_HEADERS)[i > 0 :])]
    known = [cells[i] for what in ("name", "alias", "type") for i in columns_of(cells, what)]
    is_split = any(above < cell for above, cell in zip(cells[1:], below[1:], strict=False) if not above)
    is_whole = all(row[0] for row in rows[2:]) and cells[:1] > [""]
    if below and not below[0] and ((columns_of(cells, "id") and columns_of(below, "name")) or (is_split and is_whole)):
        message = f"the header has two rows ('{make_excerpt(', '.join(below))}' is the second). Write it as one"
        raise _column_error(table, cells, "name", message)
    has_index = bool(cells) and (not cells[0] or cells[0].startswith(INDEX))
    is_counted = [row[0] for row in rows[1:4]] == ["0", "1", "2"]
    if len(cells) > 1 and cells[0] in HEADERS["name"] and all(map(_LOWER_WORD.fullmatch, cells)):
        word, what, advice = cells[0], "id", "Name it, or the column of names for both"
    elif words:
        word, what, advice = words[0], "name", "Name it"
    elif has_index and len(cells) > 1 and (len(known) > 1 or is_counted):
        word, what, advice = (known or cells[1:])[0], "id", "Name it, or the column of names for both"
    else:
        return
    message = f"the first row looks like a header ('{word}'), but no column is known to be the {what}. {advice}"
    raise _column_error(table, cells, what, message)


def _find_given(table: Table, header: list[str] | None, what: str, value: str) -> int:
    """The position of a column that an option names or numbers."""
    if value.isdecimal() and table.has_numbers:
        if not 0 < int(value) <= (MAX_COLUMNS if header is None else len(header)):
            raise _column_error(table, header, what, f"there is no column {value} for the {what}; columns count from 1")
        return int(value) - 1
    found = find_name(header or [], value)
    if found is None:
        raise _column_error(table, header, what, f"the file has no column '{make_excerpt(value)}' for the {what}")
    return found


def _column_error(table: Table, header: list[str] | None, what: str, message: str = "") -> FormatError:
    """The error for a column; without a message, that neither the options nor the header give it."""
    message = message or f"no column is known to be the {what}. Name it"
    if header is not None:
        names = ", ".join(make_excerpt(cell) + _inside(table, i) for i, cell in enumerate(header[:_MAX_COLUMNS_SHOWN]))
        more = f", and {len(header) - _MAX_COLUMNS_SHOWN} more" * (len(header) > _MAX_COLUMNS_SHOWN)
        where = table.about.partition(", the ")[2]
        message = f"{message} (the columns {f'of the {where} ' * bool(where)}are: {names}{more})"
    return FormatError(table.path, table.header_line or None, f"{message}.", option=f"{what}_column")


def _inside(table: Table, i: int) -> str:
    """The paths in a column of objects, or of lists of them, as an option would name them."""
    first: Any = next((row[i] for row in table.sample if i < len(row) and row[i]), None) if table.is_typed else None
    outer = (table.header or [])[i : i + 1]
    if isinstance(first, list):
        outer, first = [*outer, "0"], first[0]
    paths = [".".join((*outer, key)) for key in first][:_MAX_SHOWN] if isinstance(first, dict) else []
    return f" (in it: {', '.join(map(make_excerpt, paths))})" if paths else ""


def _by_header(table: Table, header: list[str], given: dict[str, tuple[int, ...]]) -> Layout:
    """What the options name, and what the words of the header mean."""
    taken = set[int]()

    def find(what: str) -> tuple[int, ...]:
        return given.get(what) or tuple(columns_of(header, what, taken))

    id_, name = _id_and_name(table, header, given)
    taken.update((id_, name, *chain.from_iterable(given.values())))
    layout = Layout(id_, name, find("type"), find("alias"), header=header, is_open=not given)
    if not given:
        others = ((i, words_of(header[i])) for i in columns_of(header, "name", taken) if i not in layout.aliases)
        layout.aliases += tuple(  # a short name, one in another language
            i
            for i, words in others
            if words[-2:-1]
            and (
                words[-2] in OTHER_NAMES
                or words[-1] in LANGUAGES
                or (words[0] in OTHER_NAMES and words[1:] in (words_of(header[name]), words_of(header[name])[1:]))
            )
        )
        if "symbol" not in words_of(header[id_]):
            layout.aliases += tuple(_symbols(header, id_, name, taken))
        layout.aliases = tuple(i for i in layout.aliases if not _is_flag(table, i))
        layout.types = tuple(i for i in layout.types if not holds_kinds_of_names(table, i))
    layout.description, layout.popularity = (next(iter(find(what)), None) for what in ("description", "popularity"))
    names = HEADERS["name"][:2]
    if "name" not in given and header[layout.name].casefold() in names:
        layout.alias_names = find_all(header, names, taken)
    layout.add_extra(0)
    layout.header = table.header  # that of JSON grows
    return layout


def _id_and_name(table: Table, header: list[str], given: dict[str, tuple[int, ...]]) -> tuple[int, int]:
    """The columns of ids and names: of those that the header gives, the first ones that hold such; if their words are
    whole cells, by these, else an id and a name of the same thing before others.
    """
    named = set(chain.from_iterable(given.values()))
    found = {}
    for what in ("id", "name"):
        some = given.get(what) or columns_of(header, what, named)
        if not some:
            raise _column_error(table, header, what)
        good = some if what in given else [i for i in some if not find_fault(table, i, what)]
        if not good:
            held = "; ".join(f"'{make_excerpt(header[i])}' {find_fault(table, i, what)}" for i in some[:_MAX_SHOWN])
            message = f"no column is fit to be the {what}: {held}. Name another"
            raise _column_error(table, header, what, message)
        found[what] = good
    if "id" not in given:
        found["id"] = _ids_of_names(table, header) or _best_ids(table, header, found["id"])
    if "name" not in given:
        found["name"] = [i for i in found["name"] if not _is_of_others(table, header, found["id"][0], i)]
        if not found["name"]:
            column = make_excerpt(header[columns_of(header, "name", named)[0]])
            message = f"many ids have the same name by column '{column}', so that it is of others"
            raise _column_error(table, header, "name", f"{message}. Name another")
    ids, names = ([(words_of(header[i])[:-1], i) for i in found[what]] for what in ("id", "name"))
    if ids[0][0] and names[0][0] and "id" not in given and "name" not in given:
        least = HALF * different(table, ids[0][1])
        ids = [(about, i) for about, i in ids if different(table, i) >= least]
        pair = ((i, j) for about, j in names for of_id, i in ids if about == of_id and i != j)
        return next(pair, (ids[0][1], next((j for _, j in names if j != ids[0][1]), ids[0][1])))
    name = next((j for _, j in names if j != ids[0][1] or "name" in given), None)
    if name is None:
        raise _column_error(table, header, "name")
    return ids[0][1], name


def _symbols(header: Sequence[str], id_: int, name: int, taken: Set[int]) -> Iterator[int]:
    """Columns of symbols, but for those of a thing with an id of its own: a gene's, where the name is a disease's."""
    about = words_of(header[name])[:-1]
    ids = (words_of(header[i]) for i in columns_of(header, "id", {id_}))
    others = {words[-2] for words in ids if len(words) > 1 and words[-1] != "symbol"}
    for i, cell in enumerate(header):
        words = words_of(cell)
        if i not in taken and words[-1:] == ["symbol"] and (words[:-1] == about or others.isdisjoint(words[-2:-1])):
            yield i


def holds_kinds_of_names(table: Table, i: int) -> bool:
    """Whether a column says what its rows give of an entity: a name, a synonym."""
    cells = column_of(table.sample, i)
    kinds = set(map(str.casefold, cells))
    is_other = any(_OTHER_NAME.search(kind) for kind in kinds)
    n_known = sum(_NAME_KIND.search(kind) is not None for kind in kinds)
    return len(cells) >= _LEAST_REPEATS and is_other and n_known > _MOST * len(kinds)


def _is_flag(table: Table, i: int) -> bool:
    """Whether a column holds numbers, or two values at most, and no further names."""
    cells = column_of(table.sample, i)
    is_number = sum(NUMBER.fullmatch(cell) is not None for cell in cells) > 0.8 * len(cells)
    return len(cells) >= _LEAST_REPEATS and (is_number or len(set(cells)) < 3)


def _ids_of_names(table: Table, header: list[str]) -> list[int]:
    """Of a table of names, a row each with its kind, the columns of ids that repeat; the others are of the rows."""
    if not any(holds_kinds_of_names(table, i) for i in range(len(header))):
        return []
    cells = {i: column_of(table.sample, i) for i in columns_of(header, "id") if not find_fault(table, i, "id")}
    return [i for i, some in cells.items() if len(set(some)) < len(some)]


def _best_ids(table: Table, header: list[str], some: Sequence[int]) -> list[int]:
    """Of columns that may be ids: those that are filled, and of these the ones whose words are known best."""
    rows = table.sample
    n_filled = {i: sum(i < len(row) and shown(row[i]).strip() not in _NONE for row in rows) for i in some}
    filled = [i for i in some if n_filled[i] >= (1 - MAX_BAD_SHARE) * len(rows)] or list(some)
    ranks = {i: rank for rank, _, i in ranked(header, "id")}
    best = [i for i in filled if ranks[i] == ranks[filled[0]]]
    name = next(iter(columns_of(header, "name", set(some))), None)
    if name is not None and _names_of_ids(table, best[0], name) > _SEVERAL:
        best.sort(key=lambda i: not 0 < _names_of_ids(table, i, name) < _ONE)
    return best


def _names_of_ids(table: Table, id_: int, name: int) -> float:
    """How many names each id of a column has in the first rows; 0 if hardly any id repeats."""
    pairs = {(str(row[id_]), str(row[name])) for row in table.sample if len(row) > max(id_, name)}
    return len(pairs) / len({one for one, _ in pairs}) if pairs and different(table, id_) < HALF else 0.0


def _is_of_others(table: Table, header: Sequence[str], id_: int, name: int) -> bool:
    """Whether names repeat so often that they are not of what has the ids, such as a player's club."""
    words = words_of(header[name])
    if "".join(words) in KNOWN["name"] or (words[:-1] and words[:-1] == words_of(header[id_])[:-1]):
        return False
    return different(table, name) < HALF * different(table, id_)


def different(table: Table, i: int) -> float:
    """The share of the first rows that have a value of their own in a column."""
    cells = [str(row[i]) for row in table.sample if i < len(row) and row[i] not in (None, "")]
    return len(set(cells)) / len(cells) if len(cells) >= LEAST_ROWS else 1.0


def find_fault(table: Table, i: int, what: str) -> str:
    """Why a column is not the ``id`` or ``name``, by the first rows; "" if it may be. One with few ids may be sorted by
    them, so that only a single one is a fault.
    """
    rows = [row for row in table.sample if i < len(row)]
    cells = [text for row in rows if row[i] is not None and (text := str(row[i]).strip()) not in _NONE]
    if len(rows) < LEAST_ROWS:
        return ""
    n_empty = len(rows) - len(cells)
    if 2 * n_empty > len(rows) or (what == "id" and n_empty > max(_LEAST_EMPTY, 0.1 * len(rows))):
        return f"is empty in {n_empty} of the first {len(rows)} rows"
    is_known = table.header is not None and "".join(words_of(table.header[i])) in KNOWN[what]
    if len(cells) >= (_LEAST_REPEATS if is_known else LEAST_ROWS) and len(set(cells)) == 1:
        return f"is '{make_excerpt(cells[0])}' in all of the first {len(rows)} rows"
    if what == "name" and sum(NUMBER.fullmatch(cell) is not None for cell in cells) > 0.8 * len(cells):
        return f"holds numbers ({make_excerpt(cells[0])})"
    if what == "name" and table.header is None and len(cells) >= _LEAST_FEW and len(set(cells)) < _FEW * len(cells):
        return f"repeats {len(set(cells))} values ({make_excerpt(cells[0])}, ...)"
    runs = sum(one != two for one, two in pairwise(cells))
    if what == "id" and len(set(cells)) < min(0.1 * len(cells), 0.2 * runs):
        return f"repeats {len(set(cells))} values in the first {len(rows)} rows ({make_excerpt(cells[0])}, ...)"
    return ""


def _by_position(table: Table, given: dict[str, tuple[int, ...]]) -> Layout:
    """Without a header: id and name, and types and aliases where the next columns look so; with options, only the
    columns that they name, and id and name.
    """
    one = {what: found[0] for what, found in given.items()}
    id_, name = one.get("id", 0), one.get("name", 1)
    if id_ == name and not ("id" in given and "name" in given):
        # The same column for both only if both options name it, as for a plain list of names.
        raise _column_error(table, None, "id" if "name" in given else "name")
    for what, i in (("id", id_), ("name", name)):
        if what not in given and (fault := find_fault(table, i, what)):
            message = (
                f"there is no known header, and column {i + 1}, which would be the {what}, {fault}. Name the columns"
            )
            raise _column_error(table, None, what, message)
    layout = Layout(id_, name, description=one.get("description"), popularity=one.get("popularity"))
    layout.types, layout.aliases = (given.get(what, ()) for what in ("type", "alias"))
    layout.n_columns = max(map(len, table.sample), default=0)
    if not given:
        if _holds_types(table.sample, 2):
            layout.types = (2,)
        has_more = any(column_of(table.sample, i) for i in range(4, layout.n_columns))
        if _holds_names(table.sample, 3) and (layout.types or not (has_more or column_of(table.sample, 2))):
            layout.aliases = (3,)
    return layout


def _holds_types(rows: Sequence[Sequence[Any]], i: int) -> bool:
    """Whether a column has few values that repeat, or known types."""
    cells = [item for cell in column_of(rows, i) for item in cell.split("|")]
    if any(len(cell) < _LEAST_LETTERS or is_half_digits(cell, 0) for cell in cells):
        return False
    coarse = default_types().coarse_type
    is_known = sum(coarse(cell) is not None for cell in cells) > 0.5 * len(cells)
    return bool(cells) and (is_known or (len(cells) >= _LEAST_REPEATS and 1 < len(set(cells)) <= len(cells) / 3))


def _holds_names(rows: Sequence[Sequence[Any]], i: int) -> bool:
    """Whether a column has many values of a few words each."""
    cells = column_of(rows, i)
    n_names = sum(
        any(map(str.isalpha, cell)) and cell.count(" ") <= _MOST_SPACES * (1 + cell.count("|")) for cell in cells
    )
    return bool(cells) and n_names > 0.8 * len(cells) and len(set(cells)) > 0.5 * len(cells)


def complete(given: TableColumns, known: TableColumns, header: Sequence[str]) -> TableColumns:
    """The columns of a known base that a file has, or those of the options instead where there are any; id and name
    stay in any case, so that their lack is an error.
    """
    if given.given():
        return replace(given, id=given.id or known.id, name=given.name or known.name)
    names = {name.casefold() for name in header}
    types, aliases, description, popularity = (
        tuple(value for value in values if value is not None and value.casefold() in names)
        for values in (known.types, known.aliases, (known.description,), (known.popularity,))
    )
    one = {"description": next(iter(description), None), "popularity": next(iter(popularity), None)}
    return TableColumns(known.id, known.name, types, aliases, **one)


_MAX_SHOWN = 8  # cells in a warning
LEAST_ROWS = 5
_LEAST_FEW = 50  # cells, of which a few that repeat are no names
_LEAST_EMPTY = 10  # ids; fewer are bad rows
_LEAST_REPEATS = 10  # cells, of which a few that repeat tell something
_LEAST_LETTERS = 2  # of a type; one letter is a flag
_MOST_SPACES = 6  # in a name; a description has more
_NONE = frozenset(("", "\\N", "NULL", "null", "-0-"))
_FEW = 0.1  # of the rows
_SOME = 0.3  # of the rows
HALF = 0.5
_MOST = 0.6
_SEVERAL = 2.0  # names of an id, which may be of something else
_ONE = 1.2  # names of an id; one may be written in two ways
_LEAST_HALF = 5  # letters and digits, one more in an id
_OTHER_NAME = re.compile(
    r"synonym|alias|abbreviation|acronym|\b(?:[afn]\.?k\.?a|alternative|former|other|previous|short|trading|working)\b"
)
_NAME_KIND = re.compile(rf"{_OTHER_NAME.pattern}|name|term|title|label|spelling")
INDENT = re.compile(r"\A(?:[-–—•·]\s+)+")
"""Signs before a name that say how deep it stands in a hierarchy."""


def is_half_digits(name: str, least: int = _LEAST_HALF) -> bool:
    """Whether half of the letters and digits, which are more than `least`, are digits."""
    return 2 * len(DIGIT.findall(name)) >= sum(map(str.isalnum, name)) > least


def is_indented(table: Table, layout: Layout) -> bool:
    """Whether names stand behind `INDENT`."""
    names = column_of(table.sample, layout.name)
    return sum(INDENT.match(name) is not None for name in names) > _SOME * len(names)


def column_of(rows: Sequence[Sequence[Any]], i: int) -> list[str]:
    """The texts in a column that are not blank."""
    return [text for row in rows if i < len(row) and isinstance(row[i], str) and (text := row[i].strip())]
