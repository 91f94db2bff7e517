"""The parts of the exported graph: nodes and constants, matrices in 8 bits.

Matrices are quantised from the network only: no text is needed.

Three measures keep the error small; mean 1 - cosine to fp32 of all-MiniLM-L6-v2, all products in 8 bits:

    one scale per column, clipped to minimise the squared error                       0.0032
    input channels scaled by s = max|x|^a / max|w|^(1 - a): x / s, W s                0.0008
    the mean error of a product, mean(x) (W - Q), corrected by the bias               0.0007

A few input channels of a BERT are ten times larger than the others, and the largest one determines the scale of a
token. The range of a channel is measured on random tokens; real names gave the same scales and the same error (0.0008).

Source: SmoothQuant (Xiao et al. 2023), Eq. 4, with the mean error as in Nagel et al. 2019 (DFQ), section 4.2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from onnx import NodeProto, TensorProto, helper, numpy_helper
from torch import Tensor, nn

Array = npt.NDArray[np.float32]

_ALPHA = 0.75
"""Share of the range that moves from activations to weights; 0.5, 0.75 and 1 measured 0.0009, 0.0008 and 0.0013."""

LEVELS = 64
"""Largest absolute value of an 8-bit weight.

Processors without VNNI add two products of a uint8 and an int8 in 16 bits, which saturate: 2 * 255 * 64 = 32,640 fits,
2 * 255 * 127 does not, and vectors would be wrong without any error message (mean cosine 0.9971 in a simulation). The
limit costs 0.001 of the mean cosine.
"""

_CLIPS = np.linspace(0.6, 1.0, 21)
_PROBE = (256, 8)
_TINY = 1e-12


@dataclass(frozen=True, slots=True)
class Channels:
    """Statistics of the input of a dense layer, by channel.

    Attributes:
        largest: Largest absolute values, (k,).
        mean: Means, (k,).
    """

    largest: Array
    mean: Array


def probe_inputs(encoder: nn.Module) -> dict[str, Channels]:
    """Measure the inputs of every dense layer of a BERT on the CPU, by its name, on random tokens; deterministic."""
    config: Any = encoder.config
    shape = _PROBE[0], min(_PROBE[1], config.max_position_embeddings)
    ids = torch.randint(0, config.vocab_size, shape, generator=torch.Generator().manual_seed(0))
    seen: dict[str, Channels] = {}

    def observe(name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def record(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            rows = inputs[0].flatten(0, -2)
            seen[name] = Channels(rows.abs().amax(0).numpy(), rows.mean(0).numpy())

        return record

    layers = [(name, module) for name, module in encoder.named_modules() if isinstance(module, nn.Linear)]
    hooks = [module.register_forward_pre_hook(observe(name)) for name, module in layers]
    was_training = encoder.training
    try:
        with torch.inference_mode():
            encoder.eval()(input_ids=ids, attention_mask=torch.ones_like(ids))
    finally:
        encoder.train(was_training)
        for hook in hooks:
            hook.remove()
    return seen


def channel_scales(largest: Array, matrix: Array) -> Array:
    """Return the factors by which to divide the input channels of a product and to multiply the rows of its matrix.
    Returns (k,), with a median of 1.

    Args:
        largest: Largest absolute value of each channel, (k,).
        matrix: (k, n).
    """
    weights = np.abs(matrix).max(axis=1)
    scales = np.maximum(largest, 1e-6) ** _ALPHA / np.maximum(weights, 1e-6) ** (1 - _ALPHA)
    result: Array = (scales / np.median(scales)).astype(np.float32)
    return result


def quantize_columns(matrix: Array) -> tuple[npt.NDArray[np.int8], Array]:
    """Quantise a matrix to int8 values of at most `LEVELS`, with one scale per column. Returns (k, n) int8, and (n,).

    Args:
        matrix: (k, n).
    """
    largest = np.maximum(np.abs(matrix).max(axis=0), _TINY)
    best, least = largest / LEVELS, np.full(matrix.shape[1], np.inf)
    for clip in _CLIPS:
        scales = largest * clip / LEVELS
        error = ((_rounded(matrix, scales, LEVELS) * scales - matrix) ** 2).sum(axis=0)
        best, least = np.where(error < least, scales, best), np.minimum(error, least)
    return _rounded(matrix, best, LEVELS).astype(np.int8), best.astype(np.float32)


def quantize_rows(table: Array) -> tuple[npt.NDArray[np.int8], Array]:
    """Quantise a table to int8 values with one scale per row, without clipping. Returns (rows, k) int8, and (rows,).

    Args:
        table: (rows, k).
    """
    scales = np.maximum(np.abs(table).max(axis=1), _TINY) / 127
    return _rounded(table, scales[:, None], 127).astype(np.int8), scales.astype(np.float32)


BLOCK_4BIT = 32
"""Weights of a row that share a half-precision scale in 4 bits: the blocks of llama.cpp's Q4_0."""


def read_blocks(table: Array) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float16]] | None:
    """Return a table as the 4-bit blocks that it was unpacked from; None unless these give exactly its weights.

    The weight of the largest absolute value of such a block is -8 times its scale. Returns whole numbers from -8 to 7,
    (rows, k), and scales, (rows, k / 32).

    Args:
        table: (rows, k).
    """
    rows, width = table.shape
    if width % BLOCK_4BIT:
        return None
    blocks = table.reshape(rows, -1, BLOCK_4BIT)
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=2, keepdims=True), axis=2)
    scales = (largest / -8).astype(np.float16)
    whole = np.rint(blocks / np.where(scales, scales, 1).astype(np.float32))
    if np.abs(whole + 0.5).max(initial=0) > 8 or not np.array_equal(whole * scales.astype(np.float32), blocks):
        return None
    return whole.astype(np.int8).reshape(table.shape), scales[..., 0]


def _rounded(values: Array, scales: Array, levels: int) -> Array:
    """Round to whole numbers from -levels to levels."""
    result: Array = np.clip(np.rint(values / scales), -levels, levels)
    return result


OPSET = 18
IR_VERSION = 9  # readable by onnxruntime 1.17 and later
FUSED = "com.microsoft"


class GraphBuilder:
    """Adds nodes one by one, whose names get a prefix; equal constants without a name are stored once."""

    def __init__(self, prefix: str = "") -> None:
        self.nodes: list[NodeProto] = []
        self.tensors: list[TensorProto] = []
        self._prefix = prefix
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def op(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node; returns the name of its output."""
        output = f"{self._prefix}v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [output], domain=domain, **attributes))
        return output

    def output(self, kind: str, *inputs: str, name: str, **attributes: Any) -> None:
        """Add a node whose result is an output of the graph."""
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))

    def ints(self, *values: int) -> str:
        """Add a constant of int64, (n,); returns its name."""
        return self.constant(np.array(values, dtype=np.int64))

    def floats(self, values: Any) -> str:
        """Add a constant of float32; returns its name."""
        return self.constant(np.asarray(values, dtype=np.float32))

    def constant(self, value: Any) -> str:
        """Add a constant; returns its name."""
        array = np.ascontiguousarray(value).reshape(np.shape(value))
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = f"{self._prefix}c{len(self._constants)}"
            self.tensors.append(numpy_helper.from_array(array, self._constants[key]))
        return self._constants[key]

    def int4(self, values: npt.NDArray[np.int8]) -> str:
        """Add a constant of 4-bit integers, (rows, k) with k even, from -8 to 7; returns its name."""
        low, high = (values.reshape(-1, 2) & 15).astype(np.uint8).T
        name = f"{self._prefix}t{len(self.tensors)}"
        packed = (low | high << 4).tobytes()
        self.tensors.append(TensorProto(name=name, data_type=TensorProto.INT4, dims=values.shape, raw_data=packed))
        return name
