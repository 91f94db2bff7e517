"""The two jobs of workers: mentions to link, passages to annotate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from pearl_qdrant.linking.mention_detection.given_spans import DocLike, read_spans, read_text
from pearl_qdrant.linking.mentions import take
from pearl_qdrant.linking.options import AnnotateOptions, LinkOptions
from pearl_qdrant.linking.workers import process
from pearl_qdrant.linking.workers.pool import Job
from pearl_qdrant.linking.workers.process import SentDoc, SentSpan
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
    options: AnnotateOptions, here: Callable[[Iterable[str | DocLike]], Iterator[list[Annotation]]]
) -> Job[str | DocLike, list[Annotation]]:
    """Passages to annotate."""
    return Job(
        options=options,
        here=here,
        there=process.annotate,
        take=_take_passages,
        send=lambda passage: passage,
        weight=lambda passage: 1 + len(_text(passage)) // CHARACTERS_A_MENTION,
        read=process.read_annotations,
    )


def _take_passages(items: Iterator[str | DocLike], n_workers: int) -> list[str | DocLike]:
    """Up to `PASSAGES` for each worker, fewer where they are long. A `Doc` is read here."""
    window: list[str | DocLike] = []
    n_characters = 0
    for item in islice(items, n_workers * PASSAGES):
        window.append(_as_passage(item))
        n_characters += len(_text(window[-1]))
        if n_characters >= n_workers * PASSAGE_CHARACTERS:
            break
    return window


def _as_passage(item: str | DocLike) -> str | DocLike:
    """A passage in a form that can be sent.

    Raises:
        TypeError: If it is none.
        ValueError: If one of its spans is outside the text.
    """
    text, spans = read_text(item)
    if spans is None:
        return text
    return SentDoc(text, tuple(SentSpan(span.start, span.end, span.label) for span in read_spans(text, spans)))


def _text(item: object) -> str:
    """The text of a passage; empty for what is none."""
    text = item if isinstance(item, str) else getattr(item, "text", "")
    return text if isinstance(text, str) else ""
