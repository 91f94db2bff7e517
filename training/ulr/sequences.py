"""The sequences to train on: cut from texts, or those of a folder of n-grams with their spans.

    text -> sentences -> at most `max_words` words each -> as they are, or neighbours packed together

At most `limit` sequences of all texts are kept, each with the same chance (reservoir sampling), so that memory
is bounded for texts of any size.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

from ingest.io.report import ReadReport
from ingest.io.streams import open_sources
from pearl_qdrant.errors import InputError
from training.corpus.texts import read_texts
from training.events import TrainingEvents
from training.ngrams.files import MarkedSequence, MarkedSequences, NgramCorpus
from training.ngrams.words import split_sentences
from training.options import as_paths
from training.ulr.request import UlrRequest

Cutting = Literal["sentence", "packed"]
"""One sentence each, or neighbouring sentences of a text together."""

FEWEST_WORDS = 3
"""Shorter sequences are skipped: headings and lists."""


class TextSequences(MarkedSequences):
    """Sequences without n-grams, in memory."""

    def __init__(self, texts: list[str]) -> None:
        self._texts = texts

    def __len__(self) -> int:
        return len(self._texts)

    def read(self, index: int) -> MarkedSequence:
        """Return a sequence, whose words are not counted."""
        return MarkedSequence(self._texts[index], (), words=0)

    def digest(self) -> str:
        """Return a short digest, to recognise the sequences when a run resumes."""
        digest = hashlib.blake2b(digest_size=8)
        for text in self._texts:
            digest.update(text.encode("utf-8", "replace") + b"\n")
        return digest.hexdigest()


def digest_of(corpus: NgramCorpus) -> str:
    """Return a short digest of a folder of n-grams, to recognise it when a run resumes: of its counts and its start."""
    digest = hashlib.blake2b(json.dumps(corpus.meta, sort_keys=True).encode(), digest_size=8)
    for marked in corpus[:1000]:
        digest.update(repr(marked).encode("utf-8", "replace"))
    return digest.hexdigest()


def read_sequences(
    texts: Sequence[Path], report: ReadReport, *, field: str, cutting: Cutting, max_words: int, limit: int, seed: int
) -> TextSequences:
    """Read the sequences of text files.

    Args:
        texts: Plain text or JSON Lines, compressed or not.
        report: Counts rows, and those skipped.
        field: Name of the text field in JSON Lines.
        cutting, max_words: As for `cut`.
        limit: At most this many sequences, drawn at random.
        seed: Seed of the draw.

    Raises:
        FormatError: If a file does not exist, is empty, or has no text.
        TooManyErrorsError: If more rows are bad than the report allows.
        InputError: If the texts have no sequence.
    """
    sources = open_sources(texts)
    try:
        found = _sample(
            (
                sequence
                for source in sources
                for text in read_texts(source, report, field=field)
                for sequence in cut(text, cutting=cutting, max_words=max_words)
            ),
            limit=limit,
            rng=random.Random(f"sequences {seed}"),
        )
    finally:
        for source in sources:
            source.close()
    if not found:
        raise InputError(
            str(texts[0]), None, f"has no sequence of at least {FEWEST_WORDS} words. Give files of running text"
        )
    return TextSequences(found)


def cut(text: str, *, cutting: Cutting, max_words: int) -> Iterator[str]:
    """Yield the sequences of a text.

    Args:
        text: A line or an article.
        cutting: "sentence", or "packed": neighbouring sentences together, as long as they have at most `max_words`.
        max_words: A longer sentence is cut into pieces.
    """
    held: list[str] = []
    for sentence in split_sentences(text):
        words = sentence.split()
        for start in range(0, len(words), max_words):
            piece = words[start : start + max_words]
            if held and (cutting == "sentence" or len(held) + len(piece) > max_words):
                yield from _long_enough(held)
                held = []
            held += piece
    yield from _long_enough(held)


def _long_enough(words: list[str]) -> Iterator[str]:
    if len(words) >= FEWEST_WORDS:
        yield " ".join(words)


def _sample(sequences: Iterable[str], *, limit: int, rng: random.Random) -> list[str]:
    """Return at most `limit` of the sequences, each with the same chance."""
    kept: list[str] = []
    for n_seen, sequence in enumerate(sequences):
        if n_seen < limit:
            kept.append(sequence)
        elif (place := rng.randrange(n_seen + 1)) < limit:
            kept[place] = sequence
    return kept


def open_sequences(
    request: UlrRequest, events: TrainingEvents, stack: ExitStack
) -> tuple[Sequence[MarkedSequence], str]:
    """Open the sequences to learn from.

    Args:
        request: Names texts, or a folder of n-grams.
        events: Gets `examples_read`.
        stack: Closes the folder of n-grams.

    Returns:
        The sequences, and their digest.

    Raises:
        InputError: If an input cannot be read, has too many bad rows, or nothing to learn from.
    """
    if request.ngrams is not None:
        corpus = stack.enter_context(NgramCorpus(request.ngrams))
        if not len(corpus):
            raise InputError(str(request.ngrams), None, "has no sequences. Find the n-grams of more texts")
        if not len(corpus.numbers_with_spans()) and request.find_sampling() != "random_span":
            raise InputError(
                str(request.ngrams), None, "has no n-gram in any sequence. Find n-grams with a lower threshold"
            )
        events.examples_read(len(corpus), {})
        return corpus, digest_of(corpus)
    report = ReadReport(max_errors=request.max_errors)
    found = read_sequences(
        as_paths(request.texts),
        report,
        field=request.field,
        cutting=request.cutting,
        max_words=request.max_words,
        limit=request.sequences,
        seed=request.seed,
    )
    events.examples_read(len(found), report.skip_counts)
    return found, found.digest()
