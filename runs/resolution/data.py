"""Names whose entities are known, for the fit of `resolve` and its measurement.

Three sets of the development splits (`training.examples.example`), at most `SIZE` names each, names with their types:

    general       canonical names and aliases of entities of `kb/general.tsv` that have aliases
    biomedical    canonical names and EXACT synonyms of entities of `kb/biomedical/` that have synonyms; Mondo alone of
                  the three ontologies of diseases, because the others have the same diseases by other ids
    aida          mentions of AIDA's training and development documents that have an entity; nothing of them is fitted

The same entity often has several ids where sources overlap. So ids that share a folded canonical name and a type are
one entity, in all sets. The names of the fit are those of training splits, without any string that a development entity
has.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from multilingual.names import held_out_names, read_entities
from rapidfuzz.distance import OSA
from recipe_tables import exact_synonyms, read_tsv

from pearl_qdrant.cells import split_list
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.lexical.keys import spelling_key
from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.lexical.words import SMALL_WORDS, english_words, is_word, variant_word, variant_words
from pearl_qdrant.linking import mention_kinds as rewrites
from pearl_qdrant.linking.mention_kinds import NamedEntity, slip
from pearl_qdrant.linking.ranking.string_features import other_known_name, string_features
from pearl_qdrant.resolution.pairs.same_words import SHORT_NAMES
from training.examples.example import DEVELOPMENT_SPLITS, TRAIN_SPLITS, split_of

SIZE = 20_000
TRAINING_SIZE = 20_000
SAME_DISEASES = ("doid_2024", "ordo_2018")


@dataclass(frozen=True, slots=True)
class GoldName:
    """A name with the entity that it means."""

    name: str  # the string
    gold: str  # the entity
    type: str = ""  # its type in the source, or ""
    source: str = ""  # where it was found (a document), or ""


@dataclass(frozen=True, slots=True)
class _Entity:
    entity_id: str
    names: tuple[str, ...]
    type: str


def _general(data: Path) -> Iterator[_Entity]:
    for row in read_tsv(data / "kb" / "general.tsv"):
        names = dict.fromkeys((row["name"], *split_list(row["aliases"] or "")))
        yield _Entity(row["id"], tuple(names), row["onto_type"] or "")


def _biomedical(data: Path, *, all_diseases: bool) -> Iterator[_Entity]:
    for path in sorted((data / "kb" / "biomedical").glob("*.tsv")):
        if path.stem in SAME_DISEASES and not all_diseases:
            continue
        for row in read_tsv(path):
            names = dict.fromkeys((row["name"], *exact_synonyms(row)))
            yield _Entity(f"{path.stem}:{row['id']}", tuple(names), "")


def _in_splits(entities: Iterator[_Entity], splits: range) -> list[_Entity]:
    """The entities of the splits that have several names."""
    return [one for one in entities if len(one.names) > 1 and _split(one) in splits]


def _split(entity: _Entity) -> int:
    """The split of an entity, by its id in its source."""
    return split_of(entity.entity_id.partition(":")[2] or entity.entity_id)


def _as_names(entities: list[_Entity], seed: str, size: int | None = SIZE) -> list[GoldName]:
    """All names of randomly chosen entities, shuffled; entities of one canonical name and type are one."""
    rng = random.Random(seed)
    chosen = list(entities)
    rng.shuffle(chosen)
    owners: dict[tuple[str, str], str] = {}
    names: list[GoldName] = []
    for one in chosen:
        gold = owners.setdefault((fold_name(one.names[0]), one.type), one.entity_id)
        names += [GoldName(name, gold, one.type) for name in one.names]
        if size is not None and len(names) >= size:
            break
    rng.shuffle(names)
    return list(dict.fromkeys(names[:size]))


def development_sets(data: Path, size: int = SIZE) -> dict[str, list[GoldName]]:
    """The three sets that are measured."""
    general = _in_splits(_general(data), DEVELOPMENT_SPLITS)
    biomedical = _in_splits(_biomedical(data, all_diseases=False), DEVELOPMENT_SPLITS)
    return {
        "general": _as_names(general, "general", size),
        "biomedical": _as_names(biomedical, "biomedical", size),
        "aida": aida_mentions(data, size),
    }


def aida_mentions(data: Path, size: int = SIZE) -> list[GoldName]:
    """Mentions of whole documents, in random order."""
    by_document: dict[str, list[GoldName]] = {}
    for row in read_tsv(data / "context" / "mentions.tsv"):
        if row["corpus"] in ("aida-train", "aida-dev") and row["gold_id"] != "NIL":
            source = f"{row['corpus']}:{row['doc_id']}"
            by_document.setdefault(source, []).append(GoldName(row["mention"], row["gold_id"], row["type"], source))
    documents = list(by_document.values())
    random.Random("aida").shuffle(documents)
    return [name for names in documents for name in names][:size]


def training_sets(data: Path) -> dict[str, list[GoldName]]:
    """Names of training entities, without a string that development entities have."""
    held = {
        fold_name(name)
        for entities in (_general(data), _biomedical(data, all_diseases=True))
        for one in entities
        if _split(one) not in TRAIN_SPLITS
        for name in one.names
    }
    sets = {
        "general": _in_splits(_general(data), TRAIN_SPLITS),
        "biomedical": _in_splits(_biomedical(data, all_diseases=False), TRAIN_SPLITS),
    }
    return {
        stem: [one for one in _as_names(entities, f"train {stem}", TRAINING_SIZE) if fold_name(one.name) not in held]
        for stem, entities in sets.items()
    }


WORLD_KINDS = {"territory": "GPE", "language": "LANGUAGE", "city": "GPE", "region": "GPE", "place": "GPE"}
"""Kinds of `multilingual.names` with names of the world, and their types."""
N_OTHERS = 3
"""Names in other languages of an entity."""


def world_names(splits: Sequence[int], size: int) -> list[GoldName]:
    """Names of places and languages in English and other languages, half without types, one place of each English name:
    names alone do not tell a town from its region. `multilingual.names` says which packages that needs.
    """
    entities = [one for one in read_entities() if one.kind in WORLD_KINDS]
    held = held_out_names(entities, [one for one in range(10) if one not in splits])
    rng = random.Random("world")
    found: list[_Entity] = []
    taken: set[str] = set()
    for one in rng.sample(entities, len(entities)):
        others = [name for name in one.names if name.casefold() not in held]
        if one.split in splits and others and len(found) < size and fold_name(one.name) not in taken:
            taken.add(fold_name(one.name))
            kind = WORLD_KINDS[one.kind] if rng.random() < 0.5 else ""
            names = (one.name, *rng.sample(others, min(N_OTHERS, len(others))))
            found.append(_Entity(one.key, tuple(dict.fromkeys(names)), kind))
    return _as_names(found, "world", size)


SINGLE = 0.8
"""Share of the entities of a graph that have one name; graphs that are made from text have more."""


def graph_sets(
    data: Path, splits: range, near: Mapping[str, Sequence[str]], seed: str, size: int
) -> dict[str, list[GoldName]]:
    """Names as extraction from text gives them: most things have one name, siblings and parts of things beside them.

    Args:
        data: Folder with `kb/`.
        splits: Splits of the entities.
        near: Words with those of near meaning, by which siblings are made.
        seed: Of all choices.
        size: Names of each set, about.
    """
    found = {}
    for stem, entities in (("general", _general(data)), ("biomedical", _biomedical(data, all_diseases=False))):
        rng = random.Random(f"graph {seed} {stem}")
        # Names without a type are those of anything, also of what has a type.
        chosen = [one for one in entities if _split(one) in splits and (one.type or stem == "biomedical")]
        found[f"graph of {stem} names"] = _graph(rng.sample(chosen, min(len(chosen), size)), near, rng, size)
    return found


def _graph(entities: list[_Entity], near: Mapping[str, Sequence[str]], rng: random.Random, size: int) -> list[GoldName]:
    named = [NamedEntity(one.entity_id, one.names, (one.type,) if one.type else ()) for one in entities]
    several = [one for one in named if len(one.names) > 1]
    single = [one for one in named if len(one.names) == 1] or named
    persons = (name.split() for one in named if "PERSON" in one.types for name in one.names)
    first_names = {words[0] for words in persons if len(words) == 2 and is_word(words[0].lower())}
    first_names = {first for first in first_names if first.lower() not in SHORT_NAMES}
    owners: dict[str, str] = {}
    canonical: dict[tuple[str, tuple[str, ...]], str] = {}
    names: list[GoldName] = []

    def add(name: str, gold: str, types: tuple[str, ...], *, is_made: bool = False) -> None:
        words = fold_name(name).split()  # made names that differ in a plural alone are not of two things
        key = spelling_key(" ".join(variant_words(words) if is_made else words))
        if key and owners.setdefault(key, gold) == gold:
            names.append(GoldName(name, gold, types[0] if types else ""))

    while len(names) < size:
        is_single = rng.random() < SINGLE
        one = rng.choice(single if is_single else several or single)
        gold = canonical.setdefault((fold_name(one.names[0]), one.types), one.entity_id)
        name = one.names[0] if is_single else rng.choice(one.names)
        for given in (name,) if is_single else one.names[:4]:
            add(given, gold, one.types)
        if not is_single and rng.random() < 0.5:
            add(_other_form(name, one.types, rng) or name, gold, one.types)
        if rng.random() < 0.4:
            for i, other in enumerate(_made_siblings(name, one, named, near, rng)):
                add(other, f"{gold} sibling {i} {other}", one.types, is_made=True)
            if "PERSON" in one.types and (near_name := _near_first_name(name, sorted(first_names))):
                add(near_name, f"{gold} sibling {near_name}", one.types, is_made=True)
    rng.shuffle(names)
    owners_of_word: dict[str, set[str]] = {}
    for one_name in names:
        for word in fold_name(one_name.name).split():
            owners_of_word.setdefault(word, set()).add(one_name.gold)
    return [
        one_name
        for one_name in dict.fromkeys(names)
        if one_name.type != "PERSON" or len(owners_of_word.get(fold_name(one_name.name), ())) < 2
    ]


def _other_form(name: str, types: tuple[str, ...], rng: random.Random) -> str | None:
    """The name written otherwise."""
    kind = rng.choice(
        ("plural", "case", "affix", "affix", "initials", "order", "slip", "spelling", "brackets", "title")
    )
    words = name.split()
    if kind == "title":
        return f"{rng.choice(('Mr.', 'Dr.', 'Professor', 'President'))} {name}" if "PERSON" in types else f"the {name}"
    if kind == "brackets":
        short = rewrites.initials(name, (), rng)
        return f"{name} ({short})" if short else None
    if kind == "slip":
        return slip(name, rng) if len(name) > 8 and len(words) > 1 else None
    if kind == "affix":
        return rewrites.affixed(name, types, rng) if "PERSON" not in types else None
    if kind == "initials":
        return rewrites.initials(name, types, rng) if "PERSON" in types else None
    plain = {
        "plural": rewrites.plural,
        "case": rewrites.other_case,
        "order": rewrites.inverted,
        "spelling": rewrites.respelled,
    }
    return plain[kind](name, rng)


def _made_siblings(
    name: str, one: NamedEntity, entities: list[NamedEntity], near: Mapping[str, Sequence[str]], rng: random.Random
) -> list[str]:
    """Other things with names like one: siblings, parts, what belongs to it."""
    noun = rng.choice(tuple(near))
    nouns = [noun, *rng.sample(list(near[noun]), 2)]
    nouns = list({variant_word(word): word for word in nouns}.values())
    capital = [word.capitalize() if name[:1].isupper() else word for word in nouns]
    kind = rng.random()
    made: list[str | None]
    if "," in name:  # a word more would be a middle name
        kind = 1.0
    if kind < 0.2:
        made = [f"{name} {word}" for word in capital]
    elif kind < 0.35:
        made = [f"{name}'s {word}" for word in nouns]
    elif kind < 0.65:
        made = [_near_word(name, near, rng)]
    elif kind < 0.8:
        made = [rewrites.one_word_more(name, one.types, entities, rng), f"{capital[0]} {name}"]
    else:
        made = [
            rewrites.sibling(name, entities, rng),
            rewrites.other_number(name, rng),
            rewrites.other_first_name(name, one.types, entities, rng),
            rewrites.other_brackets(name, rng),
        ]
    # A middle name more is mostly the same person.
    ends = (name.split()[0], name.split()[-1])
    is_person = "PERSON" in one.types
    return [
        other
        for other in made
        if other and other != name and not (is_person and (other.split()[0], other.split()[-1]) == ends)
    ]


def _near_first_name(name: str, first_names: Sequence[str]) -> str | None:
    """A person with the nearest known first name that is another one, `Paula` for `Paul`: of the pairs of persons of
    one family name in the general base whose known first names are one letter apart, 25 of 666 are one person.
    """
    words = name.split()
    if len(words) != 2 or not words[1].isalpha():
        return None
    one = string_features(words[0])
    others = [other for other in first_names if other_known_name(one, string_features(other))]
    if not others:
        return None
    return f"{min(others, key=lambda other: OSA.distance(other.lower(), one.folded))} {words[1]}"


def _near_word(name: str, near: Mapping[str, Sequence[str]], rng: random.Random) -> str | None:
    """The name with one word replaced by a word of near meaning."""
    words = name.split()
    places = [i for i, word in enumerate(words) if word.lower() in near]
    if len(words) < 2 or not places:
        return None
    at = rng.choice(places)
    other = rng.choice(list(near[words[at].lower()]))
    words[at] = other.capitalize() if words[at][0].isupper() else other
    return " ".join(words)


_NOT_NOUNS = SMALL_WORDS | frozenset(("incorporate", "company", "companie"))


def near_words(encoder: Encoder, *, least: int = 300, n: int = 12) -> dict[str, list[str]]:
    """English words with those of the nearest vectors, without other forms of the same word."""
    words = [word for word in english_words()[least:] if len(word) > 3 and variant_word(word) not in _NOT_NOUNS]
    vectors = np.asarray(encoder.encode(words).vectors, np.float32)
    found = {}
    for start in range(0, len(words), 1000):
        best = np.argsort(-(vectors[start : start + 1000] @ vectors.T), axis=1)[:, : n + 20]
        for word, row in zip(words[start : start + 1000], best.tolist(), strict=True):
            others = [
                words[i] for i in row if words[i][:4] != word[:4] and variant_word(words[i]) != variant_word(word)
            ]
            found[word] = others[:n]
    return found
