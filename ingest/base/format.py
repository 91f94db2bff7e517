"""What a format declares about itself: its name, its files, its options, and the module that reads it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

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


@dataclass(frozen=True, slots=True)
class FormatOption:
    """An option that some formats take; the command line makes its flag from it.

    Attributes:
        flag: As on the command line: ``--sab``.
        field: The field of `ReadOptions` that gets the value; ``columns.id`` is a field of `ReadOptions.columns`.
        help: One sentence, without the names of the formats.
        metavar: Stands for the value in the help text.
        is_repeated: The flag may be given several times; the field is a tuple.
        is_switch: The flag takes no value.
        minimum: The value is an integer of at least this.
        choices: The allowed values, in upper case; the case of the input does not matter.
    """

    flag: str
    field: str
    help: str
    metavar: str | None = None
    is_repeated: bool = False
    is_switch: bool = False
    minimum: int | None = None
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Format:
    """One format that can be read.

    Attributes:
        name: The value of ``--format``.
        title: The name in texts.
        reader: Its module and class in `ingest.readers`. The class is made with (paths, options, type_map); unless
            `is_table`, the module has `detect(head)`; one whose bases may be folders or archives has
            `detect_names(names)` too.
        what: Its files, for people.
        options: What it takes beside `ReadOptions.limit`, which every format takes.
        is_table: A table of names that any program may have written. Such a file beside another base in a folder is
            no second base.
        folder_sign: What a folder of this format contains; empty if the format has no folders.
        endings: Usual endings of its files; a collection that is named after a file drops them.
    """

    name: str
    title: str
    reader: str
    what: str
    options: tuple[FormatOption, ...] = ()
    is_table: bool = False
    folder_sign: str = ""
    endings: tuple[str, ...] = ()

    def takes(self, field: str) -> bool:
        """Whether a field of `ReadOptions` has a meaning for this format."""
        return field == "limit" or any(option.field.partition(".")[0] == field for option in self.options)
