"""The recipe of the shipped encoder: a network learns the joint vectors of its teachers."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from evaluation_data import Letters, made_up_names
from fit_cases import new_network, open_tokenizer
from multilingual.teaching import Batch, Names, draw, teach
from tiny_models import make_bert
from torch import Tensor

from pearl_qdrant.encoder.runtime.torch_runtime import PearlNetwork

MADE = made_up_names(60)
NAMES = Names({"bio": [((name, f"{name} x"), (MADE[i - 1],)) for i, name in enumerate(MADE)]}, MADE, MADE[::-1])


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny network."""
    return make_bert(tmp_path_factory.mktemp("bert"))


def taught(bert: Path, out: Path, steps: int) -> PearlNetwork:
    """The tiny network after so many steps."""
    network = new_network(bert)
    teach(network, open_tokenizer(bert), [Letters()], NAMES, out, steps=steps)
    return network


def weights(network: PearlNetwork) -> dict[str, Tensor]:
    """Those of the phrase encoder."""
    return dict(network.phrase_encoder.named_parameters())


def test_word_embeddings_stay_and_a_stopped_run_goes_on(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All layers learn over word embeddings that stay; after its checkpoint a run has only the rest to do."""
    monkeypatch.setattr("multilingual.teaching.PAIRS", 8)
    monkeypatch.setattr("multilingual.teaching.KEEP_EVERY", 2)
    start, after = weights(new_network(bert)), weights(taught(bert, tmp_path, 2))
    changed = {name for name, tensor in after.items() if not torch.equal(tensor, start[name])}
    assert changed
    assert not any("word_embeddings" in name for name in changed)
    again = weights(taught(bert, tmp_path, 2))
    assert all(torch.equal(tensor, after[name]) for name, tensor in again.items())


def test_names_of_one_entity_are_no_negatives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is what the teachers find closer than the other name of the pair."""
    monkeypatch.setattr("multilingual.teaching.PAIRS", 4)
    batch = draw(NAMES, random.Random(1))
    assert len(batch.first) == len(batch.second) == 4
    two = Batch(["a", "b"], ["a x", "b x"], ["c"], [], [frozenset(["a", "a x", "c"]), frozenset(["b", "b x"])])
    same = two.same(torch.eye(5))
    assert same[0].tolist() == [True, False, True, False, True]
    assert same[1].tolist() == [False, True, False, True, False]
    near = torch.nn.functional.normalize(torch.eye(5) + torch.tensor([[0, 0, 0, 0, 2.0]] * 2 + [[0] * 5] * 3))
    assert two.same(near)[1, 0]
