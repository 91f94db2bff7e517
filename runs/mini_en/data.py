"""What each batch of the shipped model's training is drawn from, and in which proportions."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path

from recipe_tables import read_texts

from mini_en.examples import (
    ExampleSource,
    alias_examples,
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

ABBREVIATED_TYPES = ("ORG", "WORK_OF_ART", "FAC", "EVENT", "LAW")
"""Types of the proper names that people abbreviate."""

RARE = 30
"""A type with fewer names is not a source of its own."""


def read_sources(data: Path, wordnet: Path) -> list[ExampleSource]:
    """Read all training examples; each source has its share of a batch as weight, the rest are typed names."""
    rng = random.Random(0)
    bases = sorted((data / "kb" / "biomedical").glob("*.tsv"))
    general = data / "kb" / "general.tsv"
    held_out = held_out_strings(data)
    synsets = wordnet_examples(wordnet)
    biomedical = [e for path in bases for e in alias_examples(path, kb=path.stem, entity_types=("OTHER",))]
    named = alias_examples(general, kb="general")
    wikidata = [e for e in named if e.entity.startswith("general:Q")]
    others = [e for e in named if not e.entity.startswith("general:Q")]
    typed = typed_examples(data / "typed_names" / "onto_typed_names.tsv")
    numbers = number_examples(4000, rng)
    nouns = [e for e in synsets if e.entity.startswith("noun") and e.allowed]
    prepositional = [
        *prepositional_examples(typed, 8000, rng),
        *prepositional_examples(numbers, 4000, rng),
        *prepositional_examples(nouns, 8000, rng),
    ]
    parts = [
        ([e for e in synsets if e.others], 0.34),
        (synsets, 0.02),
        (biomedical, 0.24),
        (wikidata, 0.12),
        (others, 0.10),
        (numbers, 0.02),
        (prepositional, 0.02),
        *_by_type(typed),
    ]
    untyped = held_out_typed(data)
    return [
        ExampleSource(sort_examples(without_types(without_strings(found, held_out), untyped)), share)
        for found, share in parts
    ]


def _by_type(typed: list[Example]) -> list[tuple[list[Example], float]]:
    """Typed names, one source for each entity type."""
    by_type: dict[str, list[Example]] = {}
    for example in typed:
        kinds = {PHRASE_TYPES[i].partition("-")[2] for i in example.allowed}
        by_type.setdefault(kinds.pop() if len(kinds) == 1 else "several", []).append(example)
    # The root lifts rare types above their numbers and lowers common ones.
    weights = {kind: len(found) ** 0.4 for kind, found in by_type.items() if len(found) >= RARE}
    return [(by_type[kind], 0.18 * weight / sum(weights.values())) for kind, weight in weights.items()]


def proper_names(sources: list[ExampleSource]) -> list[Example]:
    """Names of at least two words, all capitalised, of the types that people abbreviate."""
    kinds = {f"NP-{kind}" for kind in ABBREVIATED_TYPES}
    chosen = {
        example.name: example
        for source in sources
        for example in source.examples
        if not example.others
        and any(PHRASE_TYPES[i] in kinds for i in example.allowed)
        and abbreviate(example.name, random.Random(0)) != example.name
    }
    return sort_examples(chosen.values())


def abbreviate(phrase: str, rng: random.Random) -> str:
    """Abbreviate a proper name as people do: "New York Times" gives NYTimes, NY Times, NYT or nytimes.com.

    A phrase without at least two capitalised words comes back unchanged.
    """
    words = [word for word in phrase.split() if word.lower() not in ("the", "of", "and", "&")]
    if len(words) < 2 or not all(word[0].isupper() for word in words):
        return phrase
    n_initials = rng.randrange(2, len(words) + 1) if len(words) > 2 else 1
    initials = "".join(word[0] for word in words[:n_initials])
    rest = words[n_initials:]
    joined = "".join([initials, *rest])
    if rest and rng.random() < 0.35:
        return " ".join([initials, *rest])
    if rng.random() < 0.3:
        site = joined if rng.random() < 0.6 else "".join(words)
        return f"{''.join(c for c in site if c.isalnum()).lower()}.{rng.choice(('com', 'com', 'org', 'net'))}"
    return joined


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


def head_examples(sources: list[ExampleSource], rng: random.Random, n: int) -> list[Example]:
    """Examples with a known phrase type, at most `n` of each source."""
    chosen: dict[tuple[str, tuple[int, ...]], Example] = {}
    for source in sources:
        typed = [e for e in source.examples if e.allowed]
        for example in rng.sample(typed, min(n, len(typed))):
            allowed = as_noun_phrase(example.allowed)
            chosen[example.name, allowed] = replace(example, allowed=allowed)
    return list(chosen.values())


def held_out_types(data: Path, splits: range) -> list[tuple[str, set[str]]]:
    """A natural sample of typed names that training never saw, with all types of each."""
    types = types_of_names(data / "typed_names" / "onto_typed_names.tsv")
    held_out = [(name, found) for name, found in types.items() if split_of(name_key(name)) in splits]
    return random.Random(4).sample(held_out, min(8000, len(held_out)))
