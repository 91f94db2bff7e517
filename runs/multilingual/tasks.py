"""The development measure: held-out names in many languages, each looked for among English names of its kind.

A mention is a name of an entity of splits 7 and 8 in one of the world's larger languages. Its task is its script, or
"other languages" in Latin script. What is searched are the English names of all entities of the kind, of every split.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from multilingual.names import LANGUAGES, OTHER_SCRIPTS, Entity, script_of
from training.evaluation.methods import EncoderMethod
from training.evaluation.outcome import Outcome, mean_outcome
from training.examples.example import DEVELOPMENT_SPLITS

KINDS = ("territory", "language", "city")
N_EACH = 100
"""Mentions of a kind in a script, at most; of Latin script four times as many."""
N_PLACES = 500
"""Mentions of GeoNames, of each of both groups of scripts, among the names of `N_AMONG` places."""
N_AMONG = 4_500
FEWEST = 10
TIES = 1e-6
"""Cosines that differ by less are equal: equal names share the point."""


@dataclass(frozen=True, slots=True)
class Search:
    """Names with their keys, and the mentions that are looked for among them, with the keys that are right."""

    names: tuple[tuple[str, str], ...]
    mentions: tuple[tuple[str, frozenset[str]], ...]


@dataclass(frozen=True, slots=True)
class SearchTask:
    """How often the nearest name is right: the mean over the searches."""

    name: str
    searches: tuple[Search, ...]

    def measure(self, method: EncoderMethod) -> Outcome:
        """Measure an encoder."""
        right = []
        for search in self.searches:
            scores = method.score_matrix([text for text, _ in search.mentions], [name for name, _ in search.names])
            for row, (_, gold) in zip(scores, search.mentions, strict=True):
                first = np.flatnonzero(row >= row.max() - TIES)
                right.append(sum(search.names[i][1] in gold for i in first) / len(first))
        strata = np.repeat(np.arange(len(self.searches)), [len(search.mentions) for search in self.searches])
        return mean_outcome([(np.arange(len(right)), np.array(right))], strata=strata)


def multilingual_tasks(entities: Iterable[Entity]) -> list[SearchTask]:
    """Return one task for each kind and group of scripts; deterministic."""
    entities = list(entities)
    found: list[SearchTask] = []
    for kind in KINDS:
        of_kind = [entity for entity in entities if entity.kind == kind]
        names = tuple((entity.name, entity.key) for entity in of_kind)
        by_script = _mentions(of_kind, languages=True)
        for group, scripts in (("other scripts", OTHER_SCRIPTS), ("other languages, Latin", ("LATIN",))):
            searches = []
            for script in scripts:
                rows = by_script.get(script, [])
                if len(rows) >= FEWEST:
                    n = N_EACH * (4 if script == "LATIN" else 1)
                    chosen = random.Random(f"{kind} {script}").sample(rows, min(n, len(rows)))
                    searches.append(Search(names, tuple(chosen)))
            found.append(SearchTask(f"{kind}: {group}", tuple(searches)))
    found += _places([entity for entity in entities if entity.kind == "place"])
    return found


def _places(places: list[Entity]) -> Iterator[SearchTask]:
    """Places of GeoNames among places."""
    rng = random.Random(4)
    by_script = _mentions(places, languages=False)
    for group, scripts in (("other scripts", OTHER_SCRIPTS), ("other names, Latin", ("LATIN",))):
        rows = [row for script in scripts for row in by_script.get(script, [])]
        chosen = rng.sample(rows, min(N_PLACES, len(rows)))
        gold = {key for _, keys in chosen for key in keys}
        rest = [place for place in places if place.key not in gold]
        among = [
            *(place for place in places if place.key in gold),
            *rng.sample(rest, min(len(rest), N_AMONG - len(gold))),
        ]
        names = tuple((place.name, place.key) for place in among)
        yield SearchTask(f"place: {group}", (Search(names, tuple(chosen)),))


def _mentions(entities: list[Entity], *, languages: bool) -> dict[str, list[tuple[str, frozenset[str]]]]:
    """The mentions of the development splits by script, with all entities that have the name; none that is English."""
    owners: dict[str, set[str]] = {}
    for entity in entities:
        for name in entity.names:
            owners.setdefault(name, set()).add(entity.key)
    english = {entity.name.casefold() for entity in entities}
    by_script: dict[str, list[tuple[str, frozenset[str]]]] = {}
    for entity in entities:
        if entity.split in DEVELOPMENT_SPLITS:
            for name, language in entity.names.items():
                if (not languages or language in LANGUAGES) and name.casefold() not in english:
                    by_script.setdefault(script_of(name), []).append((name, frozenset(owners[name])))
    return by_script
