"""The part of encoding that both runtimes share: distinct names, length buckets, workers, results in place.

Names are tokenised window by window; while the caller's thread tokenises one, the workers run the batches of the
window before it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from pearl_qdrant.encoder.protocol import BoolArray, Encoded, FloatArray
from pearl_qdrant.encoder.tokens import Batch, IntArray, NameTokenizer, plan_batches
from pearl_qdrant.errors import ModelError

logger = logging.getLogger(__name__)

WINDOW_NAMES = 8192
"""Names tokenised at once: enough for full length buckets, little enough for memory."""

MIN_SPLIT_TOKENS = 256
"""Fewer tokens than this are not split over the workers: small matrices are slower."""

RunBatch = Callable[[Batch], "tuple[FloatArray, FloatArray | None]"]
"""A batch to embeddings (b, dim), L2-normalised, and type logits (b, labels) or None."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Bounds of a batch.

    Attributes:
        max_tokens: Names times the longest of them.
        max_names: Names.
        workers: Batches that run at the same time.
    """

    max_tokens: int
    max_names: int
    workers: int


@dataclass(frozen=True, slots=True)
class _Results:
    """Where the results of a window's texts go: views, each row written by one batch."""

    vectors: FloatArray
    types: FloatArray | None


class BatchEncoder:
    """Runs names through a model in batches. Safe to call from several threads.

    Args:
        tokenizer: The model's tokenizer.
        run_batch: The model; called from several threads at once if there are several workers.
        dim: Width of the embeddings.
        never_seen: (labels,), true for labels without a training example, which get probability 0; None without
            a type head.
        limits: Bounds of a batch.
    """

    def __init__(
        self,
        tokenizer: NameTokenizer,
        run_batch: RunBatch,
        *,
        dim: int,
        never_seen: BoolArray | None,
        limits: BatchLimits,
    ) -> None:
        self._tokenizer = tokenizer
        self._run_batch = run_batch
        self._dim = dim
        self._never_seen = never_seen
        self._limits = limits
        # Threads start with the first batch that needs them and end with this object.
        self._pool = ThreadPoolExecutor(limits.workers, "encode") if limits.workers > 1 else None

    def encode(self, names: Sequence[str]) -> Encoded:
        """Encode names; see `Encoder.encode`."""
        if isinstance(names, (str, bytes)):
            raise TypeError(f"names is a list of names, not one: write [{names!r}]")
        texts, inverse = self._tokenizer.distinct(names)
        n = len(texts)
        vectors = np.zeros((n, self._dim), dtype=np.float32)
        encodable = np.zeros(n, dtype=np.bool_)
        types = None
        if self._never_seen is not None:
            # A name that the model cannot see may be of any type.
            types = np.full((n, len(self._never_seen)), 1 / len(self._never_seen), dtype=np.float32)
        running: list[Future[None]] = []
        try:
            for start in range(0, n, WINDOW_NAMES):
                window = slice(start, start + WINDOW_NAMES)
                token_ids, encodable[window] = self._tokenizer.token_ids(texts[window])
                results = _Results(vectors[window], None if types is None else types[window])
                earlier, running = running, self._start(token_ids, np.flatnonzero(encodable[window]), results)
                _wait(earlier)
            _wait(running)
        finally:
            for future in running:
                future.cancel()
        if n < len(names):
            return Encoded(vectors[inverse], encodable[inverse], None if types is None else types[inverse])
        return Encoded(vectors, encodable, types)

    def _start(self, token_ids: list[list[int]], rows: IntArray, results: _Results) -> list[Future[None]]:
        """Run a window's batches: by the workers, or here if it is one."""
        lengths = np.fromiter((len(token_ids[row]) for row in rows), dtype=np.int64, count=len(rows))
        share = -(-int(lengths.sum()) // self._limits.workers)
        max_tokens = min(self._limits.max_tokens, max(share, MIN_SPLIT_TOKENS))
        plans = [rows[plan] for plan in plan_batches(lengths, max_tokens=max_tokens, max_names=self._limits.max_names)]
        if self._pool is None or len(plans) == 1:
            for plan in plans:
                self._run(token_ids, plan, results)
            return []
        return [self._pool.submit(self._run, token_ids, plan, results) for plan in plans]

    def _run(self, token_ids: list[list[int]], rows: IntArray, results: _Results) -> None:
        """Run the batch of these rows and put its results there; in halves where memory does not suffice."""
        try:
            embeddings, logits = self._run_batch(self._tokenizer.batch([token_ids[row] for row in rows]))
        except Exception as error:
            if len(rows) == 1 or not is_out_of_memory(error):
                raise
        else:
            if not np.isfinite(embeddings).all():
                raise ModelError("The model gives vectors that are no numbers: its weights are damaged. Fetch it again")
            results.vectors[rows] = embeddings
            if results.types is not None and logits is not None and self._never_seen is not None:
                results.types[rows] = softmax(np.where(self._never_seen, np.float32(-np.inf), logits))
            return
        # Outside the except clause: the error holds on to the tensors of the batch that failed.
        half = len(rows) // 2
        logger.warning("out of memory with a batch of %d names: trying %d", len(rows), half)
        self._run(token_ids, rows[:half], results)
        self._run(token_ids, rows[half:], results)


def is_out_of_memory(error: Exception) -> bool:
    """Whether a smaller batch may do; onnxruntime and older drivers say so only in words."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    words = str(error).lower()
    return "out of memory" in words or "failed to allocate memory" in words


def does_not_run(batch: Batch, error: Exception) -> str:
    """What to say of a network that cannot take a batch."""
    n_names, n_tokens = batch.input_ids.shape
    return (
        f"cannot run {n_names} names of {n_tokens} tokens up to id {batch.input_ids.max()} ({first_line(error)}). It "
        f"is damaged, or its tokenizer or settings are another model's. Fetch it again"
    )


def first_line(error: BaseException) -> str:
    """The first line of what an error says, or its class if it says nothing."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def softmax(logits: FloatArray) -> FloatArray:
    """Rows of probabilities, (n, labels); a logit of -inf has probability 0."""
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True), dtype=np.float32)
    probabilities: FloatArray = exponentials / exponentials.sum(axis=1, keepdims=True)
    return probabilities


def _wait(futures: Sequence[Future[None]]) -> None:
    """Wait for all; raise the first error."""
    for future in futures:
        future.result()
