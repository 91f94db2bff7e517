"""Writes n-grams, sequences and spans, block by block."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np

from training.ngrams.blocks import Block, BlockStore, Indices, read_texts_of
from training.ngrams.entities import EntityNames
from training.ngrams.files import NGRAMS, SEQUENCE, SEQUENCES, SEQUENCES_TEXT, SPAN, SPANS
from training.ngrams.levels import LevelStore, Records, count_in_documents
from training.ngrams.marks import Floats, Ngrams, Spans, join_spans, keep_best, score_ngrams
from training.ngrams.words import normalise_word
from training.options import NgramOptions

if TYPE_CHECKING:
    from typing_extensions import Self

_ROWS_AT_ONCE = 1 << 16


class MarkWriter:
    """Scores the n-grams of each block and writes all files but meta.json. A context manager, which closes them.

    Attributes:
        n_rows: Rows of ngrams.tsv by number of words.
        n_spans, n_mentions, n_marked: Spans, entity mentions, and sequences with a span.
    """

    def __init__(
        self, folder: Path, blocks: BlockStore, levels: LevelStore | None, names: EntityNames, options: NgramOptions
    ) -> None:
        self._folder, self._blocks, self._levels, self._names, self._options = folder, blocks, levels, names, options
        self.n_rows: Counter[int] = Counter()
        self.n_spans = self.n_mentions = self.n_marked = 0
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        enter, folder = self._stack.enter_context, self._folder
        self._texts = enter((folder / SEQUENCES_TEXT).open("rb"))
        self._rows = enter((folder / NGRAMS).open("w", encoding="utf-8", newline="\n"))
        self._sequences = enter((folder / SEQUENCES).open("wb"))
        self._spans = enter((folder / SPANS).open("wb"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def write(self) -> None:
        """Write the files."""
        in_documents = self._levels is None
        self._rows.write("ngram\tcount\tpmi\tdocument\n" if in_documents else "ngram\tcount\tpmi\n")
        for number in range(self._blocks.n_blocks):
            block = self._blocks.read(number)
            levels, log_total = self._counts(block, number)
            ngrams = score_ngrams(levels, len(block.tokens), log_total, self._options)
            self._write_rows(ngrams.take(ngrams.first), block)
            ngrams = keep_best(ngrams, block, self._options.max_per_document)
            mentions = self._names.find(block)
            self.n_mentions += len(mentions[0])
            self._write_spans(join_spans(ngrams, mentions, block), block)
        end = np.zeros(1, SEQUENCE)
        end["text"] = (self._folder / SEQUENCES_TEXT).stat().st_size
        end["first_span"] = self.n_spans
        self._sequences.write(end.tobytes())

    def _counts(self, block: Block, number: int) -> tuple[list[Records], float | Floats]:
        """Return the occurrences of each level, and the logarithm of the number of words that they are of."""
        longest = self._options.max_words
        if self._levels is not None:
            levels = [self._levels.read(level, number) for level in range(1, longest + 1)]
            return levels, float(np.log(self._blocks.n_words))
        documents = np.repeat(block.documents - block.documents.min(), block.lengths)
        n_words = np.bincount(documents, weights=block.tokens != 0)
        log_totals = np.log(np.maximum(n_words, 1))[documents]
        return count_in_documents(block, max_words=longest, min_count=self._options.min_count), log_totals

    def _write_rows(self, ngrams: Ngrams, block: Block) -> None:
        """Write the rows of n-grams at their first occurrences, and read the texts of the block."""
        texts = list(read_texts_of(self._texts, block))
        for start in range(0, len(ngrams.positions), _ROWS_AT_ONCE):
            self._write_some(ngrams.take(slice(start, start + _ROWS_AT_ONCE)), block, texts)

    def _write_some(self, ngrams: Ngrams, block: Block, texts: list[str]) -> None:
        sequences = block.sequence_of(ngrams.positions)
        starts, ends = block.starts, block.ends
        keep_case, in_documents = self._options.keep_case, self._levels is None
        columns = (ngrams.positions, ngrams.words, ngrams.counts, ngrams.pmi, sequences)
        for position, n, count, pmi, sequence in zip(*(column.tolist() for column in columns), strict=True):
            text = texts[sequence]
            bounds = zip(starts[position : position + n].tolist(), ends[position : position + n].tolist(), strict=True)
            ngram = " ".join(normalise_word(text[start:end], keep_case=keep_case) for start, end in bounds)
            row = f"{ngram}\t{count}\t{pmi:.6f}"
            self._rows.write(f"{row}\t{block.documents[sequence]}\n" if in_documents else f"{row}\n")
        self.n_rows.update(ngrams.words.tolist())

    def _write_spans(self, spans: Spans, block: Block) -> None:
        records = np.zeros(len(spans.first), dtype=SPAN)
        records["start"], records["end"] = block.starts[spans.first], block.ends[spans.last]
        records["pmi"], records["words"], records["entity"] = spans.pmi, spans.words, spans.entity
        self._spans.write(records.tobytes())
        n_spans: Indices = np.bincount(block.sequence_of(spans.first), minlength=len(block.lengths))
        sequences = np.zeros(len(block.lengths), dtype=SEQUENCE)
        sequences["text"], sequences["document"] = block.offsets, block.documents
        sequences["first_span"] = self.n_spans + np.cumsum(n_spans) - n_spans
        is_word = np.concatenate(([0], np.cumsum(block.tokens != 0)))
        before = block.words_before()
        sequences["words"] = is_word[before + block.lengths] - is_word[before]
        self._sequences.write(sequences.tobytes())
        self.n_spans += len(records)
        self.n_marked += int((n_spans > 0).sum())
