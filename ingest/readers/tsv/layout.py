"""Which column of a TSV file is what: by option, by header, or by place. The rules stand in
`ingest.readers.tsv.reader`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from ingest.io.report import make_excerpt
from pearl_qdrant.errors import FormatError
from pearl_qdrant.store.schema import FILTER_FIELD, NamePoint

# In order of preference, should a header have several.
ID_HEADERS = ("id", "entity_id", "cui", "qid")
NAME_HEADERS = ("canonical_name", "name")
TYPE_HEADERS = ("type", "types")
ALIAS_HEADERS = ("aliases", "alias")
DESCRIPTION_HEADER = "description"

RESERVED = frozenset(f.name for f in fields(NamePoint)) | {"id", FILTER_FIELD}
"""Names that an extra column must not take in the payload."""

MAX_COLUMNS = 4_096
"""Of a table; each row costs as much time as the columns that the header has."""

_EXTRA_PREFIX = "column_"
_MAX_COLUMNS_SHOWN = 30


@dataclass(frozen=True, slots=True)
class TsvColumns:
    """Which column is what; None and () leave it to the header.

    A value is a column's name in the header, or its number from 1. Digits are always a number. Numbers alone do not
    make the first row a header: it is one only if it is recognised as such.
    """

    id: str | None = None
    name: str | None = None
    types: tuple[str, ...] = ()
    alias: str | None = None

    def given(self) -> dict[str, tuple[str, ...]]:
        """The values that are set, by option."""
        values = {
            "--id-column": () if self.id is None else (self.id,),
            "--name-column": () if self.name is None else (self.name,),
            "--type-column": self.types,
            "--alias-column": () if self.alias is None else (self.alias,),
        }
        return {option: value for option, value in values.items() if value}


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the columns of one file stand, counted from 0.

    Attributes:
        id, name, types, alias, description: Columns by their meaning; None if there is none.
        alias_name: A column with one more name, taken as it is.
        extra: Further columns with the payload field that each gives, in the order of the columns.
        header: The header's cells, or None without a header.
    """

    id: int
    name: int
    types: tuple[int, ...] = ()
    alias: int | None = None
    description: int | None = None
    alias_name: int | None = None
    extra: tuple[tuple[int, str], ...] = ()
    header: tuple[str, ...] | None = None

    @property
    def width(self) -> int:
        """Columns that are looked at by their meaning: one more than the last of them."""
        some = (self.alias, self.description, self.alias_name)
        return 1 + max(self.id, self.name, *self.types, *(i for i in some if i is not None))

    def describe(self) -> str:
        """One line for the person who runs it."""
        parts = {"id": self.id, "name": self.name, "aliases": self.alias, "description": self.description}
        shown = [f"{meaning} {i + 1}" for meaning, i in parts.items() if i is not None]
        shown += [f"type {i + 1}" for i in self.types]
        shown += [f"{make_excerpt(key)} {i + 1}" for i, key in self.extra[:_MAX_COLUMNS_SHOWN]]
        shown += [f"and {len(self.extra) - _MAX_COLUMNS_SHOWN} more"] * (len(self.extra) > _MAX_COLUMNS_SHOWN)
        return f"{'no header' if self.header is None else 'header'}; columns: {', '.join(shown)}"


_ONLY_HEADERS = ("entity_id", "cui", "qid")  # "ID" may be the name of something


def find_layout(path: str, line: int, first_row: Sequence[str], columns: TsvColumns) -> Layout:
    """Decide where the columns of a file are.

    Args:
        path, line: Where the first row stands, for errors.
        first_row: Its cells.
        columns: What the options say.

    Raises:
        FormatError: If an option names a column that is not there, the id or name column is not known, or the header
            has more than `MAX_COLUMNS`.
    """
    cells = tuple(cell.strip() for cell in first_row)
    by_name = any(not value.isdecimal() for values in columns.given().values() for value in values)
    recognised = _find(cells, ID_HEADERS) is not None and _find(cells, NAME_HEADERS) is not None
    recognised = recognised or _is_header_by_number(cells, columns)
    if not by_name and not recognised and not columns.given():
        _refuse_half_a_header(path, line, cells)
    if (by_name or recognised) and len(cells) > MAX_COLUMNS:
        raise FormatError(path, line, f"the header has {len(cells):,} columns (limit: {MAX_COLUMNS:,}). Is it one?")
    options = _Options(path, line, cells if by_name or recognised else None, columns)
    return _with_header(options, cells) if by_name or recognised else _without_header(options)


def _is_header_by_number(cells: tuple[str, ...], columns: TsvColumns) -> bool:
    """Whether the columns that options give by number are headed by words for an id or a name."""
    return any(
        value is not None
        and value.isdecimal()
        and 0 < int(value) <= len(cells)
        and cells[int(value) - 1].casefold() in words
        for value, words in ((columns.id, ID_HEADERS), (columns.name, NAME_HEADERS))
    )


def _refuse_half_a_header(path: str, line: int, cells: tuple[str, ...]) -> None:
    """A first row with a word that only heads columns of ids is no entity.

    Raises:
        FormatError: If it has one.
    """
    words = [cell for i, cell in enumerate(cells) if cell.casefold() in (ID_HEADERS if i == 0 else _ONLY_HEADERS)]
    if words:
        shown = ", ".join(make_excerpt(cell) for cell in cells[:_MAX_COLUMNS_SHOWN])
        message = f"the first row looks like a header ('{words[0]}'), but no column is known to be the name. Name it "
        raise FormatError(path, line, message + f"with --name-column (the columns are: {shown})")


class _Options:
    """Turns the values of the column options into columns."""

    def __init__(self, path: str, line: int, header: tuple[str, ...] | None, columns: TsvColumns) -> None:
        self._path, self._line, self._header = path, line, header
        given = columns.given()
        self.id = self._resolve("--id-column", given)
        self.name = self._resolve("--name-column", given)
        self.types = self._resolve("--type-column", given)
        self.alias = self._resolve("--alias-column", given)

    def missing(self, what: str, option: str) -> FormatError:
        """The error for a column that neither the options nor the header give."""
        return self._error(f"no column is known to be the {what}. Name it with {option}")

    def _resolve(self, option: str, given: dict[str, tuple[str, ...]]) -> tuple[int, ...]:
        return tuple(dict.fromkeys(self._column(option, value) for value in given.get(option, ())))

    def _column(self, option: str, value: str) -> int:
        if value.isdecimal():
            number = int(value)
            if not 0 < number <= (MAX_COLUMNS if self._header is None else len(self._header)):
                raise self._error(f"{option} {value}: there is no such column; they count from 1")
            return number - 1
        header = self._header or ()
        found = header.index(value) if value in header else _find(header, (value.casefold(),))
        if found is None:
            raise self._error(f"{option}: the file has no column '{make_excerpt(value)}'")
        return found

    def _error(self, message: str) -> FormatError:
        if self._header is not None:
            names = ", ".join(make_excerpt(cell) for cell in self._header[:_MAX_COLUMNS_SHOWN])
            more = f", and {len(self._header) - _MAX_COLUMNS_SHOWN} more" * (len(self._header) > _MAX_COLUMNS_SHOWN)
            message = f"{message} (the columns are: {names}{more})"
        return FormatError(self._path, self._line, message)


def _with_header(options: _Options, header: tuple[str, ...]) -> Layout:
    id_ = options.id[0] if options.id else _find(header, ID_HEADERS)
    if id_ is None:
        raise options.missing("id", "--id-column")
    name = options.name[0] if options.name else _find(header, NAME_HEADERS)
    if name is None:
        raise options.missing("name", "--name-column")
    named = {id_, name, *options.types, *options.alias}
    types = options.types or _find_all(header, TYPE_HEADERS, named)
    alias = options.alias[0] if options.alias else _find(header, ALIAS_HEADERS, named)
    description = _find(header, (DESCRIPTION_HEADER,), named)
    alias_name = None if options.name else _find(header, NAME_HEADERS, named)
    used = named | {i for i in (*types, alias, description, alias_name) if i is not None}
    extra: dict[str, int] = {}
    for i, cell in enumerate(header):
        if cell and i not in used:
            extra.setdefault(_EXTRA_PREFIX + cell if cell.casefold() in RESERVED else cell, i)
    pairs = tuple((i, key) for key, i in extra.items())
    return Layout(id_, name, types, alias, description, alias_name, pairs, header)


def _without_header(options: _Options) -> Layout:
    """By place: id, name, type, aliases; an option moves its column, and the others stay."""
    id_ = options.id[0] if options.id else 0
    name = options.name[0] if options.name else 1
    if id_ == name and not (options.id and options.name):
        # The same column for both is meant only where both options say so, as for a mere list of names.
        raise options.missing("id" if options.name else "name", "--id-column" if options.name else "--name-column")
    taken = {id_, name, *options.types, *options.alias}
    types = options.types or ((2,) if 2 not in taken else ())
    alias = options.alias[0] if options.alias else (3 if 3 not in taken else None)
    return Layout(id_, name, types, alias)


def _find(header: tuple[str, ...], words: Sequence[str], taken: set[int] | frozenset[int] = frozenset()) -> int | None:
    """The first of the words that is a column and not taken; case does not matter."""
    return next(iter(_find_all(header, words, taken)), None)


def _find_all(header: tuple[str, ...], words: Sequence[str], taken: set[int] | frozenset[int]) -> tuple[int, ...]:
    folded = [cell.casefold() for cell in header]
    return tuple(folded.index(word) for word in words if word in folded and folded.index(word) not in taken)
