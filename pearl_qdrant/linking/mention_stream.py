"""Scores any number of mentions, in order and in batches: encode, search, score, rerank.

A batch is encoded as a whole (up to 1,024 mentions, 512 on a server) and searched in slices of 128, so that memory
stays small while the encoder sees enough names to sort by length. On a server the next batch is encoded in a second
thread, and the slices of a batch are searched at the same time, because a search mostly waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TypeVar

from pearl_qdrant.encoder.protocol import Encoded, Encoder
from pearl_qdrant.errors import UnknownTypeError
from pearl_qdrant.linking.candidates import Exclude, find_by_name, find_candidates
from pearl_qdrant.linking.collection_statistics import CollectionStatistics
from pearl_qdrant.linking.entity_ids import find_by_id, looks_like_id
from pearl_qdrant.linking.mentions import clean_mention, take
from pearl_qdrant.linking.options import LinkOptions
from pearl_qdrant.linking.ranking.mention_cache import MentionCache, is_same_state, pack, unpack
from pearl_qdrant.linking.ranking.model import RankingModel
from pearl_qdrant.linking.ranking.reranker import Reranker
from pearl_qdrant.linking.ranking.scoring import LinkQuery, ScoredMention, Scorer, put_first, rerank
from pearl_qdrant.phrase_types import ENTITY_TYPES
from pearl_qdrant.settings import DEFAULT_LIMIT
from pearl_qdrant.store.schema import NamePoint

BATCH = 1024
"""Mentions encoded together; fewer where they are long."""

REMOTE_BATCH = 512
"""The same for collections on a server, where encoding and searching overlap."""

SEARCH_BATCH = 128
"""Mentions searched and scored together; their candidates take a few MB."""

REMOTE_SEARCHES = 4
"""Slices of a batch that are searched at the same time on a server."""


S = TypeVar("S")
T = TypeVar("T")

_LEAST_SLOPE = 0.7
"""Slope of a calibration from which the bonus of a name leaves other candidates less than a millionth."""


class _Vectors:
    """Vectors and types of distinct mentions, encoded together; one that is asked for beside them is encoded then."""

    def __init__(self, encoder: Encoder, texts: Sequence[str]) -> None:
        self._encoder = encoder
        self._row = {text: row for row, text in enumerate(texts)}
        self._encoded = encoder.encode(texts) if texts else None

    def of(self, texts: Sequence[str]) -> Encoded:
        """Vectors and types of some mentions, in their order."""
        rows = [self._row.get(text, -1) for text in texts]
        # A mention lacks if its answer was known before the batch and forgotten since: after an edit.
        if self._encoded is None or -1 in rows:
            return self._encoder.encode(texts)
        return self._encoded.take(rows)


@dataclass(frozen=True, slots=True)
class MentionStream:
    """The parts that score mentions. Safe to use from several threads.

    Attributes:
        encoder: The model that encoded the collections.
        statistics: The collections and their statistics.
        model: Coefficients of the ranking.
        baseline: Mean cosine of unrelated names with this encoder.
        reranker: Scores the best candidates a second time, or None.
        cache: What was found for mentions that may come again.
    """

    encoder: Encoder
    statistics: CollectionStatistics
    model: RankingModel
    baseline: float
    reranker: Reranker | None
    cache: MentionCache = field(default_factory=MentionCache)

    def link_query(self, options: LinkOptions) -> LinkQuery:
        """The search that these options describe; it covers at least `DEFAULT_LIMIT` entities. Raises UnknownTypeError
        if no entity has one of the types.
        """
        is_typed = options.type_mode != "off"
        types = tuple(options.types) if is_typed else ()
        for name in types:
            if name not in ENTITY_TYPES and not self.statistics.has_type(name):
                raise UnknownTypeError(name, self.statistics.names, self.statistics.types())
        limit = max(options.most_candidates, DEFAULT_LIMIT)
        languages = self.statistics.languages_like(options.languages) if options.languages else ()
        is_filter = options.type_mode == "hard"
        return LinkQuery(limit, types, is_filter=is_filter, is_typed=is_typed, languages=languages)

    def score(
        self, mentions: Iterator[str], link_query: LinkQuery, exclude: Exclude | None, check: Callable[[], None]
    ) -> Iterator[ScoredMention]:
        """Yield mentions with their scored candidates, in order; reads at most `BATCH` ahead, or 2 x `REMOTE_BATCH`.

        Args:
            mentions: Strings; other objects are accepted and find nothing.
            exclude: Names to exclude, by the number of the mention.
            check: Called before each search; raises to stop the stream, as when the linker was closed.
        """
        if exclude is None and not self.statistics.is_remote:
            yield from self._score_distinct(mentions, link_query, check, names_first=False)
            return
        done = 0
        for batch, cleaned, encoded in self._encoded(mentions, check):
            # A mention that comes again within its batch has the answer of the first one; exclusions go by number.
            rows = [*range(len(batch))] if exclude is not None else [*_first_rows(cleaned).values()]
            parts = _parts(rows)
            excluded = None if exclude is None else partial(_shifted, exclude, done)
            search = partial(self._find_rows, cleaned, encoded, link_query, excluded, check)
            found = chain.from_iterable(self._in_order(search, parts))
            yield from self._answers(batch, cleaned, found, distinct=exclude is None)
            done += len(batch)

    def score_for_links(
        self, mentions: Iterator[str], link_query: LinkQuery, check: Callable[[], None], *, slope: float
    ) -> Iterator[ScoredMention]:
        """`score` with the entities of that name alone where a mention is a name, without encoding it.

        Args:
            mentions, link_query, check: As for `score`.
            slope: Of the calibration: with a low one, other candidates take a part of the probability of a name.
        """
        if slope < _LEAST_SLOPE:
            found = self.score(mentions, link_query, None, check)
        elif self.statistics.is_remote:
            found = self._score_names_first(mentions, link_query, check)
        else:
            found = self._score_distinct(mentions, link_query, check, names_first=True)
        yield from map(of_own_name, found)

    def _score_names_first(
        self, mentions: Iterator[str], link_query: LinkQuery, check: Callable[[], None]
    ) -> Iterator[ScoredMention]:
        """`score` on a server: what is no name of the base is encoded, in the thread that looks names up."""

        def prepare(cleaned: Sequence[str]) -> tuple[dict[str, ScoredMention], list[str], Encoded]:
            distinct = list(dict.fromkeys(cleaned))
            # A single one is looked up by the request that also searches for its vector.
            own = self._find_own(distinct, link_query) if len(distinct) > 1 else {}
            others = [text for text in distinct if text not in own]
            return own, others, self.encoder.encode(others)

        for batch, cleaned, (own, others, encoded) in prepare_ahead(prepare, mentions, REMOTE_BATCH, check):
            parts = _parts(range(len(others)))
            search = partial(self._find_rows, others, encoded, link_query, None, check)
            searched = chain.from_iterable(self._in_order(search, parts))
            found = (own[text] if text in own else next(searched) for text in dict.fromkeys(cleaned))
            yield from self._answers(batch, cleaned, found, distinct=True)

    def _answers(
        self, batch: Sequence[str], cleaned: Sequence[str], found: Iterator[ScoredMention], *, distinct: bool
    ) -> Iterator[ScoredMention]:
        """The answers of a batch in order; what was found is for distinct mentions, or for each."""
        times = Counter(cleaned) if distinct else {}
        packed: dict[str, bytes] = {}
        for mention, text in zip(batch, cleaned, strict=True):
            if text in packed:
                scored = unpack(packed[text], text)
            else:
                scored = next(found)
                if times.get(text, 1) > 1:
                    packed[text] = pack(scored)
            yield self._reranked(scored, text, mention)

    def _in_order(self, search: Callable[[Sequence[S]], T], parts: Sequence[Sequence[S]]) -> Iterator[T]:
        """What a search returns for each part, in order; on a server several wait for answers at the same time."""
        if not self.statistics.is_remote or len(parts) < 2:
            yield from map(search, parts)
            return
        # Leaving the block, also after an error, waits for the searches that were sent, and cancels the others.
        with ThreadPoolExecutor(REMOTE_SEARCHES, thread_name_prefix="pearl-qdrant-link") as threads:
            contexts = [copy_context() for _ in parts]  # what the caller's thread knows, such as its deadline
            yield from threads.map(lambda context, part: context.run(search, part), contexts, parts)

    def _find_rows(
        self,
        cleaned: Sequence[str],
        encoded: Encoded,
        link_query: LinkQuery,
        exclude: Exclude | None,
        check: Callable[[], None],
        rows: Sequence[int],
    ) -> list[ScoredMention]:
        """Candidates of some mentions of a batch, at most `SEARCH_BATCH`; ids are looked up, too."""
        check()
        texts = [cleaned[row] for row in rows]
        of_part = None if exclude is None else partial(_shifted, exclude, rows[0])  # all rows of a part, in order
        found = self._find(texts, encoded.take(rows), link_query, of_part)
        return [
            self._by_id(scored, text, link_query, None if of_part is None else partial(of_part, i))
            for i, (text, scored) in enumerate(zip(texts, found, strict=True))
        ]

    def _score_distinct(
        self, mentions: Iterator[str], link_query: LinkQuery, check: Callable[[], None], *, names_first: bool
    ) -> Iterator[ScoredMention]:
        """`score` of embedded collections, if no names are excluded: each distinct mention is searched once.

        With `names_first`, names of the base are looked up, and what is one has no other candidates.
        """
        kept = replace(link_query, names_first=names_first)
        while batch := take(mentions, BATCH):
            check()
            cleaned = [clean_mention(mention) for mention in batch]
            distinct = dict.fromkeys(cleaned)
            state = self.statistics.state()
            known = self._cached(distinct, kept, state)
            new = [text for text in distinct if text not in known]
            own = self._find_own(new, link_query) if names_first and state is not None else {}
            vectors = _Vectors(self.encoder, [text for text in new if text not in own])
            for start in range(0, len(batch), SEARCH_BATCH):
                check()
                part = slice(start, start + SEARCH_BATCH)
                # An edit between two slices changes the answers after it.
                is_current = bool(own) and is_same_state(self.statistics.state() or (), state or ())
                current = own if is_current else {}
                packed, found = self._find_new(dict.fromkeys(cleaned[part]), vectors, kept, current)
                for mention, text in zip(batch[part], cleaned[part], strict=True):
                    # The first answer is given as it was found; others must not share what a caller may change.
                    scored = found.pop(text, None) or unpack(packed[text], text)
                    yield self._reranked(scored, text, mention)

    def _find_own(self, texts: Sequence[str], link_query: LinkQuery) -> dict[str, ScoredMention]:
        """Those of some cleaned mentions that are names of the base, with the entities of that name."""
        targets = self.statistics.targets()
        scorer = Scorer(self.model, self.baseline, targets.log_size)
        look_up = partial(find_by_name, targets.all, dim=self.encoder.info.dim, link_query=link_query, scorer=scorer)
        return {text: own for found in self._in_order(look_up, _parts(texts)) for text, own in found.items()}

    def _find_new(
        self, texts: Iterable[str], vectors: _Vectors, link_query: LinkQuery, own: Mapping[str, ScoredMention]
    ) -> tuple[dict[str, bytes], dict[str, ScoredMention]]:
        """All of some distinct mentions, packed; and those that had to be searched, as they were found."""
        state = self.statistics.state()
        packed = self._cached(texts, link_query, state)
        new = [text for text in texts if text not in packed]
        if not new:
            return packed, {}
        found = {text: own[text] for text in new if text in own}
        others = [text for text in new if text not in own]
        searched = self._find(others, vectors.of(others), link_query, None) if others else []
        for text, scored in zip(others, searched, strict=True):
            found[text] = self._by_id(scored, text, link_query, None)
        for text in new:
            packed[text] = pack(found[text])
            if state is not None:
                self.cache.put(text, link_query, packed[text], state)
        return packed, found

    def _cached(
        self, texts: Iterable[str], link_query: LinkQuery, state: tuple[object, ...] | None
    ) -> dict[str, bytes]:
        return {} if state is None else self.cache.get(texts, link_query, state)

    def _find(
        self, texts: Sequence[str], encoded: Encoded, link_query: LinkQuery, exclude: Exclude | None
    ) -> list[ScoredMention]:
        """Candidates of cleaned mentions, at most `SEARCH_BATCH`."""
        targets = self.statistics.targets()
        scorer = Scorer(self.model, self.baseline, targets.log_size)
        return find_candidates(targets.all, texts, encoded, link_query, scorer, exclude=exclude)

    def _reranked(self, scored: ScoredMention, text: str, mention: str) -> ScoredMention:
        """The answer for a mention as it was given; a reranker is asked each time."""
        reranked = scored if self.reranker is None else rerank(scored, self.reranker, text)
        return reranked if mention is text else replace(reranked, mention=mention)

    def _by_id(
        self, scored: ScoredMention, text: str, link_query: LinkQuery, excludes: Callable[[NamePoint], bool] | None
    ) -> ScoredMention:
        """The mention with the entity first whose id it is, if it is an id and not itself a name."""
        if scored.certainty < 1 or not looks_like_id(text):
            return scored
        collections = [target.collection for target in self.statistics.targets().all]
        point = find_by_id(collections, text, link_query.filter)
        if point is None or (excludes is not None and excludes(point)):
            return scored
        return put_first(scored, point)

    def _encoded(
        self, mentions: Iterator[str], check: Callable[[], None]
    ) -> Iterator[tuple[list[str], list[str], Encoded]]:
        """Yield batches of mentions: as given, cleaned, and encoded."""
        if self.statistics.is_remote:
            # While a search waits for the server, the processor is free to encode the next batch.
            yield from prepare_ahead(self.encoder.encode, mentions, REMOTE_BATCH, check)
            return
        # An embedded search needs the interpreter lock itself: encoding in parallel made both slower
        # (docs/experiments/linking-speed.md). So the batches follow one another.
        while batch := take(mentions, BATCH):
            check()
            cleaned = [clean_mention(mention) for mention in batch]
            yield batch, cleaned, self.encoder.encode(cleaned)


def prepare_ahead(
    prepare: Callable[[Sequence[str]], T], mentions: Iterator[str], n: int, check: Callable[[], None]
) -> Iterator[tuple[list[str], list[str], T]]:
    """Yield batches of at most `n` mentions (as given, cleaned, prepared), preparing one batch ahead in a thread.

    The mentions are read in the caller's thread, because an iterator such as a database cursor may be bound to it.
    A single batch is prepared there too: a thread would only cost time.

    Args:
        prepare: Encodes cleaned mentions, for example; called by one thread at a time.
        mentions: Read at most two batches ahead of the caller.
        n: Mentions per batch.
        check: Called before each batch is yielded; raises to stop.
    """
    batch, following = take(mentions, n), take(mentions, n)
    cleaned = [clean_mention(mention) for mention in batch]
    if not following:
        if batch:
            check()
            yield batch, cleaned, prepare(cleaned)
        return
    # One worker, so at most one `prepare` runs; leaving the block (an error, or a caller that stops early and closes
    # the generator) waits for that one and leaves no thread behind.
    with ThreadPoolExecutor(1, thread_name_prefix="pearl-qdrant-encode") as thread:
        prepared: Future[T] | None = thread.submit(copy_context().run, prepare, cleaned)
        while prepared is not None:
            check()
            current = batch, cleaned, prepared
            # The next batch starts before the caller gets this one: it is encoded while the caller searches.
            batch, cleaned, prepared = following, [clean_mention(mention) for mention in following], None
            if batch:
                prepared = thread.submit(copy_context().run, prepare, cleaned)
                following = take(mentions, n)
            # An error of the worker is raised here, after the batches before it were yielded.
            yield current[0], current[1], current[2].result()


def _parts(rows: Sequence[S]) -> list[Sequence[S]]:
    """Slices of what is searched together."""
    return [rows[start : start + SEARCH_BATCH] for start in range(0, len(rows), SEARCH_BATCH)]


def of_own_name(scored: ScoredMention) -> ScoredMention:
    """A mention without the candidates that its answer does not need: where it is a name, those of another name."""
    if scored.certainty == 1:
        return scored
    if scored.rule == "entity id":
        return replace(scored, found=scored.found[:1])
    return replace(scored, found=[entity for entity in scored.found if entity.is_namesake])


def _first_rows(texts: Sequence[str]) -> dict[str, int]:
    """The row of the first occurrence of each string, in order."""
    first: dict[str, int] = {}
    for row, text in enumerate(texts):
        first.setdefault(text, row)
    return first


def _shifted(exclude: Exclude, start: int, number: int, point: NamePoint) -> bool:
    """`exclude` for a slice that starts at mention `start`."""
    return exclude(start + number, point)
