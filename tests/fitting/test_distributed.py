"""Two processes together: what they gather, sum and share. A whole training run is a slow test."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from fit_cases import losses_of, run_script, train_together
from safetensors.torch import load_file

from pearl_qdrant.errors import DeviceError
from training.training_loop import gather_rows, local_device, sum_over_processes


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def test_a_process_alone_is_the_whole() -> None:
    """Without torchrun nothing waits, and gathering returns the rows unchanged."""
    rows = torch.ones(3, 2, requires_grad=True)

    assert gather_rows(rows) is rows
    assert sum_over_processes(torch.tensor(2.0)).item() == 2


def test_a_processor_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes without GPUs stay on the CPU for any rank; a missing GPU is an error."""
    monkeypatch.setenv("LOCAL_RANK", "1")

    assert local_device(torch.device("cpu")) == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(DeviceError, match="cuda:1"):
        local_device(torch.device("cuda"))


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_two_processes_train_as_one_with_all_their_pairs(bert: Path, tokenizer: Any, tmp_path: Path) -> None:
    """Vectors are gathered over the processes: losses and weights are those of one process with the whole batch."""
    one, two = tmp_path / "one", tmp_path / "two"
    world = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    code = "t.train_together(bert, tokenizer, out)"
    with ExitStack() as stack:
        running = []
        for rank in ("0", "1"):
            process = run_script(tmp_path, code, [bert, two], RANK=rank, LOCAL_RANK=rank, **world)
            running.append(stack.enter_context(process))
            stack.callback(process.kill)
        train_together(bert, tokenizer, one)
        for process in running:
            _, complaint = process.communicate(timeout=600)
            assert process.returncode == 0, complaint.decode()

    assert [step for step, *_ in losses_of(two)] == [1, 2, 3, 4]
    for together, alone in zip(losses_of(two), losses_of(one), strict=True):
        assert together == pytest.approx(alone, rel=1e-4)
    weights = [load_file(folder / f"weights-{rank}.safetensors") for folder, rank in ((one, 0), (two, 0), (two, 1))]
    for name, tensor in weights[0].items():
        assert torch.equal(weights[1][name], weights[2][name]), "the processes stay the same"
        if "key.bias" not in name:  # no gradient but rounding, which Adam makes large
            torch.testing.assert_close(weights[1][name], tensor, rtol=1e-3, atol=2e-4)
