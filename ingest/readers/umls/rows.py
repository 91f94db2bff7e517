"""Read rows of RRF files in blocks; numpy finds the positions of the fields before anything is decoded.

RRF is UTF-8, one row a line; each field ends with a bar; there is no quoting and no header. If every row of a block is
sound, the positions of its bars and newlines form a table, (rows, fields + 1), and a column is two vectors of offsets.
A block with a bad row is filtered line by line first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ingest.io import limits
from ingest.io.lines import BadLine, line_blocks
from ingest.io.report import (
    INVALID_UTF8,
    NO_ID,
    NO_NAME,
    NUL_CHARACTER,
    TOO_FEW_COLUMNS,
    TOO_MANY_COLUMNS,
    TOO_MANY_ROWS,
    ReadReport,
)
from ingest.io.streams import ByteSource
from pearl_qdrant.errors import FormatError

Offsets = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

BLOCK = 1 << 20
"""Bytes of a block. Larger blocks do not fit into the processor's cache; smaller ones need more calls of numpy."""

ASCII_SPACES = " \t\r\v\f"
"""Stripped from the ends of a name. Spaces of other scripts stay, since they may be part of it."""

_FORMAT_BYTES = 1 << 16
_EXCERPT_BYTES = 1 << 10
_LONG_ID = 64  # bytes; those of UMLS have 8
_BAR, _NEWLINE, _SPACE = 124, 10, 32
_SPACES = ASCII_SPACES.encode()
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of one RRF file.

    Attributes:
        columns: Names of the columns in order, as in MRFILES.RRF.
        id: The column by which rows belong together; every row needs it.
        name: Another column that every row needs, or None.
    """

    columns: tuple[str, ...]
    id: str
    name: str | None = None

    def place(self, column: str) -> int:
        """Index of a column."""
        return self.columns.index(column)


@dataclass(frozen=True, slots=True)
class Block:
    """Sound rows.

    Attributes:
        raw: Their bytes, valid UTF-8; each row ends with a newline.
        codes: The same as numbers, (bytes,).
        bars: Offset of the end of each field, and of the newline of the row, (rows, fields + 1).
        layout: The columns.
    """

    raw: bytes
    codes: npt.NDArray[np.uint8]
    bars: Offsets
    layout: Layout

    def __len__(self) -> int:
        return len(self.bars)

    def span(self, column: str) -> tuple[Offsets, Offsets]:
        """Start and end of a column in each row; both (rows,)."""
        place = self.layout.place(column)
        if place:
            return self.bars[:, place - 1] + 1, self.bars[:, place]
        return np.append(0, self.bars[:-1, -1] + 1), self.bars[:, 0]

    def equals(self, column: str, text: bytes) -> Mask:
        """Whether a column has exactly this value, for each row, (rows,)."""
        starts, ends = self.span(column)
        same: Mask = ends - starts == len(text)
        for i, code in enumerate(text):
            # The end of the field limits the offset: there is a bar.
            same &= self.codes[np.minimum(starts + i, ends)] == code
        return same

    def cells(self, column: str, rows: Offsets) -> list[bytes]:
        """A column of some rows, as bytes."""
        starts, ends = self.span(column)
        raw = self.raw
        return [raw[start:end] for start, end in zip(starts[rows].tolist(), ends[rows].tolist(), strict=True)]

    def texts(self, column: str, rows: Offsets) -> list[str]:
        """A column of some rows, decoded at once: no field contains a bar."""
        return b"|".join(self.cells(column, rows)).decode().split("|") if len(rows) else []


def read_blocks(source: ByteSource, layout: Layout, report: ReadReport) -> Iterator[Block]:
    """Blocks of sound rows; adjacent rows of one id are in one block.

    Bad rows, and rows of one id beyond `ingest.io.limits`, are skipped and counted; `report.rows` is not changed.
    `report.place` is the first row of the block.

    Raises:
        FormatError: If the file is empty or damaged (with the line that was reached), or no row of its first block
            is sound.
        InputError: If reading fails.
        TooManyErrorsError: If there are more bad rows than the report allows.
    """
    n_good = 0
    id_place = layout.place(layout.id)
    for first, raw in _bound_runs(_read_raw(source, id_place), id_place):
        report.place = source.path, first
        if isinstance(raw, BadLine):
            report.skip_here(raw.reason, raw.text)
            continue
        block = _find_bars(raw, layout)
        if block is None:
            if not n_good:
                _check_format(source.path, first, raw, layout)
            good = _filter_rows(source.path, first, raw, layout, report)
            block = _find_bars(good, layout) if good else None
        if block is not None:
            n_good += len(block)
            yield block
    if not n_good:
        raise FormatError(source.path, None, "has no sound row. Is this an unmodified RRF file of UMLS?")


def _check_format(path: str, first: int, raw: bytes, layout: Layout) -> None:
    """Refuse a file whose first rows are all bad: it is probably another file."""
    lines = [line for line in raw[:_FORMAT_BYTES].split(b"\n")[:-1] if line.strip()]
    if lines and all(_find_fault(line, layout) for line in lines):
        n_found, width = lines[0].count(b"|"), len(layout.columns)
        expected = f"expected {width} fields, found {n_found}" if n_found != width else "its first rows are damaged"
        raise FormatError(path, first, f"{expected}. Is this an unmodified RRF file of UMLS?")


def _read_raw(source: ByteSource, id_place: int) -> Iterator[tuple[int, bytes | BadLine]]:
    """Line number and bytes of blocks that do not split adjacent rows of one id, and lines that are too long."""
    number = 1
    parts: list[bytes] = []
    n_bytes, wanted = 0, BLOCK
    try:
        for piece in line_blocks(source):
            if isinstance(piece, BadLine):
                if parts:
                    raw = b"".join(parts)
                    yield number, raw
                    number += raw.count(b"\n")
                yield number, piece
                number += 1
                parts, n_bytes, wanted = [], 0, BLOCK
                continue
            if number == 1 and not parts:
                piece = piece.removeprefix(_BOM)
            # A row ends with a bar and a line end, so a carriage return inside a field stays.
            parts += (piece.replace(b"|\r\n", b"|\n").removesuffix(b"\r") if b"\r" in piece else piece, b"\n")
            n_bytes += len(parts[-2]) + 1
            if n_bytes < wanted:
                continue
            raw = b"".join(parts)
            cut = _last_run(raw, id_place)
            if cut or n_bytes > limits.MAX_ENTITY_BYTES:
                cut = cut or n_bytes
                yield number, raw[:cut]
                number += raw.count(b"\n", 0, cut)
            parts = [raw[cut:]] if cut < n_bytes else []
            n_bytes -= cut
            # A run longer than a block is searched again only when it has doubled.
            wanted = max(BLOCK, min(2 * n_bytes, limits.MAX_ENTITY_BYTES + 1))
    except FormatError as error:
        reached = number - 1 + sum(part.count(b"\n") for part in parts)
        if error.line is not None or not reached:
            raise
        message = str(error).removeprefix(f"{source.path}: ")
        raise FormatError(source.path, reached, f"after this line, {message}") from error
    if parts:
        yield number, b"".join(parts)


def _bound_runs(pieces: Iterable[tuple[int, bytes | BadLine]], id_place: int) -> Iterator[tuple[int, bytes | BadLine]]:
    """The same pieces of a file; rows of one id beyond the limits become bad lines."""
    full: list[bytes] | None = None  # the id that has the maximal number of rows
    for number, raw in pieces:
        if isinstance(raw, BadLine):
            yield number, raw
        elif full is None and raw.count(b"\n") <= limits.MAX_ROWS:
            yield number, raw
            if len(raw) > limits.MAX_ENTITY_BYTES and not _last_run(raw, id_place):
                full = _id_of(raw, id_place)
        else:
            last, n_rows = full, limits.MAX_ROWS
            kept_from, start, first = 0, 0, number
            for at, line in enumerate(raw.split(b"\n")[:-1], start=number):
                found = _id_of(line, id_place)
                n_rows = n_rows + 1 if found == last else 1
                last = found if found and found[0].strip() else None  # blank lines are not rows of one id
                after = start + len(line) + 1
                if n_rows > limits.MAX_ROWS:
                    if kept_from < start:
                        yield first, raw[kept_from:start]
                    yield at, BadLine(TOO_MANY_ROWS, line[:_EXCERPT_BYTES].decode("utf-8", "replace"))
                    kept_from, first = after, at + 1
                start = after
            if kept_from < len(raw):
                yield first, raw[kept_from:]
            full = last if n_rows >= limits.MAX_ROWS else None


def _id_of(line: bytes, id_place: int) -> list[bytes]:
    """The id of a row, in a list; the list is empty if the row has too few fields."""
    return line.split(b"|", id_place + 1)[id_place : id_place + 1]


def _last_run(raw: bytes, id_place: int) -> int:
    """The start of the rows of the last id; 0 if all rows have it. Blank lines are not rows of one id."""
    start = raw.rfind(b"\n", 0, -1) + 1
    last = _id_of(raw[start:], id_place)
    if not last or not last[0].strip():
        return start
    while start:
        before = raw.rfind(b"\n", 0, start - 1) + 1
        if _id_of(raw[before:start], id_place) != last:
            return start
        start = before
    return 0


def _find_bars(raw: bytes, layout: Layout) -> Block | None:
    """The block, or None if a row in it is not sound."""
    width = len(layout.columns)
    codes = np.frombuffer(raw, dtype=np.uint8)
    places = np.flatnonzero((codes == _BAR) | (codes == _NEWLINE))
    n_rows = raw.count(b"\n")
    if len(places) != n_rows * (width + 1) or b"\0" in raw:
        return None
    bars = places.reshape(n_rows, width + 1)
    if (codes[bars[:, -1]] != _NEWLINE).any() or (bars[:, -1] - bars[:, -2] != 1).any():
        return None
    block = Block(raw, codes, bars, layout)
    for column in (layout.id, layout.name):
        if column is not None:
            starts, ends = block.span(column)
            if (starts == ends).any():
                return None
            # A cell that may be blank is checked by itself.
            for row in np.flatnonzero(codes[starts] <= _SPACE).tolist():
                if not raw[starts[row] : ends[row]].strip(_SPACES):
                    return None
    if not raw.isascii():
        try:
            raw.decode()
        except UnicodeDecodeError:
            return None
    return block


def _filter_rows(path: str, first: int, raw: bytes, layout: Layout, report: ReadReport) -> bytes:
    """The sound rows of a block; bad rows are counted, blank lines are skipped."""
    good = []
    for number, line in enumerate(raw.split(b"\n")[:-1], start=first):
        if not line.strip():
            continue
        reason = _find_fault(line, layout)
        if reason is None:
            good.append(line)
        else:
            report.skip(reason, path=path, line=number, text=line[:_EXCERPT_BYTES].decode("utf-8", "replace"))
    return b"".join(line + b"\n" for line in good)


def _find_fault(line: bytes, layout: Layout) -> str | None:
    """Why a row is skipped; None if it is sound."""
    cells = line.split(b"|")
    width = len(layout.columns)
    if len(cells) != width + 1 or cells[-1]:
        return TOO_FEW_COLUMNS if len(cells) <= width else TOO_MANY_COLUMNS
    if b"\0" in line:
        return NUL_CHARACTER
    try:
        line.decode()
    except UnicodeDecodeError:
        return INVALID_UTF8
    if not cells[layout.place(layout.id)].strip(_SPACES):
        return NO_ID
    return NO_NAME if layout.name is not None and not cells[layout.place(layout.name)].strip(_SPACES) else None


def find_runs(block: Block, rows: Offsets | None = None) -> tuple[Offsets, list[bytes]]:
    """The first row of each run of rows of one id, (runs,), and the ids.

    Args:
        block: The block.
        rows: Only these rows of it, ascending; all by default.
    """
    starts, ends = block.span(block.layout.id)
    if rows is not None:
        starts, ends = starts[rows], ends[rows]
    if not len(starts):
        return np.zeros(0, np.int64), []
    raw, lengths = block.raw, ends - starts
    changed = lengths[1:] != lengths[:-1]
    if lengths.max() > _LONG_ID:
        ids = [raw[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        changed = np.array([one != other for one, other in pairwise(ids)], dtype=np.bool_)
    else:
        for i in range(int(lengths.max())):
            # Beyond the end of a shorter id is a bar in both rows, or the lengths differ.
            codes = block.codes[np.minimum(starts + i, ends)]
            changed |= codes[1:] != codes[:-1]
    firsts = np.flatnonzero(np.append(True, changed))
    spans = zip(starts[firsts].tolist(), ends[firsts].tolist(), strict=True)
    return firsts, [raw[start:end] for start, end in spans]


def make_keys(ids: Sequence[bytes]) -> npt.NDArray[np.uint64]:
    """64-bit keys of ids, (n,): an id of 8 ASCII bytes is its own key, which keeps the order; others are hashed."""
    joined = b"".join(ids)
    if joined.isascii() and set(map(len, ids)) == {8}:
        return np.frombuffer(joined, dtype=">u8").astype(np.uint64)
    return np.array([_key(one) for one in ids], dtype=np.uint64)


def _key(one: bytes) -> int:
    if len(one) == 8 and one.isascii():
        return int.from_bytes(one, "big")
    # The highest bit separates hashes from ids, whose bytes are ASCII.
    return int.from_bytes(blake2b(one, digest_size=8).digest(), "big") | 1 << 63
