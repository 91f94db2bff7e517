"""The state that a fine-tuning run leaves when it is killed or interrupted."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fit_cases import config, fit, losses_of, maker, new_network, open_tokenizer
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


class Clock:
    """A clock that the test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_state_is_written_every_five_minutes(run_steps: Callable[..., None], tmp_path: Path) -> None:
    """Even with slow steps and a large `save_every`, a kill costs five minutes and not the whole run."""
    clock = Clock()
    states: dict[int, int] = {}

    def happens(step: int) -> None:
        states[step] = step_of(tmp_path) if (tmp_path / STATE).exists() else 0
        clock.now += 125

    run_steps(tmp_path, happens, clock=clock)

    # The state when each step ends: a step takes 125 s, so every third step is past five minutes.
    assert states == {1: 0, 2: 0, 3: 0, 4: 3, 5: 3, 6: 3}
    assert step_of(tmp_path) == 6


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_asked_to_stop_saves_first(
    run_steps: Callable[..., None], tmp_path: Path, number: signal.Signals
) -> None:
    """Ctrl-C and SIGTERM end the run after its step and save the state; a resumed run ends with the same weights."""
    stopped, straight = tmp_path / "stopped", tmp_path / "straight"

    class Stopped(BaseException):
        pass

    def stop(*_: object) -> None:
        raise Stopped

    before = signal.signal(number, stop)
    try:
        with pytest.raises(Stopped):
            run_steps(stopped, lambda step: step == 3 and signal.raise_signal(number))
        assert signal.getsignal(number) is stop
    finally:
        signal.signal(number, before)
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
