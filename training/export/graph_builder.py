"""The parts of the exported graph: nodes and constants, matrices in 8 bits, the character encoder.

Matrices are quantised from the network only: no text is needed. Three measures keep the error small; mean 1 - cosine to
fp32 of all-MiniLM-L6-v2, all products in 8 bits:

    one scale per column, clipped to minimise the squared error                       0.0032
    input channels scaled by s = max|x|^a / max|w|^(1 - a): x / s, W s                0.0008
    the mean error of a product, mean(x) (W - Q), corrected by the bias               0.0007

The range of a channel is measured on random tokens; real names gave the same scales. Source: SmoothQuant (Xiao et al.
2023), Eq. 4, with the mean error as in Nagel et al. 2019 (DFQ), section 4.2.

The character encoder is that of `pearl_qdrant.encoder.character.network`, with changes that do not change the result:
words are summed, not averaged, since the vector is normalised afterwards; W_p is multiplied into W_o; W_q and W_k are
one matrix. The embeddings of characters and wordpieces are 8-bit with one scale per row. Beside a 6 x 384 encoder in
8 bits it costs 6 % of the names per processor second, and 3.5 MB.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper
from torch import Tensor, nn

from pearl_qdrant.encoder.character.network import MASKED, CharacterEncoder
from pearl_qdrant.encoder.character.table import BEGIN, END, N_MARKS, PAD
from pearl_qdrant.encoder.runtime.torch_runtime import PearlNetwork

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
    """Statistics of the input of a dense layer, by channel."""

    largest: Array  # largest absolute values, (k,)
    mean: Array  # means, (k,)


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
    """Return what to divide input channels by, of largest values (k,), and multiply the rows of a matrix, (k, n), by:
    (k,), with a median of 1.
    """
    weights = np.abs(matrix).max(axis=1)
    scales = np.maximum(largest, 1e-6) ** _ALPHA / np.maximum(weights, 1e-6) ** (1 - _ALPHA)
    result: Array = (scales / np.median(scales)).astype(np.float32)
    return result


def quantize_columns(matrix: Array) -> tuple[npt.NDArray[np.int8], Array]:  # (k, n)
    """Quantise a matrix to int8 values of at most `LEVELS`, with one scale per column. Returns (k, n) int8, and
    (n,).
    """
    largest = np.maximum(np.abs(matrix).max(axis=0), _TINY)
    best, least = largest / LEVELS, np.full(matrix.shape[1], np.inf)
    for clip in _CLIPS:
        scales = largest * clip / LEVELS
        error = ((_rounded(matrix, scales, LEVELS) * scales - matrix) ** 2).sum(axis=0)
        best, least = np.where(error < least, scales, best), np.minimum(error, least)
    return _rounded(matrix, best, LEVELS).astype(np.int8), best.astype(np.float32)


def quantize_rows(table: Array) -> tuple[npt.NDArray[np.int8], Array]:  # (rows, k)
    """Quantise a table to int8 values with one scale per row, without clipping. Returns (rows, k) int8, and (rows,)."""
    scales = np.maximum(np.abs(table).max(axis=1), _TINY) / 127
    return _rounded(table, scales[:, None], 127).astype(np.int8), scales.astype(np.float32)


BLOCK_4BIT = 32
"""Weights of a row that share a half-precision scale in 4 bits: the blocks of llama.cpp's Q4_0."""


def read_blocks(table: Array) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float16]] | None:  # (rows, k)
    """Return a table as the 4-bit blocks that it was unpacked from; None unless these give exactly its weights.

    The weight of the largest absolute value of such a block is -8 times its scale. Returns whole numbers from -8 to 7,
    (rows, k), and scales, (rows, k / 32).
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
    """Adds nodes one by one; equal constants without a name are stored once."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.tensors: list[TensorProto] = []
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def op(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node; returns the name of its output."""
        output = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [output], domain=domain, **attributes))
        return output

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
            self._constants[key] = f"c{len(self._constants)}"
            self.tensors.append(numpy_helper.from_array(array, self._constants[key]))
        return self._constants[key]

    def int4(self, values: npt.NDArray[np.int8]) -> str:
        """Add a constant of 4-bit integers, (rows, k) with k even, from -8 to 7; returns its name."""
        low, high = (values.reshape(-1, 2) & 15).astype(np.uint8).T
        name = f"t{len(self.tensors)}"
        packed = (low | high << 4).tobytes()
        self.tensors.append(TensorProto(name=name, data_type=TensorProto.INT4, dims=values.shape, raw_data=packed))
        return name

    def named(self, name: str, value: Any) -> str:
        """Add a constant with a name by which a reader finds it."""
        self.tensors.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name


TABLE, TABLE_SCALE = "character_encoder.embeddings.weight_int8", "character_encoder.embeddings.weight_scale"
ATTENTION = "character_encoder.query_key"
OUTPUT, OUTPUT_BIAS = "character_encoder.output.weight", "character_encoder.output.bias"
PROJECTION = "character_encoder.projection.weight"

_ALL = np.iinfo(np.int64).max


def add_outputs(graph: GraphBuilder, phrase: str, network: PearlNetwork) -> list[ValueInfoProto]:
    """Add what follows the phrase encoder: the character encoder, if there is one, its embeddings in 8 bits, norm and
    type head. Returns the outputs of the graph.
    """
    assert network.type_head is not None
    head = network.type_head.weight.detach().float().numpy()
    if network.character_encoder is not None:
        phrase = _join_character_encoder(graph, phrase, network.character_encoder)
    graph.nodes.append(helper.make_node("LpNormalization", [phrase], ["embedding"], axis=1, p=2))
    graph.nodes.append(helper.make_node("MatMul", [phrase, graph.floats(head.T)], ["type_logits"]))
    widths = {"embedding": head.shape[1], "type_logits": len(head)}
    return [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", n]) for name, n in widths.items()]


def _join_character_encoder(graph: GraphBuilder, phrase: str, encoder: CharacterEncoder) -> str:
    """Join both parts to the vector f of `PearlNetwork`, (b, phrase_dim + char_dim); the encoder is on the CPU."""
    vector = _Branch(graph, encoder).build()
    share = encoder.config.share
    length = graph.op("ReduceL2", phrase, graph.ints(1), keepdims=1)
    scaled = graph.op("Mul", length, graph.floats((share / (1 - share)) ** 0.5))
    unit = graph.op("LpNormalization", vector, axis=1, p=2)
    return graph.op("Concat", phrase, graph.op("Mul", unit, scaled), axis=1)


class _Branch:
    """Builds the nodes of one character encoder."""

    def __init__(self, graph: GraphBuilder, encoder: CharacterEncoder) -> None:
        self._g = graph
        self._encoder = encoder
        self._config = encoder.config
        self._weights: dict[str, Array] = {name: w.detach().float().numpy() for name, w in encoder.state_dict().items()}

    def build(self) -> str:
        """Add all nodes. Returns v of each phrase before normalisation, (b, char_dim); zero for one without a word."""
        g = self._g
        codes, lengths, rows = self._words(*self._starts())
        vectors = g.op("LpNormalization", self._word_sums(codes, lengths), axis=1, p=2)  # (words, word_dim)
        # One row more than phrases, for the extra word that belongs to none.
        shape = g.op("Concat", g.op("Add", self._batch(), g.ints(1)), g.ints(self._config.word_dim), axis=0)
        zeros = g.op("Expand", g.floats(0.0), shape)
        where = g.op("Unsqueeze", rows, g.ints(1))
        sums = g.op("ScatterND", zeros, where, vectors, reduction="add")
        phrases = g.op("Slice", sums, g.ints(0), g.ints(-1), g.ints(0))
        return g.op("MatMul", phrases, g.named(PROJECTION, self._weights["projection.weight"].T))

    def _batch(self) -> str:
        return self._g.op("Shape", "input_ids", start=0, end=1)  # (1,)

    def _starts(self) -> tuple[str, str]:
        """Return which tokens belong to a word, and which start one."""
        g = self._g
        attended = g.op("Cast", "attention_mask", to=TensorProto.BOOL)
        normal = g.op("Gather", g.constant(~self._encoder.special.numpy()), "input_ids", axis=0)
        real = g.op("And", attended, normal)
        counted = g.op("CumSum", g.op("Cast", real, to=TensorProto.INT32), g.constant(np.int64(1)))
        first = g.op("Equal", counted, g.constant(np.int32(1)))
        begins = g.op("Gather", g.constant(~self._encoder.continuation.numpy()), "input_ids", axis=0)
        return real, g.op("And", real, g.op("Or", begins, first))

    def _words(self, real: str, start: str) -> tuple[str, str, str]:
        """Return the words of the batch, plus one without a phrase, so that no tensor is ever empty: start mark,
        characters, end mark and wordpieces of each, (words, places); its places that are used; the index of its phrase.
        """
        g = self._g
        flat = g.ints(-1)
        at = g.op("NonZero", real)  # (2, tokens)
        row = g.op("Gather", at, g.constant(np.int64(0)), axis=0)
        of_tokens = g.op("Reshape", real, flat)
        ids = g.op("Concat", g.op("Compress", g.op("Reshape", "input_ids", flat), of_tokens), g.ints(0), axis=0)
        rows = g.op("Concat", row, self._batch(), axis=0)
        begins = g.op("Compress", g.op("Reshape", start, flat), of_tokens)
        # The token after the last one of a word starts the next word: starts shifted by one are ends.
        true = g.constant(np.array([True]))
        begins = g.op("Concat", begins, true, axis=0)
        last = g.op("Concat", g.op("Slice", begins, g.ints(1), g.ints(_ALL), g.ints(0)), true, axis=0)
        table = self._encoder.codes.numpy()  # int16 if the alphabet fits
        table = table.astype(np.int16) if table.max() < np.iinfo(np.int16).max else table
        of_token = g.op("Gather", g.constant(table), ids, axis=0)  # (tokens, characters)
        is_character = g.op("Greater", of_token, g.constant(table.dtype.type(PAD)))
        characters = g.op("Compress", g.op("Reshape", of_token, flat), g.op("Reshape", is_character, flat))
        characters = g.op("Concat", g.ints(PAD), g.op("Cast", characters, to=TensorProto.INT64), axis=0)
        n_characters = g.constant((self._encoder.codes != PAD).sum(1).numpy().astype(np.uint8))
        counts = g.op("Cast", g.op("Gather", n_characters, ids, axis=0), to=TensorProto.INT64)
        ends = g.op("Compress", g.op("CumSum", counts, g.constant(np.int64(0))), last)
        piece_ends = g.op("Add", g.op("Squeeze", g.op("NonZero", last), g.ints(0)), g.ints(1))
        return *self._codes(characters, ids, ends, piece_ends), g.op("Compress", rows, last)

    def _codes(self, characters: str, ids: str, character_ends: str, piece_ends: str) -> tuple[str, str]:
        """Return marks, characters and wordpieces of each word, (words, places), and the number of its places."""
        g, config = self._g, self._config
        first, n_characters = self._spans(character_ends, config.max_characters)
        first_piece, n_pieces = self._spans(piece_ends, config.max_pieces)
        lengths = g.op("Squeeze", g.op("Add", g.op("Add", n_characters, n_pieces), g.ints(2)), g.ints(1))
        zero, one = g.constant(np.int64(0)), g.constant(np.int64(1))
        places = g.op("Range", zero, g.op("ReduceMax", lengths, keepdims=0), one)
        place = g.op("Unsqueeze", places, g.ints(0))  # (1, places)
        piece = g.op("Sub", g.op("Sub", place, n_characters), g.ints(2))
        found = self._take(characters, g.op("Add", first, place))
        codes = g.op("Where", g.op("LessOrEqual", place, n_characters), found, g.ints(PAD))
        codes = g.op("Where", g.op("Equal", piece, g.ints(-1)), g.ints(END), codes)
        codes = g.op("Where", g.op("Equal", place, zero), g.ints(BEGIN), codes)
        if not config.max_pieces:
            return codes, lengths
        is_piece = g.op("And", g.op("GreaterOrEqual", piece, zero), g.op("Less", piece, n_pieces))
        rows = self._take(ids, g.op("Max", g.op("Add", first_piece, piece), zero))
        rows = g.op("Add", rows, g.ints(N_MARKS + len(config.alphabet)))
        return g.op("Where", is_piece, rows, codes), lengths

    def _spans(self, ends: str, most: int) -> tuple[str, str]:
        """Return the start of each word and the number of its items that are used, both (words, 1)."""
        g = self._g
        firsts = g.op("Concat", g.ints(0), g.op("Slice", ends, g.ints(0), g.ints(-1), g.ints(0)), axis=0)
        counts = g.op("Min", g.op("Sub", ends, firsts), g.ints(most))
        return g.op("Unsqueeze", firsts, g.ints(1)), g.op("Unsqueeze", counts, g.ints(1))

    def _take(self, values: str, at: str) -> str:
        """Return values[at]; the last value if `at` is past the end."""
        g = self._g
        last = g.op("Sub", g.op("Shape", values), g.ints(1))
        return g.op("Gather", values, g.op("Min", at, last), axis=0)

    def _word_sums(self, codes: str, lengths: str) -> str:
        """Return word vectors before normalisation, (words, word_dim)."""
        g, config = self._g, self._config
        e, a = config.embedding_dim, config.attention_dim
        size = g.op("Shape", codes)
        flat = self._embed(g.op("Reshape", codes, g.ints(-1)))  # (words * places, e)
        x = g.op("Reshape", flat, g.op("Concat", size, g.ints(e), axis=0))
        near = g.op("MatMul", self._near(size, lengths), x)
        real = g.op("Unsqueeze", g.op("Greater", codes, g.ints(PAD)), g.ints(1))  # (words, 1, places)
        mask = g.op("Where", real, g.floats(0.0), g.floats(MASKED))

        # Both matrices of the content attention, (e, 2 a); the first includes the divisor of the scores.
        both = np.concatenate([self._weights["query.weight"] / a**0.25, self._weights["key.weight"]]).T
        pair = g.op("Relu", g.op("MatMul", flat, g.named(ATTENTION, both)))
        query = self._side(pair, size, 0, a)
        key = g.op("Transpose", self._side(pair, size, a, 2 * a), perm=[0, 2, 1])
        alike = g.op("Softmax", g.op("Add", g.op("MatMul", query, key), mask), axis=-1)
        mixed = g.op("Reshape", g.op("Concat", near, g.op("MatMul", alike, x), axis=2), g.ints(-1, 2 * e))
        bias = g.named(OUTPUT_BIAS, self._weights["output.bias"])
        output = self._weights["output.weight"].T
        merged = np.concatenate([self._weights["position.weight"].T @ output[:e], output[e:]])  # [W_p W_o1, W_o2]
        wide = g.op("Relu", g.op("Gemm", mixed, g.named(OUTPUT, merged), bias))
        wide = g.op("Reshape", wide, g.op("Concat", size, g.ints(config.word_dim), axis=0))
        summed = g.op("MatMul", g.op("Cast", real, to=TensorProto.FLOAT), wide)
        return g.op("Squeeze", summed, g.ints(1))

    def _near(self, size: str, lengths: str) -> str:
        """Return the positional attention of each word, (words, places, places); it depends only on its length."""
        g = self._g
        n_places = g.op("Slice", size, g.ints(1), g.ints(2))
        both = g.op("Concat", n_places, n_places, axis=0)
        nearness = g.op("Slice", g.floats(self._encoder.nearness.numpy()), g.ints(0, 0), both)
        # One row per length from 0; places after the length are masked.
        longer = np.tril(np.ones((self._config.max_places + 1, self._config.max_places), dtype=np.float32), -1)
        masks = g.op("Slice", g.floats((longer - 1) * -MASKED), g.ints(0), n_places, g.ints(1))
        every = g.op("Softmax", g.op("Add", nearness, g.op("Unsqueeze", masks, g.ints(1))), axis=-1)
        return g.op("Gather", every, lengths, axis=0)

    def _side(self, pair: str, size: str, begin: int, end: int) -> str:
        """Return queries or keys, (words, places, attention)."""
        g = self._g
        side = g.op("Slice", pair, g.ints(begin), g.ints(end), g.ints(1))
        return g.op("Reshape", side, g.op("Concat", size, g.ints(end - begin), axis=0))

    def _embed(self, codes: str) -> str:
        """Look up rows of the embedding table, (n, e)."""
        g = self._g
        values, scales = quantize_rows(self._weights["embeddings.weight"])
        rows = g.op("Gather", g.named(TABLE, values), codes, axis=0)
        of_rows = g.op("Gather", g.named(TABLE_SCALE, scales), codes, axis=0)
        return g.op("DequantizeLinear", rows, of_rows, axis=0)
