"""What the multilingual model learns from: names in many languages beside the English sources of `mini_en`.

An example is an English name and up to three names in other languages, so that half of the pairs have an English side:
what is linked to is mostly English. Spelled-alike neighbours are in one batch, and each English
name has names of such neighbours in other scripts as hard negatives. Rules write names of people and places of the
general base in other scripts (ICU), and names in other scripts in Latin letters (anyascii).
"""

from __future__ import annotations

import json
import lzma
import random
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from mini_en.examples import ExampleSource, held_out_strings, without_strings
from mini_en.sources import all_plain, first_sources, further_sources
from recipe_tables import read_tsv

from multilingual.names import Entity, held_out_names, read_entities, script_of
from training.examples.example import (
    DEVELOPMENT_SPLITS,
    TEST_SPLITS,
    TRAIN_SPLITS,
    Example,
    one_class,
    sort_examples,
    split_of,
)

WEIGHTS = {
    "territory": 0.15,
    "language": 0.15,
    "city": 0.12,
    "script": 0.03,
    "currency": 0.05,
    "unit": 0.03,
    "region": 0.15,
    "place": 0.40,
    "emoji": 0.08,
}
"""Share of each kind in a batch, relative to the shares of the English sources, which add up to about 1.4."""
WRITTEN = 0.25
"""The same of names that rules write in other scripts."""
N_WRITTEN = 60_000
"""People and places whose names rules write in other scripts."""
N_OTHERS = 3
"""Names in other languages of an example."""
N_NEGATIVES = 4
"""Hard negatives of an English name, of which a batch draws one."""

TYPES = {
    "territory": ("GPE", "LOC"),
    "language": ("LANGUAGE",),
    "city": ("GPE",),
    "place": ("GPE",),
    "region": ("GPE",),
}
"""Entity types of each kind; the others have none that is sure."""

RULES = ("Latin-Russian/BGN", "Latin-Greek", "Latin-Arabic", "Latin-Devanagari", "Latin-Katakana", "Latin-Hangul")
"""ICU's transliterators. Hebrew is left out: its rules write the vowels as consonants."""


def read_sources(data: Path, wordnet: Path) -> tuple[list[ExampleSource], list[Entity]]:
    """Return the sources of a batch, and all entities in many languages, of every split.

    No name of a held-out entity of either list is in an example of the other.
    """
    entities = read_entities()
    held_out = held_out_names(entities, (*DEVELOPMENT_SPLITS, *TEST_SPLITS))
    english = first_sources(data, wordnet)
    english += further_sources(data, english)
    held_out |= held_out_strings(data)
    rng = random.Random(43)
    by_kind: dict[str, list[Example]] = {kind: [] for kind in WEIGHTS}
    for entity in entities:
        if entity.split in TRAIN_SPLITS:
            by_kind[entity.kind] += _examples(entity, rng)
    sources = [(examples, WEIGHTS[kind]) for kind, examples in by_kind.items()]
    sources.append((list(_written(data / "kb" / "general.tsv", rng)), WRITTEN))
    sources += [(list(source.examples), source.weight) for source in english]
    return [ExampleSource(_sorted(without_strings(found, held_out)), weight) for found, weight in sources], entities


def _examples(entity: Entity, rng: random.Random) -> Iterator[Example]:
    """The examples of an entity: its names in chunks, some in other scripts also in Latin letters."""
    from anyascii import anyascii

    foreign = [name for name in entity.names if script_of(name) != "LATIN"]
    others = [*entity.names, *(anyascii(name).strip().title() for name in foreign if rng.random() < 0.1)]
    rng.shuffle(others)
    allowed = one_class("NP", TYPES.get(entity.kind, ()))
    for start in range(0, len(others), N_OTHERS):
        yield Example(entity.name, tuple(others[start : start + N_OTHERS]), entity.key, allowed)


def _written(path: Path, rng: random.Random) -> Iterator[Example]:
    """People and places of the general base with names that rules write in two other scripts."""
    import icu

    write: dict[str, Callable[[str], str]] = {
        rule: icu.Transliterator.createInstance(rule).transliterate for rule in RULES
    }
    rows = [row for row in read_tsv(path) if row["onto_type"] in ("PERSON", "GPE") and row["name"].isascii()]
    rows = [row for row in rows if split_of(row["id"]) in TRAIN_SPLITS and any(map(str.isalpha, row["name"]))]
    for row in rng.sample(rows, min(N_WRITTEN, len(rows))):
        names = [_without_marks(rule, write[rule](row["name"])) for rule in rng.sample(RULES, 2)]
        yield Example(row["name"], tuple(names), f"general:{row['id']}", one_class("NP", [row["onto_type"]]))


def _without_marks(rule: str, name: str) -> str:
    """Arabic without the vowels that nobody writes."""
    return "".join(c for c in name if unicodedata.category(c) != "Mn") if rule == "Latin-Arabic" else name


def _sorted(examples: Iterable[Example]) -> list[Example]:
    """By name, and the chunks of an entity far apart, so that neighbours are of two entities."""
    chunks: list[list[Example]] = []
    seen: dict[str, int] = {}
    for example in examples:
        place = seen[example.entity] = seen.get(example.entity, -1) + 1
        if place == len(chunks):
            chunks.append([])
        chunks[place].append(example)
    return [example for chunk in chunks for example in sort_examples(chunk)]


def hard_negatives(sources: Iterable[ExampleSource], rng: random.Random) -> Iterator[tuple[str, list[str]]]:
    """Yield English names, each with names in other scripts of what is spelled alike in English."""
    for source in sources:
        last: list[Example] = []
        for example in source.examples:
            near = [n for e in last if e.entity != example.entity for n in e.others if script_of(n) != "LATIN"]
            if near and any(script_of(name) != "LATIN" for name in example.others):
                yield example.name, rng.sample(near, min(N_NEGATIVES, len(near)))
            last = [*last[-2:], example]


def names_of(sources: Iterable[ExampleSource]) -> list[str]:
    """Return the names of at most 60 characters of sources, sorted."""
    return sorted({n for s in sources for e in s.examples for n in (e.name, *e.others) if len(n) <= 60})


def plain_names(data: Path, sources: list[ExampleSource], rng: random.Random, n: int) -> list[str]:
    """Return names to distil: half in English, text among them, and half in other languages."""
    n_kinds = len(WEIGHTS)
    foreign = sorted({name for source in sources[:n_kinds] for e in source.examples for name in e.others})
    english = all_plain(data, sources[n_kinds + 1 :], rng)
    short = [name for name in english if len(name) <= 60]
    aliases = names_of(sources[n_kinds + 1 :])
    chosen = [*rng.sample(short, n // 5), *rng.sample(aliases, 3 * n // 10), *rng.sample(foreign, n // 2)]
    rng.shuffle(chosen)
    return list(dict.fromkeys(chosen))


def load_sources(path: Path) -> tuple[list[ExampleSource], list[str]]:
    """Read the sources, and the phrases to distil."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        stored = json.load(file)
    found = []
    for weight, rows in zip(stored["weights"], stored["examples"], strict=True):
        examples = [Example(name, tuple(others), entity, tuple(allowed)) for name, others, entity, allowed in rows]
        found.append(ExampleSource(examples, weight))
    return found, stored["plain"]
