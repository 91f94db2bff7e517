"""Measures the embedded store by the number of names: rates, memory and disk at 10^4, 10^5 and 10^6 invented names.

    python benchmarks/sizing.py --names 10000 --names 100000 --names 1000000

Reader, pipeline and store are the real ones; the encoder is a stand-in that costs next to nothing, so that the store
alone is measured. Its vector of a name is the normalised sum of random vectors of the words, so that names which share
words are near each other, as with a real encoder. Rates are names a second. Memory is the highest sum of anonymous
memory over all processes, with mapped files in another column. `docs/scaling.md` applies the figures to UMLS, YAGO and
Wikidata.
"""

from __future__ import annotations

import os
import platform
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from unittest.mock import patch
from zlib import crc32

import click
import numpy as np
from memory import peak_memory

from ingest.base.format import ReadOptions
from ingest.formats import open_reader
from ingest.io.report import ReadReport
from ingest.load_base import load_base
from pearl_qdrant.encoder.protocol import BoolArray, Encoded, FloatArray, ModelInfo
from pearl_qdrant.phrase_types import ENTITY_TYPES, PHRASE_TYPES
from pearl_qdrant.records import Entity
from pearl_qdrant.store.edge.collection import EdgeCollection
from pearl_qdrant.store.edge.store import EdgeStore
from pearl_qdrant.store.protocol import Collection

DIM = 384
N_WORDS = 20_000
SEARCHES = 500


class WordEncoder:
    """A stand-in for an encoder, at almost no cost."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self._words: FloatArray = rng.standard_normal((N_WORDS, DIM), dtype=np.float32)
        n_types = len(PHRASE_TYPES)
        self._types: FloatArray = rng.dirichlet(np.full(n_types, 0.05), 1000).astype(np.float32)

    @property
    def info(self) -> ModelInfo:
        """Description of a model that does not exist."""
        return ModelInfo("words", "sha256:" + "0" * 64, DIM, "mean", "", True, "cpu", "fp32", "numpy")

    def encode(self, names: Sequence[str]) -> Encoded:
        """As `Encoder.encode`."""
        vectors = np.zeros((len(names), DIM), dtype=np.float32)
        for row, name in zip(vectors, names, strict=True):
            for word in name.split():
                row += self._words[crc32(word.encode()) % N_WORDS]
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        rows = np.fromiter((crc32(name.encode()) % 1000 for name in names), dtype=np.int64, count=len(names))
        encodable: BoolArray = np.ones(len(names), dtype=np.bool_)
        return Encoded(vectors, encodable, self._types[rows])


def write_base(path: Path, n_names: int) -> None:
    """Write a base of `n_names` names, 2.5 an entity as in UMLS."""
    rng = random.Random(0)
    words = [f"w{i}" for i in range(2 * N_WORDS)]
    written = number = 0
    with path.open("w", encoding="utf-8") as file:
        file.write("id\tname\ttype\taliases\tsource\n")
        while written < n_names:
            n = min(rng.choice((1, 2, 2, 3, 3, 4)), n_names - written)
            names = [" ".join(rng.choices(words, k=rng.randint(1, 4))) + f" {number}" for _ in range(n)]
            file.write(f"E{number}\t{names[0]}\t{rng.choice(ENTITY_TYPES)}\t{'|'.join(names[1:])}\tmade up\n")
            written += n
            number += 1


def measure(n_names: int, folder: Path) -> tuple[str, ...]:
    """One row of the table."""
    encoder = WordEncoder()
    path = folder / "base.tsv"
    write_base(path, n_names)
    store = EdgeStore(folder / "store")
    with peak_memory() as loading, patch.object(EdgeCollection, "finalize"):
        result = load_base(path, "size", store=store, model=encoder, kind="tsv", max_errors=0)
    collection = store.open("size")
    start = time.perf_counter()
    with peak_memory() as building:
        collection.finalize()
    index_seconds = time.perf_counter() - start
    names = [entity.canonical_name for entity in _some(path)]
    vectors = encoder.encode(names).vectors
    with peak_memory() as serving:
        query_ms = _milliseconds(collection, vectors)
        time.sleep(0.3)
    store.close()
    disk = sum(file.stat().st_blocks * 512 for file in (folder / "store").rglob("*"))
    return (
        f"{n_names:,}",
        f"{n_names / result.seconds:,.0f}",
        f"{n_names / index_seconds:,.0f}",
        f"{loading.anonymous:,.0f}",
        f"{building.anonymous:,.0f}",
        f"{serving.anonymous:,.0f}",
        f"{serving.file_backed:,.0f}",
        f"{disk / n_names / 1e3:.2f}",
        f"{query_ms:.1f}",
    )


def _some(path: Path) -> list[Entity]:
    """The first entities of a base."""
    with open_reader([path], "tsv", ReadOptions(limit=SEARCHES)) as reader:
        return list(reader.read(ReadReport()))


def _milliseconds(collection: Collection, vectors: FloatArray) -> float:
    """Milliseconds of a search, after some that warm up."""
    collection.search(vectors[:50], limit=15)
    start = time.perf_counter()
    for row in vectors:
        collection.search(row[None], limit=15)
    return (time.perf_counter() - start) / len(vectors) * 1e3


@click.command()
@click.option("--names", "sizes", multiple=True, type=int, default=(10_000, 100_000), show_default=True)
@click.option("--work", type=click.Path(path_type=Path, file_okay=False), help="Folder for stores.")
def main(sizes: tuple[int, ...], work: Path | None) -> None:
    """Measure all sizes and print a table."""
    click.echo(f"{platform.machine()}, {os.cpu_count()} cores, Python {sys.version.split()[0]}; memory in MB")
    header = ("names", "write/s", "graph/s", "load", "graph", "serve", "mapped", "KB a name", "query ms")
    click.echo("".join(f"{cell:>11}" for cell in header))
    for size in sizes:
        # Each size in a new process: memory freed by an earlier one would hide what this one takes.
        with (
            tempfile.TemporaryDirectory(dir=work) as folder,
            ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool,
        ):
            cells = pool.submit(measure, size, Path(folder)).result()
        click.echo("".join(f"{cell:>11}" for cell in cells))


if __name__ == "__main__":
    main()
