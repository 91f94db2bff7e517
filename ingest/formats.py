"""The registry of formats: which can be read, which one a path shows, and opening a reader.

To add a format: a folder in `ingest/readers` whose `format.py` has a `Format`, and a line in `FORMATS` here. An
option that no other format has is one more field of `ReadOptions`; its flag comes from the `Format`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from importlib import import_module
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingest.base.format import HEAD_BYTES, LANGUAGE, LINKS, Format, FormatOption, Head, PathLike
from ingest.io.archive import Archive, is_zip
from ingest.io.streams import STDIN, Source
from ingest.readers.arrow.format import FORMAT as PARQUET
from ingest.readers.csv_files.format import FORMAT as CSV
from ingest.readers.jsonl.format import FORMAT as JSONL
from ingest.readers.tsv.format import FORMAT as TSV
from ingest.readers.umls.format import FORMAT as UMLS
from ingest.readers.wikidata.format import FORMAT as WIKIDATA
from pearl_qdrant.errors import FormatError, InputError, OptionError, SettingsError

if TYPE_CHECKING:
    from ingest.base.reader import Reader
    from ingest.base.type_map import TypeMap
    from ingest.readers.tables.columns import TableColumns

_SCOPES = ("EXACT", "NARROW", "BROAD", "RELATED")
_SCOPE = FormatOption(
    "--synonym-scope",
    "scopes",
    "synonyms of this scope are names; may be repeated. [default: EXACT]",
    is_repeated=True,
    choices=_SCOPES,
)
_CLASS = next(option for option in WIKIDATA.options if option.field == "classes")
_RDF_OPTIONS = (
    LANGUAGE,
    _SCOPE,
    _CLASS,
    LINKS,
    *(
        FormatOption(f"--{kind}-property", f"{kind}_properties", help_, "IRI", is_repeated=True)
        for kind, help_ in (
            ("label", "a property of canonical names, before the known ones; may be repeated."),
            ("alias", "a property of other names; may be repeated."),
            ("type", "a property whose values are types; may be repeated."),
        )
    ),
)


def _by_head(name: str, title: str, module: str, *options: FormatOption, **more: Any) -> Format:
    """A format of a module with `detect(head)` and `open_reader(paths, options, type_map)`."""

    def detect(path: PathLike, options: ReadOptions) -> bool:
        found = import_module(module)
        return any(found.detect(head) for head in _heads(path, inside=bool(more.get("folder_sign"))))

    def open_(paths: Sequence[PathLike], options: ReadOptions, type_map: TypeMap | None) -> Reader:
        reader: Reader = import_module(module).open_reader(paths, options, type_map)
        return reader

    return Format(name, title, detect, open_, options, **more)


def _heads(path: PathLike, *, inside: bool) -> Iterator[Head]:
    """The beginning of a file, or of each file in a folder or zip; none where it cannot be read."""
    with suppress(OSError, ValueError, InputError):
        if os.fspath(path) == STDIN:
            return
        if os.path.isdir(path):  # noqa: PTH112 - a path with NUL is no error here
            for child in _children(Path(path)) if inside else ():
                if child.parent == Path(path):
                    yield from _heads(child, inside=True)
        elif is_zip(path):
            if inside:
                with Archive(path) as archive:
                    for member in archive.members()[:_MAX_ENTRIES]:
                        yield _make_head(member, archive.source(member).head(HEAD_BYTES))
        elif os.path.isfile(path):  # noqa: PTH113
            yield _make_head(os.fspath(path), Source(path).head(HEAD_BYTES))


def _make_head(path: str, data: bytes) -> Head:
    name = re.sub(r"\.(?:gz|bz2|xz|zst)$", "", os.path.basename(path).lower())  # noqa: PTH119
    return Head(path, name, data.removeprefix(b"\xef\xbb\xbf"))


RDF = _by_head(
    "rdf",
    "RDF",
    "ingest.readers.rdf",
    *_RDF_OPTIONS,
    folder_sign="RDF files",
    endings=("ttl", "nt", "nq", "trig", "owl", "rdf", "jsonld"),
)
OBO = _by_head("obo", "OBO", "ingest.readers.obo", _SCOPE, LINKS, endings=("obo",))
OBO_GRAPH = _by_head("obograph", "OBO Graph JSON", "ingest.readers.obo_graph", _SCOPE, LINKS, endings=("json",))

FORMATS: tuple[Format, ...] = (UMLS, OBO_GRAPH, WIKIDATA, RDF, OBO, PARQUET, JSONL, CSV, TSV)
"""In the order in which a path is compared with them. TSV is last: nothing marks a file as TSV."""

FORMAT_NAMES = tuple(one.name for one in FORMATS)

_MAX_ENTRIES = 1000  # files of a folder that are compared: a release has some 50


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What to read. A field with its default value means the reader's own default.

    Attributes:
        limit: Read at most this many entities. Every format.
        languages: Languages of names, the preferred one first; "all" makes all others aliases. UMLS, RDF, Wikidata.
        columns: Which column is what. TSV, CSV, JSON Lines, Parquet.
        delimiter: Character between the columns. CSV.
        sabs: Source vocabularies. UMLS.
        srl_max: Highest restriction level. UMLS.
        semantic_types: TUI, name, tree number or group. UMLS.
        classes: QIDs of classes; only their instances and subclasses are read. Wikidata, RDF.
        require_sitelink: Only items with a page in some Wikimedia project. Wikidata.
        links: Keep the ids of the entities that an entity is linked to, for linking in documents. Wikidata,
            ontologies.
        scopes: Scopes of synonyms: EXACT, NARROW, BROAD, RELATED. Ontologies.
        label_properties: IRIs, or names with a well-known prefix, of properties of canonical names. RDF.
        alias_properties: The same for other names. RDF.
        type_properties: The same for types. RDF.
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
    label_properties: tuple[str, ...] = ()
    alias_properties: tuple[str, ...] = ()
    type_properties: tuple[str, ...] = ()


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
