"""CSV as a format of the registry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ingest.base.format import Format, FormatOption, PathLike
from ingest.readers.tables.options import COLUMN_OPTIONS

if TYPE_CHECKING:
    from ingest.base.reader import Reader
    from ingest.base.type_map import TypeMap
    from ingest.formats import ReadOptions

_DELIMITER = FormatOption(
    "--delimiter", "delimiter", "character between the columns, or tab. [default: found in the first rows]", "C"
)


def _detect(path: PathLike, options: ReadOptions) -> bool:
    from ingest.readers.csv_files.delimiter import is_csv

    return is_csv(path, options.columns)


def _open(paths: Sequence[PathLike], options: ReadOptions, type_map: TypeMap | None) -> Reader:
    from ingest.readers.csv_files.reader import CsvReader

    return CsvReader(paths, options.columns, delimiter=options.delimiter, type_map=type_map, limit=options.limit)


FORMAT = Format("csv", "CSV", _detect, _open, (*COLUMN_OPTIONS, _DELIMITER), is_table=True, endings=("csv",))
