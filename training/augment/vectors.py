"""Find neighbours of words among word vectors, from a `.vec` file of FastText (or GloVe's text format).

Format: an optional header `n dim`, then a line `word v1 ... vdim` per word, the most frequent words first.
Cost: comparing 50,000 words of 300 dimensions takes 1.5 x 10^12 operations, in blocks of 1,024 words.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ingest.io.lines import BadLine, byte_lines
from ingest.io.streams import Source
from pearl_qdrant.errors import FormatError
from training.corpus.files import encode_row
from training.options import DEFAULT_THRESHOLD

_MAX_LINE = 1 << 20
_BLOCK = 1024

FloatArray = npt.NDArray[np.float32]


def read_vectors(
    path: Path, *, words: Collection[str] | None = None, limit: int | None = None
) -> tuple[list[str], FloatArray]:
    """Read words with their vectors.

    Args:
        path: A `.vec` file, compressed or not.
        words: Only these words, best as a set; None for all.
        limit: At most this many words, the most frequent ones.

    Returns:
        The words, and their vectors normalised to length 1, (n, dim). Zero vectors are skipped.

    Raises:
        FormatError: If the file has another format, or a row another number of values than the first.
    """
    found: list[str] = []
    rows: list[FloatArray] = []
    seen: set[str] = set()
    source = Source(path)
    try:
        dim = 0
        for number, line in byte_lines(source, max_bytes=_MAX_LINE):
            if isinstance(line, BadLine):
                raise FormatError(str(path), number, f"is not a row of word vectors: {line.reason}")
            cells = line.rstrip().split(b" ")
            if number == 1 and len(cells) == 2 and all(cell.isdigit() and len(cell) < 19 for cell in cells):
                dim = int(cells[1])
                continue
            if line.strip():
                dim = dim or len(cells) - 1
                word = b" ".join(cells[:-dim]).decode("utf-8", "replace")
                if word not in seen and (words is None or word in words):
                    vector = _vector(path, number, cells[-dim:], dim)
                    if vector is not None:
                        seen.add(word)
                        found.append(word)
                        rows.append(vector)
            if limit is not None and len(found) >= limit:
                break
    finally:
        source.close()
    return found, np.stack(rows) if rows else np.zeros((0, max(dim, 1)), np.float32)


def find_neighbours(
    words: list[str], vectors: FloatArray, *, threshold: float = DEFAULT_THRESHOLD, limit: int = 10
) -> dict[str, tuple[str, ...]]:
    """Find the nearest other words of each word, above a threshold.

    Args:
        words: n words.
        vectors: (n, dim), norm 1.
        threshold: Cosine, in (0, 1].
        limit: Neighbours per word, at most.

    Returns:
        Neighbours, the nearest first; words without any are skipped. Words that differ only in case are not neighbours.

    Raises:
        ValueError: If the numbers of words and vectors differ, or the threshold is out of range.
    """
    if len(words) != len(vectors):
        raise ValueError(f"{len(words)} words, but {len(vectors)} vectors")
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold must be in (0, 1], not {threshold}")
    found = {}
    for start in range(0, len(words), _BLOCK):
        scores = vectors[start : start + _BLOCK] @ vectors.T  # (block, n)
        for row, i in enumerate(range(start, min(start + _BLOCK, len(words)))):
            near = np.flatnonzero(scores[row] >= threshold)
            near = near[np.argsort(-scores[row, near], kind="stable")]
            folded = words[i].casefold()
            others = tuple(words[j] for j in near[: limit + 8] if words[j].casefold() != folded)[:limit]
            if others:
                found[words[i]] = others
    return found


def write_neighbours(
    path: Path, words: Collection[str], out: Path, *, threshold: float, limit: int, max_words: int
) -> int:
    """Write the neighbours of words in the format of `token_aug.jsonl`; returns the number of rows."""
    kept, vectors = read_vectors(path, words=words, limit=max_words)
    if not kept:
        raise FormatError(str(path), None, f"has none of the {len(words)} words of the corpus")
    found = find_neighbours(kept, vectors, threshold=threshold, limit=limit)
    with out.open("w", encoding="utf-8", newline="\n") as file:
        for word, others in found.items():
            file.write(encode_row({"phrase": word, "synonyms": others}) + "\n")
    return len(found)


def _vector(path: Path, number: int, cells: list[bytes], dim: int) -> FloatArray | None:
    """Parse the values of a row, normalised to length 1; None for a zero vector."""
    try:
        values = np.array(cells, dtype=np.float32)
    except ValueError as error:
        raise FormatError(str(path), number, f"expected {dim} numbers after the word: {error}") from error
    norm = float(np.linalg.norm(values))
    if len(values) != dim or not np.isfinite(norm):
        raise FormatError(str(path), number, f"expected {dim} finite numbers after the word, found {len(values)}")
    return values / np.float32(norm) if norm else None
