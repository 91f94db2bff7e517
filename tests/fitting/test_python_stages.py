"""Every stage of training as a call in Python, without the command line."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from fit_cases import read_log
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
from pearl_qdrant.errors import CheckpointError, OptionError
from training.batches import BatchMaker, EpochSampler
from training.finetune.request import FitConfig
from training.options import MiningConfig
from training.ulr.request import UlrConfig


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
