"""Export a BERT-like network as one ONNX graph whose matrices are multiplied in 8-bit integers.

    x      activations of a token, (k,)        s = max|x| / 127        q = round(x / s) + 128     uint8
    W      matrix (k, n)                       S_j = clip_j / 64       Q = round(W / S)           int8
    x W  ~ s * S * ((q - 128) Q)

Each token has its own scale s and each column of a matrix its own S, so that a vector does not depend on its batch. The
output of GELU is never below -0.17: its zero point is 16, not 128. Word embeddings are 4-bit blocks where that is
exact, otherwise 8 bits with one scale a row.

The operators around the products can lose the time that the integers save (512 tokens, one thread, microseconds:
SkipLayerNormalization 1400, Sum and LayerNormalization 270). Hence Sum instead of Add, which the optimizer fuses into
the slow ones. The keys have no bias: it adds the same number to all scores of a token. Measured with all-MiniLM-L6-v2:
2.2 times the names per processor second of fp32, a quarter of the size, mean cosine to fp32 0.998.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper, save

from pearl_qdrant.encoder.checkpoint import VerifiedCheckpoint
from pearl_qdrant.encoder.json_files import read_json
from pearl_qdrant.encoder.runtime.torch_runtime import PearlNetwork
from pearl_qdrant.errors import CheckpointError
from training.export.graph_builder import (
    BLOCK_4BIT,
    FUSED,
    IR_VERSION,
    OPSET,
    Array,
    Channels,
    GraphBuilder,
    add_outputs,
    channel_scales,
    probe_inputs,
    quantize_columns,
    quantize_rows,
    read_blocks,
)

PRECISION = "int8-row"
WORDS = "words"  # output of an encoder's graph: its word embeddings as they are looked up, (b * t, dim)

_MASKED = -10_000.0
_MIDDLE = 128
_GELU_ZERO = 16
_GELU_LEAST = 0.17  # the minimum of GELU is -0.16997


def write_int8_graph(network: PearlNetwork, path: Path) -> None:
    """Write the graph: input_ids, attention_mask (b, t) int64 -> embedding (b, dim), type_logits (b, 95). `network`:
    has a type head and a phrase encoder that `is_supported`, and is on the CPU. `path`: the .onnx file to write.
    """
    encoder: Any = network.phrase_encoder
    config = encoder.config
    weights = {name: tensor.detach().numpy() for name, tensor in encoder.state_dict().items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    save(Int8Graph(weights, config, probe_inputs(encoder)).build(network), str(path))


def is_supported(network: PearlNetwork) -> bool:
    """Return whether the phrase encoder fits this graph: a BERT with GELU and absolute positions."""
    encoder: Any = network.phrase_encoder
    config = encoder.config
    positions = getattr(config, "position_embedding_type", "absolute")
    return (config.model_type, config.hidden_act, positions) == ("bert", "gelu", "absolute")


@dataclass(frozen=True, slots=True)
class _Hidden:
    """A hidden state divided by the scales of its channels: name of the value, (b * t, dim), and scales, (dim,)."""

    value: str
    scales: Array


@dataclass(frozen=True, slots=True)
class _Rows:
    """Quantised activations: names of uint8 rows, (b * t, k), and scales, (b * t, 1) or one for all, and the zero
    point.
    """

    value: str
    scale: str
    zero: int
    has_one_scale: bool = False


class Int8Graph(GraphBuilder):
    """Builds the nodes of the phrase encoder and the character encoder, pooling and head; or those of a judge."""

    def __init__(self, weights: dict[str, Array], config: Any, inputs: dict[str, Channels]) -> None:
        super().__init__()
        self._weights = weights
        self._inputs = inputs
        self._dim: int = config.hidden_size
        self._n_heads: int = config.num_attention_heads
        self._n_layers: int = config.num_hidden_layers
        self._epsilon: float = config.layer_norm_eps
        self._zeros: dict[int, str] = {}
        self._has_one_scale = False

    def build(self, network: PearlNetwork) -> ModelProto:
        """Build the whole graph. Hidden states are (b * t, dim); only attention needs (b, t, dim)."""
        size = self._set_size("input_ids")
        words = self._words(self.op("Reshape", "input_ids", self.ints(-1)))
        summed = self.op("Sum", self.op("Reshape", words, self._by_token), self._used_positions(size))
        hidden = self._all_layers(summed, self.op("Cast", "attention_mask", to=TensorProto.FLOAT))
        pooled = self._pool(hidden, network.pooling)
        outputs = add_outputs(self, pooled, network)
        # The judge of two names looks its words up here.
        self.nodes.append(helper.make_node("Identity", [words], [WORDS]))
        outputs.append(helper.make_tensor_value_info(WORDS, TensorProto.FLOAT, ["rows", self._dim]))
        inputs = [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens"])
            for name in ("input_ids", "attention_mask")
        ]
        graph = helper.make_graph(self.nodes, "pearl", inputs, outputs, self.tensors)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(FUSED, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)

    def build_judge(self, of_name: Array, dense: Sequence[tuple[Array, Array]]) -> ModelProto:
        """Build the graph of a judge (`training.judge.network`) over the words of the encoder's graph: words
        (b, t, dim), part (b, t) int64 -> logit (b,). `of_name` is added to the tokens of the name, (dim,); `dense` are
        the matrices, (k, n), and biases of the layers after the means.
        """
        self._has_one_scale = True
        self._set_size("part")
        is_name = self.op("Cast", self.op("Equal", "part", self.ints(2)), to=TensorProto.FLOAT)
        is_mention = self.op("Cast", self.op("Equal", "part", self.ints(1)), to=TensorProto.FLOAT)
        added = self.op("Mul", self.op("Unsqueeze", is_name, self.ints(-1)), self.floats(of_name))
        summed = self.op("Sum", WORDS, self._used_positions(self.op("Shape", "part")), added)
        hidden = self._all_layers(summed, self.op("Add", is_name, is_mention))
        u, v = (self._mean(hidden, one) for one in (is_mention, is_name))
        product = self.op("Mul", u, v)
        lengths = [self.op("ReduceL2", one, self.ints(1), keepdims=1) for one in (u, v)]
        length = self.op("Max", self.op("Mul", *lengths), self.floats(1e-8))
        cosine = self.op("Div", self.op("ReduceSum", product, self.ints(1), keepdims=1), length)
        gap = self.op("Abs", self.op("Sub", u, v))
        both = self.op("Concat", gap, product, self.op("Add", u, v), cosine, axis=1)
        for i, (matrix, bias) in enumerate(dense):
            both = self.op("Gelu", both, domain=FUSED) if i else both
            both = self.op("Add", self.op("MatMul", both, self.floats(matrix)), self.floats(bias))
        self.nodes.append(helper.make_node("Squeeze", [both, self.ints(1)], ["logit"]))
        inputs = [
            helper.make_tensor_value_info(WORDS, TensorProto.FLOAT, ["batch", "tokens", self._dim]),
            helper.make_tensor_value_info("part", TensorProto.INT64, ["batch", "tokens"]),
        ]
        outputs = [helper.make_tensor_value_info("logit", TensorProto.FLOAT, ["batch"])]
        graph = helper.make_graph(self.nodes, "judge", inputs, outputs, self.tensors)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(FUSED, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)

    def _set_size(self, ids: str) -> str:
        """Note the shapes of hidden states for a batch of ids, (b, t); returns that shape."""
        size = self.op("Shape", ids)
        self._by_token = self.op("Concat", size, self.ints(self._dim), axis=0)  # (b, t, dim)
        self._by_head = self.op("Concat", size, self.ints(self._n_heads, self._dim // self._n_heads), axis=0)
        return size

    def _used_positions(self, size: str) -> str:
        """Position embeddings, (t, dim); every token has type 0, so that row is added to them."""
        types = self._weights["embeddings.token_type_embeddings.weight"][0]
        positions = self.floats(self._weights["embeddings.position_embeddings.weight"] + types)
        return self.op("Slice", positions, self.ints(0), self.op("Slice", size, self.ints(1), self.ints(2)))

    def _all_layers(self, summed: str, is_token: str) -> str:
        """Apply norm and layers to embeddings, (b, t, dim); `is_token` is 1 for tokens and 0 for padding, (b, t)."""
        padding = self.op("Sub", self.floats(1.0), is_token)
        mask = self.op("Unsqueeze", self.op("Mul", padding, self.floats(_MASKED)), self.ints(1, 2))  # (b, 1, 1, t)
        rows = self.op("Reshape", summed, self.ints(-1, self._dim))
        hidden = self._norm("embeddings", rows, self._attention_readers(0))
        for i in range(self._n_layers):
            hidden = self._attend(i, hidden, mask)
            hidden = self._feed_forward(i, hidden)
        return self.op("Reshape", hidden.value, self._by_token)

    def _words(self, ids: str) -> str:
        """Look up words: in 4 bits where the table is exactly that, otherwise in 8 bits with one scale per row."""
        table = self._weights["embeddings.word_embeddings.weight"]
        if (blocks := read_blocks(table)) is not None:
            # The product of scale and number has more digits than half precision.
            scales = self.op("Cast", self.constant(blocks[1]), to=TensorProto.FLOAT)
            axes = {"gather_axis": 0, "quantize_axis": 1, "block_size": BLOCK_4BIT}
            return self.op("GatherBlockQuantized", self.int4(blocks[0]), ids, scales, domain=FUSED, **axes)
        rows, scales_of_rows = quantize_rows(table)
        row = self.op("Gather", self.constant(rows), ids, axis=0)
        return self.op("DequantizeLinear", row, self.op("Gather", self.floats(scales_of_rows), ids, axis=0), axis=0)

    def _attend(self, i: int, hidden: _Hidden, mask: str) -> _Hidden:
        """Add the self-attention of a layer, its output matrix and the LayerNorm after it."""
        name = f"encoder.layer.{i}.attention"
        rows = self._quantize_alike(hidden, f"{name}.self.query")
        root = float(np.sqrt(self._dim // self._n_heads))
        query = self._dense(rows, f"{name}.self.query", hidden.scales, divide=root)
        key = self._dense(rows, f"{name}.self.key", hidden.scales, with_bias=False)
        value = self._dense(rows, f"{name}.self.value", hidden.scales)
        scores = self.op("MatMul", self._heads(query, 0, 2, 1, 3), self._heads(key, 0, 2, 3, 1))
        shares = self.op("Softmax", self.op("Add", scores, mask), axis=-1)  # (b, heads, t, t)
        mixed = self.op("MatMul", shares, self._heads(value, 0, 2, 1, 3))
        joined = self.op("Reshape", self.op("Transpose", mixed, perm=[0, 2, 1, 3]), self.ints(-1, self._dim))
        rows = self._quantize_alike(_Hidden(joined, np.ones(self._dim, np.float32)), f"{name}.output.dense")
        summed = self._dense(rows, f"{name}.output.dense", others=[self._unscaled(hidden)])
        return self._norm(f"{name}.output", summed, [f"encoder.layer.{i}.intermediate.dense"])

    def _feed_forward(self, i: int, hidden: _Hidden) -> _Hidden:
        """Add the two dense layers of a layer and the LayerNorm after them."""
        name = f"encoder.layer.{i}"
        rows = self._quantize_alike(hidden, f"{name}.intermediate.dense")
        inner = self._dense(rows, f"{name}.intermediate.dense", hidden.scales)
        rows = self._quantize(self.op("Gelu", inner, domain=FUSED), after_gelu=True)
        summed = self._dense(rows, f"{name}.output.dense", others=[self._unscaled(hidden)])
        return self._norm(f"{name}.output", summed, self._attention_readers(i + 1))

    def _attention_readers(self, i: int) -> list[str]:
        """Return the dense layers that read the input of layer i; none after the last layer."""
        parts = ("query", "key", "value") if i < self._n_layers else ()
        return [f"encoder.layer.{i}.attention.self.{part}" for part in parts]

    def _norm(self, name: str, x: str, readers: list[str]) -> _Hidden:
        """Add a LayerNorm with division by the channel scales of the layers that read it, as one operator."""
        scales = np.ones(self._dim, dtype=np.float32)
        if readers:
            matrix = np.concatenate([self._matrix(reader) for reader in readers], axis=1)
            scales = channel_scales(self._inputs[readers[0]].largest, matrix)
        parts = [self._weights[f"{name}.LayerNorm.{part}"] / scales for part in ("weight", "bias")]
        normed = self.op("LayerNormalization", x, *map(self.floats, parts), axis=-1, epsilon=self._epsilon)
        return _Hidden(normed, scales)

    def _unscaled(self, hidden: _Hidden) -> str:
        """Return the hidden state without its scales, for the residual connection."""
        return self.op("Mul", hidden.value, self.floats(hidden.scales))

    def _heads(self, x: str, *order: int) -> str:
        """Reshape (b * t, dim) to (b, t, heads, width), then permute the axes."""
        return self.op("Transpose", self.op("Reshape", x, self._by_head), perm=list(order))

    def _quantize(self, x: str, *, after_gelu: bool = False) -> _Rows:
        """Quantise rows with one scale each, from the largest value."""
        zero = _GELU_ZERO if after_gelu else _MIDDLE
        sizes = x if after_gelu else self.op("Abs", x)
        # With a smaller scale, GELU's minimum would not fit; without GELU the floor only prevents 0 / 0 for zero rows.
        floor = _GELU_LEAST / zero if after_gelu else 1e-9
        largest = self.op("ReduceMax", sizes, self.ints(-1), keepdims=0)
        # 255 - 16 steps above the zero point; 127 (as many as below) for values with both signs.
        steps = self.floats(1 / (255 - zero))
        scale = self.op("Max", self.op("Mul", largest, steps), self.floats(floor))
        if zero not in self._zeros:
            self._zeros[zero] = self.op("Expand", self.constant(np.uint8(zero)), self.op("Shape", scale))
        rows = self.op("QuantizeLinear", x, scale, self._zeros[zero], axis=0)
        return _Rows(rows, self.op("Unsqueeze", scale, self.ints(-1)), zero)

    def _quantize_alike(self, hidden: _Hidden, reader: str) -> _Rows:
        """Quantise values whose range hardly differs between tokens for the dense layer that reads them: with one scale
        for all rows where the graph has such, from the largest value seen.
        """
        if not self._has_one_scale:
            return self._quantize(hidden.value)
        scale = self.floats((self._inputs[reader].largest / hidden.scales).max() / (255 - _MIDDLE))
        rows = self.op("QuantizeLinear", hidden.value, scale, self.constant(np.uint8(_MIDDLE)))
        return _Rows(rows, scale, _MIDDLE, has_one_scale=True)

    def _dense(
        self,
        rows: _Rows,
        name: str,
        scales: Array | None = None,
        *,
        divide: float = 1.0,
        with_bias: bool = True,
        others: Sequence[str] = (),
    ) -> str:
        """Multiply rows, divided by `scales`, (k,), before quantisation, by a matrix, and add bias and other values."""
        scales = np.ones(len(self._inputs[name].mean), dtype=np.float32) if scales is None else scales
        exact = self._matrix(name) * scales[:, None] / divide
        matrix, columns = quantize_columns(exact)
        lost: Array = (self._inputs[name].mean / scales) @ (exact - matrix * columns)
        bias = [self.floats(self._weights[f"{name}.bias"] / divide + lost)] if with_bias else []
        product = self.op(
            "MatMulIntegerToFloat",
            rows.value,
            self.constant(matrix),
            rows.scale if rows.has_one_scale else self.floats(1.0),
            self.floats(columns),
            self.constant(np.uint8(rows.zero)),
            *(["", *bias] if rows.has_one_scale else []),
            domain=FUSED,
        )
        added = [*others] if rows.has_one_scale else [*bias, *others]
        product = product if rows.has_one_scale else self.op("Mul", product, rows.scale)
        # Not Add, which the optimizer fuses with the next operator.
        return self.op("Sum", product, *added) if added else product

    def _pool(self, hidden: str, pooling: str) -> str:
        """Pool (b, t, dim) to (b, dim)."""
        if pooling == "cls":
            return self.op("Gather", hidden, self.constant(np.int64(0)), axis=1)
        return self._mean(hidden, self.op("Cast", "attention_mask", to=TensorProto.FLOAT))

    def _mean(self, hidden: str, chosen: str) -> str:
        """Average the rows of (b, t, dim) that `chosen`, (b, t), is 1 for."""
        count = self.op("Max", self.op("ReduceSum", chosen, self.ints(1), keepdims=1), self.floats(1.0))
        shares = self.op("Unsqueeze", self.op("Div", chosen, count), self.ints(1))
        return self.op("Squeeze", self.op("MatMul", shares, hidden), self.ints(1))

    def _matrix(self, name: str) -> Array:
        """Return the matrix of a dense layer, (k, n)."""
        transposed: Array = self._weights[f"{name}.weight"].T
        return transposed


def rebuild_phrase_encoder(checkpoint: VerifiedCheckpoint) -> dict[str, Array]:
    """Rebuild the weights of the BERT in a checkpoint's 8-bit graph, by their names in transformers."""
    weights = _weights(_open(checkpoint), read_json(checkpoint.folder / "config.json"))
    return {name: np.ascontiguousarray(array, dtype=np.float32) for name, array in weights}


def rebuild_judge(path: Path, heads: int) -> tuple[dict[str, Array], Array, list[tuple[Array, Array]]]:
    """Rebuild what `Int8Graph.build_judge` wrote: the weights of the layers by their names in transformers, with
    positions and norm, and `of_name` and `dense` as it was given them.
    """
    graph = _ReadGraph(path)
    tables = [graph.tensors[node.input[0]] for node in graph.of_kind("Slice") if node.input[0] in graph.tensors]
    (positions,) = [table for table in tables if table.ndim == 2]
    dim = positions.shape[1]
    n_layers = len(graph.of_kind("MatMulIntegerToFloat")) // 6
    layers = _layers(graph, n_layers, float(np.sqrt(dim // heads)))
    weights = {name: np.ascontiguousarray(array, dtype=np.float32) for name, array in layers}
    weights["embeddings.position_embeddings.weight"] = positions
    is_name = graph.of_kind("Unsqueeze")[0].output[0]
    of_name = graph.tensors[graph.reader(is_name, "Mul").input[1]]
    last = [node for node in graph.of_kind("MatMul") if node.input[1] in graph.tensors]
    biases = [graph.tensors[graph.reader(node.output[0], "Add").input[1]] for node in last]
    return weights, of_name, [(graph.tensors[node.input[1]], bias) for node, bias in zip(last, biases, strict=True)]


class _ReadGraph:
    """Nodes and constants of a graph."""

    def __init__(self, path: Path) -> None:
        model = onnx.load(str(path))
        self.nodes: list[NodeProto] = list(model.graph.node)
        self.tensors: dict[str, Any] = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}

    def of_kind(self, kind: str) -> list[NodeProto]:
        """Return the nodes of one kind, in order."""
        return [node for node in self.nodes if node.op_type == kind]

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


def _open(checkpoint: VerifiedCheckpoint) -> _ReadGraph:
    """Open the graph of a checkpoint whose weights are in 8 bits."""
    precision = checkpoint.config.precision
    if checkpoint.onnx_path is None or precision != PRECISION:
        raise CheckpointError(
            str(checkpoint.folder),
            f"its weights are {precision}, and only {PRECISION} ones are rebuilt for torch. Export the model again "
            f"from its training folder, where model.safetensors lies",
        )
    if checkpoint.config.character is not None:
        raise CheckpointError(
            str(checkpoint.folder), "its character encoder cannot be rebuilt. Start from its training folder"
        )
    return _ReadGraph(checkpoint.onnx_path)


def _weights(graph: _ReadGraph, config: dict[str, Any]) -> Iterator[tuple[str, Array]]:
    """Yield the names and weights of a BERT."""
    dim, n_layers = int(config["hidden_size"]), int(config["num_hidden_layers"])
    root = float(np.sqrt(dim // int(config["num_attention_heads"])))
    yield from _embeddings(graph, dim, int(config.get("type_vocab_size", 2)))
    yield from _layers(graph, n_layers, root)


def _layers(graph: _ReadGraph, n_layers: int, root: float) -> Iterator[tuple[str, Array]]:
    """Yield the norm of the embeddings and the layers; `root` is that of the width of a head."""
    products, norms = graph.of_kind("MatMulIntegerToFloat"), graph.of_kind("LayerNormalization")
    yield from _norm(graph, norms[0], "embeddings")
    for i in range(n_layers):
        name = f"encoder.layer.{i}"
        before, between, after = norms[2 * i : 2 * i + 3]
        query, key, value, mixed, inner, outer = products[6 * i : 6 * i + 6]
        incoming, inside = graph.channel_scales(before), graph.channel_scales(between)
        yield from _dense(graph, query, f"{name}.attention.self.query", root / incoming, times=root)
        yield from _dense(graph, key, f"{name}.attention.self.key", 1 / incoming, with_bias=False)
        yield from _dense(graph, value, f"{name}.attention.self.value", 1 / incoming)
        yield from _dense(graph, mixed, f"{name}.attention.output.dense", 1.0)
        yield from _norm(graph, between, f"{name}.attention.output")
        yield from _dense(graph, inner, f"{name}.intermediate.dense", 1 / inside)
        yield from _dense(graph, outer, f"{name}.output.dense", 1.0)
        yield from _norm(graph, after, f"{name}.output")


def _embeddings(graph: _ReadGraph, dim: int, n_types: int) -> Iterator[tuple[str, Array]]:
    """Yield the word embeddings, and the positions, which include the row of token type 0."""
    producers = {node.output[0]: node for node in (*graph.of_kind("Gather"), *graph.of_kind("Cast"))}
    for blocks in graph.of_kind("GatherBlockQuantized"):
        table = graph.tensors[blocks.input[0]].astype(np.float32)
        scales = graph.tensors[producers[blocks.input[2]].input[0]].astype(np.float32)
        yield "embeddings.word_embeddings.weight", table * np.repeat(scales, table.shape[1] // scales.shape[1], axis=1)
        break
    else:
        dequantize = graph.of_kind("DequantizeLinear")[0]
        table, scales = (graph.tensors[producers[value].input[0]] for value in dequantize.input[:2])
        yield "embeddings.word_embeddings.weight", table * scales[:, None]
    tables = [graph.tensors.get(node.input[0]) for node in graph.of_kind("Slice")]
    (positions,) = [table for table in tables if table is not None and table.shape[1:] == (dim,)]
    yield "embeddings.position_embeddings.weight", positions
    yield "embeddings.token_type_embeddings.weight", np.zeros((n_types, dim), dtype=np.float32)


def _norm(graph: _ReadGraph, norm: NodeProto, name: str) -> Iterator[tuple[str, Array]]:
    """Yield a LayerNorm multiplied by the scales of its channels."""
    scales = graph.channel_scales(norm)
    for part, value in zip(("weight", "bias"), norm.input[1:3], strict=True):
        yield f"{name}.LayerNorm.{part}", graph.tensors[value] * scales


def _dense(
    graph: _ReadGraph,
    product: NodeProto,
    name: str,
    rows: npt.NDArray[Any] | float,
    *,
    times: float = 1.0,
    with_bias: bool = True,
) -> Iterator[tuple[str, Array]]:
    """Yield the weights of a dense layer: the rows of its matrix multiplied by `rows`, (k,), its bias by `times`."""
    matrix = graph.tensors[product.input[1]].astype(np.float32) * graph.tensors[product.input[3]]
    yield f"{name}.weight", (matrix * np.reshape(rows, (-1, 1))).T
    bias = np.zeros(matrix.shape[1], dtype=np.float32)
    if with_bias and len(product.input) > 6:
        bias = graph.tensors[product.input[6]] * times
    elif with_bias:
        scaled = graph.reader(product.output[0], "Mul")
        bias = graph.tensors[graph.reader(scaled.output[0], "Sum").input[1]] * times
    yield f"{name}.bias", bias
