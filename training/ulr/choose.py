"""Choose the n-gram of each sequence: the one that the model knows least, any one, or a random span.

    score_w = mean over the tokens of w of P(token | S with all of w masked)        the lowest score is chosen

Source: ULR (Li & Zhao 2021), section 3.3. The published code draws any n-gram of the sequence.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch

from training.networks.phrase_vectors import autocast, device_of
from training.ulr.config import UlrConfig
from training.ulr.network import UlrNetwork, pad
from training.ulr.spans import FindSpans, random_span
from training.ulr.views import TokenisedSequence

TokenSpan = tuple[int, int]
"""First token of an n-gram, and the one after its last, as places in a sequence's ids."""


def choose_spans(
    network: UlrNetwork,
    sequences: Sequence[TokenisedSequence],
    find_spans: FindSpans | None,
    config: UlrConfig,
    *,
    mask_id: int,
    rng: random.Random,
    precision: str = "fp32",
) -> list[TokenSpan | None]:
    """Choose the n-gram of each sequence.

    Args:
        network: Scores the n-grams; its mode is the same afterwards.
        sequences: The sequences.
        find_spans: Finds their n-grams; not used for random spans.
        config: How to choose; all is None if MiSAD has no weight.
        mask_id: Id of [MASK].
        rng: Draws spans and n-grams.
        precision: Precision of the encoder's forward passes.

    Returns:
        Tokens of each n-gram; None for a sequence that has none, or consists of it.
    """
    if not config.misad_weight:
        return [None] * len(sequences)
    if config.sampling == "random-spans" or find_spans is None:
        drawn = [random_span(sequence.text, rng) for sequence in sequences]
        return [
            None if span is None else sequence.token_span(span) for sequence, span in zip(sequences, drawn, strict=True)
        ]
    found = [_token_spans(sequence, find_spans) for sequence in sequences]
    if config.sampling == "uniform":
        return [rng.choice(spans) if spans else None for spans in found]
    found = [sorted(rng.sample(spans, config.n_scored)) if len(spans) > config.n_scored else spans for spans in found]
    scored = [(i, span) for i, spans in enumerate(found) if len(spans) > 1 for span in spans]
    scores = score_spans(
        network, [(sequences[i], span) for i, span in scored], mask_id=mask_id,
        micro_batch=config.micro_batch, precision=precision,
    )  # fmt: skip
    best: dict[int, tuple[float, TokenSpan]] = {}
    for (i, span), score in zip(scored, scores, strict=True):
        best[i] = min(best.get(i, (score, span)), (score, span))
    return [best[i][1] if i in best else (spans[0] if spans else None) for i, spans in enumerate(found)]


@torch.no_grad()
def score_spans(
    network: UlrNetwork,
    candidates: Sequence[tuple[TokenisedSequence, TokenSpan]],
    *,
    mask_id: int,
    micro_batch: int,
    precision: str = "fp32",
) -> list[float]:
    """Return the mean probability of the tokens of each n-gram, all of them masked, in (0, 1).

    Args:
        network: Predicts them, without dropout; its mode is the same afterwards.
        candidates: Sequences with the tokens of an n-gram.
        mask_id: Id of [MASK].
        micro_batch: Sequences per forward pass.
        precision: Precision of the encoder's forward passes.
    """
    was_training, device = network.training, device_of(network)
    network.eval()
    scores = [0.0] * len(candidates)
    order = sorted(range(len(candidates)), key=lambda i: len(candidates[i][0].ids))
    for start in range(0, len(order), micro_batch):
        rows = order[start : start + micro_batch]
        masked, at, targets = [], [], []
        for row, i in enumerate(rows):
            sequence, (first, end) = candidates[i]
            masked.append([*sequence.ids[:first], *[mask_id] * (end - first), *sequence.ids[end:]])
            at += [(row, place) for place in range(first, end)]
            targets += sequence.ids[first:end]
        with autocast(device, precision):
            hidden = network.hidden(*pad(masked, device))
            places = torch.tensor(at, device=device)
            logits = network.logits(hidden[places[:, 0], places[:, 1]])
        chances = logits.softmax(-1).gather(1, torch.tensor(targets, device=device)[:, None])[:, 0]
        sums = torch.zeros(len(rows), device=device).index_add_(0, places[:, 0], chances)
        for i, total in zip(rows, sums.tolist(), strict=True):
            first, end = candidates[i][1]
            scores[i] = total / (end - first)
    network.train(was_training)
    return scores


def _token_spans(sequence: TokenisedSequence, find_spans: FindSpans) -> list[TokenSpan]:
    """Return the n-grams of a sequence as tokens, each once, in order."""
    found = (sequence.token_span(span) for span in find_spans(sequence.text))
    return sorted({span for span in found if span is not None})
