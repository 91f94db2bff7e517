"""Batches for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable

from pearl_qdrant.linking.batches import BATCH_CHARACTERS, n_characters, take


async def batched(mentions: Iterable[str] | AsyncIterable[str], n: int) -> AsyncIterator[list[str]]:
    """Lists of up to `n` mentions, as `batches.take` makes them; an iterable that may block is read in a thread."""
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
