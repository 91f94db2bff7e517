"""List, summarize, describe, delete and finalize collections of a store.

`store` is an open store, a folder or a URL. None means PEARL_QDRANT_STORE, else QDRANT_URL, else the user's data
folder. The key of a server is read from the environment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from pearl_qdrant.errors import CollectionNotFoundError, StoreError, StoreLockedError, StoreUnavailableError
from pearl_qdrant.store.graph import CollectionStatus
from pearl_qdrant.store.open import StoreLike, use_store
from pearl_qdrant.store.protocol import Collection, Glance, Store
from pearl_qdrant.store.schema import Manifest
from pearl_qdrant.store.verify import no_graph, unfinished_load

SHOWN_TYPES = 25
"""Values of each type field in a description."""


MAX_COUNTED_NAMES = 100_000
"""Up to this many names of an unfinished load, the entities of an embedded collection are counted one by one."""

SummaryState = Literal["ready", "no_graph", "unfinished", "unusable"]


@dataclass(frozen=True, slots=True)
class CollectionSummary:
    """A collection in a list: its state, base, counts and model.

    Attributes:
        state: "ready"; "no_graph": complete, but searched exactly and slowly; "unfinished": a load or an update did
            not finish, or another process still runs it; "unusable": it has no manifest, or its files are damaged.
        problem: What is wrong and what to do; None if it is ready.
        is_foreign: Whether it was not made by pearl-qdrant.
        kb, kb_version, model: As in `Manifest`; None without a manifest.
        entities, names: From the manifest of a complete collection, else counted; None if they cannot be.
        is_calibrated: Whether `calibrate` was run on it.
    """

    name: str
    state: SummaryState
    problem: str | None = None
    is_foreign: bool = False
    kb: str | None = None
    kb_version: str | None = None
    model: str | None = None
    entities: int | None = None
    names: int | None = None
    is_calibrated: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return all facts as one flat JSON object."""
        return {
            "collection": self.name,
            "state": self.state,
            "kb": self.kb,
            "kb_version": self.kb_version,
            "entities": self.entities,
            "names": self.names,
            "model": self.model,
            "calibrated": self.is_calibrated,
            "problem": self.problem,
        }


@dataclass(frozen=True, slots=True)
class CollectionDescription:
    """The facts about a collection: base, model and counts; points, graph and indexes.

    `types` has points by value of each type field, `languages` names by language; the most frequent ones.
    """

    manifest: Manifest
    status: CollectionStatus
    types: dict[str, dict[str, int]]
    languages: dict[str, int]

    @property
    def problem(self) -> str | None:
        """What is not finished, and what to do; None if the collection is complete and has a graph."""
        graph = None if self.status.is_finalized else no_graph(self.manifest.collection)
        return unfinished_load(self.manifest) or graph

    def to_json(self) -> dict[str, Any]:
        """Return all facts as one flat JSON object, without inputs, checkpoints and the IDF table."""
        status = self.status
        return {
            **self.manifest.model_dump(exclude={"format_version", "checkpoints", "ngram_rarity", "loaded"}),
            "points": status.points,
            "vectors": status.vectors,
            "indexed_vectors": status.indexed_vectors,
            "segments": status.segments,
            "is_finalized": status.is_finalized,
            "problem": self.problem,
            "types": self.types,
            "languages": self.languages,
        }


def list_collections(store: StoreLike = None) -> list[str]:
    """Return the names of all collections, sorted."""
    with use_store(store) as opened:
        return opened.collections()


def summarize_collections(store: StoreLike = None, *, limit: int | None = None) -> Iterator[CollectionSummary]:
    """Yield a summary of each collection, sorted by name, at most `limit`.

    Only manifests are read, without locks, also while another process has a collection open. Collections whose load did
    not finish are opened read-only, and counted: names that a load writes at the moment do not count.
    """
    with use_store(store) as opened:
        for glance in opened.glance(opened.collections()[:limit]):
            if (summary := _summarize(opened, glance)) is not None:
                yield summary


def _summarize(store: Store, glance: Glance) -> CollectionSummary | None:
    """The summary of a collection; None if it was deleted meanwhile."""
    manifest = glance.manifest
    if manifest is None:
        return CollectionSummary(glance.name, "unusable", glance.problem, is_foreign=glance.is_foreign)
    unfinished = unfinished_load(manifest)
    if unfinished and glance.writer:
        unfinished = f"its load did not finish, or still runs: {glance.writer} has it open for writing."
    graph = None if glance.has_graph else no_graph(glance.name)
    summary = CollectionSummary(
        glance.name,
        "unfinished" if unfinished else "no_graph" if graph else "ready",
        unfinished or graph,
        kb=manifest.kb,
        kb_version=manifest.kb_version,
        model=manifest.model,
        entities=manifest.entities,
        names=manifest.names,
        is_calibrated=manifest.calibration is not None,
    )
    if summary.names and not unfinished:
        return summary
    try:
        collection = store.open(glance.name, read_only=True)
        try:
            return _counted(summary, collection)
        finally:
            collection.close()
    except StoreUnavailableError:
        raise
    except CollectionNotFoundError:
        return None
    except StoreLockedError:
        return replace(summary, entities=None, names=None)
    except StoreError as error:  # as while this process loads it, or if its files are damaged
        state: SummaryState = "unfinished" if unfinished else "unusable"
        return replace(summary, state=state, problem=str(error), entities=None, names=None)


def _counted(summary: CollectionSummary, collection: Collection) -> CollectionSummary:
    """A summary with exact counts; without the entities where it would take too long to count them."""
    names = collection.count()
    is_fast = collection.is_remote or names <= MAX_COUNTED_NAMES
    return replace(summary, names=names, entities=collection.count_entities() if is_fast else None)


def describe_collection(name: str, *, store: StoreLike = None) -> CollectionDescription:
    """Return the facts about a collection; CollectionNotFoundError if there is none of that name."""
    with use_store(store) as opened:
        collection = opened.open(name, read_only=True)
        try:
            return CollectionDescription(
                collection.manifest,
                collection.status(),
                collection.type_counts(limit=SHOWN_TYPES),
                collection.language_counts(limit=SHOWN_TYPES),
            )
        finally:
            collection.close()


def delete_collection(name: str, *, store: StoreLike = None) -> None:
    """Delete a collection with all its points, without a question.

    CollectionNotFoundError if there is none of that name, StoreLockedError if an embedded one is open anywhere.
    """
    with use_store(store) as opened:
        opened.delete(name)


def finalize_collection(
    name: str,
    *,
    store: StoreLike = None,
    wait_s: float | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> CollectionStatus:
    """Build the graph of a collection, for fast search; return its status afterwards.

    `wait_s` is as in `open_store`; `on_progress` is called from time to time with (vectors indexed, all vectors).
    CollectionNotFoundError if there is no collection of that name, StoreError if the graph cannot be built.
    """
    with use_store(store, wait_s=wait_s) as opened:
        collection = opened.open(name)
        try:
            collection.finalize(on_progress)
            return collection.status()
        finally:
            collection.close()
