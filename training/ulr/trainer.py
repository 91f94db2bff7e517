"""The steps of ULR training.

    each step: draw sequences -> choose an n-gram of each (`training.ngrams.sampling`) -> mask
               -> L = MiSAD + MLM, part by part -> Adam

Batches, n-grams, masks and dropout are functions of seed and step, so that a resumed run ends with the same weights.

Cost: a step of 64 sentences (28 tokens each) through 6 layers of 384 with a vocabulary of 30,522 takes 7 to 10 s of one
core in fp32; with 8 n-grams of each scored, about 15 s.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from tqdm import tqdm

from pearl_qdrant.errors import TrainingError
from training.loop.curves import RunLog
from training.loop.interruption import StopRequest, deferred_stop
from training.loop.run_state import RunState, is_due
from training.networks.phrase_vectors import device_of, find_precision
from training.ulr.config import UlrConfig
from training.ulr.drawing import UlrData, ViewDrawer
from training.ulr.network import UlrNetwork
from training.ulr.objective import UlrLosses, backward

STATE = "state.safetensors"


@dataclass(frozen=True, slots=True)
class UlrRecord:
    """Figures of one step.

    Attributes:
        step: From 1.
        misad: MiSAD before its weight; 0 while the head is trained alone.
        mlm: MLM loss in nats, before its weight.
        learning_rate: Learning rate of what is trained.
        seconds: Duration of the step.
        sequences: Sequences of the step.
        spans: Those with an n-gram.
    """

    step: int
    misad: float
    mlm: float
    learning_rate: float
    seconds: float
    sequences: int
    spans: int


def fit_ulr(
    network: UlrNetwork,
    data: UlrData,
    config: UlrConfig,
    folder: Path,
    *,
    resume: bool = True,
    tensorboard: bool = False,
    on_step: Callable[[UlrRecord], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Train `network` in place, on the device where it is.

    Writes state.safetensors (to resume), log.csv and curves.png. On Ctrl-C or SIGTERM it finishes its step and writes
    its state before it stops.

    Args:
        network: Its encoder and its MLM head are trained; `config.hold` keeps sequences where it has them now.
        data: What to learn from.
        config: How to train.
        folder: Created if absent.
        resume: Resume from the state in `folder`, if there is one; otherwise the state is removed.
        tensorboard: Write event files too.
        on_step: Called with the figures of each step.
        clock: Returns seconds; decides when a state is due by time.

    Raises:
        TrainingError: If the state in `folder` is of another run, or a loss is not finite.
        SettingsError: If TensorBoard is requested but not installed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    optimizer = torch.optim.Adam(network.parameters(), lr=config.learning_rate)
    start = copy.deepcopy(network).eval().requires_grad_(False) if config.hold else None
    state = RunState(folder / STATE, network, optimizer, {**config.identity(), **data.identity()})
    done = state.load() if resume else state.clear()
    loop = _Loop(network, start, data, config, optimizer)
    with deferred_stop() as stop, ExitStack() as stack:
        log = stack.enter_context(RunLog(folder, done=done, tensorboard=tensorboard, record=UlrRecord))
        bar = stack.enter_context(tqdm(desc="ulr", unit="step", initial=done, total=config.steps))
        saver = _Saver(state, log, config, stop, clock)
        for step in range(done + 1, config.steps + 1):
            record = loop.step(step)
            log.step(record)
            bar.update()
            bar.set_postfix(misad=f"{record.misad:.5f}", mlm=f"{record.mlm:.3f}", refresh=False)
            on_step(record)
            saver.after(step)
            if stop:
                break
    network.requires_grad_(True)
    network.eval()


class _Saver:
    """Writes the state when it is due: every few steps, every few minutes, at the end and on a stop request."""

    def __init__(
        self, state: RunState, log: RunLog, config: UlrConfig, stop: StopRequest, clock: Callable[[], float]
    ) -> None:
        self._state, self._log, self._config, self._stop, self._clock = state, log, config, stop, clock
        self._saved_at = clock()

    def after(self, step: int) -> None:
        """Save after a step if it is due."""
        is_last = step == self._config.steps
        is_overdue = self._clock() - self._saved_at >= self._config.save_seconds
        if is_last or self._stop or is_overdue or is_due(step, self._config.save_every):
            self._state.save(step)
            self._saved_at = self._clock()
            self._log.plot(final=is_last)


class _Loop:
    """The steps of a run."""

    def __init__(
        self,
        network: UlrNetwork,
        start: UlrNetwork | None,
        data: UlrData,
        config: UlrConfig,
        optimizer: torch.optim.Optimizer,
    ) -> None:
        self._network, self._start, self._config, self._optimizer = network, start, config, optimizer
        self._drawer = ViewDrawer(network, data, config)
        self._precision = find_precision(config.precision, device_of(network))

    def step(self, step: int) -> UlrRecord:
        """Take a step."""
        began = time.perf_counter()
        network, config = self._network, self._config
        head_only = config.is_head_step(step)
        # In these steps the encoder has no dropout either: the head learns to read the vectors that it will see.
        network.train(config.dropout and not head_only)
        network.encoder.requires_grad_(not head_only)
        torch.manual_seed(hash((config.seed, step)))  # of integers: the same in every process
        for group in self._optimizer.param_groups:
            group["lr"] = config.rate(step)
        self._optimizer.zero_grad()
        views = self._drawer.views(step, head_only=head_only)
        losses = backward(network, views, config, start=self._start, precision=self._precision, head_only=head_only)
        self._check(step, losses)
        if config.clip:
            nn.utils.clip_grad_norm_(network.parameters(), config.clip)
        self._optimizer.step()
        return UlrRecord(
            step=step,
            misad=losses.misad,
            mlm=losses.mlm,
            learning_rate=config.rate(step),
            seconds=time.perf_counter() - began,
            sequences=len(views),
            spans=losses.n_spans,
        )

    def _check(self, step: int, losses: UlrLosses) -> None:
        """Stop where a loss is not finite."""
        if not abs(losses.misad + losses.mlm) < float("inf"):
            raise TrainingError(
                f"step {step}: the loss is {losses.misad} (MiSAD) and {losses.mlm} (MLM). Start over with a learning "
                f"rate below {self._config.learning_rate}, or in fp32"
            )
