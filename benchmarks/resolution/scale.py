"""Time and memory of `resolve` by the number of names: all names of random entities of the bases, no collection given.

    for n in 50000 100000 200000; do python benchmarks/resolution/scale.py --data FOLDER --size $n; done

Prints names, nodes, seconds of processor time, and the anonymous memory before and at its peak; one process a size.
"""

from __future__ import annotations

import sys
import threading
import time
from itertools import chain
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "runs"))

from resolution.data import _as_names, _biomedical, _general  # noqa: E402

from pearl_qdrant.resolution import NameRecord, resolve  # noqa: E402


def watch(peak: list[int]) -> None:
    """Keep the most anonymous memory of this process, in kB."""
    while True:
        lines = Path("/proc/self/status").read_text().splitlines()
        peak[0] = max(peak[0], next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")))
        time.sleep(0.2)


@click.command()
@click.option("--data", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--size", type=int, required=True)
def main(data: Path, size: int) -> None:
    """Print a row."""
    entities = chain(_general(data), _biomedical(data, all_diseases=True))
    records = [NameRecord(one.name, one.type) for one in _as_names(list(entities), "scale", size)]
    del entities
    peak = [0]
    threading.Thread(target=watch, args=(peak,), daemon=True).start()
    time.sleep(0.5)
    before = peak[0] / 1024
    start = time.process_time()
    n_nodes = len({one.node_id for one in resolve(records).names})
    seconds, most = time.process_time() - start, peak[0] / 1024
    print(f"{len(records):,} names, {n_nodes:,} nodes: {seconds:,.0f} s, {before:,.0f} to {most:,.0f} MB", flush=True)


if __name__ == "__main__":
    main()
