"""YAGO as a format of the registry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ingest.base.format import LANGUAGE, Format, PathLike

if TYPE_CHECKING:
    from ingest.base.reader import Reader
    from ingest.base.type_map import TypeMap
    from ingest.formats import ReadOptions


def _detect(path: PathLike, options: ReadOptions) -> bool:
    from ingest.readers.yago.files import is_yago

    return is_yago(path)


def _open(paths: Sequence[PathLike], options: ReadOptions, type_map: TypeMap | None) -> Reader:
    from ingest.readers.yago.reader import YagoOptions, YagoReader

    return YagoReader(paths, YagoOptions(options.languages or ("en",)), type_map=type_map, limit=options.limit)


FORMAT = Format(
    "yago", "YAGO", _detect, _open, (LANGUAGE,), folder_sign="files named yago-...", endings=("ttl", "nt", "tsv")
)
