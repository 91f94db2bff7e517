"""Processor time of bulk linking, of this checkout and another one by turns.

    python benchmarks/linking/speed.py --store FOLDER --collection NAME --mentions mentions.txt --other ../before

    different     `score_batch` over the distinct mentions of a file, one a line, in a linker that knows none of them
    links         `link_batch` over the same
    as in text    `link_batch` over three times as many, drawn so that the n-th mention is 1/n as frequent as the first
    again         `link_batch` over those again

    python benchmarks/linking/speed.py --store FOLDER --collection NAME --mentions mentions.txt --workers 2

compares `link_batch` with and without worker processes, by turns in one linker: time, and processor time of all
processes. Where other programs run, time says little; on a quiet machine of N cores, a batch with N workers takes about
an N-th of its processor time.

Each run is a process of its own, which opens the embedded collection alone. Figures are milliseconds of processor time
(all threads) a mention, so that other programs of the machine matter little; runs of two checkouts alternate, and the
median of their ratios counts. --limit 0: the candidates that an answer needs.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).resolve().parents[2]
WARM_UP = 64
"""Mentions linked before the clock starts."""


def limited(limit: int) -> dict[str, Any]:
    """The option of a limit; none for 0."""
    return {"limit": limit} if limit else {}


def measure(store: str, collection: str, mentions: list[str], limit: int) -> dict[str, float]:
    """Milliseconds of processor time a mention, by what was measured."""
    from pearl_qdrant import EntityLinker  # of the checkout that PYTHONPATH names

    drawn = random.Random(0).choices(mentions, [1 / n for n in range(1, len(mentions) + 1)], k=3 * len(mentions))
    with EntityLinker.open(collection, store=store, device="cpu") as linker:
        deque(linker.link_batch([f"{mention} x" for mention in mentions[:WARM_UP]], **limited(limit)), maxlen=0)
        cache = getattr(linker.state.stream, "cache", None)

        def timed(call: Callable[[list[str]], Iterable[object]], asked: list[str], *, is_new: bool = True) -> float:
            if is_new and cache is not None:
                cache.clear()
            start = time.process_time()
            deque(call(asked), maxlen=0)
            return (time.process_time() - start) / len(asked) * 1e3

        def link(asked: list[str]) -> Iterable[object]:
            return linker.link_batch(asked, **limited(limit))

        return {
            "different": timed(lambda asked: linker.score_batch(asked, **limited(limit)), mentions),
            "links": timed(link, mentions),
            "as in text": timed(link, drawn),
            "again": timed(link, drawn, is_new=False),
        }


def processor_s(pids: Iterable[int]) -> float:
    """Processor time that processes have taken so far, in seconds (Linux)."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split() for pid in pids]
    return sum(int(one[11]) + int(one[12]) for one in fields) / os.sysconf("SC_CLK_TCK")


def compare_workers(
    store: str, collection: str, mentions: list[str], *, n_workers: int, limit: int, turns: int
) -> None:
    """Measure `link_batch` with one and with several workers by turns, each time without remembered mentions."""
    from pearl_qdrant import EntityLinker

    drawn = random.Random(0).choices(mentions, [1 / n for n in range(1, len(mentions) + 1)], k=3 * len(mentions))
    kinds = {"links": mentions, "as in text": drawn}
    found: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for _ in range(turns):
        for workers in (1, n_workers):
            for kind, asked in kinds.items():
                with EntityLinker.open(collection, store=store, device="cpu", read_only=True) as linker:
                    warm_up = [f"{mention} x" for mention in mentions[: WARM_UP * n_workers]]
                    deque(linker.link_batch(warm_up, workers=workers, **limited(limit)), maxlen=0)
                    pids = [os.getpid(), *linker.worker_pids()]
                    start, processor = time.perf_counter(), processor_s(pids)
                    deque(linker.link_batch(asked, workers=workers, **limited(limit)), maxlen=0)
                    took = time.perf_counter() - start, processor_s(pids) - processor
                    found.setdefault((kind, workers), []).append((took[0] / len(asked), took[1] / len(asked)))
    click.echo(f"{collection}, {len(mentions):,} mentions, limit {limit}, load {os.getloadavg()[0]:.1f}: ms a mention")
    for kind in kinds:
        one, several = ([statistics.median(runs) for runs in zip(*found[kind, n], strict=True)] for n in (1, n_workers))
        ratios = sorted(b[0] / a[0] for b, a in zip(found[kind, 1], found[kind, n_workers], strict=True))
        click.echo(
            f"  {kind:<12} 1: {one[0] * 1e3:6.2f} (processor {one[1] * 1e3:.2f})   {n_workers}: "
            f"{several[0] * 1e3:6.2f} ({several[1] * 1e3:.2f})   times as fast {statistics.median(ratios):.2f} "
            f"({ratios[0]:.2f} to {ratios[-1]:.2f}), if quiet {one[1] / several[1] * n_workers:.2f}"
        )


def run_in(root: Path, arguments: list[str]) -> dict[str, float]:
    """One run of `measure` in a new process with the packages of a checkout."""
    command = [sys.executable, str(Path(__file__).resolve()), *arguments, "--one-run"]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    ran = subprocess.run(command, check=False, env=environment, cwd=root, capture_output=True, text=True)
    if ran.returncode:
        raise SystemExit(f"failed in {root}: {ran.stderr}")
    found: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    return found


@click.command()
@click.option("--store", required=True, help="Folder of the embedded store.")
@click.option("--collection", required=True)
@click.option("--mentions", "path", required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--limit", default=0, show_default=True)
@click.option("--other", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Another checkout.")
@click.option("--turns", default=5, show_default=True)
@click.option("--workers", type=click.IntRange(min=2), help="Compare this many worker processes with none.")
@click.option("--one-run", is_flag=True, help="Measure once in this process, and print JSON.")
def main(
    store: str,
    collection: str,
    path: Path,
    limit: int,
    other: Path | None,
    turns: int,
    workers: int | None,
    one_run: bool,
) -> None:
    """Measure by turns, and print medians and ratios."""
    mentions = list(dict.fromkeys(line for line in path.read_text("utf-8").splitlines() if line.strip()))
    if one_run:
        click.echo(json.dumps(measure(store, collection, mentions, limit)))
        return
    if workers is not None:
        compare_workers(store, collection, mentions, n_workers=workers, limit=limit, turns=turns)
        return
    shared = ["--store", str(Path(store).resolve()), "--collection", collection, "--mentions", str(path.resolve())]
    arguments = [*shared, "--limit", str(limit)]
    own, others = [], []
    for _ in range(turns):
        if other is not None:
            others.append(run_in(other.resolve(), arguments))
        own.append(run_in(ROOT, arguments))
    click.echo(f"{collection}, {len(mentions):,} mentions, limit {limit}: ms of processor time a mention")
    for what in own[0]:
        line = f"  {what:<12} {statistics.median(run[what] for run in own):6.2f}"
        if others:
            before = statistics.median(run[what] for run in others)
            ratios = sorted(run[what] / old[what] for run, old in zip(own, others, strict=True))
            line += f"   other {before:6.2f}   ratio {statistics.median(ratios):.2f}"
            line += f" ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        click.echo(line)


if __name__ == "__main__":
    main()
