"""Measures each reader on the worst files: time and memory must grow linearly with the file.

    python benchmarks/reader_worst_cases.py
    python benchmarks/reader_worst_cases.py --only obo --only gzip --megabytes 1 --megabytes 2

Each shape is one file, or a few, on which a careless loop or regular expression would need quadratic time or memory:
chains of classes, one id with all rows, a row with all columns, endless backslashes. It is generated at each size and
read by `Reader.read` in a new process, which is killed after `--limit` seconds. Columns of the table: processor
seconds; the time of the largest over that of the smallest (for linear cost, the ratio of their sizes); the highest
growth of resident memory (MB, at the largest size; mapped index files of UMLS count too); and the error, if reading
ended with one. Linux only: memory is read from /proc.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import click
from generators.worst_shapes import SHAPES
from memory import status_mb

from ingest.base.type_map import TypeMap
from ingest.formats import open_reader
from ingest.io.report import ReadReport
from pearl_qdrant.errors import PearlQdrantError


@dataclass
class Measure:
    """One reading; `seconds` is None if it was killed."""

    seconds: float | None
    grown_mb: float
    outcome: str


def read_all(path: Path, kind: str, types: TypeMap) -> str:
    """Read a base; returns the type and the end of the message of its error, or an empty string."""
    try:
        with open_reader([path], kind, type_map=types) as reader:
            for _ in reader.read(ReadReport(max_errors=None)):
                pass
    except PearlQdrantError as error:
        return f"{type(error).__name__}: {str(error).rpartition('/')[2]}"
    except MemoryError:
        return "MemoryError"
    return ""


def measure(path: Path, kind: str, types: TypeMap, limit: float) -> Measure:
    """Read a base in a child process."""
    receive, send = os.pipe()
    child = os.fork()
    if not child:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets the peak (VmHWM)
        before, start = status_mb("VmHWM"), time.process_time()
        outcome = read_all(path, kind, types)
        found = time.process_time() - start, status_mb("VmHWM") - before, outcome
        os.write(send, json.dumps(found).encode())
        os._exit(0)
    os.close(send)
    ready, _, _ = select.select([receive], [], [], limit)
    text = os.read(receive, 1 << 16) if ready else b""
    grown = 0.0
    if not ready:
        grown = status_mb("RssAnon", child)
        os.kill(child, signal.SIGKILL)
    os.close(receive)
    os.waitpid(child, 0)
    return Measure(*json.loads(text)) if text else Measure(None, grown, "" if not ready else "died")


def warm_up(types: TypeMap) -> None:
    """Load the modules of all readers, so that no measure includes imports."""
    for kind, shapes in SHAPES.items():
        for shape, make in shapes():
            if shape in ("plain rows", "one line", "zstd frames"):
                with tempfile.TemporaryDirectory() as folder:
                    for name, content in make(1_000).items():
                        (Path(folder) / name).write_bytes(content)
                        read_all(Path(folder) / name, kind, types)


@click.command()
@click.option("--megabytes", type=int, multiple=True, default=[1, 2, 4, 8], show_default=True, help="Sizes (10^6).")
@click.option("--only", multiple=True, help="Only formats or shapes whose name contains this word.")
@click.option("--limit", default=120.0, show_default=True, help="Seconds before a reading is killed.")
def main(megabytes: tuple[int, ...], only: tuple[str, ...], limit: float) -> None:
    """Generate the worst files, read them at each size, and print a table."""
    sizes = sorted(megabytes)
    heads = [
        "format",
        "shape",
        *(f"{size} MB (s)" for size in sizes),
        f"times for {sizes[-1] // sizes[0]} x",
        "grown by",
        "",
    ]
    click.echo(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
    types = TypeMap.load()
    warm_up(types)
    for kind, shapes in SHAPES.items():
        for shape, make in shapes():
            if only and not any(word in f"{kind} {shape}" for word in only):
                continue
            found: list[Measure] = []
            for size in sizes:
                with tempfile.TemporaryDirectory() as folder:
                    files = make(size * 1_000_000)
                    for name, content in files.items():
                        (Path(folder) / name).write_bytes(content)
                    path = Path(folder) / next(iter(files)) if len(files) == 1 else Path(folder)
                    found.append(measure(path, kind, types, limit))
                if found[-1].seconds is None:
                    break
            seconds = ["-" if one.seconds is None else f"{one.seconds:.2f}" for one in found]
            seconds += [""] * (len(sizes) - len(seconds))
            first, last = found[0].seconds, found[-1].seconds
            ratio = f"{last / first:.1f}" if first and last and len(found) == len(sizes) else f"over {limit:.0f} s"
            click.echo(
                f"| {' | '.join([kind, shape, *seconds, ratio, f'{found[-1].grown_mb:.0f}', found[-1].outcome[:80]])} |"
            )
            sys.stdout.flush()


if __name__ == "__main__":
    main()
