"""The registry of formats: which can be read, which one a path shows, and opening a reader.

To add a format: a folder in `ingest/readers` whose `format.py` has a `Format`, and a line in `FORMATS` here. An
option that no other format has is one more field of `ReadOptions`; its flag comes from the `Format`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from ingest.base.format import Format, FormatOption, PathLike
from ingest.readers.arrow.format import FORMAT as PARQUET
from ingest.readers.csv_files.format import FORMAT as CSV
from ingest.readers.jsonl.format import FORMAT as JSONL
from ingest.readers.obo.format import FORMAT as OBO
from ingest.readers.tsv.format import FORMAT as TSV
from ingest.readers.umls.format import FORMAT as UMLS
from ingest.readers.wikidata.format import FORMAT as WIKIDATA
from ingest.readers.yago.format import FORMAT as YAGO
from pearl_qdrant.errors import FormatError, OptionError, SettingsError

if TYPE_CHECKING:
    from ingest.base.reader import Reader
    from ingest.base.type_map import TypeMap
    from ingest.readers.tables.columns import TableColumns

FORMATS: tuple[Format, ...] = (UMLS, YAGO, WIKIDATA, OBO, PARQUET, JSONL, CSV, TSV)
"""In the order in which a path is compared with them. TSV is last: nothing marks a file as TSV."""

FORMAT_NAMES = tuple(one.name for one in FORMATS)

_MAX_ENTRIES = 1000  # files of a folder that are compared: a release has some 50


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What to read. A field with its default value means the reader's own default.

    Attributes:
        limit: Read at most this many entities. Every format.
        languages: Languages of names, the preferred one first. UMLS, YAGO, Wikidata.
        columns: Which column is what. TSV, CSV, JSON Lines, Parquet.
        delimiter: Character between the columns. CSV.
        sabs: Source vocabularies. UMLS.
        srl_max: Highest restriction level. UMLS.
        semantic_types: TUI, name, tree number or group. UMLS.
        classes: QIDs of classes; only their instances and subclasses are read. Wikidata.
        require_sitelink: Only items with a page in some Wikimedia project. Wikidata.
        links: Keep the ids of the entities that an entity is linked to, for linking in documents. Wikidata, OBO.
        scopes: Scopes of synonyms: EXACT, NARROW, BROAD, RELATED. OBO.
    """

    limit: int | None = None
    languages: tuple[str, ...] = ()
    columns: TableColumns | None = None
    delimiter: str | None = None
    sabs: tuple[str, ...] = ()
    srl_max: int | None = None
    semantic_types: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    require_sitelink: bool = False
    links: bool = False
    scopes: tuple[str, ...] = ()


def all_options() -> Iterator[tuple[FormatOption, tuple[Format, ...]]]:
    """Each option once, with the formats that take it."""
    for option in dict.fromkeys(option for one in FORMATS for option in one.options):
        yield option, tuple(one for one in FORMATS if option in one.options)


def detect_format(paths: Sequence[PathLike], options: ReadOptions | None = None) -> str:
    """The name of the format that the paths show; TSV if they show none.

    Args:
        paths: Files and folders; standard input shows nothing.
        options: Names of columns in them show a CSV file whose header has these names.

    Raises:
        FormatError: If a folder has no known base or several, or two paths show two formats.
    """
    options = options or ReadOptions()
    found: dict[str, str] = {}
    for path in paths:
        if os.fspath(path) == "-":  # standard input can be read only once
            continue
        shown = next((one for one in FORMATS if one.detect(path, options)), None)
        if shown is not None:
            found.setdefault(shown.name, os.fspath(path))
            _check_is_alone(path, shown, options)
    if len(found) > 1:
        listed = ", ".join(f"{path} is {name}" for name, path in found.items())
        raise FormatError(os.fspath(paths[0]), None, f"several formats are given ({listed}). Ingest one base at a time")
    if found:
        return next(iter(found))
    for path in paths:
        if Path(path).is_dir():
            known = " or ".join(f"{one.folder_sign} ({one.title})" for one in FORMATS if one.folder_sign)
            raise FormatError(os.fspath(path), None, f"is a folder without {known}. Name the files in it")
    return TSV.name


def _check_is_alone(path: PathLike, shown: Format, options: ReadOptions) -> None:
    """Refuse a folder that has a base of another format too, which would be skipped silently.

    Raises:
        FormatError: If there is one. Tables do not count: many folders have some that are not bases.
    """
    if not os.path.isdir(path):  # noqa: PTH112 - a path with NUL is no error here
        return
    for child in _children(Path(path)):
        if shown is YAGO and child.name.lower().startswith("yago"):
            continue
        other = next((one for one in FORMATS if not one.is_table and one.detect(child, options)), shown)
        if other is not shown:
            raise FormatError(
                os.fspath(path),
                None,
                f"holds several bases: {shown.name} ({shown.folder_sign}), and {other.name} ({child}). Name the files "
                f"of one of them, or choose format {shown.name}.",
                option="format",
            )


def _children(folder: Path) -> Iterator[Path]:
    """Files in a folder and in its folders, by name."""
    found = chain(sorted(islice(folder.glob("*"), _MAX_ENTRIES)), sorted(islice(folder.glob("*/*"), _MAX_ENTRIES)))
    return (child for child in found if not child.name.startswith(".") and child.is_file())


def open_reader(
    paths: Sequence[PathLike],
    kind: str = "auto",
    options: ReadOptions | None = None,
    *,
    type_map: TypeMap | None = None,
) -> Reader:
    """A reader of these files; close it after use.

    Args:
        paths: Files or folders of one base; ``-`` is standard input, for formats that are one text file.
        kind: One of `FORMAT_NAMES`, or "auto".
        options: What to read.
        type_map: From native types to coarse types; the shipped one by default.

    Raises:
        FormatError: If a path cannot be opened, or is not of the format.
        OptionError: If an option belongs to another format, or its value makes no sense.
    """
    options = options or ReadOptions()
    if kind == "auto":
        kind = detect_format(paths, options)
    chosen = next((one for one in FORMATS if one.name == kind), None)
    if chosen is None:
        raise OptionError("kind", f"'{kind}' is not a format. There are: auto, {', '.join(FORMAT_NAMES)}.")
    _check_options(chosen, options)
    try:
        return chosen.open(paths, options, type_map)
    except (SettingsError, ValueError) as error:  # an option that a reader refuses
        raise OptionError("options", str(error)) from error


def _check_options(chosen: Format, options: ReadOptions) -> None:
    """Refuse an option that the format does not take, instead of ignoring it."""
    defaults = ReadOptions()
    for field in fields(options):
        name = field.name
        if getattr(options, name) != getattr(defaults, name) and not chosen.takes(name):
            takers = ", ".join(one.name for one in FORMATS if one.takes(name))
            raise OptionError(name, f"'{name}' is for {takers}, but the input is read as {chosen.name}.")
