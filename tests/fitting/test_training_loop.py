"""The one training loop, with an objective of a single number."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from training.training_loop import Objective, StepRecord, TrainingLoop, read_log


@dataclass(frozen=True, slots=True)
class Record(StepRecord):
    """The error of a step."""

    error: float


class Towards3(Objective):
    """One weight that moves towards 3."""

    record = Record

    def __init__(self) -> None:
        self.network = torch.nn.Linear(1, 1, bias=False)
        torch.nn.init.zeros_(self.network.weight)
        self.optimizer = torch.optim.Adam(self.network.parameters())

    def rate(self, step: int, factor: float) -> float:
        return 0.5 * factor

    def backward(self, step: int, batch: int) -> dict[str, torch.Tensor | float]:
        error = (self.network(torch.ones(1, 1)) - 3).square().sum()
        torch.autograd.backward(error)
        return {"error": error.detach()}


def test_any_objective_is_trained_and_resumed(tmp_path: Path) -> None:
    """A run in two parts ends where a run in one ends, and its log has the figures of the objective."""
    whole, parts = Towards3(), Towards3()
    TrainingLoop(name="whole", objective=whole, steps=12, folder=tmp_path / "whole").run()
    TrainingLoop(name="parts", objective=Towards3(), steps=5, folder=tmp_path / "parts").run()
    done = TrainingLoop(name="parts", objective=parts, steps=12, folder=tmp_path / "parts").run()

    assert done == 12
    assert torch.equal(whole.network.weight, parts.network.weight)
    logs = [[(row["step"], row["error"]) for row in read_log(tmp_path / name)] for name in ("whole", "parts")]
    assert logs[0] == logs[1]
    assert logs[0][-1][1] < logs[0][0][1] == pytest.approx(9)


def test_a_run_without_a_folder_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is not to be resumed needs no folder."""
    monkeypatch.chdir(tmp_path)
    objective = Towards3()

    assert TrainingLoop(name="none", objective=objective, steps=3, progress=False).run() == 3
    assert objective.network.weight.item() > 0
    assert list(tmp_path.iterdir()) == []
