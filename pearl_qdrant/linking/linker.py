"""`EntityLinker`: the one object that a querying program needs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import TypeVar

from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.errors import EntityNotFoundError, LinkerClosedError
from pearl_qdrant.linking.asynchronous import batched
from pearl_qdrant.linking.candidates import Exclude
from pearl_qdrant.linking.collection_statistics import CollectionStatistics
from pearl_qdrant.linking.decision import OnTie, decide
from pearl_qdrant.linking.editing import add_entities, delete_entities, points_of
from pearl_qdrant.linking.mention_detection.annotate import annotate, annotate_batch
from pearl_qdrant.linking.mention_detection.given_spans import DocLike, GivenSpan
from pearl_qdrant.linking.mention_stream import MentionStream, TypeMode
from pearl_qdrant.linking.mentions import check_are_many
from pearl_qdrant.linking.ranking.baseline_similarity import baseline_similarity
from pearl_qdrant.linking.ranking.model import Calibration, RankingModel, shipped_model
from pearl_qdrant.linking.ranking.reranker import Reranker
from pearl_qdrant.linking.ranking.scoring import ScoredMention
from pearl_qdrant.linking.ranking.stored_calibration import calibration_of, common_calibration, model_of
from pearl_qdrant.records import Annotation, Entity, Link
from pearl_qdrant.settings import DEFAULT_DEVICE, DEFAULT_LIMIT, ServerAccess, store_location
from pearl_qdrant.store.open import open_store
from pearl_qdrant.store.points import entity_from_points
from pearl_qdrant.store.protocol import Collection, Store

T = TypeVar("T")

ASYNC_BATCH = 256
"""Mentions that `alink_batch` hands to a thread at a time."""


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
        calibration: Calibration | None = None,
        threshold: float | None = None,
        model: RankingModel | None = None,
        reranker: Reranker | None = None,
    ) -> None:
        """Put a linker together from its parts; `open` does it from names.

        Args:
            store: Closed with the linker.
            collections: Open; at least one.
            encoder: The model that made them.
            calibration: By default what was fitted to the collection, or what comes with the package; the latter too
                where several collections are calibrated differently.
            threshold: Instead of that of the calibration.
            model: Coefficients of the ranking; by default likewise.
            reranker: Looks at the best candidates again; see `linking.reranker`.

        Raises:
            ModelMismatchError: If a collection was made by another model.
            CalibrationError: If the collection was calibrated by another version.
            ValueError: If there is no collection, or the threshold is not in [0, 1].
        """
        if not collections:
            raise ValueError("name at least one collection")
        for collection in collections:
            collection.manifest.check_model(encoder.info)
        self._store = store
        self._collections = tuple(collections)
        self._encoder = encoder
        stored = common_calibration(collections)
        chosen = calibration or (Calibration() if stored is None else calibration_of(stored))
        self._calibration = chosen if threshold is None else replace(chosen, threshold=_checked_threshold(threshold))
        self._statistics = CollectionStatistics(collections)
        self._statistics.targets()  # a damaged collection is to be found when it is opened
        model = model or (None if stored is None else model_of(stored)) or shipped_model()
        self._stream = MentionStream(encoder, self._statistics, model, baseline_similarity(encoder), reranker)
        self._is_closed = False

    @classmethod
    def open(
        cls,
        *collections: str,
        store: str | None = None,
        api_key: str | None = None,
        allow_plain_http: bool | None = None,
        ca_file: str | None = None,
        model: str | None = None,
        device: str = DEFAULT_DEVICE,
        threshold: float | None = None,
        reranker: Reranker | None = None,
    ) -> EntityLinker:
        """Open collections with the model that made them.

        What is left out of the first four is read from the environment, as the command line does.

        Args:
            collections: Names of collections, at least one; all made by one model.
            store: Folder or URL: PEARL_QDRANT_STORE, else QDRANT_URL, else the user's data folder.
            api_key: For a URL: QDRANT_API_KEY.
            allow_plain_http: Whether the key may go over plain HTTP to another host, in a private network:
                PEARL_QDRANT_ALLOW_PLAIN_HTTP.
            ca_file: Certificates (PEM) of an authority to trust: PEARL_QDRANT_CA.
            model: Shipped name, folder or hub id; by default the one that the first collection names.
            device: auto, cpu, cuda or cuda:N.
            threshold: Probability under which a mention is NIL, in [0, 1]; by default what was calibrated, or 0.5.
            reranker: Looks at the best candidates again, as `linking.reranker.CrossEncoder(HUB_ID)`.

        Raises:
            CollectionNotFoundError: If there is no collection of a name.
            ModelMismatchError: If a collection was made by another model.
            StoreLockedError: If another process has an embedded collection open.
            StoreUnavailableError: If a server does not answer.
        """
        if not collections:
            raise ValueError("name at least one collection")
        access = ServerAccess.from_environment()
        access = replace(
            access,
            api_key=api_key or access.api_key,
            allow_plain_http=access.allow_plain_http if allow_plain_http is None else allow_plain_http,
            ca_file=ca_file or access.ca_file,
        )
        opened_store = open_store(store or store_location(), access=access)
        try:
            opened = [opened_store.open(name) for name in dict.fromkeys(collections)]
            manifest = opened[0].manifest
            encoder = load_encoder(
                model or manifest.model, device=device, pooling=manifest.pooling, prefix=manifest.prefix
            )
            return cls(opened_store, opened, encoder, threshold=threshold, reranker=reranker)
        except BaseException:
            opened_store.close()
            raise

    @property
    def encoder(self) -> Encoder:
        """The model."""
        return self._encoder

    @property
    def calibration(self) -> Calibration:
        """How logits become probabilities."""
        return self._calibration

    @property
    def model(self) -> RankingModel:
        """The coefficients that candidates are scored by."""
        return self._stream.model

    def link(
        self,
        mention: str,
        *,
        types: Sequence[str] = (),
        type_mode: TypeMode = "hard",
        limit: int = DEFAULT_LIMIT,
        threshold: float | None = None,
        on_tie: OnTie = "null",
    ) -> Link:
        """Link one mention.

        Args:
            mention: The string to be linked.
            types: Entity types, native or coarse, ancestors included; empty for all.
            type_mode: What types do. "hard": only entities of one of `types`. "soft": they are preferred. In both, what
                the model says of the mention's type weighs, as far as it is sure. "off": types count for nothing.
            limit: Candidates in the answer at most.
            threshold: Instead of the linker's own.
            on_tie: What to do when nothing separates several entities: "null" leaves the mention NIL with reason
                `ambiguous` and all of them first among the candidates; "first" takes the first by id.

        Returns:
            The link; its `entity_id` is None for NIL, with the reason.

        Raises:
            UnknownTypeError: If the collections have no entity of a type in `types`.
        """
        found = self.link_batch(
            [mention], types=types, type_mode=type_mode, limit=limit, threshold=threshold, on_tie=on_tie
        )
        return next(found)

    def link_batch(
        self,
        mentions: Iterable[str],
        *,
        types: Sequence[str] = (),
        type_mode: TypeMode = "hard",
        limit: int = DEFAULT_LIMIT,
        threshold: float | None = None,
        on_tie: OnTie = "null",
    ) -> Iterator[Link]:
        """Link many mentions, in order; takes any iterable, and reads a batch ahead.

        A mention that is no text at all (None, a number, broken Unicode) is NIL, and the others are linked. Arguments
        as in `link`.
        """
        if on_tie not in ("null", "first"):
            raise ValueError(f"on_tie is 'null' or 'first', not {on_tie!r}")
        bar = self._calibration.threshold if threshold is None else _checked_threshold(threshold)
        scored = self.score_batch(mentions, types=types, type_mode=type_mode, limit=limit)
        return (decide(one, self._calibration, limit, bar, on_tie) for one in scored)

    async def alink(
        self,
        mention: str,
        *,
        types: Sequence[str] = (),
        type_mode: TypeMode = "hard",
        limit: int = DEFAULT_LIMIT,
        threshold: float | None = None,
        on_tie: OnTie = "null",
    ) -> Link:
        """`link` for asyncio: it runs in a thread, the event loop goes on."""
        return await asyncio.to_thread(
            self.link, mention, types=types, type_mode=type_mode, limit=limit, threshold=threshold, on_tie=on_tie
        )

    async def alink_batch(
        self,
        mentions: Iterable[str] | AsyncIterable[str],
        *,
        types: Sequence[str] = (),
        type_mode: TypeMode = "hard",
        limit: int = DEFAULT_LIMIT,
        threshold: float | None = None,
        on_tie: OnTie = "null",
    ) -> AsyncIterator[Link]:
        """`link_batch` for asyncio, in order; mentions may come from an asynchronous iterable, too."""
        check_are_many(mentions)
        async for batch in batched(mentions, ASYNC_BATCH):
            links = self.link_batch(
                batch, types=types, type_mode=type_mode, limit=limit, threshold=threshold, on_tie=on_tie
            )
            for link in await asyncio.to_thread(list, links):
                yield link

    def score_batch(
        self,
        mentions: Iterable[str],
        *,
        types: Sequence[str] = (),
        type_mode: TypeMode = "hard",
        limit: int = DEFAULT_LIMIT,
        exclude: Exclude | None = None,
    ) -> Iterator[ScoredMention]:
        """Candidates of many mentions with their features and logits, in order, before any decision is made.

        `exclude` says of a name, by the number of the mention, that it must not be found: for measurements that hold
        names back. Other arguments as in `link`; at least `DEFAULT_LIMIT` entities are scored, so that a probability
        does not depend on how many the caller wants to see.
        """
        check_are_many(mentions)
        with self._in_use():
            link_query = self._stream.question(types, type_mode, limit)
        return self._while_open(self._stream.score(iter(mentions), link_query, exclude, self._check_open))

    def annotate(
        self,
        text: str | DocLike,
        *,
        spans: Iterable[GivenSpan] | None = None,
        types: Sequence[str] = (),
        threshold: float | None = None,
        context: str | None = None,
        on_tie: OnTie = "null",
        include_nil: bool = False,
    ) -> list[Annotation]:
        """Find the mentions of a passage and link them; see `linking.passages.annotate`."""
        with self._in_use():
            self._stream.question(types, "hard", DEFAULT_LIMIT)  # a type that is none is refused whatever the text
            return annotate(
                self,
                text,
                spans=spans,
                types=types,
                threshold=threshold,
                context=context,
                on_tie=on_tie,
                include_nil=include_nil,
            )

    def annotate_batch(
        self,
        texts: Iterable[str | DocLike],
        *,
        types: Sequence[str] = (),
        threshold: float | None = None,
        context: str | None = None,
        on_tie: OnTie = "null",
        include_nil: bool = False,
    ) -> Iterator[list[Annotation]]:
        """Annotate many passages, in order; see `linking.passages.annotate_batch`."""
        with self._in_use():
            self._stream.question(types, "hard", DEFAULT_LIMIT)
        found = annotate_batch(
            self, texts, types=types, threshold=threshold, context=context, on_tie=on_tie, include_nil=include_nil
        )
        return self._while_open(found)

    def entity(self, entity_id: str) -> Entity:
        """An entity with all its names, types and description.

        Raises:
            EntityNotFoundError: If no open collection has it.
        """
        with self._in_use():
            for collection in self._collections:
                if points := points_of(collection, [entity_id]):
                    return entity_from_points(points)
        raise EntityNotFoundError(entity_id, [c.name for c in self._collections])

    def add(self, entities: Iterable[Entity], *, collection: str | None = None) -> int:
        """Add or replace a few entities; found by the next `link`. Returns the number of names written.

        An entity of the same id loses the names that it no longer has. For whole bases use `pearl-qdrant ingest`.

        Args:
            entities: What to add; of several with one id the last one counts.
            collection: Where; may be left out if only one is open.

        Raises:
            InvalidEntityError: If something is no entity, or has an empty id or name; also a ValueError and TypeError.
            ValueError: If several collections are open and none is named.
        """
        with self._editing():
            return add_entities(self._target(collection), self._encoder, entities)

    def delete(self, entity_ids: Iterable[str]) -> int:
        """Delete entities with all their names from every open collection; returns the number of names that went."""
        if isinstance(entity_ids, (str, bytes)):
            raise TypeError(f"entity_ids is a list of ids, not one: write [{entity_ids!r}]")
        wanted = list(entity_ids)
        with self._editing():
            return sum(delete_entities(collection, wanted) for collection in self._collections)

    def close(self) -> None:
        """Close the collections and the store. Closing twice is no error; using it afterwards is one."""
        if not self._is_closed:
            self._is_closed = True
            self._store.close()

    def _check_open(self) -> None:
        """Refuse what is asked after `close`."""
        if self._is_closed:
            raise LinkerClosedError([c.name for c in self._collections])

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        """While something is asked; what fails because another thread closed the linker meanwhile says so."""
        self._check_open()
        try:
            yield
        except LinkerClosedError:
            raise
        except Exception:
            self._check_open()
            raise

    @contextmanager
    def _editing(self) -> Iterator[None]:
        """While a collection is changed: what is known of it is found anew afterwards, however that ended."""
        with self._in_use():
            try:
                yield
            finally:
                self._statistics.invalidate()

    def _while_open(self, answers: Iterator[T]) -> Iterator[T]:
        """Answers one by one, and none after `close`."""
        with self._in_use():
            for answer in answers:
                self._check_open()
                yield answer

    def __enter__(self) -> EntityLinker:
        self._check_open()
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


def _checked_threshold(threshold: float) -> float:
    if not 0.0 <= threshold <= 1.0:
        raise ValueError(f"threshold is a probability in [0, 1], not {threshold}")
    return threshold
