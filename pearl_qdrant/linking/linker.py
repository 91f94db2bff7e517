"""`EntityLinker`: the one object that a querying program needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from types import TracebackType
from typing import Literal

import numpy as np

from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import Encoded, Encoder
from pearl_qdrant.errors import EntityNotFoundError
from pearl_qdrant.linking.calibration import DEFAULT, Calibration
from pearl_qdrant.linking.candidates import Found, find_candidates
from pearl_qdrant.records import Entity, Link, NilReason
from pearl_qdrant.settings import DEFAULT_DEVICE, DEFAULT_LIMIT, DEFAULT_THRESHOLD, default_store
from pearl_qdrant.store.open import open_store
from pearl_qdrant.store.points import entity_from_points, name_points, names_of
from pearl_qdrant.store.protocol import Collection, Store

OnTie = Literal["null", "first"]

BATCH = 1024
"""Mentions encoded and searched together by `link_batch`."""

_ALL_NAMES = 10_000
"""More names than any entity has: Wikidata's longest list of aliases has a few thousand."""


class EntityLinker:
    """Links mentions to the entities of one or several collections.

    Made by `open`; use it as a context manager, or call `close`. Safe to use from several threads.
    """

    def __init__(
        self,
        store: Store,
        collections: Sequence[Collection],
        encoder: Encoder,
        *,
        calibration: Calibration = DEFAULT,
        threshold: float = DEFAULT_THRESHOLD,
    ) -> None:
        """Put a linker together from its parts; `open` does it from names.

        Raises:
            ModelMismatchError: If a collection was made by another model.
            ValueError: If there is no collection, or the threshold is not in [0, 1].
        """
        if not collections:
            raise ValueError("name at least one collection")
        for collection in collections:
            collection.manifest.check_model(encoder.info)
        self._store = store
        self._collections = tuple(collections)
        self._encoder = encoder
        self._calibration = calibration
        self._threshold = _checked_threshold(threshold)

    @classmethod
    def open(
        cls,
        *collections: str,
        store: str | None = None,
        api_key: str | None = None,
        model: str | None = None,
        device: str = DEFAULT_DEVICE,
        threshold: float = DEFAULT_THRESHOLD,
    ) -> EntityLinker:
        """Open collections with the model that made them.

        Args:
            collections: Names of collections, at least one; all made by one model.
            store: Folder or URL; the default is the user's data folder.
            api_key: For a URL.
            model: Shipped name, folder or hub id; by default the one that the first collection names.
            device: auto, cpu, cuda or cuda:N.
            threshold: Probability under which a mention is NIL, in [0, 1].

        Raises:
            CollectionNotFoundError: If there is no collection of a name.
            ModelMismatchError: If a collection was made by another model.
            StoreLockedError: If another process has an embedded collection open.
            StoreUnavailableError: If a server does not answer.
        """
        if not collections:
            raise ValueError("name at least one collection")
        opened_store = open_store(store or str(default_store()), api_key=api_key)
        try:
            opened = [opened_store.open(name) for name in collections]
            manifest = opened[0].manifest
            encoder = load_encoder(
                model or manifest.model, device=device, pooling=manifest.pooling, prefix=manifest.prefix
            )
            fitted = encoder.info.score_calibration
            calibration = Calibration(*fitted) if fitted else DEFAULT
            return cls(opened_store, opened, encoder, calibration=calibration, threshold=threshold)
        except BaseException:
            opened_store.close()
            raise

    def link(
        self,
        mention: str,
        *,
        types: Sequence[str] = (),
        limit: int = DEFAULT_LIMIT,
        threshold: float | None = None,
        on_tie: OnTie = "null",
    ) -> Link:
        """Link one mention.

        Args:
            mention: The string to be linked.
            types: Only entities of one of these types, native or coarse; empty for all.
            limit: Candidates in the answer at most.
            threshold: Instead of the linker's own.
            on_tie: What to do when nothing separates several entities: "null" leaves the mention NIL with reason
                `ambiguous` and all of them first among the candidates; "first" takes the first by id.

        Returns:
            The link; its `entity_id` is None for NIL, with the reason.
        """
        return next(self.link_batch([mention], types=types, limit=limit, threshold=threshold, on_tie=on_tie))

    def link_batch(
        self,
        mentions: Iterable[str],
        *,
        types: Sequence[str] = (),
        limit: int = DEFAULT_LIMIT,
        threshold: float | None = None,
        on_tie: OnTie = "null",
    ) -> Iterator[Link]:
        """Link many mentions, in order; takes any iterable, and reads at most two batches of `BATCH` ahead.

        Arguments as in `link`.
        """
        if limit < 1:
            raise ValueError(f"limit must be at least 1, not {limit}")
        if on_tie not in ("null", "first"):
            raise ValueError(f"on_tie is 'null' or 'first', not {on_tie!r}")
        bar = self._threshold if threshold is None else _checked_threshold(threshold)
        return self._link_stream(iter(mentions), tuple(types), limit, bar, on_tie)

    def _link_stream(
        self, mentions: Iterator[str], types: Sequence[str], limit: int, threshold: float, on_tie: OnTie
    ) -> Iterator[Link]:
        def link_all(batch: Sequence[str], encoded: Encoded) -> Iterator[Link]:
            # A probability must not depend on how many candidates the caller wants to see.
            considered = max(limit, DEFAULT_LIMIT)
            found = find_candidates(
                self._collections, list(map(_storable, batch)), encoded, limit=considered, types=types
            )
            for mention, entities in zip(batch, found, strict=True):
                yield self._decide(mention, entities, limit, threshold, on_tie)

        batch = list(islice(mentions, BATCH))
        if len(batch) < BATCH:
            yield from link_all(batch, self._encoder.encode(list(map(_storable, batch))))
            return
        # While one batch is searched for, the next one is encoded.
        with ThreadPoolExecutor(1, "link") as worker:
            encoded = worker.submit(self._encoder.encode, list(map(_storable, batch)))
            while batch:
                following = list(islice(mentions, BATCH))
                ready = encoded.result()
                encoded = worker.submit(self._encoder.encode, list(map(_storable, following)))
                yield from link_all(batch, ready)
                batch = following

    def _decide(self, mention: str, found: list[Found], limit: int, threshold: float, on_tie: OnTie) -> Link:
        """Give the entities their probabilities, and take the best or NIL."""
        if not found:
            return Link(mention, None, None, None, NilReason.NO_CANDIDATES)
        probabilities = self._calibration.probabilities([entity.scored.score for entity in found])
        candidates = tuple(entity.to_candidate(p) for entity, p in zip(found[:limit], probabilities, strict=False))
        best = candidates[0]
        together = sum(p for entity, p in zip(found, probabilities, strict=True) if entity.tie) or probabilities[0]
        if together < threshold:
            return Link(mention, None, None, None, NilReason.BELOW_THRESHOLD, candidates)
        if best.tie and on_tie == "null":
            return Link(mention, None, None, None, NilReason.AMBIGUOUS, candidates)
        return Link(mention, best.entity_id, best.canonical_name, best.probability, None, candidates)

    def entity(self, entity_id: str) -> Entity:
        """An entity with all its names, types and description.

        Raises:
            EntityNotFoundError: If no open collection has it.
        """
        for collection in self._collections:
            points = collection.find(entity_ids=[entity_id], limit=_ALL_NAMES)
            if points:
                return entity_from_points(points)
        raise EntityNotFoundError(entity_id, [c.name for c in self._collections])

    def add(self, entities: Iterable[Entity], *, collection: str | None = None) -> int:
        """Add or replace a few entities; found by the next `link`. Returns the number of names written.

        An entity of the same id loses the names that it no longer has. For whole bases use `pearl-qdrant ingest`.

        Args:
            entities: What to add.
            collection: Where; may be left out if only one is open.

        Raises:
            ValueError: If several collections are open and none is named.
        """
        target = self._target(collection)
        written = 0
        entities = iter(entities)
        while batch := list(islice(entities, BATCH)):
            names = [name for entity in batch for name in entity.names()]
            encoded = self._encoder.encode(names)
            points = name_points(target.manifest.kb, names_of(batch), encoded)
            old = target.find(entity_ids=[e.entity_id for e in batch], limit=_ALL_NAMES)
            target.upsert(points, encoded.vectors, np.asarray(encoded.encodable))
            target.delete_points({p.id for p in old} - {p.id for p in points})
            written += len(points)
        _note_counts(target)
        return written

    def delete(self, entity_ids: Iterable[str]) -> int:
        """Delete entities with all their names from every open collection; returns the number of names that went."""
        wanted = list(entity_ids)
        deleted = 0
        for collection in self._collections:
            if gone := collection.delete_entities(wanted):
                _note_counts(collection)
            deleted += gone
        return deleted

    def close(self) -> None:
        """Close the collections and the store."""
        self._store.close()

    def __enter__(self) -> EntityLinker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _target(self, collection: str | None) -> Collection:
        """The collection to write to."""
        if collection is None and len(self._collections) == 1:
            return self._collections[0]
        for opened in self._collections:
            if opened.name == collection:
                return opened
        names = ", ".join(c.name for c in self._collections)
        raise ValueError(f"say which collection to add to, one of: {names} (got {collection!r})")


def _storable(mention: str) -> str:
    """The mention, or nothing for one that is no valid Unicode: no entity can have such a name."""
    try:
        mention.encode("utf-8")
    except UnicodeEncodeError:
        return ""
    return mention


def _note_counts(collection: Collection) -> None:
    """Put into the manifest what a collection holds now, unless it is being loaded, and will be counted at the end."""
    manifest = collection.read_manifest()
    if manifest.state == "ready":
        counts = {"names": collection.count(), "entities": collection.count_entities()}
        collection.write_manifest(manifest.model_copy(update=counts))


def _checked_threshold(threshold: float) -> float:
    if not 0.0 <= threshold <= 1.0:
        raise ValueError(f"threshold is a probability in [0, 1], not {threshold}")
    return threshold
