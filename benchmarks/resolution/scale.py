"""Time and memory of `resolve` by the number of names: all names of random entities of the bases, no collection given.

    for n in 50000 100000 200000; do python benchmarks/resolution/scale.py --data FOLDER --size $n; done

Prints names, nodes, seconds of processor time, and the anonymous memory before and at its peak; one process a size.
"""

from __future__ import annotations

import sys
import time
from itertools import chain
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "runs")]

from memory import peak_memory, status_mb  # noqa: E402
from resolution.data import _as_names, _biomedical, _general  # noqa: E402

from pearl_qdrant.resolution import NameRecord, resolve  # noqa: E402


@click.command()
@click.option("--data", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--size", type=int, required=True)
def main(data: Path, size: int) -> None:
    """Print a row."""
    entities = chain(_general(data), _biomedical(data, all_diseases=True))
    records = [NameRecord(one.name, one.type) for one in _as_names(list(entities), "scale", size)]
    del entities
    before, start = status_mb("RssAnon"), time.process_time()
    with peak_memory() as peak:
        n_nodes = len({one.node_id for one in resolve(records).names})
    print(f"{len(records):,} names, {n_nodes:,} nodes: {time.process_time() - start:,.0f} s, ", end="")
    print(f"{before:,.0f} to {peak.anonymous:,.0f} MB", flush=True)


if __name__ == "__main__":
    main()
