"""Batches of mentions, bounded in number and in total length, from plain and from asynchronous iterables."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator

BATCH_CHARACTERS = 1 << 18
"""A batch ends with the mention that reaches this length. A thousand ordinary mentions have a tenth of it."""


def take(mentions: Iterator[str], n: int) -> list[str]:
    """The next mentions: at most `n`, fewer where they are long, none at the end."""
    batch = []
    length = 0
    for mention in mentions:
        batch.append(mention)
        length += n_characters(mention)
        if len(batch) == n or length >= BATCH_CHARACTERS:
            break
    return batch


async def take_async(mentions: Iterable[str] | AsyncIterable[str], n: int) -> AsyncIterator[list[str]]:
    """Batches as `take` makes them; a plain iterable is read in a thread, since it may block."""
    if not isinstance(mentions, AsyncIterable):
        iterator = iter(mentions)
        while batch := await asyncio.to_thread(take, iterator, n):
            yield batch
        return
    batch = []
    length = 0
    async for mention in mentions:
        batch.append(mention)
        length += n_characters(mention)
        if len(batch) == n or length >= BATCH_CHARACTERS:
            yield batch
            batch, length = [], 0
    if batch:
        yield batch


def n_characters(mention: object) -> int:
    """Length of a mention; 0 for anything that is not text."""
    return len(mention) if isinstance(mention, str) else 0
