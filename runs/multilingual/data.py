"""What the type head learns from: names in many languages beside the English sources of `mini_en`.

An example is an English name and up to three names in other languages. Rules write names of people and places of the
general base in other scripts (ICU), and names in other scripts in Latin letters (anyascii).
"""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

from mini_en.data import read_sources as read_english
from mini_en.examples import held_out_strings, without_strings
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

N_WRITTEN = 60_000
"""People and places whose names rules write in other scripts."""
N_OTHERS = 3
"""Names in other languages of an example."""

TYPES = {
    "territory": ("GPE", "LOC"),
    "language": ("LANGUAGE",),
    "city": ("GPE",),
    "place": ("GPE",),
    "region": ("GPE",),
}
"""Entity types of each kind of names; the other kinds have none that is sure."""

RULES = ("Latin-Russian/BGN", "Latin-Greek", "Latin-Arabic", "Latin-Devanagari", "Latin-Katakana", "Latin-Hangul")
"""ICU's transliterators. Hebrew is left out: its rules write the vowels as consonants."""


def read_sources(data: Path, wordnet: Path) -> list[list[Example]]:
    """Return the examples of each source. No name of a held-out entity of either list is in an example of the other."""
    entities = read_entities()
    held_out = held_out_names(entities, (*DEVELOPMENT_SPLITS, *TEST_SPLITS)) | held_out_strings(data)
    rng = random.Random(43)
    by_kind: dict[str, list[Example]] = {kind: [] for kind in TYPES}
    for entity in entities:
        if entity.split in TRAIN_SPLITS and entity.kind in TYPES:
            by_kind[entity.kind] += _examples(entity, rng)
    found = [*by_kind.values(), list(_written(data / "kb" / "general.tsv", rng)), *read_english(data, wordnet)]
    return [sort_examples(without_strings(examples, held_out)) for examples in found]


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
