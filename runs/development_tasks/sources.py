"""Names of the development splits, which no evaluation set has: aliases of entities, nouns of WordNet, typed names."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from recipe_tables import read_tsv

from pearl_qdrant.cells import split_list
from training.augment.draw import edit_character
from training.examples.example import DEVELOPMENT_SPLITS, name_key, split_of
from training.examples.wordnet import read_synsets

ONTOLOGIES = ("doid", "uberon", "cl", "go")
CLUSTERS = {"PERSON": "person", "GPE": "place", "LOC": "place", "ORG": "organisation"}
N_TYPED = 1_500


@dataclass(frozen=True, slots=True)
class AliasSet:
    """Names of entities, and mentions of some of them.

    Attributes:
        names: (name, entity id).
        mentions: (alias, entity id).
    """

    name: str
    names: tuple[tuple[str, str], ...]
    mentions: tuple[tuple[str, str], ...]


def read_aliases(data: Path, rng: random.Random, *, n_mentions: int, n_others: int) -> list[AliasSet]:
    """Read mentions of entities in the development splits, at most `n_mentions` a base, and names around them.

    Args:
        data: Folder of the data.
        rng: Draws both.
        n_mentions: Of a base, at most.
        n_others: Names of other entities of the general base; half as many for an ontology.
    """
    aliases = []
    for kb in ONTOLOGIES:
        (path,) = (data / "kb" / "biomedical").glob(f"{kb}[_.]*")
        aliases.append(_of_ontology(path, kb, rng, n_mentions, n_others // 2))
    general = [(row["name"], row["id"]) for row in read_tsv(data / "kb" / "general.tsv")]
    others = rng.sample(general, min(n_others, len(general)))
    for path in sorted((data / "alias_pairs").glob("*.tsv")):
        pairs = [(row["alias"], row["id"], row["canonical"]) for row in read_tsv(path)]
        held_out = [pair for pair in pairs if split_of(pair[1]) in DEVELOPMENT_SPLITS and pair[0] != pair[2]]
        chosen = rng.sample(held_out, min(n_mentions, len(held_out)))
        names = dict.fromkeys([*((canonical, i) for _, i, canonical in chosen), *others])
        aliases.append(AliasSet(path.stem.partition("_")[0], tuple(names), tuple((a, i) for a, i, _ in chosen)))
    misspelt = tuple((edit_character(name, rng), i) for name, i in others[:n_mentions])
    return [*aliases, AliasSet("misspelt", tuple(others), misspelt)]


def _of_ontology(path: Path, kb: str, rng: random.Random, n_mentions: int, n_others: int) -> AliasSet:
    rows = list(read_tsv(path))
    held_out = [row for row in rows if split_of(row["id"]) in DEVELOPMENT_SPLITS]
    mentions = [(alias, row["id"]) for row in held_out for alias in split_list(row["aliases"])]
    chosen = rng.sample(mentions, min(n_mentions, len(mentions)))
    gold = {i for _, i in chosen}
    names = [(row["name"], row["id"]) for row in rows]
    others = [name for name in names if name[1] not in gold]
    others = rng.sample(others, min(n_others, len(others)))
    return AliasSet(kb, (*(name for name in names if name[1] in gold), *others), tuple(chosen))


def related_pairs(wordnet: Path, rng: random.Random, n: int) -> Iterator[tuple[str, str, float]]:
    """Yield pairs whose first phrase is a noun of two words, five kinds in equal parts."""
    synsets = {synset.synset_id: synset for synset in read_synsets(wordnet) if synset.synset_id.startswith("noun")}
    below: dict[str, list[str]] = {}
    for synset in synsets.values():
        for parent in synset.hypernyms:
            below.setdefault(parent, []).append(synset.synset_id)
    two = {
        i: [name for name in synset.names if name.count(" ") == 1 and name.islower()] for i, synset in synsets.items()
    }
    starts = [i for i, names in two.items() if names]
    by_word: dict[str, list[str]] = {}
    for i in starts:
        for word in {word for name in two[i] for word in name.split()}:
            by_word.setdefault(word, []).append(i)
    made = 0
    while made < n:
        start = rng.choice(starts)
        name = rng.choice(two[start])
        above = synsets[start].hypernyms
        siblings = [other for parent in above for other in below[parent] if other != start]
        kind = made % 5
        if kind == 0:
            others, related = [n for n in synsets[start].names if n != name and n.islower()], 1.0
        elif kind == 1:
            others, related = [n for parent in above for n in two[parent]], 0.7
        elif kind == 2:
            others, related = [n for i in siblings for n in two[i]], 0.5
        elif kind == 3:
            others, related = two[rng.choice(starts)], 0.0
        else:
            near = {start, *above, *siblings, *below.get(start, ())}
            sharing = [i for word in name.split() for i in by_word[word] if i not in near]
            others, related = [n for i in sharing for n in two[i] if set(n.split()) & set(name.split())], 0.15
        if others:
            made += 1
            yield name, rng.choice(others), related


def typed_names(data: Path, rng: random.Random) -> Iterator[tuple[str, str]]:
    """Yield names of the development splits that have one type, with their cluster."""
    by_cluster: dict[str, set[str]] = {cluster: set() for cluster in CLUSTERS.values()}
    for row in read_tsv(data / "typed_names" / "onto_typed_names.tsv"):
        is_sure = row["n_types_for_name"] == "1" and row["onto_type"] in CLUSTERS
        if is_sure and split_of(name_key(row["name"])) in DEVELOPMENT_SPLITS:
            by_cluster[CLUSTERS[row["onto_type"]]].add(row["name"])
    for cluster, names in by_cluster.items():
        yield from ((name, cluster) for name in rng.sample(sorted(names), min(N_TYPED, len(names))))
