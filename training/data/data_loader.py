"""Load batches for the network: drawn, augmented and tokenised, in worker processes if requested."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pearl_qdrant.cores import count_workers
from training.data.batches import BatchMaker, PairBatch
from training.networks.phrase_vectors import MicroBatch, pad_batches, token_ids

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TokenisedBatch:
    """A batch and its token ids; the phrases are in the order anchors, positives, negatives, plain phrases.

    Attributes:
        batch: The phrases.
        micro_batches: What the network sees.
        as_written: The same with the plain phrases as they are written, for a teacher; None unless requested.
    """

    batch: PairBatch
    micro_batches: list[MicroBatch]
    as_written: list[MicroBatch] | None = None


@dataclass(frozen=True, slots=True)
class BatchDataset:
    """Tokenised batches by step; what `torch.utils.data` calls a map-style dataset.

    Attributes:
        maker: Draws and augments the phrases.
        tokenizer: A `tokenizers.Tokenizer` without padding and truncation.
        max_tokens, micro_batch: As in `FitConfig`.
        prefix: Text before each phrase.
        for_teacher: Whether batches have `as_written` too.
    """

    maker: BatchMaker
    tokenizer: Any
    max_tokens: int
    micro_batch: int
    prefix: str = ""
    for_teacher: bool = False

    def __getitem__(self, step: int) -> TokenisedBatch:
        """The batch of a step, from 1."""
        batch = self.maker.make(step)
        ids = self._token_ids([*batch.anchors, *batch.positives, *batch.negatives, *batch.plain_views])
        seen = pad_batches(ids, size=self.micro_batch)
        if not self.for_teacher:
            return TokenisedBatch(batch, seen)
        first = len(ids) - len(batch.plain)
        edited = [i for i, phrase in enumerate(batch.plain) if phrase != batch.plain_views[i]]
        if not edited:
            return TokenisedBatch(batch, seen, seen)
        for i, written in zip(edited, self._token_ids([batch.plain[i] for i in edited]), strict=True):
            ids[first + i] = written
        return TokenisedBatch(batch, seen, pad_batches(ids, size=self.micro_batch))

    def _token_ids(self, phrases: Sequence[str]) -> list[list[int]]:
        return token_ids(self.tokenizer, [self.prefix + phrase for phrase in phrases], max_tokens=self.max_tokens)


def load_batches(dataset: BatchDataset, steps: Sequence[int], *, workers: int) -> Iterator[TokenisedBatch]:
    """Yield the batches of these steps, in order.

    Args:
        dataset: Makes them.
        steps: Step numbers.
        workers: Processes, each a few batches ahead; 0 makes each batch when it is needed.
    """
    if workers == 0:
        for step in steps:
            yield dataset[step]
        return
    from torch.utils.data import DataLoader

    untyped: Any = dataset
    loader: Any = DataLoader(
        untyped,
        batch_size=None,
        sampler=steps,
        num_workers=count_workers(workers),
        collate_fn=_unchanged,
        worker_init_fn=_start_worker,
        prefetch_factor=4,
    )
    yield from loader


def _unchanged(item: T) -> T:
    return item


def _start_worker(_: int) -> None:
    """Leave signals to the parent process, which ends its workers, and use one thread per worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends Ctrl-C to the workers too
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
