"""`train fit` and `train head` from files to checkpoints: devices, inputs that stay as they are, keys of entities."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from cli_runner import Run
from fit_cases import read_log, write_corpus

from pearl_qdrant.encoder.checkpoint import read_config
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import predict_types
from pearl_qdrant.encoder.runtime.torch_runtime import PearlNetwork
from pearl_qdrant.errors import TrainingError
from pearl_qdrant.phrase_types import PHRASE_TYPES
from training.examples.files import read_training_files
from training.head import train_head
from training.options import HeadOptions


@pytest.mark.parametrize(
    "rank, device, said",
    [
        *(("1", device, "moved to cuda:1") for device in ("auto", "cuda", "cuda:0")),
        (None, "cuda:1", "moved to cuda:1"),
        ("1", "cpu", "moved to cpu"),
        ("2", "cuda", "'cuda:2' was requested, but there are only 2"),
    ],
)
def test_each_process_trains_on_its_own_gpu(
    bert: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, rank: str | None, device: str, said: str
) -> None:
    """Under torchrun, the second process has the second of two GPUs, and a third is refused; a process alone uses the
    one that was named, and processes without GPUs share the CPU.
    """

    def move(_: object, device: torch.device) -> None:
        raise TrainingError(f"moved to {device}")

    for name, value in {"is_available": True, "device_count": 2, "current_device": 0, "set_device": None}.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, value=value: value)
    monkeypatch.setattr(PearlNetwork, "to", move)
    if rank is not None:
        monkeypatch.setenv("LOCAL_RANK", rank)
    base = tmp_path / "base.tsv"
    base.write_text("id\tname\taliases\n1\tnew york\tcity\n", encoding="utf-8")

    words = ["--base-model", str(bert), "--aliases", str(base), "--out", str(tmp_path / "out")]
    done = run("train", "fit", *words, "--set", f"device={device}")

    assert (done.status, said in done.err) == (1, True), done.err


def test_fit_makes_a_checkpoint_from_the_published_files(bert: Path, tmp_path: Path, run: Run) -> None:
    """`train fit --paper-settings` goes from PEARL's files to a checkpoint that encodes and types names."""
    files, out = write_corpus(tmp_path / "corpus"), tmp_path / "pearl"
    words = ["--base-model", str(bert), "--phrases", str(files), "--set", "batch_size=24"]
    negatives = ["--hard-negatives", str(files / "hard_negative.txt")]
    done = run("train", "fit", *words, *negatives, "--paper-settings", "--out", str(out))

    assert done.status == 0, done.err
    config = read_config(out)
    assert config.training["fit"]["negatives_as_pairs"]
    assert config.training["fit"]["steps"] == 20, "two epochs of 40 phrases, four anchors of six views a step"
    assert config.label_counts[PHRASE_TYPES.index("NP-GPE")] == 20
    assert len(read_log(out / "training")) == 20
    encoded = load_encoder(str(out), device="cpu", runtime="torch").encode(["new york w1", "heart attack"])
    assert encoded.type_probabilities is not None
    again = run("train", "fit", *words, *negatives, "--paper-settings", "--set", "seed=5", "--out", str(out))
    assert again.status == 1
    assert "seed 0, now 5" in again.err
    fixed = ("--set", "temperature=1", "--set", "learning_rate=1e-4")
    contradiction = run("train", "fit", *words, "--paper-settings", *fixed, "--out", "x")
    assert "--set paper_settings fixes --set learning_rate, --set temperature" in contradiction.err


def test_fit_learns_from_the_aliases_of_a_base(bert: Path, tmp_path: Path, run: Run) -> None:
    """Names of one entity of a base are positives; a plain encoder works too."""
    base, out = tmp_path / "base.tsv", tmp_path / "refreshed"
    rows = "".join(f"Q{i}\tnew york w{i}\tORG\tcity {i}|york {i}\n" for i in range(12))
    base.write_text(f"id\tname\ttypes\taliases\n{rows}", encoding="utf-8")
    done = run(
        *("train", "fit", "--base-model", str(bert), "--aliases", str(base)),
        *("--steps", "3", "--set", "batch_size=16", "--out", str(out)),
        *("--set", f"distil={write_corpus(tmp_path / 'corpus')}"),
    )

    assert done.status == 0, done.err
    assert "12 examples" in done.err
    assert read_config(out).name == "refreshed"
    assert read_log(out / "training")[-1]["distillation"] > 0
    start = ("train", "fit", "--base-model", str(bert))
    assert read_config(out).training["fit"]["plain"] == 40
    assert run(*start, "--out", str(out)).status == 2
    assert "not a list of phrases" in run(*start, "--phrases", str(base), "--out", "x").err


def test_a_head_is_fitted_on_a_frozen_encoder(bert: Path, tmp_path: Path, run: Run) -> None:
    """`train head` gives a plain encoder phrase types, and leaves its vectors as they were."""
    typed, out = write_corpus(tmp_path / "corpus") / "phrase_with_etype.txt", tmp_path / "typed"
    words = ["--base-model", str(bert), "--phrases", str(typed)]
    done = run("train", "head", *words, "--out", str(tmp_path / "short"))
    assert done.status == 0, done.err
    assert "macro-F1" in done.out

    scores = train_head(str(bert), out, phrases=[typed], options=HeadOptions(epochs=60), device="cpu")
    assert scores is not None
    assert scores.accuracy == 1.0
    names = ["new york w3", "heart attack ac"]
    made, plain = (load_encoder(str(folder), device="cpu", runtime="torch").encode(names) for folder in (out, bert))
    assert made.vectors == pytest.approx(plain.vectors, abs=1e-5)
    assert made.type_probabilities is not None
    assert predict_types(made.type_probabilities).phrase_types == ["NP-GPE", "NP-PERSON"]
    untyped = tmp_path / "freq.txt"
    untyped.write_text("NP__new york\t3\n", encoding="utf-8")
    assert "entity type" in run("train", "head", "--base-model", str(bert), "--phrases", str(untyped), "--out", "x").err


ROWS = "id\tname\taliases\n" + "".join(f"Q{i}\tnew york w{i}\tcity {i}\n" for i in range(6))


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "command",
    [
        "average {model} {other} {model}",
        "average {model} {other} {other}",
        "export {model} {model}",
        "love {model} {model}",
        "fit --base-model {model} --aliases {base} --out {model}",
        "head --base-model {model} --aliases {base} --out {model}",
        "negatives --aliases {base} --model {model} --out {base}",
    ],
)
def test_an_input_is_not_written_over(run: Run, bert: Path, tmp_path: Path, command: str) -> None:
    """A path given twice by mistake gives an error, and the model or base is not lost."""
    data = tmp_path / "data"
    for name in ("model", "other"):
        shutil.copytree(bert, data / name)
    (data / "base.tsv").write_text(ROWS, encoding="utf-8")
    before = contents(data)
    places = {"model": data / "model", "other": data / "other", "base": data / "base.tsv"}

    done = run("train", *(word.format(**places) for word in command.split()))

    assert done.status == 2, done.err
    assert "is an input of this run" in done.err
    assert contents(data) == before


@pytest.mark.parametrize("as_corpora", [False, True])
def test_bases_of_one_file_name_share_no_entity(run: Run, tmp_path: Path, as_corpora: bool) -> None:
    """Entity 1 of a/name.tsv and entity 1 of b/name.tsv are two, in corpora too; given twice, a base is one. The keys
    of phrases begin with "name:", those of entities of these bases do not.
    """
    first, second, phrases = (tmp_path / place for place in ("a/name.tsv", "b/name.tsv", "freq_phrase.txt"))
    for base, row in ((first, "paris\tParis\tCity of Light\n"), (second, "paris\tInsulin\tHumulin\n")):
        base.parent.mkdir()
        base.write_text(f"id\tname\taliases\n{row}", encoding="utf-8")
    phrases.write_text("NP__Paris\t7\n", encoding="utf-8")
    again = first.parent / ".." / "a" / "name.tsv"
    corpora, bases = (phrases,), (first, second, again)
    if as_corpora:
        corpora, bases = (first.with_name("corpus"), second.with_name("corpus")), (first,)
        for base, out in zip((first, second), corpora, strict=True):
            assert run("train", "corpus", "--base", str(base), "--out", str(out)).status == 0

    examples = read_training_files(corpora, bases, min_count=1, max_errors=0)

    keys = {name: {one.entity for one in examples if one.name == name} for name in ("Paris", "Insulin")}
    assert len(keys["Insulin"]) == 1
    assert len(keys["Paris"]) == 1 + (not as_corpora)
    assert not keys["Paris"] & keys["Insulin"]
