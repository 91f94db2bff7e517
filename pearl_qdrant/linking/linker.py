"""`EntityLinker` links mentions to the entities of one or several collections; the entry point of this package."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.errors import EntityNotFoundError
from pearl_qdrant.linking.building import Builder
from pearl_qdrant.linking.candidates import Exclude
from pearl_qdrant.linking.collection_statistics import CollectionStatistics
from pearl_qdrant.linking.documents.methods import DocumentLinker
from pearl_qdrant.linking.editing import EntityBatches, add_entities, delete_entities, points_of
from pearl_qdrant.linking.learned.learner import Learner
from pearl_qdrant.linking.learned.names import LearnedNames
from pearl_qdrant.linking.lifetime import Lifetime, Reloader, encoder_of
from pearl_qdrant.linking.mention_detection.annotate import annotate_blocks
from pearl_qdrant.linking.mention_detection.blocks import Block, DocLike, GivenSpan, of_texts, read_blocks
from pearl_qdrant.linking.mention_detection.name_windows import names_in
from pearl_qdrant.linking.mention_stream import MentionStream
from pearl_qdrant.linking.mentions import check_are_many, take_async
from pearl_qdrant.linking.options import AnnotateOptions, LinkOptions, check_threshold
from pearl_qdrant.linking.ranking.baseline_similarity import baseline_similarity
from pearl_qdrant.linking.ranking.mention_cache import CACHE_BYTES, MentionCache
from pearl_qdrant.linking.ranking.model import Calibration, RankingModel, shipped_model
from pearl_qdrant.linking.ranking.reranker import Reranker
from pearl_qdrant.linking.ranking.scoring import ScoredMention
from pearl_qdrant.linking.ranking.stored_calibration import calibration_of, common_calibration, model_of
from pearl_qdrant.linking.workers.pool import (
    CHARACTERS_A_MENTION,
    Workers,
    annotate_job,
    characters_of,
    has_long,
    link_job,
)
from pearl_qdrant.records import Annotation, Entity, Link
from pearl_qdrant.settings import DEFAULT_DEVICE
from pearl_qdrant.store.open import open_default_store
from pearl_qdrant.store.points import entity_from_points
from pearl_qdrant.store.protocol import Collection, Store
from pearl_qdrant.store.schema import Manifest
from pearl_qdrant.store.verify import check_complete, incomplete_warnings

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from pearl_qdrant.linking.adaptation import Adaptation
    from pearl_qdrant.linking.options import AnnotateKeywords, LinkKeywords

log = logging.getLogger(__name__)

ASYNC_BATCH = 256
"""Mentions per thread call of `alink_batch`."""


class EntityLinker(DocumentLinker, Learner, Reloader, Builder):
    """Links mentions to the entities of one or several collections. Safe to use from several threads.

    Open one with `open`, or make a collection and open it with `build`. Use it as a context manager, or call `close`.
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
        read_only: bool = False,
        encoder_for: Callable[[Manifest], Encoder] | None = None,
    ) -> None:
        """Build a linker from parts that are already open; `open` builds one from names.

        Args:
            store: The store of the collections; closed with the linker.
            collections: At least one open collection.
            encoder: The model that encoded the collections.
            calibration: By default the calibration stored in the collections. If there is none, or the collections
                have different ones, the default calibration.
            threshold: Replaces the threshold of the calibration.
            model: Coefficients of the ranking; the same default as for `calibration`.
            reranker: Scores the best candidates a second time; see `linking.ranking.reranker`.
            read_only: Whether the collections were opened read-only.
            encoder_for: Returns the encoder of a collection that was encoded again with another model, for `reload`;
                None: the encoder stays.

        Raises:
            ModelMismatchError: If another model encoded a collection.
            CalibrationError: If another version of this package calibrated the collection.
            LearningError: If a later version of this package taught it names.
            ValueError: If `collections` is empty, or the threshold is not in [0, 1].
        """
        if not collections:
            raise ValueError("name at least one collection")
        check_threshold(threshold)
        self._store = store
        self._encoder = encoder
        self._encoder_for = encoder_for
        self._given = (calibration, threshold, model, reranker)
        self._workers = Workers(self, store.location, reranker=reranker is not None)
        self._take(collections)
        self._lifetime = Lifetime([collection.name for collection in collections], is_read_only=read_only)

    def _take(self, collections: Sequence[Collection]) -> None:
        encoder = self._encoder
        if self._encoder_for is not None and not collections[0].manifest.is_of(encoder.info):
            encoder = self._encoder_for(collections[0].manifest)
        for collection in collections:
            collection.manifest.check_model(encoder.info)
        calibration, threshold, model, reranker = self._given
        stored = common_calibration(collections)
        chosen = calibration or (Calibration() if stored is None else calibration_of(stored))
        statistics = CollectionStatistics(collections)
        statistics.targets()  # raises now if a collection is damaged
        model = model or (None if stored is None else model_of(stored)) or shipped_model()
        learned = LearnedNames(self._store.location, collections)
        self._stream = MentionStream(encoder, statistics, model, baseline_similarity(encoder), reranker)
        self._encoder = encoder
        self._collections, self._statistics, self._learned = tuple(collections), statistics, learned
        self._calibration = chosen if threshold is None else replace(chosen, threshold=threshold)
        self._warnings = incomplete_warnings(collections)
        for warning in self._warnings:
            log.warning("%s", warning)

    @classmethod
    def open(  # long: each of its arguments has its line, its default and its text
        cls,
        *collections: str,
        store: str | Sequence[str] | None = None,
        api_key: str | None = None,
        allow_plain_http: bool | None = None,
        ca_file: str | None = None,
        model: str | None = None,
        device: str = DEFAULT_DEVICE,
        threshold: float | None = None,
        reranker: Reranker | None = None,
        strict: bool = False,
        read_only: bool = False,
    ) -> EntityLinker:
        """Open collections with the model that encoded them.

        `store`, `api_key`, `allow_plain_http` and `ca_file` default to the environment, as on the command line.

        Args:
            collections: Names of at least one collection; the same model must have encoded all of them.
            store: Folder of an embedded store, or URL of a server, or the URLs of several nodes of one. Default:
                PEARL_QDRANT_STORE, else QDRANT_URL, else the user's data folder.
            api_key: Key of the server. Default: QDRANT_API_KEY.
            allow_plain_http: Whether to send the key over plain HTTP to another host, in a private network. Default:
                PEARL_QDRANT_ALLOW_PLAIN_HTTP.
            ca_file: Certificates (PEM) of an authority to trust. Default: PEARL_QDRANT_CA.
            model: Shipped name, folder or hub id. Default: the model that the first collection names.
            device: auto, cpu, cuda or cuda:N.
            threshold: Minimum probability of a link, in [0, 1]. Default: the calibrated threshold, else
                `settings.DEFAULT_THRESHOLD`.
            reranker: Scores the best candidates a second time, e.g. `linking.ranking.CrossEncoder(HUB_ID)`.
            strict: Refuse a collection whose load or update did not finish; else this is a warning (`warnings`).
            read_only: Only search, so that other processes can search and one can write at the same time (embedded
                store). The linker sees the state at its opening, and with `reload` the newer one.

        Raises:
            CollectionNotFoundError: If a collection does not exist.
            IncompleteError: If `strict` is set, and a load or an update did not finish.
            ModelMismatchError: If another model encoded a collection.
            StoreLockedError: If another process has an embedded collection open for writing.
            StoreUnavailableError: If a server does not answer.
        """
        if not collections:
            raise ValueError("name at least one collection")
        opened_store = open_default_store(store, api_key=api_key, allow_plain_http=allow_plain_http, ca_file=ca_file)
        try:
            opened = [opened_store.open(name, read_only=read_only) for name in dict.fromkeys(collections)]
            if strict:
                check_complete(opened)
            manifest = opened[0].manifest
            encoder, again = encoder_of(manifest, model, device=device), partial(encoder_of, device=device)
            make = partial(cls, opened_store, opened, encoder, encoder_for=None if model else again)
            return make(threshold=threshold, reranker=reranker, read_only=read_only)
        except BaseException:
            opened_store.close()
            raise

    @property
    def collections(self) -> tuple[Collection, ...]:
        """The open collections; `reload` replaces them."""
        return self._collections

    @property
    def encoder(self) -> Encoder:
        """The model that encodes mentions."""
        return self._encoder

    @property
    def calibration(self) -> Calibration:
        """Maps logits to probabilities; contains the threshold."""
        return self._calibration

    @property
    def model(self) -> RankingModel:
        """The coefficients of the ranking."""
        return self._stream.model

    def link(self, mention: str, options: LinkOptions | None = None, **keywords: Unpack[LinkKeywords]) -> Link:
        """Link one mention.

        Args:
            mention: The string to link.
            options: How to link it; the defaults of `LinkOptions` if None.
            keywords: Fields of `LinkOptions`; each replaces that field of `options`:
                types (entity types, native or coarse; empty for all),
                type_mode ("hard": filter by types, "soft": prefer them, "off": ignore types),
                limit (maximum number of candidates; None for those that the answer needs, at most 10),
                threshold (minimum probability; None for the linker's own),
                on_tie (several entities of one name: "canonical" lets popularity or the canonical name decide, "null"
                makes the mention NIL, "first" takes the first of them),
                context (text around the mention; None for none) and
                languages (only names in these languages, and those without one; empty for all).

        Returns:
            The link. For NIL its `entity_id` is None, and `nil_reason` gives the reason.

        Raises:
            UnknownTypeError: If no entity of the collections has one of the `types`.
            ValueError: If an option is out of range.
        """
        return next(self.link_batch([mention], options, **keywords))

    def link_batch(
        self,
        mentions: Iterable[str],
        options: LinkOptions | None = None,
        *,
        workers: int | None = None,
        **keywords: Unpack[LinkKeywords],
    ) -> Iterator[Link]:
        """Link many mentions and yield their links in order; accepts any iterable, and reads a few batches ahead.

        A mention that is not valid text (None, a number, broken Unicode) becomes NIL and does not stop the others.
        Options and errors as for `link`.

        Args:
            mentions: The strings to link.
            options: As for `link`.
            workers: Processes that link (embedded store); they start once, and end with the linker. 1: this process
                alone. Default: one a core from `workers.pool.START_MENTIONS` mentions on, else 1. There are never more
                than four a core, or than different mentions.
            keywords: As for `link`.

        Raises:
            OptionError: If there are to be several workers, but this linker cannot have any: its collections are on a
                server, or its encoder is not ONNX on the CPU.
            WorkerError: If workers were asked for, and cannot start or end before they answer.
        """
        chosen = (options or LinkOptions()).updated(**keywords)
        check_are_many(mentions)
        n_workers = self._workers.count(workers, mentions, are_mentions=True)
        if n_workers == 1:
            return self._links(mentions, chosen)
        with self._lifetime.in_use():
            self._stream.link_query(chosen)  # raises for an unknown type
        job = link_job(chosen, partial(self._links, options=chosen))
        n_known = len(mentions) if isinstance(mentions, Sequence) else 0
        answers = self._workers.answers(
            job, mentions, n_workers=n_workers, is_required=workers is not None, n_known=n_known
        )
        return self._lifetime.while_open(answers)

    async def alink(self, mention: str, options: LinkOptions | None = None, **keywords: Unpack[LinkKeywords]) -> Link:
        """`link` for asyncio: runs in a thread and does not block the event loop."""
        chosen = (options or LinkOptions()).updated(**keywords)
        return await asyncio.to_thread(self.link, mention, chosen)

    async def alink_batch(
        self,
        mentions: Iterable[str] | AsyncIterable[str],
        options: LinkOptions | None = None,
        **keywords: Unpack[LinkKeywords],
    ) -> AsyncIterator[Link]:
        """`link_batch` for asyncio, in order; the mentions may also come from an asynchronous iterable."""
        check_are_many(mentions)
        chosen = (options or LinkOptions()).updated(**keywords)
        async for batch in take_async(mentions, ASYNC_BATCH):
            for link in await asyncio.to_thread(list, self.link_batch(batch, chosen)):
                yield link

    def score_batch(
        self,
        mentions: Iterable[str],
        options: LinkOptions | None = None,
        *,
        exclude: Exclude | None = None,
        **keywords: Unpack[LinkKeywords],
    ) -> Iterator[ScoredMention]:
        """Candidates of many mentions with features and logits, in order, before any decision.

        Args:
            mentions: The strings to link.
            options: As for `link`; the threshold and `on_tie` do not matter here. At least `DEFAULT_LIMIT` entities
                are scored, so that probabilities do not depend on the limit.
            exclude: Returns whether to exclude a name for the mention with this number. Evaluations hold out
                names with it.
            keywords: As for `link`.
        """
        check_are_many(mentions)
        chosen = (options or LinkOptions()).updated(**keywords)
        with self._lifetime.in_use():
            link_query = self._stream.link_query(chosen)
        return self._lifetime.while_open(self._stream.score(iter(mentions), link_query, exclude, self._lifetime.check))

    def _score_for_links(self, mentions: Iterable[str], options: LinkOptions) -> Iterator[ScoredMention]:
        """`score_batch` with the candidates that links need: of a name of the base, its entities alone."""
        if options.limit is not None or self._given[3] is not None:  # candidates are asked for, or reranked
            return self.score_batch(mentions, options)
        check_are_many(mentions)
        with self._lifetime.in_use():
            link_query = self._stream.link_query(options)
        slope = self._calibration.slope
        found = self._stream.score_for_links(iter(mentions), link_query, self._lifetime.check, slope=slope)
        return self._lifetime.while_open(found)

    def adapt(
        self, mentions: Iterable[str], options: LinkOptions | None = None, **keywords: Unpack[LinkKeywords]
    ) -> Adaptation:
        """Estimate, without labels, how much of a list of mentions is in the base.

        Its `nil_bias` is for the links: `linker.link_batch(names, nil_bias=linker.adapt(names).nil_bias)`.

        Args:
            mentions: The strings of one source, at least 200 distinct ones; their order does not matter.
            options: As for `link`.
            keywords: As for `link`.

        Raises:
            CalibrationError: If there are fewer distinct mentions.
        """
        from pearl_qdrant.linking.adaptation import adapt

        check_are_many(mentions)
        return adapt(self, mentions, (options or LinkOptions()).updated(**keywords))

    def annotate(
        self,
        text: str | DocLike,
        options: AnnotateOptions | None = None,
        *,
        spans: Iterable[GivenSpan] | None = None,
        **keywords: Unpack[AnnotateKeywords],
    ) -> list[Annotation]:
        """Find the mentions of a passage and link them.

        Args:
            text: The passage, or a spaCy `Doc`, whose recognised entities become the spans.
            options: How to annotate; the defaults of `AnnotateOptions` if None.
            spans: Known places of mentions; see `linking.mention_detection.annotate`.
            keywords: Fields of `AnnotateOptions`; each replaces that field of `options`: types, threshold, context,
                on_tie, include_nil, nested, document, common_words, assertions, triggers, label_types, markup, offsets.

        Raises:
            UnknownTypeError: If no entity of the collections has one of the `types`.
            ValueError: If an option is out of range, or a span is outside the text.
        """
        chosen = (options or AnnotateOptions()).updated(**keywords)
        with self._lifetime.in_use():
            self._check_types(chosen)
            blocks = read_blocks(text, chosen, spans)
            return [one for found in self.annotate_blocks(blocks, chosen) for one in found]

    def annotate_batch(
        self,
        texts: Iterable[str | DocLike],
        options: AnnotateOptions | None = None,
        *,
        workers: int | None = None,
        on_progress: Callable[[int], None] | None = None,
        **keywords: Unpack[AnnotateKeywords],
    ) -> Iterator[list[Annotation]]:
        """Annotate many passages, in order, or a long one; options as for `annotate`.

        Args:
            texts: The passages. A long one is annotated block by block, in bounded memory.
            options: As for `annotate`.
            workers: As for `link_batch`, also the errors; the blocks of one text are divided among them, too.
            on_progress: Called with the bytes, in UTF-8, of what is annotated so far.
            keywords: As for `annotate`.
        """
        if isinstance(texts, (str, bytes)):
            raise TypeError("texts is one string, whose letters would be annotated one by one: pass a list")
        chosen = (options or AnnotateOptions()).updated(**keywords)
        with self._lifetime.in_use():
            self._check_types(chosen)
        n_workers = self._workers.count(workers, None if has_long(texts) else texts, are_mentions=False)
        annotated: Callable[[Iterable[Block]], Iterator[list[Annotation]]] = partial(
            self.annotate_blocks, options=chosen
        )
        if n_workers > 1:
            job = annotate_job(chosen, annotated)
            n_known = characters_of(texts) // CHARACTERS_A_MENTION
            annotated = partial(
                self._workers.answers, job, n_workers=n_workers, is_required=workers is not None, n_known=n_known
            )
        blocks = (block for text in texts for block in read_blocks(text, chosen))
        return self._lifetime.while_open(of_texts(blocks, annotated, on_progress))

    def annotate_blocks(self, blocks: Iterable[Block], options: AnnotateOptions) -> Iterator[list[Annotation]]:
        """The annotations of blocks of texts (`mention_detection.blocks`), in order."""
        if options.document:
            return (self._annotate_document(block, options) for block in blocks)
        return annotate_blocks(self._in_process(), blocks, options)

    def _check_types(self, options: AnnotateOptions) -> None:
        """Raise for an unknown type even if the text has no mention."""
        self._stream.link_query(LinkOptions(types=options.types))

    def worker_pids(self) -> list[int]:
        """Process ids of the workers that are there."""
        return self._workers.pids()

    def limit_memory(self) -> None:
        """Remember fewer mentions: there are several processes that do."""
        self._stream = replace(self._stream, cache=MentionCache(CACHE_BYTES // 4))

    def entity(self, entity_id: str) -> Entity:
        """An entity with all its names, types and description.

        Raises:
            EntityNotFoundError: If no open collection contains it.
        """
        with self._lifetime.in_use():
            for collection in self._collections:
                if points := points_of(collection, [entity_id]):
                    return entity_from_points(points)
        raise EntityNotFoundError(entity_id, [c.name for c in self._collections])

    def missing(self, entity_ids: Iterable[str]) -> list[str]:
        """The ids that no open collection contains, in the given order."""
        with self._lifetime.in_use():
            return [
                entity_id
                for entity_id in entity_ids
                if not any(collection.find(entity_ids=[entity_id], limit=1) for collection in self._collections)
            ]

    def known_names(self, names: Sequence[str], *, types: Sequence[str] = ()) -> set[str]:
        """Those of some strings that are, letter for letter, names of an entity (of one of the types, if given)."""
        with self._lifetime.in_use():
            return names_in(self._collections, names, types)

    def add(self, entities: Iterable[Entity], *, collection: str | None = None) -> int:
        """Add or replace a few entities, effective at once; returns the number of names written.

        An entity that exists already is replaced with all its names. Load whole bases with `pearl_qdrant.load_base`.

        Args:
            entities: The entities; if an id repeats, the last one counts.
            collection: Name of the collection to write to; optional if only one is open.

        Raises:
            InvalidEntityError: If an item is not an entity, or has an empty id or name; also a ValueError and
                TypeError.
            ValueError: If several collections are open and `collection` is missing.
        """
        batches = EntityBatches(entities)

        def add() -> int:
            with self._editing():
                return add_entities(self._target(collection), self._encoder, batches)

        return self._repeat_if_moved(add)

    def delete(self, entity_ids: Iterable[str]) -> int:
        """Delete entities with all their names from every open collection; returns the number of deleted names."""
        if isinstance(entity_ids, (str, bytes)):
            raise TypeError(f"entity_ids is a list of ids, not one: write [{entity_ids!r}]")
        wanted = list(entity_ids)

        def delete() -> int:
            with self._editing():
                return sum(delete_entities(collection, wanted) for collection in self._collections)

        return self._repeat_if_moved(delete)

    def close(self) -> None:
        """Close the collections and the store. Closing twice is allowed; any later use raises `LinkerClosedError`."""
        if self._lifetime.end():
            self._workers.close()
            self._store.close()

    @contextmanager
    def _editing(self) -> Iterator[None]:
        """Guard one edit: the statistics are computed again afterwards, whether or not the edit succeeded."""
        with self._lifetime.in_edit(), ExitStack() as stack:
            for collection in self._collections:  # readers see the whole edit, or nothing of it
                stack.enter_context(collection.editing())
            try:
                yield
            finally:
                self._statistics.invalidate()
                self._learned.forget_points()

    def __enter__(self) -> EntityLinker:
        self._lifetime.check()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _target(self, collection: str | None) -> Collection:
        """The open collection of this name, or the only one."""
        if collection is None and len(self._collections) == 1:
            return self._collections[0]
        for opened in self._collections:
            if opened.name == collection:
                return opened
        names = ", ".join(c.name for c in self._collections)
        raise ValueError(f"name the collection to add to, one of: {names} (got {collection!r})")
