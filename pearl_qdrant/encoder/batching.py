"""The part of encoding that both runtimes share: removes duplicates, sorts by length, distributes batches to workers.

Names are tokenised in windows. While the caller's thread tokenises one window, the workers run the batches of the
previous one.
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
"""Names tokenised at once: enough to fill batches of equal length, and few enough for memory."""

MIN_SPLIT_TOKENS = 256
"""Fewer tokens are not split over the workers, because small matrices are slower."""

RunBatch = Callable[[Batch], "tuple[FloatArray, FloatArray | None]"]
"""Runs a batch: returns embeddings, (b, dim), L2-normalised, and type logits, (b, labels), or None."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Limits of a batch.

    Attributes:
        max_tokens: Maximum of the number of names times the longest of them.
        max_names: Maximum number of names.
        workers: Number of batches that run at the same time.
    """

    max_tokens: int
    max_names: int
    workers: int


@dataclass(frozen=True, slots=True)
class _Results:
    """Result arrays of one window: views into those of the whole call. Each row is written by exactly one batch."""

    vectors: FloatArray
    types: FloatArray | None


class BatchEncoder:
    """Runs names through a model in batches. Safe to call from several threads.

    Args:
        run_batch: The model; called from several threads at once if there are several workers.
        dim: Width of the embeddings.
        never_seen: (labels,), true for labels without training examples, which get probability 0; None without a type
            head.
        limits: Limits of a batch.
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
        # Its threads start with the first batch that needs them, and end with this object.
        self._pool = ThreadPoolExecutor(limits.workers, "encode") if limits.workers > 1 else None

    def encode(self, names: Sequence[str]) -> Encoded:
        """Encode names; see `Encoder.encode`."""
        if isinstance(names, (str, bytes)):
            raise TypeError(f"names is a list of names, not one name: pass [{names!r}]")
        texts, inverse = self._tokenizer.distinct(names)
        n = len(texts)
        vectors = np.zeros((n, self._dim), dtype=np.float32)
        encodable = np.zeros(n, dtype=np.bool_)
        types = None
        if self._never_seen is not None:
            # A name that cannot be encoded gets equal probabilities for all types.
            types = np.full((n, len(self._never_seen)), 1 / len(self._never_seen), dtype=np.float32)
        running: list[Future[None]] = []
        try:
            for start in range(0, n, WINDOW_NAMES):
                window = slice(start, start + WINDOW_NAMES)
                token_ids, encodable[window] = self._tokenizer.token_ids(texts[window])
                # Start this window before waiting for the previous one, so that workers are never idle. Windows do not
                # share rows, so no lock is needed.
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
        """Start the batches of a window on the workers; a single batch runs in this thread at once."""
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
        """Run one batch and store its results; if memory does not suffice, run it in halves."""
        try:
            embeddings, logits = self._run_batch(self._tokenizer.batch([token_ids[row] for row in rows]))
        except Exception as error:
            if len(rows) == 1 or not is_out_of_memory(error):
                raise
        else:
            if not np.isfinite(embeddings).all():
                raise ModelError("The model returns vectors that are not finite: weights are damaged. Fetch it again")
            results.vectors[rows] = embeddings
            if results.types is not None and logits is not None and self._never_seen is not None:
                results.types[rows] = softmax(np.where(self._never_seen, np.float32(-np.inf), logits))
            return
        # Outside the except clause, because the error keeps the tensors of the failed batch alive.
        half = len(rows) // 2
        logger.warning("out of memory with a batch of %d names: retrying with %d", len(rows), half)
        self._run(token_ids, rows[:half], results)
        self._run(token_ids, rows[half:], results)


def is_out_of_memory(error: Exception) -> bool:
    """Whether a smaller batch may succeed; onnxruntime and older drivers report it only in the message."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    message = str(error).lower()
    return "out of memory" in message or "failed to allocate memory" in message


def batch_failure(batch: Batch, error: Exception) -> str:
    """The message for a network that cannot run a batch."""
    n_names, n_tokens = batch.input_ids.shape
    return (
        f"cannot run {n_names} names of {n_tokens} tokens up to id {batch.input_ids.max()} ({first_line(error)}). It "
        f"is damaged, or its tokenizer or settings belong to another model. Fetch it again"
    )


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its class if the message is empty."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def softmax(logits: FloatArray) -> FloatArray:
    """Softmax of each row, (n, labels); a logit of -inf gets probability 0."""
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True), dtype=np.float32)
    probabilities: FloatArray = exponentials / exponentials.sum(axis=1, keepdims=True)
    return probabilities


def _wait(futures: Sequence[Future[None]]) -> None:
    """Wait for all, and raise the first error."""
    for future in futures:
        future.result()
