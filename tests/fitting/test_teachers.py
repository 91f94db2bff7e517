"""Teachers that read token ids: the same run as with strings, and when a pipeline uses them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from fit_cases import config, losses_of, maker, new_network
from torch import nn

from training.batches import BatchDataset
from training.finetune.objective import NetworkTeacher, fit, read_alike
from training.finetune.request import default_micro_batch
from training.networks.checkpoints import open_base_model
from training.networks.phrase_vectors import pool_phrases

PLAIN = ["heart attack", "a city of york", "new york post"]


def test_a_teacher_that_reads_token_ids_gives_the_same_run(bert: Path, tokenizer: Any, tmp_path: Path) -> None:
    """Masking and distillation are those of a teacher that gets the strings, with misspelt phrases too."""
    network = new_network(bert)
    teacher = NetworkTeacher(network, tokenizer, device="cpu")

    def by_strings(names: Any) -> torch.Tensor:
        with torch.no_grad():
            return nn.functional.normalize(pool_phrases(network, tokenizer, list(names), 24, 8), dim=-1)

    for name, found in (("ids", teacher), ("strings", by_strings)):
        made = maker(plain=PLAIN, n_plain=6, misspelt_plain=0.5)
        fit(new_network(bert), tokenizer, made, config(), tmp_path / name, teacher=found, distil_from=found)

    for first, second in zip(losses_of(tmp_path / "ids"), losses_of(tmp_path / "strings"), strict=True):
        assert first == pytest.approx(second, abs=1e-5)


def test_a_batch_for_a_teacher_has_the_plain_phrases_as_written(tokenizer: Any) -> None:
    """The network sees some of them misspelt, its teacher none."""
    made = maker(plain=PLAIN, n_plain=20, misspelt_plain=0.5)
    loaded = BatchDataset(made, tokenizer, 24, 100, for_teacher=True)[1]
    assert loaded.batch.plain != loaded.batch.plain_views
    assert loaded.as_written is not None

    def tokens(batches: Any) -> dict[int, list[int]]:
        (batch,) = batches
        return {
            int(row): [int(i) for i, real in zip(ids, mask, strict=True) if real]
            for row, ids, mask in zip(batch.rows, batch.input_ids, batch.attention_mask, strict=True)
        }

    seen, written = tokens(loaded.micro_batches), tokens(loaded.as_written)
    phrases = [*loaded.batch.anchors, *loaded.batch.positives, *loaded.batch.negatives, *loaded.batch.plain]
    assert written == {row: tokenizer.encode(phrase).ids for row, phrase in enumerate(phrases)}
    assert seen != written


def test_a_gpu_takes_the_whole_batch_at_once() -> None:
    """Passes are small on a CPU, large on a GPU, and fit into memory where gradients are cached."""
    assert default_micro_batch("cpu") == 64
    assert default_micro_batch("cuda:1") > default_micro_batch("cuda", cached=True) > 64


def test_models_read_alike_with_one_tokenizer_and_prefix(bert: Path, tmp_path: Path) -> None:
    """Another prefix, or another tokenizer, makes other token ids."""
    base = open_base_model(str(bert), name="base")
    other = tmp_path / "other"
    shutil.copytree(bert, other)
    text = (other / "tokenizer.json").read_text("utf-8")
    (other / "tokenizer.json").write_text(text + "\n", encoding="utf-8")

    assert read_alike(base, open_base_model(str(bert), name="again"))
    assert not read_alike(base, open_base_model(str(bert), name="prefixed", prefix="query: "))
    assert not read_alike(base, open_base_model(str(other), name="other"))
