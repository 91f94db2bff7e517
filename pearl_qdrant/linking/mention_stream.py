"""Scores any number of mentions, in order and in batches: encode, search, score, rerank.

A batch is encoded as a whole (up to 1,024 mentions, 512 on a server) and searched in slices of 128, so that memory
stays small while the encoder sees enough names to sort by length. On a server the next batch is encoded in a second
thread, and the slices of a batch are searched at the same time, because a search mostly waits.

Scored mentions are remembered, so that one that comes again is not searched again. A mention is kept as bytes, so that
the garbage collector, for which an event loop waits, has nothing to visit. 10 candidates take 8 KB, 30 take 22. Packing
and unpacking take 0.03 to 0.15 ms, a search 4 to 10.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from operator import is_
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np

from pearl_qdrant.encoder.judge import shipped_judge
from pearl_qdrant.encoder.protocol import Encoded, Encoder
from pearl_qdrant.errors import UnknownTypeError
from pearl_qdrant.linking.candidates import Exclude, find_by_name, find_candidates, n_by_key
from pearl_qdrant.linking.collection_statistics import CollectionStatistics
from pearl_qdrant.linking.mentions import clean_mention, find_by_ids, looks_like_id, take
from pearl_qdrant.linking.options import LinkOptions
from pearl_qdrant.linking.plain_mentions import bare_mention, plain_mention
from pearl_qdrant.linking.ranking.model import LinkQuery, RankingModel, ScoredMention, Scorer
from pearl_qdrant.linking.ranking.reranker import Reranker, rerank
from pearl_qdrant.linking.ranking.scoring import put_first
from pearl_qdrant.linking.ranking.type_features import has_type
from pearl_qdrant.linking.slips import find_slips, look_up_alone, put_slip_first, settled
from pearl_qdrant.phrase_types import ENTITY_TYPES
from pearl_qdrant.pieces import pause, pausing
from pearl_qdrant.settings import DEFAULT_LIMIT
from pearl_qdrant.store.schema import NamePoint

BATCH = 1024  # mentions encoded together; fewer where they are long
REMOTE_BATCH = 512  # the same for collections on a server, where encoding and searching overlap
SEARCH_BATCH = 128  # mentions searched and scored together; their candidates take a few MB
REMOTE_SEARCHES = 4  # slices of a batch that are searched at the same time on a server


S = TypeVar("S")
T = TypeVar("T")

_LEAST_SLOPE = 0.7
"""Slope of a calibration from which the bonus of a name leaves other candidates less than a millionth."""


CACHE_BYTES = 32 << 20  # packed mentions that are kept: about 4,000 with 10 candidates each, 1,500 with 30
ENTRY_BYTES = 250  # what an entry takes beside its key and its mention: objects, and the dictionary


class MentionCache:
    """Packed mentions, the last ones used, up to a number of bytes. Safe to use from several threads. They are valid
    for one state of the collections: those of another state are forgotten with the first use of the new one.
    """

    def __init__(self, max_bytes: int = CACHE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._packed: OrderedDict[str, bytes] = OrderedDict()
        self._state: Sequence[object] = ()
        self._n_bytes = 0

    def get(self, texts: Iterable[str], link_query: LinkQuery, state: Sequence[object]) -> dict[str, bytes]:
        """The packed mentions that are known, by their cleaned text, in the state that the collections have now."""
        query = repr(link_query)
        with self._lock:
            if not is_same_state(state, self._state):
                self._packed.clear()
                self._state, self._n_bytes = tuple(state), 0
            found = {text: packed for text in texts if (packed := self._packed.get(query + text)) is not None}
            for text in found:
                self._packed.move_to_end(query + text)
        return found

    def put(self, text: str, link_query: LinkQuery, packed: bytes, state: Sequence[object]) -> None:
        """Keep a packed mention, unless the collections have changed since they were searched in this state."""
        key = repr(link_query) + text
        with self._lock:
            if not is_same_state(state, self._state) or key in self._packed:
                return
            self._packed[key] = packed
            self._n_bytes += len(packed) + len(key) + ENTRY_BYTES
            while self._n_bytes > self._max_bytes:
                oldest, dropped = self._packed.popitem(last=False)
                self._n_bytes -= len(dropped) + len(oldest) + ENTRY_BYTES

    def clear(self) -> None:
        """Forget all mentions."""
        with self._lock:
            self._packed.clear()
            self._n_bytes = 0


def is_same_state(state: Sequence[object], other: Sequence[object]) -> bool:
    """Whether two states have the same objects as items."""
    return len(state) == len(other) and all(map(is_, state, other))


_pack = msgspec.msgpack.Encoder(enc_hook=np.ndarray.tobytes).encode
_unpack = msgspec.msgpack.Decoder(ScoredMention, dec_hook=lambda kind, packed: np.frombuffer(packed).copy()).decode


class _Prepared(NamedTuple):
    """What is known of the mentions of a batch before it is searched."""

    state: tuple[object, ...] | None  # of the collections, as `CollectionStatistics.state` gives it
    known: dict[str, bytes]  # packed answers of earlier batches, by text
    own: dict[str, ScoredMention]  # answers for names of the base, by text
    keyless: set[str]  # texts of which no name of the base has a key
    slips: dict[str, NamePoint]  # names that texts to be searched are slips of, as no other name is near
    texts: Sequence[str]  # what is searched, in order: the other distinct texts; all texts if names are excluded.
    encoded: Encoded  # vectors and types of these


@dataclass(frozen=True, slots=True)
class MentionStream:
    """The parts that score mentions. Safe to use from several threads."""

    encoder: Encoder  # the model that encoded the collections
    statistics: CollectionStatistics  # the collections and their statistics
    model: RankingModel  # coefficients of the ranking
    baseline: float  # mean cosine of unrelated names with this encoder
    reranker: Reranker | None  # scores the best candidates a second time, or None
    cache: MentionCache = field(default_factory=MentionCache)  # what was found for mentions that may come again

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

        Each distinct mention of a batch is searched once, unless names are excluded by the number of the mention. What
        is no text finds nothing. With `names_first`, what is a name of the base is looked up, and has no other
        candidates. `check` is called before each search, and raises to stop the stream, as when the linker was closed.
        """
        done = 0
        prepare = partial(self._prepare, link_query, are_distinct=exclude is None)
        clean = partial(self._clean, link_query)
        for batch, cleaned, prepared in self._batches(clean, prepare, mentions, check):
            start = 0
            while start < len(batch):
                if start:  # an edit between two slices changes the answers after it
                    prepared = prepare(cleaned[start:])
                excluded = None if exclude is None else partial(_shifted, exclude, done + start)
                search = partial(self._search, prepared, link_query, excluded, check)
                searched = chain.from_iterable(self._in_order(search, _parts(range(len(prepared.texts)))))
                for scored in self._answers(cleaned[start:], prepared, searched, link_query):
                    mention, text = batch[start], cleaned[start]
                    start += 1
                    yield self._reranked(scored, text, mention)
            done += len(batch)

    def score_for_links(
        self,
        mentions: Iterator[str],
        link_query: LinkQuery,
        check: Callable[[], None],
        *,
        slope: float,
        has_others: bool = False,
        has_slips: bool = False,
    ) -> Iterator[ScoredMention]:
        """`score` with the entities of that name alone where a mention is a name, or with `has_slips` one but
        for a slip, without encoding it. With a low slope of the calibration, other candidates take a part of the
        probability of a name. With `has_others` all have their other candidates, too.
        """
        is_steep = slope >= _LEAST_SLOPE
        query = replace(link_query, names_first=is_steep and not has_others, has_slips=is_steep and has_slips)
        scored = self.score(mentions, query, None, check)
        return scored if has_others else map(of_own_name, scored)

    def _batches(
        self, clean: Clean, prepare: Callable[[Sequence[str]], T], mentions: Iterator[str], check: Callable[[], None]
    ) -> Iterator[tuple[list[str], list[str], T]]:
        """Yield batches of mentions: as given, cleaned, and prepared."""
        if self.statistics.is_remote:
            # While a search waits for the server, the processor is free to encode the next batch.
            yield from prepare_ahead(prepare, mentions, REMOTE_BATCH, check, clean=clean)
            return
        # An embedded search needs the interpreter lock itself: encoding in parallel made both slower
        # (docs/experiments/linking-speed.md). So the batches follow one another.
        while batch := take(mentions, BATCH):
            check()
            cleaned = clean(batch)
            yield batch, cleaned, prepare(cleaned)

    def _clean(self, link_query: LinkQuery, batch: Sequence[str]) -> list[str]:
        """Cleaned mentions; of what is no name of the base as it stands the plain one (`plain_mentions`)."""
        cleaned = clean_all(batch)
        plain, bare = dict[str, str](), dict[str, str]()
        for text in dict.fromkeys(cleaned):
            one = plain_mention(text)
            if one != text:
                plain[text] = one
            if (rest := bare_mention(one)) != one:
                bare[text] = rest
        asked = list(dict.fromkeys((*plain, *bare)))
        if not asked:
            return cleaned
        names, _ = self._find_own([*asked, *bare.values()], replace(link_query, names_first=True))
        collections = [target.collection for target in self.statistics.targets().all]
        kept = {*names, *find_by_ids(collections, list(filter(looks_like_id, asked)), link_query.filter)}
        plain |= {text: one for text, one in bare.items() if one in names}
        return [text if text in kept else plain.get(text, text) for text in cleaned]

    def _prepare(self, link_query: LinkQuery, cleaned: Sequence[str], *, are_distinct: bool) -> _Prepared:
        """Look up what is known and what is a name, and encode the rest."""
        if not are_distinct:
            return _Prepared(None, {}, {}, set(), {}, cleaned, self.encoder.encode(cleaned))
        state = self.statistics.state()
        distinct = dict.fromkeys(cleaned)
        known = {} if state is None else self.cache.get(distinct, link_query, state)
        new = [text for text in distinct if text not in known]
        is_open = state is not None or self.statistics.is_remote  # else a load is going on
        own, keyless, slips = self._look_up(new, link_query) if is_open else ({}, set(), {})
        # Where other candidates are wanted, too, all are searched.
        own = own | settled(self.statistics.targets().all, slips) if link_query.names_first else {}
        others = [text for text in new if text not in own]
        return _Prepared(state, known, own, keyless, slips, others, self.encoder.encode(others))

    def _answers(
        self, cleaned: Sequence[str], prepared: _Prepared, searched: Iterator[ScoredMention], link_query: LinkQuery
    ) -> Iterator[ScoredMention]:
        """The answers of a batch in order, up to a slice before which the collections were edited."""
        state, packed, own = prepared.state, prepared.known, prepared.own
        times = Counter(cleaned) if len(prepared.texts) < len(cleaned) else {}
        for i, text in enumerate(pausing(cleaned)):
            is_next_slice = i > 0 and i % SEARCH_BATCH == 0 and state is not None
            if is_next_slice and not is_same_state(self.statistics.state() or (), state or ()):
                return
            if text in packed:
                yield _unpack(packed[text])  # all of it is new, so that a caller may change it
                continue
            scored = own[text] if text in own else next(searched)
            # The first answer is given as it was found; others must not share what a caller may change.
            if state is not None or times.get(text, 1) > 1:
                packed[text] = _pack(scored)
            if state is not None:
                self.cache.put(text, link_query, packed[text], state)
            yield scored

    def _in_order(self, search: Callable[[Sequence[S]], T], parts: Sequence[Sequence[S]]) -> Iterator[T]:
        """What a search returns for each part, in order; on a server several wait for answers at the same time."""
        if not self.statistics.is_remote or len(parts) < 2:
            yield from map(search, parts)
            return
        # Leaving the block, also after an error, waits for the searches that were sent, and cancels the others.
        with ThreadPoolExecutor(REMOTE_SEARCHES, thread_name_prefix="pearl-qdrant-link") as threads:
            contexts = [copy_context() for _ in parts]  # what the caller's thread knows, such as its deadline
            yield from threads.map(lambda context, part: context.run(search, part), contexts, parts)

    def _look_up(
        self, texts: Sequence[str], link_query: LinkQuery
    ) -> tuple[dict[str, ScoredMention], set[str], dict[str, NamePoint]]:
        """Of some texts those that are names of the base, those without any key (`find_by_name`), and of these the
        slips of one name alone, with that name (`slips`).
        """
        if not (link_query.names_first or link_query.has_slips):
            return {}, set(), {}
        targets, languages = self.statistics.targets().all, link_query.languages
        if self.statistics.is_remote and link_query.has_slips and len(texts) == 1 and not link_query.filter:
            by_key, point = look_up_alone(targets, texts[0], n_by_key=n_by_key(link_query), languages=languages)
            own, keyless = self._find_own(texts, link_query, [[names] for names in by_key])
            slips = {} if point is None else {texts[0]: point}
        else:
            own, keyless = self._find_own(texts, link_query)
            parts = _parts([text for text in texts if text in keyless]) if link_query.has_slips else []
            found = self._in_order(lambda part: find_slips(targets, part, languages), parts)
            slips = {text: point for of_part in found for text, point in of_part.items()}
        wanted = link_query.types
        return own, keyless, {text: point for text, point in slips.items() if not wanted or has_type(point, wanted)}

    def _find_own(
        self, texts: Sequence[str], link_query: LinkQuery, hits: Sequence[Sequence[Sequence[NamePoint]]] | None = None
    ) -> tuple[dict[str, ScoredMention], set[str]]:
        """Those of some cleaned mentions that are names of the base, and those without any key (`find_by_name`)."""
        targets = self.statistics.targets()
        scorer = Scorer(self.model, self.baseline, targets.log_size)  # no judge: these are names
        look_up = partial(find_by_name, targets.all, link_query=link_query, scorer=scorer, hits=hits)
        found = list(self._in_order(look_up, _parts(texts)))
        own = {text: scored for of_part, _ in found for text, scored in of_part.items()}
        return own, {text for _, keyless in found for text in keyless}

    def _search(
        self,
        prepared: _Prepared,
        link_query: LinkQuery,
        exclude: Exclude | None,
        check: Callable[[], None],
        rows: Sequence[int],
    ) -> list[ScoredMention]:
        """Candidates of some texts of a batch, at most `SEARCH_BATCH`, by their rows; ids are looked up, too."""
        check()
        pause()
        texts = [prepared.texts[row] for row in rows]
        of_part = None if exclude is None else partial(_shifted, exclude, rows[0])  # all rows of a part, in order
        targets = self.statistics.targets()
        scorer = Scorer(self.model, self.baseline, targets.log_size, shipped_judge)
        encoded = prepared.encoded.take(rows)
        found = find_candidates(
            targets.all, texts, encoded, link_query, scorer, exclude=of_part, keyless=prepared.keyless
        )
        answers = self._by_id(found, texts, link_query, of_part)
        for i, text in enumerate(texts):
            if text in prepared.slips and answers[i].rule != "entity id":
                answers[i] = put_slip_first(found[i], prepared.slips[text])
        return answers

    def _reranked(self, scored: ScoredMention, text: str, mention: str) -> ScoredMention:
        """The answer for a mention as it was given; a reranker is asked each time."""
        reranked = scored if self.reranker is None else rerank(scored, self.reranker, text)
        return reranked if reranked.mention is mention else replace(reranked, mention=mention)

    def _by_id(
        self, found: Sequence[ScoredMention], texts: Sequence[str], link_query: LinkQuery, exclude: Exclude | None
    ) -> list[ScoredMention]:
        """The mentions of a slice; those that are ids, and not names, with the entity first whose id it is."""
        answers = list(found)
        rows = [i for i, text in enumerate(texts) if found[i].certainty == 1 and looks_like_id(text)]
        collections = [target.collection for target in self.statistics.targets().all] if rows else []
        points = find_by_ids(collections, list({texts[i] for i in rows}), link_query.filter)
        for i in rows:
            point = points.get(texts[i])
            if point is not None and not (exclude is not None and exclude(i, point)):
                answers[i] = put_first(found[i], point)
        return answers


Clean = Callable[[Sequence[str]], list[str]]


def clean_all(mentions: Sequence[str]) -> list[str]:
    """Mentions as `clean_mention` leaves them."""
    return [clean_mention(mention) for mention in mentions]


def prepare_ahead(
    prepare: Callable[[Sequence[str]], T],
    mentions: Iterator[str],
    n: int,
    check: Callable[[], None],
    *,
    clean: Clean = clean_all,
) -> Iterator[tuple[list[str], list[str], T]]:
    """Yield batches of at most `n` mentions (as given, cleaned, prepared), preparing one batch ahead in a thread.

    The mentions are read in the caller's thread, because an iterator such as a database cursor may be bound to it; at
    most two batches ahead. A single batch is prepared there too: a thread would only cost time. `check` is called
    before each batch is yielded, and raises to stop.
    """
    batch, following = take(mentions, n), take(mentions, n)
    cleaned = clean(batch)
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
            batch, cleaned, prepared = following, clean(following), None
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


def _shifted(exclude: Exclude, start: int, number: int, point: NamePoint) -> bool:
    """`exclude` for a slice that starts at mention `start`."""
    return exclude(start + number, point)
