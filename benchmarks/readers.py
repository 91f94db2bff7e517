"""Measures the speed of each reader.

    python benchmarks/readers.py --megabytes 100
    python benchmarks/readers.py --base umls --megabytes 550

Each base is generated in its real format (`generators/`) in a temporary folder. A process on one core then reads it
once, as the scan before a load does; of Wikidata's dump, which is read twice, the second time is measured. Printed, in
a second of processor time: MB (10^6 bytes, all files of the base), rows used, and entities; and seconds of wall clock.
The tables (TSV, CSV, JSON, JSON Lines, Parquet, xlsx) have the same rows, so that entities a second can be compared.
Peers read the same files: `pandas.read_csv` of MRCONSO.RRF in chunks (columns, not entities), and `json.loads` of each
line of the dump (no entities either).
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click
from generators.ontologies import make_mesh, make_obo, make_obograph, make_owl, make_skos, make_turtle
from generators.tables import make_csv, make_json, make_jsonl, make_parquet, make_tsv, make_xlsx
from generators.umls import BYTES_A_ROW, make_umls
from generators.wikidata import make_dump, make_truthy
from generators.yago import make_yago_4, make_yago_45

from ingest.formats import open_reader
from ingest.io.report import ReadReport
from ingest.readers.wikidata import WikidataReader

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "runs"))
from recipe_tables import page_option, write_rows

MAKERS: dict[str, Callable[[Path, int], None]] = {
    "tsv": make_tsv,
    "csv": make_csv,
    "json": make_json,
    "jsonl": make_jsonl,
    "parquet": make_parquet,
    "xlsx": make_xlsx,
    "obo": make_obo,
    "obograph": make_obograph,
    "owl": make_owl,
    "skos-nt": make_skos,
    "skos-ttl": make_turtle,
    "mesh": make_mesh,
    "umls": lambda folder, n_bytes: make_umls(folder, n_bytes // BYTES_A_ROW),
    "yago-4": make_yago_4,
    "yago-4.5": make_yago_45,
    "wikidata": make_dump,
    "wikidata-truthy": make_truthy,
}


@dataclass
class Measure:
    """Cost of one pass."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    rows: int = 0
    entities: int = 0


def timed(work: Callable[[Measure], object]) -> Measure:
    """Run `work`, which fills a measure, and add the times."""
    found, start, cpu = Measure(), time.perf_counter(), time.process_time()
    work(found)
    found.seconds, found.cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
    return found


def read_entities(folder: Path) -> Measure:
    """One pass of the reader; the second one of Wikidata's dump."""
    report = ReadReport(max_errors=0)

    def read(found: Measure) -> None:
        for found.entities, _ in enumerate(reader.read_runs(report), 1):
            pass

    paths = [folder] if len(files(folder)) > 1 else files(folder)
    with open_reader(paths) as reader:
        if isinstance(reader, WikidataReader):
            reader.read_classes()
        found = timed(read)
    found.rows = report.rows
    return found


def read_pandas(folder: Path) -> Measure:
    """Peer of the UMLS reader."""
    import pandas  # type: ignore[import-untyped]

    def read(found: Measure) -> None:
        (path,) = folder.glob("MRCONSO.RRF*")
        options = {"sep": "|", "header": None, "dtype": str, "quoting": 3, "keep_default_na": False}
        for chunk in pandas.read_csv(path, chunksize=100_000, **options):
            found.rows += len(chunk)

    return timed(read)


def read_json(folder: Path) -> Measure:
    """Peer of the Wikidata reader: what most scripts do with a dump."""

    def read(found: Measure) -> None:
        with files(folder)[0].open("rb") as file:
            for line in file:
                if len(line) > 2:
                    json.loads(line.rstrip(b",\n"))
                    found.rows += 1

    return timed(read)


def files(folder: Path) -> list[Path]:
    """The files of a base, by name."""
    return sorted(folder.iterdir())


def passes(base: str) -> Iterator[tuple[str, Callable[[Path], Measure]]]:
    """The passes to measure for a base, with their headings."""
    yield f"{base}, entities", read_entities
    if base == "umls":
        yield f"{base}, peer pandas.read_csv", read_pandas
    elif base == "wikidata":
        yield f"{base}, peer json.loads", read_json


def show(heading: str, n_bytes: int, found: Measure) -> None:
    """Print a line."""
    a_second = {"MB": n_bytes / 1e6, "rows": found.rows, "entities": found.entities}
    rates = ", ".join(f"{count / found.cpu_seconds:,.0f} {what}" for what, count in a_second.items() if count)
    click.echo(f"{heading:<32} {rates} in {found.seconds:.1f} s")


@click.command()
@click.option("--megabytes", default=100, show_default=True, help="Size of each base's main file.")
@click.option("--base", type=click.Choice(list(MAKERS)), multiple=True, help="Bases to read; all by default.")
@click.option("--folder", type=click.Path(path_type=Path, file_okay=False), help="Folder for the generated bases.")
@page_option
def main(megabytes: int, base: tuple[str, ...], folder: Path | None, page: Path | None) -> None:
    """Generate bases, read them, and print a table."""
    rows = []
    # A new process for each pass: what an earlier one left would be in the way of the collector.
    context = multiprocessing.get_context("spawn")
    for name in base or MAKERS:
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            made = Path(scratch) / name
            MAKERS[name](made, megabytes * 1_000_000)
            n_bytes = sum(path.stat().st_size for path in files(made))
            for heading, work in passes(name):
                with context.Pool(1) as pool:
                    found = pool.apply(work, (made,))
                show(heading, n_bytes, found)
                if found.entities:
                    each = f"{found.rows / found.entities:.0f}"
                    rows.append([name, f"{round(found.entities / found.cpu_seconds, -2):,.0f}", each])
    write_rows(page, __file__, "base | entities a second | rows of an entity", rows)


if __name__ == "__main__":
    main()
