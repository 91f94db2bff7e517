"""List, summarize, describe, check, delete and finalize collections of a store.

`store` is an open store, a folder or a URL. None means PEARL_QDRANT_STORE, else QDRANT_URL, else the user's data
folder. The key of a server is read from the environment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from pearl_qdrant.errors import (
    CollectionNotFoundError,
    IncompleteError,
    ManifestError,
    ModelError,
    ModelMismatchError,
    StoreError,
    StoreUnavailableError,
)
from pearl_qdrant.store.open import StoreLike, use_store
from pearl_qdrant.store.protocol import Collection, Glance, Store
from pearl_qdrant.store.schema import INDEXED_FIELDS, Manifest
from pearl_qdrant.store.search import CollectionStatus

ProblemKind = Literal[
    "unfinished_load", "wrong_count", "no_graph", "missing_indexes", "learned_names", "model", "foreign_points"
]


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of a collection: which check found it, what is wrong, and what to do."""

    kind: ProblemKind
    message: str


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of `verify_collection`: the exact number of points, and the problems found."""

    collection: str
    points: int
    problems: tuple[Problem, ...]


def verify_collection(name: str, *, store: StoreLike = None, model: str | None = None) -> Verification:
    """Check a collection: its load, its counts, its graph and indexes, and its model, or the one given.
    CollectionNotFoundError if there is none of that name.
    """
    with use_store(store) as opened, closing(opened.open(name, read_only=True)) as collection:
        return Verification(name, collection.count(), tuple(find_problems(collection, model=model)))


def unfinished_load(manifest: Manifest) -> str | None:
    """What did not finish in a collection, and what to do; None if it is complete."""
    if manifest.state == "ready" and not manifest.checkpoints:
        return None
    # An update keeps the counts of the last complete load, and removes its checkpoints.
    what = "update" if manifest.names and not manifest.checkpoints else "load"
    return f"its {what} did not finish. Run the same ingest command again; it resumes where it stopped."


def no_graph(name: str) -> str:
    """What the lack of a graph means, and what to do."""
    return f"no graph yet, so search is exact but slow. Build it with: pearl-qdrant collections finalize {name}"


def missing_indexes(name: str, fields: Sequence[str]) -> str:
    """What the lack of payload indexes means, and what to do."""
    return (
        f"no payload index on {', '.join(fields)}, so filters are slow or refused. Make them with: "
        f"pearl-qdrant collections finalize {name}"
    )


def incomplete_warnings(collections: Iterable[Collection]) -> tuple[str, ...]:
    """Warnings for those who search: one for each collection that is not complete, in the given order."""
    return tuple(
        f"Collection '{one.name}' is incomplete, so answers may be missing or wrong: {problem}"
        for one in collections
        if (problem := unfinished_load(one.manifest)) is not None
    )


def opening_warnings(collections: Sequence[Collection]) -> tuple[str, ...]:
    """`incomplete_warnings`, and one for each collection that has lost what it learned."""
    lost = ((one.name, loss) for one in collections if (loss := one.ledger_loss) is not None)
    return (*incomplete_warnings(collections), *(f"Collection '{name}': {loss}." for name, loss in lost))


def check_ours(store: Store, name: str) -> None:
    """Raise ManifestError if another program made the collection of that name: it is neither deleted nor replaced."""
    if any(found.is_foreign for found in store.glance([name])):
        raise ManifestError(name, "there is none")


def check_complete(collections: Sequence[Collection]) -> None:
    """Raise IncompleteError if a load or an update of one of them did not finish."""
    if warnings := incomplete_warnings(collections):
        raise IncompleteError([one.name for one in collections if unfinished_load(one.manifest)], warnings)


def find_problems(collection: Collection, *, model: str | None = None) -> Iterator[Problem]:
    """Yield the problems of an open collection; `model` as in `verify_collection`."""
    manifest, status = collection.manifest, collection.status()
    if (unfinished := unfinished_load(manifest)) is not None:
        yield Problem("unfinished_load", unfinished)
    elif status.points != manifest.names:
        is_more = status.points > manifest.names
        mend = "deletes names that the base lacks" if is_more else "writes those that are missing"
        yield Problem(
            "wrong_count",
            f"{status.points:,} points, but {manifest.names:,} names were written. The same ingest {mend}: "
            f"pearl-qdrant ingest FILE {'--update ' if is_more else ''}--collection {collection.name} "
            f"--model {manifest.model}",
        )
    if status.foreign_points:
        yield Problem(
            "foreign_points",
            f"{status.foreign_points:,} points of another program are among its names. They are not linked, and no "
            f"command here changes or deletes them: let that program move them to a collection of its own.",
        )
    if not status.is_finalized:
        yield Problem("no_graph", no_graph(collection.name))
    if missing := [field for field in INDEXED_FIELDS if field not in status.payload_indexes]:
        yield Problem("missing_indexes", missing_indexes(collection.name, missing))
    if (loss := collection.ledger_loss) is not None:
        yield Problem("learned_names", f"{loss}.")
    if (message := _model_problem(collection, model)) is not None:
        yield Problem("model", message)


def _model_problem(collection: Collection, model: str | None) -> str | None:
    from pearl_qdrant.encoder.loading import load_encoder

    manifest = collection.manifest
    try:
        encoder = load_encoder(model or manifest.model, device="cpu", pooling=manifest.pooling, prefix=manifest.prefix)
        manifest.check_model(encoder.info)
    except (ModelError, ModelMismatchError) as error:
        return str(error)
    return None


SHOWN_TYPES = 25  # values of each type field in a description
MAX_COUNTED_NAMES = 100_000  # of an unfinished load, up to which the entities of an embedded collection are counted

SummaryState = Literal["ready", "no_graph", "no_indexes", "unfinished", "unusable"]


@dataclass(frozen=True, slots=True)
class CollectionSummary:
    """A collection in a list: its state, base, counts and model.

    Attributes:
        state: "ready"; "no_graph": complete, but searched exactly and slowly; "no_indexes": complete, but filters are
            slow or refused; "unfinished": a load or an update did not finish, or another process still runs it;
            "unusable": it has no manifest, or its files are damaged.
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
    """The facts about a collection; `types` has points by value of each type field, `languages` names by language."""

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
        status = asdict(self.status)
        del status["payload_indexes"]
        about = self.manifest.model_dump(exclude={"format_version", "checkpoints", "ngram_rarity", "loaded"})
        return {**about, **status, "problem": self.problem, "types": self.types, "languages": self.languages}


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
    indexes = missing_indexes(glance.name, glance.missing_indexes) if glance.missing_indexes else None
    summary = CollectionSummary(
        glance.name,
        "unfinished" if unfinished else "no_graph" if graph else "no_indexes" if indexes else "ready",
        unfinished or graph or indexes,
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
        with closing(store.open(glance.name, read_only=True)) as collection:
            names = collection.count()
            # It would take too long to count the entities of a large embedded one.
            is_fast = collection.is_remote or names <= MAX_COUNTED_NAMES
            return replace(summary, names=names, entities=collection.count_entities() if is_fast else None)
    except StoreUnavailableError:
        raise
    except CollectionNotFoundError:
        return None
    except StoreError as error:  # as while this process loads it, or if its files are damaged
        state: SummaryState = "unfinished" if unfinished else "unusable"
        return replace(summary, state=state, problem=str(error), entities=None, names=None)


def describe_collection(name: str, *, store: StoreLike = None) -> CollectionDescription:
    """Return the facts about a collection; CollectionNotFoundError if there is none of that name."""
    with use_store(store) as opened, closing(opened.open(name, read_only=True)) as collection:
        counts = collection.type_counts(limit=SHOWN_TYPES), collection.language_counts(limit=SHOWN_TYPES)
        return CollectionDescription(collection.manifest, collection.status(), *counts)


def delete_collection(name: str, *, store: StoreLike = None) -> None:
    """Delete a collection without a question; CollectionNotFoundError, StoreLockedError if one is open (embedded)."""
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
    with use_store(store, wait_s=wait_s) as opened, closing(opened.open(name)) as collection:
        collection.finalize(on_progress)
        return collection.status()
