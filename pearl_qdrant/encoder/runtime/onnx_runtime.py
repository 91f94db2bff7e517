"""Encodes on a CPU with onnxruntime: one graph, several workers, and no torch in the process."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pearl_qdrant.cores import usable_cores
from pearl_qdrant.encoder.batching import BatchEncoder, BatchLimits
from pearl_qdrant.encoder.protocol import BoolArray, Encoded, FloatArray, ModelInfo
from pearl_qdrant.encoder.runtime.onnx_graph import EMBEDDING, TYPE_LOGITS, OnnxGraph
from pearl_qdrant.encoder.tokens import Batch, IntArray, NameTokenizer
from pearl_qdrant.phrase_types import PHRASE_TYPES

MAX_BATCH_TOKENS = 512
"""Larger batches do not fit the cache: per processor second, int8 encodes 1,176 names with 512 and 992 with 2,048."""

MAX_BATCH_NAMES = 256


class OnnxEncoder:
    """An `Encoder` over an ONNX graph. Raises CheckpointError if the graph has other outputs, or fewer embeddings than
    the tokenizer has tokens.

    Args:
        graph: A PEARL graph with outputs for embedding and type logits, or the graph of a plain encoder, whose token
            vectors are pooled here.
        info: Identity of the model.
        never_seen: (95,), labels that get probability 0; None without a trained type head.
        threads: Number of batches that run at once; by default one per core that this process may use.
    """

    def __init__(
        self,
        graph: OnnxGraph,
        tokenizer: NameTokenizer,
        *,
        info: ModelInfo,
        never_seen: BoolArray | None,
        threads: int | None = None,
    ) -> None:
        self._graph = graph
        self._info = info
        is_pearl = never_seen is not None or {EMBEDDING, TYPE_LOGITS} <= graph.outputs.keys()
        if is_pearl:
            graph.check_pearl_outputs(info.dim)
            widths = {EMBEDDING: info.dim, TYPE_LOGITS: len(PHRASE_TYPES)}
        else:
            self._token_output = graph.token_output()
            widths = {self._token_output: info.dim}
        graph.try_out(widths, n_ids=tokenizer.n_ids)
        self._batches = BatchEncoder(
            tokenizer,
            self._run_pearl if is_pearl else self._run_plain,
            dim=info.dim,
            never_seen=never_seen,
            limits=BatchLimits(MAX_BATCH_TOKENS, MAX_BATCH_NAMES, threads or usable_cores()),
        )

    @property
    def info(self) -> ModelInfo:
        """The identity of the model."""
        return self._info

    def encode(self, names: Sequence[str]) -> Encoded:
        """Encode names; see `Encoder.encode`."""
        return self._batches.encode(names)

    def _run_pearl(self, batch: Batch) -> tuple[FloatArray, FloatArray | None]:
        embedding, logits = self._graph.run([EMBEDDING, TYPE_LOGITS], batch)
        return embedding, logits

    def _run_plain(self, batch: Batch) -> tuple[FloatArray, FloatArray | None]:
        (hidden,) = self._graph.run([self._token_output], batch)
        return pool(hidden, batch.attention_mask, pooling=self._info.pooling), None


def pool(hidden: FloatArray, attention_mask: IntArray, *, pooling: str) -> FloatArray:
    """One L2-normalised vector per name. Returns (b, dim).

    Args:
        hidden: Token vectors, (b, t, dim).
        attention_mask: (b, t), 1 for a real token.
        pooling: "mean" over the real tokens, or "cls" for the first token.
    """
    if pooling == "cls":
        pooled = hidden[:, 0]
    else:
        weights = attention_mask.astype(np.float32)
        pooled = np.einsum("btd,bt->bd", hidden, weights) / weights.sum(axis=1, keepdims=True)
    vectors: FloatArray = pooled / np.maximum(np.linalg.norm(pooled, axis=1, keepdims=True), 1e-12)
    return vectors
