"""Measures how often a graph search misses the nearest name, by kind of mention and number of candidates (ef).

    python benchmarks/graph_recall.py STORE COLLECTION [--mentions 1000] [--ef 64 --ef 128 --ef 256 --ef 384]

The collection must be an embedded one with a graph. An exact search over the full-precision vectors says which name is
nearest; names with equal scores count as one. The table in `pearl_qdrant/store/graph.py` comes from here.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

import click
import numpy as np
from qdrant_edge import QuantizationSearchParams, Query, QueryBatchRequest, QueryRequest, SearchParams

from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import FloatArray
from pearl_qdrant.store.edge.collection import EdgeCollection
from pearl_qdrant.store.edge.store import EdgeStore
from pearl_qdrant.store.graph import OVERSAMPLING
from pearl_qdrant.store.schema import DENSE

LIMIT = 16
BATCH = 32
SAME = 1e-6  # cosines closer than this count as equal


def misspell(name: str, rng: random.Random) -> str:
    """The name with one character dropped, replaced, added, or swapped with the next."""
    i, letter = rng.randrange(len(name)), rng.choice("abcdefghijklmnopqrstuvwxyz")
    left, here, right = name[:i], name[i : i + 1], name[i + 1 :]
    return rng.choice(
        (left + right, left + letter + here + right, left + letter + right, left + right[:1] + here + right[1:])
    )


def kinds(names: Sequence[str], rng: random.Random) -> dict[str, list[str]]:
    """Mentions made from names, by kind."""
    ways: dict[str, Callable[[str], str]] = {
        "as they stand": lambda name: name,
        "one slip": lambda name: misspell(name, rng),
        "two slips": lambda name: misspell(misspell(name, rng) or name, rng),
        "spaces left out": lambda name: name.replace(" ", ""),
        "x NAME": lambda name: f"x {name}",
        "NAME in children with fever": lambda name: f"{name} in children with fever",
        "reversed": lambda name: name[::-1],
    }
    return {kind: [way(name) for name in names] for kind, way in ways.items()}


def scores(collection: EdgeCollection, vectors: FloatArray, params: SearchParams) -> tuple[list[list[float]], float]:
    """Scores of the results of each vector, and microseconds of processor time a query."""
    found: list[list[float]] = []
    start = time.process_time()
    for row in range(0, len(vectors), BATCH):
        requests = [
            QueryRequest(
                query=Query.Nearest(memoryview(np.ascontiguousarray(vector)), using=DENSE),  # type: ignore[arg-type]
                limit=LIMIT,
                params=params,
                with_payload=False,
            )
            for vector in vectors[row : row + BATCH]
        ]
        with collection._folder.shard("searching it") as shard:
            found += [[point.score for point in points] for points in shard.query_batch(QueryBatchRequest(requests))]
    return found, 1e6 * (time.process_time() - start) / len(vectors)


@click.command()
@click.argument("store", type=click.Path(exists=True, path_type=Path))
@click.argument("name")
@click.option("--mentions", default=1000, show_default=True)
@click.option("--ef", "efs", type=int, multiple=True, default=(64, 128, 256, 384), show_default=True)
def main(store: Path, name: str, mentions: int, efs: tuple[int, ...]) -> None:
    """Measure and print a table."""
    rng = random.Random(1)
    collection = EdgeStore(store).open(name)
    manifest = collection.manifest
    encoder = load_encoder(manifest.model, device="cpu", pooling=manifest.pooling, prefix=manifest.prefix)
    names = [point.name for point in islice(collection.scroll(), 20 * mentions)]  # ids are hashes: a random sample
    rescore = QuantizationSearchParams(rescore=True, oversampling=OVERSAMPLING[manifest.quantization])
    exact = SearchParams(exact=True, quantization=QuantizationSearchParams(ignore=True))
    print(f"{'nearest name missed, %':<30}" + "".join(f"{f'ef {ef}':>16}" for ef in efs))
    for kind, texts in kinds(rng.sample(names, min(mentions, len(names))), rng).items():
        encoded = encoder.encode(texts)
        vectors = encoded.vectors[encoded.encodable]
        right, _ = scores(collection, vectors, exact)
        row = ""
        for ef in efs:
            found, cost = scores(collection, vectors, SearchParams(hnsw_ef=ef, quantization=rescore))
            missed = [not ours or ours[0] < best[0] - SAME for ours, best in zip(found, right, strict=True)]
            row += f"{100 * np.mean(missed):>8.2f} {cost:>4.0f} us"
        print(f"{kind:<30}{row}")


if __name__ == "__main__":
    main()
