"""A network of twice the layers, as `runs/pearl_mini_en.py train --stacked` makes it."""

from __future__ import annotations

import pytest


def test_each_layer_is_followed_by_a_copy_of_its_own() -> None:
    """The copies are equal, are weights of their own, and all of them are used and trained."""
    torch = pytest.importorskip("torch")
    from pearl_mini_en import stack_layers
    from transformers import BertConfig, BertModel

    size = {"vocab_size": 50, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}
    network = BertModel(BertConfig(num_hidden_layers=3, **size), add_pooling_layer=False).eval()
    tokens = torch.arange(5)[None]
    before = list(network.encoder.layer)
    with torch.no_grad():
        hidden = network.embeddings(tokens)
        for layer in before:
            for _ in range(2):
                out = layer(hidden)
                hidden = out[0] if isinstance(out, tuple) else out

    stack_layers(network)

    found = network(tokens).last_hidden_state
    assert network.config.num_hidden_layers == len(network.encoder.layer) == 6
    assert torch.allclose(found, hidden, atol=1e-6)
    found.sum().backward()
    weights = [layer.output.dense.weight for layer in network.encoder.layer]
    assert len({weight.data_ptr() for weight in weights}) == 6
    assert all(weight.grad is not None for weight in weights)
