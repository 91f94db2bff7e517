"""Pre-training of the character encoder, on a vocabulary of a few dozen words."""

from __future__ import annotations

import gzip
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from character_models import make_character_encoder
from cli_runner import Run
from fit_cases import open_tokenizer, read_log
from safetensors import safe_open
from tiny_models import make_bert

from pearl_qdrant.errors import CheckpointError, InputError, OptionError, TrainingError
from training.love import (
    Targets,
    file_targets,
    pretrain,
    pretrain_character_encoder,
)
from training.networks.checkpoints import read_character_encoder
from training.options import CharacterWidths, LoveConfig
from training.training_loop import LossRecord

WORDS = tuple(
    "aspirin attack banana carbon castle cattle dragon engine forest garden hammer heart island jacket kettle ladder "
    "marble needle orange pepper quartz rabbit saddle tunnel velvet window yellow zipper anchor basket".split()
)
CONFIG = LoveConfig(epochs=50, batch=15, learning_rate=2e-2, seed=1)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT, which spells most words letter by letter."""
    return make_bert(tmp_path_factory.mktemp("base") / "bert")


@pytest.fixture(scope="module")
def targets() -> Targets:
    """A random vector for each word."""
    return Targets(WORDS, np.random.default_rng(0).normal(size=(len(WORDS), 10)).astype(np.float32))


def losses(folder: Path) -> list[float]:
    """The losses of a run's log."""
    return [row["loss"] for row in read_log(folder)]


def test_words_are_learnt_with_their_typos(base: Path, targets: Targets, tmp_path: Path) -> None:
    """The loss falls, most words find their own vector, and many do with a typo."""
    encoder = make_character_encoder(base)
    scores = pretrain(encoder, open_tokenizer(base), targets, CONFIG, tmp_path, progress=False)

    found = losses(tmp_path)
    assert len(found) == 2 * CONFIG.epochs, "two steps an epoch"
    assert sum(found[-2:]) < sum(found[:2]) * 0.7
    assert scores.n == len(WORDS)
    assert scores.accuracy > 0.8
    assert scores.typo_accuracy > 0.5


class Killed(Exception):
    """Stands for the death of the process."""


def test_a_killed_run_resumes_to_the_same_weights(base: Path, targets: Targets, tmp_path: Path) -> None:
    """Killed after an epoch, the same command ends with the weights of a run that was not."""
    config = LoveConfig(epochs=4, batch=15, seed=2)
    whole, again = make_character_encoder(base), make_character_encoder(base)
    pretrain(whole, open_tokenizer(base), targets, config, tmp_path / "whole", progress=False)

    def die(record: LossRecord) -> None:
        if record.step == 5:
            raise Killed

    cut = make_character_encoder(base)
    with pytest.raises(Killed):
        pretrain(cut, open_tokenizer(base), targets, config, tmp_path / "cut", progress=False, on_step=die)
    with safe_open(tmp_path / "cut" / "state.safetensors", "pt") as file:
        assert file.metadata()["step"] == "4"
    pretrain(again, open_tokenizer(base), targets, config, tmp_path / "cut", progress=False)

    assert all(torch.equal(whole.state_dict()[name], tensor) for name, tensor in again.state_dict().items())
    assert losses(tmp_path / "cut") == losses(tmp_path / "whole")


def test_too_few_words_are_refused(base: Path, targets: Targets, tmp_path: Path) -> None:
    """There must be at least as many words as in a batch."""
    with pytest.raises(TrainingError, match="30 words are fewer than a batch of 31"):
        pretrain(make_character_encoder(base), open_tokenizer(base), targets, LoveConfig(batch=31), tmp_path)


def test_targets_come_from_a_file_of_vectors(tmp_path: Path) -> None:
    """A FastText file is read with or without its header, compressed or not; words without a letter are skipped."""
    rows = "the 1 0 0\n, 0 1 0\nhaus 0 0 2\n"
    (tmp_path / "a.vec").write_text(f"3 3\n{rows}")
    with gzip.open(tmp_path / "b.vec.gz", "wt") as file:
        file.write(rows)
    for name in ("a.vec", "b.vec.gz"):
        found = file_targets(tmp_path / name)
        assert found.words == ("the", "haus")
        assert found.vectors.tolist() == [[1, 0, 0], [0, 0, 1]]
    (tmp_path / "c.vec").write_text("1 2\n, 1 1\n")
    with pytest.raises(InputError, match="no word with a letter"):
        file_targets(tmp_path / "c.vec")


def test_train_love_writes_an_encoder(run: Run, base: Path, tmp_path: Path) -> None:
    """The command pre-trains from a file of vectors, and prints how well words are recognised."""
    rng = random.Random(0)
    words = [word + end for word in WORDS for end in ("", "s", "ed", "er", "ly")]
    lines = [f"{word} {' '.join(f'{rng.gauss(0, 1):.3f}' for _ in range(6))}\n" for word in words]
    (tmp_path / "words.vec").write_text("".join(lines))
    command = ["train", "love", str(base), str(tmp_path / "love"), "--vectors"]
    outcome = run(*command, str(tmp_path / "words.vec"))

    assert outcome.status == 0, outcome.err
    assert f"{len(words)} " in outcome.out
    encoder = read_character_encoder(tmp_path / "love", tokenizer_folder=base)
    assert encoder.char_dim == 64
    (tmp_path / "love" / "character.json").unlink()
    with pytest.raises(CheckpointError, match=r"character\.json is missing"):
        read_character_encoder(tmp_path / "love", tokenizer_folder=base)
    (tmp_path / "other.vec").write_text("".join(lines[:140]))
    refused = run(*command, str(tmp_path / "other.vec"))
    assert refused.status == 1
    assert "is of a run with other settings (targets" in refused.err
    widths = CharacterWidths(share=0.25)
    pretrain_character_encoder(base, tmp_path / "quarter", vectors=tmp_path / "words.vec", widths=widths)
    assert read_character_encoder(tmp_path / "quarter", tokenizer_folder=base).config.share == 0.25
    with pytest.raises(OptionError, match="share"):
        CharacterWidths(share=7)


def test_a_run_resumes_for_more_epochs_and_starts_over_if_asked(base: Path, targets: Targets, tmp_path: Path) -> None:
    """The number of epochs may change; with another seed only a restart goes on in the folder."""

    def steps(epochs: int, **how: Any) -> int:
        config = LoveConfig(epochs=epochs, batch=15, seed=how.pop("seed", 0))
        pretrain(make_character_encoder(base), open_tokenizer(base), targets, config, tmp_path, progress=False, **how)
        return len(losses(tmp_path))

    assert [steps(1), steps(2), steps(1, seed=5, resume=False)] == [2, 4, 2]
