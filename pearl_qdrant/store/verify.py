"""Check a collection: is it complete, indexed, and is its model available?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from pearl_qdrant.errors import IncompleteError, ManifestError, ModelError, ModelMismatchError
from pearl_qdrant.store.open import StoreLike, use_store
from pearl_qdrant.store.protocol import Collection, Store
from pearl_qdrant.store.schema import INDEXED_FIELDS, Manifest

ProblemKind = Literal["unfinished_load", "wrong_count", "no_graph", "missing_indexes", "model"]


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

    `store` is as in `administration`. Raises CollectionNotFoundError if there is no collection of that name.
    """
    with use_store(store) as opened:
        collection = opened.open(name, read_only=True)
        try:
            return Verification(name, collection.count(), tuple(find_problems(collection, model=model)))
        finally:
            collection.close()


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


def incomplete_warnings(collections: Iterable[Collection]) -> tuple[str, ...]:
    """Warnings for those who search: one for each collection that is not complete, in the given order."""
    found = ((collection.name, unfinished_load(collection.manifest)) for collection in collections)
    return tuple(
        f"Collection '{name}' is incomplete, so answers may be missing or wrong: {problem}"
        for name, problem in found
        if problem is not None
    )


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
        name, model = collection.name, manifest.model
        mend = f"writes what lacks: pearl-qdrant ingest FILE --collection {name} --model {model}"
        if status.points > manifest.names:
            mend = (
                f"deletes what the base has not: pearl-qdrant ingest FILE --update --collection {name} --model {model}"
            )
        found = f"{status.points:,} points, but {manifest.names:,} names were written."
        yield Problem("wrong_count", f"{found} The same ingest {mend}")
    if not status.is_finalized:
        yield Problem("no_graph", no_graph(collection.name))
    if missing := [field for field in INDEXED_FIELDS if field not in status.payload_indexes]:
        yield Problem(
            "missing_indexes",
            f"no payload index on {', '.join(missing)}, so filters are slow or refused. Make them with: "
            f"pearl-qdrant collections finalize {collection.name}",
        )
    if (message := _model_problem(collection, model)) is not None:
        yield Problem("model", message)


def _model_problem(collection: Collection, model: str | None) -> str | None:
    """Load the model and compare it with the collection's; None if they match."""
    from pearl_qdrant.encoder.loading import load_encoder

    manifest = collection.manifest
    try:
        encoder = load_encoder(model or manifest.model, device="cpu", pooling=manifest.pooling, prefix=manifest.prefix)
        manifest.check_model(encoder.info)
    except (ModelError, ModelMismatchError) as error:
        return str(error)
    return None
