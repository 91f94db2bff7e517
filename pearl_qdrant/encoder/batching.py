"""The part of encoding that both runtimes share: removes duplicates, sorts by length, distributes batches to workers.

Names are tokenised in windows. While the caller's thread tokenises one window, the workers run the batches of the
previous one.
"""

from __future__ import annotations

import logging
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Concatenate, NamedTuple, ParamSpec, TypeVar
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from pearl_qdrant.encoder.json_files import read_json
from pearl_qdrant.encoder.protocol import BoolArray, Encoded, FloatArray, ModelInfo
from pearl_qdrant.errors import CheckpointError, ModelError
from pearl_qdrant.lexical.words import usual_case
from pearl_qdrant.pieces import pausing

IntArray = npt.NDArray[np.int64]

T = TypeVar("T")
P = ParamSpec("P")

CHARACTERS_PER_TOKEN = 16
"""A name is cut at this many characters per token of the maximum length: 1,024 for 64 tokens. Names have four to six
characters per token, so the model would not read the rest anyway; cutting saves tokenising it."""

_UNK_ID = re.compile(rb'(?<!\\)"unk_id"\s*:\s*(\d+)')


class Batch(NamedTuple):
    """Names of similar length, padded to the longest: token ids and mask, 1 for a real token, both (b, t), int64."""

    input_ids: IntArray
    attention_mask: IntArray


class NameTokenizer:
    """The tokenizer of one model, with its maximum length and prefix. Safe to use from several threads. Raises
    CheckpointError if tokenizer.json is missing or cannot be read, or `max_length` leaves no room for a token.

    Args:
        max_length: Maximum number of tokens, including special ones; the rest of a name is cut off.
        prefix: Text put before each name ("query: " for E5).
        lowercase: Whether to lower-case names first (`do_lower_case` of sentence-transformers).
    """

    def __init__(self, folder: Path, *, max_length: int, prefix: str = "", lowercase: bool = False) -> None:
        path = folder / "tokenizer.json"
        tokenizer = cutting_tokenizer(path, max_length)
        self._path = path
        self.n_ids = tokenizer.get_vocab_size(with_added_tokens=True)
        self.max_length = max_length
        self.prefix = prefix
        self.max_characters = max_length * CHARACTERS_PER_TOKEN
        self.pad_id = _pad_id(folder, tokenizer)
        self._lowercase = lowercase
        self._tokenizer = tokenizer
        self._special_ids = {i for i, token in tokenizer.get_added_tokens_decoder().items() if token.special}
        # Tokens that only mark a space, in SentencePiece and in byte-level BPE, carry no information.
        marks = {tokenizer.token_to_id(mark) for mark in ("\u2581", "\u0120")}
        self._blank_ids = self._special_ids | {_unk_id(path, tokenizer)} | marks
        with tokenizer_errors(path, f"cannot tokenise the prefix {prefix!r}"):
            prefix_ids = tokenizer.encode(prefix.rstrip(), add_special_tokens=False).ids
        self._n_prefix = sum(i not in self._special_ids for i in prefix_ids)

    def distinct(self, names: Sequence[str]) -> tuple[list[str], IntArray]:
        """The distinct texts of names, stripped, cut and in `usual_case`, and the index of each name's text among them,
        (n,). Raises ValueError if a name has a lone surrogate.
        """
        indices: dict[str, int] = {}
        inverse = np.empty(len(names), dtype=np.int64)
        for i, name in enumerate(names):
            text = usual_case(name.strip()[: self.max_characters].rstrip())
            index = indices.setdefault(text, len(indices))
            if index == len(indices) - 1 and not text.isascii():
                try:  # neither the tokenizer nor the store can handle invalid Unicode
                    text.encode()
                except UnicodeEncodeError as error:
                    raise ValueError(
                        f"name {i} has a lone surrogate ({text[error.start]!a} at character {error.start}), which is "
                        f"not valid text: {text[:40]!a}. Decode its source with errors='replace'."
                    ) from error
            inverse[i] = index
        return list(indices), inverse

    def token_ids(self, texts: Sequence[str]) -> tuple[list[list[int]], BoolArray]:
        """Token ids of each text from `distinct`, special ones included; and whether it is encodable, (n,): whether it
        has a token that is neither special nor [UNK]. Raises CheckpointError if the tokenizer fails.
        """
        if self._lowercase:
            texts = [text.lower() for text in texts]
        with tokenizer_errors(self._path, f"cannot tokenise one of {len(texts):,} names, the first {texts[:1]!r:.80}"):
            encodings = self._tokenizer.encode_batch_fast([self.prefix + text for text in texts])
        ids = [encoding.ids for encoding in encodings]
        return ids, np.fromiter(map(self._is_encodable, ids), dtype=np.bool_, count=len(ids))

    def _is_encodable(self, ids: list[int]) -> bool:
        """Whether there is a token that is not special, from the prefix, a space or [UNK]."""
        if self._n_prefix:
            ids = [i for i in ids if i not in self._special_ids][self._n_prefix :]
        return not self._blank_ids.issuperset(ids)

    def batch(self, token_ids: Sequence[list[int]]) -> Batch:
        """Pad names to the longest of them."""
        width = max(map(len, token_ids))
        input_ids = np.full((len(token_ids), width), self.pad_id, dtype=np.int64)
        attention_mask = np.zeros((len(token_ids), width), dtype=np.int64)
        for i, ids in enumerate(token_ids):
            input_ids[i, : len(ids)] = ids
            attention_mask[i, : len(ids)] = 1
        return Batch(input_ids, attention_mask)


MIN_NAMES, MAX_PADDING = 32, 0.1
"""A batch with a greater share of padding is cut, but not to fewer names, because small matrices cost more."""


def plan_batches(lengths: IntArray, *, max_tokens: int, max_names: int) -> Iterator[IntArray]:
    """Split names of these lengths in tokens, (n,), into batches of indices, the longest names first.

    `max_tokens` is the maximum of the number of names times the longest one; a longer single name gets its own batch.
    """
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        width = int(lengths[order[start]])
        end = start + min(max_names, max(1, max_tokens // width), len(order) - start)
        padding = np.cumsum(width - lengths[order[start:end]])
        cells = width * np.arange(1, end - start + 1)
        too_padded = np.flatnonzero(padding > MAX_PADDING * cells)
        too_padded = too_padded[too_padded >= MIN_NAMES]
        if len(too_padded):
            end = start + int(too_padded[0])
        yield order[start:end]
        start = end


def open_tokenizer(path: Path) -> Tokenizer:
    """Open a tokenizer.json, without padding and truncation. Raises CheckpointError if that is not possible."""
    hint = "" if path.exists() else ". Save it with transformers' AutoTokenizer(...).save_pretrained(folder)"
    with tokenizer_errors(path, "not a readable tokenizer", hint):
        tokenizer = Tokenizer.from_file(str(path))
        tokenizer.no_padding()
        tokenizer.no_truncation()
    return tokenizer


def shared(make: Callable[Concatenate[Path, P], T]) -> Callable[Concatenate[Path, P], T]:
    """A function that makes of a file what it made before only if nothing uses that now, or the file has changed."""
    made: WeakValueDictionary[object, T] = WeakValueDictionary()
    making = threading.Lock()

    def get(path: Path, /, *given: P.args, **named: P.kwargs) -> T:
        now = path.stat() if path.exists() else None
        key = path, now and (now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns), given, *named.items()
        with making:
            found = made.get(key)
            if found is None:
                found = made[key] = make(path, *given, **named)
            return found

    return get


@shared
def cutting_tokenizer(path: Path, max_length: int) -> Tokenizer:
    """A tokenizer.json that cuts texts at so many tokens. That of the shipped model takes 100 MB. Raises
    CheckpointError if it cannot be opened, or no token has room beside the special ones.
    """
    tokenizer = open_tokenizer(path)
    n_special = tokenizer.num_special_tokens_to_add(False)
    if max_length <= n_special:
        raise CheckpointError(
            str(path), f"a maximum length of {max_length} leaves no room beside its {n_special} special tokens"
        )
    tokenizer.enable_truncation(max_length)
    return tokenizer


@contextmanager
def tokenizer_errors(path: Path | str, what: str, hint: str = "") -> Iterator[None]:
    """Turn errors of the library into a `CheckpointError`: bare `Exception`s, and panics of its Rust code."""
    try:
        yield
    except BaseException as error:
        # A panic is a BaseException of a class that cannot be imported.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise CheckpointError(str(path), f"{what} ({error}){hint}") from error


def _unk_id(path: Path, tokenizer: Tokenizer) -> int | None:
    """Id of [UNK]; None for a byte-level tokenizer, which has none."""
    if (token := getattr(tokenizer.model, "unk_token", None)) is not None:
        return tokenizer.token_to_id(token)
    # The unk_id of a Unigram model is only in the file, whose 250,000 pieces take a third of a second to parse.
    found = _UNK_ID.search(path.read_bytes())
    return int(found[1]) if found else None


def _pad_id(folder: Path, tokenizer: Tokenizer) -> int:
    """Id of the padding token. It is masked, but RoBERTa computes positions from it."""
    path = folder / "tokenizer_config.json"
    declared = read_json(path).get("pad_token") if path.exists() else None
    declared = declared.get("content") if isinstance(declared, dict) else declared
    ids = (tokenizer.token_to_id(name) for name in (declared, "[PAD]", "<pad>") if isinstance(name, str))
    return next((int(i) for i in ids if i is not None), 0)


logger = logging.getLogger(__name__)

WINDOW_NAMES = 8192  # names tokenised at once: enough to fill batches of equal length, and few enough for memory
MIN_SPLIT_TOKENS = 256  # fewer tokens are not split over the workers, because small matrices are slower

RunBatch = Callable[[Batch], "tuple[FloatArray, FloatArray | None]"]
"""Runs a batch: returns embeddings, (b, dim), L2-normalised, and type logits, (b, labels), or None."""


_Results = tuple[FloatArray, FloatArray | None]
"""Vectors and types of one window: views into those of the whole call. Each row is written by exactly one batch."""


class BatchLimits(NamedTuple):
    """Limits of a batch: the number of names times the longest of them, names, and batches that run at once."""

    max_tokens: int
    max_names: int
    workers: int


class BatchEncoder:
    """An `Encoder`: runs names through a model in batches. Safe to call from several threads.

    Args:
        run_batch: The model; called from several threads at once if there are several workers.
        never_seen: (labels,), true for labels without training examples, which get probability 0; None without a type
            head.
    """

    def __init__(
        self,
        tokenizer: NameTokenizer,
        run_batch: RunBatch,
        *,
        info: ModelInfo,
        never_seen: BoolArray | None,
        limits: BatchLimits,
    ) -> None:
        self.info = info
        self._tokenizer, self._run_batch, self._never_seen, self._limits = tokenizer, run_batch, never_seen, limits
        # Its threads start with the first batch that needs them, and end with this object.
        self._pool = _FairPool(limits.workers) if limits.workers > 1 else None

    def encode(self, names: Sequence[str]) -> Encoded:
        """Encode names; see `Encoder.encode`."""
        if isinstance(names, (str, bytes)):
            raise TypeError(f"names is a list of names, not one name: pass [{names!r}]")
        texts, inverse = self._tokenizer.distinct(names)
        n = len(texts)
        vectors = np.zeros((n, self.info.dim), dtype=np.float32)
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
                results = vectors[window], None if types is None else types[window]
                earlier, running = running, self._start(token_ids, np.flatnonzero(encodable[window]), results)
                for future in pausing(earlier):
                    future.result()
            for future in pausing(running):
                future.result()
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
            for plan in pausing(plans):
                self._run(token_ids, plan, results)
            return []
        return self._pool.submit([partial(self._run, token_ids, plan, results) for plan in plans])

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
            vectors, types = results
            vectors[rows] = embeddings
            if types is not None and logits is not None and self._never_seen is not None:
                types[rows] = softmax(np.where(self._never_seen, np.float32(-np.inf), logits))
            return
        # Outside the except clause, because the error keeps the tensors of the failed batch alive.
        half = len(rows) // 2
        logger.warning("out of memory with a batch of %d names: retrying with %d", len(rows), half)
        self._run(token_ids, rows[:half], results)
        self._run(token_ids, rows[half:], results)


class _FairPool:
    """Threads that take the batches of several calls in turn, so that a call of two does not wait for one of many."""

    def __init__(self, workers: int) -> None:
        self._threads = ThreadPoolExecutor(workers, "encode")
        self._workers = workers
        self._lock = threading.Lock()
        self._waiting: deque[deque[tuple[Callable[[], None], Future[None]]]] = deque()

    def submit(self, batches: Sequence[Callable[[], None]]) -> list[Future[None]]:
        """What becomes of the batches of one call."""
        futures = [Future[None]() for _ in batches]
        with self._lock:
            self._waiting.append(deque(zip(batches, futures, strict=True)))
        for _ in range(min(self._workers, len(batches))):
            self._threads.submit(self._run_all)
        return futures

    def _next(self) -> tuple[Callable[[], None], Future[None]] | None:
        """The next batch of the call whose turn it is; None if no call waits."""
        with self._lock:
            while self._waiting:
                if call := self._waiting.popleft():
                    found = call.popleft()
                    self._waiting.append(call)
                    return found
        return None

    def _run_all(self) -> None:
        """Run what waits, of whatever call: a call that was interrupted here or is empty takes no turn of another's."""
        while (found := self._next()) is not None:
            batch, future = found
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(batch())
            except BaseException as error:  # noqa: BLE001 (who waits for it raises it)
                future.set_exception(error)


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
