"""Rebuild a model's weights for torch from its 8-bit graph, the only place where a shipped model has them.

    W = Q S d / s       Q, S: matrix and column scales of the product; s: the channel scales by which the LayerNorm
                        before it was divided; d: the root of the head's width for queries, else 1

The channel scales are constants of the residual connections, which multiply by them. Biases are unchanged, with the
mean error of the products in them; keys have none. The rebuilt character encoder computes the same: its first matrix is
merged into the third, and the identity replaces it. The remaining difference between the two forms is the rounding of
activations, which torch does not do.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import NodeProto, numpy_helper

from pearl_qdrant.encoder.character.config import CharacterConfig
from pearl_qdrant.encoder.checkpoint import VerifiedCheckpoint
from pearl_qdrant.encoder.json_files import read_json
from pearl_qdrant.errors import CheckpointError
from training.export import character_graph
from training.export.int8_graph import PRECISION

Array = npt.NDArray[np.float32]

_FOREIGN_GRAPH_ERRORS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Errors that reading a graph of another program raises."""


def rebuild_phrase_encoder(checkpoint: VerifiedCheckpoint) -> dict[str, Array]:
    """Rebuild the weights of the BERT in a checkpoint's 8-bit graph, by their names in transformers.

    Raises:
        CheckpointError: If there is no such graph, or it was not made by `training.export.int8_graph`.
    """
    graph = _open(checkpoint)
    config = read_json(checkpoint.folder / "config.json")
    try:
        weights = dict(_weights(graph, config))
    except _FOREIGN_GRAPH_ERRORS as error:
        raise CheckpointError(
            str(checkpoint.onnx_path),
            f"was not written by training.export.int8_graph ({error!r}): it cannot be rebuilt",
        ) from error
    return {name: np.ascontiguousarray(array, dtype=np.float32) for name, array in weights.items()}


def rebuild_character_encoder(checkpoint: VerifiedCheckpoint) -> dict[str, Array]:
    """Rebuild the weights of the character encoder in a checkpoint's 8-bit graph; empty if the model has none.

    Raises:
        CheckpointError: As for `rebuild_phrase_encoder`.
    """
    config: CharacterConfig | None = checkpoint.config.character
    if config is None:
        return {}
    tensors = _open(checkpoint).tensors
    a = config.attention_dim
    try:
        table = tensors[character_graph.TABLE_INT8] * tensors[character_graph.TABLE_SCALE][:, None]
        pair = tensors[character_graph.ATTENTION].T
        weights = {
            "embeddings.weight": table,
            "position.weight": np.eye(config.embedding_dim),
            "query.weight": pair[:a] * a**0.25,
            "key.weight": pair[a:],
            "output.weight": tensors[character_graph.OUTPUT].T,
            "output.bias": tensors[character_graph.OUTPUT_BIAS],
            "projection.weight": tensors[character_graph.PROJECTION].T,
        }
    except _FOREIGN_GRAPH_ERRORS as error:
        raise CheckpointError(
            str(checkpoint.onnx_path), f"lacks the constants of a character encoder ({error!r}): it cannot be rebuilt"
        ) from error
    return {name: np.ascontiguousarray(array, dtype=np.float32) for name, array in weights.items()}


class _Graph:
    """Nodes and constants of a graph."""

    def __init__(self, path: Path) -> None:
        model = onnx.load(str(path))
        self.nodes: list[NodeProto] = list(model.graph.node)
        self.tensors: dict[str, Any] = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}

    def of_kind(self, kind: str) -> Iterator[NodeProto]:
        """Yield the nodes of one kind, in order."""
        return (node for node in self.nodes if node.op_type == kind)

    def reader(self, value: str, kind: str) -> NodeProto:
        """Return the only node of a kind that reads a value."""
        (found,) = [node for node in self.of_kind(kind) if value in node.input]
        return found

    def channel_scales(self, norm: NodeProto) -> Array:
        """Return the divisors of a LayerNorm's channels; 1 after the last layer, which has no multiplication."""
        for node in self.of_kind("Mul"):
            if node.input[0] == norm.output[0] and node.input[1] in self.tensors:
                scales: Array = self.tensors[node.input[1]]
                return scales
        ones: Array = np.ones_like(self.tensors[norm.input[1]])
        return ones


def _open(checkpoint: VerifiedCheckpoint) -> _Graph:
    """Open the graph of a checkpoint whose weights are in 8 bits."""
    precision = checkpoint.config.precision
    if checkpoint.onnx_path is None or precision != PRECISION:
        raise CheckpointError(
            str(checkpoint.folder),
            f"its weights are {precision}, and only {PRECISION} ones are rebuilt for torch. Export the model again "
            f"from its training folder, where model.safetensors lies",
        )
    return _Graph(checkpoint.onnx_path)


def _weights(graph: _Graph, config: dict[str, Any]) -> Iterator[tuple[str, Array]]:
    """Yield the names and weights of a BERT."""
    dim, n_layers = int(config["hidden_size"]), int(config["num_hidden_layers"])
    root = float(np.sqrt(dim // int(config["num_attention_heads"])))
    yield from _embeddings(graph, dim, int(config.get("type_vocab_size", 2)))
    products = list(graph.of_kind("MatMulIntegerToFloat"))
    norms = list(graph.of_kind("LayerNormalization"))
    if (len(products), len(norms)) != (6 * n_layers, 2 * n_layers + 1):
        raise ValueError(f"{len(products)} products and {len(norms)} norms for {n_layers} layers")
    yield from _norm(graph, norms[0], "embeddings")
    for i in range(n_layers):
        name = f"encoder.layer.{i}"
        before, between, after = norms[2 * i : 2 * i + 3]
        query, key, value, mixed, inner, outer = products[6 * i : 6 * i + 6]
        incoming, inside = graph.channel_scales(before), graph.channel_scales(between)
        yield from _dense(graph, query, f"{name}.attention.self.query", root / incoming, times=root)
        yield from _dense(graph, key, f"{name}.attention.self.key", 1 / incoming, with_bias=False)
        yield from _dense(graph, value, f"{name}.attention.self.value", 1 / incoming)
        yield from _dense(graph, mixed, f"{name}.attention.output.dense", np.ones(dim))
        yield from _norm(graph, between, f"{name}.attention.output")
        yield from _dense(graph, inner, f"{name}.intermediate.dense", 1 / inside)
        yield from _dense(graph, outer, f"{name}.output.dense", np.ones(int(config["intermediate_size"])))
        yield from _norm(graph, after, f"{name}.output")


def _embeddings(graph: _Graph, dim: int, n_types: int) -> Iterator[tuple[str, Array]]:
    """Yield the word embeddings, and the positions, which include the row of token type 0."""
    dequantize = next(graph.of_kind("DequantizeLinear"), None)
    if dequantize is None:
        raise ValueError("there is no 8-bit table of words")
    producers = {node.output[0]: node for node in graph.of_kind("Gather")}
    table, scales = (graph.tensors[producers[value].input[0]] for value in dequantize.input[:2])
    yield "embeddings.word_embeddings.weight", table * scales[:, None]
    tables = [graph.tensors.get(node.input[0]) for node in graph.of_kind("Slice")]
    (positions,) = [table for table in tables if table is not None and table.shape[1:] == (dim,)]
    yield "embeddings.position_embeddings.weight", positions
    yield "embeddings.token_type_embeddings.weight", np.zeros((n_types, dim), dtype=np.float32)


def _norm(graph: _Graph, norm: NodeProto, name: str) -> Iterator[tuple[str, Array]]:
    """Yield a LayerNorm multiplied by the scales of its channels."""
    scales = graph.channel_scales(norm)
    for part, value in zip(("weight", "bias"), norm.input[1:3], strict=True):
        yield f"{name}.LayerNorm.{part}", graph.tensors[value] * scales


def _dense(
    graph: _Graph, product: NodeProto, name: str, rows: npt.NDArray[Any], *, times: float = 1.0, with_bias: bool = True
) -> Iterator[tuple[str, Array]]:
    """Yield the weights of a dense layer.

    Args:
        graph: Has its constants.
        product: Its integer product.
        name: Name of the layer.
        rows: Factors of the rows of its matrix, (k,).
        times: Factor of its bias.
        with_bias: Whether the graph has a bias.
    """
    matrix = graph.tensors[product.input[1]].astype(np.float32) * graph.tensors[product.input[3]]
    yield f"{name}.weight", (matrix * rows[:, None]).T
    bias = np.zeros(matrix.shape[1], dtype=np.float32)
    if with_bias:
        scaled = graph.reader(product.output[0], "Mul")
        bias = graph.tensors[graph.reader(scaled.output[0], "Sum").input[1]] * times
    yield f"{name}.bias", bias
