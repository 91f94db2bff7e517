"""Measures what HTTP costs the client: links and uploads, compared with the embedded store.

    python benchmarks/server_http.py [--data BASE.tsv] [--links 300]

A server in another process answers at once from recorded bodies (`replay_server.py`), and stalls on compressed answers
as a real one does. So the figures are the cost of our client and of the connection, without Qdrant's own work.
"""

from __future__ import annotations

import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
import numpy as np

from ingest.base.scan import scan
from ingest.formats import open_reader
from ingest.io.report import ReadReport
from ingest.load.pipeline import ingest
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.settings import DEFAULT_MODEL
from pearl_qdrant.store.edge.store import EdgeStore
from pearl_qdrant.store.points import plain_points
from pearl_qdrant.store.protocol import Store
from pearl_qdrant.store.schema import Manifest
from pearl_qdrant.store.server.store import ServerStore

HERE = Path(__file__).resolve().parent
COLLECTION = "bench"


def load(base: Path, store: Path, encoder: Encoder) -> list[str]:
    """Ingest a base into an embedded store; returns its names."""
    with open_reader([base], "tsv") as reader:
        scanned = scan(reader)
        manifest = Manifest.for_model(encoder.info, collection=COLLECTION, kb=COLLECTION)
        collection = EdgeStore(store).create(manifest)
        ingest(reader, scanned, encoder, collection, max_errors=None)
        collection.close()
        return [name for entity in reader.read(ReadReport(max_errors=None)) for name in entity.names()]


def misspelt(name: str, rng: random.Random) -> str:
    """The name with two neighbouring characters swapped."""
    i = rng.randrange(max(1, len(name) - 1))
    return name[:i] + name[i + 1 : i + 2] + name[i : i + 1] + name[i + 2 :]


@contextmanager
def replaying(store: Path) -> Iterator[str]:
    """Run the server in another process; yields its URL."""
    command = [sys.executable, str(HERE / "replay_server.py"), str(store), COLLECTION, "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


def time_links(linker: EntityLinker, mentions: Sequence[str]) -> tuple[float, float, float]:
    """Milliseconds of a link (p50 and p99), and links a second in a batch."""
    times = []
    for mention in mentions:
        start = time.perf_counter()
        linker.link(mention)
        times.append(1e3 * (time.perf_counter() - start))
    many = list(mentions) * 4
    start = time.perf_counter()
    assert len(list(linker.link_batch(many))) == len(many)
    rate = len(many) / (time.perf_counter() - start)
    return statistics.median(times), float(np.quantile(times, 0.99)), rate


def compare(linkers: dict[str, EntityLinker], mentions: Sequence[str], rounds: int) -> dict[str, list[list[float]]]:
    """`time_links` of each linker in turn. The first round is not counted: the server still computes its answers."""
    found: dict[str, list[list[float]]] = {where: [] for where in linkers}
    for i in range(rounds + 1):
        for where, linker in linkers.items():
            row = time_links(linker, mentions)
            if i:
                found[where].append(list(row))
    return found


def time_upload(url: str, base: Path, encoder: Encoder, n_names: int) -> tuple[float, float]:
    """Processor seconds of this process for 1,000 names with random vectors, and names a second."""
    store = ServerStore.connect(url)
    collection = store.open(COLLECTION)
    with open_reader([base], "tsv") as reader:
        points = plain_points(COLLECTION, reader.read(ReadReport(max_errors=None)))
    points = [points[i % len(points)] for i in range(n_names)]
    vectors = np.random.default_rng(0).standard_normal((n_names, encoder.info.dim)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    encodable = np.ones(n_names, dtype=np.bool_)
    with collection.writer() as writer:
        start, used = time.perf_counter(), time.process_time()
        for i in range(0, n_names, 8192):
            part = slice(i, i + 8192)
            writer.write(points[part], vectors[part], encodable[part])
        writer.flush()
        seconds, used = time.perf_counter() - start, time.process_time() - used
    store.close()
    return 1000 * used / n_names, n_names / seconds


@click.command()
@click.option("--data", type=click.Path(path_type=Path), default=HERE.parent / "examples" / "sample_base.tsv")
@click.option("--links", default=300, show_default=True)
@click.option("--uploads", default=20_000, show_default=True)
@click.option("--rounds", default=5, show_default=True)
def main(data: Path, links: int, uploads: int, rounds: int) -> None:
    """Measure and print a table of medians over the rounds."""
    encoder = load_encoder(DEFAULT_MODEL, device="cpu")
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        store, copy = Path(folder) / "store", Path(folder) / "copy"
        names = load(data, store, encoder)
        shutil.copytree(store, copy)
        chosen = rng.sample(names, min(links, len(names)))
        kinds = {"as they stand": chosen, "misspelt": [misspelt(name, rng) for name in chosen]}
        with replaying(copy) as url:
            stores: dict[str, Store] = {"embedded": EdgeStore(store), "http": ServerStore.connect(url)}
            linkers = {where: EntityLinker(one, [one.open(COLLECTION)], encoder) for where, one in stores.items()}
            rows = {kind: compare(linkers, mentions, rounds) for kind, mentions in kinds.items()}
            for linker in linkers.values():
                linker.close()
            upload = time_upload(url, data, encoder, uploads)
    print(f"{'mentions':<16}{'store':<10}{'p50 ms':>8}{'p99 ms':>8}{'links/s':>9}")
    for kind, found in rows.items():
        for where, measured in found.items():
            p50, p99, rate = np.median(measured, axis=0)
            print(f"{kind:<16}{where:<10}{p50:>8.1f}{p99:>8.1f}{rate:>9.0f}")
    for kind, found in rows.items():
        ours, theirs = np.array(found["embedded"]), np.array(found["http"])
        more, share = np.median(theirs[:, 0] - ours[:, 0]), np.median(theirs[:, 2] / ours[:, 2])
        print(f"{kind}: a link takes {more:+.1f} ms over HTTP, a batch makes {share:.2f} of the rate")
    print(f"upload: {upload[0]:.3f} s of processor time for 1,000 names, {upload[1]:,.0f} names/s")


if __name__ == "__main__":
    main()
