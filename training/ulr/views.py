"""What the network sees of a sequence: the n-gram w, the rest R, and the whole S with masked tokens.

    text -> tokens, with the special tokens and the model's prefix around them (the frame)
    S = frame + all tokens, some of them masked, none of w
    w = frame + the tokens of the n-gram
    R = frame + all other tokens; they are masked as in S, or not at all

A masked token is [MASK] in 80 of 100 cases, another token in 10, and itself in 10.

Source: ULR (Li & Zhao 2021), section 3.2; masks as in BERT (Devlin et al. 2019).

Scores n-grams by the network in training: how well its MLM head predicts their tokens (ULR, section 3.3).

    score_w = mean over the tokens of w of P(token | S with all of w masked)

Only the masked tokens go through the head, since the product with the vocabulary costs as much as six layers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from pearl_qdrant.encoder.tokens import tokenizer_errors
from pearl_qdrant.errors import ModelError
from training.networks.phrase_vectors import autocast, device_of
from training.ulr.network import UlrNetwork, pad

Span = tuple[int, int]
"""First character of an n-gram in its sequence, and the first one after it."""

_MASKED, _OTHER = 0.8, 0.1  # shares of masked tokens


@dataclass(frozen=True, slots=True)
class TokenisedSequence:
    """A sequence as token ids.

    Attributes:
        text: The part of the sequence that the tokens cover; a long sequence is truncated.
        ids: Token ids, those of the frame included.
        first, end: Where the sequence's own tokens are in `ids`.
        offsets: Start and end of each own token in `text`, in characters.
    """

    text: str
    ids: list[int]
    first: int
    end: int
    offsets: list[tuple[int, int]]

    def token_span(self, span: Span) -> tuple[int, int] | None:
        """Return the tokens of an n-gram as places in `ids`; None if it has none, or the sequence has no other."""
        start, end = span
        within = [i for i, (a, b) in enumerate(self.offsets) if a < end and b > start]
        if not within or len(within) == len(self.offsets):
            return None
        return self.first + within[0], self.first + within[-1] + 1


@dataclass(frozen=True, slots=True)
class Views:
    """The token ids of a sequence and its parts.

    Attributes:
        whole: S, with masked tokens.
        masked: Places of the masked tokens in `whole`.
        targets: Their ids.
        part: w; None if the sequence has no n-gram.
        rest: R; empty without an n-gram.
        rest_masked, rest_targets: As `masked` and `targets`, for R; empty if R has no masks.
    """

    whole: list[int]
    masked: list[int]
    targets: list[int]
    part: list[int] | None = None
    rest: list[int] = field(default_factory=list)
    rest_masked: list[int] = field(default_factory=list)
    rest_targets: list[int] = field(default_factory=list)

    def plain(self) -> list[int]:
        """S without masks."""
        ids = [*self.whole]
        for place, target in zip(self.masked, self.targets, strict=True):
            ids[place] = target
        return ids


@dataclass(frozen=True, slots=True)
class Masking:
    """How tokens are masked.

    Attributes:
        mask_id: Id of [MASK].
        others: Ids that may replace a token: all but the special ones.
        share: Share of the tokens that are masked; 0 for none. At least one token is.
        on_rest: Whether R has the masks of S.
    """

    mask_id: int
    others: Sequence[int]
    share: float
    on_rest: bool = False


def open_masking(tokenizer: Any, *, share: float, on_rest: bool) -> Masking:
    """Return how tokens of a tokenizer are masked.

    Raises:
        ModelError: If it has no mask token.
    """
    special = {i: token.content for i, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    mask_id = next((tokenizer.token_to_id(token) for token in ("[MASK]", "<mask>")
                    if tokenizer.token_to_id(token) is not None), None)  # fmt: skip
    if mask_id is None:
        raise ModelError("The tokenizer has neither [MASK] nor <mask>, which masked language modelling needs.")
    others = [i for i in range(tokenizer.get_vocab_size(with_added_tokens=True)) if i not in special and i != mask_id]
    return Masking(mask_id, others, share, on_rest)


def tokenise(
    tokenizer: Any, texts: Sequence[str], *, prefix: str, max_tokens: int, lowercase: bool = False
) -> list[TokenisedSequence]:
    """Tokenise sequences.

    Args:
        tokenizer: A `tokenizers.Tokenizer` without padding and truncation.
        texts: The sequences.
        prefix: Text before each sequence, n-gram and rest, as when the model is used.
        max_tokens: Longer sequences are truncated; the end token stays.
        lowercase: Lower-case them first; not those few whose length that changes, so that n-grams keep their places.

    Raises:
        CheckpointError: If the tokenizer fails on a sequence.
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
    """Mask a sequence, and take it apart.

    Args:
        sequence: Its tokens.
        span: The tokens of the n-gram, as places in the ids; None if there is none.
        masking: How to mask.
        rng: Draws the masks.
    """
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
    ids, seen = sequence.ids, whole if masking.on_rest else sequence.ids
    in_rest = [i - (end - first) * (i >= end) for i in masked] if masking.on_rest else []
    return Views(
        whole,
        masked,
        targets,
        part=ids[: sequence.first] + ids[first:end] + ids[sequence.end :],
        rest=seen[:first] + seen[end:],
        rest_masked=in_rest,
        rest_targets=targets if masking.on_rest else [],
    )


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


class NetworkScorer:
    """A `training.ngrams.sampling.SpanScorer` over the network in training.

    Args:
        network: Predicts the tokens, without dropout; its mode is the same afterwards.
        sequences: The tokens of the texts that will be scored, by text.
        mask_id: Id of [MASK].
        batch: Spans per forward pass.
        precision: Precision of the encoder's forward passes.
    """

    def __init__(
        self,
        network: UlrNetwork,
        sequences: Mapping[str, TokenisedSequence],
        *,
        mask_id: int,
        batch: int,
        precision: str = "fp32",
    ) -> None:
        self._network, self._sequences = network, sequences
        self._mask_id, self._batch, self._precision = mask_id, batch, precision

    def __call__(self, texts: Sequence[str], spans: Sequence[Span]) -> list[float]:
        """Return the scores of spans, each of a text, in (0, 1); NaN for one without tokens, or with all of them."""
        scores = [float("nan")] * len(texts)
        found = []
        for i, (text, span) in enumerate(zip(texts, spans, strict=True)):
            sequence = self._sequences[text]
            tokens = sequence.token_span(span)
            if tokens is not None:
                found.append((i, sequence.ids, tokens))
        found.sort(key=lambda one: len(one[1]))
        was_training = self._network.training
        self._network.eval()
        for start in range(0, len(found), self._batch):
            some = found[start : start + self._batch]
            means = self._score([(ids, tokens) for _, ids, tokens in some])
            for (i, _, _), mean in zip(some, means, strict=True):
                scores[i] = mean
        self._network.train(was_training)
        return scores

    @torch.no_grad()
    def _score(self, rows: Sequence[tuple[list[int], tuple[int, int]]]) -> list[float]:
        """Score the spans of a batch, given as token ids and the places of the span's tokens."""
        device = device_of(self._network)
        masked = [[*ids[:first], *[self._mask_id] * (end - first), *ids[end:]] for ids, (first, end) in rows]
        at = torch.tensor(
            [(row, place) for row, (_, (first, end)) in enumerate(rows) for place in range(first, end)], device=device
        )
        targets = torch.tensor([token for ids, (first, end) in rows for token in ids[first:end]], device=device)
        with autocast(device, self._precision):
            hidden = self._network.hidden(*pad(masked, device))
            logits = self._network.logits(hidden[at[:, 0], at[:, 1]])
        chances = logits.softmax(-1).gather(1, targets[:, None])[:, 0]
        sums = torch.zeros(len(rows), device=device).index_add_(0, at[:, 0], chances).tolist()
        return [total / (end - first) for total, (_, (first, end)) in zip(sums, rows, strict=True)]
