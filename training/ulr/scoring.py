"""Scores n-grams by the network in training: how well its MLM head predicts their tokens (ULR, section 3.3).

    score_w = mean over the tokens of w of P(token | S with all of w masked)

Only the masked tokens go through the head, since the product with the vocabulary costs as much as six layers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from training.networks.phrase_vectors import autocast, device_of
from training.ulr.network import UlrNetwork, pad
from training.ulr.views import Span, TokenisedSequence


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
