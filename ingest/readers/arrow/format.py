"""Parquet and Arrow as a format of the registry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ingest.base.format import Format, PathLike
from ingest.readers.tables.options import COLUMN_OPTIONS

if TYPE_CHECKING:
    from ingest.base.reader import Reader
    from ingest.base.type_map import TypeMap
    from ingest.formats import ReadOptions


def _detect(path: PathLike, options: ReadOptions) -> bool:
    from ingest.readers.arrow.files import find_container

    return find_container(path) is not None


def _open(paths: Sequence[PathLike], options: ReadOptions, type_map: TypeMap | None) -> Reader:
    from ingest.readers.arrow.reader import ArrowReader

    return ArrowReader(paths, options.columns, type_map=type_map, limit=options.limit)


FORMAT = Format(
    "parquet", "Parquet", _detect, _open, COLUMN_OPTIONS, is_table=True, endings=("parquet", "arrow", "feather")
)
