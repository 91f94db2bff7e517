"""The state that a fine-tuning run leaves when it is killed or interrupted."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fit_cases import config, fit, losses_of, maker, new_network, open_tokenizer, run_script, stopped_by, train_together
from safetensors import safe_open
from safetensors.torch import load_file

from training.training_loop import deferred_stop

pytestmark = pytest.mark.usefixtures("one_thread")

STATE = "state.safetensors"
Happens = Callable[[int], object]


@pytest.fixture
def run_steps(bert: Path) -> Callable[..., None]:
    """Six steps with rare states; the caller decides what happens in each step."""
    tokenizer = open_tokenizer(bert)

    def run(folder: Path, happens: Happens = bool, **words: Any) -> None:
        settings = config(save_every=500)
        fit(new_network(bert), tokenizer, maker(), settings, folder, on_step=lambda row: happens(row.step), **words)

    return run


def step_of(folder: Path) -> int:
    """The step of the state in a folder."""
    with safe_open(folder / STATE, framework="pt") as file:
        return int(file.metadata()["step"])


def test_a_state_is_written_every_five_minutes(run_steps: Callable[..., None], tmp_path: Path) -> None:
    """Even with slow steps and a large `save_every`, a kill costs five minutes and not the whole run."""
    states: dict[int, int] = {}

    def happens(step: int) -> None:
        states[step] = step_of(tmp_path) if (tmp_path / STATE).exists() else 0

    run_steps(tmp_path, happens, clock=lambda: 100.0 + 125 * len(states))

    # The state when each step ends: a step takes 125 s, so every third step is past five minutes.
    assert states == {1: 0, 2: 0, 3: 0, 4: 3, 5: 3, 6: 3}
    assert step_of(tmp_path) == 6


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_asked_to_stop_saves_first(
    run_steps: Callable[..., None], tmp_path: Path, number: signal.Signals
) -> None:
    """Ctrl-C and SIGTERM end the run after its step and save the state; a resumed run ends with the same weights."""
    stopped, straight = tmp_path / "stopped", tmp_path / "straight"

    with stopped_by(number):
        run_steps(stopped, lambda step: step == 3 and signal.raise_signal(number))
    assert step_of(stopped) == 3
    run_steps(stopped)
    run_steps(straight)

    assert losses_of(stopped) == losses_of(straight)
    first, second = load_file(stopped / STATE), load_file(straight / STATE)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_second_ctrl_c_stops_at_once(run_steps: Callable[..., None], tmp_path: Path) -> None:
    """A second Ctrl-C does not wait for the end of the step."""

    def twice(step: int) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run_steps(tmp_path, twice)
    assert not (tmp_path / STATE).exists()


def test_signals_are_not_deferred_where_that_is_impossible() -> None:
    """A signal that is ignored stays ignored, and in another thread than the main one handlers stay as they are."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with deferred_stop() as stop:
            signal.raise_signal(signal.SIGINT)
            assert not stop
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    seen = []

    def elsewhere() -> None:
        with deferred_stop() as stop:
            seen.append((bool(stop), signal.getsignal(signal.SIGINT)))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == [(False, before)]


@pytest.mark.slow
def test_two_processes_train_as_one_with_all_their_pairs(
    bert: Path, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vectors are gathered over the processes: losses and weights are those of one process with the whole batch."""
    one, two = tmp_path / "one", tmp_path / "two"
    train_together(bert, tokenizer, one)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    world = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    for name, value in {**world, "RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    with run_script("t.train_together(bert, tokenizer, out)", [bert, two], RANK="1", **world) as other:
        train_together(bert, tokenizer, two)
        _, complaint = other.communicate(timeout=600)
    assert other.returncode == 0, complaint.decode()

    assert [step for step, *_ in losses_of(two)] == [1, 2, 3, 4]
    for together, alone in zip(losses_of(two), losses_of(one), strict=True):
        assert together == pytest.approx(alone, rel=1e-4)
    weights = [load_file(folder / f"weights-{rank}.safetensors") for folder, rank in ((one, 0), (two, 0), (two, 1))]
    for name, tensor in weights[0].items():
        assert torch.equal(weights[1][name], weights[2][name]), "the processes stay the same"
        if "key.bias" not in name:  # no gradient but rounding, which Adam makes large
            torch.testing.assert_close(weights[1][name], tensor, rtol=1e-3, atol=2e-4)
