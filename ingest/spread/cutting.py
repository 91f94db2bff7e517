"""Cut a base into buckets by the hash of the entity, while it is scanned; read some buckets as a base of their own.

All rows of an entity go into one bucket, in their order, as the reader yields them: what a reader joins of several
files (UMLS, YAGO) is joined before the cut. Rows that are scattered over the input are merged by the worker that reads
the bucket, by the same code as in a load in one process. A part of the base is every n-th bucket, so that the number of
parts can be chosen when the base is counted.

A bucket is a file of JSON Lines; there are 256, as a process may have a thousand files open. Scan and cut are one pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from hashlib import blake2b
from pathlib import Path
from typing import IO, TYPE_CHECKING

from ingest.base.merge import entity_from_json, entity_to_json, merge_scattered
from ingest.base.reader import Hashes, Reader
from ingest.base.scan import ScanResult, find_scattered, scan
from ingest.io.report import ReadReport
from pearl_qdrant.errors import InputError
from pearl_qdrant.records import Entity

if TYPE_CHECKING:
    from typing_extensions import Self

_ADVICE = "Free some space, or choose a work folder on a larger disk"


BUCKETS = 256
"""Entities are in so many buckets, each written to a file of its own; a part is every n-th of them."""


def bucket_of(entity_id: str) -> int:
    """Return the bucket of an entity, in [0, `BUCKETS`): the same in every process, so that a cut can be resumed."""
    # Text from JSON can have lone surrogates, which plain UTF-8 refuses; they are checked elsewhere.
    digest = blake2b(entity_id.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") % BUCKETS


def buckets_of(part: int, n_parts: int) -> range:
    """The buckets of a part."""
    return range(part, BUCKETS, n_parts)


def cut_and_scan(reader: Reader, report: ReadReport, folder: Path) -> ScanResult:
    """Read a base once: count it as `scan` does, and write its buckets into a folder. Raises InputError as `scan`, and
    if the buckets cannot be written.
    """
    with Cutter(reader, folder) as cutter:
        return scan(reader, report, cutter=cutter)


class BucketReader:
    """Some buckets as a base of their own; a `Reader`."""

    def __init__(self, folder: Path, buckets: range) -> None:
        self._folder = folder
        self._buckets = buckets

    def read(self, report: ReadReport, *, scattered: Hashes | None = None) -> Iterator[Entity]:
        """Entities, each id once; see `Reader.read`."""
        if scattered is None:
            scattered = find_scattered(self)
        yield from merge_scattered(self.read_runs(report), scattered, report)

    def read_runs(self, report: ReadReport) -> Iterator[Entity]:
        """Entities in the order of the input; see `Reader.read_runs`."""
        for path in (_path(self._folder, bucket) for bucket in self._buckets):
            try:
                with path.open(encoding="ascii") as lines:
                    for line in lines:
                        report.rows += 1
                        yield entity_from_json(line)
            except (OSError, ValueError) as error:
                raise InputError(str(path), None, f"a part of the base cannot be read: {error}") from error

    def close(self) -> None:
        """Nothing is held between two passes."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class Cutter(BucketReader):
    """A reader that writes what it yields into buckets."""

    def __init__(self, reader: Reader, folder: Path) -> None:
        super().__init__(folder, range(BUCKETS))
        self._reader = reader

    def read_runs(self, report: ReadReport) -> Iterator[Entity]:
        """The runs of the reader, each also written to its bucket."""
        with ExitStack() as held:
            files = self._open(held)
            for run in self._reader.read_runs(report):
                line = entity_to_json(run) + "\n"
                try:
                    files[bucket_of(run.entity_id)].write(line)
                except OSError as error:
                    raise self._error(error) from error
                yield run
            try:
                for file in files:
                    file.close()
            except OSError as error:
                raise self._error(error) from error

    def _open(self, held: ExitStack) -> list[IO[str]]:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            return [
                held.enter_context(_path(self._folder, bucket).open("w", encoding="ascii")) for bucket in range(BUCKETS)
            ]
        except OSError as error:
            raise self._error(error) from error

    def _error(self, error: OSError) -> InputError:
        message = f"parts of the base cannot be written: {error.strerror or error}. {_ADVICE}"
        return InputError(str(self._folder), None, message, option="work")


def _path(folder: Path, bucket: int) -> Path:
    return folder / f"{bucket:03d}.jsonl"
