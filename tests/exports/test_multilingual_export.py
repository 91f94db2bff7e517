"""A multilingual encoder ships: sentencepiece tokens of every script, characters beside them, words in 4 bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from character_models import CHAR_DIM, make_trained, words_of
from safetensors.numpy import load_file
from tiny_models import DIM, NAMES, NAMES_OF_THE_WORLD, make_multilingual_bert

from pearl_qdrant.encoder.checkpoint import ONNX_FILE, TORCH_FILE
from pearl_qdrant.encoder.loading import load_encoder
from training.export.export_checkpoint import export_checkpoint, measure_parity, rebuild_for_torch
from training.export.graph_builder import read_blocks

ALL_NAMES = [*NAMES, *NAMES_OF_THE_WORLD, "𝕄oscow", "мосkва", "東京 tower", "🥯"]
WORDS = "embeddings.word_embeddings.weight"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with weights for torch and a character encoder, over pieces of many scripts."""
    return make_trained(tmp_path_factory.mktemp("trained") / "tiny", make=make_multilingual_bert)


@pytest.fixture(scope="module")
def exported(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as a graph."""
    folder = tmp_path_factory.mktemp("exported") / "tiny-multilingual"
    export_checkpoint(trained, folder, names=ALL_NAMES)
    return folder


def test_the_graph_agrees_with_the_network_in_every_script(trained: Path, exported: Path) -> None:
    """Names in ten scripts, mixed ones and unknown characters have the vectors of torch, characters included."""
    reference = load_encoder(str(trained), precision="fp32")
    parity = measure_parity(reference, load_encoder(str(exported), runtime="onnx"), ALL_NAMES)

    assert parity.n >= len(ALL_NAMES) - 1  # a single emoji may be no known piece
    assert parity.mean_cosine > 0.998
    assert parity.min_cosine > 0.99
    assert reference.info.dim == DIM + CHAR_DIM


def test_a_name_does_not_depend_on_its_batch(exported: Path) -> None:
    """Padding and neighbours in other scripts change nothing, though id 0 is no padding."""
    encoder = load_encoder(str(exported))
    together = encoder.encode(NAMES_OF_THE_WORLD).vectors
    alone = np.concatenate([encoder.encode([name]).vectors for name in NAMES_OF_THE_WORLD])

    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_words_take_four_bits_without_loss(trained: Path, exported: Path, tmp_path: Path) -> None:
    """The table takes half a byte a weight and a scale for 32, and comes out of the graph as it went in."""
    tensors = onnx.load(exported / ONNX_FILE).graph.initializer
    (words,) = (tensor for tensor in tensors if tensor.data_type == onnx.TensorProto.INT4)
    table = load_file(trained / TORCH_FILE)[WORDS]
    rebuild_for_torch(exported, tmp_path / "rebuilt", names=ALL_NAMES)

    assert len(words.raw_data) == table.size // 2
    assert max(len(t.raw_data) for t in tensors if t.data_type == onnx.TensorProto.FLOAT16) == table.size // 32 * 2
    assert not any(tuple(t.dims) == table.shape for t in tensors if t is not words)
    np.testing.assert_array_equal(load_file(tmp_path / "rebuilt" / TORCH_FILE)[WORDS], table)


def test_words_that_were_trained_are_no_blocks() -> None:
    """A table that 4 bits would change stays in 8 bits; zeros and single rows are blocks like others."""
    rng = np.random.default_rng(0)
    table = (rng.integers(-8, 8, (50, 64)) * np.float32(0.125)).astype(np.float32)
    table[:, ::32] = -1.0
    table[7] = 0
    found = read_blocks(table)
    assert found is not None
    values, scales = found

    np.testing.assert_array_equal(values * np.repeat(scales.astype(np.float32), 32, axis=1), table)
    changed = table.copy()
    changed[3, 5] += 0.01
    assert read_blocks(changed) is None
    assert read_blocks(table[:, :48]) is None


def test_characters_of_every_script_are_read(tmp_path: Path) -> None:
    """The character encoder reads the words of a name in any script out of its pieces, lower-cased."""
    folder = make_multilingual_bert(tmp_path / "tiny")

    for name in NAMES_OF_THE_WORLD:
        words = [word.partition(">")[0] for word in words_of(folder, [name])[0]]
        assert words == [f"<{word.lower()}" for word in name.split()]
