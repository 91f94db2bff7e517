"""What formats and bases that ship as tables declare about themselves: names, files, options, columns.

`bases.json` in `ingest/readers` is the table of the bases that are known, with a shape for each kind of file. A shape
names the columns that a header must have, or all columns and patterns of some of them; columns by meaning; and, if rows
are names of an entity rather than entities, the column that tells what a row gives (`roles`). Reading, options, notes
and `ingest --format help` follow from the table. `read_bases` reads another such file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from pydantic import BeforeValidator, ConfigDict
from pydantic.json_schema import SkipJsonSchema

from ingest.io.encoding import HEAD_BYTES, Utf8Source
from ingest.io.streams import ByteSource, open_source
from pearl_qdrant.errors import FormatError
from pearl_qdrant.options import Count, Natural, Options

PathLike = str | os.PathLike[str]


class Head(ByteSource):
    """The first bytes of an input, decompressed, at most `HEAD_BYTES`, without a byte order mark."""

    def __init__(self, path: str, data: bytes) -> None:
        self.path, self.data = path, data

    def chunks(self) -> Iterator[bytes]:
        yield from (self.data,) if self.data else ()


def read_head(path: str) -> Head:
    """The beginning of a file, decompressed and as UTF-8; of a pipe nothing. Raises as `open_source`."""
    if Path(path).is_fifo():
        return Head(path, b"")
    with closing(open_source(path)) as source:
        return Head(path, Utf8Source(source).head(HEAD_BYTES))


Scope = Literal["EXACT", "NARROW", "BROAD", "RELATED"]  # Scopes of synonyms in ontologies


@dataclass(frozen=True, slots=True)
class TableColumns:
    """Which column is what; None and () leave it to the header.

    A value is a column's name in the header, its number from 1, or a path. Digits are always a number, except in JSON,
    whose columns have no order. Numbers alone do not make the first row a header: it must be recognised as one.

    Attributes:
        id: Name, number or path of the column of ids.
        name: Name, number or path of the column of names.
        types: Columns of types.
        aliases: Columns of aliases.
        description: The column of descriptions.
        popularity: A column of numbers: how well known it is.
    """

    id: str | None = None
    name: str | None = None
    types: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    description: str | None = None
    popularity: str | None = None

    def given(self) -> dict[str, tuple[str, ...]]:
        """The values that are set, by the meaning of the column."""
        one = ("id", self.id), ("name", self.name), ("description", self.description), ("popularity", self.popularity)
        values = {key: (value,) for key, value in one if value is not None}
        return values | {key: value for key, value in (("type", self.types), ("alias", self.aliases)) if value}

    def names(self) -> list[str]:
        """The values that are no numbers."""
        return [value for values in self.given().values() for value in values if not value.isdecimal()]


@dataclass(frozen=True, slots=True)
class Format:
    """One format that can be read.

    Attributes:
        name: The value of ``--format``.
        title: The name in texts.
        reader: Its module and class in `ingest.readers`. The class is made with (paths, options, type_map).
        what: Its files, for people.
        options: Fields of `ReadOptions` that it takes, beside `limit`, which every format takes.
        is_table: A table of names that any program may have written. Such a file beside another base in a folder is
            no second base.
        folder_sign: What a folder of this format contains; empty if the format has no folders.
        endings: Usual endings of its files; a collection that is named after a file drops them.
    """

    name: str
    title: str
    reader: str
    what: str
    options: tuple[str, ...] = ()
    is_table: bool = False
    folder_sign: str = ""
    endings: tuple[str, ...] = ()

    def takes(self, field: str) -> bool:
        """Whether a field of `ReadOptions` has a meaning for this format."""
        return field == "limit" or field in self.options


NAME, ALIAS, TYPE, DESCRIPTION, SKIP = "name", "alias", "type", "description", "skip"
TAGGED_NAME = "tagged name"
"""A name with its type in brackets at the end, as SNOMED's fully specified ones: ``Fever (finding)``."""


class Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One kind of file of a base.

    Attributes:
        what: The file, for people.
        columns: Which column is what; those that a file lacks are left out.
        header: Columns that the header, or the keys of the first objects, must have; in lower case.
        names: Names of the columns of a file without a header.
        patterns: What some of these look like, by name: a regular expression for the whole cell of each row.
        separators: Between the items of a cell, by column.
        keep: Rows are kept if a column has one of these values.
        needs: Rows are kept if this column is filled.
        role_column: The column that tells what a row gives; then rows of one id are put together first.
        roles: What a row gives, by the value of that column; `other_role` for all other values.
        value_column: The column with what the row gives.
        language_column: The column with the language of a name.
        preferred_column: Its value 1 prefers a name to others of its role.
        is_literal: Values are written as ``'text'@en`` or ``"text"``.
        id_pattern: What is taken of ids and types: the first group, where it matches.
        gives: ``preferred``: the file has no names, but tells which rows of another file are preferred; ``allowed``:
            which ids are read at all.
        gives_column: The column with these.
        marked_column: In the other file, the column that ``preferred`` rows are known by.
        document, records: Keys of the whole document, in JSON, and the path of the records in it; in XML the name of
            the document.
    """

    what: str
    columns: TableColumns
    header: frozenset[str] = frozenset()
    names: tuple[str, ...] = ()
    patterns: Mapping[str, str] = {}
    separators: Mapping[str, str] = {}
    keep: Mapping[str, tuple[str, ...]] = {}
    needs: str | None = None
    role_column: str | None = None
    roles: Mapping[str, str] = {}
    other_role: str = ALIAS
    value_column: str | None = None
    language_column: str | None = None
    preferred_column: str | None = None
    is_literal: bool = False
    id_pattern: str | None = None
    gives: str = ""
    gives_column: str = ""
    marked_column: str | None = None
    document: frozenset[str] = frozenset()
    records: str | None = None

    def fits(self, header: Sequence[str] | None, sample: Sequence[Sequence[Any]]) -> bool:
        """Whether a file with this header or keys has this shape."""
        if header is not None:
            return bool(self.header) and self.header <= {name.casefold() for name in header}
        if not self.names or not sample:
            return False
        checks = [(self.names.index(name), re.compile(pattern)) for name, pattern in self.patterns.items()]
        least = len(self.names) - sum(name.endswith("?") for name in self.names)
        fitting = sum(
            least <= len(row) <= len(self.names)
            and all(isinstance(row[i], str) and check.fullmatch(row[i].strip()) is not None for i, check in checks)
            for row in sample
        )
        return fitting >= _MOST * len(sample)


class Base(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A base that ships as tables: the value of ``--format``, a title, its kinds of files, and a regular expression for
    the names of the files that are read of a folder or zip of it.
    """

    name: str
    title: str
    shapes: tuple[Shape, ...]
    files: str | None = None

    def choose(self, names: Sequence[str]) -> list[str]:
        """Those of the paths in a folder or archive that are read."""
        pattern = re.compile(self.files or "(?!)", re.IGNORECASE)
        return sorted(name for name in names if pattern.fullmatch(re.split(r"[/\\!]", name)[-1]))


class ReadOptions(Options):
    """What to read. A field with its default value means the reader's own default. Raises OptionError if one does not
    fit.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    limit: Count | None = None
    """Read at most this many entities."""
    languages: tuple[str, ...] = ()
    """Languages of names, the preferred one first. [default: en]"""
    columns: Annotated[TableColumns | None, SkipJsonSchema()] = None
    """Which column is what."""
    list_separators: tuple[str, ...] = ()
    """Tables: between aliases or types in a cell: a sign, tab, space, none (a cell is one), lists (JSON or Python), or
    COLUMN=SIGN for one column. [default: found in the first rows]"""
    delimiter: str | None = None
    """Tables: character between the columns, or tab. [default: found in the first rows]"""
    encoding: str | None = None
    """Tables: of the text, such as cp1252. [default: found]"""
    skip_lines: Natural | None = None
    """Tables: pass over so many lines at the start."""
    records: str | None = None
    """Tables: where they are: the sheet of a workbook, or the path of a list in JSON, YAML or XML, such as
    results.items. [default: found]"""
    bases: Annotated[tuple[Base, ...], SkipJsonSchema()] = ()
    """Further bases that ship as tables, tried before those that are known."""
    sabs: tuple[str, ...] = ()
    """UMLS: only these source vocabularies; may be repeated."""
    srl_max: Natural | None = None
    """UMLS: highest restriction level of a source."""
    semantic_types: tuple[str, ...] = ()
    """UMLS: only these types: TUI, name, tree number or group; may be repeated."""
    classes: tuple[str, ...] = ()
    """Wikidata, RDF: only instances and subclasses of these classes, by their QIDs; may be repeated."""
    require_sitelink: bool = False
    """Wikidata: only items with a page in some Wikimedia project."""
    links: bool = False
    """Ontologies, RDF, Wikidata: keep the ids of the entities that an entity is linked to, for linking in documents."""
    scopes: tuple[Annotated[Scope, BeforeValidator(str.upper)], ...] = ()
    """Ontologies, RDF: synonyms of these scopes are names. [default: EXACT]"""
    label_properties: tuple[str, ...] = ()
    """RDF: properties that give the canonical name, as IRIs or prefixed names."""
    alias_properties: tuple[str, ...] = ()
    """RDF: properties that give aliases."""
    type_properties: tuple[str, ...] = ()
    """RDF: properties that give types."""


@lru_cache(maxsize=1)
def known_tables() -> tuple[Base, ...]:
    """The bases of the table that ships, in the order in which a table is compared with them."""
    content = resources.files("ingest.readers").joinpath("bases.json").read_bytes()
    return msgspec.json.decode(content, type=tuple[Base, ...])


def read_bases(path: str | os.PathLike[str]) -> tuple[Base, ...]:
    """Bases of a user's own: a JSON file with one `Base`, or a list of them, as in `bases.json`. Raises FormatError if
    it cannot be read, or has another form; says where.
    """
    try:
        content = Path(path).read_bytes()
        found = msgspec.json.decode(content, type=Base | tuple[Base, ...])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise FormatError(os.fspath(path), None, f"is no table of bases ({error}). See docs/bases/known.md") from error
    return (found,) if isinstance(found, Base) else found


def find_shape(
    bases: Sequence[Base], header: Sequence[str] | None, sample: Sequence[Sequence[Any]]
) -> tuple[Base, Shape] | None:
    """The base and the kind of file that a table is, or None."""
    return next(((base, shape) for base in bases for shape in base.shapes if shape.fits(header, sample)), None)


_MOST = 0.9  # of the first rows: one of them may be damaged
