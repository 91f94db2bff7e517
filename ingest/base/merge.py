"""Merge rows into one entity for each id, wherever its rows are in the input.

Adjacent rows are merged while they are read. Ids with scattered rows are known from an earlier pass
(`ingest.base.reader`): their rows wait in a temporary SQLite database, which spills to disk and is removed with the
process. They are yielded merged at the end, in the order of their first rows. Memory is bounded by the batch and by
the largest entity.

The first row decides: its name is the canonical one, and later names become aliases. Types are united in order. The
first description, the first value of each further field, the first language of each name and the largest popularity
are kept.

An entity is no larger than `ingest.io.limits` allows. Adjacent rows beyond the limits are counted as skipped. Too many
scattered rows are an error: if so many rows all over a file have one id, it is probably another column.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from ingest.io import limits
from ingest.io.report import TOO_MANY_NAMES, TOO_MANY_ROWS, ReadReport, make_excerpt
from pearl_qdrant.errors import InputError
from pearl_qdrant.records import Entity

if TYPE_CHECKING:
    from typing_extensions import Self


Hashes = npt.NDArray[np.uint64]
"""64-bit hashes of ids or names, sorted."""


def name_hash(name: str) -> int:
    """64-bit hash of a name, the same in every process; one of `ScanResult.repeated_name_hashes`."""
    return int.from_bytes(digest_of(name), "little")


def hash_texts(texts: Sequence[str]) -> Hashes:
    """`name_hash` of several texts, (n,)."""
    return np.frombuffer(b"".join(map(digest_of, texts)), dtype="<u8").astype(np.uint64, copy=False)


def digest_of(text: str) -> bytes:
    """The 8 bytes of `name_hash`."""
    # Text from JSON can have lone surrogates, which plain UTF-8 refuses; they are checked elsewhere.
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def scattered_excess(entity_id: str, reason: str) -> InputError:
    """The error for an id with more scattered rows than an entity can have; `reason` is `TOO_MANY_NAMES` or
    `TOO_MANY_ROWS`.
    """
    bounds = f"{limits.MAX_NAMES:,} names and {limits.MAX_ROWS:,} rows"
    message = f"{reason}: the id '{make_excerpt(entity_id)}' occurs in too many of them. An entity has at most {bounds}"
    return InputError("scattered rows", None, f"{message}. Is this really the column of ids?")


BATCH = 1024
BATCH_BYTES = 1 << 22

_CACHE_KIB = 16_384
_ADVICE = "Point TMPDIR to a larger disk. Rows of ids that are scattered over the input need it: sort it by id"


T = TypeVar("T")


def batches(items: Iterable[T], size_of: Callable[[T], int]) -> Iterator[list[T]]:
    """Lists of `BATCH` items, or of fewer if these have `BATCH_BYTES` characters together."""
    batch: list[T] = []
    size = 0
    for item in items:
        batch.append(item)
        size += size_of(item)
        if len(batch) >= BATCH or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def entity_size(entity: Entity) -> int:
    """Characters of an entity's names, types, description and further fields."""
    texts = (*entity.aliases, *entity.kb_types, *entity.extra.values())
    return len(entity.canonical_name) + len(entity.description or "") + sum(map(len, texts))


class EntityBuilder:
    """Collects the rows of one id."""

    def __init__(self, first: Entity) -> None:
        self._first = first
        self._names = dict.fromkeys(first.names())
        self._kb_types = dict.fromkeys(first.kb_types)
        self._types = dict.fromkeys(first.types)
        self._description = first.description
        self._extra = dict(first.extra)
        self._popularity = first.popularity
        self._languages = dict(first.languages)
        self._n_rows = 1

    def add(self, other: Entity) -> str | None:
        """Add a later row of the same id; returns why not all of it was added, as a reason of `ReadReport.skipped`.

        None if all was added; `TOO_MANY_ROWS` if nothing was added, `TOO_MANY_NAMES` if some names were dropped.
        """
        names = [name for name in other.names() if name not in self._names]
        kb_types = [kb_type for kb_type in other.kb_types if kb_type not in self._kb_types]
        extra = {key: value for key, value in other.extra.items() if key not in self._extra}
        if self._n_rows >= limits.MAX_ROWS:
            return TOO_MANY_ROWS
        self._n_rows += 1
        self._names.update(dict.fromkeys(names))
        self._kb_types.update(dict.fromkeys(kb_types))
        self._types.update(dict.fromkeys(other.types))
        self._description = self._description or other.description
        self._extra.update(extra)
        self._languages = {**other.languages, **self._languages}
        known = [one for one in (self._popularity, other.popularity) if one is not None]
        self._popularity = max(known, default=None)
        _cut(self._kb_types, limits.MAX_KB_TYPES)
        return TOO_MANY_NAMES if _cut(self._names, limits.MAX_NAMES) else None

    def build(self) -> Entity:
        """The entity of all rows so far."""
        names = iter(self._names)
        return Entity(
            self._first.entity_id,
            next(names),
            tuple(names),
            tuple(self._kb_types),
            tuple(self._types),
            self._description,
            self._extra,
            self._popularity,
            {name: self._languages[name] for name in self._names if name in self._languages},
        )


def _cut(values: dict[str, None], most: int) -> bool:
    """Keep at most `most` values, the first ones; returns whether there were more."""
    is_over = len(values) > most
    while len(values) > most:
        values.popitem()
    return is_over


def merge_adjacent(
    rows: Iterable[Entity], report: ReadReport, on_excess: Callable[[str, Entity], None] | None = None
) -> Iterator[Entity]:
    """Merge adjacent rows of one id; counts them in the report, whose `place` is that of the last row. A row that
    exceeds a limit goes to `on_excess` with the reason; by default it is counted as skipped.
    """
    on_excess = on_excess or (lambda reason, row: report.skip_here(reason, f"{row.entity_id} {row.canonical_name}"))
    pending: Entity | None = None
    place = report.place
    builder: EntityBuilder | None = None
    for row in rows:
        if pending is None:
            pending, place = row, report.place
        elif row.entity_id == pending.entity_id:
            builder = builder or EntityBuilder(pending)
            reason = builder.add(row)
            if reason is not None:
                on_excess(reason, row)
            if reason != TOO_MANY_ROWS:
                report.merged_rows += 1
                if row.canonical_name != pending.canonical_name:
                    report.conflict(report.place, row.entity_id, pending.canonical_name, row.canonical_name)
        else:
            report.run_place = place
            yield pending if builder is None else builder.build()
            pending, builder, place = row, None, report.place
    if pending is not None:
        report.run_place = place
        yield pending if builder is None else builder.build()


def merge_scattered(runs: Iterable[Entity], scattered: Hashes, report: ReadReport) -> Iterator[Entity]:
    """Each id once: whole entities in their order, then those of the `scattered` ids, merged. Raises InputError if the
    temporary database cannot be written, or the rows of a scattered id are too many.
    """
    if not len(scattered):
        yield from _count(runs, report)
        return
    with RowStore() as store:
        whole = store_scattered(
            runs, scattered, store, id_of=lambda run: run.entity_id, size_of=entity_size, to_json=entity_to_json
        )
        yield from _count(whole, report)
        report.place = "", 0
        yield from _count(merge_adjacent(map(entity_from_json, store.rows()), report, _refuse), report)


def _refuse(reason: str, row: Entity) -> None:
    raise scattered_excess(row.entity_id, reason)


def _count(entities: Iterable[Entity], report: ReadReport) -> Iterator[Entity]:
    for entity in entities:
        report.entities += 1
        report.names += 1 + len(entity.aliases)
        yield entity


def store_scattered(
    runs: Iterable[T],
    scattered: npt.NDArray[Any],
    store: RowStore,
    *,
    id_of: Callable[[T], str],
    size_of: Callable[[T], int],
    to_json: Callable[[T], str],
    hash_all: Callable[[list[str]], npt.NDArray[Any]] = hash_texts,
) -> Iterator[T]:
    """Yield the runs that are all there is of their id, in the order of the input; put the others into the database.

    `scattered`: sorted hashes, (s,), of the ids with several runs, as `hash_all` makes them; `id_of`, `size_of` and
    `to_json` give the id, the characters and the record of a run.
    """
    if not len(scattered):
        yield from runs
        return
    for batch in batches(runs, size_of):
        hashes = hash_all(list(map(id_of, batch)))
        found = (scattered[np.minimum(np.searchsorted(scattered, hashes), len(scattered) - 1)] == hashes).tolist()
        if any(found):
            store.add((id_of(run), to_json(run)) for run, is_found in zip(batch, found, strict=True) if is_found)
        yield from (run for run, is_found in zip(batch, found, strict=True) if not is_found)


class RowStore:
    """Texts by id that wait for the end of the input, in an unnamed database on disk."""

    def __init__(self) -> None:
        # A load may start a reader in one thread and close it in another.
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        for statement in (
            f"PRAGMA cache_size = -{_CACHE_KIB}",
            "PRAGMA temp_store = FILE",
            "PRAGMA journal_mode = OFF",
            "PRAGMA synchronous = OFF",
            "CREATE TABLE rows (sequence INTEGER PRIMARY KEY, id BLOB NOT NULL, record TEXT NOT NULL)",
        ):
            self._database.execute(statement)
        self._is_indexed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._database.close()

    def add(self, rows: Iterable[tuple[str, str]]) -> None:
        """Add ids with texts. Raises InputError if they cannot be written."""
        records = ((_blob(id_), text) for id_, text in rows)
        try:
            self._database.execute("BEGIN")
            self._database.executemany("INSERT INTO rows (id, record) VALUES (?, ?)", records)
            self._database.execute("COMMIT")
        except sqlite3.Error as error:
            raise InputError("temporary file", None, f"rows cannot be stored: {error}. {_ADVICE}") from error

    def find(self, id_: str, most: int) -> list[str]:
        """The first texts of an id, after all were added. Raises as `add`."""
        try:
            if not self._is_indexed:
                self._database.execute("CREATE INDEX rows_by_id ON rows (id, sequence)")
                self._is_indexed = True
            query = "SELECT record FROM rows WHERE id = ? ORDER BY sequence LIMIT ?"
            return [record for (record,) in self._database.execute(query, (_blob(id_), most))]
        except sqlite3.Error as error:
            raise InputError("temporary file", None, f"rows cannot be read back: {error}. {_ADVICE}") from error

    def rows(self) -> Iterator[str]:
        """All texts, those of one id together in their order, ids by first appearance. Raises as `add`."""
        order = (
            "SELECT record FROM (SELECT record, sequence, min(sequence) OVER (PARTITION BY id) AS first FROM rows) "
            "ORDER BY first, sequence"
        )
        try:
            for (record,) in self._database.execute(order):
                yield record
        except sqlite3.Error as error:
            raise InputError("temporary file", None, f"rows cannot be read back: {error}. {_ADVICE}") from error


def _blob(id_: str) -> bytes:
    """Bytes, since text in SQLite can have neither a lone surrogate nor, safely, a NUL."""
    return id_.encode("utf-8", "surrogatepass")


def entity_to_json(entity: Entity) -> str:
    """An entity as one line of JSON, lone surrogates included."""
    return json.dumps(
        [
            entity.entity_id,
            entity.canonical_name,
            entity.aliases,
            entity.kb_types,
            entity.types,
            entity.description,
            dict(entity.extra),
            entity.popularity,
            dict(entity.languages),
        ]
    )


def entity_from_json(record: str) -> Entity:
    """Reverse `entity_to_json`."""
    entity_id, canonical_name, aliases, kb_types, types, *others = json.loads(record)
    return Entity(entity_id, canonical_name, tuple(aliases), tuple(kb_types), tuple(types), *others)
