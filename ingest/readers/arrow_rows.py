"""Rows of Parquet files, Arrow IPC files (Feather) and Arrow streams, and of workbooks (xlsx, ods, xls).

Before anything is decompressed, the sizes that a file declares are held against its own size.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingest.io.source import check_expansion
from ingest.io.streams import STDIN, Source, is_workbook
from pearl_qdrant.errors import FormatError
from pearl_qdrant.installing import install_command

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 4096

_MAGICS = {b"PAR1": "Parquet", b"ARROW1": "Arrow"}
_OLD_WORKBOOK = b"\xd0\xcf\x11\xe0"
_MAX_METADATA = 1 << 26
_FRAMES = re.compile(rb"\x04\x22\x4d\x18|\x28\xb5\x2f\xfd")
_MOST_DECLARED = 1 << 40  # bytes
_MAX_SHEETS_SHOWN = 10


def find_container(path: str) -> str | None:
    """What a file is by its first bytes: Parquet, Arrow, Arrow stream, workbook, or None. Never raises."""
    try:
        if path == STDIN or not Path(path).is_file():
            return None
        with Path(path).open("rb") as file:
            head = file.read(8)
    except (OSError, ValueError):
        return None
    for magic, name in _MAGICS.items():
        if head.startswith(magic):
            return name
    if head.startswith(_OLD_WORKBOOK) or (head.startswith(b"PK\x03\x04") and is_workbook(path)):
        return "workbook"
    size = int.from_bytes(head[4:], "little")
    is_stream = head.startswith(b"\xff\xff\xff\xff") and 0 < size < _MAX_METADATA and not size % 8
    return "Arrow stream" if is_stream else None


def read_workbook(path: str, sheet: str | None, notes: list[str]) -> Iterator[list[Any]]:
    """Rows of a sheet: the one that is named, else the first that has cells. Raises FormatError if it is damaged, a
    bomb, or has no such sheet.

    Args:
        sheet: Name of the sheet, or None.
        notes: Gets a line about the sheets.
    """
    from python_calamine import CalamineError, CalamineWorkbook

    _check_zip(path)
    try:
        workbook = CalamineWorkbook.from_path(path)
        names = workbook.sheet_names
        if sheet is not None and sheet not in names:
            message = f"has no sheet '{sheet}' (it has: {', '.join(names[:_MAX_SHEETS_SHOWN])})"
            raise FormatError(path, None, message, option="sheet")
        for name in [sheet] if sheet is not None else names:
            rows = workbook.get_sheet_by_name(name).iter_rows()
            first = next(iter(rows), None)
            if first is not None:
                others = f" of {len(names)} ({', '.join(names[:_MAX_SHEETS_SHOWN])})" if len(names) > 1 else ""
                notes.append(f"workbook, sheet '{name}'{others}")
                yield first
                yield from rows
                return
    except (CalamineError, OSError, ValueError) as error:
        raise FormatError(path, None, f"the workbook is damaged or encrypted ({error})") from error
    raise FormatError(path, None, "is a workbook without cells")


def _check_zip(path: str) -> None:
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as archive:
        n_bytes = sum(info.file_size for info in archive.infolist())
    check_expansion(path, Path(path).stat().st_size, n_bytes, "workbook")


@contextmanager
def open_arrow(path: str, container: str) -> Iterator[tuple[pa.Schema, Iterator[list[list[Any]]]]]:
    """The schema of a file, and its rows in batches. Raises FormatError if pyarrow is not installed, or the file is
    damaged or a bomb; with the row that was reached.
    """
    try:
        import pyarrow as pa
    except ModuleNotFoundError as error:
        message = f"{container} files need pyarrow, which is not installed. Install it with: {install_command('arrow')}"
        raise FormatError(path, None, message) from error
    done = [0]
    try:
        if container == "Parquet":
            import pyarrow.parquet as pq

            with pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False, page_checksum_verification=True) as file:
                size, metadata = Path(path).stat().st_size, file.metadata
                for i in range(metadata.num_row_groups):
                    check_expansion(path, size, metadata.row_group(i).total_byte_size, container)
                # One thread: the others encode.
                batches = file.iter_batches(batch_size=BATCH_ROWS, use_threads=False)
                yield file.schema_arrow, _rows(batches, done)
        else:
            _check_declared(path, container)
            with pa.memory_map(path) as mapped:
                if container == "Arrow":
                    reader = pa.ipc.open_file(mapped)
                    batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
                else:
                    reader = batches = pa.ipc.open_stream(mapped)
                yield reader.schema, _rows(batches, done)
    except (pa.ArrowException, OSError, MemoryError, UnicodeError, OverflowError, ValueError) as error:
        if isinstance(error, FormatError):
            raise
        text = " ".join(str(error).split())[:300]
        message = f"the {container} data is damaged or cut off ({text or type(error).__name__}). Fetch it again"
        raise FormatError(path, done[0] or None, f"after this row, {message}" if done[0] else message) from error


def _rows(batches: Any, done: list[int]) -> Iterator[list[list[Any]]]:
    """Rows of Python values; offsets and indices are checked before anything follows them."""
    import pyarrow as pa

    for batch in batches:
        for start in range(0, batch.num_rows, BATCH_ROWS):
            part = batch.slice(start, BATCH_ROWS)
            part.validate()
            columns = []
            for column in part.columns:
                try:
                    column.validate(full=True)  # a wrong offset would crash the process
                except pa.ArrowInvalid as error:
                    if "UTF8" not in str(error):  # such texts are refused row by row
                        raise
                if pa.types.is_dictionary(column.type):
                    column = column.dictionary_decode()
                columns.append(_values(column))
            yield [list(row) for row in zip(*columns, strict=True)]
            done[0] += part.num_rows


def _values(column: pa.Array) -> list[Any]:
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except UnicodeDecodeError:  # some text is no UTF-8: bytes, which are decoded, or refused, row by row
        import pyarrow as pa

        return column.cast(pa.large_binary()).to_pylist()  # type: ignore[no-any-return]


def _check_declared(path: str, container: str) -> None:
    """Hold the sizes that compressed buffers declare against the size of the file.

    Each buffer of a compressed batch has the bytes that it will have, as eight bytes, and then a frame of LZ4 or zstd
    (Arrow's format, "Compression"); all of them begin at a multiple of eight. Other bytes may look so in a file of
    gigabytes, but rarely with a size below `_MOST_DECLARED`, beyond which pyarrow finds no memory.
    """
    size = Path(path).stat().st_size
    with Path(path).open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
        places = (match.start() - 8 for match in _FRAMES.finditer(data) if match.start() % 8 == 0)
        sizes = (int.from_bytes(data[at : at + 8], "little") for at in places if at > 0)
        check_expansion(path, size, sum(one for one in sizes if one < _MOST_DECLARED), container)


def check_path(path: str) -> str:
    """What a file is; see `find_container`. Raises FormatError if it cannot be opened, or is another kind of file."""
    if path == STDIN:
        raise FormatError(path, None, "Parquet, Arrow and workbooks are read from files, not from standard input")
    container = find_container(path)
    if container is None:
        if not Path(path).is_fifo():
            Source(path).close()  # raises an error that explains what is wrong with the path
        message = "is no Parquet file, Arrow file or workbook (its first bytes are others). If it is compressed, "
        raise FormatError(path, None, f"{message}decompress it")
    return container
