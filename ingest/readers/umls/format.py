"""UMLS as a format of the registry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ingest.base.format import LANGUAGE, Format, FormatOption, PathLike

if TYPE_CHECKING:
    from ingest.base.reader import Reader
    from ingest.base.type_map import TypeMap
    from ingest.formats import ReadOptions

_OPTIONS = (
    LANGUAGE,
    FormatOption("--sab", "sabs", "only this source vocabulary; may be repeated.", "S", is_repeated=True),
    FormatOption("--srl-max", "srl_max", "highest restriction level of a source.", "N", minimum=0),
    FormatOption(
        "--semantic-type", "semantic_types", "TUI, name, tree number or group; may be repeated.", "T", is_repeated=True
    ),
)


def _detect(path: PathLike, options: ReadOptions) -> bool:
    from ingest.readers.umls.files import is_umls

    return is_umls(path)


def _open(paths: Sequence[PathLike], options: ReadOptions, type_map: TypeMap | None) -> Reader:
    from ingest.readers.umls.reader import UmlsOptions, UmlsReader

    chosen = UmlsOptions(
        options.languages or ("en",), options.sabs, options.srl_max, semantic_types=options.semantic_types
    )
    return UmlsReader(paths, chosen, type_map=type_map, limit=options.limit)


FORMAT = Format("umls", "UMLS", _detect, _open, _OPTIONS, folder_sign="MRCONSO.RRF", endings=("rrf",))
