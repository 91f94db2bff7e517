"""Which column of a table is what: named by an option, by the header, or by its position.

- Options name columns: `TableColumns`. A name makes a row the header; a number counts from 1. In JSON, Parquet and
  Arrow a path names a field inside another: ``names.0.value``, ``names.*.value``, ``names[types=label].value``.
- Without options, a row is the header if it has a word for ids (`ID_HEADERS`) and one for names (`NAME_HEADERS`), in
  upper or lower case. Then other known words give aliases, types, description and popularity. Any other column goes to
  `Entity.extra` under its own name, with ``column_`` before it if a point has a field of that name.
- Without a header and options, the columns are id, name, type and aliases in this order; the last two may be missing.
  With options, only the columns that they name are used.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

from ingest.io.report import make_excerpt
from ingest.readers.cells import shown
from pearl_qdrant.errors import FormatError
from pearl_qdrant.store.schema import FILTER_FIELD, NamePoint

if TYPE_CHECKING:
    from ingest.readers.open_table import Table

# In order of preference, should a header have several.
ID_HEADERS = (
    "id entity_id cui qid identifier concept_id conceptid concepturi curie code uri iri uid wikidata_id geonameid "
    "item".split()
)
NAME_HEADERS = (
    "canonical_name name preferred_label preferred_name preferred_term preferredlabel preferredname preflabel label "
    "title term itemlabel".split()
)
TYPE_HEADERS = "type types kb_types entity_type semantic_type semantic_types".split()
ALIAS_HEADERS = (
    "aliases alias synonyms synonym alternatenames alternate_names alternative_names alt_names alt_labels altlabel "
    "altlabels alt_label also_known_as aka other_names exact_synonyms itemaltlabel".split()
)
DESCRIPTION_HEADERS = "description definition desc itemdescription".split()
POPULARITY_HEADERS = ("popularity",)

RESERVED = frozenset(f.name for f in fields(NamePoint)) | {"id", FILTER_FIELD}
"""Names that an extra column must not have in the payload."""

MAX_COLUMNS = 4_096
"""Columns of a table. The time for each row grows with them."""

_LOWER_WORD = re.compile(r"[a-z][a-z0-9_ ]*")
_EXTRA_PREFIX = "column_"
_MAX_COLUMNS_SHOWN = 30
_ONLY_HEADERS = ("entity_id", "cui", "qid", "concept_id", "curie", "wikidata_id")  # "ID" may be the name of something


@dataclass(frozen=True, slots=True)
class TableColumns:
    """Which column is what; None and () leave it to the header.

    A value is a column's name in the header, its number from 1, or a path. Digits are always a number, except in JSON,
    whose columns have no order. Numbers alone do not make the first row a header: it must be recognised as one.
    """

    id: str | None = None
    name: str | None = None
    types: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    description: str | None = None
    popularity: str | None = None

    def given(self) -> dict[str, tuple[str, ...]]:
        """The values that are set, by the meaning of the column."""
        one = {"id": self.id, "name": self.name, "description": self.description, "popularity": self.popularity}
        values: dict[str, tuple[str, ...]] = {key: () if value is None else (value,) for key, value in one.items()}
        values.update({"type": self.types, "alias": self.aliases})
        return {key: value for key, value in values.items() if value}

    def names(self) -> list[str]:
        """The values that are no numbers."""
        return [value for values in self.given().values() for value in values if not value.isdecimal()]


@dataclass(slots=True)
class Layout:
    """Positions of the columns of one file, counted from 0.

    Attributes:
        id, name, types, aliases, description, popularity: Columns by their meaning; None or () if there is none.
        alias_names: Columns with one more name, which is not split; the first one is the name where there is no other.
        extra: Further columns with the payload field of each; grows with a header that grows.
        header: Names of the columns, or None without a header.
        separators: What separates the items of a cell, by column; see `cells.split_items`.
        is_open: No option names columns, so that a later one with a known word has its meaning.
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

    @property
    def width(self) -> int:
        """One more than the last column that has a meaning."""
        return 1 + max(self.used())

    def used(self) -> set[int]:
        """The columns that have a meaning."""
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
            word = cell.casefold()
            if self.is_open and word in ALIAS_HEADERS:
                self.aliases = (*self.aliases, i)
            elif self.is_open and word in TYPE_HEADERS:
                self.types = (*self.types, i)
            elif self.is_open and word in DESCRIPTION_HEADERS and self.description is None:
                self.description = i
            elif self.is_open and word in POPULARITY_HEADERS and self.popularity is None:
                self.popularity = i
        self.add_extra(start)

    def describe(self, *, by_name: bool = False) -> str:
        """One line for the user: the number, or the name, of each column."""
        header = self.header or []
        meanings: list[tuple[str, int | None]] = [("id", self.id), ("name", self.name)]
        meanings += [("aliases", i) for i in (*self.aliases, *self.alias_names)]
        meanings += [("description", self.description), ("popularity", self.popularity)]
        meanings += [("type", i) for i in self.types]
        shown = [
            f"{meaning} '{make_excerpt(header[i])}'" if by_name else f"{meaning} {i + 1}"
            for meaning, i in meanings
            if i is not None
        ]
        extra = list(self.extra.items())
        shown += [
            make_excerpt(key) if by_name else f"{make_excerpt(key)} {i + 1}" for i, key in extra[:_MAX_COLUMNS_SHOWN]
        ]
        more = f", and {len(extra) - _MAX_COLUMNS_SHOWN} more" if len(extra) > _MAX_COLUMNS_SHOWN else ""
        start = "" if by_name else "no header; " if self.header is None else "header; "
        return f"{start}columns: {', '.join(shown)}{more}"


def is_header(cells: Sequence[str], columns: TableColumns) -> bool:
    """Whether a row is a header: it has every column that the options name, and words for ids and for names.

    Where the options give a number, a known word at that place is enough.
    """
    header = [cell.strip() for cell in cells]
    if len(header) < 2 or any(_find_name(header, name) is None for name in columns.names()):
        return False
    known = (columns.id, ID_HEADERS), (columns.name, NAME_HEADERS)
    if any(
        value is not None and value.isdecimal() and 0 < int(value) <= len(header)
        and header[int(value) - 1].casefold() in words
        for value, words in known
    ):  # fmt: skip
        return True
    return all(
        (value is not None and not value.isdecimal()) or _find(header, words) is not None for value, words in known
    )


def find_layout(table: Table, columns: TableColumns) -> Layout:
    """Decide where the columns of a table are. Raises FormatError if an option names a column that does not exist, the
    id or name column is not known, or the header has more than `MAX_COLUMNS`.
    """
    if table.header is None:
        first = list(map(shown, table.sample[0])) if table.sample else []
        if not columns.given():
            _refuse_half_a_header(table.path, table.header_line, [cell.strip() for cell in first])
        if not columns.names() or not first:
            return _without_header(_Resolver(table, None, columns))
        table.header = first
    header = [cell.strip() for cell in table.header]
    if len(header) > MAX_COLUMNS:
        message = f"the header has {len(header):,} columns (limit: {MAX_COLUMNS:,}). Is the first row really a header?"
        raise FormatError(table.path, table.header_line, message)
    layout = _with_header(_Resolver(table, header, columns), header)
    layout.header = table.header
    return layout


def _refuse_half_a_header(path: str, line: int | None, cells: list[str]) -> None:
    """Refuse a first row with words that only a header has, if its column of ids or names is not known. Raises
    FormatError if there are such words.
    """
    words = [cell for i, cell in enumerate(cells) if cell.casefold() in (("id", *_ONLY_HEADERS)[i > 0 :])]
    known = [cell for cell in cells if cell.casefold() in (*NAME_HEADERS, *ALIAS_HEADERS, *TYPE_HEADERS)]
    has_index = bool(cells) and (not cells[0] or cells[0].startswith("Unnamed: "))  # pandas writes one
    if len(cells) > 1 and cells[0] in NAME_HEADERS and all(map(_LOWER_WORD.fullmatch, cells)):
        word, what, advice = cells[0], "id", "Name it, or the column of names for both"
    elif words:
        word, what, advice = words[0], "name", "Name it"
    elif has_index and len(known) > 1:
        word, what, advice = known[0], "id", "Name it, or the column of names for both"
    else:
        return
    names = ", ".join(make_excerpt(cell) for cell in cells[:_MAX_COLUMNS_SHOWN])
    message = f"the first row looks like a header ('{word}'), but no column is known to be the {what}. {advice}"
    raise FormatError(path, line, f"{message} (the columns are: {names}).", option=f"{what}_column")


class _Resolver:
    """Turns the values of the column options into positions."""

    def __init__(self, table: Table, header: list[str] | None, columns: TableColumns) -> None:
        self._path, self._line, self.header, self._has_numbers = (
            table.path, table.header_line, header, table.has_numbers
        )  # fmt: skip
        self.found = {
            what: tuple(dict.fromkeys(self._column(what, value) for value in values))
            for what, values in columns.given().items()
        }

    def one(self, what: str) -> int | None:
        """The column that the options give, or None."""
        return self.found[what][0] if what in self.found else None

    def missing(self, what: str) -> FormatError:
        """The error for a column that neither the options nor the header give."""
        return self._error(what, f"no column is known to be the {what}. Name it")

    def _column(self, what: str, value: str) -> int:
        if value.isdecimal() and self._has_numbers:
            number = int(value)
            if not 0 < number <= (MAX_COLUMNS if self.header is None else len(self.header)):
                raise self._error(what, f"there is no column {value} for the {what}; columns count from 1")
            return number - 1
        found = _find_name(self.header or [], value)
        if found is None:
            raise self._error(what, f"the file has no column '{make_excerpt(value)}' for the {what}")
        return found

    def _error(self, what: str, message: str) -> FormatError:
        if self.header is not None:
            names = ", ".join(make_excerpt(cell) for cell in self.header[:_MAX_COLUMNS_SHOWN])
            more = f", and {len(self.header) - _MAX_COLUMNS_SHOWN} more" * (len(self.header) > _MAX_COLUMNS_SHOWN)
            message = f"{message} (the columns are: {names}{more})"
        return FormatError(self._path, self._line, f"{message}.", option=f"{what}_column")


def _with_header(given: _Resolver, header: list[str]) -> Layout:
    id_ = given.one("id") if "id" in given.found else _find(header, ID_HEADERS)
    if id_ is None:
        raise given.missing("id")
    taken = {id_, *(i for found in given.found.values() for i in found)} - {given.one("name")}
    name = given.one("name") if "name" in given.found else _find(header, NAME_HEADERS, taken)
    if name is None:
        raise given.missing("name")
    taken.add(name)

    def columns_of(what: str, words: Sequence[str]) -> tuple[int, ...]:
        return given.found.get(what) or _find_all(header, words, taken)

    layout = Layout(id_, name, columns_of("type", TYPE_HEADERS), columns_of("alias", ALIAS_HEADERS), header=header)
    layout.description = next(iter(columns_of("description", DESCRIPTION_HEADERS)), None)
    layout.popularity = next(iter(columns_of("popularity", POPULARITY_HEADERS)), None)
    if "name" not in given.found and header[name].casefold() in ("canonical_name", "name"):
        layout.alias_names = _find_all(header, ("canonical_name", "name"), taken)
    layout.is_open = not given.found
    layout.add_extra(0)
    return layout


def _without_header(given: _Resolver) -> Layout:
    """By position: id, name, type, aliases; with options, only the columns that they name, and id and name."""
    id_, name = given.one("id"), given.one("name")
    if id_ is None or name is None:
        id_, name = id_ or 0, 1 if name is None else name
        if id_ == name:
            # The same column for both only if both options name it, as for a plain list of names.
            raise given.missing("id" if "name" in given.found else "name")
    layout = Layout(id_, name, description=given.one("description"), popularity=given.one("popularity"))
    layout.types = given.found.get("type", () if given.found else (2,))
    layout.aliases = given.found.get("alias", () if given.found else (3,))
    return layout


def override(columns: TableColumns, given: TableColumns | None) -> TableColumns:
    """The columns of a known layout, or those of the options instead where there are any."""
    if given is None or not given.given():
        return columns
    return replace(given, id=given.id or columns.id, name=given.name or columns.name)


def _find_name(header: Sequence[str], name: str) -> int | None:
    """The column of exactly this name, else the first that differs in case alone."""
    return header.index(name) if name in header else _find(header, (name.casefold(),))


def _find(header: Sequence[str], words: Sequence[str], taken: set[int] | frozenset[int] = frozenset()) -> int | None:
    """The column of the first word that is in the header and not taken; case does not matter."""
    return next(iter(_find_all(header, words, taken)), None)


def _find_all(header: Sequence[str], words: Sequence[str], taken: set[int] | frozenset[int]) -> tuple[int, ...]:
    folded = [cell.casefold().replace(" ", "_") for cell in header]
    found = (folded.index(word) for word in words if word in folded)
    return tuple(i for i in found if i not in taken)
