"""Time and anonymous memory of `resolve` for many names, and what they would be for a million.

    python benchmarks/resolution/scale.py --names names.tsv --size 25000 --size 100000

--names is a table with the columns name and type (`resolve` reads it); the first distinct names of it are taken.
Seconds are processor time of all threads, because other programs may run beside. The exponent between two sizes says
how time grows, and the last line carries it on to a million names.
"""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # `memory`


def distinct(path: Path, size: int) -> Iterator[object]:
    """The first distinct names of a file."""
    from pearl_qdrant.resolution import read_names

    seen: set[tuple[str, str]] = set()
    with path.open("rb") as file:
        for one in read_names(file, str(path)):
            if (one.name, one.type) not in seen:
                seen.add((one.name, one.type))
                yield one
                if len(seen) == size:
                    return


def measure(path: Path, size: int) -> None:
    """Print size, seconds and MB of one run."""
    from memory import peak_memory

    from pearl_qdrant.encoder.loading import load_encoder
    from pearl_qdrant.resolution import resolve

    names = list(islice(distinct(path, size), size))
    encoder = load_encoder(device="cpu")
    start = time.process_time()
    with peak_memory() as peak:
        found = resolve(names, encoder=encoder)
    seconds = time.process_time() - start
    nodes = len({one.node_id for one in found.names})
    print(f"{len(names)}\t{seconds:.1f}\t{peak.anonymous:.0f}\t{nodes}", flush=True)


@click.command()
@click.option("--names", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--size", "sizes", type=int, multiple=True, required=True)
@click.option("--one", is_flag=True, hidden=True)
def main(names: Path, sizes: tuple[int, ...], one: bool) -> None:
    """Measure each size in a process of its own."""
    if one:
        measure(names, sizes[0])
        return
    rows = []
    for size in sizes:
        command = [sys.executable, __file__, "--names", str(names), "--size", str(size), "--one"]
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        rows.append([float(value) for value in out])
        print(
            f"{rows[-1][0]:,.0f} names: {rows[-1][1]:.0f} s, {rows[-1][2]:.0f} MB, {rows[-1][3]:,.0f} nodes", flush=True
        )
    if len(rows) > 1:
        (n, s, m, _), (n2, s2, m2, _) = rows[-2:]
        grows = math.log(s2 / s) / math.log(n2 / n)
        million = s2 * (1e6 / n2) ** grows
        memory = m2 + (m2 - m) / (n2 - n) * (1e6 - n2)
        print(f"1,000,000 names: about {million:.0f} s (exponent {grows:.2f}), {memory:.0f} MB")


if __name__ == "__main__":
    main()
