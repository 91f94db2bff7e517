"""The two kinds of work: mentions to link, passages to annotate. Each says how its items are split over workers."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Generic, TypeVar

from pearl_qdrant.linking.mention_detection.given_spans import DocLike, read_spans, read_text
from pearl_qdrant.linking.mentions import take
from pearl_qdrant.linking.workers.messages import ANNOTATE, LINK, SentDoc, SentSpan
from pearl_qdrant.linking.workers.packing import read_annotations, read_link
from pearl_qdrant.records import Annotation, Link

MENTIONS = 256
"""Mentions for each worker at a time: about a second of work."""

PASSAGES = 32
"""Passages for each worker at a time, at most."""

PASSAGE_CHARACTERS = 4096
"""Characters of the passages for each worker at a time, at least: a few hundred to a thousand spans."""

CHARACTERS_A_MENTION = 5
"""An annotated text has about one distinct span in so many characters."""

T = TypeVar("T")
A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Part:
    """What one worker gets of a window of items.

    Attributes:
        worker: Its number.
        items: What is sent.
        places: For each of them, where its answers are in the window; equal items are sent once.
    """

    worker: int
    items: list[object]
    places: list[list[int]]


class Job(ABC, Generic[T, A]):
    """Items to be answered in order.

    Args:
        options: How; sent with each task.
        here: Answers items in this process.
    """

    kind: ClassVar[bytes]

    def __init__(self, options: object, here: Callable[[Iterable[T]], Iterator[A]]) -> None:
        self.options = options
        self.here = here

    @abstractmethod
    def take(self, items: Iterator[T], n_workers: int) -> list[T]:
        """The next window of items; empty at the end."""

    @abstractmethod
    def split(self, window: Sequence[T], n_workers: int) -> list[Part]:
        """Divide a window; the same window is always divided in the same way."""

    @abstractmethod
    def weight(self, item: T) -> int:
        """About how many mentions an item is."""

    @abstractmethod
    def read(self, packed: Any, item: T) -> A:
        """The answer for an item."""


class LinkJob(Job[str, Link]):
    """Mentions to link. Equal ones always go to the same worker, which remembers what it has linked."""

    kind = LINK

    def take(self, items: Iterator[str], n_workers: int) -> list[str]:
        """`MENTIONS` for each worker, fewer where they are long."""
        return take(items, n_workers * MENTIONS)

    def split(self, window: Sequence[str], n_workers: int) -> list[Part]:
        """By a checksum of the mention."""
        parts = [Part(worker, [], []) for worker in range(n_workers)]
        known: dict[str | None, list[int]] = {}
        for place, mention in enumerate(window):
            text = _as_sent(mention)
            places = known.get(text)
            if places is None:
                part = parts[zlib.crc32((text or "").encode("utf-8", "surrogatepass")) % n_workers]
                part.items.append(text)
                places = known[text] = []
                part.places.append(places)
            places.append(place)
        return [part for part in parts if part.items]

    def weight(self, item: str) -> int:
        """1."""
        return 1

    def read(self, packed: Any, item: str) -> Link:
        """With the mention as it was given."""
        return read_link(packed, item)


def _as_sent(mention: object) -> str | None:
    """A mention as plain text; None for anything else, which cannot be linked, and perhaps not sent."""
    return str.__str__(mention) if isinstance(mention, str) else None


class AnnotateJob(Job["str | DocLike", list[Annotation]]):
    """Passages to annotate."""

    kind = ANNOTATE

    def take(self, items: Iterator[str | DocLike], n_workers: int) -> list[str | DocLike]:
        """Up to `PASSAGES` for each worker, fewer where they are long. A `Doc` is read here."""
        window: list[str | DocLike] = []
        n_characters = 0
        for item in islice(items, n_workers * PASSAGES):
            window.append(_as_passage(item))
            n_characters += len(_text(window[-1]))
            if n_characters >= n_workers * PASSAGE_CHARACTERS:
                break
        return window

    def split(self, window: Sequence[str | DocLike], n_workers: int) -> list[Part]:
        """Each to the worker that has the fewest characters."""
        parts = [Part(worker, [], []) for worker in range(n_workers)]
        n_characters = [0] * n_workers
        for place, passage in enumerate(window):
            least = n_characters.index(min(n_characters))
            parts[least].items.append(passage)
            parts[least].places.append([place])
            n_characters[least] += len(_text(passage)) + 1
        return [part for part in parts if part.items]

    def weight(self, item: str | DocLike) -> int:
        """By its length."""
        return 1 + len(_text(item)) // CHARACTERS_A_MENTION

    def read(self, packed: Any, item: str | DocLike) -> list[Annotation]:
        """Its annotations."""
        return read_annotations(packed)


def _as_passage(item: str | DocLike) -> str | DocLike:
    """A passage in a form that can be sent.

    Raises:
        TypeError: If it is none.
        ValueError: If one of its spans is outside the text.
    """
    text, spans = read_text(item)
    if spans is None:
        return text
    return SentDoc(text, tuple(SentSpan(span.start, span.end) for span in read_spans(text, spans)))


def _text(item: object) -> str:
    """The text of a passage; empty for what is none."""
    text = item if isinstance(item, str) else getattr(item, "text", "")
    return text if isinstance(text, str) else ""
