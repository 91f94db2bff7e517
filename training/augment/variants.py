"""Augmentation of a corpus that is computed once: what `train paraphrase` and `train synonyms` do.

Paraphrases are made by a sequence-to-sequence model. The paper's is Parrot (T5), which needs "paraphrase: " before the
phrase. Rows are appended as they are made, so that an interrupted run resumes.

Synonyms are neighbours of words among word vectors, from a `.vec` file of FastText (or GloVe's text format): comparing
50,000 words of 300 dimensions takes 1.5 x 10^12 operations, in blocks of 1,024 words.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ingest.io.encoding import BadLine, byte_lines
from ingest.io.streams import Source
from pearl_qdrant.errors import FormatError
from training.augment.draw import NEIGHBOURS
from training.examples.files import PHRASE_VARIANTS, corpus_phrases, encode_row, parse_variants
from training.options import DEFAULT_PARAPHRASER, MIN_COUNT, StrPath

_PREFIX = "paraphrase: "
_N_VARIANTS = 5
"""Paraphrases generated per phrase; those that equal the phrase or each other are dropped."""
_MAX_PHRASE_TOKENS, _MAX_NEW_TOKENS = 64, 32
_BATCH_SIZE = 64

_MIN_COSINE = 0.7
"""Cosine above which two words count as synonyms; the paper leaves it open ("a certain threshold")."""
_MAX_NEIGHBOURS = 10
_MAX_WORDS = 50_000
"""Words of the corpus that are compared; those with the most frequent vectors come first."""


class Paraphraser:
    """A model that paraphrases phrases."""

    def __init__(self, model: str = DEFAULT_PARAPHRASER, *, device: str = "cpu") -> None:
        """Load a folder or a hub id, OWNER/NAME[@REVISION], with weights in safetensors. Raises ModelError."""
        from transformers import AutoModelForSeq2SeqLM

        from training.networks.checkpoints import open_transformers_model

        self._device = device
        self._tokenizer, self._network = open_transformers_model(
            AutoModelForSeq2SeqLM, model, kind="sequence-to-sequence", device=device
        )

    def paraphrase(self, phrases: Sequence[str]) -> list[tuple[str, ...]]:
        """Paraphrase each phrase; blank variants and those equal except for case and punctuation are dropped."""
        import torch

        batch = self._tokenizer(
            [_PREFIX + phrase for phrase in phrases],
            padding=True,
            truncation=True,
            max_length=_MAX_PHRASE_TOKENS,
            return_tensors="pt",
        )
        with torch.inference_mode():
            made = self._network.generate(
                input_ids=batch["input_ids"].to(self._device),
                attention_mask=batch["attention_mask"].to(self._device),
                num_beams=_N_VARIANTS,
                num_return_sequences=_N_VARIANTS,
                max_new_tokens=_MAX_NEW_TOKENS,
            )
        texts = self._tokenizer.batch_decode(made, skip_special_tokens=True)
        starts = range(0, len(texts), _N_VARIANTS)
        return [_kept(phrase, texts[i : i + _N_VARIANTS]) for phrase, i in zip(phrases, starts, strict=True)]


def write_paraphrases(
    phrases: Iterable[str],
    paraphraser: Paraphraser,
    path: Path,
    *,
    batch_size: int = _BATCH_SIZE,
    on_phrases: Callable[[int], None] = lambda n: None,
) -> int:
    """Append a row for each phrase to a file, after the rows that it has; an incomplete last batch is made again. The
    order of the phrases and the size of a batch must be the same in each run. Returns the number of rows written by
    this call. Raises FormatError if the file has rows of other phrases.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    iterator = iter(phrases)
    on_phrases(_skip_written(iterator, path, batch_size))
    n_written = 0
    with path.open("a", encoding="utf-8", errors="replace", newline="\n") as file:
        while some := list(islice(iterator, batch_size)):
            for phrase, variants in zip(some, paraphraser.paraphrase(some), strict=True):
                file.write(encode_row({"phrase": phrase, "aug": variants}))
            file.flush()
            n_written += len(some)
            on_phrases(len(some))
    return n_written


def _skip_written(phrases: Iterator[str], path: Path, batch_size: int) -> int:
    """Skip the phrases of complete batches in the file, and truncate the rest; returns the number of skipped ones."""
    if not path.exists():
        return 0
    with path.open("rb+") as file:
        n_whole = sum(line.endswith(b"\n") for line in file)
        n_kept = n_whole - n_whole % batch_size
        file.seek(0)
        for number, phrase in enumerate(islice(phrases, n_kept), 1):
            row = parse_variants(file.readline())
            if row is None or row[0] != phrase:
                message = f"is not of {phrase!r}. The file is of other phrases. Write to another file"
                raise FormatError(str(path), number, message)
        file.truncate(file.tell())
    return n_kept


def _kept(phrase: str, texts: Sequence[str]) -> tuple[str, ...]:
    """Return the texts without blanks, repetitions and copies of the phrase."""
    kept = {"": "", _key(phrase): ""}
    for text in (" ".join(text.split()) for text in texts):
        kept.setdefault(_key(text), text)
    return tuple(filter(None, kept.values()))


def _key(text: str) -> str:
    return "".join(c for c in text.casefold() if c.isalnum())


_MAX_LINE = 1 << 20
_BLOCK = 1024

FloatArray = npt.NDArray[np.float32]


def read_vectors(
    path: Path, *, words: Collection[str] | None = None, limit: int | None = None
) -> tuple[list[str], FloatArray]:
    """Read words with their vectors, normalised to length 1, (n, dim), from a `.vec` file, compressed or not. Zero
    vectors are skipped. Raises FormatError if the file has another format, or a row another number of values than the
    first. `words`, best a set, are all that is read; `limit` the most frequent ones.
    """
    found: list[str] = []
    rows: list[FloatArray] = []
    seen: set[str] = set()
    dim = 0
    with closing(Source(path)) as source:
        for number, line in byte_lines(source, max_bytes=_MAX_LINE):
            if isinstance(line, BadLine):
                raise FormatError(str(path), number, f"is not a row of word vectors: {line.reason}")
            cells = line.rstrip().split(b" ")
            if number == 1 and len(cells) == 2 and all(cell.isdigit() for cell in cells):
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
    return found, np.stack(rows) if rows else np.zeros((0, max(dim, 1)), np.float32)


def find_neighbours(
    words: list[str], vectors: FloatArray, *, threshold: float = _MIN_COSINE, limit: int = _MAX_NEIGHBOURS
) -> dict[str, tuple[str, ...]]:
    """Find the nearest other words of each word, above a cosine in (0, 1], the nearest first and `limit` at most; words
    without any are skipped. `vectors` are (n, dim), norm 1. Words that differ only in case are not neighbours.
    """
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


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that was written.

    Attributes:
        path: The file.
        rows: Rows written by this call.
    """

    path: Path
    rows: int


def paraphrase_corpus(
    corpus: StrPath,
    out: StrPath | None = None,
    *,
    model: str = DEFAULT_PARAPHRASER,
    min_count: int = MIN_COUNT,
    device: str = "cpu",
    on_phrases: Callable[[int], None] = lambda n: None,
) -> WrittenFile:
    """Paraphrase the phrases of a corpus with a model; the same call resumes a run that was interrupted.

    Args:
        corpus: A folder with freq_phrase.txt.
        out: The file to write; by default phrase_aug.jsonl in the corpus.
        model: Sequence-to-sequence model: a folder, or a hub id as OWNER/NAME[@REVISION].
        min_count: Phrases that occur less often are skipped.
        device: Where the model runs, as torch names it.
        on_phrases: Called with the number of phrases done since the last call.

    Raises:
        FormatError: If the folder is not a corpus, or the file is of other phrases.
        ModelNotFoundError: If the model does not exist.
        DeviceError: If torch has no such device.
    """
    phrases = corpus_phrases(Path(corpus), min_count=min_count)
    path = Path(corpus) / PHRASE_VARIANTS if out is None else Path(out)
    return WrittenFile(path, write_paraphrases(phrases, Paraphraser(model, device=device), path, on_phrases=on_phrases))


def find_synonyms(corpus: StrPath, vectors: StrPath, out: StrPath | None = None) -> WrittenFile:
    """Find the nearest neighbours of the words of a corpus among word vectors, and write them to a file.

    Args:
        corpus: A folder with freq_phrase.txt.
        vectors: A .vec file of FastText, or GloVe's text format.
        out: The file to write; by default word_neighbours.jsonl in the corpus.

    Raises:
        FormatError: If the folder is not a corpus, or the vectors cannot be read or have none of its words.
    """
    words = {word for phrase in corpus_phrases(Path(corpus), min_count=1) for word in phrase.split()}
    path = Path(corpus) / NEIGHBOURS if out is None else Path(out)
    kept, rows = read_vectors(Path(vectors), words=words, limit=_MAX_WORDS)
    if not kept:
        raise FormatError(str(vectors), None, f"has none of the {len(words)} words of the corpus")
    found = find_neighbours(kept, rows)
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(encode_row({"phrase": word, "synonyms": others}) for word, others in found.items())
    return WrittenFile(path, len(found))
