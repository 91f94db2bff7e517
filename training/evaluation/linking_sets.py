"""The sets of the linking tasks: a base, mentions of its entities, and what to exclude for each; and their rankings.

    canonical   the base has canonical names only
    left_out    the base has all names, but the mention's own string is excluded on its entity

Each mention has a NIL twin: its entity is excluded, with all entities that share a folded name with it. The SHA-1 of
the entity id divides entities into splits (`training.examples.example`); an option says which splits give mentions.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from pearl_qdrant.cells import split_list
from pearl_qdrant.errors import FormatError
from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.linking.calibration.metrics import Answers, Samples, measure
from pearl_qdrant.linking.ranking.model import Calibration
from pearl_qdrant.phrase_types import ENTITY_TYPES
from pearl_qdrant.records import Entity
from training.evaluation.data import Data
from training.evaluation.outcome import FloatArray
from training.examples.example import DEVELOPMENT_SPLITS, split_of
from training.options import EvaluationOptions

Protocol = Literal["canonical", "left_out"]

_EXACT = "EXACT"


@dataclass(frozen=True, slots=True)
class Base:
    """Entities with unique ids, under a name that is unique in a store."""

    name: str
    entities: tuple[Entity, ...]


@dataclass(frozen=True, slots=True)
class MentionQuery:
    """A mention to link."""

    mention: str  # the string
    gold: frozenset[str]  # ids of the correct entities; empty for NIL
    excluded: frozenset[str] = frozenset()  # ids of entities that are excluded from the base
    excluded_string: frozenset[str] = frozenset()  # ids of entities without the name that equals the mention

    def excludes(self, entity_id: str, name: str) -> bool:
        """Whether a name of an entity is excluded for this mention."""
        return entity_id in self.excluded or (entity_id in self.excluded_string and name == self.mention)


@dataclass(frozen=True, slots=True)
class LinkingSet:
    """Mentions against one base, and their NIL twins, in the same order."""

    base: Base
    queries: tuple[MentionQuery, ...]
    nil_queries: tuple[MentionQuery, ...]


def read_set(
    data: Data,
    base: str,  # pattern of the base's table; the first match is used
    *,
    table: str | None,  # aliases with entity ids. None: those of the base, only EXACT ones if it has scopes
    protocol: Protocol,  # which names the base keeps
    options: EvaluationOptions,
) -> LinkingSet:
    """Read a set. Raises FormatError if a table is broken, or no mention belongs to the splits."""
    path = data.paths(base)[0]
    entities = read_base(data, path)
    if table is not None:
        pairs = [(alias, key) for alias, key in data.rows(table, "alias", "id") if key in entities]
    else:
        pairs = list(_exact_aliases(data, path, entities))
    chosen_splits = options.splits or DEVELOPMENT_SPLITS
    pairs = [(alias, key) for alias, key in dict.fromkeys(pairs) if alias.strip() and split_of(key) in chosen_splits]
    if not pairs:
        splits = ", ".join(map(str, chosen_splits))
        raise FormatError(table or path, None, f"no alias of an entity of the base belongs to splits {splits}.")
    chosen = random.Random(0).sample(pairs, min(options.n_mentions, len(pairs)))
    has_aliases = protocol == "left_out"
    queries = [
        MentionQuery(alias, frozenset({key}), excluded_string=frozenset({key} if has_aliases else ()))
        for alias, key in chosen
    ]
    nil_queries = _nil_twins(queries, entities.values())
    kept = entities.values() if has_aliases else (replace(entity, aliases=()) for entity in entities.values())
    name = path.removesuffix(".tsv").replace("/", "-") + ("" if has_aliases else "-canonical")
    return LinkingSet(Base(name, tuple(kept)), tuple(queries), nil_queries)


def read_joins(data: Data) -> list[LinkingSet]:
    """Read the fuzzy joins of AutoFJ: right titles with a match are the mentions, left titles the base."""
    bases: dict[str, dict[str, Entity]] = {}
    for name, key, title in data.rows("autofj/left.tsv", "dataset", "id", "title"):
        bases.setdefault(name, {})[key] = Entity(key, title)
    gold: dict[tuple[str, str], set[str]] = {}
    for name, left, right in data.rows("autofj/gt.tsv", "dataset", "id_l", "id_r"):
        gold.setdefault((name, right), set()).add(left)
    mentions: dict[str, list[MentionQuery]] = {}
    for name, key, title in data.rows("autofj/right.tsv", "dataset", "id", "title"):
        if (name, key) in gold and name in bases:
            mentions.setdefault(name, []).append(MentionQuery(title, frozenset(gold[name, key])))
    if not mentions:
        raise FormatError("autofj/gt.tsv", None, "no right title has a match among the left ones.")
    return [
        LinkingSet(
            Base(f"autofj-{name}", tuple(bases[name].values())),
            tuple(queries),
            _nil_twins(queries, bases[name].values()),
        )
        for name, queries in sorted(mentions.items())
    ]


def read_base(data: Data, path: str) -> dict[str, Entity]:
    """Entities by id; rows with the same id are merged."""
    columns = _columns(data, path, ("id", "name", "aliases"), (("onto_type", "fine_type"), ("type",)))
    found: dict[str, Entity] = {}
    for key, name, cell, *types in data.rows(path, *columns):
        known = found.get(key)
        aliases = dict.fromkeys([name, *split_list(cell)])
        if known is not None:
            aliases = dict.fromkeys([*known.aliases, *aliases])
        canonical = name if known is None else known.canonical_name
        aliases.pop(canonical, None)
        coarse = tuple(kind for kind in types[:1] if kind in ENTITY_TYPES)
        native = tuple(kind for kind in types[-1].split("|") if kind) if types else ()
        found[key] = Entity(key, canonical, tuple(aliases), native, coarse)
    return found


def _columns(data: Data, path: str, needed: tuple[str, ...], optional: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """The needed columns, with the first group of optional columns that the table has."""
    for group in optional:
        try:
            data.rows(path, *group)
        except FormatError:
            continue
        return (*needed, *group)
    return needed


def _exact_aliases(data: Data, path: str, entities: dict[str, Entity]) -> Iterator[tuple[str, str]]:
    """Aliases with their entity id: those in scope EXACT, or all if the table has no scopes."""
    columns = _columns(data, path, ("id", "aliases"), (("alias_scopes",),))
    for key, cell, *rest in data.rows(path, *columns):
        aliases = split_list(cell)
        scopes = rest[0].split("|") if rest and rest[0] else []
        for i, alias in enumerate(aliases):
            if (i >= len(scopes) or scopes[i] == _EXACT) and alias in entities[key].aliases:
                yield alias, key


def _nil_twins(queries: Sequence[MentionQuery], entities: Iterable[Entity]) -> tuple[MentionQuery, ...]:
    """The NIL twin of each query. Aliases count as shared names under both protocols."""
    every = list(entities)
    golds = {key for query in queries for key in query.gold}
    folded = {e.entity_id: {fold_name(name) for name in e.names()} for e in every if e.entity_id in golds}
    owners: dict[str, set[str]] = {name: set() for names in folded.values() for name in names}
    owners |= {fold_name(query.mention): set() for query in queries}
    owners.pop("", None)
    for entity in every:
        for name in map(fold_name, entity.names()):
            if name in owners:
                owners[name].add(entity.entity_id)
    twins = []
    for query in queries:
        names = set().union({fold_name(query.mention)}, *(folded[key] for key in query.gold if key in folded))
        excluded = query.gold.union(*(owners.get(name, ()) for name in names))
        twins.append(MentionQuery(query.mention, frozenset(), excluded))
    return tuple(twins)


DEPTH = 64
"""Number of candidates that a method returns."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """The entities that a method finds for a mention."""

    ids: tuple[str, ...]  # entity ids, best first
    n_tied: int  # number of first entities with equal scores: 1 for a single best one, 0 without entities

    def expected_accuracy(self, gold: frozenset[str], depth: int = 1) -> float:
        """Probability that a gold entity is among the first `depth`, with tied entities in random order."""
        if self.n_tied <= depth:
            return float(not gold.isdisjoint(self.ids[:depth]))
        n_wrong = self.n_tied - sum(key in gold for key in self.ids[: self.n_tied])
        return 1 - math.comb(n_wrong, depth) / math.comb(self.n_tied, depth)


def rank_entities(scored: Sequence[tuple[str, float]], *, tolerance: float = 1e-6) -> Ranking:
    """Rank entities by score, highest first, then by id; those within the tolerance of the best one are tied."""
    if not scored:
        return Ranking((), 0)
    ordered = sorted(scored, key=lambda pair: (-pair[1], pair[0]))
    n_tied = sum(ordered[0][1] - score <= tolerance for _, score in ordered)
    return Ranking(tuple(key for key, _ in ordered), n_tied)


def expected_accuracies(
    sets: Sequence[LinkingSet], rankings: Sequence[Sequence[Ranking]], depth: int = 1
) -> FloatArray:
    """Expected accuracy of each mention that has an entity, in the order of the sets, (n,)."""
    return np.array(
        [
            ranking.expected_accuracy(query.gold, depth)
            for one, of_set in zip(sets, rankings, strict=True)
            for query, ranking in zip(one.queries, of_set, strict=True)
        ]
    )


def reliability_details(
    samples: Samples, nil_samples: Samples, calibration: Calibration, shares: Sequence[float]
) -> Mapping[str, float]:
    """Reliability of the probabilities at each share of NIL mentions, in percent, by name and share.

    `nil_samples` are those of the same n mentions with their entities removed from the base. A share in [0, 1) of the
    mentions is replaced by them; drawn once.
    """
    details: dict[str, float] = {}
    order = np.random.default_rng(0).permutation(len(samples))
    known, unknown = samples.answers(calibration), nil_samples.answers(calibration)
    for share in shares:
        n_nil = round(share * len(samples))
        answers = Answers.joined([known.take(order[n_nil:]), unknown.take(order[:n_nil])])
        found = measure(answers, calibration.threshold, rng=np.random.default_rng(0))
        interval = dict(zip(("ece_low", "ece_high"), found.ece_interval, strict=True))
        figures = {name: interval[name] if name in interval else getattr(found, name) for name in _RELIABILITY}
        # Undefined figures are skipped, such as the F1 of NIL without NIL mentions.
        details |= {f"{key}_{share:.0%}": 100 * value for key, value in figures.items() if math.isfinite(value)}
    return details


_RELIABILITY = "precision coverage ece ece_low ece_high brier auroc first_ece first_auroc nil_f1".split()
