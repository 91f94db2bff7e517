"""Fine-tuning on tiny random models: gradients, resuming, several processes, and what a run leaves behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from cli_runner import Run
from safetensors.torch import load_file, save_file
from tiny_models import DIM, make_bert
from tokenizers import Regex, Tokenizer
from tokenizers.pre_tokenizers import Split

from pearl_qdrant.encoder.checkpoint import read_config
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.runtime.network import PearlNetwork, load_phrase_encoder, new_type_head
from pearl_qdrant.encoder.type_head import predict_types
from pearl_qdrant.errors import CheckpointError, SettingsError, TrainingError
from pearl_qdrant.phrase_types import PHRASE_TYPES
from training.data.batches import BatchMaker, EpochSampler, NeighbourSampler, Source
from training.examples.sources import Example, any_class
from training.finetune.config import FitConfig
from training.finetune.curves import read_log
from training.finetune.distributed import process_group
from training.finetune.objective import batch_losses
from training.finetune.trainer import fit
from training.mining.negative_table import NegativeTable
from training.networks.phrase_vectors import PhraseVectors, micro_batches, pool_phrases

ROOT = Path(__file__).resolve().parents[2]
PATHS = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support")])

EXAMPLES = [Example(f"new york w{i}", (f"city {i}",), str(i), any_class(["GPE"])) for i in range(40)]
NEGATIVES = NegativeTable([(e.name, [f"new yorks {i}", f"york {i}"]) for i, e in enumerate(EXAMPLES)])


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT."""
    return make_bert(tmp_path_factory.mktemp("models") / "bert")


@pytest.fixture
def tokenizer(bert: Path) -> Any:
    """Its tokenizer, as training wants it."""
    made = Tokenizer.from_file(str(bert / "tokenizer.json"))
    made.no_padding()
    return made


def new_network(bert: Path) -> PearlNetwork:
    """The same network each time."""
    torch.manual_seed(0)
    return PearlNetwork(load_phrase_encoder(bert), new_type_head(DIM))


def maker(**changes: Any) -> BatchMaker:
    """Batches of eight pairs in alphabetical runs, with hard negatives."""
    runs = BatchMaker(NeighbourSampler([Source(EXAMPLES, 1.0)], run=4), n_pairs=8, seed=1, negatives=NEGATIVES)
    return replace(runs, **changes)


def config(**changes: Any) -> FitConfig:
    """Six quick steps."""
    return replace(FitConfig(steps=6, learning_rate=1e-3, save_every=2, precision="fp32", micro_batch=8), **changes)


def losses_of(folder: Path) -> list[tuple[float, float, float]]:
    """Step and losses of each row of a run's log."""
    return [(row["step"], row["contrastive"], row["type_loss"]) for row in read_log(folder)]


@pytest.mark.parametrize("dropout", [False, True])
@pytest.mark.parametrize("objective", ["nt-xent", "multi-similarity"])
def test_cached_gradients_equal_uncached_ones(bert: Path, tokenizer: Any, dropout: bool, objective: Any) -> None:
    """Gradient caching changes the memory, not the gradients, with dropout too."""
    batch = maker(plain=["heart attack", "a city of york"], n_plain=3).make(1)
    gradients = []
    for cached in (False, True):
        network = new_network(bert)
        network.train(dropout)
        torch.manual_seed(7)
        phrases = [*batch.anchors, *batch.positives, *batch.negatives, *batch.plain_views]
        small = micro_batches(tokenizer, phrases, max_tokens=16, size=5)
        views = PhraseVectors(network, small, device=torch.device("cpu"), cached=cached)
        head, settings = network.type_head, config(objective=objective)
        losses = batch_losses(
            views.vectors, batch, head, settings, distil_from=lambda names: torch.eye(DIM)[: len(names)]
        )
        views.backward(losses.total)
        gradients.append({n: p.grad.clone() for n, p in network.named_parameters() if p.grad is not None})

    assert gradients[0].keys() == gradients[1].keys()
    assert {"type_head.weight", "phrase_encoder.embeddings.word_embeddings.weight"} < gradients[0].keys()
    for name, gradient in gradients[0].items():
        assert gradient.abs().max() > 0 or "key.bias" in name
        torch.testing.assert_close(gradients[1][name], gradient, rtol=1e-4, atol=1e-6)


def test_vectors_do_not_depend_on_the_micro_batches(bert: Path, tokenizer: Any) -> None:
    """Phrases come back in their order, whatever company each was encoded in."""
    network = new_network(bert)
    names = ["new york", "a", "heart attack city of united states", "aspirin 3.5", "x" * 40]

    alone = torch.cat([pool_phrases(network, tokenizer, [name], 16, 1) for name in names])
    torch.testing.assert_close(pool_phrases(network, tokenizer, names, 16, 2), alone, rtol=1e-4, atol=1e-5)


def test_a_long_phrase_keeps_its_end_mark(tokenizer: Any) -> None:
    """A phrase is cut as it will be when the model is used: the last token is [SEP]."""
    (batch,) = micro_batches(tokenizer, ["x" * 30], max_tokens=8, size=4)

    assert batch.input_ids.shape == (1, 8)
    assert batch.input_ids[0, -1] == tokenizer.token_to_id("[SEP]")


def test_a_phrase_that_the_tokenizer_panics_at_is_an_error_in_words(tokenizer: Any) -> None:
    """A regular expression that goes through too many steps ends a training with a message."""
    slow = Tokenizer.from_str(tokenizer.to_str())
    slow.pre_tokenizer = Split(Regex("(a+)+$"), "isolated")

    with pytest.raises(CheckpointError, match=r"cannot take one of 2 phrases, the first \['aspirin'\].*retry-limit"):
        micro_batches(slow, ["aspirin", "a" * 100 + "!"], max_tokens=8, size=4)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Sums in one order, as in the other processes."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


START = """
import sys
sys.path.insert(0, {tests!r})
import test_trainer as t
bert, out = t.Path(sys.argv[1]), t.Path(sys.argv[2])
t.torch.set_num_threads(1)
tokenizer = t.Tokenizer.from_file(str(bert / "tokenizer.json"))
tokenizer.no_padding()
"""

VICTIM = """
def pause(step, network):
    if step == 5:
        (out / "there").touch()
        t.time.sleep(600)
    return {"step": step}
t.fit(t.new_network(bert), tokenizer, t.maker(), t.config(dropout=True, evaluate_every=1), out, evaluate=pause)
"""


def run_script(folder: Path, code: str, words: Sequence[Path], **environment: str) -> subprocess.Popen[bytes]:
    """Start a Python that knows this module as `t`."""
    script = folder / f"script{environment.get('RANK', '')}.py"
    script.write_text(START.format(tests=str(Path(__file__).parent)) + code, encoding="utf-8")
    known = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    return subprocess.Popen(
        [sys.executable, str(script), *map(str, words)],
        env=known | {"PYTHONPATH": PATHS, "OMP_NUM_THREADS": "1"} | environment,
        stderr=subprocess.PIPE,
    )


@pytest.mark.usefixtures("one_thread")
def test_training_goes_on_to_the_same_losses_after_a_kill(bert: Path, tokenizer: Any, tmp_path: Path) -> None:
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
    """Processes that prepare the batches change the speed, not the run."""
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


def test_distilled_phrases_stay_where_they_were(bert: Path, tokenizer: Any, tmp_path: Path) -> None:
    """Plain phrases move less where they are distilled from the network as it was at the start."""
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
    with pytest.raises(ValueError, match="to distil them from"):
        fit(before, tokenizer, maker(plain=plain), config(), tmp_path / "none")


def test_a_run_leaves_a_log_and_curves(bert: Path, tokenizer: Any, tmp_path: Path) -> None:
    """Losses, rates and scores stand in CSV files and in a picture; the network is left for use."""
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
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_a_folder_of_another_run_is_refused(bert: Path, tokenizer: Any, tmp_path: Path) -> None:
    """Going on with other settings would mix two runs: it is refused, and says what differs."""
    fit(new_network(bert), tokenizer, maker(), config(), tmp_path)

    with pytest.raises(TrainingError, match=r"temperature 0\.07, now 0\.05"):
        fit(new_network(bert), tokenizer, maker(), config(temperature=0.05), tmp_path)
    with pytest.raises(TrainingError, match="seed 1, now 2"):
        fit(new_network(bert), tokenizer, maker(seed=2), config(), tmp_path)
    fit(new_network(bert), tokenizer, maker(), config(steps=8, save_every=4), tmp_path)
    assert len(read_log(tmp_path)) == 8
    (tmp_path / "state.safetensors").write_bytes(b"no state at all")
    with pytest.raises(TrainingError, match="no state of a training run"):
        fit(new_network(bert), tokenizer, maker(), config(), tmp_path)
    fit(new_network(bert), tokenizer, maker(), config(temperature=0.05), tmp_path, resume=False)


def test_a_loss_that_is_no_number_stops_the_run(bert: Path, tokenizer: Any, tmp_path: Path) -> None:
    """A run that diverged says so, and keeps its last state."""
    network = new_network(bert)
    with torch.no_grad():
        network.phrase_encoder.get_parameter("encoder.layer.0.output.dense.weight").fill_(float("nan"))

    with pytest.raises(TrainingError, match="step 1: the loss is nan"):
        fit(network, tokenizer, maker(), config(), tmp_path)
    assert not (tmp_path / "state.safetensors").exists()


def test_what_fit_cannot_do_is_said_at_once(
    bert: Path, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A type loss needs a head; TensorBoard has to be installed."""
    plain = PearlNetwork(load_phrase_encoder(bert), None)
    with pytest.raises(ValueError, match="type head"):
        fit(plain, tokenizer, maker(), config(), tmp_path)
    fit(plain, tokenizer, maker(), config(type_weight=0.0, steps=1), tmp_path / "plain")
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(SettingsError, match="not installed"):
        fit(new_network(bert), tokenizer, maker(), config(), tmp_path / "board", tensorboard=True)


FIRST = NegativeTable([(e.name, [f"york {i}", f"yorks {i}"]) for i, e in enumerate(EXAMPLES) if i % 3])


def louder(name: str, _: Any) -> str:
    """A variant without chance, so that one process and two see the same."""
    return f"{name} post"


def train_together(bert: Path, tokenizer: Any, out: Path) -> None:
    """Four steps of eight pairs over however many processes there are."""
    with process_group(torch.device("cpu")) as shard:
        network = new_network(bert)
        made = BatchMaker(
            EpochSampler(EXAMPLES, seed=5), n_pairs=8 // shard.world_size, seed=0, vary=louder, shard=shard
        )
        made = replace(made, alias_share=0, negatives=FIRST)
        fit(network, tokenizer, made, config(steps=4, cache_gradients=True), out)
        save_file(network.state_dict(), out / f"weights-{shard.rank}.safetensors")


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


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_the_state_is_no_pickle(bert: Path, tokenizer: Any, tmp_path: Path) -> None:
    """The state is safetensors with its settings as JSON, readable by anyone and harmless to load."""
    from safetensors import safe_open

    fit(new_network(bert), tokenizer, maker(), config(steps=2), tmp_path)
    with safe_open(tmp_path / "state.safetensors", framework="pt") as file:
        metadata = file.metadata()

    assert metadata["step"] == "2"
    assert json.loads(metadata["identity"])["temperature"] == 0.07


def corpus(folder: Path) -> Path:
    """A corpus as PEARL publishes it."""
    folder.mkdir()
    places = [f"new york w{i}" for i in range(20)]
    people = [f"heart attack a{chr(97 + i)}" for i in range(20)]
    rows = "".join(f"NP__{name}\t{3 + i}\n" for i, name in enumerate([*places, *people]))
    (folder / "freq_phrase.txt").write_text(rows, encoding="utf-8")
    types = "".join(f"{name}\tGPE\n" for name in places) + "".join(f"{name}\tPERSON\n" for name in people)
    (folder / "phrase_with_etype.txt").write_text(types, encoding="utf-8")
    (folder / "hard_negative.txt").write_text("new york w1\tnew york w2\tnew york w3\n", encoding="utf-8")
    return folder


def test_fit_makes_a_checkpoint_from_the_published_files(bert: Path, tmp_path: Path, run: Run) -> None:
    """`train fit --faithful` goes from PEARL's files to a checkpoint that encodes and types names."""
    material, out = corpus(tmp_path / "corpus"), tmp_path / "pearl"
    words = ["--base", str(bert), "--phrases", str(material), "--batch", "24", "--max-tokens", "12"]
    negatives = ["--hard-negatives", str(material / "hard_negative.txt")]
    done = run("train", "fit", *words, *negatives, "--faithful", "--save-every", "5", "--out", str(out))

    assert done.status == 0, done.err
    config = read_config(out)
    assert config.training["fit"]["negatives_as_pairs"]
    assert config.training["fit"]["steps"] == 20, "two epochs of 40 phrases, four anchors of six views a step"
    assert config.label_counts[PHRASE_TYPES.index("NP-GPE")] == 20
    assert len(read_log(out / "training")) == 20
    encoded = load_encoder(str(out), device="cpu", runtime="torch").encode(["new york w1", "heart attack"])
    assert encoded.type_probabilities is not None
    again = run("train", "fit", *words, *negatives, "--faithful", "--seed", "5", "--out", str(out))
    assert again.status == 1
    assert "seed 0, now 5" in again.err
    contradiction = run("train", "fit", *words, "--faithful", "--temperature", "1", "--out", "x")
    assert "--faithful fixes --temperature" in contradiction.err


def test_fit_learns_from_the_aliases_of_a_base(bert: Path, tmp_path: Path, run: Run) -> None:
    """A base's own names are positives; a plain encoder and the same run of the multi-similarity loss do."""
    base, out = tmp_path / "base.tsv", tmp_path / "refreshed"
    rows = "".join(f"Q{i}\tnew york w{i}\tORG\tcity {i}|york {i}\n" for i in range(12))
    base.write_text(f"id\tname\ttypes\taliases\n{rows}", encoding="utf-8")
    done = run(
        *("train", "fit", "--base", str(bert), "--aliases", str(base), "--objective", "multi-similarity"),
        *("--steps", "3", "--batch", "16", "--cache-gradients", "--name", "mine", "--out", str(out)),
        *("--distil", str(corpus(tmp_path / "corpus")), "--distil-misspelt", "0.5"),
    )

    assert done.status == 0, done.err
    assert "12 examples" in done.err
    assert read_config(out).name == "mine"
    assert read_log(out / "training")[-1]["distillation"] > 0
    unused = run("train", "fit", "--base", str(bert), "--aliases", str(base), "--distil-weight", "1", "--out", "x")
    assert "--distil-weight needs --distil" in unused.err
    unused = run("train", "fit", "--base", str(bert), "--aliases", str(base), "--distil-misspelt", "1", "--out", "x")
    assert "--distil-misspelt needs --distil" in unused.err
    fitted = read_config(out).training["fit"]
    assert fitted["plain"] == 40
    assert fitted["misspelt_plain"] == 0.5
    assert run("train", "fit", "--base", str(bert), "--out", str(out)).status == 2
    assert "no list of phrases" in run("train", "fit", "--base", str(bert), "--phrases", str(base), "--out", "x").err


def test_a_head_is_fitted_on_a_frozen_encoder(bert: Path, tmp_path: Path, run: Run) -> None:
    """`train head` gives a plain encoder phrase types, and leaves its vectors as they were."""
    typed, out = corpus(tmp_path / "corpus") / "phrase_with_etype.txt", tmp_path / "typed"
    words = ["--base", str(bert), "--phrases", str(typed), "--epochs", "60"]
    done = run("train", "head", *words, "--out", str(out), "--json")

    assert done.status == 0, done.err
    (line,) = done.lines()
    assert line["accuracy"] == 1.0
    names = ["new york w3", "heart attack ac"]
    made, plain = (load_encoder(str(folder), device="cpu", runtime="torch").encode(names) for folder in (out, bert))
    assert made.vectors == pytest.approx(plain.vectors, abs=1e-5)
    assert made.type_probabilities is not None
    assert predict_types(made.type_probabilities).phrase_types == ["NP-GPE", "NP-PERSON"]
    untyped = tmp_path / "freq.txt"
    untyped.write_text("NP__new york\t3\n", encoding="utf-8")
    assert "entity type" in run("train", "head", "--base", str(bert), "--phrases", str(untyped), "--out", "x").err
