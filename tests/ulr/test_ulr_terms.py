"""MiSAD and MLM as further terms of fine-tuning."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from cli_runner import Run
from fit_cases import config, losses_of, maker, new_network, open_tokenizer
from safetensors.torch import load_file
from tiny_models import as_sentence_transformers
from ulr_cases import SENTENCES, make_encoder, open_base, write_text

from pearl_qdrant import FitRequest, fit_model
from pearl_qdrant.encoder.runtime.network import PearlNetwork
from pearl_qdrant.errors import OptionError
from training.finetune.objective import fit
from training.training_loop import read_log
from training.ulr.drawing import TextSequences, UlrData, ViewDrawer, open_masking
from training.ulr.network import UlrNetwork, open_head
from training.ulr.objective import UlrTerms, backward
from training.ulr.request import UlrConfig

WEIGHTS: dict[str, Any] = {"misad_weight": 30.0, "mlm_weight": 0.5}


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT without an MLM head."""
    return as_sentence_transformers(make_encoder(tmp_path_factory.mktemp("models") / "bert", "bert"))


def ulr_config(**changes: Any) -> UlrConfig:
    """Four sentences a step, with the head trained alone in the first step."""
    known: dict[str, Any] = {"steps": 6, "batch_size": 4, "head_steps": 1, "dropout": False, "precision": "fp32"}
    return UlrConfig(**{**known, **WEIGHTS, **changes})


def terms_of(network: PearlNetwork, bert: Path, settings: UlrConfig) -> UlrTerms:
    """The terms on five sentences."""
    encoder: Any = network.phrase_encoder
    head, _ = open_head(encoder, (), seed=3)
    tokenizer = open_tokenizer(bert)
    share = settings.mask_share if settings.mlm_weight else 0.0
    data = UlrData(TextSequences(SENTENCES), tokenizer, open_masking(tokenizer, share=share, on_rest=False))
    return UlrTerms(UlrNetwork(encoder, head, pooling="mean"), data, settings)


def test_the_terms_are_those_of_ulr_training(bert: Path, tmp_path: Path) -> None:
    """Their values and gradients equal those that `train ulr` computes on the same sequences."""
    settings = ulr_config(head_steps=0)
    base = open_base(bert, seed=3)
    network = base.network.eval()
    masking = open_masking(base.tokenizer, share=settings.mask_share, on_rest=False)
    drawer = ViewDrawer(network, UlrData(TextSequences(SENTENCES), base.tokenizer, masking), settings)
    wanted = backward(network, drawer.views(2, head_only=False), settings)

    tuned = new_network(bert).eval()
    terms = terms_of(tuned, bert, settings)

    assert terms.backward(2) == wanted
    assert wanted.misad > 0 < wanted.mlm
    theirs = dict(network.encoder.named_parameters())
    for name, parameter in tuned.phrase_encoder.named_parameters():
        if parameter.grad is None:
            assert theirs[name].grad is None
        else:
            torch.testing.assert_close(parameter.grad, theirs[name].grad)


def test_terms_are_trained_logged_and_drawn(bert: Path, tmp_path: Path) -> None:
    """The head learns from the first step on, the encoder from its own step; the log has both terms in each row."""
    network = new_network(bert)
    terms = terms_of(network, bert, ulr_config())
    head = terms.head.dense.weight.detach().clone()
    settings = config(steps=3, **WEIGHTS)
    fit(network, open_tokenizer(bert), maker(), settings, tmp_path / "both", terms=terms)
    fit(new_network(bert), open_tokenizer(bert), maker(), config(steps=3), tmp_path / "alone")

    rows = read_log(tmp_path / "both")
    assert [row["misad"] > 0 for row in rows] == [False, True, True]
    assert all(row["mlm"] > 0 for row in rows)
    both, alone = losses_of(tmp_path / "both"), losses_of(tmp_path / "alone")
    assert both[:2] == alone[:2], "the first step of the terms leaves the encoder to PEARL's losses"
    assert both[2] != alone[2]
    assert not torch.equal(head, terms.head.dense.weight)


def test_a_run_with_terms_resumes_to_the_same_weights(bert: Path, tmp_path: Path) -> None:
    """The head and its moments are part of the state."""

    class Stop(Exception):
        pass

    def stop_at_2(step: int, _: PearlNetwork) -> dict[str, float]:
        if step == 3:
            raise Stop
        return {}

    def run(out: str, evaluate: Callable[..., Any] | None = None) -> None:
        network = new_network(bert)
        terms = terms_of(network, bert, ulr_config())
        settings = config(steps=4, evaluate_every=1, **WEIGHTS)
        fit(network, open_tokenizer(bert), maker(), settings, tmp_path / out, terms=terms, evaluate=evaluate)

    with pytest.raises(Stop):
        run("cut", stop_at_2)
    run("cut")
    run("whole")

    one, other = (load_file(tmp_path / out / "state.safetensors") for out in ("cut", "whole"))
    assert any(name.startswith("network.mlm_head.") for name in one)
    assert all(torch.equal(one[name], other[name]) for name in other)


def test_a_run_without_the_terms_logs_nothing_of_them(bert: Path, tmp_path: Path) -> None:
    """The log of a run without the terms has no columns for them; a weight needs its terms."""
    fit(new_network(bert), open_tokenizer(bert), maker(), config(steps=1, misad_weight=0.0), tmp_path)

    assert not {"misad", "mlm"} & read_log(tmp_path)[0].keys()


def test_arguments_of_the_terms_that_contradict_each_other_are_refused(bert: Path, tmp_path: Path) -> None:
    """Texts need a term, and a term needs texts."""
    cases: list[tuple[str, dict[str, Any]]] = [
        ("'texts' needs 'misad_weight'", {"texts": "a.txt"}),
        ("'text_batch' needs 'misad_weight'", {"text_batch": 3}),
        ("'misad_weight' needs either 'texts'", {"misad_weight": 1.0}),
        ("'mlm_weight' needs either 'texts'", {"mlm_weight": 1.0, "texts": "a.txt", "ngrams": "b"}),
    ]
    for message, changes in cases:
        with pytest.raises(OptionError, match=message):
            fit_model(FitRequest(base_model=bert, out=tmp_path / "out", **changes))


def test_train_fit_takes_texts(run: Run, bert: Path, tmp_path: Path) -> None:
    """`train fit --misad --mlm --text` trains all of it, and the checkpoint records it."""
    names = tmp_path / "names.tsv"
    names.write_text("id\tname\taliases\n" + "".join(f"{i}\tnew york w{i}\tcity {i}\n" for i in range(12)))
    words = ["train", "fit", "--base-model", str(bert), "--aliases", str(names), "--steps", "2", "--batch", "8"]
    text = ["--text", str(write_text(tmp_path / "text.txt")), "--text-batch", "3"]
    outcome = run(*words, "--out", str(tmp_path / "out"), "--misad", "9", "--mlm", "0.5", *text, "--device", "cpu")

    assert outcome.status == 0, outcome.err
    assert '"misad_weight": 9.0' in (tmp_path / "out" / "pearl.json").read_text().replace(" :", ":")
    assert [row["spans"] for row in read_log(tmp_path / "out" / "training")] == [3, 3]
    refused = run(*words, "--out", str(tmp_path / "other"), "--misad", "9")
    assert refused.status == 2
    assert "--misad needs either --text" in refused.err
