"""Wikidata as a format of the registry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ingest.base.format import LANGUAGE, LINKS, Format, FormatOption, PathLike

if TYPE_CHECKING:
    from ingest.base.reader import Reader
    from ingest.base.type_map import TypeMap
    from ingest.formats import ReadOptions

_OPTIONS = (
    LANGUAGE,
    FormatOption(
        "--class",
        "classes",
        "only instances and subclasses of this class; may be repeated.",
        "QID",
        is_repeated=True,
    ),
    FormatOption(
        "--require-sitelink",
        "require_sitelink",
        "only items that have a page in some Wikimedia project.",
        is_switch=True,
    ),
    LINKS,
)


def _detect(path: PathLike, options: ReadOptions) -> bool:
    from ingest.readers.wikidata.reader import is_wikidata

    return is_wikidata(path)


def _open(paths: Sequence[PathLike], options: ReadOptions, type_map: TypeMap | None) -> Reader:
    from ingest.readers.wikidata.reader import WikidataOptions, WikidataReader

    chosen = WikidataOptions(
        options.languages or ("en",), options.require_sitelink, include_types=options.classes, links=options.links
    )
    return WikidataReader(paths, chosen, type_map=type_map, limit=options.limit)


FORMAT = Format("wikidata", "Wikidata", _detect, _open, _OPTIONS, endings=("json",))
