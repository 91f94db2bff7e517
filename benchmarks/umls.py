"""Rows a second of the UMLS reader over a generated release, and the memory that it takes. One command, one process.

    python benchmarks/umls.py --rows 5000000 --kind mixed

The release is made up: CUIs from C9000000 on, names of invented words, 2.6 atoms a CUI on average. Beside it the same
file is read by `pandas.read_csv`, in chunks, where pandas is installed; that gives columns, not entities.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import click

from ingest.reader import ReadReport
from ingest.umls import UmlsOptions, UmlsReader

ENGLISH = ("ENG",)
MIXED = ("ENG",) * 7 + ("SPA", "SPA", "FRE", "GER", "JPN", "POR", "RUS", "FIN")
KINDS = {"mixed": MIXED, "english": ENGLISH}
SOURCES = ("SNOMEDCT_US", "MSH", "NCI", "MDR", "MTH", "ICD10CM", "LNC", "RXNORM")
TYPES = (
    ("T047", "B2.2.1.2.1", "Disease or Syndrome"),
    ("T121", "A1.4.1.1.1", "Pharmacologic Substance"),
    ("T061", "B1.3.1.3", "Therapeutic or Preventive Procedure"),
    ("T033", "A2.2", "Finding"),
)
SYLLABLES = "ba co di fu gra hel iso kar lum mor neo oph pla ri sta tro ul vas xan zyg".split()
FOREIGN = {"JPN": "心疾患", "RUS": "болезнь", "SPA": "crónica", "GER": "ß", "FRE": "maladie é"}


def make_rows(n_rows: int, languages: tuple[str, ...], seed: int = 0) -> Iterator[tuple[str, str]]:
    """Rows of MRCONSO.RRF and of MRSTY.RRF of one CUI after the other."""
    rng = random.Random(seed)
    words = ["".join(rng.choices(SYLLABLES, k=rng.randint(2, 4))) for _ in range(5000)]
    n_made = cui = 0
    while n_made < n_rows:
        n_atoms = min(n_rows - n_made, rng.choice((1, 1, 1, 2, 2, 3, 4, 7)))
        id_ = f"C{9_000_000 + cui:07}"
        rows: list[str] = []
        for language in sorted(rng.choices(languages, k=n_atoms)):
            name = " ".join(rng.choices(words, k=rng.randint(1, 5)))
            if language != "ENG":
                name += " " + FOREIGN.get(language, "")
            n = n_made + len(rows)
            is_first = not rows
            flags = ("P", "PF", "Y") if is_first else ("S", rng.choice(("PF", "VO")), "N")
            suppress = "O" if rng.random() < 0.08 and not is_first else "N"
            rows.append(
                f"{id_}|{language}|{flags[0]}|L{n:07}|{flags[1]}|S{n:08}|{flags[2]}|A{n:08}|{n}||D{n:06}|"
                f"{SOURCES[n % 8]}|PT|{n:06}|{name}|{n % 5 and 0}|{suppress}|256|\n"
            )
        tui, number, type_name = TYPES[cui % 4]
        yield "".join(rows), f"{id_}|{tui}|{number}|{type_name}|AT{cui:08}|256|\n"
        n_made += n_atoms
        cui += 1


def make_release(folder: Path, n_rows: int, languages: tuple[str, ...]) -> Path:
    """Write a META folder."""
    meta = folder / "META"
    meta.mkdir(parents=True, exist_ok=True)
    with (meta / "MRCONSO.RRF").open("w", encoding="utf-8") as conso, (meta / "MRSTY.RRF").open("w") as sty:
        rows = make_rows(n_rows, languages)
        while batch := list(islice(rows, 10_000)):
            conso.write("".join(row for row, _ in batch))
            sty.write("".join(row for _, row in batch))
    return meta


def anonymous_mb() -> float:
    """RssAnon of this process, in MB (10^6 bytes); 0 where there is no /proc."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return 0.0
    return next((int(row.split()[1]) * 1024 / 1e6 for row in status.splitlines() if row.startswith("RssAnon")), 0.0)


def measure(meta: Path, options: UmlsOptions) -> tuple[int, int, float, float, list[float]]:
    """Rows, entities, seconds, seconds of the processor, and RssAnon now and then."""
    report, memory, n_entities = ReadReport(), [], 0
    with UmlsReader([meta], options) as reader:
        start, start_cpu = time.perf_counter(), time.process_time()
        for _ in reader.read_runs(report):
            if not n_entities % 100_000:
                memory.append(anonymous_mb())
            n_entities += 1
        seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - start_cpu
    memory.append(anonymous_mb())
    return report.rows, n_entities, seconds, cpu_seconds, memory


def measure_pandas(meta: Path) -> tuple[int, float] | None:
    """Rows and seconds of reading the same file in chunks; None without pandas."""
    try:
        import pandas  # type: ignore[import-untyped]
    except ImportError:
        return None
    start, n_rows = time.perf_counter(), 0
    columns = {"sep": "|", "header": None, "dtype": str, "quoting": 3, "keep_default_na": False, "chunksize": 100_000}
    for chunk in pandas.read_csv(meta / "MRCONSO.RRF", **columns):
        n_rows += len(chunk)
    return n_rows, time.perf_counter() - start


@click.command()
@click.option("--rows", default=5_000_000, show_default=True, help="Rows of MRCONSO.RRF to generate.")
@click.option("--kind", type=click.Choice(KINDS), multiple=True, help="Which release; all by default.")
@click.option("--folder", type=click.Path(path_type=Path), help="Where; a temporary folder by default.")
def main(rows: int, kind: tuple[str, ...], folder: Path | None) -> None:
    """Generate releases, read them, and print a table."""
    heads = ("base", "rows", "entities", "rows/s", "rows/s of processor time", "RssAnon first, highest, last (MB)")
    click.echo(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        for name in kind or KINDS:
            meta = make_release(Path(scratch) / name, rows, KINDS[name])
            n_rows, n_entities, seconds, cpu_seconds, memory = measure(meta, UmlsOptions())
            anon = f"{memory[0]:.1f}, {max(memory):.1f}, {memory[-1]:.1f}"
            speeds = f"{n_rows / seconds:,.0f} | {n_rows / cpu_seconds:,.0f}"
            click.echo(f"| {name} | {n_rows:,} | {n_entities:,} | {speeds} | {anon} |")
            peer = measure_pandas(meta)
            if peer is None:
                click.echo(f"| {name}, pandas.read_csv | not installed | | | | |")
            else:
                click.echo(f"| {name}, pandas.read_csv | {peer[0]:,} | | {peer[0] / peer[1]:,.0f} | | |")
            (meta / "MRCONSO.RRF").unlink()


if __name__ == "__main__":
    main()
