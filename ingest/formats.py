"""The registry of formats: which can be read, which one a path shows, and opening a reader.

To add a base that ships as tables: an entry in `ingest/readers/bases.json`. To add another format: a module in
`ingest/readers` with a reader, its beginning in `ingest/readers/signs.py`, and an entry in `formats.json`. An option
that no other format has is one more field of `ReadOptions`, which its entry names. No reader is loaded before it is
needed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module, resources
from types import ModuleType
from typing import TYPE_CHECKING

import msgspec

from ingest.base.format import Format, Head, PathLike, ReadOptions, known_tables, read_head
from ingest.readers.signs import SIGNS, SIGNS_OF_NAMES
from pearl_qdrant.errors import FormatError, InputError, OptionError, SettingsError
from pearl_qdrant.installing import install_command

if TYPE_CHECKING:
    from ingest.base.reader import Reader
    from ingest.base.type_map import TypeMap


FORMATS = msgspec.json.decode(resources.files("ingest").joinpath("formats.json").read_bytes(), type=tuple[Format, ...])
"""In the order in which an input is compared with them."""

_OF_KNOWN_BASES = tuple("columns list_separators encoding skip_lines delimiter languages records".split())


def known_bases() -> tuple[Format, ...]:
    """The bases that ship as tables, as formats (`ingest.base.format`)."""
    return tuple(
        Format(base.name, base.title, "table.TableReader", "; ".join(shape.what for shape in base.shapes),
               _OF_KNOWN_BASES, is_table=True)
        for base in known_tables()
    )  # fmt: skip


_MAX_CHECKED = 100  # files of a folder

FORMAT_NAMES = tuple(one.name for one in FORMATS)


def detect_format(paths: Sequence[PathLike], options: ReadOptions | None = None) -> str:
    """The name of the format that the paths show: one of `FORMAT_NAMES` or of `known_bases`; TSV if they show none, as
    standard input does. Names of columns in the options show a header. Raises FormatError if a folder has no known base
    or several, or two paths show two formats.
    """
    options = options or ReadOptions()
    found: dict[str, str] = {}
    for path in [os.fspath(one) for one in paths]:  # standard input can be read only once
        if path != "-" and (shown := _detect_path(path, options)) is not None:
            found.setdefault(shown, path)
    if len(found) > 1:
        listed = ", ".join(f"{path} is {name}" for name, path in found.items())
        raise FormatError(os.fspath(paths[0]), None, f"several formats are given ({listed}). Ingest one base at a time")
    return next(iter(found), "tsv")


def _detect_path(path: str, options: ReadOptions) -> str | None:
    from ingest.io.streams import find_container, is_folder, list_inputs
    from ingest.readers.table import bases_of, recognise

    if (container := find_container(path)) not in (None, "zip"):
        return "xlsx" if container == "workbook" else "parquet"
    names = list_inputs(path)
    if names != [path]:
        found = [one for one in FORMATS if one.name in SIGNS_OF_NAMES and SIGNS_OF_NAMES[one.name](names)]
        if len(found) > 1:
            signs = ", ".join(f"{one.name} ({one.folder_sign})" for one in found)
            message = f"holds several bases: {signs}. Name the files of one of them, or choose its format"
            raise FormatError(path, None, message, option="format")
        if found:
            _check_is_alone(path, names, found[0])
            return found[0].name
        known_base = next((base.name for base in bases_of(options) if base.choose(names)), None)
        if known_base is not None:
            return known_base
        if is_folder(path):
            known = " or ".join(f"{one.folder_sign} ({one.title})" for one in FORMATS if one.folder_sign)
            raise FormatError(path, None, f"is a folder without {known}. Name the files in it")
    try:
        head = read_head(path)
    except InputError:
        return None
    table = recognise(head, options)
    if table is not None and table not in FORMAT_NAMES:
        return table  # a known base, whose rows may look like statements of RDF
    return _shown_by(head) or table


def _shown_by(head: Head) -> str | None:
    """The format that the beginning of a file has."""
    return next((name for name, shows in SIGNS.items() if shows(head)), None)


def _check_is_alone(path: str, names: Sequence[str], shown: Format) -> None:
    """Refuse a folder that has a base of another format, too, which would be skipped silently; tables do not count."""
    from ingest.io.streams import is_folder

    for name in names[:_MAX_CHECKED] if is_folder(path) else ():
        other = None
        with suppress(InputError):
            other = _shown_by(read_head(name))
        if other not in (None, shown.name):
            message = (
                f"holds several bases: {shown.name} ({shown.folder_sign}), and {other} ({name}). Name the files of one "
                f"of them, or choose format {shown.name}."
            )
            raise FormatError(path, None, message, option="format")


def open_reader(
    paths: Sequence[PathLike],
    kind: str = "auto",
    options: ReadOptions | None = None,
    *,
    type_map: TypeMap | None = None,
) -> Reader:
    """A reader of these files; close it after use. Raises FormatError if a path cannot be opened, or is not of the
    format; OptionError if an option belongs to another format, or its value makes no sense.

    Args:
        paths: Files or folders of one base; ``-`` is standard input, for formats that are one text file.
        kind: One of `FORMAT_NAMES`, the name of a known base, or "auto".
        type_map: From native types to coarse types; the shipped one by default.
    """
    options = options or ReadOptions()
    if kind == "auto":
        kind = detect_format(paths, options)
    chosen = next((one for one in (*FORMATS, *known_bases()) if one.name == kind), None)
    further = next((base for base in options.bases if base.name == kind), None)
    if chosen is None and further is None:
        names = ", ".join((*FORMAT_NAMES, *(one.name for one in known_bases())))
        raise OptionError("kind", f"'{kind}' is not a format. There are: auto, {names}.")
    if chosen is not None:
        _check_options(chosen, options)
    try:
        if chosen is None or chosen.is_table:
            from ingest.readers.table import TableReader

            return TableReader(paths, options, type_map, kind=kind)
        module, _, name = chosen.reader.partition(".")
        reader: Reader = getattr(_import_reader(module, paths), name)(paths, options, type_map)
        return reader
    except (SettingsError, ValueError) as error:  # an option that a reader refuses
        if isinstance(error, OptionError):
            raise
        raise OptionError("options", str(error)) from error


_EXTRAS = {"pyoxigraph": "rdf"}
"""The extra of each library that a reader may lack."""


def _import_reader(module: str, paths: Sequence[PathLike]) -> ModuleType:
    """A module of readers. Raises FormatError, with the command that installs it, if its library is not installed."""
    try:
        return import_module(f"ingest.readers.{module}")
    except ModuleNotFoundError as error:
        if error.name not in _EXTRAS:
            raise
        advice = install_command(_EXTRAS[error.name])
        raise FormatError(
            os.fspath(paths[0]), None, f"needs {error.name}, which is not installed. Install it with: {advice}"
        ) from error


def _check_options(chosen: Format, options: ReadOptions) -> None:
    """Refuse an option that the format does not take, instead of ignoring it."""
    for name, field in ReadOptions.model_fields.items():
        if getattr(options, name) != field.default and not chosen.takes(name) and name != "bases":
            takers = ", ".join(one.name for one in FORMATS if one.takes(name))
            raise OptionError(name, f"'{name}' is for {takers}, but the input is read as {chosen.name}.")
