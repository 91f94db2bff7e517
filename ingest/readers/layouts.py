"""Bases that ship as tables: how each is recognised, and which column is what.

`bases.json` in this folder is the table of those that are known: a base, with a shape for each kind of file. A shape
names the columns that a header must have, or all columns and patterns of some of them; columns by meaning; and, if rows
are names of an entity rather than entities, the column that tells what a row gives (`roles`). Nothing else is needed:
reading, options, notes and `ingest --formats` follow from the table. `read_bases` reads another such file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from ingest.base.format import TableColumns
from pearl_qdrant.errors import FormatError

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

    def fits(self, header: Sequence[str] | None, sample: Sequence[Sequence[Any]]) -> bool:
        """Whether a file has this shape.

        Args:
            header: Its header or keys; None if it has none.
        """
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
    """A base that ships as tables.

    Attributes:
        name: The value of ``--format``.
        title: For people.
        shapes: Its files.
        files: Names of the files that are read of a folder or zip of it: a regular expression.
    """

    name: str
    title: str
    shapes: tuple[Shape, ...]
    files: str | None = None

    def choose(self, names: Sequence[str]) -> list[str]:
        """Those of the paths in a folder or archive that are read."""
        pattern = re.compile(self.files or "(?!)", re.IGNORECASE)
        return sorted(name for name in names if pattern.fullmatch(re.split(r"[/\\!]", name)[-1]))


@lru_cache(maxsize=1)
def known_bases() -> tuple[Base, ...]:
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
