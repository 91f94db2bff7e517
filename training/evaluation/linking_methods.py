"""The linker as a method of the evaluation, what it is compared with, and the bases that both have loaded.

Alternatives of the linking tasks rank the entities of a base by their best name, without what the query excludes: exact
lookup, rapidfuzz and character TF-IDF, which compare each mention with every name. Those of everyday mentions, what
users write in thirty lines instead of a linker, link or answer NIL:

    exact             the folded mention is a name of exactly one entity; else NIL
    exact+WRatio      the same; other mentions are linked to the first name of the highest score of rapidfuzz
    exact+ratio       the same with rapidfuzz's plain ratio, which is the edit distance
    tfidf             the name of the highest cosine of character n-grams (scikit-learn)

A name of several entities is NIL. Each half of the mentions is answered with the cutoff that gives the other half the
most right minus wrong answers.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.linking.calibration.metrics import HeldOut, Samples, collect, score_held_out
from pearl_qdrant.linking.editing import build_collection
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.linking.mention_kinds import KINDS, MadeMention, NamedEntity, NameOwners, make_mentions
from pearl_qdrant.linking.mentions import clean_mention
from pearl_qdrant.linking.options import LinkOptions
from pearl_qdrant.linking.ranking.model import Calibration, ScoredMention
from pearl_qdrant.linking.ranking.scoring import decide
from pearl_qdrant.settings import DEFAULT_LIMIT
from pearl_qdrant.store.open import open_store
from pearl_qdrant.store.protocol import Collection, Store
from pearl_qdrant.store.schema import NamePoint
from training.evaluation.linking_sets import DEPTH, Base, LinkingSet, MentionQuery, Ranking, rank_entities
from training.evaluation.methods import Need

ALL_SIZES: frozenset[Need] = frozenset({"linking", "large_linking"})
EVERYDAY: frozenset[Need] = frozenset({"everyday"})

TIMED = 1000
"""Mentions on which the linker is timed."""
_MAX_OPEN = 24
_MORE_NAMES = 3
"""Names fetched for each wanted entity, since an entity may have several."""
_ROWS = 32
"""Mentions that are compared with all names at once: 55 MB of scores for 433 thousand names."""
_NAMES = 4 * DEPTH
"""Number of best names that are grouped by entity."""
_READ = 50
"""Best names that are read for a mention, since some may be excluded."""


class LoadedBases:
    """Collections of bases in a temporary folder, one for each base and encoder; a context manager.

    Recently used ones stay open: opening takes longer than linking a few hundred mentions. `progress` is called with a
    line when a base is loaded.
    """

    def __init__(self, *, progress: Callable[[str], None] = lambda line: None) -> None:
        self._folder = TemporaryDirectory(prefix="pearl-qdrant-")
        self.store: Store = open_store(self._folder.name)
        self._progress = progress
        self._open: dict[tuple[str, str], tuple[Base, Collection]] = {}

    def __enter__(self) -> LoadedBases:
        return self

    def __exit__(self, *error: object) -> None:
        self.store.close()
        self._folder.cleanup()

    def collection(self, base: Base, encoder: Encoder) -> Collection:
        """The collection of a base, made if it does not exist; open until enough others have been used."""
        key = base.name, encoder.info.weights_hash
        known = self._open.pop(key, None)
        if known is None or known[0] is not base:
            if known is not None:
                known[1].close()
            while len(self._open) >= _MAX_OPEN:
                self._open.pop(next(iter(self._open)))[1].close()
            known = base, self._open_or_make(base, encoder)
        self._open[key] = known
        return known[1]

    def _open_or_make(self, base: Base, encoder: Encoder) -> Collection:
        digest = hashlib.sha256(encoder.info.weights_hash.encode())
        for entity in base.entities:
            fields = (entity.entity_id, entity.canonical_name, entity.aliases, entity.kb_types, entity.types)
            digest.update(repr(fields).encode())
        name = f"{re.sub('[^A-Za-z0-9_.-]', '-', base.name)}-{digest.hexdigest()[:12]}"
        if name in self.store.collections():
            return self.store.open(name)
        self._progress(f"loading {base.name}, {len(base.entities):,} entities, with {encoder.info.name}")
        return build_collection(self.store, name, encoder, base.entities)


class Linker:
    """The linker, with as many candidates as `link` scores."""

    supports = ALL_SIZES

    def __init__(self, encoder: Encoder, bases: LoadedBases, *, name: str | None = None) -> None:
        self.name = name or encoder.info.name
        self.calibration = Calibration()
        self._encoder, self._bases = encoder, bases
        self._last: tuple[LinkingSet, tuple[list[Ranking], Samples, Samples]] | None = None

    def rank(self, one: LinkingSet) -> list[Ranking]:
        return self.output(one)[0]

    def output(self, one: LinkingSet) -> tuple[list[Ranking], Samples, Samples]:
        """Rankings for the mentions of a set, their samples, and those of their NIL twins; the last set is cached."""
        if self._last is None or self._last[0] is not one:
            scored = list(self._score_mentions([*one.queries, *one.nil_queries], one, DEFAULT_LIMIT))
            n = len(one.queries)
            samples = collect(scored[:n], [query.gold for query in one.queries])
            nil_samples = collect(scored[n:], [query.gold for query in one.nil_queries])
            self._last = one, ([_ranking(answer) for answer in scored[:n]], samples, nil_samples)
        return self._last[1]

    def recall(self, one: LinkingSet) -> float:
        """Share of the mentions whose entity is among the first 64 candidates."""
        found = [
            any(entity.point.entity_id in query.gold for entity in answer.found[:DEPTH])
            for query, answer in zip(one.queries, self._score_mentions(one.queries, one, DEPTH), strict=True)
        ]
        return sum(found) / len(found)

    def milliseconds(self, one: LinkingSet) -> float:
        """Wall clock a mention of `link_batch` on the first mentions of the set, without exclusions."""
        collection = self._bases.collection(one.base, self._encoder)
        linker = EntityLinker(self._bases.store, [collection], self._encoder)
        linker.link(one.queries[0].mention)
        return _time_batch(linker, [query.mention for query in one.queries[:TIMED]])

    def _score_mentions(self, queries: Sequence[MentionQuery], one: LinkingSet, limit: int) -> Iterator[ScoredMention]:
        collection = self._bases.collection(one.base, self._encoder)
        return score_held_out(self._bases.store, collection, self._encoder, map(_held_out, queries), limit=limit)


class Dense:
    """Ranks entities by their nearest vector."""

    supports = ALL_SIZES

    def __init__(self, encoder: Encoder, bases: LoadedBases, *, name: str) -> None:
        self.name, self._encoder, self._bases = name, encoder, bases

    def rank(self, one: LinkingSet) -> list[Ranking]:
        vectors = self._encoder.encode([clean_mention(query.mention) for query in one.queries]).vectors
        rankings = []
        collection = self._bases.collection(one.base, self._encoder)
        for query, vector in zip(one.queries, vectors, strict=True):
            found: dict[str, float] = {}
            for scored in collection.search(vector[None], limit=_MORE_NAMES * DEPTH)[0]:
                if scored.score is not None and not query.excludes(scored.point.entity_id, scored.point.name):
                    found.setdefault(scored.point.entity_id, scored.score)
            rankings.append(rank_entities(list(found.items())))
        return rankings


def _held_out(query: MentionQuery) -> HeldOut:
    def excludes(point: NamePoint) -> bool:
        return query.excludes(point.entity_id, point.name)

    return HeldOut(query.mention, excludes if query.excluded or query.excluded_string else None)


def _ranking(scored: ScoredMention) -> Ranking:
    n_tied = sum(entity.tie for entity in scored.found)
    return Ranking(tuple(entity.point.entity_id for entity in scored.found), max(n_tied, min(1, len(scored.found))))


MAX_COMPARISONS = 100_000_000
"""Mentions times names, since rapidfuzz compares each mention with every name: 200 mentions of each kind for 30,000
names, which takes it two minutes."""

FEWEST_OF_KIND = 20
"""At least so many mentions of each kind, however large the base is."""


def made_mentions(base: Base, n_mentions: int) -> tuple[MadeMention, ...]:
    """Make mentions of every kind from a base. `n_mentions`: at most this many, equally many of each kind; fewer for a
    large base (`MAX_COMPARISONS`).
    """
    entities = [NamedEntity(one.entity_id, tuple(one.names()), one.types) for one in base.entities]
    owners = NameOwners((one.entity_id, name) for one in entities for name in one.names)
    affordable = max(MAX_COMPARISONS // max(1, len(owners)), FEWEST_OF_KIND * len(KINDS))
    per_kind = max(1, min(n_mentions, affordable) // len(KINDS))
    return tuple(make_mentions(entities, owners, per_kind=per_kind, seed=0))


class EverydayLinker:
    """The linker at its defaults, without calibration."""

    supports = EVERYDAY

    def __init__(self, encoder: Encoder, bases: LoadedBases) -> None:
        self.name, self._encoder, self._bases = encoder.info.name, encoder, bases

    def answer(self, mentions: Sequence[MadeMention], base: Base) -> Answers:
        """Link mentions; the time is that of `link_batch` on the first mentions, without exclusions."""
        linker = EntityLinker(self._bases.store, [self._bases.collection(base, self._encoder)], self._encoder)
        options, threshold = LinkOptions(), linker.calibration.threshold

        def exclude(number: int, point: NamePoint) -> bool:
            return mentions[number].excludes(point.entity_id, point.name)

        scored = linker.score_batch([one.mention for one in mentions], options, exclude=exclude)
        links = [decide(one, linker.calibration, options.most_candidates, threshold, options.on_tie) for one in scored]
        timed = [one.mention for one in mentions[:: max(1, len(mentions) // TIMED)]]
        return Answers(tuple(link.entity_id for link in links), _time_batch(linker, timed))


def _time_batch(linker: EntityLinker, timed: Sequence[str]) -> float:
    """Wall clock a mention of `link_batch`, in milliseconds."""
    start = time.perf_counter()
    deque(linker.link_batch(timed), maxlen=0)
    return _milliseconds(start, timed)


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers of a method."""

    entity_ids: tuple[str | None, ...]  # the entity of each mention; None for NIL
    milliseconds: float  # wall clock a mention, without preparing the base
    # the least score of a link in each half of the mentions; none if the method has no cutoff
    cutoffs: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class _Best:
    """The best name of a mention: its score, and its entity if it has only one."""

    score: float = -np.inf
    entity_id: str | None = None


class Names:
    """The names of a base: distinct strings with their entities, and a table of folded names."""

    def __init__(self, base: Base) -> None:
        owners: dict[str, list[str]] = {}
        self._folded: dict[str, list[tuple[str, str]]] = {}
        for entity in base.entities:
            for name in entity.names():
                owners.setdefault(name, []).append(entity.entity_id)
                self._folded.setdefault(fold_name(name) or name, []).append((entity.entity_id, name))
        self.texts = list(owners)
        self.owners = list(owners.values())

    def exact(self, mention: MadeMention | MentionQuery) -> set[str]:
        """Entities with a name that equals the mention after folding."""
        found = self._folded.get(fold_name(mention.mention) or mention.mention, ())
        return {entity_id for entity_id, name in found if not mention.excludes(entity_id, name)}

    def best(self, scored: Iterator[tuple[int, float]], mention: MadeMention) -> _Best | None:
        """The first name, of names and scores in order, that is not excluded; None if all are."""
        for row, score in scored:
            name = self.texts[row]
            if left := [one for one in self.owners[row] if not mention.excludes(one, name)]:
                return _Best(score, left[0] if len(left) == 1 else None)
        return None


class ExactNames:
    """Exact lookup of names after folding of case, accents, punctuation and numbers."""

    name = "exact"
    supports = EVERYDAY | ALL_SIZES

    def rank(self, one: LinkingSet) -> list[Ranking]:
        """All entities that have the name, tied."""
        names = Names(one.base)
        found = (sorted(names.exact(query)) for query in one.queries)
        return [Ranking(tuple(ids), len(ids)) for ids in found]

    def answer(self, mentions: Sequence[MadeMention], base: Base) -> Answers:
        """Link the mentions that are a name of exactly one entity."""
        names = Names(base)
        start = time.perf_counter()
        found = [names.exact(one) for one in mentions]
        milliseconds = _milliseconds(start, mentions)
        return Answers(tuple(_only(ids) for ids in found), milliseconds)


class ExactThenFuzzy:
    """Exact lookup of folded names, then the most similar name by a scorer of `rapidfuzz.fuzz`."""

    supports = EVERYDAY

    def __init__(self, scorer: Literal["WRatio", "ratio"]) -> None:
        self.name = f"exact+{scorer}"
        self._scorer = scorer

    def answer(self, mentions: Sequence[MadeMention], base: Base) -> Answers:
        """Link mentions; a score is in [0, 100]."""
        from rapidfuzz import fuzz, process, utils

        names, scorer = Names(base), getattr(fuzz, self._scorer)
        processed = [utils.default_process(name) for name in names.texts]

        def best_of(mention: MadeMention) -> _Best:
            text = utils.default_process(mention.mention)
            first = process.extractOne(text, processed, scorer=scorer)
            found = first and names.best(iter([(first[2], float(first[1]))]), mention)
            if first and found is None:  # the best name is excluded: read more of them
                more = process.extract(text, processed, scorer=scorer, limit=_READ)
                found = names.best(((row, float(score)) for _, score, row in more), mention)
            return found or _Best()

        start = time.perf_counter()
        exact = [names.exact(one) for one in mentions]
        best = [_Best() if ids else best_of(one) for one, ids in zip(mentions, exact, strict=True)]
        milliseconds = _milliseconds(start, mentions)
        linked, cutoffs = cut_off(best, mentions)
        ids = tuple(_only(known) if known else one for known, one in zip(exact, linked, strict=True))
        return Answers(ids, milliseconds, cutoffs)


class Tfidf:
    """The most similar name by TF-IDF of character 3- to 5-grams within words."""

    name = "tfidf"
    supports = EVERYDAY

    def answer(self, mentions: Sequence[MadeMention], base: Base) -> Answers:
        """Link mentions; a score is a cosine."""
        if not mentions:  # which scikit-learn refuses
            return Answers((), 0.0)
        names = Names(base)
        rows, matrix = _tfidf([one.mention for one in mentions], names.texts, longest=5)
        start = time.perf_counter()
        scores = products(rows, matrix)
        best = [names.best(_in_order(row), one) or _Best() for one, row in zip(mentions, scores, strict=True)]
        milliseconds = _milliseconds(start, mentions)
        linked, cutoffs = cut_off(best, mentions)
        return Answers(linked, milliseconds, cutoffs)


def everyday_peers() -> list[ExactNames | ExactThenFuzzy | Tfidf]:
    """What everyday mentions are answered by instead, in the order of the report."""
    return [ExactNames(), ExactThenFuzzy("WRatio"), ExactThenFuzzy("ratio"), Tfidf()]


def cut_off(best: Sequence[_Best], mentions: Sequence[MadeMention]) -> tuple[tuple[str | None, ...], tuple[float, ...]]:
    """Links of the best names whose score reaches the cutoff that is chosen on the other half of the mentions. Returns
    the entity of each mention, None for NIL; and the cutoff of the two halves, infinite if nothing is linked.
    """
    halves = [range(half, len(mentions), 2) for half in (0, 1)]
    cutoffs = [best_cutoff([best[i] for i in half], [mentions[i] for i in half]) for half in reversed(halves)]
    linked = tuple(one.entity_id if one.score >= cutoffs[i % 2] else None for i, one in enumerate(best))
    return linked, tuple(cutoffs)


def best_cutoff(best: Sequence[_Best], mentions: Sequence[MadeMention]) -> float:
    """The least score of a link that gives the most right minus wrong answers; NIL counts as an answer where it is one.

    Of equally good cutoffs the highest; infinite if no link is better than some.
    """
    gains: dict[float, int] = {}
    for one, mention in zip(best, mentions, strict=True):
        if one.entity_id is not None:
            # A link where NIL is right loses a right answer and gives a wrong one.
            gain = 1 if one.entity_id == mention.entity_id else -1 if mention.entity_id is not None else -2
            gains[one.score] = gains.get(one.score, 0) + gain
    chosen, most, total = float("inf"), 0, 0
    for score in sorted(gains, reverse=True):
        total += gains[score]
        if total > most:
            chosen, most = score, total
    return chosen


def _in_order(scores: Any) -> Iterator[tuple[int, float]]:
    """The best rows with their scores, best first, and in the order of the base where scores are equal."""
    n = min(_READ, len(scores))
    least = np.partition(scores, len(scores) - n)[len(scores) - n]
    rows = np.flatnonzero((scores >= least) & (scores > 0))
    for row in rows[np.argsort(-scores[rows], kind="stable")].tolist():
        yield row, float(scores[row])


def _only(entity_ids: set[str]) -> str | None:
    return next(iter(entity_ids)) if len(entity_ids) == 1 else None


def _milliseconds(start: float, mentions: Sequence[object]) -> float:
    return 1000 * (time.perf_counter() - start) / max(1, len(mentions))


class ScoredNames:
    """A string similarity that scores every name of a base: of mentions and the base's distinct names it gives, for
    each mention, the scores of all names, (n_names,); 0 or less means no candidate.
    """

    def __init__(
        self, name: str, scores: Callable[[Sequence[str], Sequence[str]], Iterator[Any]], supports: frozenset[Need]
    ) -> None:
        self.name, self.supports, self._scores = name, supports, scores

    def rank(self, one: LinkingSet) -> list[Ranking]:
        names = Names(one.base)
        rows = self._scores([query.mention for query in one.queries], names.texts)
        return [_rank_by_name(query, row, names) for query, row in zip(one.queries, rows, strict=True)]


def _rank_by_name(query: MentionQuery, scores: Any, names: Names) -> Ranking:
    """Group the best names by entity."""
    n = min(_NAMES, len(scores))
    best = np.argpartition(-scores, n - 1)[:n]
    found: dict[str, float] = {}
    for i in best[np.argsort(-scores[best], kind="stable")].tolist():
        if scores[i] <= 0 or len(found) >= DEPTH:
            break
        for key in names.owners[i]:
            if not query.excludes(key, names.texts[i]):
                found.setdefault(key, float(scores[i]))
    return rank_entities(list(found.items()))


def peers() -> list[ExactNames | ScoredNames]:
    """All alternatives, in the order of the report."""
    return [
        ExactNames(),
        ScoredNames("rapidfuzz", _fuzzy_scores, frozenset({"linking"})),
        # scispaCy's candidate generation, but exact.
        ScoredNames("tfidf", lambda mentions, names: products(*_tfidf(mentions, names, longest=3)), ALL_SIZES),
    ]


def _fuzzy_scores(mentions: Sequence[str], names: Sequence[str]) -> Iterator[Any]:
    """WRatio of rapidfuzz on case-folded strings."""
    from rapidfuzz import fuzz, process, utils

    folded = [utils.default_process(name) for name in names]
    for start in range(0, len(mentions), _ROWS):
        rows = [utils.default_process(mention) for mention in mentions[start : start + _ROWS]]
        yield from process.cdist(rows, folded, scorer=fuzz.WRatio, dtype=np.float32)


def _tfidf(mentions: Sequence[str], names: Sequence[str], *, longest: int) -> tuple[Any, Any]:
    """Sparse TF-IDF rows of mentions and of names, of character n-grams of 3 and more within words."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, longest), dtype=np.float32)
    # scikit-learn refuses input without any n-gram, such as blank names alone.
    vectorizer.fit([*names, "blank"])
    return vectorizer.transform(mentions), vectorizer.transform(names)


def products(mentions: Any, names: Any) -> Iterator[Any]:
    """Dot products of sparse rows, for `_ROWS` mentions at a time."""
    columns = names.T.tocsr()
    for start in range(0, mentions.shape[0], _ROWS):
        yield from (mentions[start : start + _ROWS] @ columns).toarray()
