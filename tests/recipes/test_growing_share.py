"""A finished model whose share of the characters grows, as `runs/pearl_mini_en.py share` makes it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from character_models import make_trained
from mini_en.growing_share import grow_share
from tiny_models import DIM, NAMES
from tokenizers import Tokenizer

from pearl_qdrant.encoder.checkpoint import ONNX_FILE, read_config
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.verify import verify
from training.export.export_checkpoint import export_checkpoint
from training.networks.checkpoints import read_network


def test_the_share_of_a_finished_model_grows_and_its_weights_stay(tmp_path: Path) -> None:
    """Both parts of a vector keep their direction; the characters get the share of the name, as torch computes it."""
    trained, finished, grown = make_trained(tmp_path / "tiny"), tmp_path / "finished", tmp_path / "grown"
    export_checkpoint(trained, finished, names=NAMES)
    grow_share(finished, grown, share=0.1, continuation_share=0.6)
    before, after = (load_encoder(str(folder)).encode(NAMES).vectors for folder in (finished, grown))
    character = verify(grown).config.character
    assert character is not None
    assert (character.share, character.continuation_share) == (0.1, 0.6)
    assert read_config(grown).weights_hash != read_config(finished).weights_hash

    encoder = read_network(trained)[0].character_encoder
    assert encoder is not None
    encoder.config = character
    tokenizer = Tokenizer.from_file(str(trained / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(read_config(trained).max_length)
    for name, one, other in zip(NAMES, before, after, strict=True):
        ids = torch.tensor([tokenizer.encode(name.strip()).ids])
        if not one[DIM:].any():
            continue
        share = float(encoder.shares(ids, torch.ones_like(ids)))
        assert 0.1 <= share <= 0.6
        np.testing.assert_allclose(np.square(other[DIM:]).sum(), share, atol=1e-4)
        np.testing.assert_allclose(other[:DIM] / (1 - share) ** 0.5, one[:DIM] / 0.7**0.5, atol=1e-4)
        np.testing.assert_allclose(other[DIM:] / share**0.5, one[DIM:] / 0.3**0.5, atol=1e-4)

    graph = onnx.load(str(grown / ONNX_FILE)).graph
    used = {name for node in graph.node for name in node.input}
    assert [tensor.name for tensor in graph.initializer if tensor.name not in used] == []
    with pytest.raises(ValueError, match="whose share grows already"):
        grow_share(grown, tmp_path / "again", share=0.1, continuation_share=0.6)
