"""Contrastive fine-tuning of a phrase encoder with the type loss beside it.

    each step: draw pairs -> encode all views -> L = L_CL + type_weight x L_CE over all processes -> step

Cost: one step of 256 pairs of 8 tokens through 6 layers of 384 takes about 2 s on two cores in fp32.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import nn
from tqdm import tqdm

from pearl_qdrant.encoder.runtime.network import PearlNetwork
from pearl_qdrant.errors import TrainingError
from training.data.batches import BatchMaker
from training.data.data_loader import BatchPreparer, PreparedBatch, prepare
from training.finetune.config import FitConfig
from training.finetune.curves import RunLog, StepRecord
from training.finetune.distributed import same_start, sum_gradients, sum_over_processes, wait_for_all
from training.finetune.interruption import StopRequest, deferred_stop
from training.finetune.objective import Losses, Teacher, batch_losses
from training.finetune.run_state import load_state, save_state
from training.networks.phrase_vectors import PhraseVectors, device_of, pool_phrases

__all__ = ["Evaluate", "FitConfig", "fit", "pool_phrases"]

Evaluate = Callable[[int, PearlNetwork], Mapping[str, float]]
"""Scores by name of a network after a step. The network is in its evaluation mode and must be left as it is."""

STATE = "state.safetensors"

_log = logging.getLogger(__name__)


def fit(
    network: PearlNetwork,
    tokenizer: Any,
    maker: BatchMaker,
    config: FitConfig,
    folder: Path,
    *,
    resume: bool = True,
    teacher: Teacher | None = None,
    distil_from: Teacher | None = None,
    evaluate: Evaluate | None = None,
    tensorboard: bool = False,
    prefix: str = "",
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Fine-tune `network` in place, where it is.

    Writes into `folder`: state.safetensors (to resume), log.csv, evaluation.csv, curves.png. With several processes
    (`gathering.process_group`) all call it alike, and the first writes. A single process that gets Ctrl-C or SIGTERM
    ends its step and writes its state first.

    Args:
        network: With a type head, unless the type loss has no weight.
        tokenizer: A `tokenizers.Tokenizer` without padding and truncation.
        maker: Makes the batches; its shard is this process's.
        config: How to train.
        folder: Created if absent.
        resume: Go on from the state in `folder` if there is one; otherwise it is removed.
        teacher: Another encoder that says what means the same (GIST).
        distil_from: The encoder that the maker's plain phrases are distilled from.
        evaluate: Called every `config.evaluate_every` steps and at the end, on the first process.
        tensorboard: Write event files too.
        prefix: Text before each phrase, as when the model is used.
        clock: Seconds since some moment, to save by.

    Raises:
        TrainingError: If the state in `folder` is of another run, or the loss is no number any more.
        SettingsError: If TensorBoard is wished for but not installed.
        ValueError: If the network has no type head and the type loss a weight, or there are plain phrases and nothing
            to distil them from.
    """
    if network.type_head is None and config.type_weight > 0:
        raise ValueError("fit needs a network with a type head, or type_weight=0")
    if maker.plain and distil_from is None:
        raise ValueError("plain phrases need an encoder to distil them from")
    folder.mkdir(parents=True, exist_ok=True)
    identity = {**config.identity(), **maker.identity()}
    optimizer = _optimizer(network, config)
    done = 0
    if not resume:
        wait_for_all()
        if maker.shard.rank == 0:
            (folder / STATE).unlink(missing_ok=True)
        wait_for_all()
    else:
        done = load_state(folder / STATE, network=network, optimizer=optimizer, identity=identity)
        if done:
            _log.info("going on after step %d", done)
    same_start(network)
    loop = _Loop(network, config, optimizer, teacher, distil_from)
    preparer = BatchPreparer(maker, tokenizer, config.max_tokens, config.micro_batch, prefix)
    steps = range(done + 1, config.steps + 1)
    is_first = maker.shard.rank == 0
    saved_at = clock()
    with ExitStack() as stack:
        # Of several processes one alone cannot stop: the others would wait for it.
        stop = stack.enter_context(deferred_stop()) if maker.shard.world_size == 1 else StopRequest()
        log = stack.enter_context(RunLog(folder, done=done, tensorboard=tensorboard)) if is_first else None
        bar = stack.enter_context(tqdm(desc="fit", unit="step", initial=done, total=config.steps, disable=not is_first))
        for record in loop.run(steps, prepare(preparer, steps, workers=config.workers), maker.shard.rank):
            last = record.step == config.steps
            if log is not None:
                log.step(record)
                bar.update()
                bar.set_postfix(loss=f"{record.contrastive:.3f}", type=f"{record.type_loss:.3f}", refresh=False)
                if evaluate is not None and (last or _is_due(record.step, config.evaluate_every)):
                    log.scores(record.step, loop.scores(record.step, evaluate))
                overdue = clock() - saved_at >= config.save_seconds
                if last or stop or overdue or _is_due(record.step, config.save_every):
                    save_state(
                        folder / STATE, step=record.step, network=network, optimizer=optimizer, identity=identity
                    )
                    saved_at = clock()
                    log.plot(final=last)
            if last or _is_due(record.step, config.evaluate_every) or _is_due(record.step, config.save_every):
                wait_for_all()
            if stop:
                break
    network.eval()


def _is_due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


def _optimizer(network: PearlNetwork, config: FitConfig) -> torch.optim.Optimizer:
    """Adam over the parts of the network, each at its own rate; fixes which parameters learn at all."""
    for name, parameter in network.phrase_encoder.named_parameters():
        parameter.requires_grad_(not (config.freeze_words and "word_embeddings" in name))
    parts: list[tuple[nn.Module | None, float]] = [
        (network.phrase_encoder, 1.0),
        (network.type_head, config.head_rate),
        (network.character_encoder, config.character_rate),
    ]
    groups = [
        {"params": [p for p in part.parameters() if p.requires_grad], "lr": config.learning_rate * rate, "rate": rate}
        for part, rate in parts
        if part is not None
    ]
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    return kind([group for group in groups if group["params"]])


class _Loop:
    """The steps of a run."""

    def __init__(
        self,
        network: PearlNetwork,
        config: FitConfig,
        optimizer: torch.optim.Optimizer,
        teacher: Teacher | None,
        distil_from: Teacher | None,
    ) -> None:
        self._network = network
        self._config = config
        self._optimizer = optimizer
        self._teacher = teacher
        self._distil_from = distil_from
        self._device = device_of(network)
        self._precision = _precision(config, self._device)
        self._trained = [p for group in optimizer.param_groups for p in group["params"]]
        network.train(config.dropout)

    def run(self, steps: range, batches: Iterator[PreparedBatch], rank: int) -> Iterator[StepRecord]:
        """Take the steps, and tell of each."""
        began = time.perf_counter()
        for step, prepared in zip(steps, batches, strict=True):
            waited = time.perf_counter() - began
            if self._config.dropout:
                torch.manual_seed(hash((self._config.seed, rank, step)))  # of integers: the same in every process
            losses = self._step(step, prepared)
            contrastive, type_loss = float(losses.contrastive), float(losses.type_loss)
            distillation = float(losses.distillation)
            if not abs(contrastive + type_loss + distillation) < float("inf"):
                raise TrainingError(
                    f"step {step}: the loss is {contrastive} (contrastive), {type_loss} (type) and {distillation} "
                    f"(distillation). Go on from the last state with a lower learning rate than "
                    f"{self._config.learning_rate}, or in fp32"
                )
            batch = prepared.batch
            n_phrases = len(batch.anchors) * 2 + len(batch.negatives) + len(batch.plain)
            seconds = time.perf_counter() - began
            yield StepRecord(
                step=step,
                contrastive=contrastive,
                type_loss=type_loss,
                distillation=distillation,
                learning_rate=self._config.learning_rate * self._config.rate(step),
                seconds=seconds,
                waited=waited / seconds,
                phrases=int(sum_over_processes(torch.tensor(n_phrases, device=self._device))),
            )
            began = time.perf_counter()

    def scores(self, step: int, evaluate: Evaluate) -> Mapping[str, float]:
        """What an evaluation says of the network now."""
        self._network.eval()
        with torch.random.fork_rng(), torch.no_grad():
            scores = evaluate(step, self._network)
        self._network.train(self._config.dropout)
        return scores

    def _step(self, step: int, prepared: PreparedBatch) -> Losses:
        """One optimizer step."""
        config = self._config
        for group in self._optimizer.param_groups:
            group["lr"] = config.learning_rate * group["rate"] * config.rate(step)
        self._optimizer.zero_grad()
        views = PhraseVectors(
            self._network,
            prepared.micro_batches,
            device=self._device,
            cached=config.cache_gradients,
            precision=self._precision,
        )
        losses = batch_losses(
            views.vectors,
            prepared.batch,
            self._network.type_head,
            config,
            teacher=self._teacher,
            distil_from=self._distil_from,
        )
        views.backward(losses.total)
        sum_gradients(self._trained)
        if config.clip:
            nn.utils.clip_grad_norm_(self._trained, config.clip)
        self._optimizer.step()
        return losses


def _precision(config: FitConfig, device: torch.device) -> str:
    """What the encoder computes in."""
    if config.precision != "auto":
        return config.precision
    from pearl_qdrant.encoder.runtime.torch_runtime import fast_precision

    return fast_precision(str(device))
