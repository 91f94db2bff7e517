"""Phrase vectors with gradients: gradient caching, micro-batches, truncation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from fit_cases import config, maker, new_network
from tiny_models import DIM
from tokenizers import Regex, Tokenizer
from tokenizers.pre_tokenizers import Split

from pearl_qdrant.errors import CheckpointError
from training.finetune.objective import batch_losses
from training.networks.phrase_vectors import PhraseVectors, micro_batches, pool_phrases


@pytest.mark.parametrize("dropout", [False, True])
def test_cached_gradients_equal_uncached_ones(bert: Path, tokenizer: Any, dropout: bool) -> None:
    """Gradient caching changes the memory, not the gradients, with dropout too."""
    batch = maker(plain=["heart attack", "a city of york"], n_plain=3).make(1)
    gradients = []
    for cached in (False, True):
        network = new_network(bert)
        network.train(dropout)
        torch.manual_seed(7)
        phrases = [*batch.anchors, *batch.positives, *batch.negatives, *batch.plain_views]
        small = micro_batches(tokenizer, phrases, max_tokens=16, size=5)
        views = PhraseVectors(network, small, cached=cached)
        head, settings = network.type_head, config()
        losses = batch_losses(views.vectors, batch, head, settings, wanted=torch.eye(DIM)[: len(batch.plain)])
        views.backward(losses.total)
        gradients.append({n: p.grad.clone() for n, p in network.named_parameters() if p.grad is not None})

    assert gradients[0].keys() == gradients[1].keys()
    assert {"type_head.weight", "phrase_encoder.embeddings.word_embeddings.weight"} < gradients[0].keys()
    for name, gradient in gradients[0].items():
        assert gradient.abs().max() > 0 or "key.bias" in name
        torch.testing.assert_close(gradients[1][name], gradient, rtol=1e-4, atol=1e-6)


def test_vectors_do_not_depend_on_the_micro_batches(bert: Path, tokenizer: Any) -> None:
    """Vectors are in the order of the phrases, and do not depend on the other phrases of a batch."""
    network = new_network(bert)
    names = ["new york", "a", "heart attack city of united states", "aspirin 3.5", "x" * 40]

    alone = torch.cat([pool_phrases(network, tokenizer, [name], 16, 1) for name in names])
    torch.testing.assert_close(pool_phrases(network, tokenizer, names, 16, 2), alone, rtol=1e-4, atol=1e-5)


def test_a_long_phrase_keeps_its_end_token(tokenizer: Any) -> None:
    """A phrase is truncated as when the model is used: the last token is [SEP]."""
    (batch,) = micro_batches(tokenizer, ["x" * 30], max_tokens=8, size=4)

    assert batch.input_ids.shape == (1, 8)
    assert batch.input_ids[0, -1] == tokenizer.token_to_id("[SEP]")


def test_a_phrase_that_the_tokenizer_panics_at_is_an_error_in_words(tokenizer: Any) -> None:
    """A regular expression with too many steps ends a training run with a message."""
    slow = Tokenizer.from_str(tokenizer.to_str())
    slow.pre_tokenizer = Split(Regex("(a+)+$"), "isolated")

    message = r"cannot tokenise one of 2 phrases, the first \['aspirin'\].*retry-limit"
    with pytest.raises(CheckpointError, match=message):
        micro_batches(slow, ["aspirin", "a" * 100 + "!"], max_tokens=8, size=4)
