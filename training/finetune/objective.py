"""Contrastive fine-tuning of a phrase encoder together with the type loss: its objective over all processes, and a run.

    each step: draw pairs -> encode all views -> L = L_CL + type_weight x L_CE over all processes -> step

Cost: one step of 256 pairs of 8 tokens through 6 layers of 384 takes about 2 s on two cores in fp32.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.encoder.runtime.network import PearlNetwork
from pearl_qdrant.encoder.runtime.torch_runtime import fast_precision
from training.batches import BatchDataset, BatchMaker, PairBatch, TokenisedBatch, load_batches
from training.finetune.losses import (
    Keys,
    closer_than_positive,
    nt_xent,
    same_meaning,
    summed_distillation,
    summed_type_loss,
)
from training.finetune.request import FitConfig
from training.networks.checkpoints import BaseModel
from training.networks.phrase_vectors import MicroBatch, PhraseVectors, device_of, find_precision, micro_batches
from training.training_loop import Objective, StepRecord, TrainingLoop, gather_rows, sum_over_processes

Teacher = Callable[[Sequence[str]], torch.Tensor]
"""Encodes phrases as vectors, (n, dim), L2-normalised, without gradients."""

MAX_TOKENS, MICRO_BATCH = 64, 640
"""How a `NetworkTeacher` reads phrases that come without token ids."""


def as_teacher(encoder: Encoder) -> Teacher:
    """Turn an encoder into a teacher; its vectors come from the encoder through main memory."""

    def teach(names: Sequence[str]) -> torch.Tensor:
        return torch.from_numpy(encoder.encode(names).vectors)

    return teach


class NetworkTeacher:
    """A teacher whose vectors stay on its device, and which reads the token ids of the network that it teaches.

    Its tokens need no second pass of the tokenizer, so that a step on a GPU does not wait for one. It reads phrases as
    that network does: with its prefix, and truncated where it truncates.

    Args:
        network: Moved in place to the device, and its encoder to bfloat16 if the hardware computes in that.
        tokenizer: A `tokenizers.Tokenizer` without padding and truncation, the same as the taught network's.
        device: "cpu", or "cuda:N".
    """

    def __init__(self, network: PearlNetwork, tokenizer: Any, *, device: str) -> None:
        self._network, self._tokenizer = network.to(device).eval(), tokenizer
        self._device = device_of(network)
        if fast_precision(device) == "bf16":
            network.phrase_encoder.to(torch.bfloat16)

    def __call__(self, names: Sequence[str]) -> torch.Tensor:
        """See `Teacher`; the names have their prefix already."""
        return self.encode(micro_batches(self._tokenizer, names, max_tokens=MAX_TOKENS, size=MICRO_BATCH))

    @torch.no_grad()
    def encode(self, batches: Sequence[MicroBatch]) -> torch.Tensor:
        """Encode tokenised phrases, (n, dim), L2-normalised, on the device."""
        vectors = PhraseVectors(self._network, batches, device=self._device, cached=False).vectors
        return nn.functional.normalize(vectors, dim=-1)


def read_alike(first: BaseModel, second: BaseModel) -> bool:
    """Whether two models make the same token ids of every phrase."""
    texts = [(model.folder / "tokenizer.json").read_bytes() for model in (first, second)]
    return texts[0] == texts[1] and first.config.prefix == second.config.prefix


@dataclass(frozen=True, slots=True)
class PairRecord(StepRecord):
    """Figures of one step: losses in nats before their weights, one minus the mean cosine of the plain phrases, and the
    phrases that all processes encoded.
    """

    contrastive: float
    type_loss: float
    distillation: float
    phrases: int


def fit(  # long: all arguments of a run are documented here
    network: PearlNetwork,
    tokenizer: Any,
    maker: BatchMaker,
    config: FitConfig,
    folder: Path,
    *,
    resume: bool = True,
    teacher: Teacher | None = None,
    distil_from: Teacher | None = None,
    prefix: str = "",
    max_seconds: float | None = None,
    on_step: Callable[[PairRecord], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Fine-tune `network` in place, on the device where it is. Returns the steps done, `config.steps` unless the time
    was over. Raises TrainingError if the state in `folder` is of another run, or the loss is not finite.

    Args:
        network: With a type head, unless the type loss has no weight.
        tokenizer: A `tokenizers.Tokenizer` without padding and truncation.
        maker: Makes the batches; its shard is this process's.
        teacher: Another encoder that decides which phrases mean the same (GIST).
        distil_from: The encoder that the maker's plain phrases are distilled from.
        prefix: Text before each phrase, as when the model is used.
        folder, resume, max_seconds, on_step, clock: As in `TrainingLoop`.
    """
    for_teacher = any(isinstance(one, NetworkTeacher) for one in (teacher, distil_from))
    dataset = BatchDataset(maker, tokenizer, config.max_tokens, config.micro_batch, prefix, for_teacher)

    done = TrainingLoop(
        name="fit",
        objective=PairObjective(network, dataset, config, teacher, distil_from),
        steps=config.steps,
        folder=folder,
        resume=resume,
        save_every=config.save_every,
        save_seconds=config.save_seconds,
        max_seconds=max_seconds,
        on_step=on_step,
        shard=maker.shard,
        clock=clock,
    ).run()
    network.eval()
    return done


class PairObjective(Objective):
    """Contrastive loss, type loss and distillation over batches of pairs."""

    record = PairRecord

    def __init__(
        self,
        network: PearlNetwork,
        dataset: BatchDataset,
        config: FitConfig,
        teacher: Teacher | None,
        distil_from: Teacher | None,
    ) -> None:
        self.network: PearlNetwork = network
        self._dataset, self._config, self.clip = dataset, config, config.clip
        self._teacher, self._distil_from = teacher, distil_from
        self._device = device_of(network)
        self._precision = find_precision(config.precision, self._device)
        self.optimizer = _optimizer(network, config)

    def identity(self) -> Mapping[str, Any]:
        """Settings of losses and batches."""
        return {**self._config.identity(), **self._dataset.maker.identity()}

    def batches(self, steps: range) -> Iterator[TokenisedBatch]:
        """Load the batches."""
        return load_batches(self._dataset, steps, workers=self._config.workers)

    def rate(self, step: int, factor: float) -> float:
        """The learning rate of a part of the network."""
        return self._config.learning_rate * factor * self._config.rate(step)

    def backward(self, step: int, batch: TokenisedBatch) -> dict[str, Tensor | float]:
        """Add the gradient of all losses."""
        config, pairs = self._config, batch.batch
        self.network.train(config.dropout)
        if config.dropout:
            # The hash of integers is the same in every process.
            torch.manual_seed(hash((config.seed, self._dataset.maker.shard.rank, step)))
        views = PhraseVectors(
            self.network,
            batch.micro_batches,
            device=self._device,
            cached=config.cache_gradients,
            precision=self._precision,
        )
        teacher, distil_from = self._teachers(batch)
        losses = batch_losses(
            views.vectors, pairs, self.network.type_head, config, teacher=teacher, distil_from=distil_from
        )
        views.backward(losses.total)
        n_phrases = len(pairs.anchors) * 2 + len(pairs.negatives) + len(pairs.plain)
        return {
            "contrastive": losses.contrastive,
            "type_loss": losses.type_loss,
            "distillation": losses.distillation,
            "phrases": sum_over_processes(torch.tensor(n_phrases, device=self._device)),
        }

    def _teachers(self, tokenised: TokenisedBatch) -> tuple[Teacher | None, Teacher | None]:
        """The teachers of a step; one that reads token ids encodes the batch once."""
        if tokenised.as_written is None:
            return self._teacher, self._distil_from
        batches, batch = tokenised.as_written, tokenised.batch
        paired = 2 * len(batch.anchors) + len(batch.negatives)
        encoded: dict[int, Tensor] = {}

        def part(teacher: Teacher | None, rows: slice) -> Teacher | None:
            if not isinstance(teacher, NetworkTeacher):
                return teacher
            if id(teacher) not in encoded:
                encoded[id(teacher)] = teacher.encode(batches)
            vectors = encoded[id(teacher)][rows]
            return lambda _: vectors

        return part(self._teacher, slice(paired)), part(self._distil_from, slice(paired, None))


def _optimizer(network: PearlNetwork, config: FitConfig) -> torch.optim.Optimizer:
    """Adam with one rate for each part of the network; also sets which parameters are trained."""
    for name, parameter in network.phrase_encoder.named_parameters():
        parameter.requires_grad_(not (config.freeze_words and "word_embeddings" in name))
    parts: list[tuple[nn.Module | None, float]] = [
        (network.phrase_encoder, 1.0),
        (network.type_head, config.head_rate),
        (network.character_encoder, config.character_rate),
    ]
    groups = [
        {"params": [p for p in part.parameters() if p.requires_grad], "rate": rate}
        for part, rate in parts
        if part is not None
    ]
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    # On a GPU one kernel for all parameters: a step there waits for operations to be started.
    is_cuda = device_of(network).type == "cuda"
    return kind(
        [group for group in groups if group["params"]], lr=config.learning_rate, fused=True if is_cuda else None
    )


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
    return nt_xent(anchors, positives, temperature=config.temperature, negatives=negatives, same=same)


def _split_views(vectors: Tensor, n: int) -> tuple[Tensor, Tensor, Tensor]:
    """Anchors, positives and negatives."""
    return vectors[:n], vectors[n : 2 * n], vectors[2 * n :]


def _gather_keys(batch: PairBatch, device: torch.device) -> Keys:
    """The keys of the whole batch."""
    arrays = (batch.entities, batch.anchor_keys, batch.positive_keys, batch.negative_entities, batch.negative_keys)
    return Keys(*(gather_rows(torch.from_numpy(array).to(device)) for array in arrays))


def _encode_by_teacher(teacher: Teacher, batch: PairBatch) -> Tensor:
    """The teacher's vectors of a batch."""
    with torch.no_grad():
        return teacher([*batch.anchors, *batch.positives, *batch.negatives])
