"""Measure encoders on development data, which has none of the evaluation sets; models are chosen by it.

python runs/development.py MODEL ... --data FOLDER --wordnet FOLDER

aliases      accuracy@1 of aliases of entities in the development splits: four ontologies, Wikidata's of FB15k,
             GeoNames, by cosine among canonical names; and names with one character edited
relatedness  Pearson of the cosine with how related two-word nouns of WordNet are: synonyms, hypernyms, siblings,
             unrelated ones, unrelated ones that share a word
clusters     NMI of k-means over typed names of the development splits: people, places, organisations
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import numpy.typing as npt
from recipe_tables import read_tsv

from pearl_qdrant.cells import split_list
from pearl_qdrant.encoder.loading import load_encoder
from training.augment import edit_character
from training.examples.splits import DEVELOPMENT_SPLITS, name_key, split_of
from training.examples.wordnet import read_synsets

FloatArray = npt.NDArray[np.float32]

ONTOLOGIES = ("doid", "uberon", "cl", "go")
CLUSTERS = {"PERSON": "person", "GPE": "place", "LOC": "place", "ORG": "organisation"}
N_MENTIONS = 600
N_OTHERS = 6_000
"""Names of other entities among which mentions of the general base are searched; half as many for an ontology."""
N_PAIRS = 6_000
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


@dataclass(frozen=True, slots=True)
class Development:
    """The development data.

    Attributes:
        aliases: Bases with mentions.
        pairs: Two phrases and their relatedness, 0 to 1.
        typed: (name, cluster).
    """

    aliases: tuple[AliasSet, ...]
    pairs: tuple[tuple[str, str, float], ...]
    typed: tuple[tuple[str, str], ...]

    def names(self) -> list[str]:
        """Return every string once."""
        of_sets = (name for found in self.aliases for name, _ in (*found.names, *found.mentions))
        of_pairs = (name for first, second, _ in self.pairs for name in (first, second))
        return list(dict.fromkeys([*of_sets, *of_pairs, *(name for name, _ in self.typed)]))

    def scores(self, vectors: FloatArray) -> dict[str, float]:
        """Return the figures in percent, by name.

        Args:
            vectors: Vectors of `names()`, (n, dim), L2-normalised.
        """
        place = {name: i for i, name in enumerate(self.names())}

        def rows(names: Iterator[str]) -> FloatArray:
            found: FloatArray = vectors[[place[name] for name in names]]
            return found

        scores = {}
        for found in self.aliases:
            similarity = rows(a for a, _ in found.mentions) @ rows(name for name, _ in found.names).T
            right = 0.0
            for row, (_, gold) in zip(similarity, found.mentions, strict=True):
                first = np.flatnonzero(row >= row.max() - 1e-6)
                right += sum(found.names[i][1] == gold for i in first) / len(first)
            scores[found.name] = 100 * right / len(found.mentions)
        scores["aliases"] = float(np.mean(list(scores.values())))
        cosines = (rows(first for first, *_ in self.pairs) * rows(second for _, second, _ in self.pairs)).sum(1)
        scores["relatedness"] = 100 * float(np.corrcoef(cosines, [related for *_, related in self.pairs])[0, 1])
        scores["clusters"] = _nmi(rows(name for name, _ in self.typed), [kind for _, kind in self.typed])
        return scores


def read_development(data: Path, wordnet: Path) -> Development:
    """Read the development data; deterministic."""
    rng = random.Random(5)
    aliases = read_aliases(data, rng)
    return Development(tuple(aliases), tuple(related_pairs(wordnet, rng)), tuple(typed_names(data, rng)))


def read_aliases(
    data: Path, rng: random.Random, *, n_mentions: int = N_MENTIONS, n_others: int = N_OTHERS
) -> list[AliasSet]:
    """Read mentions of entities in the development splits, at most `n_mentions` a base, and names around them."""
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


def related_pairs(wordnet: Path, rng: random.Random, n: int = N_PAIRS) -> Iterator[tuple[str, str, float]]:
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


def _nmi(vectors: FloatArray, labels: Sequence[str]) -> float:
    from sklearn.cluster import KMeans
    from sklearn.metrics import normalized_mutual_info_score

    found = [KMeans(len(set(labels)), n_init=3, random_state=seed).fit_predict(vectors) for seed in range(3)]
    return 100 * float(np.mean([normalized_mutual_info_score(labels, clusters) for clusters in found]))


def as_line(name: str, scores: dict[str, float]) -> str:
    """Format a line of the table."""
    return f"{name}: " + ", ".join(f"{key} {value:.1f}" for key, value in scores.items())


@click.command()
@click.argument("models", nargs=-1, required=True)
@click.option("--data", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--wordnet", type=click.Path(path_type=Path, exists=True), required=True)
def main(models: tuple[str, ...], data: Path, wordnet: Path) -> None:
    """Measure encoders: folders, hub ids or names."""
    development = read_development(data, wordnet)
    for model in models:
        vectors = load_encoder(model, device="cpu").encode(development.names()).vectors
        click.echo(as_line(model, development.scores(vectors)))


if __name__ == "__main__":
    main()
