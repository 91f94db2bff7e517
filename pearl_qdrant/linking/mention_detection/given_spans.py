"""Reads spans that the caller found: offsets, entities of spaCy, dictionaries of GLiNER and other recognisers.

A span may have a label, the recogniser's type: the third item of a tuple, `label_` or `label` of an object, or "label"
of a mapping. A table from labels to the types of the base (`AnnotateOptions.label_types`) says what it is linked to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import index
from typing import Protocol, SupportsIndex, runtime_checkable

from pearl_qdrant.linking.mention_detection.spans import Shape, Span


@runtime_checkable
class SpanLike(Protocol):
    """A span of spaCy: offsets in characters."""

    @property
    def start_char(self) -> int: ...

    @property
    def end_char(self) -> int: ...


@runtime_checkable
class DocLike(Protocol):
    """A `Doc` of spaCy: a text and its recognised entities."""

    @property
    def text(self) -> str: ...

    @property
    def ents(self) -> Iterable[SpanLike]: ...


GivenSpan = tuple[int, int] | tuple[int, int, str] | SpanLike | Mapping[str, object]
"""Offsets (start, end), maybe with a label; an object with `start_char` and `end_char`; or a mapping with `start` and
`end`."""


def read_text(text: str | DocLike) -> tuple[str, list[GivenSpan] | None]:
    """The text, and the entities of a `Doc` as spans; None if no entity recognition ran.

    Raises:
        TypeError: If `text` is neither a string nor a `Doc`.
    """
    if isinstance(text, str):
        return text, None
    if isinstance(text, DocLike):
        # A pipeline without entity recognition also leaves `ents` empty; then the spans come from shapes.
        has_annotation = getattr(text, "has_annotation", None)
        is_recognised = bool(has_annotation("ENT_IOB")) if callable(has_annotation) else True
        return text.text, list(text.ents) if is_recognised else None
    raise TypeError(f"a passage is a str or a spaCy Doc, not {type(text).__name__}")


def read_spans(text: str, spans: Iterable[GivenSpan]) -> list[Span]:
    """The caller's spans, checked, in the caller's order.

    Raises:
        ValueError: If a span is empty or outside the text, or of an unknown kind.
    """
    return [_read_span(text, number, given) for number, given in enumerate(spans)]


def _read_span(text: str, number: int, given: GivenSpan) -> Span:
    bounds = _bounds(given)
    if bounds is None:
        raise ValueError(
            f"span {number} is {given!r}; pass (start, end), maybe with a label, an object with start_char and "
            f"end_char, or a mapping with start and end"
        )
    start, end = bounds
    if not 0 <= start < end <= len(text):
        raise ValueError(
            f"span {number} is from {start} to {end}, but the text has {len(text)} characters; "
            f"offsets are counted in characters (not bytes), and 0 <= start < end <= {len(text)}"
        )
    return Span(start, end, Shape.GIVEN, max(1, len(text[start:end].split())), label=_label(given))


def _label(given: GivenSpan) -> str:
    """The label of a span; empty if it has none."""
    if isinstance(given, SpanLike):
        label = getattr(given, "label_", None) or getattr(given, "label", "")
    elif isinstance(given, Mapping):
        label = given.get("label", "")
    else:
        label = next(iter(given[2:]), "")
    return label if isinstance(label, str) else ""


def _bounds(given: GivenSpan) -> tuple[int, int] | None:
    """The offsets of a span of any kind; None if they are missing or not integers."""
    start: object
    end: object
    if isinstance(given, SpanLike):
        start, end = given.start_char, given.end_char
    elif isinstance(given, Mapping):
        start, end = given.get("start"), given.get("end")
    else:
        try:
            start, end, *label = given
        except (TypeError, ValueError):
            return None
        if len(label) > 1:
            return None
    if isinstance(start, bool) or isinstance(end, bool):
        return None
    if not isinstance(start, SupportsIndex) or not isinstance(end, SupportsIndex):
        return None
    return index(start), index(end)
