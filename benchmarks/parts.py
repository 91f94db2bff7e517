"""Measures loads in parts: workers of Ray beside two plain processes that build the same parts, and one process.

    python benchmarks/parts.py --names 20000 --turns 2          the shipped model
    python benchmarks/parts.py --names 2000000 --parts 4 --words   one process and parts, no encoding (the store alone)

The parts are cut once. In each turn plain processes, then workers of Ray build them from nothing, each with one thread
of the encoder. The start of the cluster, of the processes and of the encoders is part of the time; it is also shown
apart. With --words the encoder is the stand-in of `sizing.py`, and parts are built one after the other: memory and time
against one piece, and what a search costs afterwards.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median

import click
from memory import peak_memory
from sizing import WordEncoder, write_base

from ingest.formats import open_reader
from ingest.io.report import ReadReport
from ingest.spread.cutting import cut_and_scan
from ingest.spread.worker import Job, PartBuilder, PartResult, Plan, Work
from pearl_qdrant import load_base
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.settings import DEFAULT_MODEL
from pearl_qdrant.store.edge.store import EdgeStore
from pearl_qdrant.store.schema import Manifest

SEARCHES = 300

_builders: list[PartBuilder] = []


def start(job: Job) -> None:
    """Load the encoder of a plain process."""
    _builders.append(PartBuilder(job, threads=1))


def build(part: int) -> PartResult:
    """Build a part in a plain process."""
    return _builders[0].build(part)


def by_processes(job: Job, parts: int, workers: int) -> float:
    """Build all parts by plain processes; seconds until the first is ready to build."""
    begin = time.perf_counter()
    with ProcessPoolExecutor(workers, get_context("spawn"), start, (job,)) as pool:
        pool.submit(os.getpid).result()
        ready = time.perf_counter() - begin
        list(pool.map(build, range(parts)))
    return ready


def by_ray(job: Job, parts: int, workers: int) -> float:
    """Build all parts by workers of Ray; seconds until the cluster is there."""
    from ingest.spread.ray_runner import RayRunner

    begin = time.perf_counter()
    runner = RayRunner("auto")
    runner.workers = workers
    ready = time.perf_counter() - begin
    list(runner(job, range(parts), lambda names: None))
    return ready


def prepare(base: Path, folder: Path, parts: int) -> Job:
    """Cut a base, and describe the work."""
    info = load_encoder(DEFAULT_MODEL, device="cpu").info
    work = Work(folder / "work")
    with open_reader([base]) as reader:
        scanned = cut_and_scan(reader, ReadReport(), work.cut)
    manifest = Manifest.for_model(info, collection="base", kb="base")
    plan = Plan(scanned.digest, str(base), parts, str(folder), "base", "base", info.weights_hash, "int8", False)
    work.write_plan(plan)
    return Job(str(work.path), plan, manifest, DEFAULT_MODEL, "cpu", None, None, None, 0.0)


def compare_workers(names: int, parts: int, workers: int, turns: int, folder: Path) -> None:
    """Plain processes and Ray in turns."""
    write_base(folder / "base.tsv", names)
    job = prepare(folder / "base.tsv", folder, parts)
    found: dict[str, list[float]] = {"processes": [], "ray": []}
    kinds: tuple[tuple[str, Callable[[Job, int, int], float]], ...] = (("processes", by_processes), ("ray", by_ray))
    for _ in range(turns):
        for kind, function in kinds:
            for left in ("parts", "done", "starts"):
                shutil.rmtree(folder / "work" / left, ignore_errors=True)
            begin = time.perf_counter()
            ready = function(job, parts, workers)
            found[kind].append(time.perf_counter() - begin)
            click.echo(f"{kind:<12}{found[kind][-1]:8.1f} s, of which {ready:.1f} s to start")
    ratio = median(found["ray"]) / median(found["processes"])
    click.echo(f"Ray against plain processes: {ratio:.2f} times the time (medians of {turns} turns)")


def compare_pieces(names: int, parts: int, folder: Path) -> None:
    """One piece and parts, one after the other in this process, without encoding."""
    write_base(folder / "base.tsv", names)
    store, encoder = str(folder / "store"), WordEncoder()
    for kind in ("whole", "parts"):
        begin = time.perf_counter()
        with peak_memory() as peak:
            if kind == "whole":
                result = load_base(folder / "base.tsv", kind, kb="base", store=store, model=encoder)
            else:
                result = load_base(folder / "base.tsv", kind, kb="base", store=store, model=encoder, parts=parts)
        seconds = time.perf_counter() - begin
        opened = EdgeStore(folder / "store")
        collection = opened.open(kind)
        points = [point.name for _, point in zip(range(SEARCHES), collection.scroll(), strict=False)]
        vectors = encoder.encode(points).vectors
        collection.search(vectors[:20], limit=15)
        begin = time.perf_counter()
        for row in vectors:
            collection.search(row[None], limit=15)
        query_ms = (time.perf_counter() - begin) / len(vectors) * 1e3
        segments = collection.status().segments
        opened.close()
        click.echo(
            f"{kind:<8}{result.points:>12,} points{seconds:9.1f} s{peak.anonymous:9,.0f} MB{segments:4} segments"
            f"{query_ms:8.2f} ms a search; joined in {result.graph_seconds:.1f} s"
        )


@click.command()
@click.option("--names", default=20_000, show_default=True)
@click.option("--parts", default=2, show_default=True)
@click.option("--workers", default=2, show_default=True)
@click.option("--turns", default=2, show_default=True)
@click.option("--words", is_flag=True, help="One piece against parts, with a stand-in for the encoder.")
@click.option("--work", type=click.Path(path_type=Path, file_okay=False), help="Folder for what is built.")
def main(names: int, parts: int, workers: int, turns: int, words: bool, work: Path | None) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(dir=work) as folder:
        if words:
            compare_pieces(names, parts, Path(folder))
        else:
            compare_workers(names, parts, workers, turns, Path(folder))


if __name__ == "__main__":
    main()
