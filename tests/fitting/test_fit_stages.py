"""Stages of training from files to checkpoints, by command and as calls in Python: devices, inputs that stay as they
are, keys of entities.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from cli_runner import Run
from fit_cases import read_log, write_corpus
from safetensors.torch import load_file, save_file
from tiny_models import WORDS

from pearl_qdrant import (
    CharacterWidths,
    EvaluationOptions,
    FitRequest,
    LoveConfig,
    TrainingEvents,
    average_checkpoint,
    fit_model,
    pretrain_character_encoder,
)
from pearl_qdrant.encoder.checkpoint import read_config
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import predict_types
from pearl_qdrant.encoder.runtime.torch_runtime import PearlNetwork
from pearl_qdrant.errors import CheckpointError, OptionError, TrainingError
from pearl_qdrant.phrase_types import PHRASE_TYPES
from training.batches import BatchMaker, EpochSampler
from training.examples.files import read_training_files
from training.finetune.request import FitConfig
from training.head import train_head
from training.options import HeadOptions, MiningConfig
from training.ulr.request import UlrConfig


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


class Heard(TrainingEvents):
    """Keeps how many examples were read."""

    count = 0

    def examples_read(self, count: int, skipped: Mapping[str, int]) -> None:
        self.count += count


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A base of twelve entities with two aliases each."""
    path = tmp_path / "base.tsv"
    rows = "".join(f"Q{i}\tnew york w{i}\tORG\tcity {i}|york {i}\n" for i in range(12))
    path.write_text(f"id\tname\ttypes\taliases\n{rows}", encoding="utf-8")
    return path


def request(bert: Path, base: Path, out: Path, **changes: Any) -> FitRequest:
    """A run of two steps."""
    settings: dict[str, Any] = {"steps": 2, "batch_size": 16, "device": "cpu", **changes}
    return FitRequest(base_model=bert, aliases=base, out=out, **settings)


def test_a_model_is_fitted_and_resumes(bert: Path, base: Path, tmp_path: Path) -> None:
    """One call goes from a base to a checkpoint; the same call with more steps resumes."""
    out, heard = tmp_path / "fitted", Heard()
    result = fit_model(request(bert, base, out), events=heard)
    resumed = fit_model(request(bert, str(base), str(out), steps=3))

    assert (result.checkpoint, result.steps, result.examples, result.wrote) == (out, 2, 12, True)
    assert heard.count == 12
    assert resumed.steps == 3
    assert [row["step"] for row in read_log(out / "training")] == [1, 2, 3]
    assert read_config(out).name == "fitted"
    with pytest.raises(CheckpointError, match="trained with mean pooling"):
        fit_model(request(out, base, tmp_path / "again", pooling="cls"))


@pytest.mark.parametrize(
    "changes, option, message",
    [
        ({"paper_settings": True, "temperature": 1.0}, "paper_settings", "'paper_settings' fixes 'temperature'"),
        ({"aliases": ()}, "phrases", "nothing to learn from"),
    ],
)
def test_arguments_that_do_not_fit_are_named(
    bert: Path, base: Path, tmp_path: Path, changes: dict[str, Any], option: str, message: str
) -> None:
    """An error of the library names the argument, and not a flag of the command line."""
    settings: dict[str, Any] = {"aliases": base, **changes}
    with pytest.raises(OptionError, match=message) as error:
        fit_model(FitRequest(base_model=bert, out=tmp_path / "out", steps=2, batch_size=16, device="cpu", **settings))

    assert error.value.option == option
    assert "--" not in str(error.value)


def test_a_character_encoder_is_pretrained_and_joins_a_network(bert: Path, base: Path, tmp_path: Path) -> None:
    """It mimics the whole words of the encoder's vocabulary; the folder is an argument of fine-tuning."""
    widths, config = CharacterWidths(char_dim=6, embedding_dim=8, word_dim=12), LoveConfig(epochs=1, batch=4)
    mimicry = pretrain_character_encoder(bert, tmp_path / "love", widths=widths, config=config, progress=False)
    fitted = fit_model(request(bert, base, tmp_path / "fitted", character_encoder=tmp_path / "love"))

    assert mimicry.n == len(WORDS)
    assert read_config(fitted.checkpoint).char_dim == 6


def test_a_plain_encoder_is_averaged_as_one(bert: Path, tmp_path: Path) -> None:
    """What `train ulr` writes: the encoder is averaged, its MLM head stays, and a graph of the old weights goes."""
    tuned, out = tmp_path / "tuned", tmp_path / "out"
    shutil.copytree(bert, tuned)
    before = load_file(bert / "model.safetensors")
    head = {"cls.predictions.bias": torch.arange(3.0)}
    changed = {f"bert.{name.removeprefix('bert.')}": tensor + 1 for name, tensor in before.items()}
    save_file(changed | head, tuned / "model.safetensors", metadata={"format": "pt"})
    (tuned / "model.onnx").write_bytes(b"old")

    average_checkpoint(bert, tuned, out, ratio=0.25)

    found = load_file(out / "model.safetensors")
    assert found.keys() == changed.keys() | head.keys()
    assert torch.equal(found["cls.predictions.bias"], head["cls.predictions.bias"])
    encoder = {name.removeprefix("bert."): tensor for name, tensor in before.items() if "pooler" not in name}
    assert all(torch.allclose(found[f"bert.{name}"], tensor + 0.25) for name, tensor in encoder.items())
    assert not (out / "model.onnx").exists()
    assert load_encoder(str(out), device="cpu").encode(["new york"]).vectors.shape[0] == 1


@pytest.mark.parametrize(
    "record, wrong",
    [
        *((FitConfig, wrong) for wrong in ({"steps": 0}, {"temperature": 0.0}, {"decay": 1.5}, {"max_tokens": 2})),
        *((UlrConfig, wrong) for wrong in ({"steps": 0}, {"mask_share": 1.0}, {"warmup": -0.1}, {"clip": -1})),
        *((UlrConfig, wrong) for wrong in ({"max_tokens": 3}, {"misad_weight": -2}, {"hold": -1})),
        *((EvaluationOptions, wrong) for wrong in ({"splits": (10,)}, {"n_mentions": 0}, {"nil_shares": (1.0,)})),
        *((EvaluationOptions, wrong) for wrong in ({"n_seeds": 0}, {"max_epochs": 0})),
        *((BatchMaker, {name: 1.5}) for name in ("alias_share", "augmented_aliases")),
        (MiningConfig, {"kept": 40}),
        (CharacterWidths, {"embedding_dim": 7}),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(record: type[Any], wrong: dict[str, Any]) -> None:
    """The message names the setting and its value."""
    needed: dict[type[Any], dict[str, Any]] = {FitConfig: {"steps": 1}, UlrConfig: {"steps": 1}}
    needed[BatchMaker] = {"sampler": EpochSampler([], 0), "n_pairs": 4, "seed": 0, "augment": str}
    ((name, value),) = wrong.items()
    shown = value[0] if isinstance(value, tuple) else value
    with pytest.raises(OptionError, match=f"'{name}' (is {shown}|must be even)"):
        record(**{**needed.get(record, {}), **wrong})
