"""A BERT-like network as one ONNX graph whose matrices are multiplied in 8-bit integers.

    x      activations of a token, (k,)        s = max|x| / 127        q = round(x / s) + 128     uint8
    W      matrix (k, n)                       S_j = clip_j / 64       Q = round(W / S)           int8
    x W  ~ s * S * ((q - 128) Q)

Each token has its own scale s and each column of a matrix its own S, so that a vector does not depend on its batch
(a scale for the whole tensor would make it). What GELU gives is never below -0.17: its zero point is 16, not 128.
How the matrices are rounded stands in `training.int8_weights`.

The operators around the products can take back what the integers gain, so each was timed (AVX512-VNNI, onnxruntime
1.31, one thread, 512 tokens, widths 384 and 1536, microseconds):

    SkipLayerNormalization        1400      MultiHeadAttention, mask and bias     2760      BiasGelu      1700
    Sum, LayerNormalization        270      Transposes, MatMuls, Add, Softmax      790      Sum, Gelu      900

Hence Sum where Add would do: the optimizer fuses Add into the slow ones. The keys have no bias: it adds the same to
all scores of a token, and softmax does not see it.

Measured with all-MiniLM-L6-v2, batches of 256 tokens: 2.2 times the names per processor second of fp32, a quarter of
the size, mean cosine to fp32 0.998. Larger batches leave the cache and gain less.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper, save

from pearl_qdrant.encoder.network import PearlNetwork
from training.int8_weights import Array, Channels, channel_scales, probe_inputs, quantize_columns, quantize_rows

PRECISION = "int8-row"

OPSET = 18
_IR_VERSION = 9  # what onnxruntime 1.17 and later read
_FUSED = "com.microsoft"
_MASKED = -10_000.0
_MIDDLE = 128
_GELU_ZERO = 16
_GELU_LEAST = 0.17  # the minimum of GELU is -0.16997


def write_int8_graph(network: PearlNetwork, path: Path) -> None:
    """Write the graph: input_ids, attention_mask (b, t) int64 -> embedding (b, dim), type_logits (b, 95).

    Args:
        network: With a type head, on a BERT-like phrase encoder, on the CPU.
        path: The .onnx file to write.

    Raises:
        ValueError: If there is no head, or the encoder is not a BERT with GELU: use `training.export.quantize_onnx`.
    """
    encoder: Any = network.phrase_encoder
    config = encoder.config
    if network.type_head is None:
        raise ValueError("only a network with a type head is exported: train one first")
    positions = getattr(config, "position_embedding_type", "absolute")
    if config.model_type != "bert" or config.hidden_act != "gelu" or positions != "absolute":
        raise ValueError(
            f"int8 graphs are for BERT with gelu and absolute positions, not {config.model_type} with "
            f"{config.hidden_act} and {positions} positions: take training.export.quantize_onnx"
        )
    weights = {name: tensor.detach().numpy() for name, tensor in encoder.state_dict().items()}
    head = network.type_head.weight.detach().numpy()
    path.parent.mkdir(parents=True, exist_ok=True)
    save(_Graph(weights, config, probe_inputs(encoder)).build(head, pooling=network.pooling), str(path))


@dataclass(frozen=True, slots=True)
class _Hidden:
    """A hidden state divided by its channels' scales: the value's name, (b * t, dim), and the scales, (dim,)."""

    value: str
    scales: Array


@dataclass(frozen=True, slots=True)
class _Rows:
    """Quantised activations: names of the uint8 rows, (b * t, k), and their scales, (b * t, 1), and the zero point."""

    value: str
    scale: str
    zero: int


class _Graph:
    """The nodes and constants of a graph under construction; equal constants are kept once."""

    def __init__(self, weights: dict[str, Array], config: Any, inputs: dict[str, Channels]) -> None:
        self._weights = weights
        self._inputs = inputs
        self._dim: int = config.hidden_size
        self._n_heads: int = config.num_attention_heads
        self._n_layers: int = config.num_hidden_layers
        self._epsilon: float = config.layer_norm_eps
        self._nodes: list[NodeProto] = []
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._tensors: list[TensorProto] = []
        self._zeros: dict[int, str] = {}

    def build(self, head: Array, *, pooling: str) -> ModelProto:
        """The whole graph. Hidden states are kept as (b * t, dim); only attention needs (b, t, dim)."""
        size = self._op("Shape", "input_ids")
        self._by_token = self._op("Concat", size, self._ints(self._dim), axis=0)  # (b, t, dim)
        self._by_head = self._op("Concat", size, self._ints(self._n_heads, self._dim // self._n_heads), axis=0)
        padding = self._op("Sub", self._floats(1.0), self._op("Cast", "attention_mask", to=TensorProto.FLOAT))
        mask = self._op("Unsqueeze", self._op("Mul", padding, self._floats(_MASKED)), self._ints(1, 2))  # (b, 1, 1, t)
        hidden = self._embed(size)
        for i in range(self._n_layers):
            hidden = self._attend(i, hidden, mask)
            hidden = self._feed_forward(i, hidden)
        pooled = self._pool(self._op("Reshape", hidden.value, self._by_token), pooling)
        self._nodes.append(helper.make_node("LpNormalization", [pooled], ["embedding"], axis=1, p=2))
        self._nodes.append(helper.make_node("MatMul", [pooled, self._floats(head.T)], ["type_logits"]))
        value = helper.make_tensor_value_info
        outputs = {"embedding": self._dim, "type_logits": len(head)}
        graph = helper.make_graph(
            self._nodes,
            "pearl",
            [value(name, TensorProto.INT64, ["batch", "tokens"]) for name in ("input_ids", "attention_mask")],
            [value(name, TensorProto.FLOAT, ["batch", width]) for name, width in outputs.items()],
            self._tensors,
        )
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(_FUSED, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)

    def _embed(self, size: str) -> _Hidden:
        """Word, position and type embeddings. The word table is 8-bit, one scale a row."""
        ids = self._op("Reshape", "input_ids", self._ints(-1))
        table, scales = quantize_rows(self._weights["embeddings.word_embeddings.weight"])
        row = self._op("Gather", self._constant(table), ids, axis=0)
        words = self._op("DequantizeLinear", row, self._op("Gather", self._floats(scales), ids, axis=0), axis=0)
        # Every token is of type 0: its row joins the positions.
        types = self._weights["embeddings.token_type_embeddings.weight"][0]
        positions = self._floats(self._weights["embeddings.position_embeddings.weight"] + types)
        n_tokens = self._op("Slice", size, self._ints(1), self._ints(2))
        used = self._op("Slice", positions, self._ints(0), n_tokens)
        summed = self._op("Sum", self._op("Reshape", words, self._by_token), used)
        rows = self._op("Reshape", summed, self._ints(-1, self._dim))
        return self._norm("embeddings", rows, self._attention_readers(0))

    def _attend(self, i: int, hidden: _Hidden, mask: str) -> _Hidden:
        """The self-attention of a layer, its output matrix and the LayerNorm after it."""
        name = f"encoder.layer.{i}.attention"
        rows = self._quantize(hidden.value)
        root = float(np.sqrt(self._dim // self._n_heads))
        query = self._sum(*self._dense(rows, f"{name}.self.query", hidden.scales, divide=root))
        key, _ = self._dense(rows, f"{name}.self.key", hidden.scales)
        value = self._sum(*self._dense(rows, f"{name}.self.value", hidden.scales))
        scores = self._op("MatMul", self._heads(query, 0, 2, 1, 3), self._heads(key, 0, 2, 3, 1))
        shares = self._op("Softmax", self._op("Add", scores, mask), axis=-1)  # (b, heads, t, t)
        mixed = self._op("MatMul", shares, self._heads(value, 0, 2, 1, 3))
        joined = self._op("Reshape", self._op("Transpose", mixed, perm=[0, 2, 1, 3]), self._ints(-1, self._dim))
        attended, bias = self._dense(self._quantize(joined), f"{name}.output.dense")
        readers = [f"encoder.layer.{i}.intermediate.dense"]
        return self._norm(f"{name}.output", self._sum(attended, bias, self._unscaled(hidden)), readers)

    def _feed_forward(self, i: int, hidden: _Hidden) -> _Hidden:
        """The two dense layers of a layer and the LayerNorm after them."""
        name = f"encoder.layer.{i}"
        inner = self._sum(*self._dense(self._quantize(hidden.value), f"{name}.intermediate.dense", hidden.scales))
        rows = self._quantize(self._op("Gelu", inner, domain=_FUSED), after_gelu=True)
        outer, bias = self._dense(rows, f"{name}.output.dense")
        return self._norm(
            f"{name}.output", self._sum(outer, bias, self._unscaled(hidden)), self._attention_readers(i + 1)
        )

    def _attention_readers(self, i: int) -> list[str]:
        """The dense layers that read the input of layer i; none after the last."""
        parts = ("query", "key", "value") if i < self._n_layers else ()
        return [f"encoder.layer.{i}.attention.self.{part}" for part in parts]

    def _norm(self, name: str, x: str, readers: list[str]) -> _Hidden:
        """LayerNorm, then division by the channel scales of those that read it: one operator."""
        scales = np.ones(self._dim, dtype=np.float32)
        if readers:
            matrix = np.concatenate([self._matrix(reader) for reader in readers], axis=1)
            scales = channel_scales(self._inputs[readers[0]].largest, matrix)
        parts = [self._weights[f"{name}.LayerNorm.{part}"] / scales for part in ("weight", "bias")]
        normed = self._op("LayerNormalization", x, *map(self._floats, parts), axis=-1, epsilon=self._epsilon)
        return _Hidden(normed, scales)

    def _unscaled(self, hidden: _Hidden) -> str:
        """The hidden state itself, for the way around a layer."""
        return self._op("Mul", hidden.value, self._floats(hidden.scales))

    def _heads(self, x: str, *order: int) -> str:
        """(b * t, dim) to (b, t, heads, width), then that order of axes."""
        return self._op("Transpose", self._op("Reshape", x, self._by_head), perm=list(order))

    def _quantize(self, x: str, *, after_gelu: bool = False) -> _Rows:
        """A scale for each row, from its largest value."""
        zero = _GELU_ZERO if after_gelu else _MIDDLE
        sizes = x if after_gelu else self._op("Abs", x)
        # Below the floor, GELU's least value would not fit; without GELU it only keeps a row of zeros from 0 / 0.
        floor = _GELU_LEAST / zero if after_gelu else 1e-9
        largest = self._op("ReduceMax", sizes, self._ints(-1), keepdims=0)
        # 255 - 16 steps above the zero point; 127, as many as below, where values have both signs.
        steps = self._floats(1 / (255 - zero))
        scale = self._op("Max", self._op("Mul", largest, steps), self._floats(floor))
        if zero not in self._zeros:
            self._zeros[zero] = self._op("Expand", self._constant(np.uint8(zero)), self._op("Shape", scale))
        rows = self._op("QuantizeLinear", x, scale, self._zeros[zero], axis=0)
        return _Rows(rows, self._op("Unsqueeze", scale, self._ints(-1)), zero)

    def _dense(self, rows: _Rows, name: str, scales: Array | None = None, *, divide: float = 1.0) -> tuple[str, Array]:
        """Rows times the matrix of a dense layer, and the bias that is to be added.

        Args:
            rows: The layer's input, divided by `scales` before it was quantised.
            name: The layer.
            scales: (k,), by default 1.
            divide: The result is divided by this.
        """
        if scales is None:
            scales = np.ones(len(self._inputs[name].mean), dtype=np.float32)
        exact = self._matrix(name) * scales[:, None] / divide
        matrix, columns = quantize_columns(exact)
        product = self._op(
            "MatMulIntegerToFloat",
            rows.value,
            self._constant(matrix),
            self._floats(1.0),
            self._floats(columns),
            self._constant(np.uint8(rows.zero)),
            domain=_FUSED,
        )
        lost: Array = (self._inputs[name].mean / scales) @ (exact - matrix * columns)
        return self._op("Mul", product, rows.scale), self._weights[f"{name}.bias"] / divide + lost

    def _sum(self, x: str, bias: Array, *others: str) -> str:
        # Not Add, which the optimizer fuses with what follows.
        return self._op("Sum", x, self._floats(bias), *others)

    def _pool(self, hidden: str, pooling: str) -> str:
        """(b, t, dim) to (b, dim)."""
        if pooling == "cls":
            return self._op("Gather", hidden, self._constant(np.int64(0)), axis=1)
        mask = self._op("Cast", "attention_mask", to=TensorProto.FLOAT)
        count = self._op("Max", self._op("ReduceSum", mask, self._ints(1), keepdims=1), self._floats(1.0))
        shares = self._op("Unsqueeze", self._op("Div", mask, count), self._ints(1))
        return self._op("Squeeze", self._op("MatMul", shares, hidden), self._ints(1))

    def _matrix(self, name: str) -> Array:
        """The matrix of a dense layer, (k, n)."""
        transposed: Array = self._weights[f"{name}.weight"].T
        return transposed

    def _op(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node; the name of its output."""
        output = f"v{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, list(inputs), [output], domain=domain, **attributes))
        return output

    def _ints(self, *values: int) -> str:
        return self._constant(np.array(values, dtype=np.int64))

    def _floats(self, values: Any) -> str:
        return self._constant(np.asarray(values, dtype=np.float32))

    def _constant(self, value: Any) -> str:
        """The name of a constant."""
        array = np.ascontiguousarray(value).reshape(np.shape(value))
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = f"c{len(self._constants)}"
            self._tensors.append(numpy_helper.from_array(array, self._constants[key]))
        return self._constants[key]
