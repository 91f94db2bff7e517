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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from training.loop.training_loop import Objective, StepRecord, TrainingLoop
from training.networks.phrase_vectors import device_of, find_precision
from training.ulr.drawing import UlrData, ViewDrawer
from training.ulr.network import UlrNetwork
from training.ulr.objective import backward
from training.ulr.request import UlrConfig


@dataclass(frozen=True, slots=True)
class UlrRecord(StepRecord):
    """Figures of one step.

    Attributes:
        misad: MiSAD before its weight; 0 while the head is trained alone.
        mlm: MLM loss in nats, before its weight.
        sequences: Sequences of the step.
        spans: Those with an n-gram.
    """

    misad: float
    mlm: float
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

    Args:
        network: Its encoder and its MLM head are trained; `config.hold` keeps sequences where it has them now.
        data: What to learn from.
        config: How to train.
        folder, resume, tensorboard, on_step, clock: As in `TrainingLoop`.

    Raises:
        TrainingError: If the state in `folder` is of another run, or a loss is not finite.
        SettingsError: If TensorBoard is requested but not installed.
    """
    TrainingLoop(
        name="ulr",
        objective=UlrObjective(network, data, config),
        steps=config.steps,
        folder=folder,
        resume=resume,
        save_every=config.save_every,
        save_seconds=config.save_seconds,
        tensorboard=tensorboard,
        on_step=on_step,
        clock=clock,
    ).run()
    network.requires_grad_(True)
    network.eval()


class UlrObjective(Objective):
    """MiSAD and MLM over sequences."""

    record = UlrRecord

    def __init__(self, network: UlrNetwork, data: UlrData, config: UlrConfig) -> None:
        self.network: UlrNetwork = network
        self._data, self._config, self.clip = data, config, config.clip
        self.optimizer = torch.optim.Adam(network.parameters(), lr=config.learning_rate)
        self._start = copy.deepcopy(network).eval().requires_grad_(False) if config.hold else None
        self._drawer = ViewDrawer(network, data, config)
        self._precision = find_precision(config.precision, device_of(network))

    def identity(self) -> Mapping[str, Any]:
        """Settings and sequences."""
        return {**self._config.identity(), **self._data.identity()}

    def rate(self, step: int, factor: float) -> float:
        """The learning rate of a step."""
        return self._config.rate(step)

    def backward(self, step: int, batch: object) -> dict[str, float]:
        """Draw the sequences of a step, and add the gradient of both terms."""
        network, config = self.network, self._config
        head_only = config.is_head_step(step)
        # In these steps the encoder has no dropout either: the head learns to read the vectors that it will see.
        network.train(config.dropout and not head_only)
        network.encoder.requires_grad_(not head_only)
        torch.manual_seed(hash((config.seed, step)))  # of integers: the same in every process
        views = self._drawer.views(step, head_only=head_only)
        losses = backward(network, views, config, start=self._start, precision=self._precision, head_only=head_only)
        return {"misad": losses.misad, "mlm": losses.mlm, "sequences": len(views), "spans": losses.n_spans}
