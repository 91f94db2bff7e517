"""Measures `resolve` on names whose entities are known, no collection given, beside what others do with such names.

    python benchmarks/resolution/measure.py --data FOLDER

The sets are those of `runs/resolution/data.py`: at most 20,000 names of development entities each, of which the trees
have learned some (`runs/resolution/model.py` prints cross-fitted figures); with --graphs those that are like lists of
extraction, most things with one name. Names that two entities of a
set share are given to all methods and left out of the figures: nothing but a context could tell which entity they mean.
--precision tries another precision. Columns:

    pair P, pair R    share of the pairs in one cluster that are of one entity, and the other way round
    B3 P, B3 R        mean over names of the share of its cluster that is of its entity, and the other way round
                      (B-cubed: Bagga and Baldwin 1998)
    mixed             clusters of more than 50 names with two entities of at least 10 names each

What others do with the names of a graph:

    exact             equal folded names (`lexical.ngrams.fold_name`); LightRAG and GraphRAG compare keys that are less
                      folded
    token sort        rapidfuzz's token_sort_ratio at a cutoff, pairs joined by union-find
    HippoRAG          an edge at a cosine of 0.8 between the vectors of two names, connected components
    KAG               each name is joined with its nearest name by vector, if that has the same type
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt
from rapidfuzz import fuzz, process
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "runs"))

from resolution.data import GoldName, development_sets, graph_sets, near_words  # noqa: E402

from pearl_qdrant.encoder.loading import load_encoder  # noqa: E402
from pearl_qdrant.lexical.keys import spelling_key  # noqa: E402
from pearl_qdrant.lexical.ngrams import fold_name  # noqa: E402
from pearl_qdrant.resolution import NameRecord, resolve  # noqa: E402
from pearl_qdrant.resolution.resolving import DEFAULT_PRECISION  # noqa: E402
from training.examples.example import DEVELOPMENT_SPLITS  # noqa: E402

FloatArray = npt.NDArray[np.float32]
_BLOCK = 1000
TOKEN_SORT = (80.0, 85.0, 90.0, 95.0)
COSINES = (0.8, 0.9)


def clear(names: Sequence[GoldName]) -> list[bool]:
    """Whether one entity alone has the name."""
    owners: dict[tuple[str, str], set[str]] = {}
    keys = [(spelling_key(fold_name(one.name)), one.type) for one in names]
    for key, one in zip(keys, names, strict=True):
        owners.setdefault(key, set()).add(one.gold)
    return [len(owners[key]) == 1 for key in keys]


def agreement(gold: Sequence[Hashable], found: Sequence[Hashable]) -> tuple[float, float, float, float, float, int]:
    """Precision and recall of pairs, those and F1 of B-cubed, and mixed clusters, from the entity and the cluster of
    each of n names.
    """
    both, of_gold, of_found = Counter(zip(gold, found, strict=True)), Counter(gold), Counter(found)
    pairs, of_clusters, of_entities = (
        sum(n * (n - 1) // 2 for n in counts.values()) for counts in (both, of_found, of_gold)
    )
    precision = sum(n * n / of_found[cluster] for (_, cluster), n in both.items()) / max(len(gold), 1)
    recall = sum(n * n / of_gold[entity] for (entity, _), n in both.items()) / max(len(gold), 1)
    large = Counter(cluster for (_, cluster), n in both.items() if n >= 10 and of_found[cluster] > 50)
    return (
        pairs / max(of_clusters, 1),
        pairs / max(of_entities, 1),
        precision,
        recall,
        2 * precision * recall / max(precision + recall, 1e-12),
        sum(n > 1 for n in large.values()),
    )


def show(method: str, names: Sequence[GoldName], clusters: Sequence[Hashable], seconds: float) -> None:
    """Print a row."""
    kept = [i for i, is_clear in enumerate(clear(names)) if is_clear]
    *figures, mixed = agreement([names[i].gold for i in kept], [clusters[i] for i in kept])
    print(f"{method:24}" + "".join(f"{100 * value:8.1f}" for value in figures) + f"{mixed:6}{seconds:8.0f}", flush=True)


def components(n: int, pairs: npt.NDArray[np.int64]) -> list[int]:
    """The connected component of each of n names, of the numbers of names that are joined, (p, 2)."""
    graph = coo_array((np.ones(len(pairs), np.int8), (pairs[:, 0], pairs[:, 1])), shape=(n, n))
    found: list[int] = connected_components(graph, directed=False)[1].tolist()
    return found


def _pairs_above(blocks: Iterator[npt.NDArray[Any]], cutoffs: Sequence[float]) -> dict[float, npt.NDArray[np.int64]]:
    """Pairs of names with at least a score, for each cutoff, from blocks of rows of their matrix of scores."""
    rows, columns, scores, start = [], [], [], 0
    for block in blocks:
        i, j = np.nonzero(block >= min(cutoffs))
        is_above = start + i < j
        rows.append(start + i[is_above])
        columns.append(j[is_above])
        scores.append(block[i, j][is_above])
        start += len(block)
    pairs = np.stack((np.concatenate(rows), np.concatenate(columns)), axis=1)
    every = np.concatenate(scores)
    return {cutoff: pairs[every >= cutoff] for cutoff in cutoffs}


def exact(names: Sequence[str]) -> list[str]:
    """Clusters of equal folded names; a name without letters and digits is alone."""
    return [fold_name(name) or f"\0{name}" for name in names]


def token_sort(names: Sequence[str], cutoffs: Sequence[float]) -> dict[float, list[int]]:
    """Clusters for each cutoff in [0, 100], by union-find over all pairs."""
    folded = exact(names)
    distinct = list(dict.fromkeys(folded))
    number = {name: i for i, name in enumerate(distinct)}
    sorted_words = [" ".join(sorted(name.split())) for name in distinct]
    blocks = (
        process.cdist(
            sorted_words[start : start + _BLOCK],
            sorted_words,
            scorer=fuzz.ratio,
            score_cutoff=min(cutoffs),
            dtype=np.uint8,
            workers=2,
        )
        for start in range(0, len(distinct), _BLOCK)
    )
    found = {}
    for cutoff, pairs in _pairs_above(blocks, cutoffs).items():
        sets = components(len(distinct), pairs)
        found[cutoff] = [sets[number[name]] for name in folded]
    return found


def cosine(vectors: FloatArray, cutoffs: Sequence[float]) -> dict[float, list[int]]:
    """Connected components of the graph of pairs with at least that cosine, for each cutoff."""
    blocks = (vectors[start : start + _BLOCK] @ vectors.T for start in range(0, len(vectors), _BLOCK))
    return {cutoff: components(len(vectors), pairs) for cutoff, pairs in _pairs_above(blocks, cutoffs).items()}


def nearest_of_label(vectors: FloatArray, types: Sequence[str]) -> list[int]:
    """Each name joined with the nearest one of its type."""
    codes = np.unique(np.array(types), return_inverse=True)[1]
    pairs = []
    for start in range(0, len(vectors), _BLOCK):
        scores = vectors[start : start + _BLOCK] @ vectors.T
        rows = np.arange(len(scores))
        scores[rows, start + rows] = -2.0
        scores[codes[start : start + _BLOCK, None] != codes[None, :]] = -2.0
        best = scores.argmax(axis=1)
        is_found = scores[rows, best] > -2.0
        pairs.append(np.stack((start + rows[is_found], best[is_found]), axis=1))
    return components(len(vectors), np.concatenate(pairs))


@click.command()
@click.option("--data", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--only", multiple=True, help="A set; may be repeated.")
@click.option("--size", type=int, default=20_000)
@click.option("--precision", type=float, default=DEFAULT_PRECISION)
@click.option("--graphs", is_flag=True, help="Measure the sets that are like lists of extraction.")
@click.option("--peers/--no-peers", default=True)
def main(data: Path, only: tuple[str, ...], size: int, precision: float, graphs: bool, peers: bool) -> None:
    """Print a table for each set."""
    encoder = load_encoder(device="cpu")
    sets = development_sets(data, size) if not graphs else graph_sets(
        data, DEVELOPMENT_SPLITS, near_words(encoder), "dev", size
    )  # fmt: skip
    for stem, names in sets.items():
        if only and stem not in only:
            continue
        print(f"\n{stem}: {len(names):,} names of {len({one.gold for one in names}):,} entities")
        print(f"{'%':24}{'pair P':>8}{'pair R':>8}{'B3 P':>8}{'B3 R':>8}{'B3 F1':>8}{'mixed':>6}{'s':>8}")
        start = time.process_time()
        records = [NameRecord(one.name, one.type, one.source) for one in names]
        found = resolve(records, encoder=encoder, precision=precision)
        show("resolve", names, [found.node(record) for record in records], time.process_time() - start)
        if peers:
            print_peers(names, encoder)


def print_peers(names: Sequence[GoldName], encoder: object) -> None:
    """Print a row for what others do."""
    strings = [one.name for one in names]
    show("exact folded names", names, exact(strings), 0)
    start = time.process_time()
    for cutoff, sets in token_sort(strings, TOKEN_SORT).items():
        show(f"token sort {cutoff:.0f}", names, sets, time.process_time() - start)
    distinct = list(dict.fromkeys((one.name, one.type) for one in names))
    place = {key: i for i, key in enumerate(distinct)}
    rows = [place[(one.name, one.type)] for one in names]
    start = time.process_time()
    vectors = np.asarray(encoder.encode([name for name, _ in distinct]).vectors)  # type: ignore[attr-defined]
    for cutoff, found in cosine(vectors, COSINES).items():
        show(f"cosine {cutoff} (HippoRAG)", names, [found[row] for row in rows], time.process_time() - start)
    nearest = nearest_of_label(vectors, [type_ for _, type_ in distinct])
    show("top-1 of a label (KAG)", names, [nearest[row] for row in rows], time.process_time() - start)


if __name__ == "__main__":
    main()
