"""The training loop on tiny random models: resuming, objectives, and what a run leaves behind."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from fit_cases import config, losses_of, maker, new_network, run_script
from safetensors.torch import load_file

from pearl_qdrant.encoder.runtime.network import PearlNetwork
from pearl_qdrant.errors import TrainingError
from training.finetune.objective import fit
from training.networks.phrase_vectors import pool_phrases
from training.training_loop import read_log

VICTIM = """
def pause(step, network):
    if step == 5:
        (out / "there").touch()
        time.sleep(600)
    return {"step": step}
t.fit(t.new_network(bert), tokenizer, t.maker(), t.config(dropout=True, evaluate_every=1), out, evaluate=pause)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_training_resumes_to_the_same_losses_after_a_kill(bert: Path, tokenizer: Any, tmp_path: Path) -> None:
    """A run that is killed and started again has the losses and the weights of one that was not."""
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    with run_script(tmp_path, VICTIM, [bert, killed]) as victim:
        while not (killed / "there").exists() and victim.poll() is None:
            time.sleep(0.05)
        victim.kill()
    assert [step for step, *_ in losses_of(killed)] == [1, 2, 3, 4, 5], "one step past the last state"
    for folder in (straight, killed):
        settings = config(dropout=True, evaluate_every=1)
        fit(new_network(bert), tokenizer, maker(), settings, folder, evaluate=lambda step, _: {"step": step})

    assert losses_of(killed) == losses_of(straight)
    assert (killed / "evaluation.csv").read_text() == (straight / "evaluation.csv").read_text()
    first, second = (load_file(folder / "state.safetensors") for folder in (straight, killed))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_run_whose_time_is_over_stops_with_its_state(bert: Path, tokenizer: Any, tmp_path: Path) -> None:
    """The first step that ends too late is the last one; the state is that of it, and another run goes on there."""
    now = iter(float(second) for second in range(1000))  # each look at the clock is a second later
    done = fit(new_network(bert), tokenizer, maker(), config(), tmp_path, max_seconds=5.0, clock=lambda: next(now))
    steps = config().steps

    assert 1 <= done < steps
    assert [step for step, *_ in losses_of(tmp_path)] == list(range(1, done + 1))
    assert fit(new_network(bert), tokenizer, maker(), config(), tmp_path, max_seconds=0.0) == done + 1
    assert fit(new_network(bert), tokenizer, maker(), config(), tmp_path) == steps
    assert [step for step, *_ in losses_of(tmp_path)] == list(range(1, steps + 1))


def test_the_same_seed_gives_the_same_run(bert: Path, tokenizer: Any, tmp_path: Path) -> None:
    """Two runs of one seed have the same losses, another seed has others; the loss falls."""
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        fit(new_network(bert), tokenizer, maker(seed=seed), config(steps=20, dropout=True), tmp_path / name)

    losses = losses_of(tmp_path / "a")
    assert losses == losses_of(tmp_path / "b")
    assert losses != losses_of(tmp_path / "c")
    assert sum(row[2] for row in losses[-5:]) < sum(row[2] for row in losses[:5])


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on a machine with one core
def test_workers_make_the_same_batches(bert: Path, tokenizer: Any, tmp_path: Path) -> None:
    """Worker processes change the speed, not the run."""
    for workers in (0, 2):
        fit(new_network(bert), tokenizer, maker(), config(workers=workers), tmp_path / str(workers))

    assert losses_of(tmp_path / "0") == losses_of(tmp_path / "2")


@pytest.mark.parametrize("change", [{"cache_gradients": True}, {"objective": "multi-similarity"}, {"mask": "none"}])
def test_every_objective_trains(bert: Path, tokenizer: Any, tmp_path: Path, change: dict[str, Any]) -> None:
    """Each option runs, and changes the weights but not the frozen word embeddings."""
    before, network = new_network(bert), new_network(bert)
    fit(network, tokenizer, maker(), config(**change), tmp_path)

    after = network.state_dict()
    changed = {name for name, tensor in before.state_dict().items() if not torch.equal(tensor, after[name])}
    assert "type_head.weight" in changed
    assert "phrase_encoder.encoder.layer.1.output.dense.weight" in changed
    assert "phrase_encoder.embeddings.word_embeddings.weight" not in changed


def test_distilled_phrases_keep_their_vectors(bert: Path, tokenizer: Any, tmp_path: Path) -> None:
    """Plain phrases move less with a larger weight of the distillation."""
    plain = ["heart attack", "a city of york", "the united states", "in a state of"]
    before = new_network(bert)

    def vectors(network: PearlNetwork, names: Sequence[str]) -> torch.Tensor:
        with torch.no_grad():
            return torch.nn.functional.normalize(pool_phrases(network, tokenizer, names, 16, 8), dim=-1)

    moved = []
    for weight in (0.01, 20.0):
        network, folder = new_network(bert), tmp_path / str(weight)
        drawn, settings = maker(plain=plain, n_plain=4), config(steps=20, distil_weight=weight)
        fit(network, tokenizer, drawn, settings, folder, distil_from=lambda names: vectors(before, names))
        moved.append(float((1 - (vectors(network, plain) * vectors(before, plain)).sum(1)).mean()))
        assert read_log(folder)[-1]["distillation"] > 0

    assert moved[1] < moved[0] / 2, moved


def test_a_run_leaves_a_log(bert: Path, tokenizer: Any, tmp_path: Path) -> None:
    """Losses, rates and scores are in CSV files; the network is in evaluation mode."""
    seen: list[tuple[int, bool]] = []

    def evaluate(step: int, network: PearlNetwork) -> Mapping[str, float]:
        seen.append((step, network.training))
        return {"birds": step / 10}

    network = new_network(bert)
    fit(network, tokenizer, maker(), config(evaluate_every=4, dropout=True), tmp_path, evaluate=evaluate)

    rows = read_log(tmp_path)
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert all(0 <= row["waited"] <= 1 and row["phrases"] == 32 and row["seconds"] > 0 for row in rows)
    assert seen == [(4, False), (6, False)]
    assert (tmp_path / "evaluation.csv").read_text() == "step,metric,value\n4,birds,0.4\n6,birds,0.6\n"
    assert not network.training


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


def test_the_state_is_not_a_pickle(bert: Path, tokenizer: Any, tmp_path: Path) -> None:
    """The state is a safetensors file with its settings as JSON, safe to load."""
    from safetensors import safe_open

    fit(new_network(bert), tokenizer, maker(), config(steps=2), tmp_path)
    with safe_open(tmp_path / "state.safetensors", framework="pt") as file:
        metadata = file.metadata()

    assert metadata["step"] == "2"
    assert json.loads(metadata["identity"])["temperature"] == 0.07
