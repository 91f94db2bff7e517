"""Parquet files and Arrow IPC files and streams as batches of rows.

Only one row group's pages, or one slice of a record batch, are in memory at a time; Arrow files are mapped, so that a
file with a single large batch needs no additional memory. Everything is checked before it is used: offsets that point
outside of a buffer would end the process.
"""

from __future__ import annotations

import os
import stat
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingest.base.format import PathLike
from ingest.io.decompress import check_expansion
from ingest.io.streams import STDIN, Source
from pearl_qdrant.errors import FormatError
from pearl_qdrant.installing import install_command

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 1 << 10
"""Rows converted at a time. A dictionary can make each of them as long as its longest value, so not more."""

_BUFFER_BYTES = 1 << 20  # of a column of Parquet that is read at a time; by default it is the whole column

_MAX_METADATA = 1 << 28  # of an Arrow stream's first message, to tell it from other files that begin with FF


class Container(Enum):
    """How a file stores its table."""

    PARQUET = "Parquet"
    ARROW_FILE = "Arrow file"
    ARROW_STREAM = "Arrow stream"


def find_container(path: PathLike) -> Container | None:
    """What a file's first bytes show; None for other files, standard input, pipes and folders. Never raises."""
    try:
        if os.fspath(path) == STDIN or not stat.S_ISREG(Path(path).stat().st_mode):
            return None
        with Path(path).open("rb") as file:
            head = file.read(8)
    except (OSError, ValueError):
        return None
    if head.startswith(b"PAR1"):
        return Container.PARQUET
    if head.startswith(b"ARROW1"):
        return Container.ARROW_FILE
    # A stream begins with a marker and the size of the message with the schema, which is a multiple of 8.
    size = int.from_bytes(head[4:], "little")
    is_stream = head.startswith(b"\xff\xff\xff\xff") and 0 < size < _MAX_METADATA and not size % 8
    return Container.ARROW_STREAM if is_stream else None


def check_path(path: str) -> Container:
    """How a file stores its table.

    Raises:
        FormatError: If it cannot be opened, or is not a Parquet or Arrow file.
    """
    if path == STDIN:
        raise FormatError(path, None, "Parquet and Arrow are read from files, not from standard input. Name the file")
    container = find_container(path)
    if container is None:
        if not Path(path).is_fifo():
            Source(path).close()  # raises an error that explains what is wrong with the path
        message = "is not a Parquet or Arrow file (its first bytes are others). If it is compressed, decompress it"
        raise FormatError(path, None, message)
    return container


def check_installed(path: str) -> None:
    """Import pyarrow.

    Raises:
        FormatError: If it is not installed; the message has the command that installs it.
    """
    try:
        import pyarrow  # noqa: F401
    except ModuleNotFoundError as error:
        message = "Parquet and Arrow files need pyarrow, which is not installed. Install it with: "
        raise FormatError(path, None, message + install_command("arrow")) from error


class ArrowTable:
    """An open table.

    Attributes:
        schema: Names and types of the columns.
        n_done: Rows given out so far, and those before the first one that is read, for errors.
    """

    def __init__(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch], n_before: int = 0) -> None:
        self.schema = schema
        self.n_done = n_before
        self._batches = batches

    def batches(self) -> Iterator[pa.RecordBatch]:
        """At most `BATCH_ROWS` rows each, whose offsets and indices are sound; text may still be bad UTF-8."""
        for batch in self._batches:
            for start in range(0, batch.num_rows, BATCH_ROWS):
                part = batch.slice(start, BATCH_ROWS)
                yield part
                self.n_done += part.num_rows


@contextmanager
def open_table(path: str, container: Container, *, first_row: int = 0) -> Iterator[ArrowTable]:
    """Open a file; damage that shows while it is read is an error with the number of the row that was reached.

    Args:
        path: The file.
        container: How it stores its table.
        first_row: Of Parquet: row groups that end before this row, from 0, are not read.

    Raises:
        FormatError: If it is damaged, or is a bomb.
    """
    import pyarrow as pa

    table = None
    try:
        if container is Container.PARQUET:
            import pyarrow.parquet as pq

            with pq.ParquetFile(
                path, buffer_size=_BUFFER_BYTES, pre_buffer=False, page_checksum_verification=True
            ) as file:
                _check_size(path, file.metadata)
                starts = group_starts(file.metadata)
                groups = range(max(0, bisect_right(starts, first_row) - 1), len(starts))
                # One thread: the others encode.
                batches = file.iter_batches(batch_size=BATCH_ROWS, row_groups=[*groups], use_threads=False)
                table = ArrowTable(file.schema_arrow, batches, starts[groups[0]] if groups else 0)
                yield table
        else:
            with pa.memory_map(path) as mapped:
                table = _open_ipc(mapped, container)
                yield table
    except (pa.ArrowException, OSError, MemoryError, UnicodeError, OverflowError) as error:
        reached = table.n_done if table is not None else 0
        text = " ".join(str(error).split())[:300]
        message = f"the {container.value} data is damaged or cut off ({text or type(error).__name__}). Fetch it again"
        raise FormatError(path, reached or None, f"after this row, {message}" if reached else message) from error


def group_starts(metadata: Any) -> list[int]:
    """The first row of each row group of a Parquet file, from 0."""
    sizes = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    return [0, *accumulate(sizes[:-1])] if sizes else []


def group_sizes(path: str) -> tuple[list[int], list[int], int]:
    """The first row of each row group of a Parquet file, its bytes without compression, and the rows of the file.

    Raises:
        FormatError: If it is damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_metadata(path)
    except (pa.ArrowException, OSError, MemoryError, UnicodeError, OverflowError) as error:
        raise FormatError(path, None, f"the Parquet data is damaged or cut off ({error}). Fetch it again") from error
    n_bytes = [metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups)]
    return group_starts(metadata), n_bytes, metadata.num_rows


def _open_ipc(mapped: pa.MemoryMappedFile, container: Container) -> ArrowTable:
    import pyarrow as pa

    if container is Container.ARROW_STREAM:
        stream = pa.ipc.open_stream(mapped)
        return ArrowTable(stream.schema, stream)
    file = pa.ipc.open_file(mapped)
    return ArrowTable(file.schema, (file.get_batch(i) for i in range(file.num_record_batches)))


def _check_size(path: str, metadata: Any) -> None:
    """Refuse a file whose columns would take far more memory than the file explains."""
    size = Path(path).stat().st_size
    for i in range(metadata.num_row_groups):
        check_expansion(path, size, metadata.row_group(i).total_byte_size, "Parquet")
