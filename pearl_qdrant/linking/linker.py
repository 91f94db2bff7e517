"""`EntityLinker`: the one object that a querying program needs."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from types import TracebackType
from typing import Literal

from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.errors import EntityNotFoundError, ManifestError, UnknownTypeError
from pearl_qdrant.linking.asynchronous import batched
from pearl_qdrant.linking.candidates import Hide, Place, find_candidates
from pearl_qdrant.linking.decision import OnTie, decide
from pearl_qdrant.linking.editing import add_entities, delete_entities
from pearl_qdrant.linking.given_spans import DocLike, GivenSpan
from pearl_qdrant.linking.judging import Judge, Judged, Question, rerank
from pearl_qdrant.linking.lexical import NgramRarity
from pearl_qdrant.linking.mentions import clean_mention
from pearl_qdrant.linking.passages import annotate, annotate_batch
from pearl_qdrant.linking.ranking import Calibration, RankingModel, shipped_model
from pearl_qdrant.linking.reranker import Reranker
from pearl_qdrant.linking.stored_calibration import calibration_of, model_of
from pearl_qdrant.linking.unrelated import unrelated_cosine
from pearl_qdrant.phrase_types import ENTITY_TYPES
from pearl_qdrant.records import Annotation, Entity, Link
from pearl_qdrant.settings import DEFAULT_DEVICE, DEFAULT_LIMIT, ServerAccess, store_location
from pearl_qdrant.store.open import open_store
from pearl_qdrant.store.points import MAX_NAMES, entity_from_points
from pearl_qdrant.store.protocol import Collection, Store
from pearl_qdrant.store.schema import LinkCalibration, NamePoint

TypeMode = Literal["hard", "soft", "off"]

_log = logging.getLogger(__name__)

BATCH = 1024
"""Mentions encoded together by `link_batch`."""

SEARCH_BATCH = 128
"""Mentions searched for and judged together: their candidates take a few MB."""

ASYNC_BATCH = 256
"""Mentions that `alink_batch` hands to a thread at a time."""

_ALL_TYPES = 200_000
"""More types than any base has: Wikidata has 100,000 classes with an item."""


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
        stored = _common_calibration(collections)
        chosen = calibration or (Calibration() if stored is None else calibration_of(stored))
        self._calibration = chosen if threshold is None else replace(chosen, threshold=_checked_threshold(threshold))
        self._places = tuple(Place(collection, _rarity(collection)) for collection in collections)
        n_names = sum(collection.manifest.names or collection.count() for collection in collections)
        model = model or (None if stored is None else model_of(stored)) or shipped_model()
        self._judge = Judge(model, unrelated_cosine(encoder), math.log(max(1, n_names)))
        self._reranker = reranker
        self._known_types: frozenset[str] | None = None

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
            opened = [opened_store.open(name) for name in collections]
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
        """The coefficients that candidates are judged by."""
        return self._judge.model

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
        """Link many mentions, in order; takes any iterable, and reads at most `BATCH` ahead.

        A mention that is no text at all (None, a number, broken Unicode) is NIL, and the others are linked. Arguments
        as in `link`.
        """
        if on_tie not in ("null", "first"):
            raise ValueError(f"on_tie is 'null' or 'first', not {on_tie!r}")
        bar = self._calibration.threshold if threshold is None else _checked_threshold(threshold)
        judged = self.judge_batch(mentions, types=types, type_mode=type_mode, limit=limit)
        return (decide(one, self._calibration, limit, bar, on_tie) for one in judged)

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
        async for batch in batched(mentions, ASYNC_BATCH):
            links = self.link_batch(
                batch, types=types, type_mode=type_mode, limit=limit, threshold=threshold, on_tie=on_tie
            )
            for link in await asyncio.to_thread(list, links):
                yield link

    def judge_batch(
        self,
        mentions: Iterable[str],
        *,
        types: Sequence[str] = (),
        type_mode: TypeMode = "hard",
        limit: int = DEFAULT_LIMIT,
        hide: Hide | None = None,
    ) -> Iterator[Judged]:
        """Candidates of many mentions with their features and logits, in order, before any decision is made.

        `hide` says of a name, by the number of the mention, that it must not be found: for measurements that hold names
        back. Other arguments as in `link`; at least `DEFAULT_LIMIT` entities are judged, so that a probability does not
        depend on how many the caller wants to see.
        """
        if limit < 1:
            raise ValueError(f"limit must be at least 1, not {limit}")
        if type_mode not in ("hard", "soft", "off"):
            raise ValueError(f"type_mode is 'hard', 'soft' or 'off', not {type_mode!r}")
        if isinstance(mentions, str):
            raise TypeError(
                "mentions is one string, whose letters would be linked one by one: give a list, or use link"
            )
        named = (types,) if isinstance(types, str) else tuple(types)
        wanted = () if type_mode == "off" else named
        self._check_types(wanted)
        question = Question(
            max(limit, DEFAULT_LIMIT), wanted, is_filter=type_mode == "hard", is_typed=type_mode != "off"
        )
        return self._judge_stream(iter(mentions), question, hide)

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
        return annotate_batch(
            self,
            texts,
            types=types,
            threshold=threshold,
            context=context,
            on_tie=on_tie,
            include_nil=include_nil,
        )

    def _judge_stream(self, mentions: Iterator[str], question: Question, hide: Hide | None) -> Iterator[Judged]:
        # One batch after the other: encoding the next one meanwhile takes the interpreter lock from the search, and
        # both together longer (docs/experiments.md).
        done = 0
        while batch := list(islice(mentions, BATCH)):
            cleaned = [clean_mention(mention) for mention in batch]
            encoded = self._encoder.encode(cleaned)
            for start in range(0, len(batch), SEARCH_BATCH):
                part = slice(start, start + SEARCH_BATCH)
                hidden = None if hide is None else partial(_shifted, hide, done + start)
                found = find_candidates(
                    self._places, cleaned[part], encoded.take(part), question, self._judge, hide=hidden
                )
                for mention, text, judged in zip(batch[part], cleaned[part], found, strict=True):
                    again = judged if self._reranker is None else rerank(judged, self._reranker, text)
                    yield replace(again, mention=mention)
            done += len(batch)

    def _check_types(self, types: Sequence[str]) -> None:
        """Refuse a type that no entity has."""
        if not types:
            return
        if self._known_types is None:
            counts = [collection.type_counts(_ALL_TYPES) for collection in self._collections]
            self._known_types = frozenset(name for one in counts for values in one.values() for name in values)
        for name in types:
            if name not in self._known_types and name not in ENTITY_TYPES:
                raise UnknownTypeError(name, [c.name for c in self._collections], self._known_types)

    def entity(self, entity_id: str) -> Entity:
        """An entity with all its names, types and description.

        Raises:
            EntityNotFoundError: If no open collection has it.
        """
        for collection in self._collections:
            points = collection.find(entity_ids=[entity_id], limit=MAX_NAMES)
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
        written = add_entities(self._target(collection), self._encoder, entities)
        self._known_types = None
        return written

    def delete(self, entity_ids: Iterable[str]) -> int:
        """Delete entities with all their names from every open collection; returns the number of names that went."""
        wanted = list(entity_ids)
        return sum(delete_entities(collection, wanted) for collection in self._collections)

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


def _common_calibration(collections: Sequence[Collection]) -> LinkCalibration | None:
    """What was fitted to the collections, if it is the same for all; the order in which they are named is no reason."""
    first = collections[0].manifest.calibration
    if all(collection.manifest.calibration == first for collection in collections):
        return first
    _log.warning(
        "the collections are calibrated differently: probabilities, threshold and ranking are those that come with the "
        "package"
    )
    return None


def _shifted(hide: Hide, start: int, number: int, point: NamePoint) -> bool:
    """`hide` for a batch that begins with mention `start`."""
    return hide(start + number, point)


def _rarity(collection: Collection) -> NgramRarity:
    """That of a collection; counted now if it was made without, as one that was filled by `add`."""
    text = collection.manifest.ngram_rarity
    if text is not None:
        try:
            return NgramRarity.from_text(text)
        except ValueError as error:
            raise ManifestError(collection.name, f"its n-gram rarities are damaged ({error})") from error
    return NgramRarity.from_names(point.name for point in collection.scroll())


def _checked_threshold(threshold: float) -> float:
    if not 0.0 <= threshold <= 1.0:
        raise ValueError(f"threshold is a probability in [0, 1], not {threshold}")
    return threshold
