"""Which column of a table is what: named by an option, by the header, or by its position.

- Options name columns: `TableColumns`. A name makes the first row the header; a number counts from 1.
- Without options, the first row is the header if it has an id column (``id``, ``entity_id``, ``cui``, ``qid``) and a
  name column (``canonical_name``, ``name``), in upper or lower case. Then ``type`` and ``types`` give types,
  ``aliases`` or ``alias`` aliases, ``description`` the description, ``popularity`` the popularity, and a ``name``
  beside ``canonical_name`` one more alias. Any other column goes to `Entity.extra` under its own name, with
  ``column_`` before it if a point has a field of that name.
- Without a header, the columns are id, name, type and aliases in this order; the last two may be missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from ingest.io.report import NO_ID, NO_NAME, make_excerpt
from pearl_qdrant.errors import FormatError
from pearl_qdrant.store.schema import FILTER_FIELD, NamePoint

# In order of preference, should a header have several.
ID_HEADERS = ("id", "entity_id", "cui", "qid")
NAME_HEADERS = ("canonical_name", "name")
TYPE_HEADERS = ("type", "types")
ALIAS_HEADERS = ("aliases", "alias")
DESCRIPTION_HEADER = "description"
POPULARITY_HEADER = "popularity"

RESERVED = frozenset(f.name for f in fields(NamePoint)) | {"id", FILTER_FIELD}
"""Names that an extra column must not have in the payload."""

MAX_COLUMNS = 4_096
"""Columns of a table. The time for each row grows with them."""

_EXTRA_PREFIX = "column_"
_MAX_COLUMNS_SHOWN = 30


@dataclass(frozen=True, slots=True)
class TableColumns:
    """Which column is what; None and () leave it to the header.

    A value is a column's name in the header, or its number from 1. Digits are always a number, except in JSON Lines,
    whose columns have no order. Numbers alone do not make the first row a header: it must be recognised as one.
    """

    id: str | None = None
    name: str | None = None
    types: tuple[str, ...] = ()
    alias: str | None = None
    popularity: str | None = None

    def given(self) -> dict[str, tuple[str, ...]]:
        """The values that are set, by the meaning of the column."""
        values = {
            "id": () if self.id is None else (self.id,),
            "name": () if self.name is None else (self.name,),
            "type": self.types,
            "alias": () if self.alias is None else (self.alias,),
            "popularity": () if self.popularity is None else (self.popularity,),
        }
        return {option: value for option, value in values.items() if value}


@dataclass(frozen=True, slots=True)
class Layout:
    """Positions of the columns of one file, counted from 0.

    Attributes:
        id, name, types, alias, description, popularity: Columns by their meaning; None if there is none.
        alias_name: A column with one more name, which is not split.
        extra: Further columns with the payload field of each, in the order of the columns.
        header: The cells of the header, or None without a header.
    """

    id: int
    name: int
    types: tuple[int, ...] = ()
    alias: int | None = None
    description: int | None = None
    alias_name: int | None = None
    extra: tuple[tuple[int, str], ...] = ()
    header: tuple[str, ...] | None = None
    popularity: int | None = None

    @property
    def width(self) -> int:
        """One more than the last column that has a meaning."""
        some = (self.alias, self.description, self.alias_name, self.popularity)
        return 1 + max(self.id, self.name, *self.types, *(i for i in some if i is not None))

    def describe(self) -> str:
        """One line for the user: the number of each column."""
        shown = [f"{meaning} {i + 1}" for meaning, i in self._meanings()]
        shown += [f"{make_excerpt(key)} {i + 1}" for i, key in self.extra[:_MAX_COLUMNS_SHOWN]]
        return f"{'no header' if self.header is None else 'header'}; columns: {', '.join(shown)}{self._more()}"

    def describe_by_name(self) -> str:
        """One line for the user, for a table whose columns have names and no order."""
        header = self.header or ()
        shown = [f"{meaning} '{make_excerpt(header[i])}'" for meaning, i in self._meanings()]
        shown += [make_excerpt(key) for _, key in self.extra[:_MAX_COLUMNS_SHOWN]]
        return f"columns: {', '.join(shown)}{self._more()}"

    def _meanings(self) -> list[tuple[str, int]]:
        parts = {
            "id": self.id,
            "name": self.name,
            "aliases": self.alias,
            "description": self.description,
            "popularity": self.popularity,
        }
        return [(meaning, i) for meaning, i in parts.items() if i is not None] + [("type", i) for i in self.types]

    def _more(self) -> str:
        n_hidden = len(self.extra) - _MAX_COLUMNS_SHOWN
        return f", and {n_hidden} more" if n_hidden > 0 else ""


_ONLY_HEADERS = ("entity_id", "cui", "qid")  # "ID" may be the name of something


def find_layout(
    path: str,
    line: int | None,
    first_row: Sequence[str],
    columns: TableColumns,
    *,
    is_header: bool = False,
    has_numbers: bool = True,
) -> Layout:
    """Decide where the columns of a file are.

    Args:
        path, line: Where the first row is, for errors.
        first_row: Its cells.
        columns: The options.
        is_header: The first row is a header in any case, as the schema of a Parquet file.
        has_numbers: Digits in `columns` are numbers and not names.

    Raises:
        FormatError: If an option names a column that does not exist, the id or name column is not known, or the
            header has more than `MAX_COLUMNS`.
    """
    cells = tuple(cell.strip() for cell in first_row)
    is_header = is_header or _has_names(columns) or is_known_header(cells, columns)
    if not is_header and not columns.given():
        _refuse_half_a_header(path, line, cells)
    if is_header and len(cells) > MAX_COLUMNS:
        message = f"the header has {len(cells):,} columns (limit: {MAX_COLUMNS:,}). Is the first row really a header?"
        raise FormatError(path, line, message)
    options = _Options(path, line, cells if is_header else None, columns, has_numbers=has_numbers)
    return _with_header(options, cells) if is_header else _without_header(options)


def is_known_header(cells: Sequence[str], columns: TableColumns) -> bool:
    """Whether a first row has a column of ids and one of names, or has such words where the options give numbers."""
    cells = tuple(cell.strip() for cell in cells)
    is_known = _find(cells, ID_HEADERS) is not None and _find(cells, NAME_HEADERS) is not None
    return is_known or _is_header_by_number(cells, columns)


def has_all_columns(cells: Sequence[str], columns: TableColumns) -> bool:
    """Whether a first row is a header with id and name, and with every column that the options name."""
    header = tuple(cell.strip() for cell in cells)
    if not _has_names(columns):
        return is_known_header(header, columns)
    names = [value for values in columns.given().values() for value in values if not value.isdecimal()]
    return all(_find_name(header, name) is not None for name in names) and find_missing(header, columns) is None


def find_missing(header: tuple[str, ...], columns: TableColumns) -> str | None:
    """``no_id`` or ``no_name`` if neither an option nor a word of the header gives that column; else None."""
    if columns.id is None and _find(header, ID_HEADERS) is None:
        return NO_ID
    return NO_NAME if columns.name is None and _find(header, NAME_HEADERS) is None else None


def _has_names(columns: TableColumns) -> bool:
    return any(not value.isdecimal() for values in columns.given().values() for value in values)


def _is_header_by_number(cells: tuple[str, ...], columns: TableColumns) -> bool:
    """Whether a column that the options give by number has a word for an id or a name in the first row."""
    return any(
        value is not None
        and value.isdecimal()
        and 0 < int(value) <= len(cells)
        and cells[int(value) - 1].casefold() in words
        for value, words in ((columns.id, ID_HEADERS), (columns.name, NAME_HEADERS))
    )


def _refuse_half_a_header(path: str, line: int | None, cells: tuple[str, ...]) -> None:
    """Refuse a first row with a word that only a header has, if its column of names is not known.

    Raises:
        FormatError: If there is such a word.
    """
    words = [cell for i, cell in enumerate(cells) if cell.casefold() in (ID_HEADERS if i == 0 else _ONLY_HEADERS)]
    if words:
        shown = ", ".join(make_excerpt(cell) for cell in cells[:_MAX_COLUMNS_SHOWN])
        message = f"the first row looks like a header ('{words[0]}'), but no column is known to be the name. Name it "
        raise FormatError(path, line, f"{message}(the columns are: {shown}).", option="name_column")


class _Options:
    """Turns the values of the column options into positions."""

    def __init__(
        self, path: str, line: int | None, header: tuple[str, ...] | None, columns: TableColumns, *, has_numbers: bool
    ) -> None:
        self._path, self._line, self._header, self._has_numbers = path, line, header, has_numbers
        given = columns.given()
        self.id = self._resolve("id", given)
        self.name = self._resolve("name", given)
        self.types = self._resolve("type", given)
        self.alias = self._resolve("alias", given)
        self.popularity = self._resolve("popularity", given)

    def missing(self, what: str) -> FormatError:
        """The error for a column that neither the options nor the header give."""
        return self._error(what, f"no column is known to be the {what}. Name it")

    def _resolve(self, what: str, given: dict[str, tuple[str, ...]]) -> tuple[int, ...]:
        return tuple(dict.fromkeys(self._column(what, value) for value in given.get(what, ())))

    def _column(self, what: str, value: str) -> int:
        if value.isdecimal() and self._has_numbers:
            number = int(value)
            if not 0 < number <= (MAX_COLUMNS if self._header is None else len(self._header)):
                raise self._error(what, f"there is no column {value} for the {what}; columns count from 1")
            return number - 1
        found = _find_name(self._header or (), value)
        if found is None:
            raise self._error(what, f"the file has no column '{make_excerpt(value)}' for the {what}")
        return found

    def _error(self, what: str, message: str) -> FormatError:
        if self._header is not None:
            names = ", ".join(make_excerpt(cell) for cell in self._header[:_MAX_COLUMNS_SHOWN])
            more = f", and {len(self._header) - _MAX_COLUMNS_SHOWN} more" * (len(self._header) > _MAX_COLUMNS_SHOWN)
            message = f"{message} (the columns are: {names}{more})"
        return FormatError(self._path, self._line, f"{message}.", option=f"{what}_column")


def _with_header(options: _Options, header: tuple[str, ...]) -> Layout:
    id_ = options.id[0] if options.id else _find(header, ID_HEADERS)
    if id_ is None:
        raise options.missing("id")
    name = options.name[0] if options.name else _find(header, NAME_HEADERS)
    if name is None:
        raise options.missing("name")
    named = {id_, name, *options.types, *options.alias, *options.popularity}
    types = options.types or _find_all(header, TYPE_HEADERS, named)
    alias = options.alias[0] if options.alias else _find(header, ALIAS_HEADERS, named)
    description = _find(header, (DESCRIPTION_HEADER,), named)
    popularity = options.popularity[0] if options.popularity else _find(header, (POPULARITY_HEADER,), named)
    alias_name = None if options.name else _find(header, NAME_HEADERS, named)
    used = named | {i for i in (*types, alias, description, popularity, alias_name) if i is not None}
    extra: dict[str, int] = {}
    for i, cell in enumerate(header):
        if cell and i not in used:
            extra.setdefault(_EXTRA_PREFIX + cell if cell.casefold() in RESERVED else cell, i)
    pairs = tuple((i, key) for key, i in extra.items())
    return Layout(id_, name, types, alias, description, alias_name, pairs, header, popularity)


def _without_header(options: _Options) -> Layout:
    """By position: id, name, type, aliases; an option moves its column, and the others stay."""
    id_ = options.id[0] if options.id else 0
    name = options.name[0] if options.name else 1
    if id_ == name and not (options.id and options.name):
        # The same column for both only if both options name it, as for a plain list of names.
        raise options.missing("id" if options.name else "name")
    popularity = options.popularity[0] if options.popularity else None
    taken = {id_, name, *options.types, *options.alias, *options.popularity}
    types = options.types or ((2,) if 2 not in taken else ())
    alias = options.alias[0] if options.alias else (3 if 3 not in taken else None)
    return Layout(id_, name, types, alias, popularity=popularity)


def _find_name(header: tuple[str, ...], name: str) -> int | None:
    """The column of exactly this name, else the first that differs in case alone."""
    return header.index(name) if name in header else _find(header, (name.casefold(),))


def _find(header: tuple[str, ...], words: Sequence[str], taken: set[int] | frozenset[int] = frozenset()) -> int | None:
    """The column of the first word that is in the header and not taken; case does not matter."""
    return next(iter(_find_all(header, words, taken)), None)


def _find_all(header: tuple[str, ...], words: Sequence[str], taken: set[int] | frozenset[int]) -> tuple[int, ...]:
    folded = [cell.casefold() for cell in header]
    return tuple(folded.index(word) for word in words if word in folded and folded.index(word) not in taken)
