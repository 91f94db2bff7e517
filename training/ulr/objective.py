"""The objective of ULR, and a run of its steps.

    L = misad_weight L_MiSAD + mlm_weight L_MLM
        L_MiSAD = MSE(E_w + E_R, E_S)       unit vectors of the n-gram, of the rest and of the whole sequence
        L_MLM                               cross-entropy of the masked tokens of S, none of them in w

With `hold` (not in the paper) MiSAD is misad_weight (MSE(E_w + E_R, start's E_S) + hold MSE(E_S, start's E_S)):
the vectors of whole sequences, without masks, stay where the encoder had them before training. Otherwise E_S is the
vector of the masked S, as one pass gives both terms. The MSE is a mean over dimensions too: for 384 dimensions a
squared distance of 1 is a loss of 0.0026.

Batches, n-grams, masks and dropout are functions of seed and step, so that a resumed run ends with the same weights. A
step of 64 sentences (28 tokens each) through 6 layers of 384 takes 7 to 10 s of one core in fp32; with 8 n-grams of
each scored, about 15 s. Source: ULR (Li & Zhao 2021), section 3.2.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from training.networks.phrase_vectors import autocast, device_of, find_precision
from training.training_loop import Objective, StepRecord
from training.ulr.drawing import NetworkScorer, UlrData, Views, choose_tokens, make_views, tokenise
from training.ulr.network import UlrNetwork
from training.ulr.request import UlrConfig


def misad(part: Tensor, rest: Tensor, whole: Tensor, *, renormalise: bool = False) -> Tensor:
    """Mean square error between E_w + E_R and E_S over sequences and dimensions, (), of the vectors of n-grams w, rests
    R and sequences S, (n, dim) each, any norm. The published code scales the sum to unit length (`renormalise`).
    """
    total = nn.functional.normalize(part, dim=-1) + nn.functional.normalize(rest, dim=-1)
    if renormalise:
        total = nn.functional.normalize(total, dim=-1)
    return nn.functional.mse_loss(total, nn.functional.normalize(whole, dim=-1))


def backward(
    network: UlrNetwork,  # computes the losses
    views: Sequence[Views],  # the sequences of the batch, seen in parts
    config: UlrConfig,  # the weights of the terms, and how many sequences are encoded at once
    *,
    start: UlrNetwork | None = None,  # the network as it was before training, fixed; only if `config.hold` is positive
    precision: str = "fp32",  # precision of the encoder's forward passes, "fp32" or "bf16"
    head_only: bool = False,  # compute the MLM loss of S alone, as while the encoder is fixed
) -> dict[str, float]:
    """Add the gradient of the objective over a batch to the network's parameters. Returns the losses before their
    weights, the MLM loss in nats, 0 where nothing counts; and the number of sequences with an n-gram.
    """

    def counts(some: Sequence[Views]) -> tuple[int, int]:
        n_spans = 0 if head_only else sum(view.part is not None for view in some)
        return n_spans, sum(len(view.masked) for view in some)

    whole, sums, weights = counts(views), [0.0, 0.0], (config.misad_weight, config.mlm_weight)
    ordered = sorted(views, key=lambda view: len(view.whole))
    for first in range(0, len(ordered), config.micro_batch):
        chunk = ordered[first : first + config.micro_batch]
        terms = _terms(network, chunk, config, start, precision=precision, head_only=head_only)
        total = torch.zeros((), device=device_of(network))
        for i, (term, here) in enumerate(zip(terms, counts(chunk), strict=True)):
            if term is not None:
                share = term * (here / whole[i])
                total = total + weights[i] * share
                sums[i] += float(share.detach())
        if total.requires_grad:
            torch.autograd.backward(total)
    return {"misad": sums[0], "mlm": sums[1], "sequences": len(views), "spans": whole[0]}


def _terms(
    network: UlrNetwork,
    views: Sequence[Views],
    config: UlrConfig,
    start: UlrNetwork | None,
    *,
    precision: str,
    head_only: bool,
) -> tuple[Tensor | None, Tensor | None]:
    """Mean MiSAD and MLM losses of a part of a batch; None for one without an n-gram or a masked token."""
    device = device_of(network)
    pairs = [] if head_only else [(i, view) for i, view in enumerate(views) if view.part is not None]
    with autocast(device, precision):
        whole, whole_mask = network.encode([view.whole for view in views])
        places = [(i, place) for i, view in enumerate(views) for place in view.masked]
        targets = [target for view in views for target in view.targets]
        error = None
        if pairs:
            part = network.pool(*network.encode([view.part or [] for _, view in pairs]))
            rest = network.pool(*network.encode([view.rest for _, view in pairs]))
            if start is None:
                held, target = None, network.pool(whole, whole_mask)[[i for i, _ in pairs]]
            else:
                held, target = _held(network, start, [view.plain() for _, view in pairs])
            error = misad(part, rest, target, renormalise=config.renormalise)
            error = error if held is None else error + config.hold * held
        if not targets:
            return error, None
        at = torch.tensor(places, device=device)
        logits = network.logits(whole[at[:, 0], at[:, 1]])
    return error, nn.functional.cross_entropy(logits, torch.tensor(targets, device=device))


def _held(network: UlrNetwork, start: UlrNetwork, rows: list[list[int]]) -> tuple[Tensor, Tensor]:
    """The square error of sequences to where they were, (), and the vectors of the start, (n, dim)."""
    with torch.no_grad():
        target = start.pool(*start.encode(rows))
    vectors = nn.functional.normalize(network.pool(*network.encode(rows)), dim=-1)
    return nn.functional.mse_loss(vectors, nn.functional.normalize(target, dim=-1)), target


@dataclass(frozen=True, slots=True)
class UlrRecord(StepRecord):
    """Figures of one step: losses before their weights, its sequences, and those with an n-gram."""

    misad: float
    mlm: float
    sequences: int
    spans: int


class UlrObjective(Objective):
    """MiSAD and MLM over sequences."""

    record = UlrRecord

    def __init__(self, network: UlrNetwork, data: UlrData, config: UlrConfig) -> None:
        self.network: UlrNetwork = network
        self._data, self._config, self.clip = data, config, config.clip
        self.optimizer = torch.optim.Adam(network.parameters(), lr=config.learning_rate)
        self._start = copy.deepcopy(network).eval().requires_grad_(False) if config.hold else None
        self._precision = find_precision(config.precision, device_of(network))

    def identity(self) -> Mapping[str, Any]:
        return {**self._config.identity(), **self._data.identity()}

    def rate(self, step: int, factor: float) -> float:
        return self._config.rate(step)

    def backward(self, step: int, batch: object) -> dict[str, float]:
        """Draw the sequences of a step, and add the gradient of both terms.

        In the first `head_steps` the terms train the MLM head alone: the gradients of a new head would spoil the
        encoder, which has no dropout meanwhile, so that the head learns to read what it will see.
        """
        config, head_only = self._config, self._config.is_head_step(step)
        self.network.train(config.dropout and not head_only)
        torch.manual_seed(hash((config.seed, step)))  # of integers: the same in every process
        views = self._views(step, head_only=head_only)
        self.network.encoder.requires_grad_(not head_only)
        figures = backward(
            self.network, views, config, start=self._start, precision=self._precision, head_only=head_only
        )
        self.network.encoder.requires_grad_(True)
        return figures

    def _views(self, step: int, *, head_only: bool) -> list[Views]:
        """Draw the sequences of a step, from 1; choose their n-grams, none while the encoder is fixed; mask them."""
        data, config = self._data, self._config
        drawn = data.draw(step, config.batch_size, seed=config.seed)
        texts = [marked.text for marked in drawn]
        how: dict[str, Any] = {"prefix": data.prefix, "max_tokens": config.max_tokens, "lowercase": data.lowercase}
        sequences = tokenise(data.tokenizer, texts, **how)
        spans: list[tuple[int, int] | None] = [None] * len(sequences)
        if config.misad_weight and not head_only:
            by_text = {sequence.text: sequence for sequence in sequences}
            scorer = NetworkScorer(
                self.network, by_text, data.masking.mask_id, batch=config.micro_batch, precision=self._precision
            )
            rng = random.Random(f"spans {config.seed} {step}")
            spans = choose_tokens(drawn, sequences, config.sampling, scorer, n_scored=config.n_scored, rng=rng)
        draw = np.random.default_rng([config.seed, step])
        return [make_views(one, span, data.masking, draw) for one, span in zip(sequences, spans, strict=True)]
