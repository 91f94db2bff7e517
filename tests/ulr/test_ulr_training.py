"""Runs of ULR training: what they learn, what they leave, and how they resume."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from cli_runner import Run
from fit_cases import read_log, stopped_by
from safetensors.torch import load_file
from tiny_models import as_sentence_transformers
from ulr_cases import SENTENCES, config, make_encoder, open_base, write_text

from pearl_qdrant import UlrRequest, find_ngrams, train_ulr
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.errors import InputError, OptionError, TrainingError
from training.ngrams.files import MarkedSequence
from training.options import NgramOptions
from training.training_loop import TrainingLoop
from training.ulr.drawing import UlrData, open_masking
from training.ulr.objective import UlrObjective, UlrRecord
from training.ulr.request import UlrConfig
from training.ulr.train_ulr import UlrBase

Request = Callable[..., UlrRequest]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT without an MLM head."""
    return as_sentence_transformers(make_encoder(tmp_path_factory.mktemp("models") / "bert", "bert"))


@pytest.fixture
def request_(bert: Path, tmp_path: Path) -> Request:
    """A quick run on random spans of a small text."""
    text = write_text(tmp_path / "text.txt")

    def make(out: str = "out", **changes: Any) -> UlrRequest:
        known = {"base": bert, "texts": text, "steps": 4, "batch_size": 4, "device": "cpu", "precision": "fp32"}
        return UlrRequest(**{**known, "out": tmp_path / out, **changes})

    return make


def learn(base: UlrBase, folder: Path, settings: UlrConfig, **changes: Any) -> list[dict[str, float]]:
    """A run on the sentences; returns its log."""
    sequences = [MarkedSequence(text, (), 0) for text in SENTENCES]
    data = UlrData(sequences, base.tokenizer, open_masking(base.tokenizer, share=0.15))
    objective = UlrObjective(base.network, data, settings)
    TrainingLoop(name="ulr", objective=objective, steps=settings.steps, folder=folder, **changes).run()
    return read_log(folder)


def test_both_losses_fall(bert: Path, tmp_path: Path) -> None:
    """On five sentences the MLM loss falls, and the vectors of n-gram and rest come to add up to the whole."""
    settings = config(steps=24, batch_size=5, micro_batch=5, dropout=False, learning_rate=8e-3, misad_weight=100.0)
    rows = learn(open_base(bert), tmp_path, settings)

    first, last = rows[:5], rows[-5:]
    assert sum(row["mlm"] for row in last) < 0.7 * sum(row["mlm"] for row in first)
    assert sum(row["misad"] for row in last) < 0.7 * sum(row["misad"] for row in first)
    assert all(row["sequences"] == row["spans"] == 5 for row in rows)


def test_a_new_head_is_trained_alone_first(bert: Path, tmp_path: Path) -> None:
    """The first steps leave the encoder as it is, with a learning rate of their own; then all is trained."""
    base, start = open_base(bert), open_base(bert)
    encoders: list[bool] = []

    def compare(_: UlrRecord) -> None:
        ours, theirs = base.network.encoder.state_dict(), start.network.encoder.state_dict()
        encoders.append(all(torch.equal(ours[name], theirs[name]) for name in theirs))

    rows = learn(base, tmp_path, config(head_steps=3, head_learning_rate=0.01), on_step=compare)

    assert encoders == [True] * 3 + [False] * 3
    assert not torch.equal(base.network.head.dense.weight, start.network.head.dense.weight)
    assert [row["misad"] > 0 for row in rows] == [False] * 3 + [True] * 3
    assert [row["learning_rate"] for row in rows[:3]] == [0.01] * 3
    assert all(parameter.requires_grad for parameter in base.network.parameters())


def test_the_rate_rises_and_falls() -> None:
    """It grows over the first tenth after the steps of the head alone, and falls to nearly zero."""
    rates = [config(steps=30, head_steps=10, learning_rate=1.0).rate(step) for step in (10, 11, 12, 13, 30)]

    assert rates == pytest.approx([1e-3, 0.5, 1, 1, 1 / 18])
    assert config(schedule="constant", warmup=0).rate(6) == 1e-3


def test_a_stopped_run_resumes_to_the_same_weights(request_: Request, tmp_path: Path) -> None:
    """Ctrl-C ends a run after its step with its state saved; the same call then ends as if never stopped."""

    def signal_at_2(record: UlrRecord) -> None:
        if record.step == 2:
            signal.raise_signal(signal.SIGINT)

    with stopped_by(signal.SIGINT):
        train_ulr(request_("cut", head_steps=1), on_step=signal_at_2)
    assert not (tmp_path / "cut" / "model.safetensors").exists()
    steps: list[int] = []
    train_ulr(request_("cut", head_steps=1), on_step=lambda record: steps.append(record.step))
    train_ulr(request_("whole", head_steps=1))

    assert steps == [3, 4]
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("cut", "whole"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    rows = [[(row["step"], row["misad"], row["mlm"]) for row in read_log(tmp_path / out / "training")]
            for out in ("cut", "whole")]  # fmt: skip
    assert rows[0] == rows[1]


def test_the_result_is_an_encoder_with_a_head(request_: Request, tmp_path: Path) -> None:
    """A second run starts from the head of the first; the folder records the run."""
    first = train_ulr(request_("first", steps=None, epochs=1.5, batch_size=10))
    second = train_ulr(request_("second", base=tmp_path / "first"))

    assert (first.made_head, first.sequences, first.steps, first.head_steps) == (True, 24, 4, 0)
    assert (second.made_head, second.head_steps) == (False, 0)
    assert load_encoder(str(tmp_path / "second"), device="cpu").encode(["new york"]).vectors.shape == (1, 32)
    assert '"misad_weight": 1.0' in (tmp_path / "second" / "ulr.json").read_text()


def test_ngrams_of_a_folder_are_used(request_: Request, tmp_path: Path) -> None:
    """Every way to choose an n-gram works on the folder that `find_ngrams` wrote, and its sequences are learnt from."""
    find_ngrams(write_text(tmp_path / "text.txt"), tmp_path / "ngrams", NgramOptions(min_pmi=0.5, min_count=2))
    ways: list[Any] = ["lowest_score", "random_ngram", "random_span"]
    spans = {}
    for way in ways:
        train_ulr(request_(f"out-{way}", texts=(), ngrams=tmp_path / "ngrams", sampling=way, steps=2, head_steps=0))
        spans[way] = [row["spans"] for row in read_log(tmp_path / f"out-{way}" / "training")]

    train_ulr(request_("few", texts=(), ngrams=tmp_path / "ngrams", steps=1, n_scored=1, sequences=5, precision="bf16"))

    assert spans["random_span"] == [4] * 2
    assert 0 < sum(spans["random_ngram"]) <= sum(spans["lowest_score"]) <= 8
    assert request_(texts=(), ngrams=tmp_path / "ngrams").find_sampling() == "lowest_score"


def test_arguments_that_contradict_each_other_are_refused(
    request_: Request, tmp_path: Path, bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the arguments, before anything is read or written. Several processes would write one folder."""
    prefixed = as_sentence_transformers(make_encoder(tmp_path / "bert", "bert"), prompt="of ")
    (tmp_path / "pearl").mkdir()
    (tmp_path / "pearl" / "pearl.json").touch()
    cases: list[tuple[str, dict[str, Any]]] = [
        ("Give either 'texts', or", {"texts": ()}),
        ("Give either 'texts', or", {"ngrams": tmp_path}),
        ("'sampling' random_ngram needs 'ngrams'", {"sampling": "random_ngram"}),
        ("are both 0", {"misad_weight": 0, "mlm_weight": 0}),
        ("leaves out", {"mlm_weight": 0, "head_steps": 2}),
        ("by which 'sampling' lowest_score", {"mlm_weight": 0, "texts": (), "ngrams": tmp_path}),
        ("leaves none of 4", {"head_steps": 4}),
        ("is an input", {"out": bert}),
        ("'max_tokens' 4 leaves no room beside 3", {"max_tokens": 4, "base": prefixed}),
        (r"holds another model \(pearl.json\)", {"out": tmp_path / "pearl"}),
    ]
    for message, changes in cases:
        with pytest.raises(OptionError, match=message):
            train_ulr(request_(**changes))
    assert not (tmp_path / "out").exists()
    with pytest.raises(InputError, match=r"meta\.json: does not exist"):
        train_ulr(request_(texts=(), ngrams=tmp_path))
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(TrainingError, match="one process"):
        train_ulr(request_())


def test_train_ulr_writes_an_encoder(run: Run, bert: Path, tmp_path: Path) -> None:
    """The command trains, prints what it did, and names its flags in errors."""
    text = write_text(tmp_path / "text.txt")
    words = ["train", "ulr", str(bert), str(tmp_path / "out"), "--steps", "3"]
    outcome = run(*words, "--text", str(text))

    assert outcome.status == 0, outcome.err
    assert f"{tmp_path / 'out'}: 3 steps; log in " in outcome.err
    assert load_encoder(str(tmp_path / "out"), device="cpu").info.dim == 32
    refused = run(*words, "--text", str(text), "--ngrams", str(tmp_path))
    assert refused.status == 2
    assert "Give either --text" in refused.err
    neither = run(*words)
    assert (neither.status, "or the folder of --ngrams, which" in neither.err) == (2, True)


def test_the_state_of_another_run_is_refused(request_: Request, tmp_path: Path) -> None:
    """Other settings or other texts need another folder, or a restart."""
    train_ulr(request_(steps=2, head_steps=0))

    with pytest.raises(TrainingError, match="seed 0, now 1"):
        train_ulr(request_(steps=2, head_steps=0, seed=1))
    with pytest.raises(TrainingError, match="sequences "):
        train_ulr(request_(steps=2, head_steps=0, texts=write_text(tmp_path / "b.txt", 5)))
    result = train_ulr(request_(steps=2, head_steps=0, seed=1, restart=True))
    assert len(read_log(tmp_path / "out" / "training")) == result.steps == 2
