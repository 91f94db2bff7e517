"""Mentions of given names in sequences, by the words of the names."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from ingest.io.lines import BadLine, read_lines
from ingest.io.report import ReadReport
from ingest.io.streams import Source
from pearl_qdrant.errors import FormatError
from training.ngrams.blocks import Block, Indices, Numbers
from training.ngrams.words import WordNumbers, word_pattern
from training.options import MAX_NGRAM_WORDS, Paths, as_paths

_FACTOR = 0xD6E8FEB86659FD93  # of a multiplicative hash: odd, with bits of no pattern
_ALL = (1 << 64) - 1


class EntityNames:
    """Names of two words to `MAX_NGRAM_WORDS`, 8 bytes each in memory.

    Attributes:
        n_names: Distinct names.
        n_unused: Lines whose name is shorter or longer.
    """

    def __init__(self, names: Iterable[str], *, keep_case: bool = False) -> None:
        numbers, pattern = WordNumbers(keep_case=keep_case), word_pattern()
        self.n_unused = 0
        found: dict[int, array[int]] = {}
        for name in names:
            words = pattern.findall(name)
            if not 2 <= len(words) <= MAX_NGRAM_WORDS:
                self.n_unused += 1
                continue
            key = 0
            for word in words:
                key = ((key ^ (key >> 31)) * _FACTOR + numbers[word]) & _ALL
            found.setdefault(len(words), array("Q")).append(key)
        self._keys = {n: np.unique(np.frombuffer(keys, dtype=np.uint64)) for n, keys in found.items()}
        self.n_names = sum(map(len, self._keys.values()))

    def find(self, block: Block) -> tuple[Indices, Indices]:
        """Find the mentions in a block: from the left, the longest name first, without overlap.

        Returns:
            First and last token of each mention, (m,) and (m,), in order.
        """
        positions = np.flatnonzero(block.tokens)
        words, sequences = block.tokens[positions], block.sequence_of(positions)
        starts, lengths = [], []
        for n in sorted(self._keys):
            here = _find_names(words, sequences, n, self._keys[n])
            starts.append(here)
            lengths.append(np.full(len(here), n))
        if not starts:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        start, length = np.concatenate(starts), np.concatenate(lengths)
        order = np.lexsort((-length, start))
        kept, end = [], 0
        for i in order:
            if start[i] >= end:
                kept.append(i)
                end = start[i] + length[i]
        chosen = np.array(kept, dtype=np.int64)
        return positions[start[chosen]], positions[start[chosen] + length[chosen] - 1]


def _find_names(words: Numbers, sequences: Indices, n: int, names: Numbers) -> npt.NDArray[np.int64]:
    """Return where n words in one sequence are a name."""
    n_places = len(words) - n + 1
    if n_places < 1:
        return np.empty(0, np.int64)
    keys = np.zeros(n_places, np.uint64)
    for k in range(n):
        keys = (keys ^ (keys >> np.uint64(31))) * np.uint64(_FACTOR) + words[k : k + n_places]
    found = np.searchsorted(names, keys)
    found[found == len(names)] = 0
    return np.flatnonzero((names[found] == keys) & (sequences[:n_places] == sequences[n - 1 :]))


def read_entity_names(paths: Paths, report: ReadReport, *, keep_case: bool = False) -> EntityNames:
    """Read names, one a line.

    Raises:
        FormatError: If a file cannot be read, or no name has two words.
        TooManyErrorsError: If more lines are bad than the report allows.
    """
    files = as_paths(paths)
    names = EntityNames(_lines(files, report), keep_case=keep_case)
    if files and not names.n_names:
        message = f"no name has from 2 to {MAX_NGRAM_WORDS} words. Give a file with a name on each line"
        raise FormatError(str(files[0]), None, message, option="entities")
    return names


def _lines(paths: Iterable[object], report: ReadReport) -> Iterable[str]:
    for path in paths:
        source = Source(str(path))
        try:
            for number, line in read_lines(source):
                if isinstance(line, BadLine):
                    report.skip(line.reason, path=source.path, line=number, text=line.text)
                elif line.strip():
                    yield line
        finally:
            source.close()
