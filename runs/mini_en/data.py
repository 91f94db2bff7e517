"""What the type head of the shipped model learns from, and phrases of plain text."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path

from recipe_tables import read_texts

from mini_en.examples import (
    alias_examples,
    held_out_aliases,
    held_out_strings,
    held_out_typed,
    number_examples,
    prepositional_examples,
    typed_examples,
    types_of_names,
    without_strings,
    without_types,
    wordnet_examples,
)
from pearl_qdrant.phrase_types import PHRASE_TYPES
from training.examples.example import Example, as_noun_phrase, name_key, sort_examples, split_of

N_PLAIN = 160_000
"""Phrases of plain text that are distilled, at most."""

RARE = 30
"""A type with fewer names is not a source of its own."""


def read_sources(data: Path, wordnet: Path) -> list[list[Example]]:
    """Read the examples of each source."""
    rng = random.Random(0)
    bases = sorted((data / "kb" / "biomedical").glob("*.tsv"))
    held_out = held_out_strings(data)
    synsets = wordnet_examples(wordnet)
    biomedical = [e for path in bases for e in alias_examples(path, kb=path.stem, entity_types=("OTHER",))]
    typed = typed_examples(data / "typed_names" / "onto_typed_names.tsv")
    numbers = number_examples(4000, rng)
    nouns = [e for e in synsets if e.entity.startswith("noun") and e.allowed]
    prepositional = [
        *prepositional_examples(typed, 8000, rng),
        *prepositional_examples(numbers, 4000, rng),
        *prepositional_examples(nouns, 8000, rng),
    ]
    further = {kb: data / "context" / f"base_{kb}.tsv" for kb in ("mesh", "cl", "so")}
    terms = {kb: alias_examples(path, kb=kb, entity_types=("OTHER",)) for kb, path in further.items()}
    held_out |= set[str]().union(*map(held_out_aliases, further.values()))
    parts = [synsets, biomedical, numbers, prepositional, terms["mesh"], [*terms["cl"], *terms["so"]], *_by_type(typed)]
    untyped = held_out_typed(data)
    return [sort_examples(without_types(without_strings(found, held_out), untyped)) for found in parts]


def _by_type(typed: list[Example]) -> list[list[Example]]:
    """Typed names, one source for each entity type."""
    by_type: dict[str, list[Example]] = {}
    for example in typed:
        kinds = {PHRASE_TYPES[i].partition("-")[2] for i in example.allowed}
        by_type.setdefault(kinds.pop() if len(kinds) == 1 else "several", []).append(example)
    return [found for found in by_type.values() if len(found) >= RARE]


def plain_phrases(path: Path, rng: random.Random) -> list[str]:
    """Draw runs of one to eight words within clauses of plain text, each once; a third are lower-cased."""
    clause = re.compile(r"(?<=[.!?;:,()\n])\s+")
    marks = " .,;:!?()\"'"
    found: set[str] = set()
    for text in read_texts(path):
        clauses = [words for part in clause.split(text[:6000]) if (words := part.split())]
        for words in rng.choices(clauses, k=8) if clauses else ():
            n = rng.choices(range(1, 9), (8, 22, 20, 15, 12, 9, 8, 6))[0]
            if len(words) < n:
                continue
            start = rng.randrange(len(words) - n + 1)
            phrase = " ".join(words[start : start + n]).strip(marks)
            if 3 <= len(phrase) <= 80 and any(letter.isalpha() for letter in phrase):
                found.add(phrase.lower() if rng.random() < 0.3 else phrase)
    kept = sorted(found)
    return rng.sample(kept, min(N_PLAIN, len(kept)))


def head_examples(sources: list[list[Example]], rng: random.Random, n: int) -> list[Example]:
    """Examples with a known phrase type, at most `n` of each source."""
    chosen: dict[tuple[str, tuple[int, ...]], Example] = {}
    for source in sources:
        typed = [e for e in source if e.allowed]
        for example in rng.sample(typed, min(n, len(typed))):
            allowed = as_noun_phrase(example.allowed)
            chosen[example.name, allowed] = replace(example, allowed=allowed)
    return list(chosen.values())


def held_out_types(data: Path, splits: range) -> list[tuple[str, set[str]]]:
    """A natural sample of typed names that training never saw, with all types of each."""
    types = types_of_names(data / "typed_names" / "onto_typed_names.tsv")
    held_out = [(name, found) for name, found in types.items() if split_of(name_key(name)) in splits]
    return random.Random(4).sample(held_out, min(8000, len(held_out)))
