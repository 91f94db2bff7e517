"""What a step of ULR learns from: sequences that are drawn, an n-gram of each, and masks.

Sequences are cut from texts, or are those of a folder of n-grams with their spans.

    text -> sentences -> at most `max_words` words each -> as they are, or neighbours packed together

At most `limit` sequences of all texts are kept, each with the same chance (reservoir sampling), so that memory
is bounded for texts of any size.

All of it is a function of seed and step, so that a resumed run sees the same.
"""

from __future__ import annotations

import functools
import hashlib
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ingest.io.report import ReadReport
from ingest.io.streams import open_sources
from pearl_qdrant.errors import InputError
from training.corpus.make_corpus import read_texts
from training.events import TrainingEvents
from training.networks.phrase_vectors import device_of, find_precision
from training.ngrams.files import MarkedSequence, MarkedSequences, NgramCorpus, split_sentences
from training.ngrams.sampling import choose_spans
from training.options import as_paths
from training.ulr.network import UlrNetwork
from training.ulr.request import UlrConfig, UlrRequest
from training.ulr.views import Masking, NetworkScorer, TokenisedSequence, Views, make_views, tokenise

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


@dataclass(frozen=True, slots=True)
class UlrData:
    """What a run learns from.

    Attributes:
        sequences: The texts with their n-grams.
        tokenizer: A `tokenizers.Tokenizer` without padding and truncation.
        masking: How tokens are masked.
        prefix: Text before each sequence, n-gram and rest.
        lowercase: Whether texts are lower-cased first.
        digest: Identifies the sequences, so that a run resumes with the same ones.
        limit: At most this many of the sequences, drawn at random; None for all.
    """

    sequences: Sequence[MarkedSequence]
    tokenizer: Any
    masking: Masking
    prefix: str = ""
    lowercase: bool = False
    digest: str = ""
    limit: int | None = None

    def __len__(self) -> int:
        return len(self.sequences) if self.limit is None else min(self.limit, len(self.sequences))

    def draw(self, step: int, n: int, *, seed: int) -> list[MarkedSequence]:
        """Return the sequences of a step, from 1: each once an epoch, in another order every epoch."""
        chosen = _chosen(len(self.sequences), len(self), seed)
        places = (divmod(place, len(self)) for place in range((step - 1) * n, step * n))
        return [self.sequences[int(chosen[_order(len(self), seed, epoch)[i]])] for epoch, i in places]

    def identity(self) -> dict[str, Any]:
        """Return what identifies the data."""
        return {"sequences": self.digest, "n_sequences": len(self), "prefix": self.prefix}


@functools.lru_cache(maxsize=1)
def _chosen(total: int, n: int, seed: int) -> npt.NDArray[np.int64]:
    """The numbers of n sequences of all, in order."""
    if n == total:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(total, n, replace=False))


@functools.lru_cache(maxsize=2)
def _order(n: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """The order of n sequences in an epoch."""
    return np.random.default_rng([seed, epoch]).permutation(n)


class ViewDrawer:
    """Draws what the network sees in a step.

    Args:
        network: Scores n-grams, where they are chosen by their score.
        data: The sequences.
        config: How many are drawn, and how n-grams are chosen.
    """

    def __init__(self, network: UlrNetwork, data: UlrData, config: UlrConfig) -> None:
        self._network, self._data, self._config = network, data, config
        self._precision = find_precision(config.precision, device_of(network))

    def views(self, step: int, *, head_only: bool) -> list[Views]:
        """Draw the sequences of a step, from 1, choose their n-grams and mask them.

        Args:
            step: Its number and the seed decide everything.
            head_only: Choose no n-grams, as while the encoder is fixed.
        """
        data, config = self._data, self._config
        drawn = data.draw(step, config.batch_size, seed=config.seed)
        sequences = tokenise(
            data.tokenizer,
            [marked.text for marked in drawn],
            prefix=data.prefix,
            max_tokens=config.max_tokens,
            lowercase=data.lowercase,
        )
        spans: list[tuple[int, int] | None] = [None] * len(sequences)
        if config.misad_weight and not head_only:
            spans = self._choose(drawn, sequences, random.Random(f"spans {config.seed} {step}"))
        rng = np.random.default_rng([config.seed, step])
        return [make_views(one, span, data.masking, rng) for one, span in zip(sequences, spans, strict=True)]

    def _choose(
        self, drawn: Sequence[MarkedSequence], sequences: Sequence[TokenisedSequence], rng: random.Random
    ) -> list[tuple[int, int] | None]:
        """Choose the n-gram of each sequence: its tokens, or None."""
        config = self._config
        # Only scoring costs a forward pass for each n-gram.
        most = config.n_scored if config.sampling == "lowest_score" else None
        candidates = [_covered(*pair, most, rng) for pair in zip(drawn, sequences, strict=True)]
        scorer = NetworkScorer(
            self._network,
            {sequence.text: sequence for sequence in sequences},
            mask_id=self._data.masking.mask_id,
            batch=config.micro_batch,
            precision=self._precision,
        )
        chosen = choose_spans(candidates, config.sampling, rng=rng, score=scorer)
        return [
            None if span is None else sequence.token_span((span.start, span.end))
            for sequence, span in zip(sequences, chosen, strict=True)
        ]


def _covered(
    marked: MarkedSequence, sequence: TokenisedSequence, most: int | None, rng: random.Random
) -> MarkedSequence:
    """Return the part of a sequence that its tokens cover, with at most so many of its n-grams."""
    spans = tuple(span for span in marked.spans if span.end <= len(sequence.text))
    if most is not None and len(spans) > most:
        spans = tuple(spans[i] for i in sorted(rng.sample(range(len(spans)), most)))
    return replace(marked, text=sequence.text, spans=spans)
