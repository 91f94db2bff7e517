"""Trained networks as ONNX graphs, on tiny random models.
8-bit products without the loss that outlying channels bring, on tiny random models.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import pytest
import torch
from character_models import make_network
from onnx import TensorProto, helper, numpy_helper
from tiny_models import DIM, N_LAYERS, make_albert, make_bert, make_roberta

from pearl_qdrant.encoder.runtime.torch_runtime import PearlNetwork, load_transformer, new_type_head
from training.export import export_checkpoint as export_graph
from training.export.export_checkpoint import export_onnx
from training.export.graph_builder import (
    IR_VERSION,
    LEVELS,
    OPSET,
    channel_scales,
    quantize_columns,
    quantize_rows,
)
from training.export.int8_graph import is_supported, write_int8_graph

Array = npt.NDArray[np.float32]

IDS = torch.tensor([[2, 7, 9, 40, 3, 0], [2, 12, 3, 0, 0, 0], [2, 8, 9, 10, 11, 3]])
MASK = (IDS != 0).long()


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> PearlNetwork:
    """A tiny network with a random head."""
    torch.manual_seed(0)
    encoder = load_transformer(make_bert(tmp_path_factory.mktemp("bert") / "tiny"))
    return PearlNetwork(encoder, new_type_head(DIM)).eval()


def run(path: Path, ids: torch.Tensor = IDS, mask: torch.Tensor = MASK) -> tuple[Array, Array]:
    """Embedding and logits from a graph."""
    session = ort.InferenceSession(str(path))
    assert [value.name for value in session.get_inputs()] == ["input_ids", "attention_mask"]
    embedding, logits = session.run(
        ["embedding", "type_logits"], {"input_ids": ids.numpy(), "attention_mask": mask.numpy()}
    )
    return embedding, logits


def cosines(a: Array, b: Array) -> Array:
    """Cosine of each pair of rows of unit vectors."""
    result: Array = (a * b).sum(1)
    return result


def check_int8_graph(path: Path, network: PearlNetwork) -> None:
    """An 8-bit graph agrees with its network."""
    embedding, logits = run(path)
    with torch.inference_mode():
        expected, expected_logits = network(IDS, MASK)

    assert cosines(embedding, expected.numpy()).min() > 0.995
    assert logits == pytest.approx(expected_logits.numpy(), abs=0.15)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_an_int8_graph_agrees_with_torch(network: PearlNetwork, tmp_path: Path, pooling: str) -> None:
    """A graph with 8-bit rows gives the vectors and types of the network, up to quantisation."""
    pooled = PearlNetwork(network.phrase_encoder, network.type_head, pooling=pooling).eval()
    write_int8_graph(pooled, tmp_path / "model.onnx")

    check_int8_graph(tmp_path / "model.onnx", pooled)


class FirstWord(torch.nn.Module):
    """A phrase encoder that knows words alone: torch's exporter takes ten seconds for any other."""

    def __init__(self, table: torch.Tensor) -> None:
        super().__init__()
        self.table = torch.nn.Embedding.from_pretrained(table)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> SimpleNamespace:
        return SimpleNamespace(last_hidden_state=self.table(input_ids))

    def to_onnx(self, network: PearlNetwork) -> onnx.ModelProto:
        """What torch's exporter would write, with the first token as pooling."""
        names = ["input_ids", "attention_mask"]
        inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens"]) for name in names]
        output = helper.make_tensor_value_info("pearl_pooled", TensorProto.FLOAT, ["batch", DIM])
        nodes = [
            helper.make_node("Gather", ["input_ids", "first"], ["word"], axis=1),
            helper.make_node("Gather", ["table", "word"], ["pearl_pooled"]),
        ]
        constants = {"first": np.array(0), "table": self.table.weight.numpy()}
        tensors = [numpy_helper.from_array(value, name) for name, value in constants.items()]
        graph = helper.make_graph(nodes, "words", inputs, [output], tensors)
        opsets = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)


def test_what_is_added_to_a_graph_of_torch_is_exact(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Characters, norm and type head after the part that torch exports are those of the network."""
    with_transformer = make_network(make_bert(tmp_path / "bert"))
    words = FirstWord(torch.from_numpy(np.random.default_rng(0).normal(size=(600, DIM)).astype(np.float32)))
    network = PearlNetwork(
        words, with_transformer.type_head, pooling="cls", character_encoder=with_transformer.character_encoder
    ).eval()
    monkeypatch.setattr(export_graph, "_export_pooled", words.to_onnx)
    export_onnx(network, tmp_path / "model.onnx")

    check_fp32_graph(tmp_path / "model.onnx", network)


def check_fp32_graph(path: Path, network: PearlNetwork) -> None:
    """A graph agrees with its network to rounding."""
    embedding, logits = run(path)
    with torch.inference_mode():
        expected, expected_logits = network(IDS, MASK)

    assert embedding == pytest.approx(expected.numpy(), abs=1e-5)
    assert logits == pytest.approx(expected_logits.numpy(), abs=1e-4)


def test_neither_batch_nor_padding_changes_an_int8_vector(network: PearlNetwork, tmp_path: Path) -> None:
    """A name has the same vector alone and among longer ones, though activations are quantised."""
    write_int8_graph(network, tmp_path / "model.onnx")
    together, _ = run(tmp_path / "model.onnx")
    for i in range(len(IDS)):
        n = int(MASK[i].sum())
        alone, _ = run(tmp_path / "model.onnx", IDS[i : i + 1, :n], MASK[i : i + 1, :n])
        assert cosines(alone, together[i : i + 1]).min() > 0.9999


def test_odd_shapes_make_no_nan(network: PearlNetwork, tmp_path: Path) -> None:
    """One token, all the positions that the model has, and a row of padding alone are all finite."""
    write_int8_graph(network, tmp_path / "model.onnx")
    n = network.phrase_encoder.config.max_position_embeddings  # type: ignore[union-attr]
    for ids in (torch.full((1, 1), 7), torch.full((2, n), 9)):
        embedding, logits = run(tmp_path / "model.onnx", ids, torch.ones_like(ids))
        assert np.isfinite(embedding).all()
        assert np.isfinite(logits).all()
    embedding, _ = run(tmp_path / "model.onnx", IDS, torch.zeros_like(MASK))
    assert np.isfinite(embedding).all()


@pytest.fixture
def seeded_network(tmp_path: Path) -> PearlNetwork:
    """A tiny network with a random head."""
    torch.manual_seed(0)
    return PearlNetwork(load_transformer(make_bert(tmp_path / "tiny")), new_type_head(DIM)).eval()


def in_eight_bits(x: Array, matrix: Array) -> Array:
    """A product as the graph makes it: a scale for each row of x and each column of the matrix."""
    rows = np.abs(x).max(axis=1, keepdims=True) / 127
    values, columns = quantize_columns(matrix)
    product: Array = (np.rint(x / rows) * rows) @ (values * columns)
    return product


def test_an_outlying_channel_costs_little_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """A channel thirty times the others, as trained BERTs have, does not drown them in 8 bits."""
    monkeypatch.setattr("training.export.graph_builder.LEVELS", 127)  # to measure only the error of the activations
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 64)).astype(np.float32)
    matrix = rng.normal(size=(64, 48)).astype(np.float32)
    x[:, 3] *= 30
    scales = channel_scales(np.abs(x).max(axis=0), matrix)

    error = np.linalg.norm(in_eight_bits(x / scales, matrix * scales[:, None]) - x @ matrix)
    plain = np.linalg.norm(in_eight_bits(x, matrix) - x @ matrix)

    assert error < plain / 2


def test_only_a_bert_with_the_exact_gelu_gets_this_graph(seeded_network: PearlNetwork, tmp_path: Path) -> None:
    """Others are exported in float32: layers that share weights, or another GELU, would be silently off."""
    others = (make_albert(tmp_path / "albert"), make_roberta(tmp_path / "roberta"))

    assert is_supported(seeded_network)
    assert not any(is_supported(PearlNetwork(load_transformer(other), new_type_head(DIM))) for other in others)
    encoder: Any = seeded_network.phrase_encoder
    encoder.config.hidden_act = "gelu_new"
    assert not is_supported(seeded_network)


def test_the_same_network_gives_the_same_file(seeded_network: PearlNetwork, tmp_path: Path) -> None:
    """Nothing random is left in a graph, and the network is as it was before."""
    before = {name: tensor.clone() for name, tensor in seeded_network.state_dict().items()}
    seeded_network.train()
    for name in ("a.onnx", "b.onnx"):
        write_int8_graph(seeded_network, tmp_path / name)

    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    assert seeded_network.training
    assert all(torch.equal(before[name], tensor) for name, tensor in seeded_network.state_dict().items())
    assert not any(module._forward_pre_hooks for module in seeded_network.modules())


def test_the_optimizer_keeps_the_fast_operators(seeded_network: PearlNetwork, tmp_path: Path) -> None:
    """The optimizer does not fuse additions back into its slow SkipLayerNormalization and BiasGelu."""
    write_int8_graph(seeded_network, tmp_path / "model.onnx")
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.log_severity_level = 3  # a warning says that the optimised file is for this machine alone
    ort.InferenceSession(str(tmp_path / "model.onnx"), options)
    kinds = [node.op_type for node in onnx.load(tmp_path / "optimized.onnx").graph.node]

    assert not {"SkipLayerNormalization", "BiasGelu", "FusedMatMul"} & set(kinds)
    assert kinds.count("MatMulIntegerToFloat") == 6 * N_LAYERS


def test_the_matrices_are_kept_in_eight_bits_once(seeded_network: PearlNetwork, tmp_path: Path) -> None:
    """Every matrix but the type head, and the word table, take one byte a weight."""
    write_int8_graph(seeded_network, tmp_path / "model.onnx")
    tensors = onnx.load(tmp_path / "model.onnx").graph.initializer
    n_int8 = sum(int(np.prod(t.dims)) for t in tensors if t.data_type == onnx.TensorProto.INT8)
    encoder: Any = seeded_network.phrase_encoder
    dense = [module for module in encoder.modules() if isinstance(module, torch.nn.Linear)]

    assert n_int8 == sum(m.weight.numel() for m in dense) + encoder.embeddings.word_embeddings.weight.numel()
    assert not any(t.data_type == onnx.TensorProto.FLOAT and len(t.dims) == 2 and t.dims[1] == 2 * DIM for t in tensors)


def test_neither_scales_nor_corrections_bend_a_product(network: PearlNetwork, tmp_path: Path) -> None:
    """What is divided out of a channel comes back: with outlying channels too, graph and network agree."""
    encoder: Any = network.phrase_encoder
    with torch.no_grad():
        for layer in encoder.encoder.layer:
            layer.attention.output.LayerNorm.weight[3] *= 8
            layer.output.LayerNorm.bias[5] += 4
    write_int8_graph(network, tmp_path / "model.onnx")
    feed = {"input_ids": IDS.numpy(), "attention_mask": MASK.numpy()}
    embedding, logits = ort.InferenceSession(str(tmp_path / "model.onnx")).run(["embedding", "type_logits"], feed)
    with torch.inference_mode():
        expected, expected_logits = network(IDS, MASK)

    assert (embedding * expected.numpy()).sum(1).min() > 0.999
    assert logits == pytest.approx(expected_logits.numpy(), abs=0.15)


def test_columns_and_rows_have_scales_of_their_own() -> None:
    """A column or row a thousand times smaller than the others keeps its precision; zeros stay zeros."""
    matrix = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)
    matrix[:, 2] *= 1e-3
    matrix[:, 5] = 0
    by_row, row_scales = quantize_rows(matrix.T.copy())
    for values, scales, levels in ((*quantize_columns(matrix), LEVELS), (by_row.T, row_scales, 127)):
        error = np.linalg.norm(values * scales - matrix, axis=0) / np.maximum(np.linalg.norm(matrix, axis=0), 1e-12)

        assert values.dtype == np.int8
        assert np.abs(values).max() <= levels
        assert error.max() < 1.27 / levels


def test_products_cannot_saturate_sixteen_bits() -> None:
    """Processors without VNNI add two products in 16 bits: the largest weights and activations still fit."""
    matrix = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)

    assert 2 * 255 * int(np.abs(quantize_columns(matrix)[0]).max()) <= np.iinfo(np.int16).max
