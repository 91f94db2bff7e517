"""8-bit products without the loss that outlying channels bring, on tiny random models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import pytest
import torch
from tiny_models import DIM, N_LAYERS, make_albert, make_bert, make_roberta

from pearl_qdrant.encoder.runtime.network import PearlNetwork, load_phrase_encoder, new_type_head
from training.export.graph_builder import channel_scales, quantize_columns
from training.export.int8_graph import is_supported, write_int8_graph

Array = npt.NDArray[np.float32]


@pytest.fixture
def network(tmp_path: Path) -> PearlNetwork:
    """A tiny network with a random head."""
    torch.manual_seed(0)
    return PearlNetwork(load_phrase_encoder(make_bert(tmp_path / "tiny")), new_type_head(DIM)).eval()


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


def test_only_a_bert_with_the_exact_gelu_gets_this_graph(network: PearlNetwork, tmp_path: Path) -> None:
    """Other encoders are quantised in blocks: layers that share weights, or another GELU, would be silently off."""
    others = (make_albert(tmp_path / "albert"), make_roberta(tmp_path / "roberta"))

    assert is_supported(network)
    assert not any(is_supported(PearlNetwork(load_phrase_encoder(other), new_type_head(DIM))) for other in others)
    encoder: Any = network.phrase_encoder
    encoder.config.hidden_act = "gelu_new"
    assert not is_supported(network)


def test_the_same_network_gives_the_same_file(network: PearlNetwork, tmp_path: Path) -> None:
    """Nothing random is left in a graph, and the network is as it was before."""
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    network.train()
    for name in ("a.onnx", "b.onnx"):
        write_int8_graph(network, tmp_path / name)

    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    assert network.training
    assert all(torch.equal(before[name], tensor) for name, tensor in network.state_dict().items())
    assert not any(module._forward_pre_hooks for module in network.modules())


def test_the_optimizer_keeps_the_fast_operators(network: PearlNetwork, tmp_path: Path) -> None:
    """The optimizer does not fuse additions back into its slow SkipLayerNormalization and BiasGelu."""
    write_int8_graph(network, tmp_path / "model.onnx")
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.log_severity_level = 3  # a warning says that the optimised file is for this machine alone
    ort.InferenceSession(str(tmp_path / "model.onnx"), options)
    kinds = [node.op_type for node in onnx.load(tmp_path / "optimized.onnx").graph.node]

    assert not {"SkipLayerNormalization", "BiasGelu", "FusedMatMul"} & set(kinds)
    assert kinds.count("MatMulIntegerToFloat") == 6 * N_LAYERS


def test_the_matrices_are_kept_in_eight_bits_once(network: PearlNetwork, tmp_path: Path) -> None:
    """Every matrix but the type head, and the word table, take one byte a weight."""
    write_int8_graph(network, tmp_path / "model.onnx")
    tensors = onnx.load(tmp_path / "model.onnx").graph.initializer
    n_int8 = sum(int(np.prod(t.dims)) for t in tensors if t.data_type == onnx.TensorProto.INT8)
    encoder: Any = network.phrase_encoder
    dense = [module for module in encoder.modules() if isinstance(module, torch.nn.Linear)]

    assert n_int8 == sum(m.weight.numel() for m in dense) + encoder.embeddings.word_embeddings.weight.numel()
    assert not any(t.data_type == onnx.TensorProto.FLOAT and len(t.dims) == 2 and t.dims[1] == 2 * DIM for t in tensors)
