"""The interface of a store, a set of collections of named points.

There are two adapters: `edge` (Qdrant Edge, in this process, a folder) and `server` (a Qdrant server or cluster). Both
pass the same tests of behaviour (tests/stores/test_store_behaviour.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, Protocol

from pearl_qdrant.encoder.protocol import BoolArray, FloatArray
from pearl_qdrant.lexical.ngrams import SparseRows
from pearl_qdrant.store.graph import CollectionStatus
from pearl_qdrant.store.schema import Checkpoint, Manifest, NamePoint
from pearl_qdrant.store.search import MakeSlipQuery, ScoredName
from pearl_qdrant.store.versions.protocol import Versions
from pearl_qdrant.store.versions.rows import NameRows

IsMatch = Callable[[int, NamePoint], bool]
"""Takes the row of a query and a name; whether the name is so much the query's own that no other search is needed."""

CheckState = Literal["ok", "note", "fail"]


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check of the installation or a server.

    Attributes:
        subject: What was checked.
        state: "fail" needs a fix; "note" is only worth knowing.
        finding: What was found, with the fix if it failed.
    """

    subject: str
    state: CheckState
    finding: str


class Writer(Protocol):
    """A bulk load into one collection. A context manager: leaving it waits for the last write.

    Leaving it by an exception drops points that are not written yet; acknowledged ones stay.
    """

    def __enter__(self) -> Writer: ...

    def __exit__(self, *exc_info: object) -> None: ...

    def write(
        self,
        points: Sequence[NamePoint],
        vectors: FloatArray,
        encodable: BoolArray,
        *,
        descriptions: FloatArray | None = None,
    ) -> None:
        """Write points; may return before they are stored. Raises the error of an earlier write, if there was one.

        Args:
            points: n points.
            vectors: (n, dim), L2-normalised.
            encodable: (n,); a point with False is stored without a dense vector.
            descriptions: (n, dim), L2-normalised, of the points of canonical names; a row of zeros is no vector.

        Raises:
            InvalidPointError: If a vector is NaN, zero or has another width, or a text is not valid Unicode.
            StoreError: If this or an earlier write failed.
        """
        ...

    def flush(self) -> None:
        """Return when all points so far are stored durably."""


class Collection(Protocol):
    """One open collection."""

    @property
    def name(self) -> str: ...

    @property
    def manifest(self) -> Manifest: ...

    @property
    def is_remote(self) -> bool:
        """Whether a search mostly waits for another process."""

    @property
    def is_outdated(self) -> bool:
        """Whether it is an older state of the collection: it was opened read-only, and changed since (embedded)."""

    @property
    def state_token(self) -> str | None:
        """What names the state that is searched here; a view with the same token has the same points and ledger.

        None if no other process can have that state: on a server, and before changes of this process are committed.
        """
        ...

    def editing(self) -> AbstractContextManager[None]:
        """Make several changes one for those who read an embedded collection: they see them when the block ends.

        Blocks may be within others. Outside of one, each change is a block of its own. On a server it does nothing.

        Raises:
            ReadOnlyError: If the collection was opened read-only (embedded store).
        """
        ...

    def read_manifest(self) -> Manifest:
        """Read the current manifest: on a server, another process may have written it meanwhile."""

    def write_manifest(self, manifest: Manifest) -> None:
        """Replace the manifest, atomically."""

    def write_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Record how much of an input is stored; another process may do this for another input at the same time."""

    def remove_checkpoint(self, input_name: str) -> None:
        """Remove the checkpoint of an input: its load is complete."""

    def read_ledger(self) -> Iterator[bytes]:
        """Yield the lines of the ledger of learned names, in the order in which they were appended.

        The ledger belongs to the name of the collection: it stays where the collection is deleted to be made again.
        """
        ...

    def append_ledger(self, lines: Sequence[bytes]) -> None:
        """Append lines to the ledger; they are stored durably on return. A line has no line end, and is not empty.

        Lines of a call that fails, or of a process that dies, may be there in part; the reader must expect it.

        Raises:
            StoreFullError: If there is no space for them.
            StoreError: If they cannot be written.
        """
        ...

    def writer(self) -> Writer:
        """Start a bulk load. While it is open, the collection must not be searched."""

    def upsert(
        self,
        points: Sequence[NamePoint],
        vectors: FloatArray,
        encodable: BoolArray,
        *,
        descriptions: FloatArray | None = None,
    ) -> None:
        """Write a few points; search finds them when this returns. Arguments as in `Writer.write`."""

    def search(self, vectors: FloatArray, *, limit: int, types: Sequence[str] = ()) -> list[list[ScoredName]]:
        """Find the nearest names of each query vector, best first.

        Args:
            vectors: (q, dim), L2-normalised; a row of zeros finds nothing.
            limit: Return at most this many names for each query; > 0.
            types: Keep only points with one of these in `kb_types` or `types`, or, if the base gives no coarse type,
                in `predicted_type`. Empty: no filter.

        Returns:
            q lists. Equal scores are ordered by point id.
        """
        ...

    def search_hybrid(
        self,
        vectors: FloatArray,
        lexical: SparseRows,
        *,
        limit: int,
        lexical_limit: int,
        types: Sequence[str] = (),
        is_match: IsMatch | None = None,
        keys: SparseRows | None = None,
        slips: MakeSlipQuery | None = None,
    ) -> list[list[ScoredName]]:
        """Find names near by dense vector, and names that share keys, slips or n-grams; each once, with dense cosine.

        A collection without sparse vectors, or with those of another version, is searched by dense vector only.

        Args:
            vectors: (q, dim), L2-normalised; a row of zeros finds nothing by dense vector.
            lexical: q rows, used as given; an empty row finds nothing by n-grams.
            limit: Find at most this many names by dense vector for each query; > 0.
            lexical_limit: Find at most this many names by n-grams for each query; > 0. Of names with an equal n-gram
                score, the first by id.
            types: As in `search`.
            is_match: If it is true for one of the nearest names or one that shares a key, the query is not searched
                by n-grams.
            keys: q rows of keys (`lexical.keys.key_rows`); at most 2 x `lexical_limit` names are found by them.
            slips: Features of names one or two edits away; a query without a match is searched by them before n-grams,
                for at most 3 x `lexical_limit` names.

        Returns:
            q lists of up to `limit` + `lexical_limit` names, by dense cosine, best first; names without one last.
            Equal scores are ordered by point id.

        Raises:
            ValueError: If vectors and rows do not pair up, have another width or are not finite, or a limit is not
                positive.
        """
        ...

    def find(
        self, *, entity_ids: Sequence[str] = (), names: Sequence[str] = (), types: Sequence[str] = (), limit: int
    ) -> list[NamePoint]:
        """Find points by exact entity id or exact name (at least one must be given), ordered by point id."""

    def get(self, ids: Sequence[str]) -> dict[str, NamePoint]:
        """Return points by id; missing ones are left out."""

    def description_vectors(self, points: Sequence[NamePoint]) -> FloatArray:
        """Return the vector of the description of each point's entity: (n, dim) float32, L2-normalised.

        Without a stored description it is the dense vector of the canonical name; without that, zeros.
        """
        ...

    def replace_payloads(self, points: Sequence[NamePoint]) -> None:
        """Replace everything but the vectors of stored points.

        Raises:
            InvalidPointError: If a text is not valid Unicode.
        """
        ...

    def scroll(self) -> Iterator[NamePoint]:
        """Yield all points, ordered by point id."""

    def scroll_rows(self) -> Iterator[NameRows]:
        """Yield all points with their vectors, ordered by point id, in pages; the last one may be empty."""

    def count(self) -> int:
        """Return the exact number of points."""

    def count_entities(self) -> int:
        """Return the exact number of points with a canonical name: one for each entity."""

    def type_counts(self, limit: int = 1000) -> dict[str, dict[str, int]]:
        """Count points by value of each type field: {"types": {"ORG": 12}, "kb_types": ..., "predicted_type": ...}.

        A server may allow fewer values than `limit`: then only the most frequent ones are returned.
        """
        ...

    def has_type(self, name: str) -> bool:
        """Whether any point passes a filter for this type; always exact, while `type_counts` may be cut."""

    def delete_entities(self, entity_ids: Sequence[str]) -> int:
        """Delete all points of these entities; return how many points were deleted."""

    def delete_points(self, ids: AbstractSet[str]) -> None:
        """Delete points by id; unknown ids do not matter."""
        ...

    def finalize(self, on_progress: Callable[[int, int], None] | None = None) -> None:
        """Build the HNSW graph. Before, search is exact; meanwhile it is never wrong.

        Args:
            on_progress: Called from time to time with (vectors indexed, all vectors).
        """
        ...

    def status(self) -> CollectionStatus: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Glance:
    """What is known of a collection without opening it.

    Attributes:
        name: Its name.
        manifest: Its manifest; None if it has no usable one.
        has_graph: Whether the graph is built, or the collection is too small to need one, by the counts of the
            manifest.
        problem: Why there is no manifest; else None.
        is_foreign: Whether there is none because another program made the collection.
        writer: The other process that has it open for writing; None if none has, or it is not known (server).
    """

    name: str
    manifest: Manifest | None
    has_graph: bool = False
    problem: str | None = None
    is_foreign: bool = False
    writer: str | None = None


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
    def versions(self) -> Versions:
        """The versions of its collections, hidden ones too."""
        ...

    def collections(self) -> list[str]:
        """Return the names, sorted."""
        ...

    def glance(self, names: Sequence[str]) -> Iterable[Glance]:
        """Look at collections without opening them, also while another process has them open.

        Collections that do not exist are left out.

        Raises:
            StoreError: If the store cannot be read or does not answer.
        """
        ...

    def create(self, manifest: Manifest, placement: Placement | None = None) -> Collection:
        """Create `manifest.collection` with its payload indexes, and open it.

        Args:
            manifest: The name, base and model of the collection.
            placement: How a cluster distributes it.

        Raises:
            CollectionExistsError: If a collection of that name exists.
            SettingsError: If this kind of store has no shards or replicas.
        """
        ...

    def open(self, name: str, *, read_only: bool = False) -> Collection:
        """Open a collection.

        Args:
            name: The collection.
            read_only: Open an embedded collection as it was committed last, without its lock, beside a process that
                writes it; changes raise `ReadOnlyError`. A server knows no such opening.

        Raises:
            CollectionNotFoundError: If there is no collection of that name.
            ManifestError: If it was not made by pearl-qdrant.
            StoreLockedError: If another process has it open for writing (embedded store).
        """
        ...

    def delete(self, name: str, *, keep_ledger: bool = False) -> None:
        """Delete a collection with all its data, even one without a manifest.

        Args:
            name: The collection.
            keep_ledger: Whether a collection of that name that is made later has its ledger of learned names again.

        Raises:
            CollectionNotFoundError: If there is no collection of that name.
        """
        ...

    def close(self) -> None: ...
