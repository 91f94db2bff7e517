"""The tokens of a corpus on disk, in blocks of whole documents that are read into memory one at a time."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from training.ngrams.files import SEQUENCES_TEXT
from training.ngrams.words import BREAK, WordNumbers, split_sentences, word_pattern
from training.options import NgramOptions

Numbers = npt.NDArray[np.uint64]
Indices = npt.NDArray[np.int64]

_PARTS = (("tokens", "<u8"), ("starts", "<u4"), ("ends", "<u4"))
_SEQUENCE_PARTS = (("offsets", "<u8"), ("lengths", "<u4"), ("documents", "<u4"))


@dataclass(frozen=True, slots=True)
class Block:
    """Some documents: arrays over their tokens (`t`), and over their sequences (`s`).

    After each sequence there is one more token, `BREAK`.

    Attributes:
        tokens: Numbers of the words, (t,).
        starts, ends: Where each word begins and ends in the text of its sequence, in characters, (t,).
        offsets: Where the text of each sequence begins in the file, in bytes, (s,).
        lengths: Tokens of each sequence, its `BREAK` included, (s,).
        documents: The document of each sequence, numbered from 0, (s,).
    """

    tokens: Numbers
    starts: npt.NDArray[np.uint32]
    ends: npt.NDArray[np.uint32]
    offsets: Numbers
    lengths: npt.NDArray[np.uint32]
    documents: npt.NDArray[np.uint32]

    def sequence_of(self, positions: npt.NDArray[np.integer]) -> Indices:
        """Return the sequence of each token, counted from 0 in the block."""
        sequences: Indices = np.repeat(np.arange(len(self.lengths)), self.lengths)[positions]
        return sequences

    def words_before(self) -> Indices:
        """Return the number of tokens before each sequence, (s,)."""
        lengths = self.lengths.astype(np.int64)
        return np.cumsum(lengths) - lengths


@dataclass(slots=True)
class BlockStore:
    """Writes the blocks of a corpus and the texts of its sequences, and reads the blocks again.

    Attributes:
        folder: Of the blocks, which are temporary.
        n_blocks, n_documents, n_sequences, n_words: Counts of what was written.
    """

    folder: Path
    n_blocks: int = 0
    n_documents: int = 0
    n_sequences: int = 0
    n_words: int = 0
    _arrays: dict[str, array[int]] = field(default_factory=dict)

    def write(self, texts: Iterable[str], out: Path, options: NgramOptions) -> None:
        """Split texts into sequences and words.

        Args:
            texts: One for each document; an empty one counts as a document without sequences.
            out: Folder that gets the texts of the sequences.
            options: How words are found.
        """
        numbers = WordNumbers(keep_case=options.keep_case)
        pattern = word_pattern(breaks=options.punctuation == "break")
        self._clear()
        offset = in_document = 0
        with (out / SEQUENCES_TEXT).open("wb") as file:
            for text in texts:
                in_document = 0
                for sentence in split_sentences(text):
                    spans = [found.span() for found in pattern.finditer(sentence)]
                    tokens = [numbers[sentence[start:end]] for start, end in spans]
                    for piece, first, last in _pieces(sentence, spans, tokens, options.max_sequence_words):
                        in_document = self._start_part(in_document, last - first, options)
                        self._add(tokens[first:last], spans[first:last], piece[0], offset)
                        offset += file.write(piece[1].encode("utf-8", "replace") + b"\n")
                self.n_documents += 1
                if len(self._arrays["tokens"]) >= options.block_words:
                    self._save()
        if self._arrays["tokens"]:
            self._save()

    def _start_part(self, in_document: int, n_tokens: int, options: NgramOptions) -> int:
        """Count the tokens of a document; one of more than a block goes on as another document."""
        if in_document + n_tokens > options.block_words and in_document:
            self.n_documents += 1
            self._save()
            in_document = 0
        return in_document + n_tokens

    def _add(self, tokens: list[int], spans: list[tuple[int, int]], shift: int, offset: int) -> None:
        arrays = self._arrays
        arrays["tokens"].extend([*tokens, BREAK])
        arrays["starts"].extend([*(start - shift for start, _ in spans), 0])
        arrays["ends"].extend([*(end - shift for _, end in spans), 0])
        arrays["offsets"].append(offset)
        arrays["lengths"].append(len(tokens) + 1)
        arrays["documents"].append(self.n_documents)
        self.n_sequences += 1
        self.n_words += len(tokens) - tokens.count(BREAK)

    def _save(self) -> None:
        for name, values in self._arrays.items():
            with self._path(name, self.n_blocks).open("wb") as file:
                values.tofile(file)
        self.n_blocks += 1
        self._clear()

    def _clear(self) -> None:
        codes = {"<u8": "Q", "<u4": "I"}
        self._arrays = {name: array(codes[kind]) for name, kind in (*_PARTS, *_SEQUENCE_PARTS)}

    def _path(self, name: str, block: int) -> Path:
        return self.folder / f"{name}.{block}"

    def read(self, block: int) -> Block:
        """Return a block."""
        return Block(
            **{name: np.fromfile(self._path(name, block), dtype=kind) for name, kind in (*_PARTS, *_SEQUENCE_PARTS)}
        )

    def read_tokens(self, block: int) -> Numbers:
        """Return the tokens of a block alone."""
        return np.fromfile(self._path("tokens", block), dtype="<u8")


def read_texts_of(file: BinaryIO, block: Block) -> Iterator[str]:
    """Yield the texts of the sequences of a block, in order; the file stands at the first one."""
    for _ in range(len(block.offsets)):
        yield file.readline()[:-1].decode("utf-8")


def _pieces(
    sentence: str, spans: list[tuple[int, int]], tokens: list[int], longest: int
) -> Iterator[tuple[tuple[int, str], int, int]]:
    """Yield the pieces of a sentence that have a word: where each begins, its text, and its first and last token."""
    if not any(tokens):
        return
    if len(tokens) <= longest:
        yield (0, sentence), 0, len(tokens)
        return
    for first in range(0, len(tokens), longest):
        last = min(first + longest, len(tokens))
        start = spans[first][0]
        end = spans[last][0] if last < len(tokens) else len(sentence)
        if any(tokens[first:last]):
            yield (start, sentence[start:end].rstrip()), first, last
