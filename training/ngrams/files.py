r"""The folder that `find_ngrams` writes: n-grams with count and PMI, and the sequences of the corpus with their spans.

    ngrams.tsv       n-gram <TAB> count <TAB> PMI in nats, after a header; in the order of the first occurrence
                     (counts within documents have a column more, the document)
    sequences.txt    the text of each sequence, a line each, UTF-8
    sequences.bin    a record for each sequence, and one more for the end: `SEQUENCE`
    spans.bin        a record for each span, ordered by sequence, start and end: `SPAN`
    meta.json        options and counts; written last, so that a folder with it is complete

Records are packed, little-endian. The spans of sequence i are those from its `first_span` up to that of i + 1, and its
text goes from its `text` to one byte before that of i + 1. So a program can map the files, and finds a sequence and
its spans without reading others.
"""

from __future__ import annotations

import json
import os
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

from pearl_qdrant.errors import FormatError
from training.options import StrPath

if TYPE_CHECKING:
    from typing_extensions import Self

NGRAMS = "ngrams.tsv"
SEQUENCES_TEXT = "sequences.txt"
SEQUENCES = "sequences.bin"
SPANS = "spans.bin"
META = "meta.json"

VERSION = 1
"""Of the files; a change that older readers cannot read raises it."""

SEQUENCE = np.dtype([("text", "<u8"), ("first_span", "<u8"), ("document", "<u4"), ("words", "<u4")])
"""Where its text begins in sequences.txt, in bytes; its first span; its document, from 0; its number of words."""

SPAN = np.dtype([("start", "<u4"), ("end", "<u4"), ("pmi", "<f4"), ("words", "<u2"), ("entity", "<u2")])
"""From and to which character of the sequence; the PMI, NaN for an entity mention that is no n-gram by its PMI; its
number of words; whether it is an entity mention, 0 or 1."""


@dataclass(frozen=True, slots=True)
class NgramSpan:
    """An n-gram in a sequence.

    Attributes:
        start, end: In characters of the sequence's text; `end` is the first one after it.
        words: Number of words.
        pmi: In nats; None for an entity mention that is no n-gram by its PMI, and for a span drawn at random.
        is_entity: Whether it is a mention of a name that was given.
    """

    start: int
    end: int
    words: int
    pmi: float | None = None
    is_entity: bool = False


@dataclass(frozen=True, slots=True)
class MarkedSequence:
    """A sequence with its n-grams.

    Attributes:
        text: The sequence, a sentence as a rule.
        spans: Its n-grams, ordered by start and end; they may overlap.
        words: Its number of words.
        document: Its document, numbered from 0.
    """

    text: str
    spans: tuple[NgramSpan, ...]
    words: int
    document: int = 0


class MarkedSequences(Sequence[MarkedSequence]):
    """Sequences that are made when they are asked for."""

    @abstractmethod
    def read(self, index: int) -> MarkedSequence:
        """Return a sequence by its number, from 0."""

    @overload
    def __getitem__(self, index: int) -> MarkedSequence: ...
    @overload
    def __getitem__(self, index: slice) -> list[MarkedSequence]: ...
    def __getitem__(self, index: int | slice) -> MarkedSequence | list[MarkedSequence]:
        if isinstance(index, slice):
            return [self.read(i) for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"there are {len(self):,} sequences, and no number {index:,}")
        return self.read(index % len(self))


class NgramCorpus(MarkedSequences):
    """The sequences of a folder that `find_ngrams` wrote, read when they are asked for.

    It takes no memory for what is not read, and can be used by several threads, and by processes forked from this one.

    Attributes:
        folder: The folder.
        meta: Options and counts, as in meta.json.
    """

    def __init__(self, folder: StrPath) -> None:
        """Open the folder.

        Raises:
            FormatError: If a file is missing, or is not as `find_ngrams` wrote it.
        """
        self.folder = Path(folder)
        self.meta = _read_meta(self.folder / META)
        self._descriptor = -1
        try:
            self._sequences = _map(self.folder / SEQUENCES, SEQUENCE)
            self._spans = _map(self.folder / SPANS, SPAN)
            self._descriptor = os.open(self.folder / SEQUENCES_TEXT, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except FileNotFoundError as error:
            raise FormatError(str(error.filename), None, "does not exist. Find the n-grams again") from error
        end = self._sequences[-1] if len(self._sequences) else np.zeros(1, SEQUENCE)[0]
        sizes = (os.fstat(self._descriptor).st_size, len(self._spans), len(self._sequences) - 1)
        if sizes != (int(end["text"]), int(end["first_span"]), self.meta.get("sequences")):
            self.close()
            raise FormatError(str(self.folder), None, "its files do not belong together. Find the n-grams again")

    def __len__(self) -> int:
        return len(self._sequences) - 1

    def read(self, index: int) -> MarkedSequence:
        """Read a sequence."""
        this, following = self._sequences[index], self._sequences[index + 1]
        start, end = int(this["text"]), int(following["text"])
        text = os.pread(self._descriptor, end - start - 1, start).decode("utf-8")
        spans = self._spans[int(this["first_span"]) : int(following["first_span"])].tolist()
        return MarkedSequence(
            text,
            tuple(
                NgramSpan(first, last, n, None if pmi != pmi else pmi, bool(entity))
                for first, last, pmi, n, entity in spans
            ),
            int(this["words"]),
            int(this["document"]),
        )

    def numbers_with_spans(self) -> npt.NDArray[np.int64]:
        """Return the numbers of the sequences that have a span, in order."""
        return np.flatnonzero(np.diff(self._sequences["first_span"]))

    def close(self) -> None:
        """Close the files."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def read_ngrams(folder: StrPath) -> Iterator[tuple[str, int, float]]:
    """Yield n-gram, count and PMI of each row of ngrams.tsv.

    Raises:
        FormatError: If it is missing, or a row is not of this form.
    """
    path = Path(folder) / NGRAMS
    try:
        with path.open(encoding="utf-8", newline="\n") as file:
            next(file, None)
            for number, line in enumerate(file, 2):
                try:
                    ngram, count, pmi, *_ = line[:-1].split("\t")
                    yield ngram, int(count), float(pmi)
                except ValueError as error:
                    raise FormatError(str(path), number, "is not a row of n-gram, count and PMI") from error
    except FileNotFoundError as error:
        raise FormatError(str(path), None, "does not exist. Find the n-grams again") from error


def _map(path: Path, kind: np.dtype[Any]) -> npt.NDArray[Any]:
    size = path.stat().st_size
    if size % kind.itemsize:
        raise FormatError(str(path), None, f"has {size:,} bytes, which are no whole records. Find the n-grams again")
    return np.memmap(path, dtype=kind, mode="r") if size else np.empty(0, dtype=kind)


def _read_meta(path: Path) -> dict[str, Any]:
    try:
        meta = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise FormatError(str(path), None, "does not exist: the folder has no finished n-grams") from error
    except (ValueError, RecursionError) as error:
        raise FormatError(str(path), None, f"is not JSON ({error})") from error
    if not isinstance(meta, dict) or meta.get("version") != VERSION:
        raise FormatError(str(path), None, f"is not of version {VERSION}. Find the n-grams again")
    return meta
