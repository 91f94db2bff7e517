"""`Reader`, the interface of every format, and the first pass over a base: exact counts, bad rows, repeated names and
ids.

A reader turns files into entities, as a stream. Adjacent rows of one id become one entity at once; rows that are
scattered over the input are joined by `ingest.base.merge`, for any reader.

The scan reduces ids and names to 64-bit hashes, 8 bytes each and 4 for each run of rows: 13 MB for 570,000 names, the
only memory here that grows with the base. Two of n names share a hash with probability n^2 / 2^65; then a count is off
by one, and nothing else: all users of the hashes compare the strings too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ingest.base.format import PathLike
from ingest.base.merge import Hashes, digest_of, merge_adjacent, merge_scattered, name_hash, scattered_excess
from ingest.base.type_map import TypeMap
from ingest.io import limits
from ingest.io.report import MAX_EXAMPLES, TOO_MANY_NAMES, TOO_MANY_ROWS, Conflict, ReadReport
from ingest.io.streams import ByteSource, open_sources
from pearl_qdrant.records import Entity

if TYPE_CHECKING:
    from typing_extensions import Self


class Reader(ABC):
    """A base that can be read any number of times, with the same result. Used as a context manager. A format needs only
    `read_rows`. What is in `held` is closed with the reader.
    """

    def __init__(self, *, type_map: TypeMap | None, limit: int | None) -> None:
        """Start a reader of at most `limit` runs of rows of one id: that many entities, if none is scattered."""
        self.type_map = type_map or TypeMap.load()
        self.held = ExitStack()
        self._limit = limit

    @abstractmethod
    def read_rows(self, report: ReadReport) -> Iterator[Entity]:
        """One entity for each good row, in the order of the input; rows of one id are not joined. Raises as `read`."""

    def read(self, report: ReadReport, *, scattered: Hashes | None = None) -> Iterator[Entity]:
        """Entities, each id once: in the order of the input, those with scattered rows last. Without
        `ScanResult.scattered` of the same input, one more pass finds the scattered ids.

        Raises InputError if the input cannot be read; FormatError if it is not of the format, or is damaged;
        TooManyErrorsError if there are more bad rows than the report allows.
        """
        if scattered is None:
            scattered = find_scattered(self)
        yield from merge_scattered(self.read_runs(report), scattered, report)

    def read_runs(self, report: ReadReport) -> Iterator[Entity]:
        """Entities in the order of the input; an id whose rows are scattered is yielded several times.

        Fills `rows`, `skipped` and `notes` of the report, and the merged rows within a run. Raises as `read`.
        """
        return self.join_runs(self.read_rows(report), report)

    def join_runs(self, rows: Iterable[Entity], report: ReadReport) -> Iterator[Entity]:
        """Join rows of one id that follow each other, up to the limit."""
        return islice(merge_adjacent(rows, report), self._limit)

    def open_sources(self, paths: Sequence[PathLike]) -> tuple[ByteSource, ...]:
        """Open files that are closed with the reader. Raises as `streams.open_sources`."""
        sources = open_sources(paths)
        for source in sources:
            self.held.callback(source.close)
        return sources

    def close(self) -> None:
        """Close the files and remove temporary ones."""
        self.held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class ScanResult:
    """The contents of a base, counted.

    Attributes:
        entities: Different ids.
        names: Different (id, name) pairs; one point each.
        distinct_names: Different names, which are to be encoded.
        repeated_name_hashes: Sorted `name_hash` of the names that more than one entity has, (r,).
        scattered: Sorted hashes of the ids whose rows are scattered, (s,); for `Reader.read`.
        report: Rows, skips and merges; equal to the report of a later `Reader.read`.
        digest: Hex SHA-256 of all entities as they are read with these options; equal only for equal entities.
    """

    entities: int
    names: int
    distinct_names: int
    repeated_name_hashes: Hashes
    scattered: Hashes
    report: ReadReport
    digest: str


def scan(reader: Reader, report: ReadReport | None = None, *, cutter: Reader | None = None) -> ScanResult:
    """Read a base once and count it; a second time, up to the first few conflicts, if there are some. `cutter` yields
    what the reader does, and does more with it. Raises InputError as `Reader.read`, and if an id has more scattered
    rows or names than an entity may have.
    """
    report = ReadReport() if report is None else report
    content, ids, names, names_of_run = sha256(), bytearray(), bytearray(), array("I")
    for run in (cutter or reader).read_runs(report):
        ids += digest_of(run.entity_id)
        for name in run.names():
            names += digest_of(name)
        names_of_run.append(1 + len(run.aliases))
        # Not the bytes of the file: what the options exclude may change. `repr` escapes lone surrogates.
        content.update(repr(run).encode())
    counts = np.array(names_of_run, dtype=np.uint32)
    try:
        result, pairs = _count(content.hexdigest(), report, _as_hashes(ids), _as_hashes(names), counts)
    except _ScatteredExcessError as excess:
        runs = reader.read_runs(ReadReport(max_errors=None))
        entity_id = next(run.entity_id for run in runs if name_hash(run.entity_id) == excess.id_hash)
        raise scattered_excess(entity_id, excess.reason) from None
    if len(report.conflicts) < (wanted := min(MAX_EXAMPLES, report.conflicting_names)):
        report.conflicts = _find_conflicts(reader, pairs, wanted)
    return result


def _find_conflicts(reader: Reader, pairs: Mapping[int, int], wanted: int) -> list[Conflict]:
    """The `wanted` first conflicts, by another pass that ends with the last of them; `pairs`: for the number of a run
    that conflicts with an earlier one, the number of the first run of its id.
    """
    again = ReadReport(max_errors=None)
    firsts = dict.fromkeys(pairs.values(), "")
    for number, run in enumerate(reader.read_runs(again)):
        if number in firsts:
            firsts[number] = run.canonical_name
        if number in pairs:
            again.conflict(again.run_place, run.entity_id, firsts[pairs[number]], run.canonical_name)
        if len(again.conflicts) >= wanted:
            break
    return again.conflicts


def find_scattered(reader: Reader) -> Hashes:
    """Sorted hashes of the ids whose rows are scattered, (s,). Raises as `Reader.read`."""
    ids = bytearray()
    for run in reader.read_runs(ReadReport(max_errors=None)):
        ids += digest_of(run.entity_id)
    hashes = _as_hashes(ids)
    hashes.sort()
    return _repeated(hashes)


def _as_hashes(digests: bytearray) -> Hashes:
    """The digests as numbers, in place."""
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64, copy=False)


def _repeated(ordered: Hashes) -> Hashes:
    """Values that occur more than once in a sorted array, once each."""
    again = ordered[1:][ordered[1:] == ordered[:-1]]
    unique: Hashes = again[np.append(True, again[1:] != again[:-1])] if len(again) else again
    return unique


def _count(
    digest: str, report: ReadReport, ids: Hashes, names: Hashes, names_of_run: npt.NDArray[np.uint32]
) -> tuple[ScanResult, Mapping[int, int]]:
    """Turn the hashes of all runs into counts, and find runs in conflict as `_find_conflicts` takes them: `ids` and
    `names_of_run`, (r,), `names`, (n,), canonical name first in each run; these are sorted in place.
    """
    scattered = _repeated(np.sort(ids))
    pairs: Mapping[int, int] = {}
    if len(scattered):
        is_scattered = np.isin(ids, scattered)
        names, pairs = _merge_names(report, ids, names, names_of_run, is_scattered)
        entities = len(ids) - int(is_scattered.sum()) + len(scattered)
    else:
        entities = len(ids)
    report.entities, report.names = entities, len(names)
    names.sort()
    distinct = int((names[1:] != names[:-1]).sum()) + 1 if len(names) else 0
    return ScanResult(entities, len(names), distinct, _repeated(names), scattered, report, digest), pairs


def _merge_names(
    report: ReadReport,
    ids: Hashes,
    names: Hashes,
    names_of_run: npt.NDArray[np.uint32],
    is_scattered: npt.NDArray[np.bool_],
) -> tuple[Hashes, Mapping[int, int]]:
    """Names of all entities, and the first runs in conflict as `_find_conflicts` takes them.

    A name that two runs of one id share counts once. Counts merges in the report.
    """
    first_name = np.cumsum(names_of_run, dtype=np.int64) - names_of_run
    run_ids, canonical = ids[is_scattered], names[first_name[is_scattered]]
    # A stable sort keeps the runs of an id in order, and the first one decides the canonical name.
    order = np.argsort(run_ids, kind="stable")
    run_ids, canonical = run_ids[order], canonical[order]
    is_first = np.append(True, run_ids[1:] != run_ids[:-1])
    first_of = np.flatnonzero(is_first)[np.cumsum(is_first) - 1]
    conflicting = np.flatnonzero(canonical != canonical[first_of])
    report.merged_rows += int((~is_first).sum())
    report.conflicting_names += len(conflicting)
    runs = np.flatnonzero(is_scattered)[order]
    earliest = conflicting[np.argsort(runs[conflicting])[:MAX_EXAMPLES]]
    conflicts = dict(zip(runs[earliest].tolist(), runs[first_of[earliest]].tolist(), strict=True))

    of_scattered = np.repeat(is_scattered, names_of_run)
    pairs = np.stack([np.repeat(ids[is_scattered], names_of_run[is_scattered]), names[of_scattered]], axis=1)
    merged = np.unique(pairs, axis=0)
    _check_excess(run_ids, limits.MAX_ROWS, TOO_MANY_ROWS)
    _check_excess(merged[:, 0], limits.MAX_NAMES, TOO_MANY_NAMES)
    return np.concatenate([names[~of_scattered], merged[:, 1]]), conflicts


class _ScatteredExcessError(Exception):
    """An id has more scattered rows or names than an entity can have; it is known by its hash."""

    def __init__(self, id_hash: int, reason: str) -> None:
        super().__init__(id_hash, reason)
        self.id_hash, self.reason = id_hash, reason


def _check_excess(ordered_ids: Hashes, most: int, reason: str) -> None:
    """Refuse an id that occurs more often in a sorted array than `most` times."""
    too_many = ordered_ids[most:][ordered_ids[most:] == ordered_ids[:-most]]
    if len(too_many):
        raise _ScatteredExcessError(int(too_many[0]), reason)
