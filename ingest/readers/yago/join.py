"""Join facts from other files to the names of an entity, by a hash of its IRI.

The files of a base are grouped by entity but not sorted in the same order, and 49 million entities are too many to hold
in memory. So a file to be joined is reduced to a 64-bit hash and a number for each entity: 12 bytes, 28 while they are
sorted. The number identifies a combination of types, a Wikidata item, or a record in a temporary file (9 bytes more).
Hashes are those of Python, with a new seed in each process, so nobody can construct collisions. By chance, two of n
entities collide with probability n^2 / 2^65, 0.007 % for 49 million; then one of them gets the types of both.

If the rows of a subject are in more than `MAX_RECORDS` places of a file, only the first of them are looked up. Without
this, a file with two alternating subjects would take quadratic time. The other names are yielded as separate rows.
"""

from __future__ import annotations

import json
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import numpy as np

from ingest.io import limits
from ingest.readers.rdf.triples import Fact, Subject
from pearl_qdrant.errors import InputError

if TYPE_CHECKING:
    import numpy.typing as npt

MAX_RECORDS = 16
"""Places of a file that are looked up for a subject; files of YAGO have each subject in one."""


class Table:
    """32-bit numbers by subject."""

    def __init__(self) -> None:
        self._hashes = array("q")
        self._values = array("I")
        self._sorted: tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]] | None = None

    def __len__(self) -> int:
        """The number of rows."""
        return len(self._hashes) if self._sorted is None else len(self._sorted[0])

    def add(self, subject: str, value: int) -> None:
        """Add a row; a subject may have several."""
        self._hashes.append(hash(subject))
        self._values.append(value)

    def finish(self) -> None:
        """Sort the rows; no more can be added."""
        hashes = np.asarray(self._hashes)
        values = np.asarray(self._values)
        # A stable sort keeps the order in which rows of a subject were added.
        order = np.argsort(hashes, kind="stable")
        ordered = hashes[order]
        del hashes
        self._hashes, self._values = array("q"), array("I")
        self._sorted = ordered, values[order]

    def find(self, subjects: Sequence[str]) -> list[list[int]]:
        """The numbers of each subject, in the order in which they were added, at most `MAX_RECORDS`."""
        if self._sorted is None:
            raise RuntimeError("a table was searched before it was finished")
        hashes, values = self._sorted
        wanted = np.fromiter(map(hash, subjects), dtype=np.int64, count=len(subjects))
        if not len(hashes):
            return [[] for _ in subjects]
        starts = np.searchsorted(hashes, wanted)
        # Nearly every subject has one number: only the others are looked up a second time.
        is_found = _at(hashes, starts) == wanted
        found = [
            [value] if is_one else []
            for value, is_one in zip(_at(values, starts).tolist(), is_found.tolist(), strict=True)
        ]
        has_more = is_found & (starts + 1 < len(hashes)) & (_at(hashes, starts + 1) == wanted)
        for place in np.flatnonzero(has_more).tolist():
            start = int(starts[place])
            end = int(np.searchsorted(hashes, wanted[place], side="right"))
            found[place] = values[start : min(end, start + MAX_RECORDS)].tolist()
        return found


def _at(numbers: npt.NDArray[np.int64 | np.uint32], places: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """The numbers at these positions; a position after the last gives the last number."""
    return numbers[np.minimum(places, len(numbers) - 1)]


class Combinations:
    """Numbers for tuples of classes; most entities share a few."""

    def __init__(self) -> None:
        self._number: dict[tuple[str, ...], int] = {}
        self._classes: list[tuple[str, ...]] = []

    def number(self, classes: tuple[str, ...]) -> int:
        """The number of a tuple; a new tuple gets a new number."""
        number = self._number.setdefault(classes, len(self._classes))
        if number == len(self._classes):
            self._classes.append(classes)
        return number

    def classes(self, numbers: Iterable[int]) -> list[str]:
        """The classes of several tuples, at most as many as an entity may have rows."""
        return list(islice(chain.from_iterable(self._classes[number] for number in numbers), limits.MAX_ROWS))


class LaterRows:
    """Rows of entities, by subject, in an unnamed temporary file."""

    def __init__(self) -> None:
        self._file = cast("BinaryIO", tempfile.TemporaryFile(prefix="pearl-qdrant-"))  # noqa: SIM115
        self._table = Table()
        self._places = array("Q", [0])
        self._is_used = bytearray()

    def add(self, subject: str, facts: Sequence[Fact]) -> None:
        """Add the rows of one subject.

        Raises:
            InputError: If the file cannot be written.
        """
        record = json.dumps([subject, facts]).encode()
        self._table.add(subject, len(self._places) - 1)
        self._places.append(self._places[-1] + len(record))
        with _as_input_error():
            self._file.write(record)

    def finish(self) -> None:
        """End adding; rows can now be found."""
        with _as_input_error():
            self._file.flush()
        self._table.finish()
        self.start()

    def start(self) -> None:
        """Begin a pass: no row is used yet."""
        self._is_used = bytearray(len(self._places) - 1)

    def find(self, subjects: Sequence[str]) -> Iterator[list[Fact]]:
        """The rows of each subject, read lazily.

        Raises:
            InputError: If the file cannot be read.
        """
        for subject, records in zip(subjects, self._table.find(subjects), strict=True):
            facts: list[Fact] = []
            n_bytes = 0
            for record in records:
                n_bytes += self._places[record + 1] - self._places[record]
                if facts and n_bytes > limits.MAX_ENTITY_BYTES:
                    break
                owner, more = self._read(record)
                if owner == subject:
                    self._is_used[record] = True
                    facts += more
            yield facts

    def rest(self) -> Iterator[Subject]:
        """The rows that were not found in this pass, in the order in which they were added. Raises as `find`."""
        record = self._is_used.find(0)
        while record >= 0:
            yield self._read(record)
            record = self._is_used.find(0, record + 1)

    def close(self) -> None:
        """Remove the file."""
        self._file.close()

    def _read(self, record: int) -> Subject:
        with _as_input_error():
            self._file.seek(self._places[record])
            text = self._file.read(self._places[record + 1] - self._places[record])
        subject, facts = json.loads(text)
        return subject, [tuple(fact) for fact in facts]


@contextmanager
def _as_input_error() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = f"names cannot be stored: {error.strerror or error}. Point TMPDIR to a larger disk"
        raise InputError("temporary file", None, message) from error
