"""Contrastive fine-tuning of a phrase encoder together with the type loss: its objective over all processes.

    each step: draw pairs -> encode all views -> L = L_CL + type_weight x L_CE over all processes -> step

Cost: one step of 256 pairs of 8 tokens through 6 layers of 384 takes about 2 s on two cores in fp32.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pearl_qdrant.encoder.runtime.torch_runtime import PearlNetwork
from training.batches import BatchDataset, PairBatch, TokenisedBatch, load_batches
from training.finetune.losses import nt_xent, same_meaning, summed_distillation, summed_type_loss
from training.finetune.request import FitConfig
from training.networks.phrase_vectors import MicroBatch, PhraseVectors, device_of, find_precision
from training.training_loop import Objective, StepRecord, gather_rows, sum_over_processes


@dataclass(frozen=True, slots=True)
class PairRecord(StepRecord):
    """Figures of one step: losses in nats before their weights, one minus the mean cosine of the plain phrases, and the
    phrases that all processes encoded.
    """

    contrastive: float
    type_loss: float
    distillation: float
    phrases: int


class PairObjective(Objective):
    """Contrastive loss, type loss and distillation over batches of pairs.

    The network is trained in place; it has a type head, unless the type loss has no weight. Plain phrases, if the
    batches have some, are distilled from it as it is now. The shard of the dataset is this process's.
    """

    record = PairRecord

    def __init__(self, network: PearlNetwork, dataset: BatchDataset, config: FitConfig) -> None:
        self.network: PearlNetwork = network
        self._dataset, self._config, self.clip = dataset, config, config.clip
        self._start: nn.Module | None = None
        if dataset.maker.plain and config.distil_weight > 0:
            self._start = copy.deepcopy(network.phrase_encoder).eval().requires_grad_(False)
        self._device = device_of(network)
        self._precision = find_precision(config.precision, self._device)
        self.optimizer = _optimizer(network, config)

    def identity(self) -> Mapping[str, Any]:
        return {**self._config.identity(), **self._dataset.maker.identity()}

    def batches(self, steps: range) -> Iterator[TokenisedBatch]:
        return load_batches(self._dataset, steps, workers=self._config.workers)

    def rate(self, step: int, factor: float) -> float:
        return self._config.learning_rate * factor * self._config.rate(step)

    def backward(self, step: int, batch: TokenisedBatch) -> dict[str, Tensor | float]:
        """Add the gradient of all losses."""
        config, pairs = self._config, batch.batch
        self.network.train(config.dropout)
        if config.dropout:
            # The hash of integers is the same in every process.
            torch.manual_seed(hash((config.seed, self._dataset.maker.shard.rank, step)))
        views = PhraseVectors(
            self.network, batch.micro_batches, cached=config.cache_gradients, precision=self._precision
        )
        total, losses = batch_losses(
            views.vectors, pairs, self.network.type_head, config, wanted=self._vectors_of_start(batch.plain)
        )
        views.backward(total)
        n_phrases = len(pairs.anchors) * 2 + len(pairs.negatives) + len(pairs.plain)
        return {**losses, "phrases": sum_over_processes(torch.tensor(n_phrases, device=self._device))}

    @torch.no_grad()
    def _vectors_of_start(self, batches: Sequence[MicroBatch]) -> Tensor | None:
        """The vectors that plain phrases had before training, (p, phrase_dim), any norm."""
        if self._start is None:
            return None
        start = PearlNetwork(self._start, None, pooling=self.network.pooling)
        return PhraseVectors(start, batches, precision=self._precision).vectors


def _optimizer(network: PearlNetwork, config: FitConfig) -> torch.optim.Optimizer:
    """Adam with one rate for each part of the network; also sets which parameters are trained."""
    for name, parameter in network.phrase_encoder.named_parameters():
        parameter.requires_grad_(not (config.freeze_words and "word_embeddings" in name))
    parts = network.phrase_encoder, network.type_head, network.character_encoder
    groups = [
        {"params": [p for p in part.parameters() if p.requires_grad], "rate": rate}
        for part, rate in zip(parts, (1.0, config.head_rate, config.character_rate), strict=True)
        if part is not None
    ]
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    # On a GPU one kernel for all parameters: a step there waits for operations to be started.
    is_cuda = device_of(network).type == "cuda"
    return kind(
        [group for group in groups if group["params"]], lr=config.learning_rate, fused=True if is_cuda else None
    )


def batch_losses(
    # vectors of this process: anchors, positives, negatives, plain phrases, (2n + m + p, dim), before normalisation
    vectors: Tensor,
    batch: PairBatch,  # the batch of this process
    type_head: nn.Module | None,  # dim -> 95; None skips the type loss
    config: FitConfig,  # the losses and their weights
    *,
    # vectors of the plain phrases to stay close to, (p, phrase_dim), any norm; None skips the distillation
    wanted: Tensor | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Compute Eq. 4 for the batch of all processes, and the distillation of its plain phrases. Returns what is
    minimised on this process, (), the sum of whose gradients over the processes is that of the whole loss; and the
    losses of the whole batch before their weights, 0 without plain phrases.
    """
    n, device = len(batch.anchors), vectors.device
    paired = 2 * n + len(batch.negatives)
    anchors, positives, negatives = (
        gather_rows(part) for part in (vectors[:n], vectors[n : 2 * n], vectors[2 * n : paired])
    )
    same = None
    if config.mask == "label":
        arrays = (batch.entities, batch.anchor_keys, batch.positive_keys, batch.negative_entities, batch.negative_keys)
        same = same_meaning(*(gather_rows(torch.from_numpy(array).to(device)) for array in arrays))
    contrastive = nt_xent(anchors, positives, temperature=config.temperature, negatives=negatives, same=same)
    total = contrastive
    type_loss = distillation = torch.zeros((), device=device)
    if type_head is not None and config.type_weight > 0:
        allowed = torch.from_numpy(batch.allowed).to(device).repeat(2, 1)
        share, type_loss = _mean_over_processes(*summed_type_loss(type_head(vectors[: 2 * n]), allowed))
        total = total + config.type_weight * share
    if wanted is not None:
        share, distillation = _mean_over_processes(summed_distillation(vectors[paired:], wanted), len(wanted))
        total = total + config.distil_weight * share
    return total, {"contrastive": contrastive.detach(), "type_loss": type_loss, "distillation": distillation}


def _mean_over_processes(summed: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return this process's share of a mean over the rows of all processes, with gradient; and the mean, without."""
    whole = sum_over_processes(torch.stack([summed.detach(), torch.tensor(float(count), device=summed.device)]))
    n = whole[1].clamp(min=1.0)
    return summed / n, whole[0] / n
