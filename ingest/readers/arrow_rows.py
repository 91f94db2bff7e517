"""Rows of Parquet files, Arrow IPC files (Feather) and Arrow streams, and of workbooks (xlsx, ods, xls).

Before anything is decompressed, the sizes that a file declares are held against its own size.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
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
            seen = _check_messages(path, container)
            with pa.memory_map(path) as mapped:
                if container == "Arrow":
                    reader = pa.ipc.open_file(mapped)
                    if seen != reader.num_record_batches:
                        raise pa.ArrowInvalid(f"its index has {reader.num_record_batches} batches, it has {seen}")
                    batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
                else:
                    reader = batches = pa.ipc.open_stream(mapped)
                yield reader.schema, _rows(batches, done)
    except (pa.ArrowException, OSError, MemoryError, UnicodeError, OverflowError, ValueError, struct.error) as error:
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
    except UnicodeDecodeError:  # some text is no UTF-8: these stay bytes, which are refused row by row
        import pyarrow as pa

        return [_decode(value) for value in column.cast(pa.large_binary()).to_pylist()]


def _decode(value: bytes | None) -> str | bytes | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return value


def _check_messages(path: str, container: str) -> int:
    """Hold the sizes that compressed buffers declare against the size of the file; returns how many batches it has.

    An Arrow file is a stream behind eight bytes. Each buffer of a compressed batch begins with the bytes that it has
    when it is decompressed (Arrow's format, "Compression").
    """
    import pyarrow as pa

    size, n_batches = Path(path).stat().st_size, 0
    with pa.memory_map(path) as mapped:
        if container == "Arrow":
            mapped.seek(8)
        reader = pa.ipc.MessageReader.open_stream(mapped)
        while True:
            try:
                message = reader.read_next_message()
            except StopIteration:
                return n_batches
            n_batches += message.type == "record batch"
            if message.type in ("record batch", "dictionary"):
                n_bytes = sum(_declared_sizes(message.metadata.to_pybytes(), message.body))
                check_expansion(path, size, n_bytes, container)


def _declared_sizes(metadata: bytes, body: pa.Buffer) -> Iterator[int]:
    """Sizes of the buffers of a message when they are decompressed; none if they are not compressed.

    Reads the FlatBuffers tables Message (2: header), DictionaryBatch (1: data) and RecordBatch (2: buffers,
    3: compression) of Arrow's format.
    """
    message = struct.unpack_from("<I", metadata)[0]
    kind = metadata[_field(metadata, message, 1)] if _field(metadata, message, 1) else 0
    batch = _follow(metadata, _field(metadata, message, 2))
    if kind == 2:  # a dictionary: its batch is inside
        batch = _follow(metadata, _field(metadata, batch, 1))
    place = _field(metadata, batch, 2)
    if not _field(metadata, batch, 3) or not place:
        return
    vector = _follow(metadata, place)
    for i in range(struct.unpack_from("<I", metadata, vector)[0]):
        offset, length = struct.unpack_from("<qq", metadata, vector + 4 + 16 * i)
        if length >= 8 and 0 <= offset <= body.size - 8:
            yield max(0, struct.unpack_from("<q", body, offset)[0])


def _field(data: bytes, table: int, number: int) -> int:
    """Position of a field of a FlatBuffers table; 0 if it is not there."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    if 4 + 2 * number >= struct.unpack_from("<H", data, vtable)[0]:
        return 0
    offset = struct.unpack_from("<H", data, vtable + 4 + 2 * number)[0]
    return table + int(offset) if offset else 0


def _follow(data: bytes, position: int) -> int:
    return position + int(struct.unpack_from("<I", data, position)[0])


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
