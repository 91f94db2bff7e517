"""Batches of mentions: bounded in number, and in length where somebody gives very long ones."""

from __future__ import annotations

from collections.abc import Iterator

BATCH_CHARACTERS = 1 << 18
"""Of the mentions of a batch together, the last one not counted; a thousand honest ones have a tenth of it."""


def take(mentions: Iterator[str], n: int) -> list[str]:
    """The next mentions, `n` at most, and fewer where they are long; an empty list at the end."""
    batch = []
    length = 0
    for mention in mentions:
        batch.append(mention)
        length += n_characters(mention)
        if len(batch) == n or length >= BATCH_CHARACTERS:
            break
    return batch


def n_characters(mention: object) -> int:
    """How long a mention is; what is no text counts nothing."""
    return len(mention) if isinstance(mention, str) else 0
