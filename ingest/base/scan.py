"""A first pass over a base, before anything is encoded: exact counts, bad rows, and repeated names and ids.

Ids and names are reduced to 64-bit hashes, 8 bytes each and 4 for each run of rows, which are sorted afterwards. That
is 13 MB for 570,000 names, the only memory here that grows with the base. Two of n different names share a hash with
probability n^2 / 2^65 (0.0003 % for ten million). Then a count is off by one, but nothing else is wrong: all users of
the hashes compare the strings too.

Measured on one core: about 3 s for 450,000 rows, a quarter of it for the digest.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b, sha256
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ingest.io import limits
from ingest.io.report import MAX_EXAMPLES, TOO_MANY_NAMES, TOO_MANY_ROWS, Conflict, ReadReport, make_excerpt
from pearl_qdrant.errors import InputError

if TYPE_CHECKING:
    from ingest.base.reader import Reader

Hashes = npt.NDArray[np.uint64]
"""64-bit hashes of ids or names, sorted."""


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


def name_hash(name: str) -> int:
    """64-bit hash of a name, the same in every process; one of `ScanResult.repeated_name_hashes`."""
    return int.from_bytes(_digest(name), "little")


def hash_texts(texts: Sequence[str]) -> Hashes:
    """`name_hash` of several texts, (n,)."""
    return np.frombuffer(b"".join(map(_digest, texts)), dtype="<u8").astype(np.uint64, copy=False)


def scan(reader: Reader, report: ReadReport | None = None, *, cutter: Reader | None = None) -> ScanResult:
    """Read a base once and count it; a second time, up to the first few conflicts, if there are some. Raises
    InputError: as `Reader.read`, and if an id has more scattered rows or names than an entity may have.

    Args:
        report: Filled while reading; its `max_errors` stops the scan.
        cutter: Yields what the reader does, and does more with it; it is read once.
    """
    report = ReadReport() if report is None else report
    content, ids, names, names_of_run = sha256(), bytearray(), bytearray(), array("I")
    for run in (cutter or reader).read_runs(report):
        ids += _digest(run.entity_id)
        for name in run.names():
            names += _digest(name)
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
    """The first conflicts, by another pass that ends with the last of them.

    Args:
        pairs: For the number of a run that conflicts with an earlier one, the number of the first run of its id.
        wanted: How many there are, and are to be found; those within a run included.
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
        ids += _digest(run.entity_id)
    hashes = _as_hashes(ids)
    hashes.sort()
    return _repeated(hashes)


def _digest(text: str) -> bytes:
    # Text from JSON can have lone surrogates, which plain UTF-8 refuses; they are checked elsewhere.
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()


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
    """Turn the hashes of all runs into counts, and find runs in conflict as `_find_conflicts` takes them.

    Args:
        digest, report: Part of the result; the merges and counts of the report are completed.
        ids: Id of each run, (r,).
        names: Names of all runs, canonical name first in each, (n,). Sorted in place.
        names_of_run: Number of names of each run, (r,).
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


def scattered_excess(entity_id: str, reason: str) -> InputError:
    """The error for an id with more scattered rows than an entity can have.

    Args:
        reason: `TOO_MANY_NAMES` or `TOO_MANY_ROWS`.
    """
    bounds = f"{limits.MAX_NAMES:,} names and {limits.MAX_ROWS:,} rows"
    message = f"{reason}: the id '{make_excerpt(entity_id)}' occurs in too many of them. An entity has at most {bounds}"
    return InputError("scattered rows", None, f"{message}. Is this really the column of ids?")
