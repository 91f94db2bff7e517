"""`Reader`, the interface of every format; merging of rows into entities; and the first pass over a base: exact counts,
bad rows, repeated names and ids.

A reader turns files into entities, as a stream. Adjacent rows of one id are merged while they are read. Ids with
scattered rows are known from an earlier pass: their rows wait in a temporary SQLite database, which spills to disk and
is removed with the process, and are yielded merged at the end, in the order of their first rows.

The first row decides: its name is the canonical one, and later names become aliases. Types are united in order. The
first description, the first value of each further field, the first language of each name and the largest popularity
are kept. Adjacent rows beyond `ingest.io.limits` are counted as skipped. Too many scattered rows are an error: if so
many rows all over a file have one id, it is probably another column.

The scan reduces ids and names to 64-bit hashes, 8 bytes each and 4 for each run of rows: 13 MB for 570,000 names, the
only memory here that grows with the base. Two of n names share a hash with probability n^2 / 2^65; then a count is off
by one, and nothing else: all users of the hashes compare the strings too.
"""

from __future__ import annotations

import pickle
import re
import sqlite3
from abc import abstractmethod
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, fields
from hashlib import blake2b, sha256
from itertools import chain, groupby, islice, starmap
from operator import attrgetter, itemgetter
from typing import Any, NoReturn, TypeVar

import numpy as np
import numpy.typing as npt

from ingest.base.format import PathLike
from ingest.base.type_map import TypeMap, default_types
from ingest.io import limits, reasons
from ingest.io.encoding import Utf8Source
from ingest.io.report import MAX_EXAMPLES, Conflict, ReadReport, make_excerpt
from ingest.io.streams import ByteSource, open_sources
from pearl_qdrant.errors import InputError
from pearl_qdrant.records import Entity

T = TypeVar("T")

Hashes = npt.NDArray[np.uint64]  # 64-bit hashes of ids or names, sorted


def name_hash(name: str) -> int:
    """64-bit hash of a name, the same in every process; one of `ScanResult.repeated_name_hashes`."""
    return int.from_bytes(digest_of(name), "little")


def _as_hashes(digests: bytes | bytearray) -> Hashes:
    """Digests, one after the other, as numbers."""
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64, copy=False)


def digest_of(text: str) -> bytes:
    """The 8 bytes of `name_hash`."""
    # Text from JSON can have lone surrogates, which plain UTF-8 refuses; they are checked elsewhere.
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def refuse_scattered(reason: str, entity_id: str) -> NoReturn:
    """Refuse an id with more scattered rows than an entity has; `reason` is a key of `ReadReport.skipped`."""
    bounds = f"{limits.MAX_NAMES:,} names and {limits.MAX_ROWS:,} rows"
    message = f"{reason}: the id '{make_excerpt(entity_id)}' occurs in too many of them. An entity has at most {bounds}"
    raise InputError("scattered rows", None, f"{message}. Is this really the column of ids?")


class HashSet:
    """A set of texts as hashes of 8 bytes: those of `hashes`, which are sorted, and those that are added."""

    def __init__(self, hashes: Hashes | None = None) -> None:
        self._hashes = array("Q", b"" if hashes is None else hashes.tobytes())
        self._n_sorted = len(self._hashes)

    def add(self, text: str) -> None:
        self._hashes.append(name_hash(text))

    def __contains__(self, text: str) -> bool:
        self._sort()
        found = name_hash(text)
        place = bisect_left(self._hashes, found)
        return place < self._n_sorted and self._hashes[place] == found

    def __len__(self) -> int:
        return len(self._hashes)

    def repeated(self) -> Hashes:
        """Those that were added more than once."""
        self._sort()
        return _repeated(np.frombuffer(self._hashes, dtype=np.uint64))

    def _sort(self) -> None:
        if self._n_sorted != len(self._hashes):
            np.frombuffer(self._hashes, dtype=np.uint64).sort()  # in place
            self._n_sorted = len(self._hashes)


_CACHE_KIB = 16_384
_ADVICE = "Point TMPDIR to a larger disk. Rows of ids that are scattered over the input need it: sort it by id"


def merge_adjacent(
    rows: Iterable[Entity], report: ReadReport, on_excess: Callable[[str, Entity], None] | None = None
) -> Iterator[Entity]:
    """Merge adjacent rows of one id; counts them in the report, whose `place` is that of the last row. A row that
    exceeds a limit goes to `on_excess` with the reason; by default it is counted as skipped.
    """
    on_excess = on_excess or (lambda reason, row: report.skip_here(reason, f"{row.entity_id} {row.canonical_name}"))
    for run in map(itemgetter(1), groupby(rows, attrgetter("entity_id"))):
        first, place = next(run), report.place
        second = next(run, None)
        entity = first if second is None else _merge(first, chain((second,), run), report, on_excess)
        report.run_place = place
        yield entity


def _merge(
    first: Entity, others: Iterable[Entity], report: ReadReport, on_excess: Callable[[str, Entity], None]
) -> Entity:
    """One entity of the rows of an id, up to the limits."""
    names, kb_types, types = map(dict.fromkeys, (first.names(), first.kb_types, first.types))
    description, popularity = first.description, first.popularity
    extra, languages = dict(first.extra), dict(first.languages)
    for n_rows, row in enumerate(others, start=1):
        if n_rows >= limits.MAX_ROWS:
            on_excess(reasons.TOO_MANY_ROWS, row)
            continue
        names.update(dict.fromkeys(row.names()))
        kb_types.update(dict.fromkeys(row.kb_types))
        types.update(dict.fromkeys(row.types))
        description = description or row.description
        extra = {**extra, **row.extra, **extra}
        languages = {**row.languages, **languages}
        popularity = max((one for one in (popularity, row.popularity) if one is not None), default=None)
        _cut(kb_types, limits.MAX_KB_TYPES)
        if _cut(names, limits.MAX_NAMES):
            on_excess(reasons.TOO_MANY_NAMES, row)
        report.merged_rows += 1
        if row.canonical_name != first.canonical_name:
            report.conflict(report.place, row.entity_id, first.canonical_name, row.canonical_name)
    languages = {name: languages[name] for name in names if name in languages}
    name, *aliases = names
    more = tuple(aliases), tuple(kb_types), tuple(types), description, extra, popularity, languages
    return Entity(first.entity_id, name, *more)


def _cut(values: dict[str, None], most: int) -> bool:
    """Keep at most `most` values, the first ones; returns whether there were more."""
    is_over = len(values) > most
    while len(values) > most:
        values.popitem()
    return is_over


def merge_scattered(runs: Iterable[Entity], scattered: Hashes, report: ReadReport) -> Iterator[Entity]:
    """Each id once: whole entities in their order, then those of the `scattered` ids, merged. Raises InputError if the
    temporary database cannot be written, or the rows of a scattered id are too many.
    """
    if not len(scattered):
        yield from _counted(runs, report)
        return
    with RowStore() as store:
        whole = store_scattered(runs, HashSet(scattered), store, id_of=attrgetter("entity_id"), record_of=_values_of)
        yield from _counted(whole, report)
        report.place = "", 0
        rows = starmap(Entity, store.rows())
        merged = merge_adjacent(rows, report, lambda reason, row: refuse_scattered(reason, row.entity_id))
        yield from _counted(merged, report)


def _counted(entities: Iterable[Entity], report: ReadReport) -> Iterator[Entity]:
    for entity in entities:
        report.entities += 1
        report.names += 1 + len(entity.aliases)
        yield entity


_values_of = attrgetter(*(one.name for one in fields(Entity)))  # pickled in half the time of an entity


def store_scattered(
    runs: Iterable[T],
    scattered: HashSet,
    store: RowStore,
    *,
    id_of: Callable[[T], str],
    record_of: Callable[[T], object] = lambda run: run,
) -> Iterator[T]:
    """Yield the runs that are all there is of their id, in the order of the input; put the others into the store."""
    for run in runs:
        if scattered and id_of(run) in scattered:
            store.add([(id_of(run), record_of(run))])
        else:
            yield run


class RowStore(AbstractContextManager["RowStore"]):
    """What is said of ids and waits for the end of the input, in an unnamed database on disk."""

    def __init__(self) -> None:
        # A load may start a reader in one thread and close it in another.
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        for statement in (
            f"PRAGMA cache_size = -{_CACHE_KIB}",
            "PRAGMA temp_store = FILE",
            "PRAGMA journal_mode = OFF",
            "PRAGMA synchronous = OFF",
            "CREATE TABLE rows (sequence INTEGER PRIMARY KEY, id BLOB NOT NULL, record BLOB NOT NULL)",
            "BEGIN",  # for good: nobody else reads it
        ):
            self._database.execute(statement)
        self._is_indexed = False

    def __exit__(self, *exc_info: object) -> None:
        self._database.close()

    def add(self, rows: Iterable[tuple[str, object]]) -> None:
        """Add ids with records. Raises InputError if they cannot be written."""
        records = ((_blob(id_), pickle.dumps(record, pickle.HIGHEST_PROTOCOL)) for id_, record in rows)
        try:
            self._database.executemany("INSERT INTO rows (id, record) VALUES (?, ?)", records)
        except sqlite3.Error as error:
            raise InputError("temporary file", None, f"rows cannot be stored: {error}. {_ADVICE}") from error

    def find(self, id_: str, most: int) -> list[Any]:
        """The first records of an id, after all were added. Raises as `add`."""
        if not self._is_indexed:
            list(self._read("CREATE INDEX rows_by_id ON rows (id, sequence)"))
            self._is_indexed = True
        return list(self._read("SELECT record FROM rows WHERE id = ? ORDER BY sequence LIMIT ?", _blob(id_), most))

    def rows(self) -> Iterator[Any]:
        """All records, those of one id together in their order, ids by first appearance. Raises as `add`."""
        return self._read(
            "SELECT record FROM (SELECT record, sequence, min(sequence) OVER (PARTITION BY id) AS first FROM rows) "
            "ORDER BY first, sequence"
        )

    def _read(self, query: str, *values: bytes | int) -> Iterator[Any]:
        try:
            for (record,) in self._database.execute(query, values):
                yield pickle.loads(record)  # noqa: S301 - nobody else writes it
        except sqlite3.Error as error:
            raise InputError("temporary file", None, f"rows cannot be read back: {error}. {_ADVICE}") from error


def _blob(id_: str) -> bytes:
    """Bytes, since text in SQLite can have neither a lone surrogate nor, safely, a NUL."""
    return id_.encode("utf-8", "surrogatepass")


_BREAKS = re.compile(r"[\t\n\r ]+")


def clean(text: str) -> str:
    """A name on one line, without space around it."""
    is_uneven = "\n" in text or "\t" in text or "\r" in text or "  " in text
    return _BREAKS.sub(" ", text).strip() if is_uneven else text.strip()


class Reader(AbstractContextManager["Reader"]):
    """A base that can be read any number of times, with the same result. Used as a context manager. A format needs only
    `read_rows`. What is in `held` is closed with the reader.
    """

    def __init__(self, *, type_map: TypeMap | None, limit: int | None) -> None:
        """Start a reader of at most `limit` runs of rows of one id: that many entities, if none is scattered."""
        self.type_map = type_map or default_types()
        self.held = ExitStack()
        self._texts = list[Utf8Source]()
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
        yield from islice(merge_adjacent(self.read_rows(report), report), self._limit)
        for text in self._texts:
            if text.found is not None:
                report.notes.append(f"{text.path}: its text is in {text.found}, which was found and converted")

    def find_types(self, native: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The first `MAX_KB_TYPES` native types, each once, and their coarse types."""
        kb_types = tuple(islice(dict.fromkeys(native), limits.MAX_KB_TYPES))
        return kb_types, self.type_map.map_types(kb_types)

    def open_sources(self, paths: Sequence[PathLike]) -> tuple[ByteSource, ...]:
        """Open files that are closed with the reader. Raises as `streams.open_sources`."""
        sources = open_sources(paths)
        for source in sources:
            self.held.callback(source.close)
        return sources

    def as_text(self, source: ByteSource, encoding: str | None = None) -> Utf8Source:
        """A file as UTF-8, whatever its encoding; one that was found is said in the report."""
        self._texts.append(Utf8Source(source, encoding))
        return self._texts[-1]

    def close(self) -> None:
        """Close the files and remove temporary ones."""
        self.held.close()

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


def scan(reader: Reader, report: ReadReport | None = None) -> ScanResult:
    """Read a base once and count it; a second time, up to the first few conflicts, if there are some. Raises InputError
    as `Reader.read`, and if an id has more scattered rows or names than an entity may have.
    """
    report = ReadReport() if report is None else report
    content, ids, names, names_of_run = sha256(), bytearray(), bytearray(), array("I")
    for run in reader.read_runs(report):
        ids += digest_of(run.entity_id)
        for name in run.names():
            names += digest_of(name)
        names_of_run.append(1 + len(run.aliases))
        # Not the bytes of the file: what the options exclude may change. `repr` escapes lone surrogates.
        content.update(repr(run).encode())
    all_ids, all_names = _as_hashes(ids), _as_hashes(names)
    scattered = _repeated(np.sort(all_ids))
    conflicts: Mapping[int, int] = {}
    report.entities = len(all_ids)
    if len(scattered):
        is_scattered = np.isin(all_ids, scattered)
        report.entities += len(scattered) - int(is_scattered.sum())
        counts = np.array(names_of_run, dtype=np.uint32)
        all_names, conflicts = _merge_names(reader, report, all_ids, all_names, counts, is_scattered)
    report.names = len(all_names)
    all_names.sort()
    distinct = int((all_names[1:] != all_names[:-1]).sum()) + 1 if len(all_names) else 0
    if len(report.conflicts) < (wanted := min(MAX_EXAMPLES, report.conflicting_names)):
        report.conflicts = _find_conflicts(reader, conflicts, wanted)
    repeated, digest = _repeated(all_names), content.hexdigest()
    return ScanResult(report.entities, report.names, distinct, repeated, scattered, report, digest)


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
    ids = HashSet()
    for run in reader.read_runs(ReadReport(max_errors=None)):
        ids.add(run.entity_id)
    return ids.repeated()


def _repeated(ordered: Hashes) -> Hashes:
    """Values that occur more than once in a sorted array, once each."""
    again = ordered[1:][ordered[1:] == ordered[:-1]]
    unique: Hashes = again[np.append(True, again[1:] != again[:-1])] if len(again) else again
    return unique


def _merge_names(
    reader: Reader,
    report: ReadReport,
    ids: Hashes,
    names: Hashes,
    names_of_run: npt.NDArray[np.uint32],
    is_scattered: npt.NDArray[np.bool_],
) -> tuple[Hashes, Mapping[int, int]]:
    """Names of all entities, and the first runs in conflict as `_find_conflicts` takes them, from the hashes of the
    ids, (r,), and names, (n,), of all runs, the canonical name first in each. A name that two runs of an id have
    counts once.
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
    _check_excess(reader, run_ids, limits.MAX_ROWS, reasons.TOO_MANY_ROWS)
    _check_excess(reader, merged[:, 0], limits.MAX_NAMES, reasons.TOO_MANY_NAMES)
    return np.concatenate([names[~of_scattered], merged[:, 1]]), conflicts


def _check_excess(reader: Reader, ordered_ids: Hashes, most: int, reason: str) -> None:
    """Refuse an id whose hash occurs more often in a sorted array than `most` times."""
    too_many = ordered_ids[most:][ordered_ids[most:] == ordered_ids[:-most]]
    if len(too_many):
        ids = (run.entity_id for run in reader.read_runs(ReadReport(max_errors=None)))
        refuse_scattered(reason, next(id_ for id_ in ids if name_hash(id_) == too_many[0]))
