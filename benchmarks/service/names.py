"""Type-ahead without HTTP: how long the index of a base's names takes, and each search in it.

    python benchmarks/service/names.py base.tsv

The table has a header with `id`, `name` and, if there are any, `aliases` joined by |. Times are of the processor, since
other programs may share the cores.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from pearl_qdrant.service.names import NameIndex, build_index
from pearl_qdrant.store.schema import NamePoint

LETTERS = "abcdefghijklmnopqrstuvwxyz"
QUERIES = 1000


def points(path: Path) -> Iterator[NamePoint]:
    """The names of a table."""
    with path.open(encoding="utf-8") as file:
        header = file.readline().rstrip("\n").split("\t")
        for line in file:
            row = dict(zip(header, line.rstrip("\n").split("\t"), strict=False))
            names = dict.fromkeys([row["name"], *filter(None, row.get("aliases", "").split("|"))])
            for name in names:
                yield NamePoint("base", row["id"], name, row["name"], name == row["name"])


def measure(index: NameIndex, label: str, names: list[str], typed: Callable[[str], str]) -> None:
    """Print the time of a search, and how often the name itself is found."""
    times, found = [], 0
    for name in names:
        query = typed(name)
        start = time.process_time()
        results = index.find(query)
        times.append((time.process_time() - start) * 1000)
        found += any(one.name == name for one in results)
    times.sort()
    p50, p99 = times[len(times) // 2], times[int(len(times) * 0.99)]
    click.echo(f"{label:24} p50 {p50:.2f} ms  p99 {p99:.2f} ms  max {times[-1]:.1f} ms  found {found / len(names):.1%}")


@click.command(help=__doc__)
@click.argument("base", type=click.Path(path_type=Path, exists=True))
def main(base: Path) -> None:
    """Build and search."""
    rng = random.Random(0)
    read = [point.name for point in points(base)]
    names = rng.sample(read, QUERIES)

    def slipped(name: str) -> str:
        at = rng.randrange(len(name))
        return name[:at] + rng.choice(LETTERS) + name[at + 1 :]

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "names.sqlite"
        start = time.process_time()
        build_index(points(base), path)
        seconds, size = time.process_time() - start, path.stat().st_size
        click.echo(f"{len(read):,} names: {seconds:.1f} s of processor time, {size / 1e6:.0f} MB")
        index = NameIndex(path)
        measure(index, "a part of the name", names, lambda name: name[: rng.randint(1, len(name))])
        measure(index, "the whole name", names, lambda name: name)
        measure(index, "one letter wrong", [name for name in names if len(name) > 5], slipped)


if __name__ == "__main__":
    main()
