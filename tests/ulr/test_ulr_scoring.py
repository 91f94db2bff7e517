"""Scores of n-grams by the network in training."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from ulr_cases import SENTENCES, make_masked_lm, open_base

from training.ngrams.files import MarkedSequence, NgramSpan, choose_spans
from training.ulr.drawing import NetworkScorer, TokenisedSequence, tokenise
from training.ulr.train_ulr import UlrBase


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT with its MLM head."""
    return make_masked_lm(tmp_path_factory.mktemp("models") / "bert", "bert")


@pytest.fixture
def base(folder: Path) -> UlrBase:
    """The same, opened to be trained."""
    return open_base(folder)


def read(base: UlrBase, max_tokens: int = 40) -> dict[str, TokenisedSequence]:
    """The tokens of the sentences, by text."""
    return {one.text: one for one in tokenise(base.tokenizer, SENTENCES, prefix="", max_tokens=max_tokens)}


def naive_score(folder: Path, base: UlrBase, text: str, span: tuple[int, int]) -> float:
    """One sequence at a time by transformers' own model: the mean probability of the tokens that were masked."""
    from transformers import BertForMaskedLM

    encoding = base.tokenizer.encode(text)
    inside = [i for i, (a, b) in enumerate(encoding.offsets) if a < b and a < span[1] and b > span[0]]
    ids = torch.tensor([[4 if i in inside else token for i, token in enumerate(encoding.ids)]])
    with torch.no_grad():
        chances = BertForMaskedLM.from_pretrained(folder).eval()(input_ids=ids).logits[0].softmax(-1)
    return sum(float(chances[i, encoding.ids[i]]) for i in inside) / len(inside)


def test_scores_are_those_of_one_sequence_at_a_time(folder: Path, base: UlrBase) -> None:
    """Batches, padding and order make no difference to the score of section 3.3; the lowest one is chosen."""
    scorer = NetworkScorer(base.network, read(base), mask_id=4, batch=2)
    texts, spans = [SENTENCES[0], SENTENCES[4], SENTENCES[0], SENTENCES[2]], [(4, 12), (0, 10), (0, 3), (4, 9)]
    naive = [naive_score(folder, base, *one) for one in zip(texts, spans, strict=True)]

    assert scorer(texts, spans) == pytest.approx(naive, rel=1e-4)
    assert scorer([], []) == []
    found = (NgramSpan(4, 12, 2, 3.0), NgramSpan(0, 3, 1, 3.0))
    marked = MarkedSequence(SENTENCES[0], found, 11)
    lowest = found[0] if naive[0] < naive[2] else found[1]
    assert choose_spans([marked], "lowest_score", rng=random.Random(0), score=scorer) == [lowest]


def test_a_span_that_cannot_be_chosen_has_no_score(base: UlrBase) -> None:
    """A span that was truncated, has no token or has all of them; the others of the sequence have a score."""
    scorer = NetworkScorer(base.network, read(base, max_tokens=6), mask_id=4, batch=2)
    text = next(iter(read(base, max_tokens=6)))
    scores = scorer([text] * 4, [(0, 3), (len(text), len(text) + 5), (3, 4), (0, len(text))])

    assert 0 < scores[0] < 1
    assert all(score != score for score in scores[1:])


def test_a_network_in_training_goes_on_training(base: UlrBase) -> None:
    """Dropout is off while it scores, and on again afterwards; no gradient is kept."""
    network = base.network.train()
    modes: list[bool] = []
    network.encoder.register_forward_hook(lambda module, *_: modes.append(module.training or torch.is_grad_enabled()))

    NetworkScorer(network, read(base), mask_id=4, batch=2)([SENTENCES[0]], [(4, 12)])

    assert modes == [False]
    assert network.training
