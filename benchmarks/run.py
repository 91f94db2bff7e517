"""`make bench`: measures ingest and linking.

    make bench BENCH_ARGS="--data base.tsv"

    encoding     the encoder alone over the distinct names, sorted by length as a whole
    ingest       `pearl-qdrant ingest` into the embedded store: the load, the graph, the memory of all processes
    linking      one link, warm, filtered or not, misspelt or not; batches, with warm and with cold pages; beside an
                 event loop; the first in a new process

Without --data, a base is generated from the words of the sample base. Rates are names a second. Nothing else should run
on the machine.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from memory import peak_memory

from ingest.base.reader import Reader, ScanResult, scan
from ingest.formats import open_reader
from ingest.io.report import ReadReport
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.settings import DEFAULT_MODEL
from training.augment.draw import edit_character

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "runs"))
from recipe_tables import page_option, write_rows  # noqa: E402

COLLECTION = "bench"


ROWS: list[list[str]] = []
"""Of the page."""


def say(what: str, value: str, wanted: str = "") -> None:
    """Print one line; if something is wanted of it, it is a row of the page, too."""
    click.echo(f"{what:<58} {value:<30} {wanted}")
    if wanted:
        ROWS.append([what, value])


def generated(path: Path, n: int) -> Path:
    """Write a base of `n` entities made from the words of the sample base."""
    rows = (ROOT / "examples" / "sample_base.tsv").read_text("utf-8").splitlines()[1:]
    words = sorted({word for row in rows for word in row.split("\t")[1].split() if word.isalpha()})
    rng = random.Random(0)
    kinds = [row.split("\t")[2] for row in rows]
    with path.open("w", encoding="utf-8") as file:
        file.write("id\tname\ttype\taliases\n")
        for i in range(n):
            name = " ".join(rng.choices(words, k=rng.randint(1, 4)))
            file.write(f"G{i}\t{name}\t{rng.choice(kinds)}\t{name.lower()} {i % 977}\n")
    return path


def names_of(reader: Reader, scanned: ScanResult, n: int | None = None) -> list[str]:
    """The distinct names of a base: all, or a random sample of `n`."""
    entities = reader.read(ReadReport(max_errors=None), scattered=scanned.scattered)
    names = list(dict.fromkeys(name for entity in entities for name in entity.names()))
    return names if n is None or n >= len(names) else random.Random(0).sample(names, n)


def bench_encoding(encoder: Encoder, names: list[str]) -> float:
    """Seconds to encode all names in one call."""
    start = time.perf_counter()
    encoder.encode(names)
    return time.perf_counter() - start


def bench_ingest(data: Path, model: str, store: Path, encoding_s: float) -> None:
    """Run `pearl-qdrant ingest` and sample the memory of its processes."""
    command = [sys.executable, "-m", "pearl_qdrant", "ingest", str(data), "--collection", COLLECTION]
    command += ["--store", str(store), "--set", "device=cpu", "--json", "--model", model]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        with peak_memory(process.pid) as peak:
            output, _ = process.communicate()
        if process.returncode:
            raise SystemExit(f"failed: {' '.join(command)}")
    result = json.loads(output.splitlines()[-1])
    disk = sum(file.stat().st_size for file in store.rglob("*") if file.is_file())
    rate = float(result["names"] / result["load_seconds"])
    say("ingest: read, encode and write, names/s", f"{rate:,.0f}   ({result['load_seconds']:.1f} s)")
    say("reading, encoding and writing, times encoding alone", f"{result['load_seconds'] / encoding_s:.2f}", "1.15")
    index_s = result["graph_seconds"]
    say("the graph, times encoding alone", f"{index_s / encoding_s:.2f}", "1.2")
    memory = f"{peak.anonymous:,.0f} MB ({peak.file_backed:,.0f})"
    say("memory of the whole command, RssAnon (RssFile)", memory, "1,000 MB")
    say("on disk", f"{disk / 1e6:,.0f} MB, {result['points']:,} points")


KIND = "ORG"
"""The filter of single links."""

WANTED = {
    "names of the base": {"cold": "a third of warm", "warm": "(0.8)", "link": "1, 3 ms", "type": "6, 18 ms"},
    "one character changed": {"cold": "a third of warm", "warm": "(0.19)", "link": "4, 12 ms", "type": "6, 18 ms"},
}


def bench_linking(store: Path, mentions: list[str], encode_s: float, n_links: int) -> None:
    """Time batches with cold and with warm pages, then single links, then a new process."""
    rng = random.Random(0)
    sorts = {"names of the base": mentions, "one character changed": [edit_character(one, rng) for one in mentions]}
    for label, asked in sorts.items():
        _drop_pages(store)
        with EntityLinker.open(COLLECTION, store=str(store), device="cpu", read_only=True) as linker:
            for pages in ("cold", "warm"):
                batched = _seconds(partial(_link_all, linker, asked))
                what = f"links/s in a batch, {label}, pages {pages}"
                say(what, f"{len(asked) / batched:,.0f} ({encode_s / batched:.2f})", WANTED[label][pages])
    with EntityLinker.open(COLLECTION, store=str(store), device="cpu", read_only=True) as linker:
        for label, asked in sorts.items():
            for types in ([], [KIND]):
                for mention in asked[-50:]:
                    linker.link(mention, types=types)
                linker.state.stream.cache.clear()  # mentions that come again are another measurement
                times = [_seconds(partial(linker.link, mention, types=types)) * 1e3 for mention in asked[:n_links]]
                p50, p99 = statistics.median(times), float(np.percentile(times, 99))
                what = f"one link, {label}{', of one type' * bool(types)}"
                say(what, f"{p50:.1f}, {p99:.1f} ms", WANTED[label]["type" if types else "link"])
        longest = max(asyncio.run(_waits(linker, mentions, types)) for types in ([], [KIND]))
        say("longest wait of an event loop beside `alink_batch`", f"{longest * 1e3:.0f} ms", "50 ms")
    command = [sys.executable, "-m", "pearl_qdrant", "link", mentions[0], "--store", str(store)]
    fresh = min(_seconds(lambda: subprocess.run(command, check=True, capture_output=True)) for _ in range(3))
    say("first link in a new process", f"{fresh:.2f} s", "2 s")
    version = [sys.executable, "-m", "pearl_qdrant", "--help"]
    helped = min(_seconds(lambda: subprocess.run(version, check=True, capture_output=True)) for _ in range(5))
    say("`pearl-qdrant --help`", f"{helped:.2f} s", "0.3 s")


def _drop_pages(store: Path) -> None:
    """Let the system forget the pages of all files that no process has mapped (Linux)."""
    os.sync()
    for path in store.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _link_all(linker: EntityLinker, mentions: list[str]) -> None:
    linker.state.stream.cache.clear()
    deque(linker.link_batch(mentions), maxlen=0)


async def _waits(linker: EntityLinker, mentions: list[str], types: list[str]) -> float:
    """The longest time, in seconds, for which an event loop is blocked while mentions are linked."""
    linker.state.stream.cache.clear()
    longest = 0.0

    async def tick() -> None:
        nonlocal longest
        while True:
            start = time.perf_counter()
            await asyncio.sleep(0.001)
            longest = max(longest, time.perf_counter() - start - 0.001)

    ticking = asyncio.create_task(tick())
    async for _ in linker.alink_batch(mentions, types=types):
        pass
    ticking.cancel()
    return longest


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


@click.command()
@click.option("--data", type=click.Path(path_type=Path, exists=True), help="TSV; generated by default.")
@click.option("--names", "n_made", default=20_000, show_default=True, help="Entities to generate.")
@click.option("--model", default=DEFAULT_MODEL, show_default=True)
@click.option("--mentions", "n_mentions", default=4000, show_default=True)
@click.option("--encode-names", default=100_000, show_default=True, help="Random names for the encoder alone.")
@click.option("--work", type=click.Path(path_type=Path), help="Folder for stores; temporary by default.")
@page_option
def main(
    data: Path | None,
    n_made: int,
    model: str,
    n_mentions: int,
    encode_names: int,
    work: Path | None,
    page: Path | None,
) -> None:
    """Run all measurements."""
    say("machine", f"{platform.machine()}, {os.cpu_count()} cores, Python {sys.version.split()[0]}")
    if work is not None:
        work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=work) as scratch:
        folder = Path(scratch)
        encoder = load_encoder(model, device="cpu")
        encoder.encode(["warm"])
        info = encoder.info
        say("model", f"{info.name}, {info.dim} dim, {info.runtime} {info.precision}")
        source = data or generated(folder / "made.tsv", n_made)
        with open_reader([source], "tsv") as reader:
            scanned = scan(reader, ReadReport(max_errors=None))
            say("base", f"{scanned.entities:,} entities, {scanned.names:,} names, {scanned.distinct_names:,} distinct")
            some = names_of(reader, scanned, encode_names)
            rate = len(some) / bench_encoding(encoder, some)
            encoding_s = scanned.distinct_names / rate
            say("seconds for all distinct names", f"{encoding_s:.1f}")
            say("encoding alone, names/s", f"{rate:,.0f}", "2,000")
            del some
            bench_ingest(source, model, folder / "store", encoding_s)
            mentions = names_of(reader, scanned, n_mentions)
        encode_s = min(bench_encoding(encoder, mentions) for _ in range(2))
        gc.freeze()  # what this program holds, and the collector would visit, is not what is measured
        bench_linking(folder / "store", mentions, encode_s, min(1000, len(mentions)))
    write_rows(page, __file__, "what | measured", ROWS)


if __name__ == "__main__":
    warnings.filterwarnings("ignore", category=FutureWarning)
    main()
