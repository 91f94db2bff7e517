"""Which reader reads what: formats by name, or told by structure, never by a file's name alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from pearl_qdrant.errors import FormatError, OptionError, SettingsError

if TYPE_CHECKING:
    from ingest.base.reader import Reader
    from ingest.base.type_map import TypeMap
    from ingest.readers.tsv.layout import TsvColumns

FORMATS = ("tsv", "umls", "yago", "wikidata", "obo")

_Test = Callable[["str | os.PathLike[str]"], bool]

_MAX_ENTRIES = 1000  # of a folder that are looked at: a release has some 50 files


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What to read; an option left as it is lets the reader's own default stand.

    Attributes:
        limit: So many entities at most. Every format.
        languages: Of names, the preferred one first. UMLS, YAGO, Wikidata.
        columns: TSV.
        sabs: Source vocabularies. UMLS.
        srl_max: Highest restriction level. UMLS.
        semantic_types: TUI, name, tree number or group. UMLS.
        classes: QIDs of whose instances and subclasses alone are wanted. Wikidata.
        require_sitelink: Only items with a page in some Wikimedia project. Wikidata.
        scopes: Of synonyms: EXACT, NARROW, BROAD, RELATED. OBO.
    """

    limit: int | None = None
    languages: tuple[str, ...] = ()
    columns: TsvColumns | None = None
    sabs: tuple[str, ...] = ()
    srl_max: int | None = None
    semantic_types: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    require_sitelink: bool = False
    scopes: tuple[str, ...] = ()


_OF_FORMAT = {
    "tsv": {"columns"},
    "umls": {"languages", "sabs", "srl_max", "semantic_types"},
    "yago": {"languages"},
    "wikidata": {"languages", "classes", "require_sitelink"},
    "obo": {"scopes"},
}


def detect_format(paths: Sequence[str | os.PathLike[str]]) -> str:
    """The format that the paths show; TSV where none does.

    Raises:
        FormatError: If a path is a folder of nothing that is known or of several bases, or two paths show two formats.
    """
    from ingest.readers.obo.reader import is_obo
    from ingest.readers.umls.reader import is_umls
    from ingest.readers.wikidata.reader import is_wikidata
    from ingest.readers.yago.files import is_yago

    tests = {"umls": is_umls, "yago": is_yago, "wikidata": is_wikidata, "obo": is_obo}
    found: dict[str, str] = {}
    for path in paths:
        for name, is_it in tests.items():
            if is_it(path):
                found.setdefault(name, os.fspath(path))
                _check_is_alone(path, name, tests)
                break
    if len(found) > 1:
        shown = ", ".join(f"{path} is {name}" for name, path in found.items())
        raise FormatError(os.fspath(paths[0]), None, f"several formats are given ({shown}). Ingest one base at a time")
    if found:
        return next(iter(found))
    for path in paths:
        if Path(path).is_dir():
            known = "MRCONSO.RRF (UMLS) or yago-facts.ttl (YAGO)"
            raise FormatError(os.fspath(path), None, f"is a folder without {known}. Name the files in it")
    return "tsv"


def _check_is_alone(path: str | os.PathLike[str], kind: str, tests: Mapping[str, _Test]) -> None:
    """Refuse a folder in which a base of another format lies too: it would be left out without a word.

    Raises:
        FormatError: If there is one; a table of names without a header is not told from any other text.
    """
    if not os.path.isdir(path):  # noqa: PTH112 - a path with NUL is no error here
        return
    for child in _children(Path(path)):
        if kind == "yago" and child.name.lower().startswith("yago"):
            continue
        other = next((name for name, is_it in tests.items() if is_it(child)), kind)
        if other != kind:
            raise FormatError(
                os.fspath(path),
                None,
                f"holds several bases: {kind} ({_SIGNS[kind]}), and {other} ({child}). Name the files of one of them, "
                f"or take the {kind} one with --format {kind}",
            )


_SIGNS = {"umls": "MRCONSO.RRF", "yago": "files named yago-..."}


def _children(folder: Path) -> Iterator[Path]:
    """Files in a folder, and in the folders in it, by name."""
    found = chain(sorted(islice(folder.glob("*"), _MAX_ENTRIES)), sorted(islice(folder.glob("*/*"), _MAX_ENTRIES)))
    return (child for child in found if not child.name.startswith(".") and child.is_file())


def open_reader(
    paths: Sequence[str | os.PathLike[str]],
    kind: str = "auto",
    options: ReadOptions | None = None,
    *,
    type_map: TypeMap | None = None,
) -> Reader:
    """A reader of these files, to be closed after use.

    Args:
        paths: Files or folders of one base; ``-`` is standard input (TSV, Wikidata, OBO).
        kind: One of `FORMATS`, or "auto".
        options: What to read.
        type_map: From native types to coarse types; the shipped one by default.

    Raises:
        FormatError: If a path cannot be opened, or is not of the format.
        OptionError: If an option is of another format, or makes no sense.
    """
    options = options or ReadOptions()
    if kind == "auto":
        kind = detect_format(paths)
    _check_options(kind, options)
    try:
        return _open(paths, kind, options, type_map)
    except (SettingsError, ValueError) as error:  # an option that a reader refuses
        raise OptionError("options", str(error)) from error


def _open(paths: Sequence[str | os.PathLike[str]], kind: str, options: ReadOptions, type_map: TypeMap | None) -> Reader:
    languages = options.languages or ("en",)
    limit = options.limit
    if kind == "umls":
        from ingest.readers.umls.reader import UmlsOptions, UmlsReader

        umls = UmlsOptions(languages, options.sabs, options.srl_max, semantic_types=options.semantic_types)
        return UmlsReader(paths, umls, type_map=type_map, limit=limit)
    if kind == "yago":
        from ingest.readers.yago.reader import YagoOptions, YagoReader

        return YagoReader(paths, YagoOptions(languages), type_map=type_map, limit=limit)
    if kind == "wikidata":
        from ingest.readers.wikidata.reader import WikidataOptions, WikidataReader

        wikidata = WikidataOptions(languages, options.require_sitelink, include_types=options.classes)
        return WikidataReader(paths, wikidata, type_map=type_map, limit=limit)
    if kind == "obo":
        from ingest.readers.obo.reader import OboOptions, OboReader

        return OboReader(paths, OboOptions(options.scopes or ("EXACT",)), type_map=type_map, limit=limit)
    from ingest.readers.tsv.reader import TsvReader

    return TsvReader(paths, options.columns, type_map=type_map, limit=limit)


def _check_options(kind: str, options: ReadOptions) -> None:
    """Refuse an option that the format does not know, rather than ignore it."""
    defaults = ReadOptions()
    for one in fields(options):
        name = one.name
        is_given = getattr(options, name) != getattr(defaults, name)
        if is_given and name != "limit" and name not in _OF_FORMAT[kind]:
            of = ", ".join(known for known, names in _OF_FORMAT.items() if name in names)
            raise OptionError(name, f"'{name}' is for {of}, but the input is read as {kind}.")
