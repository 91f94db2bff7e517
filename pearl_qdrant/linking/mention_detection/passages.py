"""Reads spans that somebody else found: a start, an end, and maybe a label.

They may be tuples, mappings or objects, of any recogniser. Offsets are `start` and `end`, or `start_char` and
`end_char` (spaCy, Stanza). The label is `label` (GLiNER, spaCy), `entity_group` (Transformers), `entity_type`
(Presidio) or `type` (Stanza). A table from labels to the types of the base (`AnnotateOptions.label_types`) says what a
span is linked to.

Reads files of passages: one a line, JSON Lines with id, text and spans, or one passage in the whole file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from operator import index
from typing import BinaryIO, Literal, Protocol, SupportsIndex, runtime_checkable

from pearl_qdrant.errors import FormatError, InputError
from pearl_qdrant.linking.mention_detection.blocks import Utf16
from pearl_qdrant.linking.mention_detection.spans import Shape, Span
from pearl_qdrant.linking.options import OffsetUnit
from pearl_qdrant.linking.text_lines import read_text_lines
from pearl_qdrant.settings import MAX_PASSAGE_BYTES


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
    """The text, and the entities of a `Doc` as spans; None if no entity recognition ran. Raises TypeError if `text` is
    neither a string nor a `Doc`.
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
    """The caller's spans, checked, in the caller's order. Raises ValueError if a span is empty or outside the text, or
    of an unknown kind.

    Args:
        spans: Their places.
        in_characters: Makes an offset of theirs one in characters, which it is if None.
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


PassageFormat = Literal["lines", "jsonl", "whole"]
"""One passage a line; one JSON object a line, with "text" and maybe "id" and "spans"; the whole file is one passage."""

JSONL_ENDINGS = (".jsonl", ".ndjson")


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage of a file.

    Attributes:
        line: The number of its line, from 1.
        text: The passage. That of a whole file has its line ends as they are, so that offsets match the file.
        id: Its id, if it has one.
        ents: The places of its mentions, in characters; None if they are to be found.
    """

    line: int
    text: str
    id: str | int | None = None
    ents: tuple[Span, ...] | None = None


def format_of(name: str) -> PassageFormat:
    """The format that the ending of a file suggests."""
    return "jsonl" if name.lower().endswith(JSONL_ENDINGS) else "lines"


def read_passages(
    file: BinaryIO,
    name: str,
    kind: PassageFormat | None = None,
    *,
    offsets: OffsetUnit = "characters",
    spans_key: str = "spans",
) -> Iterator[Passage]:
    """Yield the passages of a file in constant memory. Blank lines are counted and yield nothing. Raises FormatError at
    a line that is not UTF-8, longer than `MAX_LINE_BYTES`, or not an object with a text; InputError if a whole file is
    not UTF-8, or longer than `MAX_PASSAGE_BYTES`.

    Args:
        file: An open binary file, UTF-8.
        kind: Its format; by default `format_of` its path.
        offsets: What the offsets of spans count.
        spans_key: The key of a list of the places of mentions: mappings with `start` and `end`, maybe a `label`.
    """
    kind = kind or format_of(name)
    if kind == "whole":
        yield Passage(1, _read_whole(file, name))
        return
    for number, line in read_text_lines(file, name):
        if not line.strip():
            continue
        if kind == "lines":
            yield Passage(number, line)
            continue
        try:
            yield _parse(line, number, offsets, spans_key)
        except ValueError as error:
            raise FormatError(
                name, number, f"{error}. A line looks like this: {_EXAMPLE.replace('SPANS', spans_key)}"
            ) from error


def _parse(line: str, number: int, offsets: OffsetUnit, spans_key: str) -> Passage:
    """The passage of a line of JSON. Raises ValueError if it is none."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON ({error})") from error
    if not isinstance(row, dict) or not isinstance(row.get("text"), str):
        raise ValueError("not an object with a text")  # noqa: TRY004 - of a file, as the others
    key, text, spans = row.get("id"), row["text"], row.get(spans_key)
    is_key = isinstance(key, (str, int, type(None))) and not isinstance(key, bool)
    if not is_key:
        raise ValueError(f"the id is {json.dumps(key)[:50]}. Give a string or an integer, or leave it out")
    if not isinstance(spans, (list, type(None))):
        raise ValueError(f"not an object with a text and {spans_key}, which are a list")  # noqa: TRY004
    in_characters = Utf16(text).characters if offsets == "utf-16" else None
    return Passage(number, text, key, None if spans is None else tuple(read_spans(text, spans, in_characters)))


_EXAMPLE = '{"id": "report-7", "text": "She read the NYTimes.", "SPANS": [{"start": 13, "end": 20}]}'


def _read_whole(file: BinaryIO, name: str) -> str:
    content = file.read(MAX_PASSAGE_BYTES + 1)
    if len(content) > MAX_PASSAGE_BYTES:
        limit = f"longer than {MAX_PASSAGE_BYTES:,} bytes, the maximum for one passage"
        raise InputError(name, None, f"{limit}. Split it, for example by chapters, one a line")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(name, None, f"not UTF-8 at byte {error.start}. Convert it, for example with iconv") from error
