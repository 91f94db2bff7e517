"""What the network sees of a sequence, which are drawn for each step: n-gram w, rest R, and the whole S with masks.

    text -> tokens, with the special tokens and the model's prefix around them (the frame)
    S = frame + all tokens, some of them masked, none of w
    w = frame + the tokens of the n-gram
    R = frame + all other tokens, none of them masked

A masked token is [MASK] in 80 of 100 cases, another token in 10, and itself in 10. The n-gram may be the one whose
tokens the MLM head of the network in training predicts worst:

    score_w = mean over the tokens of w of P(token | S with all of w masked)

Source: ULR (Li & Zhao 2021), sections 3.2 and 3.3; masks as in BERT (Devlin et al. 2019).
"""

from __future__ import annotations

import functools
import hashlib
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ingest.io.report import ReadReport
from pearl_qdrant.encoder.batching import tokenizer_errors
from pearl_qdrant.errors import InputError, ModelError
from training.batches import epoch_order
from training.examples.files import opened_sources, read_texts
from training.networks.phrase_vectors import autocast, device_of
from training.ngrams.files import MarkedSequence, NgramCorpus, choose_spans, split_sentences
from training.options import Sampling, TrainingEvents, as_paths
from training.ulr.network import UlrNetwork
from training.ulr.request import UlrRequest

Span = tuple[int, int]
"""First character of an n-gram in its sequence, and the first one after it."""

_MASKED, _OTHER = 0.8, 0.1  # shares of masked tokens


@dataclass(frozen=True, slots=True)
class TokenisedSequence:
    """A sequence as token ids."""

    text: str  # the part of the sequence that the tokens cover; a long sequence is truncated
    ids: list[int]  # token ids, those of the frame included
    # first, end: where the sequence's own tokens are in `ids`
    first: int
    end: int
    offsets: list[tuple[int, int]]  # start and end of each own token in `text`, in characters

    def token_span(self, span: Span) -> tuple[int, int] | None:
        """Return the tokens of an n-gram as places in `ids`; None if it has none, or the sequence has no other."""
        start, end = span
        within = [i for i, (a, b) in enumerate(self.offsets) if a < end and b > start]
        if not within or len(within) == len(self.offsets):
            return None
        return self.first + within[0], self.first + within[-1] + 1


@dataclass(frozen=True, slots=True)
class Views:
    """The token ids of a sequence and its parts."""

    whole: list[int]  # S, with masked tokens
    masked: list[int]  # places of the masked tokens in `whole`
    targets: list[int]  # their ids
    part: list[int] | None = None  # w; None if the sequence has no n-gram
    rest: list[int] = field(default_factory=list)  # R; empty without an n-gram

    def plain(self) -> list[int]:
        """S without masks."""
        ids = [*self.whole]
        for place, target in zip(self.masked, self.targets, strict=True):
            ids[place] = target
        return ids


@dataclass(frozen=True, slots=True)
class Masking:
    """How tokens are masked."""

    mask_id: int  # id of [MASK]
    others: Sequence[int]  # ids that may replace a token: all but the special ones
    share: float  # share of the tokens that are masked; 0 for none. At least one token is


def open_masking(tokenizer: Any, *, share: float) -> Masking:
    """Return how tokens of a tokenizer are masked. Raises ModelError if it has no mask token."""
    special = {i: token.content for i, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    mask_id = next((tokenizer.token_to_id(token) for token in ("[MASK]", "<mask>")
                    if tokenizer.token_to_id(token) is not None), None)  # fmt: skip
    if mask_id is None:
        raise ModelError("The tokenizer has neither [MASK] nor <mask>, which masked language modelling needs.")
    others = [i for i in range(tokenizer.get_vocab_size(with_added_tokens=True)) if i not in special and i != mask_id]
    return Masking(mask_id, others, share)


def tokenise(
    tokenizer: Any, texts: Sequence[str], *, prefix: str, max_tokens: int, lowercase: bool = False
) -> list[TokenisedSequence]:
    """Tokenise sequences. Raises CheckpointError if the tokenizer fails on a sequence.

    Args:
        tokenizer: A `tokenizers.Tokenizer` without padding and truncation.
        prefix: Text before each sequence, n-gram and rest, as when the model is used.
        max_tokens: Longer sequences are truncated; the end token stays.
        lowercase: Lower-case them first; not those few whose length that changes, so that n-grams keep their places.
    """
    if lowercase:
        texts = [small if len(small := text.lower()) == len(text) else text for text in texts]
    with tokenizer_errors("the tokenizer", f"cannot tokenise one of {len(texts):,} sequences"):
        encodings = tokenizer.encode_batch([prefix + text for text in texts])
    return [
        _truncated(text, encoding, len(prefix), max_tokens) for text, encoding in zip(texts, encodings, strict=True)
    ]


def make_views(
    sequence: TokenisedSequence, span: tuple[int, int] | None, masking: Masking, rng: np.random.Generator
) -> Views:
    """Mask a sequence, and take it apart; `span` has the n-gram's tokens as places in the ids."""
    first, end = span or (0, 0)
    places = [i for i in range(sequence.first, sequence.end) if not first <= i < end]
    masked: list[int] = []
    if masking.share and places:
        n_masked = max(1, round(masking.share * len(places)))
        masked = sorted(rng.choice(places, n_masked, replace=False).tolist())
    whole = list(sequence.ids)
    for i, chance in zip(masked, rng.random(len(masked)).tolist(), strict=True):
        if chance < _MASKED:
            whole[i] = masking.mask_id
        elif chance < _MASKED + _OTHER:
            whole[i] = masking.others[int(rng.integers(len(masking.others)))]
    targets = [sequence.ids[i] for i in masked]
    if span is None:
        return Views(whole, masked, targets)
    ids = sequence.ids
    part = ids[: sequence.first] + ids[first:end] + ids[sequence.end :]
    return Views(whole, masked, targets, part, rest=ids[:first] + ids[end:])


def _truncated(text: str, encoding: Any, n_prefix: int, max_tokens: int) -> TokenisedSequence:
    """Return the tokens of a sequence, with only as many of its own as fit."""
    ids, offsets = list(encoding.ids), encoding.offsets
    own = [
        i for i, is_special in enumerate(encoding.special_tokens_mask) if not is_special and offsets[i][1] > n_prefix
    ]
    first, end = (own[0], own[-1] + 1) if own else (0, 0)
    kept = min(end - first, max(0, max_tokens - (len(ids) - (end - first))))
    inside = [(max(0, a - n_prefix), b - n_prefix) for a, b in offsets[first : first + kept]]
    covered = text[: inside[-1][1]] if inside else ""
    return TokenisedSequence(covered, ids[: first + kept] + ids[end:], first, first + kept, inside)


@dataclass(frozen=True, slots=True)
class NetworkScorer:
    """A `training.ngrams.files.SpanScorer` over the network in training."""

    network: UlrNetwork  # predicts the tokens, without dropout; its mode is the same afterwards
    sequences: Mapping[str, TokenisedSequence]  # the tokens of the texts that will be scored, by text
    mask_id: int
    batch: int  # spans per forward pass
    precision: str = "fp32"  # of the encoder's forward passes

    def __call__(self, texts: Sequence[str], spans: Sequence[Span]) -> list[float]:
        """Return the scores of spans, each of a text, in (0, 1); NaN for one without tokens, or with all of them."""
        scores = [float("nan")] * len(texts)
        of = [self.sequences[text] for text in texts]
        tokens = [one.token_span(span) for one, span in zip(of, spans, strict=True)]
        found = [(i, of[i].ids, place) for i, place in enumerate(tokens) if place is not None]
        found.sort(key=lambda one: len(one[1]))
        was_training = self.network.training
        self.network.eval()
        for start in range(0, len(found), self.batch):
            some = found[start : start + self.batch]
            for (i, *_), mean in zip(some, self._score([(ids, place) for _, ids, place in some]), strict=True):
                scores[i] = mean
        self.network.train(was_training)
        return scores

    @torch.no_grad()
    def _score(self, rows: Sequence[tuple[list[int], tuple[int, int]]]) -> list[float]:
        """Score the spans of a batch, given as token ids and the places of the span's tokens."""
        device = device_of(self.network)
        masked = [[*ids[:first], *[self.mask_id] * (end - first), *ids[end:]] for ids, (first, end) in rows]
        at = torch.tensor(
            [(row, place) for row, (_, (first, end)) in enumerate(rows) for place in range(first, end)], device=device
        )
        targets = torch.tensor([token for ids, (first, end) in rows for token in ids[first:end]], device=device)
        with autocast(device, self.precision):
            hidden, _ = self.network.encode(masked)
            logits = self.network.logits(hidden[at[:, 0], at[:, 1]])
        chances = logits.softmax(-1).gather(1, targets[:, None])[:, 0]
        sums = torch.zeros(len(rows), device=device).index_add_(0, at[:, 0], chances).tolist()
        return [total / (end - first) for total, (_, (first, end)) in zip(sums, rows, strict=True)]


FEWEST_WORDS = 3
"""Shorter sequences are skipped: headings and lists."""


def digest_of(sequences: NgramCorpus | Sequence[MarkedSequence]) -> str:
    """Return a short digest, to recognise sequences when a run resumes: of texts all, of a folder counts and start."""
    if isinstance(sequences, NgramCorpus):
        digest = hashlib.blake2b(json.dumps(sequences.meta, sort_keys=True).encode(), digest_size=8)
        for i in range(min(1000, len(sequences))):
            digest.update(repr(sequences[i]).encode("utf-8", "replace"))
    else:
        digest = hashlib.blake2b(digest_size=8)
        for marked in sequences:
            digest.update(marked.text.encode("utf-8", "replace") + b"\n")
    return digest.hexdigest()


def read_sequences(
    texts: Sequence[Path], report: ReadReport, *, field: str, max_words: int, limit: int, seed: int
) -> list[MarkedSequence]:
    """Read at most `limit` sequences of text files, drawn by the seed. Raises InputError if there are none."""
    found: list[str] = []  # each sequence with the same chance
    rng = random.Random(f"sequences {seed}")
    with opened_sources(texts) as sources:
        every = (text for source in sources for text in read_texts(source, report, field=field))
        cuts = (sequence for text in every for sequence in cut(text, max_words=max_words))
        for n_seen, sequence in enumerate(cuts):
            if n_seen < limit:
                found.append(sequence)
            elif (place := rng.randrange(n_seen + 1)) < limit:
                found[place] = sequence
    if not found:
        raise InputError(
            str(texts[0]), None, f"has no sequence of at least {FEWEST_WORDS} words. Give files of running text"
        )
    return [MarkedSequence(text, (), words=0) for text in found]  # their words are not counted


def cut(text: str, *, max_words: int) -> Iterator[str]:
    """Yield the sentences of a text; longer ones are cut."""
    for sentence in split_sentences(text):
        words = sentence.split()
        for start in range(0, len(words), max_words):
            piece = words[start : start + max_words]
            if len(piece) >= FEWEST_WORDS:
                yield " ".join(piece)


@dataclass(frozen=True, slots=True)
class UlrData:
    """What a run learns from."""

    sequences: NgramCorpus | Sequence[MarkedSequence]  # the texts with their n-grams
    tokenizer: Any  # a `tokenizers.Tokenizer` without padding and truncation
    masking: Masking  # how tokens are masked
    prefix: str = ""  # text before each sequence, n-gram and rest
    lowercase: bool = False  # whether texts are lower-cased first
    digest: str = ""  # identifies the sequences, so that a run resumes with the same ones
    limit: int | None = None  # at most this many of the sequences, drawn at random; None for all

    def __len__(self) -> int:
        return len(self.sequences) if self.limit is None else min(self.limit, len(self.sequences))

    def draw(self, step: int, n: int, *, seed: int) -> list[MarkedSequence]:
        """Return the sequences of a step, from 1: each once an epoch, in another order every epoch."""
        chosen = _chosen(len(self.sequences), len(self), seed)
        places = (divmod(place, len(self)) for place in range((step - 1) * n, step * n))
        return [self.sequences[int(chosen[epoch_order(len(self), seed, epoch)[i]])] for epoch, i in places]

    def identity(self) -> dict[str, Any]:
        """Return what identifies the data."""
        return {"sequences": self.digest, "n_sequences": len(self), "prefix": self.prefix}


def open_data(request: UlrRequest, tokenizer: Any, events: TrainingEvents, *, prefix: str, lowercase: bool) -> UlrData:
    """Open what a request names. Raises InputError if an input cannot be read, has too many bad rows, or nothing to
    learn from; ModelError if the tokenizer has no mask token.
    """
    sequences: NgramCorpus | list[MarkedSequence]
    report = ReadReport(max_errors=request.max_errors)
    if request.ngrams is not None:
        corpus = sequences = NgramCorpus(request.ngrams)
        if not len(corpus):
            raise InputError(str(request.ngrams), None, "has no sequences. Find the n-grams of more texts")
        if not len(corpus.numbers_with_spans()) and request.find_sampling() != "random_span":
            raise InputError(
                str(request.ngrams), None, "has no n-gram in any sequence. Find n-grams with a lower threshold"
            )
    else:
        sequences = read_sequences(
            as_paths(request.texts),
            report,
            field=request.field,
            max_words=request.max_words,
            limit=request.sequences,
            seed=request.seed,
        )
    events.examples_read(len(sequences), report.skip_counts)
    share = request.mask_share if request.mlm_weight else 0.0
    masking = open_masking(tokenizer, share=share)
    return UlrData(sequences, tokenizer, masking, prefix, lowercase, digest_of(sequences), request.sequences)


@functools.lru_cache(maxsize=1)
def _chosen(total: int, n: int, seed: int) -> npt.NDArray[np.int64]:
    """The numbers of n sequences of all, in order."""
    if n == total:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(total, n, replace=False))


def choose_tokens(
    drawn: Sequence[MarkedSequence],
    sequences: Sequence[TokenisedSequence],
    sampling: Sampling,
    scorer: NetworkScorer,
    *,
    n_scored: int,
    rng: random.Random,
) -> list[tuple[int, int] | None]:
    """Choose the n-gram of each sequence, of at most `n_scored` that are scored: places of its tokens, or None."""
    # Only scoring costs a forward pass for each n-gram.
    most = n_scored if sampling == "lowest_score" else None
    candidates = [_covered(*pair, most, rng) for pair in zip(drawn, sequences, strict=True)]
    chosen = choose_spans(candidates, sampling, rng=rng, score=scorer)
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
