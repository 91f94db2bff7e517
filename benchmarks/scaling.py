"""Measures the rates of `pearl-qdrant size` that a finished collection shows: bytes a name by part, and reading it.

    python benchmarks/scaling.py --store STORE --collection NAME --machine "2 cores of ..." --history rates.tsv

With --history the rows are appended to a file of rates; the package's own is `pearl_qdrant/sizing/rates.tsv`. The other
rates come from the benchmarks that their rows name.
"""

from __future__ import annotations

import time
from datetime import datetime, timezone
from pathlib import Path

import click

from pearl_qdrant.sizing.rates import Rate, write_rates
from pearl_qdrant.store.edge.store import EdgeStore

PARTS = {
    "payload_bytes": ("payload_storage",),
    "index_bytes": ("payload_index",),
    "lexical_bytes": ("vector_storage-lexical",),
    "lexical_index_bytes": ("vector_index-lexical",),
    "id_bytes": ("id_tracker.mappings", "id_tracker.versions", "id_tracker.deleted"),
    "graph_bytes": ("vector_index-dense",),
}
"""Parts of a compacted segment, by the names of their folders and files."""

MOST_NAMES = 100_000
"""Names that are read to time it."""


def used(path: Path) -> int:
    """Bytes on disk of a file, or of all files in a folder; holes take none."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_blocks * 512 for file in files)


@click.command()
@click.option("--store", type=click.Path(path_type=Path, exists=True, file_okay=False), required=True)
@click.option("--collection", required=True)
@click.option("--machine", required=True, help="Where this runs, for the rows.")
@click.option("--history", type=click.Path(path_type=Path, dir_okay=False), help="Append the rows to this file.")
def main(store: Path, collection: str, machine: str, history: Path | None) -> None:
    """Measure a collection and print a row for each rate."""
    opened = EdgeStore(store)
    target = opened.open(collection, read_only=True)
    names, date = target.count(), datetime.now(timezone.utc).date().isoformat()
    start, n_read = time.perf_counter(), 0
    for _ in target.scroll():
        n_read += 1
        if n_read == MOST_NAMES:
            break
    scrolled = n_read / (time.perf_counter() - start)
    opened.close()
    source = f"benchmarks/scaling.py: {names:,} names of {target_dim(store, collection)} dimensions"
    rows = [Rate("scroll", round(scrolled), "names/s", "measured", machine, date, source)]
    segments = [path.parent for path in (store / collection).glob("shard/segments/*/id_tracker.mappings")]
    for name, parts in PARTS.items():
        size = sum(used(segment / part) for segment in segments for part in parts)
        rows.append(Rate(name, round(size / names), "bytes a name", "measured", machine, date, source))
    for row in rows:
        click.echo(f"{row.name:<22}{row.value:>12,.0f}  {row.unit}")
    if history is not None:
        write_rates(history, rows)


def target_dim(store: Path, collection: str) -> int:
    """Width of a collection's vectors."""
    (glance,) = EdgeStore(store).glance([collection])
    return glance.manifest.dim if glance.manifest else 0


if __name__ == "__main__":
    main()
