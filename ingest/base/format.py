"""What a format declares about itself: its name, its files, its options, and the module that reads it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ingest.io.encoding import HEAD_BYTES, Utf8Source
from ingest.io.streams import open_source

PathLike = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of an input, by which its format is recognised.

    Attributes:
        path: As given.
        name: File name in lower case, without the ending of a compression (".gz", ".bz2", ".xz", ".zst").
        data: First bytes, decompressed, at most `HEAD_BYTES` (65,536), without a byte order mark.
    """

    path: str
    name: str
    data: bytes


def read_head(path: str) -> Head:
    """The beginning of a file, decompressed and as UTF-8; of a pipe nothing. Raises as `open_source`."""
    if Path(path).is_fifo():
        return Head(path, Path(path).name.lower(), b"")
    source = open_source(path)
    try:
        data = Utf8Source(source).head(HEAD_BYTES)
    finally:
        source.close()
    name = re.split(r"[/!]", path)[-1].lower()
    return Head(path, re.sub(r"\.(?:gz|bz2|xz|zst)$", "", name), data)


Scope = Literal["EXACT", "NARROW", "BROAD", "RELATED"]
"""Scopes of synonyms in ontologies."""


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
