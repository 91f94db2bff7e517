"""OBO as a format of the registry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ingest.base.format import LINKS, Format, FormatOption, PathLike
from ingest.readers.obo.scopes import SCOPES

if TYPE_CHECKING:
    from ingest.base.reader import Reader
    from ingest.base.type_map import TypeMap
    from ingest.formats import ReadOptions

_OPTIONS = (
    FormatOption(
        "--synonym-scope",
        "scopes",
        "synonyms of this scope are names; may be repeated. [default: EXACT]",
        is_repeated=True,
        choices=SCOPES,
    ),
    LINKS,
)


def _detect(path: PathLike, options: ReadOptions) -> bool:
    from ingest.readers.obo.reader import is_obo

    return is_obo(path)


def _open(paths: Sequence[PathLike], options: ReadOptions, type_map: TypeMap | None) -> Reader:
    from ingest.readers.obo.reader import OboOptions, OboReader

    chosen = OboOptions(options.scopes or ("EXACT",), links=options.links)
    return OboReader(paths, chosen, type_map=type_map, limit=options.limit)


FORMAT = Format("obo", "OBO", _detect, _open, _OPTIONS, endings=("obo",))
