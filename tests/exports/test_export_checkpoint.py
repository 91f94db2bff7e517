"""Checkpoints with a character encoder: written, verified, averaged, exported, and rebuilt out of 8 bits.
A multilingual encoder ships: sentencepiece tokens of every script, characters beside them, words in 4 bits.
"""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from character_models import CHAR_DIM, make_trained, words_of
from cli_runner import Run
from safetensors.numpy import load_file, save_file
from tiny_models import DIM, NAMES, NAMES_OF_THE_WORLD, make_bert, make_multilingual_bert, make_pearl, make_roberta

from pearl_qdrant.encoder.checkpoint import HEAD_FILE, ONNX_FILE, TORCH_FILE, read_config, seal, verify
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.runtime.torch_runtime import load_transformer
from pearl_qdrant.errors import CheckpointError, ModelError, ModelNotFoundError, OptionError
from training.export.export_checkpoint import (
    check_forms,
    export_checkpoint,
    measure_parity,
    rebuild_for_torch,
)
from training.export.graph_builder import read_blocks
from training.networks.checkpoints import average_checkpoint, read_network

WIDE = DIM + CHAR_DIM


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with weights for torch and a character encoder."""
    return make_trained(tmp_path_factory.mktemp("trained") / "tiny")


@pytest.fixture(scope="module")
def exported(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as an 8-bit graph that has the only copy of the weights."""
    folder = tmp_path_factory.mktemp("exported") / "tiny"
    # A distinct name: fastembed has one register of models per process.
    export_checkpoint(trained, folder, name="tiny-with-characters", names=NAMES)
    return folder


def test_a_checkpoint_with_a_character_encoder_reads_back(trained: Path) -> None:
    """What a stage of training leaves is verified, and runs through torch with vectors of both parts."""
    config = verify(trained).config
    encoded = load_encoder(str(trained), precision="fp32").encode(NAMES)

    assert (config.dim, config.phrase_dim, config.char_dim) == (WIDE, DIM, CHAR_DIM)
    assert config.character is not None
    assert encoded.vectors.shape == (len(NAMES), WIDE)
    np.testing.assert_allclose((encoded.vectors[:, DIM:] ** 2).sum(1), config.character.share, atol=1e-5)
    assert "8 dimensions, 30% of the cosine" in (trained / "README.md").read_text()


def test_an_export_holds_its_weights_once(trained: Path, exported: Path) -> None:
    """The exported folder has one graph and the head, agrees with torch, and says how near it is."""
    config = verify(exported).config
    parity = measure_parity(
        load_encoder(str(trained), precision="fp32"), load_encoder(str(exported), runtime="onnx"), NAMES
    )

    assert set(load_file(exported / HEAD_FILE)) == {"type_head.weight"}
    assert TORCH_FILE not in config.files
    assert config.precision == "int8-row"
    assert config.training["parity"]["mean_cosine"] == pytest.approx(parity.mean_cosine, abs=1e-4)
    assert parity.mean_cosine > 0.995
    assert parity.n == len(NAMES)
    assert "mean cosine" in str(parity)
    assert "mean_cosine" in (exported / "README.md").read_text()


@pytest.mark.slow
def test_an_fp32_export_is_exact(trained: Path, tmp_path: Path) -> None:
    """In float32 every vector agrees to 0.9999, and the weights for torch stay beside the graph if asked."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own, of torch and onnxscript
        parity = export_checkpoint(trained, tmp_path / "fp32", precision="fp32", with_torch=True, name="mine")

    assert parity.min_cosine > 0.9999
    assert parity.type_agreement == 1
    config = verify(tmp_path / "fp32").config
    assert (config.name, config.precision) == ("mine", "fp32")
    assert check_forms(tmp_path / "fp32", exact=True, names=NAMES).min_cosine > 0.9999


def test_a_graph_is_rebuilt_for_torch(tmp_path: Path) -> None:
    """Out of the 8-bit graph come weights for torch: the same model, by hash and by vectors."""
    source = tmp_path / "plain"
    export_checkpoint(make_pearl(tmp_path / "pearl").folder, source, names=NAMES)
    parity = rebuild_for_torch(source, tmp_path / "rebuilt", names=NAMES)
    config = verify(tmp_path / "rebuilt").config

    assert parity.mean_cosine > 0.998
    assert config.weights_hash == read_config(source).weights_hash
    assert TORCH_FILE in config.files
    assert (tmp_path / "rebuilt" / "README.md").read_text() == (source / "README.md").read_text()
    original = load_encoder(str(source), runtime="onnx").encode(NAMES)
    rebuilt = load_encoder(str(tmp_path / "rebuilt"), runtime="torch", precision="fp32").encode(NAMES)
    assert (original.vectors * rebuilt.vectors).sum(1).min() > 0.995


def test_what_cannot_be_rebuilt_is_an_error(trained: Path, exported: Path, tmp_path: Path) -> None:
    """Only 8-bit graphs of this package are rebuilt, and never over themselves."""
    with pytest.raises(CheckpointError, match="only int8-row ones are rebuilt"):
        rebuild_for_torch(trained, tmp_path / "x")
    with pytest.raises(CheckpointError, match="character encoder cannot be rebuilt"):
        rebuild_for_torch(exported, tmp_path / "x")
    with pytest.raises(OptionError, match="is an input"):
        rebuild_for_torch(exported, exported)
    with pytest.raises(ModelNotFoundError, match="not shipped"):  # a shipped name is found, as at the command line
        rebuild_for_torch("pearl-mini-fi", tmp_path / "x")


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_an_export_without_torch_weights_is_not_a_source(exported: Path, tmp_path: Path, precision: str) -> None:
    """A graph cannot be exported again: the message says how to get the weights."""
    with pytest.raises(CheckpointError, match=r"has no model\.safetensors.*models export"):
        export_checkpoint(exported, tmp_path / "x", precision=precision)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="is an input"):
        export_checkpoint(exported, exported)


def test_a_graph_that_differs_is_refused(trained: Path, tmp_path: Path) -> None:
    """A graph with other weights than the network is refused."""
    other = make_trained(tmp_path / "other", seed=5)
    export_checkpoint(other, tmp_path / "graph", names=NAMES)
    mixed = Path(shutil.copytree(trained, tmp_path / "mixed"))
    (mixed / "onnx").mkdir()
    shutil.copy(tmp_path / "graph" / ONNX_FILE, mixed / ONNX_FILE)
    seal(mixed)
    with pytest.raises(ModelError, match="not close enough"):
        check_forms(mixed, exact=False, names=NAMES)


def drop(folder: Path, name: str) -> None:
    """Take a tensor away from pearl.safetensors."""
    tensors = load_file(folder / HEAD_FILE)
    save_file({key: tensor for key, tensor in tensors.items() if name not in key}, folder / HEAD_FILE)
    seal(folder)


def test_a_checkpoint_without_its_character_weights_is_refused(trained: Path, tmp_path: Path) -> None:
    """Weights for torch are whole or refused: one tensor, or all of the character encoder's, are missed."""
    for name in ("query.weight", "character_encoder"):
        folder = Path(shutil.copytree(trained, tmp_path / name))
        drop(folder, name)
        with pytest.raises(CheckpointError, match="character_encoder"):
            verify(folder)
        with pytest.raises(CheckpointError, match=r"tensor character_encoder\..* has shape None"):
            load_encoder(str(folder), runtime="torch")


def test_a_character_encoder_that_nobody_described_is_refused(trained: Path, tmp_path: Path) -> None:
    """Weights of a character encoder in a checkpoint without one are foreign."""
    pearl = make_pearl(tmp_path / "pearl").folder
    head = load_file(pearl / HEAD_FILE)
    save_file({**load_file(trained / HEAD_FILE), **head}, pearl / HEAD_FILE)
    seal(pearl)
    with pytest.raises(CheckpointError, match="has no character encoder"):
        verify(pearl)


def test_a_tokenizer_with_another_alphabet_is_refused(trained: Path, tmp_path: Path) -> None:
    """The characters of the tokenizer are those that the encoder was trained with."""
    folder = Path(shutil.copytree(trained, tmp_path / "tiny"))
    path = folder / "tokenizer.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"z":', '"ž":'), encoding="utf-8")
    seal(folder)
    for load in (lambda: verify(folder), lambda: load_encoder(str(folder), runtime="torch")):
        with pytest.raises(CheckpointError, match="characters are not the 39 of"):
            load()


@pytest.mark.parametrize("ratio", [0.0, 0.3, 1.0])
def test_only_the_phrase_encoder_is_averaged(trained: Path, tmp_path: Path, ratio: float) -> None:
    """Averaging moves the phrase encoder by the ratio, and leaves type head and character encoder as they are."""
    base = make_bert(tmp_path / "base", seed=7)
    average_checkpoint(base, trained, tmp_path / "averaged", ratio=ratio)
    network, config = read_network(tmp_path / "averaged")
    tuned, _ = read_network(trained)
    original = load_transformer(base).state_dict()

    for name, tensor in network.phrase_encoder.state_dict().items():
        expected = ratio * tuned.phrase_encoder.state_dict()[name] + (1 - ratio) * original[name]
        torch.testing.assert_close(tensor, expected)
    others = {name: t for name, t in tuned.state_dict().items() if not name.startswith("phrase_encoder.")}
    assert len(others) == 8
    assert all(torch.equal(network.state_dict()[name], tensor) for name, tensor in others.items())
    assert config.training["average_ratio"] == ratio


def test_encoders_of_two_shapes_are_not_averaged(trained: Path, tmp_path: Path) -> None:
    """Another architecture or vocabulary is a clear error."""
    for base in (make_roberta(tmp_path / "roberta"), make_bert(tmp_path / "more", words=3)):
        with pytest.raises(ModelError, match="cannot be averaged"):
            average_checkpoint(base, trained, tmp_path / "x", ratio=0.5)
    with pytest.raises(ValueError, match="ratio"):
        average_checkpoint(trained, trained, tmp_path / "x", ratio=1.5)


def test_the_commands_average_export_and_rebuild(run: Run, tmp_path: Path) -> None:
    """From a trained checkpoint to a graph and back to torch, by commands alone."""
    base, averaged, out, back = (str(tmp_path / name) for name in ("base", "averaged", "out", "back"))
    make_bert(Path(base))
    plain = str(make_pearl(tmp_path / "pearl").folder)
    assert run("train", "average", base, plain, averaged, "--ratio", "0.7").status == 0
    exported = run("train", "export", averaged, out, "--name", "mine", "--json")
    assert exported.status == 0, exported.err
    assert exported.lines()[0]["mean_cosine"] > 0.99
    rebuilt = run("models", "export", out, back, "--torch")
    assert rebuilt.status == 0, rebuilt.err
    assert "mean cosine" in rebuilt.out
    assert read_config(Path(back)).weights_hash == read_config(Path(out)).weights_hash
    assert run("models", "export", out, back).status == 2
    assert "has no model.safetensors" in run("train", "export", out, back).err


ALL_NAMES = [*NAMES, *NAMES_OF_THE_WORLD, "𝕄oscow", "мосkва", "東京 tower", "🥯"]
WORDS = "embeddings.word_embeddings.weight"


@pytest.fixture(scope="module")
def trained_multilingual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with weights for torch and a character encoder, over pieces of many scripts."""
    return make_trained(tmp_path_factory.mktemp("trained") / "tiny", make=make_multilingual_bert)


@pytest.fixture(scope="module")
def exported_multilingual(trained_multilingual: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as a graph."""
    folder = tmp_path_factory.mktemp("exported") / "tiny-multilingual"
    export_checkpoint(trained_multilingual, folder, names=ALL_NAMES)
    return folder


def test_the_graph_agrees_with_the_network_in_every_script(
    trained_multilingual: Path, exported_multilingual: Path
) -> None:
    """Names in ten scripts, mixed ones and unknown characters have the vectors of torch, characters included."""
    reference = load_encoder(str(trained_multilingual), precision="fp32")
    parity = measure_parity(reference, load_encoder(str(exported_multilingual), runtime="onnx"), ALL_NAMES)

    assert parity.n >= len(ALL_NAMES) - 1  # a single emoji may be no known piece
    assert parity.mean_cosine > 0.998
    assert parity.min_cosine > 0.99
    assert reference.info.dim == DIM + CHAR_DIM


def test_a_name_does_not_depend_on_its_batch(exported_multilingual: Path) -> None:
    """Padding and neighbours in other scripts change nothing, though id 0 is no padding."""
    encoder = load_encoder(str(exported_multilingual))
    together = encoder.encode(NAMES_OF_THE_WORLD).vectors
    alone = np.concatenate([encoder.encode([name]).vectors for name in NAMES_OF_THE_WORLD])

    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_words_take_four_bits_without_loss(tmp_path: Path) -> None:
    """The table takes half a byte a weight and a scale for 32, and comes out of the graph as it went in."""
    trained = make_pearl(tmp_path / "trained", onnx_graph=False, make=make_multilingual_bert).folder
    export_checkpoint(trained, tmp_path / "exported", names=ALL_NAMES)
    tensors = onnx.load(tmp_path / "exported" / ONNX_FILE).graph.initializer
    (words,) = (tensor for tensor in tensors if tensor.data_type == onnx.TensorProto.INT4)
    table = load_file(trained / TORCH_FILE)[WORDS]
    rebuild_for_torch(tmp_path / "exported", tmp_path / "rebuilt", names=ALL_NAMES)

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
