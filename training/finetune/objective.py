"""Compute the losses of one batch from its vectors, over all processes that train together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from training.data.batches import PairBatch
from training.finetune.config import FitConfig
from training.finetune.false_negatives import Keys, closer_than_positive, same_entity, same_meaning
from training.finetune.losses import multi_similarity, nt_xent, summed_distillation, summed_type_loss
from training.loop.distributed import gather_rows, sum_over_processes

Teacher = Callable[[Sequence[str]], Tensor]
"""Encodes phrases as vectors, (n, dim), L2-normalised, without gradients."""


@dataclass(frozen=True, slots=True)
class Losses:
    """Losses of one batch, each ().

    Attributes:
        total: Minimised on this process; the sum of its gradients over the processes is the gradient of the whole loss.
        contrastive: Contrastive loss of the whole batch.
        type_loss: Type loss of the whole batch, before its weight.
        distillation: Distillation loss of the whole batch, before its weight; 0 without plain phrases.
    """

    total: Tensor
    contrastive: Tensor
    type_loss: Tensor
    distillation: Tensor


def batch_losses(
    vectors: Tensor,
    batch: PairBatch,
    type_head: nn.Module | None,
    config: FitConfig,
    *,
    teacher: Teacher | None = None,
    distil_from: Teacher | None = None,
) -> Losses:
    """Compute Eq. 4 for the batch of all processes, and the distillation of its plain phrases.

    Args:
        vectors: Vectors of this process: anchors, positives, negatives, plain phrases, (2n + m + p, dim), before
            normalisation.
        batch: The batch of this process.
        type_head: dim -> 95; None skips the type loss.
        config: The losses and their weights.
        teacher: Decides, besides the labels, which phrases mean the same.
        distil_from: Encodes the plain phrases; the phrase encoder's part of their vectors stays close to its vectors.
    """
    n, device = len(batch.anchors), vectors.device
    paired = 2 * n + len(batch.negatives)
    parts = [gather_rows(part) for part in _split_views(vectors[:paired], n)]
    keys = _gather_keys(batch, device)
    teacher_parts = (
        None
        if teacher is None
        else [gather_rows(p) for p in _split_views(_encode_by_teacher(teacher, batch).to(device), n)]
    )
    contrastive = _contrastive_loss(parts, keys, teacher_parts, config)
    total = contrastive
    type_loss = distillation = torch.zeros((), device=device)
    if type_head is not None and config.type_weight > 0:
        allowed = torch.from_numpy(batch.allowed).to(device).repeat(2, 1)
        share, type_loss = _mean_over_processes(*summed_type_loss(type_head(vectors[: 2 * n]), allowed))
        total = total + config.type_weight * share
    if distil_from is not None and batch.plain and config.distil_weight > 0:
        with torch.no_grad():
            wanted = distil_from(batch.plain).to(device)
        summed = summed_distillation(vectors[paired:], wanted)
        share, distillation = _mean_over_processes(summed, len(batch.plain))
        total = total + config.distil_weight * share
    return Losses(total, contrastive.detach(), type_loss, distillation)


def _mean_over_processes(summed: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return this process's share of a mean over the rows of all processes, with gradient; and the mean, without."""
    whole = sum_over_processes(torch.stack([summed.detach(), torch.tensor(float(count), device=summed.device)]))
    n = whole[1].clamp(min=1.0)
    return summed / n, whole[0] / n


def _contrastive_loss(parts: list[Tensor], keys: Keys, teacher_parts: list[Tensor] | None, config: FitConfig) -> Tensor:
    """Contrastive loss of the whole batch."""
    anchors, positives, negatives = parts
    same = same_meaning(keys) if config.mask == "label" else None
    if teacher_parts is not None:
        closer = closer_than_positive(torch.cat(teacher_parts), len(anchors), floor=config.teacher_floor)
        same = closer if same is None else same | closer
    if config.objective == "nt-xent":
        return nt_xent(anchors, positives, temperature=config.temperature, negatives=negatives, same=same)
    columns = torch.cat(parts)
    entity_mask = same_entity(keys)
    row = torch.arange(len(entity_mask), device=columns.device)
    positive = entity_mask.clone()
    positive[row, row] = False
    negative = ~(entity_mask if same is None else entity_mask | same)
    return multi_similarity(columns[: len(entity_mask)], columns, positive=positive, negative=negative)


def _split_views(vectors: Tensor, n: int) -> tuple[Tensor, Tensor, Tensor]:
    """Anchors, positives and negatives."""
    return vectors[:n], vectors[n : 2 * n], vectors[2 * n :]


def _gather_keys(batch: PairBatch, device: torch.device) -> Keys:
    """The keys of the whole batch."""
    arrays = (
        batch.entities,
        batch.anchor_keys,
        batch.positive_keys,
        batch.negative_entities,
        batch.negative_keys,
    )
    return Keys(*(gather_rows(torch.from_numpy(array).to(device)) for array in arrays))


def _encode_by_teacher(teacher: Teacher, batch: PairBatch) -> Tensor:
    """The teacher's vectors of a batch."""
    with torch.no_grad():
        return teacher([*batch.anchors, *batch.positives, *batch.negatives])
