"""What linking is measured on: a base, mentions of its entities, and what the base must not hold for each.

Two protocols, since bases store most aliases on their own entities:
    canonical   the base has canonical names only
    left_out    it has all names, but the mention's own string is left out of its entity
Each mention has a twin whose entity is taken away, with every entity that shares a folded name with it: a NIL mention.
Entities are divided into folds by the SHA-1 of their id (`training.examples.splits`); which are asked for is an option.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from pearl_qdrant.errors import FormatError
from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.phrase_types import ENTITY_TYPES
from pearl_qdrant.records import Entity
from training.evaluation.datasets.data import Data
from training.evaluation.task import LinkingOptions
from training.examples.sources import split_aliases
from training.examples.splits import fold

Protocol = Literal["canonical", "left_out"]

_EXACT = "EXACT"


@dataclass(frozen=True, slots=True)
class Base:
    """A base of entities.

    Attributes:
        name: Tells it from others in one store.
        entities: Each id once.
    """

    name: str
    entities: tuple[Entity, ...]


@dataclass(frozen=True, slots=True)
class Query:
    """A mention to be linked.

    Attributes:
        mention: The string.
        gold: Ids of the entities that are right; empty for NIL.
        without: Ids of entities that are taken away from the base.
        loses_string: Ids of entities that lose the name that the mention is.
    """

    mention: str
    gold: frozenset[str]
    without: frozenset[str] = frozenset()
    loses_string: frozenset[str] = frozenset()

    def leaves_out(self, entity_id: str, name: str) -> bool:
        """Whether a name of an entity is not there for this mention."""
        return entity_id in self.without or (entity_id in self.loses_string and name == self.mention)


@dataclass(frozen=True, slots=True)
class LinkingSet:
    """Mentions against one base.

    Attributes:
        base: Where the entities are.
        queries: Mentions with an entity, n.
        nil_queries: The same mentions without theirs, n.
    """

    base: Base
    queries: tuple[Query, ...]
    nil_queries: tuple[Query, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """Where a set comes from.

    Attributes:
        base: Pattern of the base's table; the first match is read.
        pairs: Table of aliases with ids; None: the base's own aliases, EXACT ones where it has scopes.
        protocol: What the base holds.
    """

    base: str
    pairs: str | None
    protocol: Protocol


def read_set(data: Data, source: Source, options: LinkingOptions) -> LinkingSet:
    """Read a set.

    Raises:
        FormatError: If a table is broken, or no mention belongs to the folds.
    """
    path = data.paths(source.base)[0]
    entities = _read_base(data, path)
    if source.pairs is not None:
        pairs = [(alias, key) for alias, key in data.rows(source.pairs, "alias", "id") if key in entities]
    else:
        pairs = list(_exact_aliases(data, path, entities))
    pairs = [(alias, key) for alias, key in dict.fromkeys(pairs) if alias.strip() and fold(key) in options.folds]
    if not pairs:
        folds = ", ".join(map(str, options.folds))
        raise FormatError(source.pairs or path, None, f"no alias of an entity of the base belongs to folds {folds}.")
    chosen = random.Random(0).sample(pairs, min(options.n_mentions, len(pairs)))
    loses = source.protocol == "left_out"
    queries = [Query(a, frozenset({key}), loses_string=frozenset({key} if loses else ())) for a, key in chosen]
    nil = _without_namesakes(queries, entities.values())
    held = entities.values() if loses else (_without_aliases(entity) for entity in entities.values())
    name = path.removesuffix(".tsv").replace("/", "-") + ("" if loses else "-canonical")
    return LinkingSet(Base(name, tuple(held)), tuple(queries), nil)


def read_joins(data: Data) -> list[LinkingSet]:
    """The fuzzy joins of AutoFJ: right titles that have a match are the mentions, left titles the base.

    Raises:
        FormatError: If a table is broken, or no right title has a match.
    """
    bases: dict[str, dict[str, Entity]] = {}
    for name, key, title in data.rows("autofj/left.tsv", "dataset", "id", "title"):
        bases.setdefault(name, {})[key] = Entity(key, title)
    gold: dict[tuple[str, str], set[str]] = {}
    for name, left, right in data.rows("autofj/gt.tsv", "dataset", "id_l", "id_r"):
        gold.setdefault((name, right), set()).add(left)
    mentions: dict[str, list[Query]] = {}
    for name, key, title in data.rows("autofj/right.tsv", "dataset", "id", "title"):
        if (name, key) in gold and name in bases:
            mentions.setdefault(name, []).append(Query(title, frozenset(gold[name, key])))
    if not mentions:
        raise FormatError("autofj/gt.tsv", None, "no right title has a match among the left ones.")
    return [
        LinkingSet(
            Base(f"autofj-{name}", tuple(bases[name].values())),
            tuple(queries),
            _without_namesakes(queries, bases[name].values()),
        )
        for name, queries in sorted(mentions.items())
    ]


def _read_base(data: Data, path: str) -> dict[str, Entity]:
    """Entities by id; of an id that comes again the names are joined."""
    columns = _columns(data, path, ("id", "name", "aliases"), (("onto_type", "fine_type"), ("type",)))
    found: dict[str, Entity] = {}
    for key, name, cell, *types in data.rows(path, *columns):
        known = found.get(key)
        aliases = dict.fromkeys([name, *split_aliases(cell)])
        if known is not None:
            aliases = dict.fromkeys([*known.aliases, *aliases])
        canonical = name if known is None else known.canonical_name
        aliases.pop(canonical, None)
        coarse = tuple(kind for kind in types[:1] if kind in ENTITY_TYPES)
        native = tuple(kind for kind in types[-1].split("|") if kind) if types else ()
        found[key] = Entity(key, canonical, tuple(aliases), native, coarse)
    return found


def _columns(data: Data, path: str, needed: tuple[str, ...], optional: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """The columns needed, with the first group of optional ones that a table has."""
    for group in optional:
        try:
            data.rows(path, *group)
        except FormatError:
            continue
        return (*needed, *group)
    return needed


def _exact_aliases(data: Data, path: str, entities: dict[str, Entity]) -> Iterator[tuple[str, str]]:
    """Aliases with their entity: those in scope EXACT, or all where the table has no scopes."""
    columns = _columns(data, path, ("id", "aliases"), (("alias_scopes",),))
    for key, cell, *rest in data.rows(path, *columns):
        aliases = split_aliases(cell)
        scopes = rest[0].split("|") if rest and rest[0] else []
        for i, alias in enumerate(aliases):
            if (i >= len(scopes) or scopes[i] == _EXACT) and alias in entities[key].aliases:
                yield alias, key


def _without_aliases(entity: Entity) -> Entity:
    return Entity(entity.entity_id, entity.canonical_name, (), entity.kb_types, entity.types)


def _without_namesakes(queries: Sequence[Query], entities: Iterable[Entity]) -> tuple[Query, ...]:
    """The NIL twin of each query: all names that the base knows count, aliases too, whatever the protocol."""
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
        without = query.gold.union(*(owners.get(name, ()) for name in names))
        twins.append(Query(query.mention, frozenset(), without))
    return tuple(twins)
