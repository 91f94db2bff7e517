"""Scan and cut a base by several processes, where its format and files have ranges (`ingest.readers.tables.ranges`).

Each process reads a range, and cuts it into buckets in a folder of its own. What it counted is added up here, in the
order of the ranges: entities, hashes, digest and report are those of one pass. Whatever is not plain (a range that
cannot be read, warnings, more bad rows than are allowed) makes one process read all of it again, so that errors are the
same, too. The processes are on this machine, and get none of the cores of a cluster elsewhere.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ingest.base.scan import HashedRuns, ScanResult, count_runs
from ingest.io.report import MAX_EXAMPLES, Conflict, ReadReport, Skip
from ingest.readers.arrow.reader import ArrowReader
from ingest.readers.jsonl.reader import JsonLinesReader
from ingest.readers.tables.columns import TableColumns
from ingest.readers.tables.ranges import Range
from ingest.readers.tsv.reader import TsvReader
from ingest.spread.cutting import cut_and_scan, range_folders
from pearl_qdrant.cores import usable_cores
from pearl_qdrant.errors import InputError
from pearl_qdrant.store.edge.child_process import python_child

if TYPE_CHECKING:
    from ingest.base.reader import Reader

LEAST_BYTES = 32 << 20
"""Of a range: a process takes a second to start, and one reads 10 MB a second."""

MODULE = "ingest.spread.range_main"
IDS, NAMES, COUNTS, CONTENT = "ids", "names", "counts", "content"
"""Files of a range beside its buckets: `HashedRuns`, and what the digest is made of."""

RangeReader = TsvReader | JsonLinesReader | ArrowReader
"""Readers of formats that have ranges."""

_FORMATS: dict[type, str] = {TsvReader: "tsv", JsonLinesReader: "jsonl", ArrowReader: "parquet"}


class Job(msgspec.Struct, frozen=True):
    """The job of a process.

    Attributes:
        format: Of the base.
        paths, columns: As for its reader.
        types, types_version: Its map of types.
        cwd: The folder that relative paths start from.
        range: What to read.
        folder: Where the buckets go.
        max_errors: As in `ReadReport`.
    """

    format: str
    paths: list[str]
    columns: TableColumns
    types: dict[str, str]
    types_version: str
    cwd: str
    range: Range
    folder: str
    max_errors: int | None


class Done(msgspec.Struct, frozen=True):
    """What a process counted.

    Attributes:
        n_lines: Line ends in the range; 0 where rows have their numbers in the file.
        rows, merged_rows, conflicting_names, conflicts, skipped, filtered, examples, notes: As in `ReadReport`; lines
            count from the start of the range.
        n_warnings: Warnings of the reader.
    """

    n_lines: int
    rows: int
    merged_rows: int
    conflicting_names: int
    conflicts: list[Conflict]
    skipped: dict[str, int]
    filtered: dict[str, int]
    examples: list[Skip]
    notes: list[str]
    n_warnings: int


def cut_in_ranges(reader: Reader, report: ReadReport, folder: Path, *, processes: int | None = None) -> ScanResult:
    """`cut_and_scan` by several processes where that is possible, else by this one.

    Args:
        reader, report, folder: As there.
        processes: At most so many; None: as many as this process may use cores.

    Raises:
        InputError: As `cut_and_scan`.
    """
    ranges = None
    if isinstance(reader, RangeReader) and type(reader) in _FORMATS and report.on_skip is None:
        with suppress(InputError):  # one pass tells it with its row
            ranges = reader.find_ranges(usable_cores() if processes is None else processes, LEAST_BYTES)
        if ranges is not None and (done := _run(reader, ranges, report, folder)) is not None:
            with suppress(OSError):
                hashed, digest = _join(range_folders(folder))
                _add_up(ranges, done, report)
                return count_runs(reader, hashed, digest, report)
        for path in range_folders(folder):
            shutil.rmtree(path, ignore_errors=True)
    return cut_and_scan(reader, report, folder)


def _run(reader: RangeReader, ranges: Sequence[Range], report: ReadReport, folder: Path) -> list[Done] | None:
    """What a process for each range counted; None if one pass has to tell what is wrong."""
    command, environment, cwd = python_child(MODULE)
    started: list[subprocess.Popen[bytes]] = []
    try:
        for number, one in enumerate(ranges):
            job = Job(
                _FORMATS[type(reader)],
                reader.paths,
                reader.columns,
                reader.type_map.table(),
                reader.type_map.version,
                str(Path.cwd()),
                one,
                str(folder / f"range-{number:04d}"),
                report.max_errors,
            )
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
                cwd=cwd,
            )
            started.append(process)
            assert process.stdin is not None
            process.stdin.write(msgspec.json.encode(job) + b"\n")
            process.stdin.flush()  # it stays open: a process whose driver is gone ends
        answers = [process.stdout.read() for process in started if process.stdout is not None]
        done = [msgspec.json.decode(answer, type=Done) for answer in answers]
        if _is_plain(ranges, done, report):
            return done
    except (OSError, ValueError):
        pass
    finally:
        for process in started:
            process.kill()
            with suppress(OSError):
                process.communicate()
    return None


def _is_plain(ranges: Sequence[Range], done: Sequence[Done], report: ReadReport) -> bool:
    """Whether the sums are what one pass would find."""
    rows: dict[int, int] = {}
    for one, counted in zip(ranges, done, strict=True):
        rows[one.file] = rows.get(one.file, 0) + counted.rows
    n_skipped = sum(sum(one.skipped.values()) for one in done)
    is_allowed = report.max_errors is None or n_skipped <= report.max_errors
    return all(rows.values()) and is_allowed and not any(one.n_warnings for one in done)


def _add_up(ranges: Sequence[Range], done: Sequence[Done], report: ReadReport) -> None:
    """Fill the report of the whole base."""
    n_before = 0
    for one, counted in zip(ranges, done, strict=True):
        n_before = 0 if one.start == 0 else n_before
        report.rows += counted.rows
        report.merged_rows += counted.merged_rows
        report.conflicting_names += counted.conflicting_names
        for total, part in ((report.skipped, counted.skipped), (report.filtered, counted.filtered)):
            for reason, count in part.items():
                total[reason] = total.get(reason, 0) + count
        report.conflicts += [replace(one, line=one.line + n_before) for one in counted.conflicts]
        report.examples += [replace(skip, line=skip.line + n_before) for skip in counted.examples]
        report.notes += counted.notes
        n_before += counted.n_lines
    del report.conflicts[MAX_EXAMPLES:], report.examples[MAX_EXAMPLES:]


def _join(folders: Sequence[Path]) -> tuple[HashedRuns, str]:
    """The hashes of all runs, and the digest; their files are removed."""
    hashed, content = HashedRuns(), hashlib.sha256()
    for folder in folders:
        hashed.ids.extend((folder / IDS).read_bytes())
        hashed.names.extend((folder / NAMES).read_bytes())
        hashed.names_of_run.frombytes((folder / COUNTS).read_bytes())
        with (folder / CONTENT).open("rb") as file:
            while block := file.read(1 << 20):
                content.update(block)
        for name in (IDS, NAMES, COUNTS, CONTENT):
            (folder / name).unlink()
    return hashed, content.hexdigest()
