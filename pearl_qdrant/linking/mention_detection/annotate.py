"""Mentions in running text: found, linked and laid out without overlaps.

Candidate spans come from the shape of the words (`spans.py`) or from the caller (`given_spans.py`); what the passage
abbreviates is looked up by its long form (`abbreviations.py`). Every distinct string is linked once, and the spans that
the base knows best are kept (`selection.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Protocol

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.linking.mention_detection.abbreviations import (
    Abbreviation,
    Use,
    find_abbreviations,
    find_uses,
    write_out,
)
from pearl_qdrant.linking.mention_detection.given_spans import DocLike, GivenSpan, read_spans, read_text
from pearl_qdrant.linking.mention_detection.selection import (
    CASED_BASE,
    SpanCandidate,
    as_nil,
    is_hopeless,
    n_lower_case,
    select,
    select_nil,
    span_probability,
)
from pearl_qdrant.linking.mention_detection.spans import Shape, Span, find_spans
from pearl_qdrant.linking.mention_detection.tie_breaking import (
    Choose,
    ContextChooser,
    OnTie,
    break_by_case,
    break_tie,
    first_by_id,
)
from pearl_qdrant.records import Annotation, Link
from pearl_qdrant.settings import DEFAULT_LIMIT, DEFAULT_PASSAGE_THRESHOLD

PASSAGES_AT_ONCE = 32
"""Passages whose spans are linked together: some thousand strings, enough to fill the encoder's batches."""


MAX_WRITTEN_OUT = 500
"""Characters of a span whose short forms are written out; a longer one is no name, only many definitions in a row."""


class BatchLinker(Protocol):
    """What links strings, such as an `EntityLinker`."""

    def link_batch(
        self, mentions: Iterable[str], *, types: Sequence[str] = (), limit: int = ..., threshold: float | None = None
    ) -> Iterator[Link]:
        """Link mentions, in order; see `EntityLinker.link_batch`."""
        ...


@dataclass(frozen=True, slots=True)
class _Lookup:
    """A span, and the string that it is looked up by."""

    span: Span
    query: str
    is_abbreviated: bool


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a string was linked to.

    Attributes:
        link: Without its candidates if nobody will see them, which is so of most spans: they would fill the memory.
        n_candidates, n_lower: How many there were, and how many of them have a name in lower case.
    """

    link: Link
    n_candidates: int
    n_lower: int


@dataclass(frozen=True, slots=True)
class _Passage:
    """A text and what is looked up for it."""

    text: str
    lookups: list[_Lookup]
    is_given: bool


def annotate(
    linker: BatchLinker,
    text: str | DocLike,
    *,
    spans: Iterable[GivenSpan] | None = None,
    types: Sequence[str] = (),
    threshold: float | None = None,
    context: str | None = None,
    on_tie: OnTie = "null",
    include_nil: bool = False,
    encoder: Encoder | None = None,
) -> list[Annotation]:
    """Find the mentions of a passage and link them.

    Args:
        linker: Links the candidate spans.
        text: The passage, or a spaCy `Doc`; the entities that were recognised in a `Doc` are the spans.
        spans: Where the mentions are, if the caller knows: (start, end) in characters, objects with `start_char` and
            `end_char`, or mappings with `start` and `end`. They are taken as they are, overlapping ones too.
        types: Only entities of one of these types, native or coarse; empty for all.
        threshold: Least probability, in [0, 1].
        context: What the passage is about; chooses between entities that nothing else separates.
        on_tie: What becomes of ties that remain: "null" leaves them NIL, "first" takes the first by id.
        include_nil: Also return what was taken for a mention but has no entity.
        encoder: Encodes the context; by default the linker's own, where it has an `encoder`.

    Returns:
        Annotations in the order of the text; where the caller gave the spans and wants NIL, one for each, in the
        caller's order.

    Raises:
        ValueError: If a span is not within the text, the threshold not in [0, 1], or there is no encoder for a context.
    """
    bar, choose = _checked(linker, threshold, context, on_tie, encoder)
    own_text, own_spans = read_text(text)
    passage = _prepare(own_text, own_spans if spans is None else spans)
    return next(_annotate_group(linker, [passage], types, bar, choose, include_nil))


def annotate_batch(
    linker: BatchLinker,
    texts: Iterable[str | DocLike],
    *,
    types: Sequence[str] = (),
    threshold: float | None = None,
    context: str | None = None,
    on_tie: OnTie = "null",
    include_nil: bool = False,
    encoder: Encoder | None = None,
) -> Iterator[list[Annotation]]:
    """Annotate many passages, in order; takes any iterable and reads `PASSAGES_AT_ONCE` ahead.

    A passage gets the annotations that it would get alone. Arguments as in `annotate`.
    """
    if isinstance(texts, (str, bytes)):
        raise TypeError("texts is one string, whose letters would be annotated one by one: give a list")
    bar, choose = _checked(linker, threshold, context, on_tie, encoder)

    def stream() -> Iterator[list[Annotation]]:
        remaining = iter(texts)
        while group := [_prepare(*read_text(text)) for text in islice(remaining, PASSAGES_AT_ONCE)]:
            yield from _annotate_group(linker, group, types, bar, choose, include_nil)

    return stream()


def _checked(
    linker: BatchLinker, threshold: float | None, context: str | None, on_tie: OnTie, encoder: Encoder | None
) -> tuple[float, Choose | None]:
    """The threshold, and what breaks ties."""
    bar = DEFAULT_PASSAGE_THRESHOLD if threshold is None else threshold
    if not 0.0 <= bar <= 1.0:
        raise ValueError(f"threshold is a probability in [0, 1], not {bar}")
    if on_tie not in ("null", "first"):
        raise ValueError(f"on_tie is 'null' or 'first', not {on_tie!r}")
    last = first_by_id if on_tie == "first" else None
    if context is None:
        return bar, last
    encoder = encoder or getattr(linker, "encoder", None)
    if encoder is None:
        raise ValueError(f"a context needs an encoder, and {type(linker).__name__} has none; give one with encoder=")
    by_context = ContextChooser(context, encoder)
    if last is None:
        return bar, by_context
    return bar, lambda candidates: by_context(candidates) or first_by_id(candidates)


def _prepare(text: str, given: Iterable[GivenSpan] | None) -> _Passage:
    """The spans of a text and what they are looked up by."""
    abbreviations = find_abbreviations(text)
    uses = find_uses(text, abbreviations)
    lookups = []
    for span in _candidate_spans(text, abbreviations, uses) if given is None else read_spans(text, given):
        written, is_abbreviated = write_out(text, span.start, span.end, uses)
        if given is None and len(written) > MAX_WRITTEN_OUT:
            continue
        # The white space within a name is no part of it.
        lookups.append(_Lookup(span, " ".join(written.split()), is_abbreviated))
    return _Passage(text, lookups, given is not None)


def _candidate_spans(text: str, abbreviations: Sequence[Abbreviation], uses: Sequence[Use]) -> list[Span]:
    """Candidate spans; what the passage defines is a mention, and no span cuts it."""
    used = [(use.start, use.end) for use in uses]
    defined = {*used, *((a.long_start, a.long_start + len(a.long)) for a in abbreviations)}
    within = {offset for start, end in used for offset in range(start + 1, end)}
    found = [
        span
        for span in find_spans(text)
        if (span.start, span.end) not in defined and span.start not in within and span.end not in within
    ]
    certain = [Span(start, end, Shape.GIVEN, len(text[start:end].split())) for start, end in defined]
    return sorted([*found, *certain], key=lambda span: (span.start, span.end))


def _annotate_group(
    linker: BatchLinker,
    passages: Sequence[_Passage],
    types: Sequence[str],
    threshold: float,
    choose: Choose | None,
    include_nil: bool,
) -> Iterator[list[Annotation]]:
    """Link the distinct strings of some passages together, and lay each passage out."""
    distinct = list(dict.fromkeys(lookup.query for passage in passages for lookup in passage.lookups))
    found = linker.link_batch(distinct, types=types, limit=DEFAULT_LIMIT, threshold=0.0) if distinct else iter(())
    bar = 0.0 if include_nil else threshold
    answers = {query: _answer(link, bar) for query, link in zip(distinct, found, strict=True)}
    for passage in passages:
        kept = _lay_out(passage, _read(passage, answers), threshold, include_nil)
        settled = [r if choose is None else replace(r, link=break_tie(r.link, choose)) for r in kept]
        yield [
            Annotation(passage.text[r.span.start : r.span.end], r.span.start, r.span.end, r.link, r.long_form)
            for r in settled
            if include_nil or r.link.entity_id is not None
        ]


def _answer(link: Link, threshold: float) -> _Answer:
    kept = replace(link, candidates=()) if is_hopeless(link, threshold) else link
    return _Answer(kept, len(link.candidates), n_lower_case(link))


def _read(passage: _Passage, answers: Mapping[str, _Answer]) -> list[SpanCandidate]:
    """Each span of a passage with its link and its probability."""
    every = [answers[lookup.query] for lookup in passage.lookups]
    in_cased_base = sum(a.n_lower for a in every) > CASED_BASE * sum(a.n_candidates for a in every)
    readings = []
    for lookup in passage.lookups:
        span, link = lookup.span, answers[lookup.query].link
        settled = break_by_case(link) if span.knows_case else link
        name = next((c.name for c in link.candidates if settled.entity_id in (None, c.entity_id)), None)
        probability = span_probability(span, link, in_cased_base=in_cased_base, name=name)
        readings.append(SpanCandidate(span, settled, probability, lookup.query if lookup.is_abbreviated else None))
    return readings


def _lay_out(
    passage: _Passage, readings: Sequence[SpanCandidate], threshold: float, include_nil: bool
) -> list[SpanCandidate]:
    """The readings to show, in the order of the text, or all of the caller's in the caller's order."""
    if passage.is_given:
        return [r if r.probability >= threshold else replace(r, link=as_nil(r.link)) for r in readings]
    kept = select(readings, threshold=threshold)
    if include_nil:
        kept += select_nil(readings, kept)
    return sorted(kept, key=lambda r: r.span.start)
