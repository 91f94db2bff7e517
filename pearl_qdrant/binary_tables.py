"""Tables in binary files: Parquet, Arrow and workbooks, read by a process of their own.

The libraries that read them trust them: a workbook of 1 kB with two cells in opposite corners, or a Parquet file of
3 kB whose rows share one long text, make them take gigabytes, or abort. No check knows each such trick. So they work in
a child (`child.py`), which the system allows as much memory and processor time as a file of this size may need, and
what they give is counted against the size of the file. Where a limit is hit, the child ends, and its parent has an
error.

A child that has read a file waits a little for the next one. It sends rows in frames of at most `BATCH_ROWS`, column by
column, one for each request; the next is asked for before the last is used, so that both processes work.

Run by itself (``python -m pearl_qdrant.binary_tables``), this module is the child.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import pickle
import re
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from pearl_qdrant import child
from pearl_qdrant.errors import FormatError, InputError
from pearl_qdrant.installing import install_command
from pearl_qdrant.settings import MAX_RATIO, RATIO_GRACE

if TYPE_CHECKING:
    import pyarrow as pa

Kind = Literal["Parquet", "Arrow", "Arrow stream", "workbook"]

BATCH_ROWS = 4096  # rows in a frame
_FRAME_BYTES = 1 << 22  # of rows in a frame, once their size is known

MEMORY_BYTES = 512 << 20
MEMORY_RATIO = 10
"""Memory of a child: so many bytes, and so many times the size of the file. A workbook of a million rows, five columns
and 95 MB takes 660 MB, Parquet of the same rows 100 MB."""

CPU_S = 10
CPU_MB = 1.0
"""Seconds of the processor for each frame, and for each so many MB of the file: the workbook takes 12 to its first."""

_ROW_BYTES = 64  # that a row counts beside its cells: it takes as many here, and a file may repeat it without end
_MOST_LEFT_BYTES = 256 << 20  # that libraries may keep after a file
_IDLE_S = 10  # after which a child ends that has no file to read
_MOST_SHEETS = 10  # that a message names

CheckExpansion = Callable[[str, int, int, str], None]
"""Raises FormatError for a path where so many stored bytes become too many of a kind of file."""


def check_expansion(
    path: str, n_stored: int, n_written: int, kind: str, *, grace: int = RATIO_GRACE, ratio: int = MAX_RATIO
) -> None:
    """Refuse a decompression bomb: one rule for every container. Raises FormatError if the bytes that `n_stored`
    become, decompressed or declared, are over `grace`, and over `ratio` times as many.
    """
    if n_written > grace and n_written > ratio * n_stored:
        message = (
            f"its {kind} data expands from {n_stored:,} to over {n_written:,} bytes, as no base of names does (limit: "
            f"{ratio} times). If the file is sound, decompress it first"
        )
        raise FormatError(path, None, message)


@dataclass(frozen=True, slots=True)
class OpenedTable:
    """A table that a child has open.

    Attributes:
        columns: Their names; none of a workbook.
        about: Of a workbook, its sheets.
        schema: Of Parquet and Arrow, as `pyarrow.ipc.read_schema` takes it.
        rows: Their numbers, from 1, and their values. Blank rows of a workbook may lack. Raises FormatError if the file
            is damaged, or needs more than the child may take; with the row that was reached.
    """

    columns: list[str]
    about: str
    schema: bytes
    rows: Iterator[tuple[int, list[Any]]]


@contextmanager
def open_table(
    path: str,
    kind: Kind,
    *,
    sheet: str | None = None,
    batch_rows: int = BATCH_ROWS,
    check: CheckExpansion = check_expansion,
) -> Iterator[OpenedTable]:
    """Open a file for the block; of a workbook the sheet that is named, else the first with cells.

    Raises FormatError if the library of its kind is not installed, the file is damaged or needs too much memory, or has
    no such sheet; InputError if no process can be started.
    """
    library = "python_calamine" if kind == "workbook" else "pyarrow"
    if importlib.util.find_spec(library) is None:
        advice = install_command("workbooks") if kind == "workbook" else install_command("arrow")
        raise FormatError(path, None, f"{kind} files need {library}, which is not installed. Install it with: {advice}")
    reading = _Reading(path, kind, check)
    try:
        columns, about, schema, declared = reading.open(sheet, batch_rows)
        check(path, reading.size, declared, kind)
        yield OpenedTable(columns, about, schema, reading.rows())
    finally:
        reading.close()


_OPEN, _NEXT, _CLOSE = b"O", b"N", b"C"  # requests; the last has no answer
_OPENED, _ROWS, _END = b"o", b"r", b"e"  # answers
_DAMAGED, _REFUSED, _TOO_MUCH, _FAILED = b"d", b"s", b"m", b"f"  # answers, with what is wrong


class _Reading:
    """One file that a child reads."""

    def __init__(self, path: str, kind: Kind, check: CheckExpansion) -> None:
        self._path, self._kind, self._check = path, kind, check
        self._child: child.ChildProcess | None = None
        self._n_asked = 0  # frames that were asked for and not received
        self._is_between = True  # frames: none is received in part
        self._done = 0  # the last row that was received
        self.size = 0

    def open(self, sheet: str | None, batch_rows: int) -> tuple[list[str], str, bytes, int]:
        """The columns, sheets and schema, and how many bytes the file says that it has decompressed."""
        try:
            self.size = Path(self._path).stat().st_size
        except OSError as error:
            raise InputError(self._path, None, f"reading failed: {error.strerror or error}") from error
        job = os.path.abspath(self._path), self._kind, sheet, batch_rows, self.size  # noqa: PTH100 - links stay
        while True:
            try:
                self._child, is_new = _children.take()
            except OSError as error:
                message = f"no process can be started that reads it ({error.strerror or error})"
                raise InputError(self._path, None, f"{message}. End other programs, or free some space") from error
            self._ask(_OPEN, job)
            frame = self._receive()
            if frame is not None or is_new:
                break
            self._drop()  # it ended while it waited
        opened: tuple[list[str], str, bytes, int] = self._checked(frame, _OPENED)
        return opened

    def rows(self) -> Iterator[tuple[int, list[Any]]]:
        self._ask(_NEXT)
        n_bytes = 0
        while (frame := self._receive()) is None or frame[0] != _END:
            start, packed = self._checked(frame, _ROWS)
            n_bytes += len(packed)
            self._check(self._path, self.size, n_bytes, self._kind)
            self._ask(_NEXT)  # which the child reads meanwhile
            columns = pickle.loads(packed)  # noqa: S301 - our own child packed it
            n_bytes += _ROW_BYTES * len(columns[0] if columns else ())
            number = start
            for number, row in enumerate(map(list, zip(*columns, strict=True)), start):
                yield number, row
            self._done = number

    def _ask(self, kind: bytes, body: object = b"") -> None:
        assert self._child is not None
        self._child.send(kind, body)
        self._n_asked += 1

    def _receive(self) -> tuple[bytes, Any] | None:
        assert self._child is not None
        self._is_between = False
        frame = self._child.receive()
        self._n_asked -= 1
        self._is_between = True
        return frame

    def close(self) -> None:
        """Let the child read another file; end one that did not answer, or whose answer was not read to its end."""
        try:
            while self._child is not None and self._is_between and self._n_asked:
                if self._receive() is None:
                    break
            if self._child is not None and self._is_between and not self._n_asked:
                reader, self._child = self._child, None
                reader.send(_CLOSE)
                _children.give_back(reader)
        finally:
            self._drop()

    def _checked(self, frame: tuple[bytes, Any] | None, wanted: bytes) -> Any:
        """What an answer has; raises the error that it reports, or of a child that died."""
        if frame is not None and frame[0] == wanted:
            return frame[1]
        if frame is None:
            assert self._child is not None
            frame = _why_died(*self._child.ended())
            self._drop()
        what, text = frame
        row = self._done or None
        if what == _FAILED:
            raise InputError(self._path, row, f"the process that reads it {text}")
        if what == _TOO_MUCH:
            text = (
                f"the {self._kind} data takes {text}, as no sound file of {self.size:,} bytes does: it is damaged, or "
                f"made to do harm. If it is sound, export it as CSV"
            )
        elif what == _DAMAGED:
            is_book, damage = self._kind == "workbook", f"the {self._kind} data is damaged or cut off ({text})"
            text = f"the workbook is damaged or encrypted ({text})" if is_book else f"{damage}. Fetch it again"
        raise FormatError(
            self._path,
            row,
            f"after this row, {text}" if row else text,
            option="sheet" if what == _REFUSED and "sheet '" in text else None,
        )

    def _drop(self) -> None:
        reader, self._child = self._child, None
        if reader is not None:
            reader.kill()
            reader.end()


def _why_died(code: int, output: str) -> tuple[bytes, str]:
    """The answer that a child owes which died."""
    if -code == getattr(signal, "SIGXCPU", None):
        return _TOO_MUCH, "more of the processor's time"
    if -code in (getattr(signal, "SIGKILL", None), signal.SIGTERM):
        return _FAILED, f"{child.why_ended(code)}, perhaps because memory ran out. End other programs, and try again"
    if any(sign in output.lower() for sign in ("memory allocation of", "bad_alloc", "memoryerror", "out of memory")):
        return _TOO_MUCH, "more memory"
    return _DAMAGED, f"what reads it {child.why_ended(code)}"


class _Children:
    """The children of this process that wait for a file to read; one at most is kept."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[child.ChildProcess] = []
        self._of_parent: list[child.ChildProcess] = []  # of the process that forked this one: not to be touched
        self._is_registered = False

    def take(self) -> tuple[child.ChildProcess, bool]:
        """A child, and whether it is new; raises OSError if it cannot be started."""
        with self._lock:
            if not self._is_registered:
                self._is_registered = True
                atexit.register(self.end)
                if hasattr(os, "register_at_fork"):
                    os.register_at_fork(after_in_child=self._forget)
            if self._idle:
                return self._idle.pop(), False
        # Its own pools of threads and memory would take address space that is counted.
        environment = {"ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
        environment["RUST_BACKTRACE"] = "0"  # it would push what went wrong out of the last output
        return child.ChildProcess("pearl_qdrant.binary_tables", environment=environment), True

    def give_back(self, reader: child.ChildProcess) -> None:
        with self._lock:
            self._idle.append(reader)
            left = self._idle[:-1]
            del self._idle[:-1]
        for one in left:
            one.end()

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._of_parent += self._idle
        self._idle = []

    def end(self) -> None:
        with self._lock:
            left, self._idle = self._idle, []
        for one in left:
            one.kill()
            one.end()


_children = _Children()


def end_children() -> None:
    """End the processes that wait for a file to read."""
    _children.end()


class _RefusedError(Exception):
    """A workbook has no sheet of that name, or no cells."""


def _read(path: str, kind: Kind, sheet: str | None, batch_rows: int) -> Iterator[Any]:
    """In the child: columns, sheets, schema and declared bytes of a file, then rows, column by column."""
    if kind == "workbook":
        yield from _read_workbook(path, sheet, batch_rows)
        return
    import pyarrow as pa

    pa.set_cpu_count(1)  # more threads take memory, and the parent works beside
    pa.set_io_thread_count(1)
    if kind == "Parquet":
        import pyarrow.parquet as pq

        with pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False, page_checksum_verification=True) as file:
            metadata = file.metadata
            groups = (metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
            yield [*file.schema_arrow.names], "", _packed_schema(file.schema_arrow), max(groups, default=0)
            yield from _frames(file.iter_batches(batch_size=batch_rows, use_threads=False), batch_rows)
        return
    declared = _declared(path)
    with pa.memory_map(path) as mapped:
        if kind == "Arrow":
            reader = pa.ipc.open_file(mapped)
            batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
        else:
            reader = batches = pa.ipc.open_stream(mapped)
        yield [*reader.schema.names], "", _packed_schema(reader.schema), declared
        yield from _frames(batches, batch_rows)


def _packed_schema(schema: pa.Schema) -> bytes:
    return schema.serialize().to_pybytes()  # type: ignore[no-any-return]


def _frames(batches: Any, batch_rows: int) -> Iterator[tuple[int, bytes]]:
    """Rows of Python values; offsets and indices are checked before anything follows them."""
    import pyarrow as pa

    done, n_rows = 0, 16
    for batch in batches:
        start = 0
        while start < batch.num_rows:
            part = batch.slice(start, min(n_rows, batch_rows))
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
            packed = _packed(columns)
            yield done + start + 1, packed
            start += part.num_rows
            n_rows = _next_rows(part.num_rows, len(packed))
        done += batch.num_rows


def _values(column: pa.Array) -> list[Any]:
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except UnicodeDecodeError:  # some text is no UTF-8: bytes, which are decoded, or refused, row by row
        import pyarrow as pa

        return column.cast(pa.large_binary()).to_pylist()  # type: ignore[no-any-return]


def _packed(columns: Sequence[Sequence[Any]]) -> bytes:
    return pickle.dumps(columns, protocol=pickle.HIGHEST_PROTOCOL)


def _next_rows(n_rows: int, n_bytes: int) -> int:
    """How many rows the next frame has: more, up to its bytes, after one of few."""
    return max(1, min(4 * n_rows, BATCH_ROWS, n_rows * _FRAME_BYTES // max(1, n_bytes)))


_FRAME_MAGICS = re.compile(rb"\x04\x22\x4d\x18|\x28\xb5\x2f\xfd")
_MOST_DECLARED = 1 << 40  # bytes


def _declared(path: str) -> int:
    """The bytes that compressed buffers of an Arrow file declare.

    Each buffer of a compressed batch has the bytes that it will have, as eight bytes, and then a frame of LZ4 or zstd
    (Arrow's format, "Compression"); all of them begin at a multiple of eight. Other bytes may look so in a file of
    gigabytes, but rarely with a size below `_MOST_DECLARED`, beyond which pyarrow finds no memory.
    """
    with Path(path).open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
        places = (match.start() - 8 for match in _FRAME_MAGICS.finditer(data) if match.start() % 8 == 0)
        sizes = (int.from_bytes(data[at : at + 8], "little") for at in places if at > 0)
        return sum(one for one in sizes if one < _MOST_DECLARED)


_parsed: dict[tuple[object, ...], tuple[str, Any]] = {}
"""In the child: the sheet that was read last, by its file as it was, and what is said of it. A base is read twice, and
a sheet is parsed as a whole before its first row.
"""


def _key(path: str, sheet: str | None) -> tuple[object, ...]:
    status = Path(path).stat()
    return path, sheet, status.st_ino, status.st_size, status.st_mtime_ns


def _parse_sheet(path: str, sheet: str | None) -> tuple[str, Any]:
    from python_calamine import CalamineWorkbook

    workbook = CalamineWorkbook.from_path(path)
    names = workbook.sheet_names
    shown = ", ".join(names[:_MOST_SHEETS])
    if sheet is not None and sheet not in names:
        raise _RefusedError(f"has no sheet '{sheet}' (it has: {shown})")
    for name in [sheet] if sheet is not None else names:
        found = workbook.get_sheet_by_name(name)
        if next(iter(found.iter_rows()), None) is not None:
            return f"workbook, sheet '{name}'" + (f" of {len(names)} ({shown})" if len(names) > 1 else ""), found
    raise _RefusedError("is a workbook without cells")


def _read_workbook(path: str, sheet: str | None, batch_rows: int) -> Iterator[Any]:
    key = _key(path, sheet)
    if key not in _parsed:
        _parsed[key] = _parse_sheet(path, sheet)
    about, parsed = _parsed[key]
    yield [], about, b"", 0
    rows = iter(parsed.iter_rows())
    number, n_rows = 1, 16
    while part := list(islice(rows, min(n_rows, batch_rows))):
        if part.count([""] * len(part[0])) < len(part):
            packed = _packed([*zip(*part, strict=True)])
            yield number, packed
            n_rows = _next_rows(len(part), len(packed))
        number += len(part)


def _answer(answers: IO[bytes], reading: Iterator[Any], kind: bytes) -> Iterator[Any] | None:
    """Send what a file gives next; returns what gives the rest, or None at the end and after an error."""
    try:
        answer = next(reading, None)
    except MemoryError:
        child.send(answers, _TOO_MUCH, "more memory")
    except _RefusedError as error:
        child.send(answers, _REFUSED, str(error))
    except BaseException as error:  # noqa: BLE001 - a panic of calamine is no Exception
        text = " ".join(str(error).split())[:300]
        child.send(answers, _DAMAGED, text or type(error).__name__)
    else:
        child.send(answers, _END if answer is None else kind, answer)
        return None if answer is None else reading
    return None


def main() -> None:
    """Read the files that the parent asks for, one after the other, until it has closed the pipe."""
    requests, answers = child.begin()
    at_first = child.memory_used()
    reading: Iterator[Any] | None = None
    size = 0
    while True:
        _end_after(_IDLE_S if reading is None else 0)
        frame = child.receive(requests)
        _end_after(0)
        if frame is None:
            return
        if frame[0] == _CLOSE:
            reading = None
            continue
        if frame[0] == _OPEN:
            reading, (path, kind, sheet, batch_rows, size) = None, frame[1]
            if kind != "workbook" or _key(path, sheet) not in _parsed:
                _parsed.clear()
                if child.memory_used() > at_first + _MOST_LEFT_BYTES:
                    return  # the parent starts another one
            child.limit_memory(at_first + MEMORY_BYTES + MEMORY_RATIO * size)
            reading = _read(path, kind, sheet, batch_rows)
        child.limit_processor(CPU_S + int(CPU_MB * size / 1e6))
        if reading is None:
            child.send(answers, _END)
        else:
            reading = _answer(answers, reading, _OPENED if frame[0] == _OPEN else _ROWS)


def _end_after(seconds: int) -> None:
    """Let the system end this process later; 0: not any more."""
    if hasattr(signal, "alarm"):
        signal.alarm(seconds)


if __name__ == "__main__":
    with suppress(BrokenPipeError):  # the parent has ended, or does not want the rest
        main()
