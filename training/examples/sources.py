"""Training examples from open sources: WordNet, bases with aliases, lists of typed names, and rules for numbers.

A source is a list of `Example`s in alphabetical order, so that a run of neighbours in a batch gives hard negatives
for nothing. Splits are by entity and by name (see `splits`).
"""

from __future__ import annotations

import csv
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pearl_qdrant.phrase_types import ENTITY_TYPES, LEXICAL_CLASSES, PHRASE_TYPES, phrase_type
from training.examples.numbers import number_names
from training.examples.splits import TRAIN_FOLDS, fold, name_key
from training.examples.wordnet import read_synsets

_LABEL = {name: i for i, name in enumerate(PHRASE_TYPES)}

# WordNet's lexicographer files whose named individuals have a clear entity type.
_INSTANCE_TYPES = {4: ("EVENT",), 15: ("GPE", "LOC"), 17: ("LOC",), 18: ("PERSON",), 14: ("ORG", "NORP")}

_PREPOSITIONS = "in on at of from to for with by about near after before during since until under over between".split()


@dataclass(frozen=True, slots=True)
class Example:
    """One training example.

    Attributes:
        name: The anchor.
        others: Other names of the same entity; empty if only an augmented `name` can be the positive.
        entity: Key of the entity; examples with one key are never each other's negatives.
        allowed: Indices into `PHRASE_TYPES`, any of which is right; empty if the type is unknown.
    """

    name: str
    others: tuple[str, ...]
    entity: str
    allowed: tuple[int, ...] = ()


def any_class(entity_types: Iterable[str]) -> tuple[int, ...]:
    """Labels of these entity types with the lexical class left open."""
    wanted = sorted(set(entity_types), key=ENTITY_TYPES.index)
    return tuple(_LABEL[phrase_type(lexical_class, t)] for t in wanted for lexical_class in LEXICAL_CLASSES)


def one_class(lexical_class: str, entity_types: Iterable[str]) -> tuple[int, ...]:
    """Labels of these entity types in one lexical class."""
    return tuple(_LABEL[phrase_type(lexical_class, t)] for t in entity_types)


def wordnet_examples(folder: Path) -> list[Example]:
    """Every synset; common ones are OTHER in their lexical class, named individuals have a type where it is clear."""
    examples = []
    for synset in read_synsets(folder):
        if synset.is_instance:
            allowed = one_class("NP", _INSTANCE_TYPES.get(synset.lex_file, ()))
        else:
            allowed = one_class(synset.lexical_class, ["OTHER"])
        examples.append(Example(synset.names[0], synset.names[1:], synset.synset_id, allowed))
    return _sorted(examples)


def read_tsv(path: Path) -> Iterator[dict[str, str]]:
    """Rows of a TSV with a header and no quoting."""
    with path.open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)


def split_aliases(cell: str) -> list[str]:
    r"""Names joined by `|`, with `\|` and `\\` escaped."""
    names, current, characters = [], "", iter(cell)
    for character in characters:
        if character == "\\":
            current += next(characters, "")
        elif character == "|":
            names.append(current)
            current = ""
        else:
            current += character
    return [name for name in [*names, current] if name]


def base_examples(path: Path, *, kb: str, entity_types: tuple[str, ...] = ()) -> list[Example]:
    """Entities with aliases of a base in TSV form, those of the training folds."""
    examples = []
    for row in read_tsv(path):
        aliases = split_aliases(row["aliases"])
        if aliases and fold(row["id"]) in TRAIN_FOLDS:
            allowed = one_class("NP", entity_types)
            examples.append(Example(row["name"], tuple(aliases), f"{kb}:{row['id']}", allowed))
    return _sorted(examples)


def held_out_aliases(path: Path) -> set[str]:
    """Case-folded aliases of the entities outside the training folds: no such string may enter training."""
    held: set[str] = set()
    for row in read_tsv(path):
        if fold(row["id"]) not in TRAIN_FOLDS:
            aliases = [row["alias"]] if "alias" in row else split_aliases(row["aliases"])
            held.update(alias.casefold() for alias in aliases)
    return held


def typed_examples(path: Path) -> list[Example]:
    """Typed names of the training folds; a name with two types allows either."""
    types: dict[str, set[str]] = {}
    for row in read_tsv(path):
        types.setdefault(row["name"], set()).add(row["onto_type"])
    return _sorted(
        Example(name, (), f"name:{name.casefold()}", any_class(found))
        for name, found in types.items()
        if fold(name_key(name)) in TRAIN_FOLDS
    )


def number_examples(n_each: int, rng: random.Random) -> list[Example]:
    """Dates, amounts and the like, made by rules."""
    made = number_names(n_each, rng)
    return _sorted(Example(name, (), f"name:{name.casefold()}", one_class("NP", [kind])) for name, kind in made)


def prepositional_examples(examples: list[Example], n: int, rng: random.Random) -> list[Example]:
    """Prepositional phrases: a preposition before a typed name keeps the entity type and makes the class PP."""
    made = []
    for example in rng.sample(examples, min(n, len(examples))):
        kinds = {PHRASE_TYPES[i].partition("-")[2] for i in example.allowed}
        name = f"{rng.choice(_PREPOSITIONS)} {example.name}"
        made.append(Example(name, (), f"name:{name.casefold()}", one_class("PP", sorted(kinds))))
    return _sorted(made)


def without_strings(examples: list[Example], held_out: set[str]) -> list[Example]:
    """The examples without names that are held out; an example whose anchor is one goes whole."""
    kept = []
    for example in examples:
        if example.name.casefold() not in held_out:
            others = tuple(name for name in example.others if name.casefold() not in held_out)
            kept.append(Example(example.name, others, example.entity, example.allowed))
    return kept


def _sorted(examples: Iterable[Example]) -> list[Example]:
    return sorted(examples, key=lambda example: (example.name.casefold(), example.entity))
