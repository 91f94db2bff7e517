"""Batches made ready for the network: drawn, varied and tokenised, in worker processes if so wished."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from training.data.batches import BatchMaker, PairBatch
from training.networks.phrase_vectors import MicroBatch, micro_batches

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """A batch and its token ids; the phrases are in the order anchors, positives, negatives, plain ones."""

    batch: PairBatch
    micro_batches: list[MicroBatch]


@dataclass(frozen=True, slots=True)
class BatchPreparer:
    """Makes the batch of any step ready; what `torch.utils.data` calls a map-style dataset.

    Attributes:
        maker: Draws and varies.
        tokenizer: A `tokenizers.Tokenizer` without padding and truncation.
        max_tokens, micro_batch: As in `FitConfig`.
        prefix: Text before each phrase.
    """

    maker: BatchMaker
    tokenizer: Any
    max_tokens: int
    micro_batch: int
    prefix: str = ""

    def __getitem__(self, step: int) -> PreparedBatch:
        """The batch of a step, from 1."""
        batch = self.maker.make(step)
        views = (*batch.anchors, *batch.positives, *batch.negatives, *batch.plain_views)
        phrases = [self.prefix + view for view in views]
        return PreparedBatch(
            batch, micro_batches(self.tokenizer, phrases, max_tokens=self.max_tokens, size=self.micro_batch)
        )


def prepare(preparer: BatchPreparer, steps: Sequence[int], *, workers: int) -> Iterator[PreparedBatch]:
    """The batches of these steps, in their order.

    Args:
        preparer: Makes them.
        steps: Which.
        workers: Processes, each a few batches ahead; 0 makes each batch when it is asked for.
    """
    if workers == 0:
        for step in steps:
            yield preparer[step]
        return
    from torch.utils.data import DataLoader

    dataset: Any = preparer
    loader: Any = DataLoader(
        dataset,
        batch_size=None,
        sampler=steps,
        num_workers=workers,
        collate_fn=_as_it_is,
        worker_init_fn=_start_worker,
        prefetch_factor=4,
    )
    yield from loader


def _as_it_is(item: T) -> T:
    return item


def _start_worker(_: int) -> None:
    """One thread a worker: there are as many workers as are wanted. Signals are for the parent, which ends them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to us too
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
