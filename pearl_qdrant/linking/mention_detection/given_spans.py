"""Reads spans that somebody else found: a start, an end, and maybe a label.

They may be tuples, mappings or objects, of any recogniser. Offsets are `start` and `end`, or `start_char` and
`end_char` (spaCy, Stanza). The label is `label` (GLiNER, spaCy), `entity_group` (Transformers), `entity_type`
(Presidio) or `type` (Stanza). A table from labels to the types of the base (`AnnotateOptions.label_types`) says what a
span is linked to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from operator import index
from typing import Protocol, SupportsIndex, runtime_checkable

from pearl_qdrant.linking.mention_detection.spans import Shape, Span


class RecognisedSpan(Protocol):
    """A span of a recogniser: offsets in characters, and its type."""

    @property
    def start(self) -> int: ...

    @property
    def end(self) -> int: ...

    @property
    def label(self) -> str: ...


class SpanLike(Protocol):
    """A span of spaCy or Stanza: offsets in characters."""

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
    def ents(self) -> Iterable[GivenSpan] | None: ...


GivenSpan = tuple[int, int] | tuple[int, int, str] | RecognisedSpan | SpanLike | Mapping[str, object]
"""Offsets (start, end), maybe with a label; or an object or a mapping of a recogniser."""

_STARTS, _ENDS = ("start_char", "start"), ("end_char", "end")
_LABELS = ("label_", "label", "entity_group", "entity_type", "type")


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
        is_recognised = bool(has_annotation("ENT_IOB")) if callable(has_annotation) else text.ents is not None
        return text.text, list(text.ents or ()) if is_recognised else None
    raise TypeError(f"a passage is a str or a spaCy Doc, not {type(text).__name__}")


def read_spans(text: str, spans: Iterable[GivenSpan], in_characters: Callable[[int], int] | None = None) -> list[Span]:
    """The caller's spans, checked, in the caller's order.

    Args:
        text: The text.
        spans: Their places.
        in_characters: Makes an offset of theirs one in characters, which it is if None.

    Raises:
        ValueError: If a span is empty or outside the text, or of an unknown kind.
    """
    return [_read_span(text, number, given, in_characters) for number, given in enumerate(spans)]


def _read_span(text: str, number: int, given: GivenSpan, in_characters: Callable[[int], int] | None) -> Span:
    start, end, label = _parts(given)
    is_place = all(isinstance(at, SupportsIndex) and not isinstance(at, bool) for at in (start, end))
    if not is_place:
        raise ValueError(
            f"span {number} is {given!r}; pass (start, end), maybe with a label, or an object or a mapping with start "
            f"and end, or with start_char and end_char"
        )
    start, end = index(start), index(end)  # type: ignore[arg-type]
    if in_characters is not None:
        start, end = in_characters(start), in_characters(end)
    if not 0 <= start < end <= len(text):
        raise ValueError(
            f"span {number} is from {start} to {end}, but the text has {len(text)} characters; "
            f"offsets are counted in characters (not bytes), and 0 <= start < end <= {len(text)}"
        )
    n_words = max(1, len(text[start:end].split()))
    return Span(start, end, Shape.GIVEN, n_words, label=label if isinstance(label, str) else "")


def _parts(given: GivenSpan) -> tuple[object, object, object]:
    """Start, end and label of a span of any kind; None where there is none."""
    if isinstance(given, (tuple, list)):
        return (*given, None)[:3] if len(given) in (2, 3) else (None, None, None)
    get = given.get if isinstance(given, Mapping) else partial(getattr, given)
    start, end, label = (
        next((value for name in names if (value := get(name, None)) is not None), None)
        for names in (_STARTS, _ENDS, _LABELS)
    )
    return start, end, label
