"""Batches for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from itertools import islice


async def batched(mentions: Iterable[str] | AsyncIterable[str], n: int) -> AsyncIterator[list[str]]:
    """Lists of up to `n` mentions; an iterable that may block is read in a thread."""
    if not isinstance(mentions, AsyncIterable):
        iterator = iter(mentions)
        while batch := await asyncio.to_thread(lambda: list(islice(iterator, n))):
            yield batch
        return
    batch = []
    async for mention in mentions:
        batch.append(mention)
        if len(batch) == n:
            yield batch
            batch = []
    if batch:
        yield batch
