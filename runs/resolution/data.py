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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from recipe_tables import read_tsv

from pearl_qdrant.cells import split_list
from pearl_qdrant.lexical.ngrams import fold_name
from training.examples.example import DEVELOPMENT_SPLITS, TRAIN_SPLITS, split_of

SIZE = 20_000
TRAINING_SIZE = 20_000
DISEASES = "mondo_2026"
SAME_DISEASES = ("doid_2024", "ordo_2018")


@dataclass(frozen=True, slots=True)
class GoldName:
    """A name with the entity that it means.

    Attributes:
        name: The string.
        gold: The entity.
        type: Its type in the source, or "".
        source: Where it was found (a document), or "".
    """

    name: str
    gold: str
    type: str = ""
    source: str = ""


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
            aliases = split_list(row.get("aliases") or "")
            scopes = (row.get("alias_scopes") or "").split("|") if row.get("alias_scopes") else ["EXACT"] * len(aliases)
            exact = [a for a, scope in zip(aliases, scopes, strict=False) if scope == "EXACT"]
            yield _Entity(f"{path.stem}:{row['id']}", tuple(dict.fromkeys((row["name"], *exact))), "")


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
