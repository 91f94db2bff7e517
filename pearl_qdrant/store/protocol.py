"""What the rest of the project knows of a store: a set of collections of named points.

Two adapters: `edge.py` (Qdrant Edge, in-process, a folder) and `server.py` (a Qdrant server or cluster). Both pass
the same tests of behaviour (tests/stores/test_store_behaviour.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol

from pearl_qdrant.encoder.protocol import BoolArray, FloatArray
from pearl_qdrant.lexical.ngrams import SparseRows
from pearl_qdrant.store.schema import Checkpoint, Manifest, NamePoint


@dataclass(frozen=True, slots=True)
class ScoredName:
    """A point found by search.

    Attributes:
        point: Its payload.
        score: Cosine to the query vector, in [-1, 1]; None where the name or the query has no dense vector, which
            only `Collection.search_hybrid` finds.
    """

    point: NamePoint
    score: float | None


IsExactMatch = Callable[[int, NamePoint], bool]
"""Whether a name answers the query of that number so well that no other search is needed."""


@dataclass(frozen=True, slots=True)
class CollectionStatus:
    """How a collection stands.

    Attributes:
        points: Exact number of points.
        vectors: Points with a dense vector (the others are unencodable names).
        indexed_vectors: Dense vectors in an HNSW graph; search over the rest is exact.
        segments: Number of segments.
        is_finalized: Whether the graph is built, or the collection is too small to need one.
        payload_indexes: Indexed payload fields.
    """

    points: int
    vectors: int
    indexed_vectors: int
    segments: int
    is_finalized: bool
    payload_indexes: tuple[str, ...]


def share_indexed(indexed: int, n_vectors: int, n_sparse: int) -> int:
    """How many dense vectors are in a graph.

    Args:
        indexed: As Qdrant counts: dense and sparse vectors of the segments with a graph, deleted ones included.
        n_vectors, n_sparse: Dense and sparse vectors in the collection.
    """
    return min(n_vectors, round(indexed * n_vectors / max(1, n_vectors + n_sparse)))


class Writer(Protocol):
    """A bulk load into one collection. Used as a context manager; leaving it waits for the last write.

    Leaving it on an exception drops what is not yet written; what was acknowledged stays.
    """

    def __enter__(self) -> Writer: ...

    def __exit__(self, *exc_info: object) -> None: ...

    def write(self, points: Sequence[NamePoint], vectors: FloatArray, encodable: BoolArray) -> None:
        """Write points; may return before they are stored, and raises what an earlier write failed with.

        Args:
            points: n points.
            vectors: (n, dim), L2-normalised.
            encodable: (n,); a point where this is false is stored without a dense vector.

        Raises:
            InvalidPointError: If a vector is NaN, zero or of the wrong width, or a text no valid Unicode.
            StoreError: If the store failed for good.
        """
        ...

    def flush(self) -> None:
        """Return when all that was written is stored durably."""
        ...


class Collection(Protocol):
    """One open collection."""

    @property
    def name(self) -> str: ...

    @property
    def manifest(self) -> Manifest: ...

    @property
    def is_remote(self) -> bool:
        """Whether searching it is mostly waiting for another process."""
        ...

    def read_manifest(self) -> Manifest:
        """The manifest as it is now: on a server, another process may have written it since."""
        ...

    def write_manifest(self, manifest: Manifest) -> None:
        """Replace the manifest, atomically."""
        ...

    def write_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Note how far the load of an input has come; another process may do so for another input at the same time."""
        ...

    def remove_checkpoint(self, input_name: str) -> None:
        """The load of an input is over."""
        ...

    def writer(self) -> Writer:
        """Begin a bulk load. While it is open, the collection must not be searched."""
        ...

    def upsert(self, points: Sequence[NamePoint], vectors: FloatArray, encodable: BoolArray) -> None:
        """Write a few points at once; visible to search when this returns. Arguments as in `Writer.write`."""
        ...

    def search(self, vectors: FloatArray, *, limit: int, types: Sequence[str] = ()) -> list[list[ScoredName]]:
        """Nearest names of each query vector, best first.

        Args:
            vectors: (q, dim), L2-normalised; a row of zeros finds nothing.
            limit: Names a query at most; > 0.
            types: Keep only points with one of these in `kb_types` or `types`, or, where the base gives no coarse
                type, in `predicted_type`. Empty: no filter.

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
        is_exact_match: IsExactMatch | None = None,
    ) -> list[list[ScoredName]]:
        """Names near by dense vector and names that share n-grams, each once, with its dense cosine.

        A collection without sparse vectors, or with those of another version, is searched by dense vector alone.

        Args:
            vectors: (q, dim), L2-normalised; a row of zeros finds nothing by dense vector.
            lexical: q rows, used as given; an empty one finds nothing by n-grams.
            limit: Names by dense vector a query at most; > 0.
            lexical_limit: Names by n-grams a query at most; > 0. Of those with an equal n-gram score, the first by id.
            types: As in `search`.
            is_exact_match: Where it is true of a name that is near, n-grams are not searched for.

        Returns:
            q lists of up to `limit` + `lexical_limit` names: by dense cosine, best first; those without one last.
            Equal scores are ordered by point id.

        Raises:
            ValueError: If vectors and rows do not pair up, are of another width or not finite, or a limit is not
                positive.
        """
        ...

    def find(
        self, *, entity_ids: Sequence[str] = (), names: Sequence[str] = (), types: Sequence[str] = (), limit: int
    ) -> list[NamePoint]:
        """Points by exact entity id or exact name (one of the two must be given), ordered by point id."""
        ...

    def get(self, ids: Sequence[str]) -> dict[str, NamePoint]:
        """Points by id, those of them that are there."""
        ...

    def replace_payloads(self, points: Sequence[NamePoint]) -> None:
        """Replace all but the vectors of points that are there.

        Raises:
            InvalidPointError: If a text is no valid Unicode.
        """
        ...

    def scroll(self) -> Iterator[NamePoint]:
        """All points, ordered by point id."""
        ...

    def count(self) -> int:
        """Exact number of points."""
        ...

    def count_entities(self) -> int:
        """Exact number of points that carry a canonical name, which is one an entity."""
        ...

    def type_counts(self, limit: int = 1000) -> dict[str, dict[str, int]]:
        """Points by value of each type field: {"types": {"ORG": 12}, "kb_types": ..., "predicted_type": ...}.

        A server may allow fewer values than `limit`: then those are the most frequent ones.
        """
        ...

    def has_type(self, name: str) -> bool:
        """Whether any point passes a filter for this type; exact, where `type_counts` may be cut."""
        ...

    def delete_entities(self, entity_ids: Sequence[str]) -> int:
        """Delete all points of these entities; returns how many points went."""
        ...

    def delete_points(self, ids: AbstractSet[str]) -> None:
        """Delete points by id; ids that are not there do not matter."""
        ...

    def finalize(self, on_progress: Callable[[int, int], None] | None = None) -> None:
        """Build the HNSW graph. Search is exact before, and never wrong in between.

        Args:
            on_progress: Called now and then with (vectors indexed, vectors in all).
        """
        ...

    def status(self) -> CollectionStatus: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Placement:
    """How a cluster keeps a collection; None: as the server does by default.

    Attributes:
        shards: Parts of the collection; by default one a node.
        replicas: Copies of each part; by default 1, unless the server is set up otherwise.
        write_consistency: Replicas that must have a write before it is acknowledged; by default 1.
    """

    shards: int | None = None
    replicas: int | None = None
    write_consistency: int | None = None

    def __post_init__(self) -> None:
        given = [number for number in (self.shards, self.replicas, self.write_consistency) if number is not None]
        if any(number < 1 for number in given):
            raise ValueError(f"shards, replicas and write_consistency are at least 1, not {self}")


class Store(Protocol):
    """A place with collections. Closing it closes the collections that it opened."""

    @property
    def location(self) -> str:
        """Folder or URL, without any key."""
        ...

    def collections(self) -> list[str]:
        """Names, sorted."""
        ...

    def create(self, manifest: Manifest, placement: Placement | None = None) -> Collection:
        """Create `manifest.collection` with its payload indexes, and open it.

        Args:
            manifest: What it is to hold.
            placement: How a cluster keeps it.

        Raises:
            CollectionExistsError: If there is one of that name.
            SettingsError: If this kind of store has no shards or replicas.
        """
        ...

    def open(self, name: str) -> Collection:
        """Open a collection.

        Raises:
            CollectionNotFoundError: If there is none of that name.
            ManifestError: If it was not made by pearl-qdrant.
            StoreLockedError: If another process has it open (embedded store).
        """
        ...

    def delete(self, name: str) -> None:
        """Delete a collection with all that belongs to it, even one without a manifest.

        Raises:
            CollectionNotFoundError: If there is none of that name.
        """
        ...

    def close(self) -> None: ...
