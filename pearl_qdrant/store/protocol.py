"""The interface of a store, a set of collections of named points, and what collections of both kinds do alike.

There are two adapters: `edge` (Qdrant Edge, in this process, a folder) and `server` (a Qdrant server or cluster). Both
pass the same tests of behaviour (tests/stores/test_store_behaviour.py).

A collection has versions: several states behind one name, one of which is current. A version is built where nobody sees
it, and one atomic change makes it current. The one before it stays until it is pruned. Readers that are open keep the
version that they opened.
"""

from __future__ import annotations

import os
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, nullcontext
from dataclasses import astuple, dataclass, replace
from heapq import merge
from itertools import islice, product
from typing import Literal, Protocol, TypeVar

import numpy as np

from pearl_qdrant.encoder.protocol import BoolArray, FloatArray
from pearl_qdrant.lexical.ngrams import SparseRows
from pearl_qdrant.store.hybrid import search_hybrid
from pearl_qdrant.store.schema import (
    FACET_FIELDS,
    LANGUAGE_FIELD,
    Checkpoint,
    Manifest,
    NamePoint,
    NameRows,
    Quantization,
    point_id,
)
from pearl_qdrant.store.search import (
    BATCH_QUERIES,
    CollectionStatus,
    OwnNames,
    ScoredName,
    SearchEngine,
    check_limit,
    chunks,
    keep_valid,
    search_lexical,
)

T = TypeVar("T")

PLAIN = ""  # the id of the version that is the collection itself, as a load makes it

Maker = Literal["load", "push", "pull", "reencode"]


@dataclass(frozen=True, slots=True)
class VersionMark:
    """What a version says of itself, beside its manifest."""

    id: str = PLAIN
    collection: str = ""
    made_by: Maker = "load"
    is_complete: bool = False  # built and checked; else it is a leftover, unless a call builds it now
    replaced: str | None = None  # id of the version that it took the place of
    number: int = 0  # how often another version had become current when this one did last
    placement: tuple[int | None, ...] = ()  # as a cluster was told: shards, replicas, write consistency
    is_damaged: bool = False  # it cannot be read, so that nobody knows what the version is


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a collection; the current one is what opening the collection opens."""

    mark: VersionMark
    is_current: bool
    manifest: Manifest | None

    @property
    def id(self) -> str:
        return self.mark.id


def placement_of(placement: Placement | None) -> tuple[int | None, ...]:
    """The placement as a mark has it."""
    given = () if placement is None else astuple(placement)
    return given if any(given) else ()


def new_version() -> str:
    """An id that no other version has."""
    return os.urandom(6).hex()


CheckState = Literal["ok", "note", "fail"]


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check of the installation or a server: "fail" needs a fix; "note" is only worth knowing."""

    subject: str
    state: CheckState
    finding: str


class Writer(Protocol):
    """A bulk load into one collection. A context manager: leaving it waits for the last write. Leaving it by an
    exception drops points that are not written yet; acknowledged ones stay.
    """

    def __enter__(self) -> Writer: ...

    def __exit__(self, *exc_info: object) -> None: ...

    def write(self, points: Sequence[NamePoint], vectors: FloatArray, encodable: BoolArray) -> None:
        """Write n points with vectors (n, dim), L2-normalised; may return before they are stored.

        Points that are not `encodable`, (n,), are stored without a dense vector. InvalidPointError if a vector is NaN,
        zero or has another width, or a text is not valid Unicode; StoreError if this or an earlier write failed.
        """
        ...

    def flush(self) -> None:
        """Return when all points so far are stored durably."""


@dataclass(frozen=True, slots=True)
class PointFilter:
    """Which points pass: all conditions that are not empty must hold. All values are valid Unicode. `types` are
    `NamePoint.filter_types`; a name for which no language is stated passes any `languages`.
    """

    entity_ids: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()


_NO_SINGLE_LANGUAGE = ("mul", "und", "zxx")  # ISO 639 codes of several languages, of an unknown one and of none


class Collection(ABC):
    """One open collection; `is_remote` if a search mostly waits for another process.

    The public methods check arguments, cut them into parts that the engine takes, and merge the answers. An adapter
    supplies the methods that begin with `_`, which do one call of its engine each.
    """

    name: str
    is_remote: bool = False
    _page_size: int  # points that one scroll or retrieve requests
    _max_values: int  # the most values in one condition of a filter, or ids in one delete

    @property
    @abstractmethod
    def manifest(self) -> Manifest: ...

    @property
    def is_outdated(self) -> bool:
        """Whether it is an older state of the collection: it was opened read-only, and changed since (embedded)."""
        return False

    @property
    def is_moved(self) -> bool:
        """Whether its name means something else by now, so that who searches it should open it again at once: an alias
        of the user's leads to another collection, or it was made again with another model (server).
        """
        return False

    @property
    def state_token(self) -> str | None:
        """What names the state that is searched here; None if no other process can have that state."""
        return None

    @property
    def ledger_loss(self) -> str | None:
        """What is missing of what it learned, and what to do, as a part of a sentence; None if nothing is known to be
        (embedded).
        """
        return None

    def editing(self) -> AbstractContextManager[None]:
        """Let those who read an embedded collection see all changes of a block when it ends; blocks may be nested."""
        return nullcontext()

    @abstractmethod
    def read_manifest(self) -> Manifest:
        """Read the current manifest: on a server, another process may have written it meanwhile."""

    @abstractmethod
    def write_manifest(self, manifest: Manifest) -> None:
        """Replace the manifest, atomically."""

    @abstractmethod
    def write_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Record how much of an input is stored; another process may do this for another input at the same time."""

    @abstractmethod
    def remove_checkpoint(self, input_name: str) -> None:
        """Remove the checkpoint of an input: its load is complete."""

    @abstractmethod
    def read_ledger(self) -> Iterator[bytes]:
        """Yield the lines of the ledger of learned names, in their order; it belongs to the collection's name."""

    @abstractmethod
    def append_ledger(self, lines: Sequence[bytes]) -> None:
        """Append lines, without their ends, to the ledger; stored on return. After a failure some may be there."""

    @abstractmethod
    def writer(self) -> Writer:
        """Start a bulk load. While it is open, the collection must not be searched."""

    @abstractmethod
    def upsert(self, points: Sequence[NamePoint], vectors: FloatArray, encodable: BoolArray) -> None:
        """Write a few points; search finds them when this returns. Arguments as in `Writer.write`."""

    def search(self, vectors: FloatArray, *, limit: int, types: Sequence[str] = ()) -> list[list[ScoredName]]:
        """Find the nearest names of each query vector, best first, equal scores by point id.

        Args:
            vectors: (q, dim), L2-normalised; a row of zeros finds nothing.
            limit: Return at most this many names for each query; > 0.
            types: Keep only points with one of these in `kb_types` or `types`, or, if the base gives no coarse type,
                in `predicted_type`. Empty: no filter.

        Returns:
            q lists. ValueError if the vectors have another width or are not finite, or `limit` is not positive;
            StoreRejectedError if the server's strict mode does not allow a query for `limit` points.
        """
        wanted = self._filter_of(types)
        if wanted is None:
            return [[] for _ in vectors]

        def search() -> list[list[ScoredName]]:
            engine = replace(self._engine(wanted, limit), batch_mentions=BATCH_QUERIES)
            return search_hybrid(engine, vectors, None, limit=limit, lexical_limit=1, own=None)

        return self._search(search)

    def search_hybrid(
        self,
        vectors: FloatArray,
        lexical: SparseRows,
        *,
        limit: int,
        lexical_limit: int,
        types: Sequence[str] = (),
        languages: Sequence[str] = (),
        own: OwnNames | None = None,
    ) -> list[list[ScoredName]]:
        """Find names near by dense vector, and names that share keys, slips or n-grams; each once, with dense cosine.

        Args:
            vectors: (q, dim), L2-normalised; a row of zeros finds nothing by dense vector.
            lexical: q rows, used as given; an empty row finds nothing by n-grams.
            limit, lexical_limit: Find at most so many names for each query by dense vector, and by n-grams; > 0.
            types: As in `search`.
            languages: Keep only names in one of these languages, and those for which the base states no single one.
                Empty: no filter.
            own: Search for the queries' own names first, by keys and slips.

        Returns:
            q lists of up to `limit` + `lexical_limit` names, by dense cosine, best first; names without one last. Equal
            scores are ordered by point id. ValueError as for `search`, or if vectors and rows do not pair up.
        """
        wanted = self._filter_of(types, languages)
        if wanted is None:
            return [[] for _ in vectors]
        return self._search(
            lambda: search_hybrid(
                # The caller wants `lexical_limit` names. `limit` is a little larger, and is cut to what is allowed.
                self._engine(wanted, lexical_limit),
                vectors,
                lexical,
                limit=limit,
                lexical_limit=lexical_limit,
                own=own,
            )
        )

    @property
    def most_points(self) -> int | None:
        """Points that one query may request; None for any number."""
        return None

    def search_lexical(
        self, rows: SparseRows, limits: Sequence[int], *, languages: Sequence[str] = ()
    ) -> list[list[NamePoint]]:
        """Find names that share features (`lexical.keys`) with each of q rows.

        Args:
            rows: q rows of features, none of them empty.
            limits: How many names are found for each at most, (q,); > 0. A server that allows fewer gives fewer.
            languages: As in `search_hybrid`.

        Returns:
            q lists, best first. Of names that tie at the end there are none, unless all tie.
        """
        wanted = self._filter_of((), languages)
        assert wanted is not None  # no type is asked for
        return self._search(lambda: search_lexical(self._engine(wanted, 1), rows, limits))

    def _search(self, search: Callable[[], T]) -> T:
        """Run a search; an adapter may look before, and run it again."""
        return search()

    def find(
        self,
        *,
        entity_ids: Sequence[str] = (),
        names: Sequence[str] = (),
        types: Sequence[str] = (),
        languages: Sequence[str] = (),
        limit: int,
    ) -> list[NamePoint]:
        """Find points by exact entity id or exact name (at least one must be given), ordered by point id.

        `types` and `languages` are those of `search_hybrid`.

        Raises:
            ValueError: If neither is given, or `limit` is not positive.
        """
        if not entity_ids and not names:
            raise ValueError("find needs entity_ids or names")
        check_limit(limit)
        wanted = self._filter_of(types, languages)
        if wanted is None:
            return []
        page = min(limit, self._page_size)
        # A condition takes a limited number of values: one filter for each pair of parts. If no id or no name is
        # valid, there is no part, so no filter, and nothing is found.
        pages = [
            self._scroll(replace(wanted, entity_ids=id_part, names=name_part), page)
            for id_part, name_part in product(self._cut(entity_ids), self._cut(names))
        ]
        return list(islice(merge(*pages, key=lambda point: point.id), limit))

    def _filter_of(self, types: Sequence[str], languages: Sequence[str] = ()) -> PointFilter | None:
        """The filter by type and language of an open collection; None if no point can have one of the types."""
        self._check_open()
        valid = tuple(keep_valid(types))
        any_language = (*keep_valid(languages), *_NO_SINGLE_LANGUAGE) if languages else ()
        return PointFilter(types=valid, languages=any_language) if valid or not types else None

    def get(self, ids: Sequence[str]) -> dict[str, NamePoint]:
        """Return points by id; missing ones are left out."""
        self._check_open()
        points: dict[str, NamePoint] = {}
        for some in chunks(ids, self._page_size):
            points.update(self._retrieve(some))
        return points

    def canonical_vectors(self, points: Sequence[NamePoint]) -> FloatArray:
        """Return the vector of the canonical name of each point's entity, (n, dim) float32; zeros without one."""
        self._check_open()
        ids = [point_id(point.kb, point.entity_id, point.canonical_name) for point in points]
        row = struct.Struct(f"={self.manifest.dim}f")  # takes a third of the time that numpy takes to read a list
        found: dict[str, bytes] = {}
        for some in chunks(list(dict.fromkeys(ids)), self._page_size):
            found |= {one: row.pack(*values) for one, values in self._retrieve_vectors(some).items()}
        packed = b"".join(found.get(one, bytes(row.size)) for one in ids)
        vectors: FloatArray = np.frombuffer(packed, dtype=np.float32).reshape(len(ids), self.manifest.dim)
        return vectors

    @abstractmethod
    def replace_payloads(self, points: Sequence[NamePoint]) -> None:
        """Replace everything but the vectors of stored points; InvalidPointError if a text is not valid Unicode."""

    def scroll(self) -> Iterator[NamePoint]:
        """Yield all points, ordered by point id."""
        return self._scroll(None, self._page_size)

    @abstractmethod
    def scroll_rows(self) -> Iterator[NameRows]:
        """Yield all points with their vectors, ordered by point id, in pages; the last one may be empty."""

    def count(self) -> int:
        """Return the exact number of points."""
        return self._count(None)

    @abstractmethod
    def count_entities(self) -> int:
        """Return the exact number of points with a canonical name: one for each entity."""

    def type_counts(self, limit: int = 1000) -> dict[str, dict[str, int]]:
        """Count points by value of each type field, the most frequent ones: {"types": {"ORG": 12}, "kb_types": ...}."""
        return {field: self._count_values(field, limit) for field in FACET_FIELDS}

    def language_counts(self, limit: int = 1000) -> dict[str, int]:
        """Count names by language, most frequent first; names without a stated language do not count."""
        return self._count_values(LANGUAGE_FIELD, limit)

    def has_type(self, name: str) -> bool:
        """Whether any point passes a filter for this type; always exact, while `type_counts` may be cut."""
        valid = tuple(keep_valid([name]))
        return bool(valid) and self._count(PointFilter(types=valid)) > 0

    def delete_entities(self, entity_ids: Sequence[str]) -> int:
        """Delete all points of these entities; return how many points were deleted."""
        self._check_open()
        with self.editing():
            return sum(self._delete_matching(PointFilter(entity_ids=part)) for part in self._cut(entity_ids) if part)

    def delete_points(self, ids: AbstractSet[str]) -> None:
        """Delete points by id; unknown ids do not matter."""
        with self.editing():
            for some in chunks(sorted(ids), self._max_values):
                self._delete_ids(some)

    @abstractmethod
    def finalize(self, on_progress: Callable[[int, int], None] | None = None) -> None:
        """Build the HNSW graph; `on_progress` is called with (vectors indexed, all). Before, search is exact."""

    @abstractmethod
    def status(self) -> CollectionStatus: ...

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def _check_open(self) -> None:
        """Raise StoreClosedError if it was closed, or StoreForkedError if another process opened it."""

    @abstractmethod
    def _engine(self, point_filter: PointFilter, n_wanted: int) -> SearchEngine:
        """The engine for searches for `n_wanted` points; StoreRejectedError if these are too many."""

    @abstractmethod
    def _scroll(self, point_filter: PointFilter | None, page: int) -> Iterator[NamePoint]:
        """Yield the points that pass, ordered by id; `page` points for each call of the engine."""

    @abstractmethod
    def _retrieve(self, ids: list[str]) -> dict[str, NamePoint]:
        """Return the points of these ids; missing ones are left out."""

    @abstractmethod
    def _retrieve_vectors(self, ids: list[str]) -> Mapping[str, Sequence[float]]:
        """Return the dense vectors of the points of these ids; points without one are left out."""

    @abstractmethod
    def _count(self, point_filter: PointFilter | None) -> int:
        """Count the points that pass, exactly."""

    @abstractmethod
    def _count_values(self, field: str, limit: int) -> dict[str, int]:
        """Count the points by value of a payload field; the `limit` most frequent values."""

    @abstractmethod
    def _delete_matching(self, point_filter: PointFilter) -> int:
        """Delete the points that pass; return how many there were."""

    @abstractmethod
    def _delete_ids(self, ids: list[str]) -> None:
        """Delete points by id; unknown ids do not matter."""

    def _cut(self, values: Sequence[str]) -> list[tuple[str, ...]]:
        """Cut the valid and distinct values into parts for one condition each; no values make one empty part."""
        if not values:
            return [()]
        return [tuple(part) for part in chunks(keep_valid(dict.fromkeys(values)), self._max_values)]


@dataclass(frozen=True, slots=True)
class Glance:
    """What is known of a collection without opening it.

    Its manifest, or the `problem` why it has no usable one; by its counts, whether the graph is built or not needed;
    `is_foreign` if another program made it; the other process that has it open for writing (embedded); and the fields
    that lack a payload index (server).
    """

    name: str
    manifest: Manifest | None
    has_graph: bool = False
    problem: str | None = None
    is_foreign: bool = False
    writer: str | None = None
    missing_indexes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Placement:
    """How a cluster distributes a collection; None: the server's default.

    Attributes:
        shards: Parts of the collection; by default one for each node.
        replicas: Copies of each part; by default 1, unless the server is configured otherwise.
        write_consistency: Replicas that must have a write before it is acknowledged; by default 1.
    """

    shards: int | None = None
    replicas: int | None = None
    write_consistency: int | None = None

    def __post_init__(self) -> None:
        given = [number for number in (self.shards, self.replicas, self.write_consistency) if number is not None]
        if any(number < 1 for number in given):
            raise ValueError(f"shards, replicas and write_consistency must be at least 1: {self}")


class Store(Protocol):
    """A set of collections. Closing it closes the collections that it opened."""

    @property
    def location(self) -> str:
        """Folder or URL, without any key."""
        ...

    @property
    def quantization(self) -> Quantization:
        """How a new collection keeps its vectors here, unless its manifest is to say otherwise."""
        ...

    def collections(self) -> list[str]:
        """Return the names, sorted."""
        ...

    def glance(self, names: Sequence[str]) -> Iterable[Glance]:
        """Look at collections without opening them, also while another process has them open; missing are left out."""
        ...

    def versions(self, name: str) -> list[Version]:
        """Return all versions of a collection, the current one first, hidden and incomplete ones too."""
        ...

    def create(
        self,
        manifest: Manifest,
        placement: Placement | None = None,
        *,
        version: str | None = None,
        made_by: Maker = "load",
    ) -> Collection:
        """Create `manifest.collection`, or a hidden version of it, with its payload indexes, and open it.
        CollectionExistsError if it exists, SettingsError if this store has no shards, and `placement` is given.
        """
        ...

    def open(self, name: str, *, version: str | None = None, read_only: bool = False) -> Collection:
        """Open the current version of a collection, or another one.

        Read-only, an embedded one is opened as it was committed last, beside a process that writes it, and refuses
        changes (`ReadOnlyError`); a server knows no such opening. CollectionNotFoundError, ManifestError if it was not
        made by pearl-qdrant, StoreLockedError if another process has it open for writing (embedded).
        """
        ...

    def moving(self, name: str, *, wait_s: float) -> AbstractContextManager[Collection]:
        """Hold all writers of the current version back, and open it, until the block ends; readers go on.

        Embedded, it is the lock of the collection: StoreLockedError if another process, or this one, has it open for
        writing after `wait_s`. On a server, writers wait after each write until they know whether it counts, and repeat
        it if it does not; StoreError if somebody else moves it.
        """
        ...

    def switch(self, name: str, version: str) -> None:
        """Make a version the current one, atomically; the one before it stays. An embedded version is closed, and the
        caller is in `moving`, if there is a current version.
        """
        ...

    def delete(self, name: str, *, version: str | None = None, keep_ledger: bool = False) -> None:
        """Delete a collection with all its versions, even one without a manifest; or a version that is not current.

        With `keep_ledger`, a collection of that name that is made later has its ledger of learned names again.
        CollectionNotFoundError if there is none, StoreLockedError if it is open for writing (embedded).
        """
        ...

    def close(self) -> None: ...
