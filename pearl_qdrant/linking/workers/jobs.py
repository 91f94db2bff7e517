"""The two jobs of workers: mentions to link, blocks of texts to annotate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from pearl_qdrant.linking.mention_detection.blocks import MOST, Block
from pearl_qdrant.linking.mentions import take
from pearl_qdrant.linking.options import AnnotateOptions, LinkOptions
from pearl_qdrant.linking.workers import process
from pearl_qdrant.linking.workers.pool import Job
from pearl_qdrant.records import Annotation, Link

MENTIONS = 256
"""Mentions for each worker at a time: about a second of work."""

PASSAGES = 32
"""Passages for each worker at a time, at most."""

PASSAGE_CHARACTERS = 4096
"""Characters of the passages for each worker at a time, at least: a few hundred to a thousand spans."""

CHARACTERS_A_MENTION = 5
"""An annotated text has about one distinct span in so many characters."""


def link_job(options: LinkOptions, here: Callable[[Iterable[str]], Iterator[Link]]) -> Job[str, Link]:
    """Mentions to link; what is no text is sent as None, since it cannot be linked, and perhaps not sent."""
    return Job(
        options=options,
        here=here,
        there=process.link,
        take=lambda mentions, n_workers: take(mentions, n_workers * MENTIONS),
        send=_as_text,
        weight=lambda mention: 1,
        read=process.read_link,
    )


def _as_text(mention: object) -> str | None:
    return str.__str__(mention) if isinstance(mention, str) else None


def annotate_job(
    options: AnnotateOptions, here: Callable[[Iterable[Block]], Iterator[list[Annotation]]]
) -> Job[Block, list[Annotation]]:
    """Blocks of texts to annotate."""
    return Job(
        options=options,
        here=here,
        there=process.annotate,
        take=_take_blocks,
        send=lambda block: block,
        weight=lambda block: 1 + len(block.text) // CHARACTERS_A_MENTION,
        read=process.read_annotations,
    )


def _take_blocks(blocks: Iterator[Block], n_workers: int) -> list[Block]:
    """Up to `PASSAGES` for each worker, fewer where they are long."""
    window: list[Block] = []
    n_characters = 0
    for block in islice(blocks, n_workers * PASSAGES):
        window.append(block)
        n_characters += len(block.text)
        if n_characters >= n_workers * PASSAGE_CHARACTERS:
            break
    return window


def has_long(texts: object) -> bool:
    """Whether some of a list of texts are long, so that several workers share them."""
    return isinstance(texts, Sequence) and any(isinstance(one, str) and len(one) > MOST for one in texts)


def characters_of(texts: object) -> int:
    """The characters of a list of texts; 0 if it is none."""
    return sum(len(one) for one in texts if isinstance(one, str)) if isinstance(texts, Sequence) else 0
