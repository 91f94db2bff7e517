"""`train fit` and `train head` from files to checkpoints, by the command line and from Python."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_runner import Run
from fit_cases import write_corpus

from pearl_qdrant.encoder.checkpoint import read_config
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.type_head import predict_types
from pearl_qdrant.phrase_types import PHRASE_TYPES
from training.training_loop import read_log


def test_fit_makes_a_checkpoint_from_the_published_files(bert: Path, tmp_path: Path, run: Run) -> None:
    """`train fit --paper-settings` goes from PEARL's files to a checkpoint that encodes and types names."""
    files, out = write_corpus(tmp_path / "corpus"), tmp_path / "pearl"
    words = ["--base-model", str(bert), "--phrases", str(files), "--batch", "24", "--max-tokens", "12"]
    negatives = ["--hard-negatives", str(files / "hard_negative.txt")]
    done = run("train", "fit", *words, *negatives, "--paper-settings", "--save-every", "5", "--out", str(out))

    assert done.status == 0, done.err
    config = read_config(out)
    assert config.training["fit"]["negatives_as_pairs"]
    assert config.training["fit"]["steps"] == 20, "two epochs of 40 phrases, four anchors of six views a step"
    assert config.label_counts[PHRASE_TYPES.index("NP-GPE")] == 20
    assert len(read_log(out / "training")) == 20
    encoded = load_encoder(str(out), device="cpu", runtime="torch").encode(["new york w1", "heart attack"])
    assert encoded.type_probabilities is not None
    again = run("train", "fit", *words, *negatives, "--paper-settings", "--seed", "5", "--out", str(out))
    assert again.status == 1
    assert "seed 0, now 5" in again.err
    contradiction = run("train", "fit", *words, "--paper-settings", "--temperature", "1", "--out", "x")
    assert "--paper-settings fixes --temperature" in contradiction.err


def test_fit_learns_from_the_aliases_of_a_base(bert: Path, tmp_path: Path, run: Run) -> None:
    """Names of one entity of a base are positives; a plain encoder and the multi-similarity loss work too."""
    base, out = tmp_path / "base.tsv", tmp_path / "refreshed"
    rows = "".join(f"Q{i}\tnew york w{i}\tORG\tcity {i}|york {i}\n" for i in range(12))
    base.write_text(f"id\tname\ttypes\taliases\n{rows}", encoding="utf-8")
    done = run(
        *("train", "fit", "--base-model", str(bert), "--aliases", str(base), "--objective", "multi-similarity"),
        *("--steps", "3", "--batch", "16", "--cache-gradients", "--name", "mine", "--out", str(out)),
        *("--distil", str(write_corpus(tmp_path / "corpus")), "--distil-misspelt", "0.5"),
    )

    assert done.status == 0, done.err
    assert "12 examples" in done.err
    assert read_config(out).name == "mine"
    assert read_log(out / "training")[-1]["distillation"] > 0
    start = ("train", "fit", "--base-model", str(bert))
    unused = run(*start, "--aliases", str(base), "--distil-weight", "1", "--out", "x")
    assert "--distil-weight needs --distil" in unused.err
    unused = run(*start, "--aliases", str(base), "--distil-misspelt", "1", "--out", "x")
    assert "--distil-misspelt needs --distil" in unused.err
    fitted = read_config(out).training["fit"]
    assert fitted["plain"] == 40
    assert fitted["misspelt_plain"] == 0.5
    assert run(*start, "--out", str(out)).status == 2
    assert "not a list of phrases" in run(*start, "--phrases", str(base), "--out", "x").err


def test_a_head_is_fitted_on_a_frozen_encoder(bert: Path, tmp_path: Path, run: Run) -> None:
    """`train head` gives a plain encoder phrase types, and leaves its vectors as they were."""
    typed, out = write_corpus(tmp_path / "corpus") / "phrase_with_etype.txt", tmp_path / "typed"
    words = ["--base-model", str(bert), "--phrases", str(typed), "--epochs", "60"]
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
    assert "entity type" in run("train", "head", "--base-model", str(bert), "--phrases", str(untyped), "--out", "x").err
