"""Make augmented and tokenised pairs in as many processes as are needed to keep an accelerator busy.

    batches of phrases -> draw a variant of each -> tokenise both -> arrays, in order

Batch i is made with a random generator seeded by (seed, i): the result does not depend on the number of workers, and a
run that resumes at batch i gets the same pairs. `benchmarks/augmentation.py` measures the speed.
"""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from pearl_qdrant.encoder.tokens import Batch
from training.augment.draw import Augmenter
from training.augment.word_cache import PhraseTokenizer

DEFAULT_MAX_TOKENS = 24

_IN_FLIGHT = 4  # batches per worker


@dataclass(frozen=True, slots=True)
class TokenisedPairs:
    """Phrases with their variants, as text and as tokens.

    Attributes:
        phrases, variants: b each.
        anchors, positives: Token ids and masks, (b, t), each padded separately.
        is_own: Whether a phrase is its own positive because nothing could change it; b.
    """

    phrases: list[str]
    variants: list[str]
    anchors: Batch
    positives: Batch
    is_own: list[bool]


class PairMaker:
    """Makes the pairs of batches in one process."""

    def __init__(self, augmenter: Augmenter, tokenizer: PhraseTokenizer, *, seed: int) -> None:
        self._augmenter = augmenter
        self._tokenizer = tokenizer
        self._seed = seed

    def make(self, index: int, phrases: Sequence[str]) -> TokenisedPairs:
        """Make the pairs of a batch; the same for the same seed, index and phrases."""
        rng = random.Random(f"{self._seed}:{index}")
        drawn = [self._augmenter.draw(phrase, rng) for phrase in phrases]
        variants = [variant.text for variant in drawn]
        # One call, since the tokenizer has a cost per call.
        ids = self._tokenizer.token_ids([*phrases, *variants])
        n = len(phrases)
        anchors, positives = self._tokenizer.batch(ids[:n]), self._tokenizer.batch(ids[n:])
        return TokenisedPairs(list(phrases), variants, anchors, positives, [v.fell_through for v in drawn])


def tokenised_pairs(
    batches: Iterable[Sequence[str]],
    open_augmenter: Callable[[], Augmenter],
    tokenizer_folder: Path,
    *,
    seed: int,
    first: int = 0,
    workers: int = 0,
    max_tokens: int = DEFAULT_MAX_TOKENS,
) -> Generator[TokenisedPairs, None, None]:
    """Yield the pairs of each batch, in order.

    Args:
        batches: Lists of phrases, none of them empty.
        open_augmenter: Makes an augmenter; with workers it must be picklable, and is called once in each.
        tokenizer_folder: Has tokenizer.json.
        seed: Determines everything.
        first: Number of the first batch, for a run that resumes.
        workers: Processes besides this one; 0 for none.
        max_tokens: Longer phrases are truncated, special tokens included.

    Raises:
        CheckpointError: If there is no tokenizer in the folder.
    """
    if workers < 1:
        maker = _maker(open_augmenter, tokenizer_folder, seed, max_tokens)
        for i, phrases in enumerate(batches, first):
            yield maker.make(i, phrases)
        return
    initial = (open_augmenter, tokenizer_folder, seed, max_tokens)
    with ProcessPoolExecutor(
        workers, mp_context=get_context("spawn"), initializer=_start_worker, initargs=initial
    ) as pool:
        waiting: deque[Future[TokenisedPairs]] = deque()
        try:
            for i, phrases in enumerate(batches, first):
                waiting.append(pool.submit(_make_in_worker, i, list(phrases)))
                # An unbounded queue would hold the whole corpus in memory.
                if len(waiting) > _IN_FLIGHT * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            # A consumer that stops early must not wait for queued batches.
            pool.shutdown(cancel_futures=True)


def _maker(open_augmenter: Callable[[], Augmenter], folder: Path, seed: int, max_tokens: int) -> PairMaker:
    return PairMaker(open_augmenter(), PhraseTokenizer(folder, max_tokens=max_tokens), seed=seed)


_maker_here: PairMaker | None = None
"""Pair maker of a worker process; set when the worker starts."""


def _start_worker(open_augmenter: Callable[[], Augmenter], folder: Path, seed: int, max_tokens: int) -> None:
    global _maker_here  # noqa: PLW0603  (a process pool has no other place for per-worker state)
    # The tokenizer's threads in each process would compete for the cores.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    _maker_here = _maker(open_augmenter, folder, seed, max_tokens)


def _make_in_worker(index: int, phrases: list[str]) -> TokenisedPairs:
    assert _maker_here is not None
    return _maker_here.make(index, phrases)
