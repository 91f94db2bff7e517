"""Contrastive fine-tuning of a phrase encoder together with the type loss.

    each step: draw pairs -> encode all views -> L = L_CL + type_weight x L_CE over all processes -> step

The terms of ULR, on sequences of their own, add their gradient before the step.

Cost: one step of 256 pairs of 8 tokens through 6 layers of 384 takes about 2 s on two cores in fp32.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

from pearl_qdrant.encoder.runtime.network import PearlNetwork
from pearl_qdrant.errors import TrainingError
from training.data.batches import BatchMaker
from training.data.data_loader import BatchDataset, TokenisedBatch, load_batches
from training.finetune.config import FitConfig
from training.finetune.encoders import NetworkTeacher
from training.finetune.objective import Losses, Teacher, batch_losses
from training.finetune.record import StepRecord, UlrStepRecord
from training.loop.curves import RunLog
from training.loop.distributed import same_start, sum_gradients, sum_over_processes, wait_for_all
from training.loop.interruption import StopRequest, deferred_stop
from training.loop.run_state import RunState, is_due
from training.networks.phrase_vectors import PhraseVectors, device_of, find_precision
from training.ulr.objective import UlrLosses
from training.ulr.terms import UlrTerms

if TYPE_CHECKING:
    from typing_extensions import Self

Evaluate = Callable[[int, PearlNetwork], Mapping[str, float]]
"""Scores by name of a network after a step. The network is in evaluation mode and must be left unchanged."""

STATE = "state.safetensors"


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
    terms: UlrTerms | None = None,
    evaluate: Evaluate | None = None,
    tensorboard: bool = False,
    prefix: str = "",
    max_seconds: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Fine-tune `network` in place, on the device where it is.

    Writes state.safetensors (to resume), log.csv, evaluation.csv and curves.png. With several processes
    (`distributed.process_group`) all make the same call, and the first one writes. On Ctrl-C or SIGTERM a single
    process finishes its step and writes its state before it stops.

    Args:
        network: With a type head, unless the type loss has no weight.
        tokenizer: A `tokenizers.Tokenizer` without padding and truncation.
        maker: Makes the batches; its shard is this process's.
        config: How to train.
        folder: Created if absent.
        resume: Resume from the state in `folder`, if there is one; otherwise the state is removed.
        teacher: Another encoder that decides which phrases mean the same (GIST).
        distil_from: The encoder that the maker's plain phrases are distilled from.
        terms: MiSAD and MLM of the network's phrase encoder, with the weights of `config`.
        evaluate: Called every `config.evaluate_every` steps and at the end, on the first process.
        tensorboard: Write event files too.
        prefix: Text before each phrase, as when the model is used.
        max_seconds: Stop after the first step that ends so late, with the state saved; at least one step is taken. For
            a single process.
        clock: Returns seconds; decides when a state is due by time.

    Returns:
        The steps done, `config.steps` unless the time was over.

    Raises:
        TrainingError: If the state in `folder` is of another run, or the loss is not finite.
        SettingsError: If TensorBoard is requested but not installed.
        ValueError: If the network lacks a type head, plain phrases an encoder to distil them from, or the weights of
            MiSAD and MLM their terms.
    """
    _check_arguments(network, maker, config, distil_from, terms)
    folder.mkdir(parents=True, exist_ok=True)
    state = _state(folder / STATE, network, maker, config, terms)
    done = state.load() if resume else state.clear(is_first=maker.shard.rank == 0)
    same_start(network)
    loop = _Loop(network, config, state.optimizer, teacher, distil_from, terms)
    dataset = _dataset(maker, tokenizer, config, prefix, (teacher, distil_from))
    # With several processes one of them cannot stop alone: the others would wait for it. A single one stops after the
    # log is closed.
    stopping = deferred_stop() if maker.shard.world_size == 1 else nullcontext(StopRequest())
    with stopping as stop, ExitStack() as stack:
        recorder: _Recorder | None = None
        if maker.shard.rank == 0:
            log = stack.enter_context(RunLog(folder, done=done, tensorboard=tensorboard, record=loop.record))
            recorder = stack.enter_context(_Recorder(log, config, state, loop, evaluate, clock, done=done))
        until = float("inf") if max_seconds is None else clock() + max_seconds
        steps = range(done + 1, config.steps + 1)
        done = _take_steps(steps, loop, dataset, config, recorder, stop, lambda: clock() >= until)
    network.eval()
    return done


def _check_arguments(
    network: PearlNetwork, maker: BatchMaker, config: FitConfig, distil_from: Teacher | None, terms: UlrTerms | None
) -> None:
    """Refuse losses that lack what they need."""
    if network.type_head is None and config.type_weight > 0:
        raise ValueError("fit needs a network with a type head, or type_weight=0")
    if maker.plain and distil_from is None:
        raise ValueError("plain phrases need an encoder to distil them from")
    if (terms is not None) != bool(config.misad_weight or config.mlm_weight):
        raise ValueError("fit needs terms where misad_weight or mlm_weight is positive, and none otherwise")


def _state(path: Path, network: PearlNetwork, maker: BatchMaker, config: FitConfig, terms: UlrTerms | None) -> RunState:
    """The state of a run; with MLM the head is part of it."""
    optimizer, identity = _optimizer(network, config), {**config.identity(), **maker.identity()}
    if terms is None:
        return RunState(path, network, optimizer, identity)
    identity |= terms.identity()
    if not terms.is_masked:
        return RunState(path, network, optimizer, identity)
    rate = config.head_rate
    optimizer.add_param_group(
        {"params": list(terms.head.parameters()), "lr": config.learning_rate * rate, "rate": rate}
    )
    return RunState(path, nn.ModuleDict({"network": network, "mlm_head": terms.head}), optimizer, identity)


def _dataset(
    maker: BatchMaker, tokenizer: Any, config: FitConfig, prefix: str, teachers: Sequence[Teacher | None]
) -> BatchDataset:
    """The batches of a run, with token ids for a teacher that reads them."""
    for_teacher = any(isinstance(teacher, NetworkTeacher) for teacher in teachers)
    return BatchDataset(maker, tokenizer, config.max_tokens, config.micro_batch, prefix, for_teacher)


def _take_steps(
    steps: range,
    loop: _Loop,
    dataset: BatchDataset,
    config: FitConfig,
    recorder: _Recorder | None,
    stop: StopRequest,
    is_late: Callable[[], bool],
) -> int:
    """Take the steps of a run, until the end, a stop request or the end of its time; returns the steps done."""
    done = steps.start - 1
    for record in loop.run(steps, load_batches(dataset, steps, workers=config.workers), dataset.maker.shard.rank):
        done, is_stopping = record.step, bool(stop) or is_late()
        if recorder is not None:
            is_stopping = recorder.add(record, stop, is_stopping=is_stopping)
        is_last = record.step == config.steps
        if is_last or is_due(record.step, config.evaluate_every) or is_due(record.step, config.save_every):
            wait_for_all()
        if is_stopping:
            break
    return done


class _Recorder:
    """Logs the steps of a run on its first process, shows progress, evaluates, and saves the state when it is due."""

    def __init__(
        self,
        log: RunLog,
        config: FitConfig,
        state: RunState,
        loop: _Loop,
        evaluate: Evaluate | None,
        clock: Callable[[], float],
        *,
        done: int,
    ) -> None:
        self._log, self._config, self._state, self._loop = log, config, state, loop
        self._evaluate, self._clock = evaluate, clock
        self._saved_at = clock()
        self._bar = tqdm(desc="fit", unit="step", initial=done, total=config.steps)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.close()

    def add(self, record: StepRecord, stop: StopRequest, *, is_stopping: bool) -> bool:
        """Record a step; the state is saved if the run stops after it. Returns whether it does."""
        step, config = record.step, self._config
        is_last = step == config.steps
        self._log.step(record)
        self._bar.update()
        self._bar.set_postfix(loss=f"{record.contrastive:.3f}", type=f"{record.type_loss:.3f}", refresh=False)
        if self._evaluate is not None and (is_last or is_due(step, config.evaluate_every)):
            self._log.scores(step, self._loop.scores(step, self._evaluate))
        # Clock and stop request are read after the evaluation: it may take minutes, and a signal may arrive meanwhile.
        is_overdue = self._clock() - self._saved_at >= config.save_seconds
        is_stopping = is_stopping or bool(stop)
        if is_last or is_stopping or is_overdue or is_due(step, config.save_every):
            self._state.save(step)
            self._saved_at = self._clock()
            self._log.plot(final=is_last)
        return is_stopping


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
        {"params": [p for p in part.parameters() if p.requires_grad], "lr": config.learning_rate * rate, "rate": rate}
        for part, rate in parts
        if part is not None
    ]
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    # On a GPU one kernel for all parameters: a step there waits for operations to be started.
    is_cuda = device_of(network).type == "cuda"
    return kind([group for group in groups if group["params"]], fused=True if is_cuda else None)


class _Loop:
    """The steps of a run."""

    def __init__(
        self,
        network: PearlNetwork,
        config: FitConfig,
        optimizer: torch.optim.Optimizer,
        teacher: Teacher | None,
        distil_from: Teacher | None,
        terms: UlrTerms | None,
    ) -> None:
        self._network = network
        self._config = config
        self._optimizer = optimizer
        self._teacher = teacher
        self._distil_from = distil_from
        self._terms = terms
        self.record = StepRecord if terms is None else UlrStepRecord
        self._device = device_of(network)
        self._precision = find_precision(config.precision, self._device)
        self._trained = [p for group in optimizer.param_groups for p in group["params"]]
        self._train()

    def run(self, steps: range, batches: Iterator[TokenisedBatch], rank: int) -> Iterator[StepRecord]:
        """Take the steps, and yield a record of each."""
        began = time.perf_counter()
        for step, tokenised in zip(steps, batches, strict=True):
            waited = time.perf_counter() - began
            if self._config.dropout:
                torch.manual_seed(hash((self._config.seed, rank, step)))  # of integers: the same in every process
            losses, ulr = self._step(step, tokenised)
            contrastive, type_loss = float(losses.contrastive), float(losses.type_loss)
            distillation = float(losses.distillation)
            further = 0.0 if ulr is None else ulr.misad + ulr.mlm
            if not abs(contrastive + type_loss + distillation + further) < float("inf"):
                raise TrainingError(
                    f"step {step}: the loss is {contrastive} (contrastive), {type_loss} (type) and {distillation} "
                    f"(distillation){_shown(ulr)}. Start over with a learning rate below "
                    f"{self._config.learning_rate}, or in fp32"
                )
            batch = tokenised.batch
            n_phrases = len(batch.anchors) * 2 + len(batch.negatives) + len(batch.plain)
            seconds = time.perf_counter() - began
            record = StepRecord(
                step=step,
                contrastive=contrastive,
                type_loss=type_loss,
                distillation=distillation,
                learning_rate=self._config.learning_rate * self._config.rate(step),
                seconds=seconds,
                waited=waited / seconds,
                phrases=int(sum_over_processes(torch.tensor(n_phrases, device=self._device))),
            )
            yield record if ulr is None else _with_ulr(record, ulr)
            began = time.perf_counter()

    def scores(self, step: int, evaluate: Evaluate) -> Mapping[str, float]:
        """Evaluate the network in its present state."""
        self._network.eval()
        with torch.random.fork_rng(), torch.no_grad():
            scores = evaluate(step, self._network)
        self._train()
        return scores

    def _train(self) -> None:
        """Switch to training."""
        self._network.train(self._config.dropout)
        if self._terms is not None:
            self._terms.train(self._config.dropout)

    def _step(self, step: int, tokenised: TokenisedBatch) -> tuple[Losses, UlrLosses | None]:
        """One optimizer step."""
        config = self._config
        for group in self._optimizer.param_groups:
            group["lr"] = config.learning_rate * group["rate"] * config.rate(step)
        self._optimizer.zero_grad()
        views = PhraseVectors(
            self._network,
            tokenised.micro_batches,
            device=self._device,
            cached=config.cache_gradients,
            precision=self._precision,
        )
        teacher, distil_from = self._teachers(tokenised)
        losses = batch_losses(
            views.vectors,
            tokenised.batch,
            self._network.type_head,
            config,
            teacher=teacher,
            distil_from=distil_from,
        )
        views.backward(losses.total)
        ulr = None if self._terms is None else self._terms.backward(step)
        sum_gradients(self._trained)
        if config.clip:
            nn.utils.clip_grad_norm_(self._trained, config.clip)
        self._optimizer.step()
        return losses, ulr

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


def _with_ulr(record: StepRecord, ulr: UlrLosses) -> UlrStepRecord:
    """The figures of a step with the terms of ULR."""
    return UlrStepRecord(**asdict(record), misad=ulr.misad, mlm=ulr.mlm, spans=ulr.n_spans)


def _shown(ulr: UlrLosses | None) -> str:
    """The terms of ULR in a message."""
    return "" if ulr is None else f", {ulr.misad} (MiSAD) and {ulr.mlm} (MLM)"
