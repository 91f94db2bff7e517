"""Encodes on a CPU with onnxruntime: one graph, many small batches at once, and no torch in the process.

Each batch runs on one thread (intra_op_num_threads=1), and several batches run at once in one session. This gave 1.35
times the names per second of processor time of batches that run one after another over two threads (6 x 384 model,
2 cores): short names are small matrices, and waiting for each other at every operator costs more than it saves. A
single name is faster too (5 against 7.6 ms). Spinning is off, so that idle workers use no processor time. The memory
arena gives 1.1 times the names with batches of 512 tokens and takes 48 MB; without it malloc keeps 145 MB of freed
blocks.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from pearl_qdrant.encoder.batching import (
    Batch,
    BatchEncoder,
    BatchLimits,
    IntArray,
    NameTokenizer,
    batch_failure,
    first_line,
    is_out_of_memory,
    shared,
)
from pearl_qdrant.encoder.protocol import BoolArray, FloatArray, ModelInfo
from pearl_qdrant.errors import CheckpointError
from pearl_qdrant.phrase_types import PHRASE_TYPES
from pearl_qdrant.settings import usable_cores

EMBEDDING = "embedding"
TYPE_LOGITS = "type_logits"
WORDS = "words"
MOST_WORDS = 16_384  # Word embeddings that are kept of a graph: 25 MB of 384 dimensions
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def open_session(path: Path) -> Any:
    """Open a graph for one thread. Raises CheckpointError if it is not an ONNX graph, truncated, or has operators that
    this onnxruntime does not support.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    options.enable_mem_pattern = False
    options.log_severity_level = 3  # errors only: warnings are for the author of the graph
    try:
        # No fallback: there is no other provider, and onnxruntime prints a fallback to stdout, which is for data.
        return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"], enable_fallback=0)
    except Exception as error:  # the errors of onnxruntime have no common base class
        raise CheckpointError(
            str(path),
            f"not an ONNX graph that onnxruntime {ort.__version__} can load ({first_line(error)}). Fetch it again",
        ) from error


class OnnxGraph:
    """A loaded graph. Its `run` may be called from several threads at once. Raises CheckpointError as `open_session`,
    or if its inputs are others than int64 input_ids, attention_mask and token_type_ids.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._session = open_session(path)
        self._words: dict[int, FloatArray] = {}
        self._looking = threading.Lock()
        inputs = {graph_input.name: graph_input.type for graph_input in self._session.get_inputs()}
        is_unexpected = any(name not in _INPUTS or kind != "tensor(int64)" for name, kind in inputs.items())
        if is_unexpected or not {*_INPUTS[:2]} <= inputs.keys():
            got = ", ".join(f"{name} {kind}" for name, kind in inputs.items())
            raise CheckpointError(str(path), f"its inputs are {got}; expected are int64 input_ids and attention_mask")
        self._with_token_types = "token_type_ids" in inputs
        self.outputs: dict[str, list[Any]] = {output.name: list(output.shape) for output in self._session.get_outputs()}

    def run(self, outputs: list[str], batch: Batch) -> list[FloatArray]:
        """Compute the named outputs for a batch. Raises CheckpointError if the graph cannot run it."""
        feed = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
        if self._with_token_types:
            feed["token_type_ids"] = np.zeros_like(batch.input_ids)
        try:
            results: list[FloatArray] = self._session.run(outputs, feed)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            raise CheckpointError(str(self.path), batch_failure(batch, error)) from error
        return results

    def look_up(self, ids: IntArray) -> FloatArray:
        """The word embeddings of tokens, (b, t) to (b, t, dim), of a graph with the output `words`. onnxruntime runs
        all of the graph for them, so that each token is computed once; up to `MOST_WORDS` are kept.
        """
        distinct, places = np.unique(ids, return_inverse=True)
        with self._looking:
            new = [token for token in distinct.tolist() if token not in self._words]
            if len(self._words) + len(new) > MOST_WORDS:
                self._words.clear()
                new = distinct.tolist()
            if new:
                alone = np.array(new, np.int64)[:, None]
                rows = self.run([WORDS], Batch(alone, np.ones_like(alone)))[0]
                self._words.update(zip(new, rows.reshape(len(new), -1), strict=True))
            table = np.stack([self._words[token] for token in distinct.tolist()])
        found: FloatArray = table[places.reshape(-1)]
        return found.reshape(*ids.shape, -1)

    def check_pearl_outputs(self, dim: int) -> None:
        """Raise a CheckpointError unless the outputs are `embedding` (b, dim) and `type_logits` (b, 95)."""
        for name, width in ((EMBEDDING, dim), (TYPE_LOGITS, len(PHRASE_TYPES))):
            shape = self.outputs.get(name)
            if shape is None:
                raise CheckpointError(str(self.path), f"has no output '{name}' (there are: {', '.join(self.outputs)})")
            if len(shape) != 2 or (isinstance(shape[1], int) and shape[1] != width):
                raise CheckpointError(str(self.path), f"output '{name}' has shape {shape}, (batch, {width}) expected")

    def token_output(self) -> str:
        """Name of the output with token vectors, (b, t, dim). Raises CheckpointError if there is none."""
        for name, shape in self.outputs.items():
            if len(shape) == 3:
                return name
        shapes = ", ".join(f"{name} {shape}" for name, shape in self.outputs.items())
        raise CheckpointError(str(self.path), f"has no output of token vectors (batch, tokens, dim), only: {shapes}")


@shared
def shared_graph(path: Path) -> OnnxGraph:
    """The graph of a file: one for all that use it at the same time."""
    return OnnxGraph(path)


MAX_BATCH_TOKENS, MAX_BATCH_NAMES = 512, 256
"""Larger batches do not fit the cache: per processor second, int8 encodes 1,176 names with 512 and 992 with 2,048."""


def onnx_encoder(
    path: Path,
    tokenizer: NameTokenizer,
    *,
    info: ModelInfo,
    never_seen: BoolArray | None,
    threads: int | None,
) -> BatchEncoder:
    """An encoder over a PEARL graph with outputs for embedding and type logits; or over the graph of a plain encoder,
    whose token vectors are pooled here, and whose width is not in `info`. Raises CheckpointError as `OnnxGraph` does,
    if the graph has other outputs, or fewer embeddings than the tokenizer has tokens.

    Labels that were never seen, (95,), get probability 0; None without a trained type head. `threads` batches run at
    once, by default one per core that this process may use.
    """
    graph = shared_graph(path)
    is_pearl = info.dim > 0 and (never_seen is not None or {EMBEDDING, TYPE_LOGITS} <= graph.outputs.keys())
    if is_pearl:
        graph.check_pearl_outputs(info.dim)
    outputs = [EMBEDDING, TYPE_LOGITS] if is_pearl else [graph.token_output()]
    # The last token of the vocabulary refuses a tokenizer with more tokens than the graph has embeddings.
    last = np.full((1, 1), tokenizer.n_ids - 1, dtype=np.int64)
    widths = [found.shape[-1] for found in graph.run(outputs, Batch(last, np.ones_like(last)))]
    info = info if info.dim else replace(info, dim=widths[0])
    for name, width, expected in zip(outputs, widths, (info.dim, len(PHRASE_TYPES)), strict=False):
        if width != expected:
            raise CheckpointError(str(path), f"output '{name}' is {width} wide, {expected} expected")

    def run(batch: Batch) -> tuple[FloatArray, FloatArray | None]:
        found = graph.run(outputs, batch)
        return (found[0], found[1]) if is_pearl else (pool(found[0], batch.attention_mask, pooling=info.pooling), None)

    limits = BatchLimits(MAX_BATCH_TOKENS, MAX_BATCH_NAMES, threads or usable_cores())
    return BatchEncoder(tokenizer, run, info=info, never_seen=never_seen, limits=limits)


def pool(hidden: FloatArray, attention_mask: IntArray, *, pooling: str) -> FloatArray:
    """One L2-normalised vector per name, (b, dim), of its token vectors, (b, t, dim), and their mask, (b, t).

    It is their mean over the real tokens, or the first one ("cls").
    """
    if pooling == "cls":
        pooled = hidden[:, 0]
    else:
        weights = attention_mask.astype(np.float32)
        pooled = np.einsum("btd,bt->bd", hidden, weights) / weights.sum(axis=1, keepdims=True)
    vectors: FloatArray = pooled / np.maximum(np.linalg.norm(pooled, axis=1, keepdims=True), 1e-12)
    return vectors
