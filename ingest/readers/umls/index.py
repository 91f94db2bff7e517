"""Indexes of MRSTY.RRF and MRDEF.RRF: types and definitions by id, looked up for a block of ids at once.

Both are reduced to arrays sorted by id, in unnamed temporary files that are mapped into memory: 12 bytes an id for
types (43 MB for all of UMLS), 32 bytes and the text for each definition. Anonymous memory is used only while they are
sorted: 48 bytes a definition, and 12 an id if MRSTY.RRF is not sorted as UMLS ships it. MRCONSO.RRF need not be
sorted. Rows of ids without a name are never looked up.
"""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt

from ingest.io import limits
from ingest.io.report import ReadReport
from ingest.io.streams import ByteSource
from ingest.readers.umls.rows import Block, Layout, Offsets, find_runs, make_keys, read_blocks
from ingest.readers.umls.types import SemanticTypes, check_lengths
from pearl_qdrant.errors import FormatError, InputError

if TYPE_CHECKING:
    from typing_extensions import Self

Keys = npt.NDArray[np.uint64]

MAX_COMBINATIONS = 10_000
"""Combinations of semantic types, which are held in memory; UMLS has a few hundred."""

MAX_TYPES_OF_ONE = 64
"""Semantic types of an id; in UMLS at most five."""

MAX_DEFINITIONS = 256
"""Definitions of an id that are compared to find the best one; UMLS has a few dozen."""

DEFINITION_SOURCES = ("MSH", "NCI", "SNOMEDCT_US", "HPO", "GO", "CSP", "MEDLINEPLUS")
"""Sources of definitions, preferred first; the others follow by name."""


class _Spool:
    """An array that grows in an unnamed temporary file."""

    def __init__(self, dtype: str) -> None:
        self._dtype = np.dtype(dtype)
        self._file = cast("BinaryIO", tempfile.TemporaryFile(prefix="pearl-qdrant-"))  # noqa: SIM115

    def add(self, values: npt.NDArray[Any]) -> None:
        """Append values.

        Raises:
            InputError: If they cannot be written.
        """
        self.write(values.astype(self._dtype, copy=False).tobytes())

    def write(self, content: bytes) -> None:
        """Append bytes. Raises as `add`."""
        try:
            self._file.write(content)
        except OSError as error:
            raise _disk_error(error) from error

    def done(self) -> npt.NDArray[Any]:
        """All values, mapped; they stay valid after the file is closed. Raises as `add`."""
        try:
            self._file.flush()
            if not self._file.tell():
                return np.zeros(0, self._dtype)
            return np.memmap(self._file, dtype=self._dtype, mode="r")
        except OSError as error:
            raise _disk_error(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        try:
            self._file.close()
        except OSError as error:
            # Closing tries to write the rest again.
            raise _disk_error(error) from error


def _disk_error(error: OSError) -> InputError:
    where = tempfile.gettempdir()
    message = f"cannot be written in {where}: {error.strerror or error}. Point TMPDIR to a larger disk"
    return InputError("temporary file", None, message)


def _in_new_file(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The values in a temporary file instead of in memory."""
    with _Spool(values.dtype.str) as spool:
        spool.add(values)
        return spool.done()


class TypeIndex:
    """Semantic types of each id.

    Attributes:
        kb_types: For each combination of types that occurs, what an entity of it carries; the first is that of an id
            without types.
    """

    def __init__(self, types: SemanticTypes, path: str) -> None:
        self.kb_types: list[tuple[str, ...]] = [()]
        self._types = types
        self._path = path
        self._keys: Keys = np.zeros(0, np.uint64)
        self._combinations: npt.NDArray[np.uint32] = np.zeros(0, np.uint32)
        self._tuis: list[frozenset[str]] = [frozenset()]
        self._place_of: dict[frozenset[str], int] = {frozenset(): 0}
        self._place_of_cell: dict[bytes, int] = {}
        self._known: dict[str, tuple[str, ...]] = {}

    @classmethod
    def read(cls, source: ByteSource | None, layout: Layout, types: SemanticTypes, report: ReadReport) -> TypeIndex:
        """Read MRSTY.RRF, or nothing. Raises as `read_blocks`, and if the disk is full or the types are too many."""
        index = cls(types, source.path if source else "")
        if source is None:
            return index
        is_sorted, last = True, -1
        with _Spool("<u8") as keys, _Spool("<u4") as combinations:
            for block in read_blocks(source, layout, report):
                firsts, ids = find_runs(block)
                new = make_keys(ids)
                is_sorted = is_sorted and int(new[0]) > last and bool((new[1:] > new[:-1]).all())
                last = int(new[-1])
                keys.add(new)
                combinations.add(index._combine(block, firsts))
            index._keys, index._combinations = keys.done(), combinations.done()
        if not is_sorted:
            index._sort()
        return index

    def find(self, keys: Keys) -> list[int]:
        """Index in `kb_types` of the combination of each id, (n,)."""
        if not len(self._keys):
            return [0] * len(keys)
        places = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        found: list[int] = np.where(self._keys[places] == keys, self._combinations[places], 0).tolist()
        return found

    def _combine(self, block: Block, firsts: Offsets) -> npt.NDArray[np.uint32]:
        """Index of the combination of each run, (runs,)."""
        cells = block.cells("TUI", np.arange(len(block)))
        known = self._place_of_cell
        for row, cell in enumerate(cells):
            if cell not in known:
                known[cell] = self._learn(block, row)
        singles = np.array([known[cell] for cell in cells], dtype=np.uint32)
        combined = singles[firsts]
        lasts = np.append(firsts[1:], len(cells))
        for run in np.flatnonzero(lasts - firsts > 1).tolist():
            combined[run] = self._unite(singles[firsts[run] : lasts[run]].tolist())
        return combined

    def _learn(self, block: Block, row: int) -> int:
        """Index of a type that occurs for the first time."""
        rows = np.array([row])
        tui, name, number = (block.texts(column, rows)[0] for column in ("TUI", "STY", "STN"))
        check_lengths(self._path, (tui, name, number))
        if tui:
            self._known.setdefault(tui, tuple(self._types.get(tui, name=name, tree_number=number).kb_types()))
        return self._place(frozenset({tui} - {""}))

    def _unite(self, places: Iterable[int]) -> int:
        united = frozenset().union(*(self._tuis[place] for place in places))
        return self._place(united if len(united) <= MAX_TYPES_OF_ONE else frozenset(sorted(united)[:MAX_TYPES_OF_ONE]))

    def _place(self, tuis: frozenset[str]) -> int:
        place = self._place_of.get(tuis)
        if place is None:
            place = self._place_of[tuis] = len(self.kb_types)
            if place > MAX_COMBINATIONS:
                message = f"has over {MAX_COMBINATIONS:,} combinations of semantic types. Is this MRSTY.RRF?"
                raise FormatError(self._path, None, message)
            self._tuis.append(tuis)
            kb_types = dict.fromkeys(one for tui in sorted(tuis) for one in self._known[tui])
            self.kb_types.append(tuple(islice(kb_types, limits.MAX_KB_TYPES)))
        return place

    def _sort(self) -> None:
        """Sort by id, and unite the types of an id whose rows are scattered."""
        order = np.argsort(self._keys, kind="stable")
        keys, combinations = self._keys[order], self._combinations[order]
        firsts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
        lasts = np.append(firsts[1:], len(keys))
        united = combinations[firsts]
        for run in np.flatnonzero(lasts - firsts > 1).tolist():
            united[run] = self._unite(combinations[firsts[run] : lasts[run]].tolist())
        self._keys, self._combinations = _in_new_file(keys[firsts]), _in_new_file(united)


class DefinitionIndex:
    """Definitions of each id, best first: by source, then the shorter one, then by its bytes' hash."""

    def __init__(self) -> None:
        self._keys: Keys = np.zeros(0, np.uint64)
        self._atoms: npt.NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._starts: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self._lengths: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self._text: npt.NDArray[np.uint8] = np.zeros(0, np.uint8)

    @classmethod
    def read(
        cls,
        source: ByteSource | None,
        layout: Layout,
        report: ReadReport,
        *,
        sabs: Sequence[str],
        suppress: Sequence[str],
    ) -> DefinitionIndex:
        """Read MRDEF.RRF, or nothing.

        Args:
            source: The file.
            layout: Its columns.
            report: Bad rows are counted there.
            sabs: Sources to take, best first; empty for all, in the order of `DEFINITION_SOURCES`.
            suppress: Flags to keep.

        Raises:
            InputError: As `read_blocks`, and if the disk is full.
        """
        index = cls()
        if source is None:
            return index
        columns: list[array[int]] = [array("Q"), array("Q"), array("q"), array("q"), array("Q"), array("q")]
        sab_ids: dict[bytes, int] = {}
        flags, wanted = {flag.encode() for flag in suppress}, {sab.encode() for sab in sabs}
        places = [layout.place(column) for column in ("CUI", "AUI", "SAB", "DEF", "SUPPRESS")]
        size = 0
        with _Spool("u1") as text:
            for block in read_blocks(source, layout, report):
                for line in block.raw.split(b"\n")[:-1]:
                    cells = line.split(b"|")
                    cui, aui, sab, definition, flag = (cells[place] for place in places)
                    definition = definition.strip()
                    if not definition or flag not in flags or (wanted and sab not in wanted):
                        continue
                    text.write(definition)
                    atom = _key_of_atom(aui) if aui else 0
                    sab_id = sab_ids.setdefault(sab, len(sab_ids))
                    row = (int(make_keys([cui])[0]), atom, size, len(definition), _key_of_atom(definition), sab_id)
                    for column, value in zip(columns, row, strict=True):
                        column.append(value)
                    size += len(definition)
            index._finish(columns, text.done(), _rank_sources(list(sab_ids), sabs))
        return index

    def find(self, keys: Keys) -> tuple[list[int], list[int]]:
        """First row of the definitions of each id, and the row after the last; both (n,)."""
        return np.searchsorted(self._keys, keys, "left").tolist(), np.searchsorted(self._keys, keys, "right").tolist()

    def choose(self, first: int, after: int, atoms: Iterable[bytes]) -> str | None:
        """The best definition among these rows that belongs to one of the atoms, or to no atom."""
        known = {0, *map(_key_of_atom, atoms)}
        for row in range(first, min(after, first + MAX_DEFINITIONS)):
            if int(self._atoms[row]) in known:
                start = int(self._starts[row])
                return self._text[start : start + int(self._lengths[row])].tobytes().decode()
        return None

    def __len__(self) -> int:
        return len(self._keys)

    def _finish(self, columns: list[array[int]], text: npt.NDArray[np.uint8], ranks: npt.NDArray[np.int64]) -> None:
        """Sort, and move the arrays out of anonymous memory."""
        keys, atoms, starts, lengths, ties, sabs = (np.frombuffer(column, column.typecode) for column in columns)
        order = np.lexsort((ties, lengths, ranks[sabs], keys)) if len(keys) else np.zeros(0, np.int64)
        self._keys, self._atoms = _in_new_file(keys[order].astype(np.uint64)), _in_new_file(atoms[order])
        self._starts, self._lengths = _in_new_file(starts[order]), _in_new_file(lengths[order])
        self._text = text


def _key_of_atom(text: bytes) -> int:
    """64-bit hash, never 0."""
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big") or 1


def _rank_sources(sabs: list[bytes], preferred: Sequence[str]) -> npt.NDArray[np.int64]:
    """Rank of each source, (sources,)."""
    order = [sab.encode() for sab in preferred or DEFINITION_SOURCES]
    best_first = sorted(sabs, key=lambda sab: (order.index(sab) if sab in order else len(order), sab))
    return np.array([best_first.index(sab) for sab in sabs], dtype=np.int64)
