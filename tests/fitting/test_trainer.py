"""The training loop on tiny random models: resuming, kills and interruptions, objectives, and what a run leaves
behind. Names of numbers; gradients with and without caching.
"""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fit_cases import (
    config,
    fit,
    losses_of,
    maker,
    new_network,
    open_tokenizer,
    read_log,
    run_script,
    stopped_by,
    train_together,
)
from safetensors import safe_open
from safetensors.torch import load_file
from tiny_models import DIM
from tokenizers import Regex, Tokenizer
from tokenizers.pre_tokenizers import Split

from pearl_qdrant.errors import CheckpointError, TrainingError
from training.finetune.objective import batch_losses
from training.networks.phrase_vectors import PhraseVectors, micro_batches, pool_phrases
from training.training_loop import deferred_stop

VICTIM = """
def pause(record):
    if record.step == 5:
        (out / "there").touch()
        time.sleep(600)
t.fit(t.new_network(bert), tokenizer, t.maker(), t.config(dropout=True), out, on_step=pause)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_training_resumes_to_the_same_losses_after_a_kill(bert: Path, tokenizer: Any, tmp_path: Path) -> None:
    """A run that is killed and started again has the losses and the weights of one that was not."""
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    with run_script(VICTIM, [bert, killed]) as victim:
        while not (killed / "there").exists() and victim.poll() is None:
            time.sleep(0.05)
        victim.kill()
    assert [step for step, *_ in losses_of(killed)] == [1, 2, 3, 4, 5], "one step past the last state"
    for folder in (straight, killed):
        fit(new_network(bert), tokenizer, maker(), config(dropout=True), folder)

    assert losses_of(killed) == losses_of(straight)
    first, second = (load_file(folder / "state.safetensors") for folder in (straight, killed))
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on a machine with one core
def test_workers_make_the_same_batches(bert: Path, tokenizer: Any, tmp_path: Path) -> None:
    """Worker processes change the speed, not the run; another seed gives another one."""
    for name, workers, seed in (("a", 0, 1), ("b", 2, 1), ("c", 0, 2)):
        fit(new_network(bert), tokenizer, maker(seed=seed), config(workers=workers), tmp_path / name)

    assert losses_of(tmp_path / "a") == losses_of(tmp_path / "b") != losses_of(tmp_path / "c")


def test_a_run_leaves_a_log_and_its_state(bert: Path, tokenizer: Any, tmp_path: Path) -> None:
    """Losses and rates are in a CSV file, which a caller gets step by step; the state is a safetensors file with its
    settings as JSON, safe to load. The network is evaluated at the end, and its word embeddings are as they were.
    """
    seen: list[int] = []
    before, network = new_network(bert).state_dict(), new_network(bert)
    fit(network, tokenizer, maker(), config(dropout=True), tmp_path, on_step=lambda record: seen.append(record.step))

    rows = read_log(tmp_path)
    assert [row["step"] for row in rows] == seen == [1, 2, 3, 4, 5, 6]
    assert all(0 <= row["waited"] <= 1 and row["phrases"] == 32 and row["seconds"] > 0 for row in rows)
    with safe_open(tmp_path / "state.safetensors", framework="pt") as file:
        assert file.metadata()["step"] == "6"
        assert json.loads(file.metadata()["identity"])["temperature"] == 0.07
    assert not network.training
    changed = {name for name, tensor in network.state_dict().items() if not torch.equal(before[name], tensor)}
    assert {"type_head.weight", "phrase_encoder.encoder.layer.1.output.dense.weight"} < changed
    assert "phrase_encoder.embeddings.word_embeddings.weight" not in changed


def test_a_folder_of_another_run_is_refused(bert: Path, tokenizer: Any, tmp_path: Path) -> None:
    """Resuming with other settings would mix two runs: the error names what differs."""
    fit(new_network(bert), tokenizer, maker(), config(), tmp_path)

    with pytest.raises(TrainingError, match=r"temperature 0\.07, now 0\.05"):
        fit(new_network(bert), tokenizer, maker(), config(temperature=0.05), tmp_path)
    with pytest.raises(TrainingError, match="seed 1, now 2"):
        fit(new_network(bert), tokenizer, maker(seed=2), config(), tmp_path)
    fit(new_network(bert), tokenizer, maker(), config(steps=8, save_every=4), tmp_path)
    assert len(read_log(tmp_path)) == 8
    (tmp_path / "state.safetensors").write_bytes(b"not a state")
    with pytest.raises(TrainingError, match="not the state of a training run"):
        fit(new_network(bert), tokenizer, maker(), config(), tmp_path)
    fit(new_network(bert), tokenizer, maker(), config(temperature=0.05), tmp_path, resume=False)


def test_a_loss_that_is_not_finite_stops_the_run(bert: Path, tokenizer: Any, tmp_path: Path) -> None:
    """A run that diverges raises an error, and keeps its last state."""
    network = new_network(bert)
    with torch.no_grad():
        network.phrase_encoder.get_parameter("encoder.layer.0.output.dense.weight").fill_(float("nan"))

    with pytest.raises(TrainingError, match=r"step 1: the loss is not finite: nan \(contrastive\)"):
        fit(network, tokenizer, maker(), config(), tmp_path)
    assert not (tmp_path / "state.safetensors").exists()


@pytest.mark.parametrize("dropout", [False, True])
def test_cached_gradients_equal_uncached_ones(bert: Path, tokenizer: Any, dropout: bool) -> None:
    """Gradient caching changes the memory, not the gradients, with dropout too."""
    batch = maker(plain=["heart attack", "a city of york"], n_plain=3).make(1)
    gradients = []
    for cached in (False, True):
        network = new_network(bert)
        network.train(dropout)
        torch.manual_seed(7)
        phrases = [*batch.anchors, *batch.positives, *batch.negatives, *batch.plain]
        small = micro_batches(tokenizer, phrases, max_tokens=16, size=5)
        views = PhraseVectors(network, small, cached=cached)
        head, settings = network.type_head, config()
        total, _ = batch_losses(views.vectors, batch, head, settings, wanted=torch.eye(DIM)[: len(batch.plain)])
        views.backward(total)
        gradients.append({n: p.grad.clone() for n, p in network.named_parameters() if p.grad is not None})

    assert gradients[0].keys() == gradients[1].keys()
    assert {"type_head.weight", "phrase_encoder.embeddings.word_embeddings.weight"} < gradients[0].keys()
    for name, gradient in gradients[0].items():
        assert gradient.abs().max() > 0 or "key.bias" in name
        torch.testing.assert_close(gradients[1][name], gradient, rtol=1e-4, atol=1e-6)


def test_vectors_do_not_depend_on_the_micro_batches(bert: Path, tokenizer: Any) -> None:
    """Vectors are in the order of the phrases, and do not depend on the other phrases of a batch."""
    network = new_network(bert)
    names = ["new york", "a", "heart attack city of united states", "aspirin 3.5", "x" * 40]

    alone = torch.cat([pool_phrases(network, tokenizer, [name], 16, 1) for name in names])
    torch.testing.assert_close(pool_phrases(network, tokenizer, names, 16, 2), alone, rtol=1e-4, atol=1e-5)


def test_a_long_phrase_keeps_its_end_token(tokenizer: Any) -> None:
    """A phrase is truncated as when the model is used: the last token is [SEP]."""
    (batch,) = micro_batches(tokenizer, ["x" * 30], max_tokens=8, size=4)

    assert batch.input_ids.shape == (1, 8)
    assert batch.input_ids[0, -1] == tokenizer.token_to_id("[SEP]")


def test_a_phrase_that_the_tokenizer_panics_at_is_an_error_in_words(tokenizer: Any) -> None:
    """A regular expression with too many steps ends a training run with a message."""
    slow = Tokenizer.from_str(tokenizer.to_str())
    slow.pre_tokenizer = Split(Regex("(a+)+$"), "isolated")

    message = r"cannot tokenise one of 2 phrases, the first \['aspirin'\].*retry-limit"
    with pytest.raises(CheckpointError, match=message):
        micro_batches(slow, ["aspirin", "a" * 100 + "!"], max_tokens=8, size=4)


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
