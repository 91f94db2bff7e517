"""The linker as a method of the evaluation, what it is compared with, and the bases that both have loaded."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.linking.calibration.metrics import HeldOut, Samples, collect, score_held_out
from pearl_qdrant.linking.editing import build_collection
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.linking.mention_kinds import KINDS, MadeMention, NamedEntity, NameOwners, make_mentions
from pearl_qdrant.linking.mentions import clean_mention
from pearl_qdrant.linking.options import LinkOptions
from pearl_qdrant.linking.ranking.model import Calibration
from pearl_qdrant.linking.ranking.scored import ScoredMention
from pearl_qdrant.linking.ranking.scoring import decide
from pearl_qdrant.settings import DEFAULT_LIMIT
from pearl_qdrant.store.open import open_store
from pearl_qdrant.store.protocol import Collection, Store
from pearl_qdrant.store.schema import NamePoint
from training.evaluation.linking.peers import ALL_SIZES, EVERYDAY, Answers
from training.evaluation.linking.sets import DEPTH, Base, LinkingSet, MentionQuery, Ranking, rank_entities
from training.evaluation.methods import Method

_MAX_OPEN = 24


class LoadedBases:
    """Collections of bases, one for each base and encoder; a context manager.

    Recently used collections stay open: opening one takes longer than linking a few hundred mentions. `folder`: where
    collections are kept for later runs. None: a temporary folder. `progress`: called with a line when a base is loaded.
    """

    def __init__(self, folder: Path | None, *, progress: Callable[[str], None] = lambda line: None) -> None:
        self._temporary = TemporaryDirectory(prefix="pearl-qdrant-") if folder is None else None
        self.store: Store = open_store(self._temporary.name if self._temporary else str(folder))
        self._progress = progress
        self._open: dict[tuple[str, str], tuple[Base, Collection]] = {}

    def __enter__(self) -> LoadedBases:
        return self

    def __exit__(self, *error: object) -> None:
        self.store.close()
        if self._temporary is not None:
            self._temporary.cleanup()

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
            collection = self.store.open(name)
            if collection.manifest.state == "ready":
                return collection
            collection.close()
            self.store.delete(name)
        self._progress(f"loading {base.name}, {len(base.entities):,} entities, with {encoder.info.name}")
        return build_collection(self.store, name, encoder, base.entities)


TIMED = 1000
"""Mentions on which the linker is timed."""

_MORE_NAMES = 3
"""Names fetched for each wanted entity, since an entity may have several."""


class LinkingMethod(Method, Protocol):
    """A method that ranks the entities of a base for each mention."""

    def rank(self, one: LinkingSet) -> list[Ranking]:
        """Rank entities for each of `one.queries`."""
        ...


@dataclass(frozen=True, slots=True)
class LinkerOutput:
    """Results of the linker on a set of n queries."""

    rankings: list[Ranking]  # rankings for the queries that have an entity, n
    # samples, nil_samples: samples of the queries and of their NIL twins, n each
    samples: Samples
    nil_samples: Samples


class Linker:
    """The linker, with as many candidates as `link` scores."""

    def __init__(self, encoder: Encoder, bases: LoadedBases, *, name: str | None = None) -> None:
        self.name = name or encoder.info.name
        self.supports = ALL_SIZES
        self.calibration = Calibration()
        self._encoder = encoder
        self._bases = bases
        self._last: tuple[LinkingSet, LinkerOutput] | None = None

    def rank(self, one: LinkingSet) -> list[Ranking]:
        return self.output(one).rankings

    def output(self, one: LinkingSet) -> LinkerOutput:
        """Results for the mentions of a set and their NIL twins; those of the last set are cached."""
        if self._last is None or self._last[0] is not one:
            scored = list(self._score_mentions([*one.queries, *one.nil_queries], one, DEFAULT_LIMIT))
            n = len(one.queries)
            samples = collect(scored[:n], [query.gold for query in one.queries])
            nil_samples = collect(scored[n:], [query.gold for query in one.nil_queries])
            self._last = one, LinkerOutput([_ranking(answer) for answer in scored[:n]], samples, nil_samples)
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
        return _milliseconds(linker, [query.mention for query in one.queries[:TIMED]])

    def _score_mentions(self, queries: Sequence[MentionQuery], one: LinkingSet, limit: int) -> Iterator[ScoredMention]:
        collection = self._bases.collection(one.base, self._encoder)
        return score_held_out(self._bases.store, collection, self._encoder, map(_held_out, queries), limit=limit)


class Dense:
    """Ranks entities by their nearest vector."""

    def __init__(self, encoder: Encoder, bases: LoadedBases, *, name: str) -> None:
        self.name = name
        self.supports = ALL_SIZES
        self._encoder = encoder
        self._bases = bases

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


class EverydayMethod(Method, Protocol):
    """A method that links mentions to the entities of a base, or answers NIL."""

    def answer(self, mentions: Sequence[MadeMention], base: Base) -> Answers:
        """Link mentions, each without what it excludes."""
        ...


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

    def __init__(self, encoder: Encoder, bases: LoadedBases) -> None:
        self.name = encoder.info.name
        self.supports = EVERYDAY
        self._encoder = encoder
        self._bases = bases

    def answer(self, mentions: Sequence[MadeMention], base: Base) -> Answers:
        """Link mentions; the time is that of `link_batch` on the first mentions, without exclusions."""
        linker = EntityLinker(self._bases.store, [self._bases.collection(base, self._encoder)], self._encoder)
        options, threshold = LinkOptions(), linker.calibration.threshold

        def exclude(number: int, point: NamePoint) -> bool:
            return mentions[number].excludes(point.entity_id, point.name)

        scored = linker.score_batch([one.mention for one in mentions], options, exclude=exclude)
        links = [decide(one, linker.calibration, options.most_candidates, threshold, options.on_tie) for one in scored]
        timed = [one.mention for one in mentions[:: max(1, len(mentions) // TIMED)]]
        return Answers(tuple(link.entity_id for link in links), _milliseconds(linker, timed))


def _milliseconds(linker: EntityLinker, timed: Sequence[str]) -> float:
    """Wall clock a mention of `link_batch`."""
    start = time.perf_counter()
    for _ in linker.link_batch(timed):
        pass
    return 1000 * (time.perf_counter() - start) / max(1, len(timed))
