"""Checkpoints with a character encoder: written, verified, averaged, exported, and rebuilt out of 8 bits.
A multilingual encoder ships: sentencepiece tokens of every script, characters beside them, words in 4 bits.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import pytest
import torch
from character_models import CHAR_DIM, make_trained
from cli_runner import Run
from onnx import numpy_helper
from safetensors.numpy import load_file, save_file
from tiny_models import (
    DIM,
    N_LAYERS,
    NAMES,
    NAMES_OF_THE_WORLD,
    make_albert,
    make_bert,
    make_multilingual_bert,
    make_pearl,
    make_roberta,
)

from pearl_qdrant.encoder.checkpoint import HEAD_FILE, ONNX_FILE, TORCH_FILE, read_config, seal
from pearl_qdrant.encoder.loading import MODELS_DIR, load_encoder
from pearl_qdrant.encoder.runtime.torch_runtime import PearlNetwork, load_transformer, new_type_head
from pearl_qdrant.encoder.write_checkpoint import verify
from pearl_qdrant.errors import CheckpointError, ModelError, ModelNotFoundError, OptionError
from training.export.export_checkpoint import (
    check_forms,
    export_checkpoint,
    measure_parity,
    rebuild_for_torch,
)
from training.export.graph_builder import channel_scales
from training.export.int8_graph import is_supported, write_int8_graph
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


def test_what_cannot_be_rebuilt_or_exported_is_an_error(trained: Path, exported: Path, tmp_path: Path) -> None:
    """Only 8-bit graphs of this package are rebuilt, never over themselves, and only networks for torch exported."""
    with pytest.raises(CheckpointError, match="only int8-row ones are rebuilt"):
        rebuild_for_torch(trained, tmp_path / "x")
    with pytest.raises(CheckpointError, match="character encoder cannot be rebuilt"):
        rebuild_for_torch(exported, tmp_path / "x")
    with pytest.raises(CheckpointError, match=r"has no model\.safetensors.*models export"):
        export_checkpoint(exported, tmp_path / "x")
    with pytest.raises(OptionError, match="is an input"):
        rebuild_for_torch(exported, exported)
    damaged = make_pearl(tmp_path / "pearl").folder
    (damaged / HEAD_FILE).write_bytes(b"\x08" + bytes(7) + b"nothing!")
    seal(damaged)
    with pytest.raises(CheckpointError, match=f"{HEAD_FILE}: not a safetensors file"):
        rebuild_for_torch(damaged, tmp_path / "x")
    with pytest.raises(ModelNotFoundError, match="not shipped"):  # a shipped name is found, as at the command line
        rebuild_for_torch("pearl-mini-fi", tmp_path / "x")


def test_a_graph_that_differs_is_refused(trained: Path, tmp_path: Path) -> None:
    """A graph with other weights than the network is refused."""
    other = make_trained(tmp_path / "other", seed=5)
    export_checkpoint(other, tmp_path / "graph", names=NAMES)
    mixed = Path(shutil.copytree(trained, tmp_path / "mixed"))
    (mixed / "onnx").mkdir()
    shutil.copy(tmp_path / "graph" / ONNX_FILE, mixed / ONNX_FILE)
    seal(mixed)
    with pytest.raises(ModelError, match="not close enough"):
        check_forms(mixed, names=NAMES)


def test_a_checkpoint_whose_parts_do_not_match_is_refused(trained: Path, tmp_path: Path) -> None:
    """Weights for torch are whole or refused: one tensor, or all of the character encoder's, are missed. Weights of a
    character encoder that nobody described are foreign, and so is a tokenizer of another alphabet.
    """
    head = load_file(trained / HEAD_FILE)
    for name in ("query.weight", "character_encoder"):
        folder = Path(shutil.copytree(trained, tmp_path / name))
        save_file({key: tensor for key, tensor in head.items() if name not in key}, folder / HEAD_FILE)
        seal(folder)
        with pytest.raises(CheckpointError, match="character_encoder"):
            verify(folder)
        with pytest.raises(CheckpointError, match=r"tensor character_encoder\..* has shape None"):
            load_encoder(str(folder), runtime="torch")

    pearl = make_pearl(tmp_path / "pearl").folder
    save_file(head | load_file(pearl / HEAD_FILE), pearl / HEAD_FILE)
    seal(pearl)
    with pytest.raises(CheckpointError, match="has no character encoder"):
        verify(pearl)

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
    with pytest.raises(OptionError, match="belongs to the package"):
        average_checkpoint(trained, trained, MODELS_DIR / "mine")
    with pytest.raises(ValueError, match="ratio"):
        average_checkpoint(trained, trained, tmp_path / "x", ratio=1.5)


def test_the_commands_average_export_and_rebuild(run: Run, tmp_path: Path) -> None:
    """From a trained checkpoint to a graph and back to torch, by commands alone; the notices of others stay with it."""
    base, averaged, out, back = (str(tmp_path / name) for name in ("base", "averaged", "out", "back"))
    make_bert(Path(base))
    plain = str(make_pearl(tmp_path / "pearl").folder)
    notices = {"NOTICE": "made by others", "LICENSE-Other.txt": "keep this"}
    for name, text in notices.items():
        (Path(plain) / name).write_text(text, encoding="utf-8")
    assert run("train", "average", base, plain, averaged, "--ratio", "0.7").status == 0
    exported = run("train", "export", averaged, out, "--name", "mine")
    assert exported.status == 0, exported.err
    assert "mean cosine 0.99" in exported.out
    rebuilt = run("models", "export", out, back)
    assert rebuilt.status == 0, rebuilt.err
    assert "mean cosine" in rebuilt.out
    assert read_config(Path(back)).weights_hash == read_config(Path(out)).weights_hash
    assert "has no model.safetensors" in run("train", "export", out, back).err
    for copy in (averaged, out):
        assert {name: (Path(copy) / name).read_text(encoding="utf-8") for name in notices} == notices


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
    """Names in ten scripts, mixed ones and unknown characters have the vectors of torch, characters included; padding
    and neighbours change nothing, though id 0 is no padding.
    """
    reference, encoder = (
        load_encoder(str(trained_multilingual), precision="fp32"),
        load_encoder(str(exported_multilingual)),
    )
    parity = measure_parity(reference, encoder, ALL_NAMES)
    together = encoder.encode(NAMES_OF_THE_WORLD).vectors
    alone = np.concatenate([encoder.encode([name]).vectors for name in NAMES_OF_THE_WORLD])

    assert parity.n >= len(ALL_NAMES) - 1  # a single emoji may be no known piece
    assert parity.mean_cosine > 0.998
    assert parity.min_cosine > 0.99
    assert reference.info.dim == DIM + CHAR_DIM
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


Array = npt.NDArray[np.float32]

IDS = torch.tensor([[2, 7, 9, 40, 3, 0], [2, 12, 3, 0, 0, 0], [2, 8, 9, 10, 11, 3]])
MASK = (IDS != 0).long()


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> PearlNetwork:
    """A tiny network with a random head, which no test changes."""
    return seeded(make_bert(tmp_path_factory.mktemp("bert") / "tiny"))


def seeded(folder: Path) -> PearlNetwork:
    """The network of a folder with a random head."""
    torch.manual_seed(0)
    return PearlNetwork(load_transformer(folder), new_type_head(DIM)).eval()


@pytest.fixture(scope="module")
def graph(network: PearlNetwork, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its 8-bit graph."""
    path = tmp_path_factory.mktemp("graph") / "model.onnx"
    write_int8_graph(network, path)
    return path


def run(path: Path, ids: torch.Tensor = IDS, mask: torch.Tensor = MASK) -> tuple[Array, Array]:
    """Embedding and logits from a graph."""
    session = ort.InferenceSession(str(path))
    assert [value.name for value in session.get_inputs()] == ["input_ids", "attention_mask"]
    embedding, logits = session.run(
        ["embedding", "type_logits"], {"input_ids": ids.numpy(), "attention_mask": mask.numpy()}
    )
    return embedding, logits


def check_int8_graph(path: Path, network: PearlNetwork, least: float = 0.995) -> None:
    """An 8-bit graph agrees with its network."""
    embedding, logits = run(path)
    with torch.inference_mode():
        expected, expected_logits = network(IDS, MASK)

    assert (embedding * expected.numpy()).sum(1).min() > least
    assert logits == pytest.approx(expected_logits.numpy(), abs=0.15)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_an_int8_graph_agrees_with_torch(network: PearlNetwork, tmp_path: Path, pooling: str) -> None:
    """A graph with 8-bit rows gives the vectors and types of the network, up to quantisation."""
    pooled = PearlNetwork(network.phrase_encoder, network.type_head, pooling=pooling).eval()
    write_int8_graph(pooled, tmp_path / "model.onnx")

    check_int8_graph(tmp_path / "model.onnx", pooled)


def test_odd_shapes_make_no_nan(network: PearlNetwork, graph: Path) -> None:
    """One token, all the positions that the model has, and a row of padding alone are all finite."""
    n = network.phrase_encoder.config.max_position_embeddings  # type: ignore[union-attr]
    odd = (torch.full((1, 1), 7), torch.full((2, n), 9))
    for ids, mask in (*((ids, torch.ones_like(ids)) for ids in odd), (IDS, torch.zeros_like(MASK))):
        embedding, logits = run(graph, ids, mask)
        assert np.isfinite(embedding).all()
        assert np.isfinite(logits).all()


def test_only_a_bert_with_the_exact_gelu_gets_this_graph(tmp_path: Path) -> None:
    """Others stay as they are: layers that share weights, or another GELU, would be silently off."""
    for make in (make_albert, make_roberta):
        other = make_pearl(tmp_path / make.__name__, onnx_graph=False, make=make).folder
        with pytest.raises(OptionError, match="cannot be exported, only a BERT"):
            export_checkpoint(other, tmp_path / "x")
    bert = seeded(make_bert(tmp_path / "bert"))
    encoder: Any = bert.phrase_encoder
    assert is_supported(bert)
    encoder.config.hidden_act = "gelu_new"
    assert not is_supported(bert)


def test_the_same_network_gives_the_same_file(tmp_path: Path) -> None:
    """Nothing random is left in a graph, and the network is as it was before."""
    network = seeded(make_bert(tmp_path / "tiny")).train()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    for name in ("a.onnx", "b.onnx"):
        write_int8_graph(network, tmp_path / name)

    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    assert network.training
    assert all(torch.equal(before[name], tensor) for name, tensor in network.state_dict().items())
    assert not any(module._forward_pre_hooks for module in network.modules())


def test_the_optimizer_keeps_the_fast_operators(graph: Path, tmp_path: Path) -> None:
    """The optimizer does not fuse additions back into its slow SkipLayerNormalization and BiasGelu."""
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.log_severity_level = 3  # a warning says that the optimised file is for this machine alone
    ort.InferenceSession(str(graph), options)
    kinds = [node.op_type for node in onnx.load(tmp_path / "optimized.onnx").graph.node]

    assert not {"SkipLayerNormalization", "BiasGelu", "FusedMatMul"} & set(kinds)
    assert kinds.count("MatMulIntegerToFloat") == 6 * N_LAYERS


def test_the_matrices_are_kept_in_eight_bits_once(network: PearlNetwork, graph: Path) -> None:
    """Every matrix but the type head, and the word table, take one byte a weight. Processors without VNNI add two
    products of a matrix in 16 bits: the largest weights and activations still fit.
    """
    tensors = onnx.load(graph).graph.initializer
    in_8_bits = [numpy_helper.to_array(t) for t in tensors if t.data_type == onnx.TensorProto.INT8]
    encoder: Any = network.phrase_encoder
    dense = [module for module in encoder.modules() if isinstance(module, torch.nn.Linear)]
    table = encoder.embeddings.word_embeddings.weight

    assert sum(weights.size for weights in in_8_bits) == sum(m.weight.numel() for m in dense) + table.numel()
    matrices = [weights for weights in in_8_bits if weights.shape != table.shape]
    assert all(2 * 255 * int(np.abs(one.astype(int)).max()) <= np.iinfo(np.int16).max for one in matrices)
    assert not any(t.data_type == onnx.TensorProto.FLOAT and len(t.dims) == 2 and t.dims[1] == 2 * DIM for t in tensors)


def test_neither_scales_nor_corrections_bend_a_product(tmp_path: Path) -> None:
    """What is divided out of a channel comes back, and columns have scales of their own: with outlying channels and
    columns too, graph and network agree.
    """
    network = seeded(make_bert(tmp_path / "tiny"))
    encoder: Any = network.phrase_encoder
    with torch.no_grad():
        for layer in encoder.encoder.layer:
            layer.attention.output.LayerNorm.weight[3] *= 8
            layer.output.LayerNorm.bias[5] += 4
            layer.intermediate.dense.weight[7] *= 30
    write_int8_graph(network, tmp_path / "model.onnx")

    check_int8_graph(tmp_path / "model.onnx", network, least=0.999)


def test_an_outlying_channel_costs_little_precision() -> None:
    """A channel thirty times the others, as trained BERTs have, does not drown them where rows have 8 bits."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 64)).astype(np.float32)
    matrix = rng.normal(size=(64, 48)).astype(np.float32)
    x[:, 3] *= 30

    def error(scales: Array) -> float:
        divided = x / scales
        rows = np.abs(divided).max(axis=1, keepdims=True) / 127
        product = (np.rint(divided / rows) * rows) @ (matrix * scales[:, None])
        return float(np.linalg.norm(product - x @ matrix))

    assert error(channel_scales(np.abs(x).max(axis=0), matrix)) < error(np.ones(64, dtype=np.float32)) / 2
