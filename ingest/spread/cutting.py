"""Cut a base into files by the hash of the entity, while it is scanned; read some of them as a base of their own.

All rows of an entity go into one file, in their order, as the reader yields them: what a reader joins of several
files (UMLS, YAGO) is joined before the cut. Rows that are scattered over the input are merged by the worker that reads
the file, by the same code as in a load in one process. A part of the base is every n-th file, so that the number of
parts can be chosen when the base is counted.

The files are JSON Lines; there are 256, as a process may have a thousand files open. Scan and cut are one pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from hashlib import blake2b
from pathlib import Path
from typing import IO

from ingest.base.merge import entity_from_json, entity_to_json
from ingest.base.reader import Reader
from ingest.base.scan import ScanResult, scan
from ingest.base.type_map import TypeMap
from ingest.io.report import ReadReport
from pearl_qdrant.errors import InputError
from pearl_qdrant.records import Entity

_ADVICE = "Free some space, or choose a work folder on a larger disk"


CUT_FILES = 256
"""Files of a cut, and the most parts that a base can have; a part is every n-th of them."""


def cut_file_of(entity_id: str) -> int:
    """The number of the file of an entity, below `CUT_FILES`: the same everywhere, so that a cut can be resumed."""
    # Text from JSON can have lone surrogates, which plain UTF-8 refuses; they are checked elsewhere.
    digest = blake2b(entity_id.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") % CUT_FILES


def cut_files_of(part: int, n_parts: int) -> range:
    """The files of a part."""
    return range(part, CUT_FILES, n_parts)


def cut_and_scan(reader: Reader, report: ReadReport, folder: Path) -> ScanResult:
    """Read a base once: count it as `scan` does, and write its files into a folder. Raises InputError as `scan`, and
    if the files cannot be written.
    """
    with Cutter(reader, folder) as cutter:
        return scan(reader, report, cutter=cutter)


class CutReader(Reader):
    """Some files of a cut as a base of their own."""

    def __init__(self, folder: Path, files: range) -> None:
        super().__init__(type_map=TypeMap({}, version=""), limit=None)  # the entities have their types
        self._folder = folder
        self._files = files

    def read_runs(self, report: ReadReport) -> Iterator[Entity]:
        """Entities in the order of the input; those of a file are runs already."""
        return self.read_rows(report)

    def read_rows(self, report: ReadReport) -> Iterator[Entity]:
        """The lines of the files."""
        for path in (_path(self._folder, number) for number in self._files):
            try:
                with path.open(encoding="ascii") as lines:
                    for line in lines:
                        report.rows += 1
                        yield entity_from_json(line)
            except (OSError, ValueError) as error:
                raise InputError(str(path), None, f"a part of the base cannot be read: {error}") from error


class Cutter(CutReader):
    """A reader that writes what it yields into the files of a cut."""

    def __init__(self, reader: Reader, folder: Path) -> None:
        super().__init__(folder, range(CUT_FILES))
        self._reader = reader

    def read_runs(self, report: ReadReport) -> Iterator[Entity]:
        """The runs of the reader, each also written to its file."""
        with ExitStack() as held:
            files = self._open(held)
            for run in self._reader.read_runs(report):
                line = entity_to_json(run) + "\n"
                try:
                    files[cut_file_of(run.entity_id)].write(line)
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
                held.enter_context(_path(self._folder, number).open("w", encoding="ascii"))
                for number in range(CUT_FILES)
            ]
        except OSError as error:
            raise self._error(error) from error

    def _error(self, error: OSError) -> InputError:
        message = f"parts of the base cannot be written: {error.strerror or error}. {_ADVICE}"
        return InputError(str(self._folder), None, message, option="work")


def _path(folder: Path, number: int) -> Path:
    return folder / f"{number:03d}.jsonl"
