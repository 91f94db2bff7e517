"""The development measure: held-out names in many languages, each looked for among English names of its kind.

A mention is a name of an entity of splits 7 and 8 in one of the world's larger languages. Its task is its script, or
"other languages" in Latin script. What is searched are the English names of all entities of the kind, of every split.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

from development_tasks.tasks import Search, SearchTask

from multilingual.names import LANGUAGES, OTHER_SCRIPTS, Entity, script_of
from training.examples.example import DEVELOPMENT_SPLITS

KINDS = ("territory", "language", "city")
N_EACH = 100
"""Mentions of a kind in a script, at most; of Latin script four times as many."""
N_PLACES = 500
"""Mentions of GeoNames, of each of both groups of scripts, among the names of `N_AMONG` places."""
N_AMONG = 4_500
FEWEST = 10


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
                    searches.append(Search(script, names, tuple(chosen)))
            found.append(SearchTask(f"{kind}: {group}", tuple(searches), by_search=False))
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
        yield SearchTask(f"place: {group}", (Search("geonames", names, tuple(chosen)),), by_search=False)


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
