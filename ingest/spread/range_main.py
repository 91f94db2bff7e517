"""The process that scans and cuts a range of a base: ``python -m ingest.spread.range_main``.

Started by `ranges.py`, with its job as a line on standard input; not for use by hand. It prints what it counted. It
ends with its driver, which keeps standard input open.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ingest.base.scan import HashedRuns
from ingest.base.type_map import TypeMap
from ingest.formats import ReadOptions, open_reader
from ingest.io.report import ReadReport
from ingest.io.streams import Source
from ingest.readers.tables.ranges import Range, RangeSource
from ingest.readers.tables.reader import LineTableReader
from ingest.spread.cutting import BucketReader, Cutter
from ingest.spread.ranges import CONTENT, COUNTS, IDS, NAMES, Done, Job, RangeReader
from pearl_qdrant.errors import PearlQdrantError

if TYPE_CHECKING:
    from pearl_qdrant.records import Entity


def main() -> int:
    """Do the job on standard input."""
    job = msgspec.json.decode(sys.stdin.buffer.readline(), type=Job)
    threading.Thread(target=_end_with_driver, daemon=True).start()
    os.chdir(job.cwd)
    try:
        done = _read(job)
    except (PearlQdrantError, OSError) as error:  # the driver reads the base itself, and tells it in full
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.buffer.write(msgspec.json.encode(done))
    return 0


def _read(job: Job) -> Done:
    types = TypeMap(job.types, version=job.types_version)
    folder, report, hashed = Path(job.folder), ReadReport(max_errors=job.max_errors), HashedRuns()
    with open_reader(job.paths, job.format, ReadOptions(columns=job.columns), type_map=types) as reader:
        assert isinstance(reader, RangeReader)
        folder.mkdir(parents=True)
        with (folder / CONTENT).open("wb") as content:
            for run in Cutter(_Runs(reader, job.range), folder).read_runs(report):
                content.write(hashed.add(run))
    (folder / IDS).write_bytes(hashed.ids)
    (folder / NAMES).write_bytes(hashed.names)
    (folder / COUNTS).write_bytes(hashed.names_of_run.tobytes())
    is_text = isinstance(reader, LineTableReader)
    source = RangeSource(Source(job.paths[job.range.file]), job.range)
    return Done(
        sum(chunk.count(b"\n") for chunk in source.chunks()) if is_text else 0,
        report.rows,
        report.merged_rows,
        report.conflicting_names,
        report.conflicts,
        report.skipped,
        report.filtered,
        report.examples,
        report.notes,
        len(report.warnings),
    )


class _Runs(BucketReader):
    """A range as a base of its own."""

    def __init__(self, reader: RangeReader, one: Range) -> None:
        super().__init__(Path(), range(0))
        self._reader = reader
        self._range = one

    def read_runs(self, report: ReadReport) -> Iterator[Entity]:
        """The runs of the range."""
        return self._reader.join_runs(self._reader.read_range(self._range, report), report)


def _end_with_driver() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
