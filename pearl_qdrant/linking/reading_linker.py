"""What an `EntityLinker` does without writing: it opens collections, links, annotates and looks up."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.errors import CollectionMovedError, CollectionNotFoundError, EntityNotFoundError
from pearl_qdrant.linking.asking import asking_of
from pearl_qdrant.linking.candidates import Exclude
from pearl_qdrant.linking.documents.linking import link_document
from pearl_qdrant.linking.documents.model import check_parts
from pearl_qdrant.linking.editing import points_of
from pearl_qdrant.linking.joints import links_of_cells
from pearl_qdrant.linking.mention_detection.blocks import Block, DocLike, GivenSpan, of_texts, read_blocks, read_text
from pearl_qdrant.linking.mentions import check_are_many, take_async
from pearl_qdrant.linking.options import AnnotateKeywords, AnnotateOptions, LinkKeywords, LinkOptions
from pearl_qdrant.linking.ranking.model import Calibration, RankingModel, ScoredMention
from pearl_qdrant.linking.ranking.reranker import Reranker
from pearl_qdrant.linking.state import Lifetime, LinkerState, Overrides, encoder_of
from pearl_qdrant.linking.workers import CHARACTERS_A_MENTION, Workers, annotate_job, characters_of, has_long, link_job
from pearl_qdrant.records import Annotation, Entity, Link
from pearl_qdrant.settings import DEFAULT_DEVICE
from pearl_qdrant.store.administration import check_complete
from pearl_qdrant.store.open import StoreLike, open_default_store
from pearl_qdrant.store.protocol import Collection, Store
from pearl_qdrant.store.schema import Manifest, entity_from_points

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack


log = logging.getLogger(__name__)

T = TypeVar("T")

ASYNC_BATCH = 256  # mentions per thread call of `alink_batch`


class ReadingLinker:
    """The part of `EntityLinker` that reads. Safe to use from several threads. Its `state`, which `reload` replaces,
    has the open collections and what answers from them.
    """

    def __init__(
        self,
        store: Store,
        collections: Sequence[Collection],
        encoder: Encoder,
        overrides: Overrides | None = None,
        *,
        read_only: bool = False,
        encoder_for: Callable[[Manifest], Encoder] | None = None,
    ) -> None:
        """Build a linker from at least one collection of a store, which are open already, and the model that encoded
        them; `open` builds one from names. The store is closed with the linker.

        Args:
            overrides: What counts in place of what the collections store; by default nothing does.
            read_only: Whether the collections were opened read-only.
            encoder_for: Returns the encoder of a collection that was encoded again with another model, for `reload`;
                None: the encoder stays.

        Raises:
            ModelMismatchError: If another model encoded a collection.
            CalibrationError: If another version of this package calibrated the collection.
            LearningError: If a later version of this package taught it names.
            ValueError: If `collections` is empty.
        """
        if not collections:
            raise ValueError("name at least one collection")
        self._store = store
        self._encoder_for = encoder_for
        self._overrides = overrides or Overrides()
        self._lifetime = Lifetime([collection.name for collection in collections], is_read_only=read_only)
        self._take(collections, encoder)
        own = weakref.proxy(self)  # workers do not keep their linker
        self._workers = Workers(lambda: own.state, type(self), store.location)

    def _take(self, collections: Sequence[Collection], encoder: Encoder) -> None:
        """Use these open collections from now on."""
        manifest = collections[0].manifest
        if self._encoder_for is not None and not manifest.is_of(encoder.info):
            encoder = self._encoder_for(manifest)
        location, check = self._store.location, self._lifetime.check
        self.state = LinkerState.of(location, collections, encoder, self._overrides, check=check)
        for warning in self.state.warnings:
            log.warning("%s", warning)

    def _read(self, do: Callable[[], T]) -> T:
        """Do what reads, in the newer state if a collection's name means another one by now; once more if it was found
        out only while reading.
        """
        self._follow()
        with self._lifetime.in_use():
            try:
                return do()
            except (CollectionMovedError, CollectionNotFoundError):
                if not self._follow():
                    raise
                return do()

    def _follow(self) -> bool:
        """Reload if the name of a collection means another one by now, as a user's alias that was switched. Returns
        whether it did.
        """
        with self._lifetime.in_use():
            return any(collection.is_moved for collection in self.state.collections) and self.reload()

    @classmethod
    def open(  # long: each of its arguments has its line, its default and its text
        cls,
        *collections: str,
        store: StoreLike = None,
        api_key: str | None = None,
        model: str | None = None,
        device: str = DEFAULT_DEVICE,
        threshold: float | None = None,
        reranker: Reranker | None = None,
        strict: bool = False,
        read_only: bool = False,
    ) -> Self:
        """Open collections with the model that encoded them.

        `store` and `api_key` default to the environment, as on the command line; so do PEARL_QDRANT_CA and the other
        settings of a server, which `pearl_qdrant.store.open_store` takes as arguments.

        Args:
            collections: Names of at least one collection; the same model must have encoded all of them.
            store: Folder of an embedded store, or URL of a server, or the URLs of several nodes of one; or an open
                store, which the linker closes. Default: PEARL_QDRANT_STORE, else QDRANT_URL, else the user's data
                folder.
            api_key: Key of the server. Default: QDRANT_API_KEY.
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
        overrides = Overrides(threshold=threshold, reranker=reranker)
        opened_store = open_default_store(store, api_key=api_key)
        try:
            opened = [opened_store.open(name, read_only=read_only) for name in dict.fromkeys(collections)]
            if strict:
                check_complete(opened)
            manifest = opened[0].manifest
            encoder, again = encoder_of(manifest, model, device=device), partial(encoder_of, device=device)
            encoder_for = None if model else again
            return cls(opened_store, opened, encoder, overrides, read_only=read_only, encoder_for=encoder_for)
        except BaseException:
            if opened_store is not store:
                opened_store.close()
            raise

    @property
    def collections(self) -> tuple[Collection, ...]:
        """The open collections; `reload` replaces them."""
        return self.state.collections

    @property
    def encoder(self) -> Encoder:
        """The model that encodes mentions."""
        return self.state.encoder

    @property
    def calibration(self) -> Calibration:
        """Maps logits to probabilities; contains the threshold."""
        return self.state.calibration

    @property
    def model(self) -> RankingModel:
        """The coefficients of the ranking."""
        return self.state.stream.model

    def link(
        self,
        mention: str,
        options: LinkOptions | None = None,
        *,
        properties: Mapping[str, object] | None = None,
        **keywords: Unpack[LinkKeywords],
    ) -> Link:
        """Link one mention.

        Args:
            mention: The string to link.
            options: How to link it; the defaults of `LinkOptions` if None.
            properties: What else is known of it, by the column of the base: {"city": "Emeryville", "year": 1998}.
            keywords: Fields of `LinkOptions`, which describes them; each replaces that field of `options`: types,
                type_mode, limit, threshold, on_tie, context, nil_bias, languages, judge.

        Returns:
            The link. For NIL its `entity_id` is None, and `nil_reason` gives the reason.

        Raises:
            JudgeError: If there is a judge, and it fails.
            UnknownTypeError: If no entity of the collections has one of the `types`.
            OptionError: If the base has no such property.
            ValueError: If an option is out of range.
        """
        chosen = (options or LinkOptions()).updated(**keywords)
        alone, given = chosen.updated(judge=None), {name: [value] for name, value in (properties or {}).items()}
        link = self._read(lambda: next(self._lifetime.while_open(self._linked([mention], alone, given))))
        return next(self._judged([link], chosen))

    def _judged(self, links: Iterable[Link], options: LinkOptions) -> Iterator[Link]:
        """Links as the judge of the options decides, if there is one."""
        if options.judge is None:
            return iter(links)
        threshold = self.state.threshold_of(options)
        return asking_of(options.judge).links(links, context=options.context, threshold=threshold)

    def _linked(
        self,
        mentions: Iterable[str],
        options: LinkOptions,
        properties: Mapping[str, Iterable[object]],
        link: Callable[[Iterable[str], LinkOptions], Iterator[Link]] | None = None,
    ) -> Iterator[Link]:
        """The links of mentions, with their properties if there are any; `link` links them without."""
        alone = link or partial(links_of_cells, self.state)
        if not properties:
            return alone(mentions, options)
        from pearl_qdrant.linking.properties import link_rows, read_rows

        return link_rows(self.state, read_rows(mentions, properties), list(properties), options, alone)

    def link_batch(
        self,
        mentions: Iterable[str],
        options: LinkOptions | None = None,
        *,
        workers: int | None = None,
        properties: Mapping[str, Iterable[object]] | None = None,
        **keywords: Unpack[LinkKeywords],
    ) -> Iterator[Link]:
        """Link many mentions and yield their links in order; accepts any iterable, and reads a few batches ahead.

        A mention that is not valid text (None, a number, broken Unicode) becomes NIL and does not stop the others.
        Options and errors as for `link`.

        Args:
            mentions: The strings to link.
            options: As for `link`.
            workers: Processes that link (embedded store); they start once, and end with the linker. 1: this process
                alone. Default: one a core from `workers.START_MENTIONS` mentions on, else 1. There are never more
                than four a core, or than different mentions.
            properties: Columns beside the mentions, by the column of the base, each with a value for each mention. How
                well each column agrees over the list says how much it counts; 1,000 rows are read ahead.
            keywords: As for `link`.

        Raises:
            OptionError: If there are to be several workers, but this linker cannot have any: its collections are on a
                server, or its encoder is not ONNX on the CPU.
            WorkerError: If workers were asked for, and cannot start or end before they answer.
        """
        chosen = (options or LinkOptions()).updated(**keywords)
        check_are_many(mentions)
        alone = chosen.updated(judge=None)  # it is asked in this process, with all that is known
        self._follow()
        if properties:
            link = partial(self.link_batch, workers=workers)
            with self._lifetime.in_use():
                found = self._lifetime.while_open(self._linked(mentions, alone, properties, link))
                return self._judged(found, chosen)
        n_workers = self._workers.count(workers, mentions, are_mentions=True)
        state = self.state
        with self._lifetime.in_use():
            if n_workers == 1:
                return self._judged(self._lifetime.while_open(links_of_cells(state, mentions, chosen)), chosen)
            state.check_types(chosen.types)
        job = link_job(alone, partial(links_of_cells, state, options=alone))
        n_known = len(mentions) if isinstance(mentions, Sequence) else 0
        answers = self._workers.answers(
            job, mentions, n_workers=n_workers, is_required=workers is not None, n_known=n_known
        )
        return self._judged(self._lifetime.while_open(answers), chosen)

    async def alink(
        self,
        mention: str,
        options: LinkOptions | None = None,
        *,
        properties: Mapping[str, object] | None = None,
        **keywords: Unpack[LinkKeywords],
    ) -> Link:
        """`link` for asyncio: runs in a thread and does not block the event loop."""
        chosen = (options or LinkOptions()).updated(**keywords)
        return await asyncio.to_thread(self.link, mention, chosen, properties=properties)

    async def alink_batch(
        self,
        mentions: Iterable[str] | AsyncIterable[str],
        options: LinkOptions | None = None,
        *,
        properties: Mapping[str, Iterable[object]] | None = None,
        **keywords: Unpack[LinkKeywords],
    ) -> AsyncIterator[Link]:
        """`link_batch` for asyncio, in order; the mentions may also come from an asynchronous iterable, unless there
        are `properties`.
        """
        check_are_many(mentions)
        chosen = (options or LinkOptions()).updated(**keywords)
        if properties:
            if isinstance(mentions, AsyncIterable):
                raise TypeError("properties stand beside mentions row by row: pass the mentions as a list")
            links = await asyncio.to_thread(self.link_batch, mentions, chosen, properties=properties)
            while found := await asyncio.to_thread(list, islice(links, ASYNC_BATCH)):
                for link in found:
                    yield link
            return
        if chosen.judge is not None:
            chosen = chosen.updated(judge=asking_of(chosen.judge))  # one for all batches
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
            options: As for `link`; threshold, `on_tie` and judge do not matter here. At least `DEFAULT_LIMIT` entities
                are scored, so that probabilities do not depend on the limit.
            exclude: Returns whether to exclude a name for the mention with this number. Evaluations hold out
                names with it.
            keywords: As for `link`.
        """
        check_are_many(mentions)
        chosen = (options or LinkOptions()).updated(**keywords)
        self._follow()
        with self._lifetime.in_use():
            scored = self.state.score_batch(mentions, chosen, exclude)
        return self._lifetime.while_open(scored)

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
        given = spans if spans is None else list(spans)

        def annotate() -> list[Annotation]:
            self.state.check_types(chosen.types)
            blocks = read_blocks(text, chosen, given)
            return [one for found in self.state.annotate_blocks(blocks, chosen) for one in found]

        return self._read(annotate)

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
        self._follow()
        with self._lifetime.in_use():
            self.state.check_types(chosen.types)
        n_workers = self._workers.count(workers, None if has_long(texts) else texts, are_mentions=False)
        annotated: Callable[[Iterable[Block]], Iterator[list[Annotation]]] = partial(
            self.state.annotate_blocks, options=chosen
        )
        if n_workers > 1:
            job = annotate_job(chosen, annotated)
            n_known = characters_of(texts) // CHARACTERS_A_MENTION
            annotated = partial(
                self._workers.answers, job, n_workers=n_workers, is_required=workers is not None, n_known=n_known
            )
        blocks = (block for text in texts for block in read_blocks(text, chosen))
        return self._lifetime.while_open(of_texts(blocks, annotated, on_progress))

    def link_document(
        self,
        text: str | DocLike,
        spans: Iterable[GivenSpan] | None = None,
        options: LinkOptions | None = None,
        *,
        without: Iterable[str] = (),
        **keywords: Unpack[LinkKeywords],
    ) -> list[Annotation]:
        """Link the mentions of a document, where they are known, with what the document says of each.

        A partial name takes the entity of a longer mention (`Clinton` after `Bill Clinton`), popularity counts between
        entities of different names too, and entities that the base links to others of the document are preferred (a
        field `links_to` with ids, joined by |). Abbreviations that the text defines are linked by their long form.
        `annotate(text, document=True)` finds the mentions, too. Returns one annotation for each span, NIL ones too, in
        the order of the spans. Raises UnknownTypeError if no entity of the collections has one of the types; ValueError
        if there are no spans, a span is outside the text, or an option is out of range.

        Args:
            text: The document, or a spaCy `Doc`, whose recognised entities become the spans.
            spans: The places of its mentions: (start, end) in characters, objects with `start_char` and `end_char`, or
                mappings with `start` and `end`. Needed unless `text` is a `Doc`.
            options: As for `link`.
            without: Parts to switch off: "partial names", "popularity", "learned names", "types", "passages",
                "coherence".
            keywords: As for `link`.
        """
        own_text, own_spans = read_text(text)
        given = own_spans if spans is None else spans
        if given is None:
            raise ValueError(
                "link_document links mentions whose places are known: pass spans, as (start, end), or a spaCy Doc with "
                "entities. annotate(text, document=True) finds them"
            )
        chosen = (options or LinkOptions()).updated(**keywords)
        if chosen.context is not None:
            chosen = chosen.updated(context=None)  # the document is its context
        spans_given, parts = list(given), check_parts(without)
        found = self._read(lambda: link_document(self.state, own_text, spans_given, chosen, without=parts))
        if chosen.judge is None:
            return found
        return asking_of(chosen.judge).annotations(found, own_text, threshold=self.state.threshold_of(chosen))

    def worker_pids(self) -> list[int]:
        """Process ids of the workers that are there."""
        return self._workers.pids()

    def entity(self, entity_id: str) -> Entity:
        """An entity with all its names, types and description.

        Raises:
            EntityNotFoundError: If no open collection contains it.
        """

        def look_up() -> Entity:
            for collection in self.state.collections:
                if points := points_of(collection, [entity_id]):
                    return entity_from_points(points)
            raise EntityNotFoundError(entity_id, [c.name for c in self.state.collections])

        return self._read(look_up)

    def missing(self, entity_ids: Iterable[str]) -> list[str]:
        """The ids that no open collection contains, in the given order."""
        wanted = list(entity_ids)
        return self._read(
            lambda: [
                entity_id
                for entity_id in wanted
                if not any(collection.find(entity_ids=[entity_id], limit=1) for collection in self.state.collections)
            ]
        )

    def known_names(self, names: Sequence[str], *, types: Sequence[str] = ()) -> set[str]:
        """Those of some strings that are, letter for letter, names of an entity (of one of the types, if given)."""
        return self._read(lambda: self.state.known_names(names, types=types))

    @property
    def is_outdated(self) -> bool:
        """Whether a newer state of a collection exists than the one that is open here.

        `reload` brings it. Embedded, that is any change of a collection that was opened read-only; asking takes one
        look at two files. On a server, it is another version of it, as after `reencode`; the server is asked once in
        two seconds at most. An alias of yours that leads to another collection is followed without `reload`.
        """
        with self._lifetime.in_use():
            return any(collection.is_outdated for collection in self.state.collections)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Why answers may be wrong: a text for each collection whose load or update had not finished on opening.

        They are logged on opening, too, and each link carries them. Of collections that were opened read-only and
        changed since, one more text says so, which links do not carry.
        """
        outdated = [one.name for one in self.state.collections if one.is_outdated]
        newer = f"{', '.join(outdated)} changed after this linker was opened: reload() brings the newer state."
        return (*self.state.warnings, newer) if outdated else self.state.warnings

    def reload(self) -> bool:
        """Open the collections again if there is a newer state; returns whether there was one.

        Collections on a server are always read again: their manifests, statistics and learned names. Links that are
        being made meanwhile are of the older state or of the newer one. After an error the linker keeps its state.
        Raises CollectionNotFoundError if a collection does not exist any more; ModelMismatchError if another model
        encoded it since, and this linker was opened with a model of its own; StoreError if it cannot be opened.
        """
        with self._lifetime.in_use(), self._lifetime.reloading:
            newer = [collection.is_outdated or collection.is_remote for collection in self.state.collections]
            if any(newer):
                read_only = self._lifetime.is_read_only
                self._take(
                    [
                        self._store.open(collection.name, read_only=read_only) if is_newer else collection
                        for collection, is_newer in zip(self.state.collections, newer, strict=True)
                    ],
                    self.state.encoder,
                )
            return any(newer)

    def close(self) -> None:
        """Close the collections and the store. Closing twice is allowed; any later use raises `LinkerClosedError`."""
        if self._lifetime.end():
            self._workers.close()
            self._store.close()

    def __enter__(self) -> Self:
        self._lifetime.check()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
