"""Which candidate spans of a passage are mentions: the probability of their links, and their shapes.

A linker's probability holds for strings that somebody has found worth linking. Most spans of running text are not, and
how many of them depends on their shape; so the odds of a link are first multiplied by a factor of the shape:

    odds = p / (1 - p) * exp(shift[shape]),   probability = odds / (1 + odds)

Of spans that overlap, those are kept whose sum of weights is the highest (weighted interval scheduling, by dynamic
programming over the ends): weight = probability^4 * words. So of equally probable readings the longer one wins, and two
sure ones win over one that is less so.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pearl_qdrant.linking.mention_detection.spans import Shape, Span
from pearl_qdrant.records import Link, NilReason

SHIFT = {
    Shape.GIVEN: 0.0,
    Shape.NAME: 0.0,
    Shape.ACRONYM: 0.0,
    Shape.MIXED: -0.5,
    Shape.UNCASED: -1.0,
    Shape.LOWER: -1.0,
    Shape.PIECE: -1.0,
    Shape.PART: -2.0,
}
"""Log odds of being a mention against those of a capitalised name. Tried on the development half of
`benchmarks/passages.txt`; half a unit more or less moves F1 there by half a point at most."""

CASE_SHIFT = -3.0
"""Further log odds of a lower-case word whose name in the base is a capitalised one: `time` is not the magazine."""

CASED_BASE = 0.1
"""Share of lower-case names from which on a base is taken to capitalise only what is a name; many capitalise all."""

_JOINING = frozenset(("and", "or", "for", "with", "from", "in", "on", "at", "to"))
"""Two names are more likely than one of them with such a word in it that no base knows."""

_NEVER, _ALWAYS = 1e-9, 1 - 1e-9  # probabilities are kept off 0 and 1, where the odds are not defined


@dataclass(frozen=True, slots=True)
class SpanCandidate:
    """A span with the link that it would have.

    Attributes:
        span: Where it is.
        link: Its link, from a linker that was told to use no threshold.
        probability: Of being a mention of that entity, in [0, 1].
        long_form: What was looked up instead of the text, if the passage defines it.
    """

    span: Span
    link: Link
    probability: float
    long_form: str | None = None

    @property
    def weight(self) -> float:
        return self.probability**4 * self.span.n_words


def probability_of(link: Link) -> float:
    """How probable it is that the entity is the right one, or one of those tied with it; 0 without a candidate."""
    if link.nil_reason is NilReason.AMBIGUOUS:
        return min(1.0, math.fsum(c.probability or 0.0 for c in link.candidates if c.tie))
    return link.probability or 0.0


def n_lower_case(link: Link) -> int:
    """How many candidates of a link have a name in lower case."""
    return sum(candidate.name.islower() for candidate in link.candidates)


def is_hopeless(link: Link, threshold: float) -> bool:
    """Whether no span with this link can reach the threshold: a shape takes from a probability, and never adds."""
    return max(probability_of(link), _NEVER) < threshold


def span_probability(span: Span, link: Link, *, in_cased_base: bool, name: str | None) -> float:
    """The probability that a span mentions the entity of its link, in [0, 1].

    Args:
        span: The span.
        link: What its string was linked to, with no threshold.
        in_cased_base: Whether the base writes some names in lower case, as far as the passage's candidates tell.
        name: The name of the entity that is closest to the span, if there is any.
    """
    probability = min(max(probability_of(link), _NEVER), _ALWAYS)
    log_odds = math.log(probability / (1 - probability)) + SHIFT[span.shape]
    is_lower = span.shape is Shape.LOWER and span.knows_case
    if is_lower and in_cased_base and name is not None and name[:1].isupper():
        log_odds += CASE_SHIFT
    return 1 / (1 + math.exp(-log_odds))


def select(readings: Sequence[SpanCandidate], *, threshold: float) -> list[SpanCandidate]:
    """The readings that are kept, none overlapping another, in the order of the text.

    Args:
        readings: Of all candidate spans.
        threshold: Least probability, in [0, 1].
    """
    probable = [r for r in readings if r.probability >= threshold and r.link.candidates]
    return _best_disjoint(_without_echoes(probable))


def _without_echoes(readings: Sequence[SpanCandidate]) -> list[SpanCandidate]:
    """Without the spans that say nothing but what a better span within or around them says.

    "daily aspirin" is aspirin, but less surely so than "aspirin"; "Obama" is no mention of its own within "President
    Obama".
    """
    by_entity: dict[tuple[tuple[str, str], ...], list[SpanCandidate]] = {}
    for reading in readings:
        by_entity.setdefault(_entities(reading.link), []).append(reading)
    echoes: set[int] = set()
    for same in by_entity.values():
        same.sort(key=lambda r: (r.span.start, -r.span.end))  # the outer ones first
        for i, outer in enumerate(same):
            # A longer span says less than a shorter one in it only if it is no name of the entity.
            end, strength = outer.span.end, math.inf if _is_name(outer.link) else outer.probability
            for k in range(i + 1, len(same)):
                inner = same[k]
                if inner.span.start >= end:
                    break
                if inner.span.end <= end:
                    echoes.add(id(outer if strength < inner.probability else inner))
    return [reading for reading in readings if id(reading) not in echoes]


def _is_name(link: Link) -> bool:
    """Whether the string that was linked is a name of its best candidate."""
    return any(c.name.casefold() == link.mention.casefold() for c in link.candidates[:1])


def _entities(link: Link) -> tuple[tuple[str, str], ...]:
    """What a link points to, by base and id: one entity, or those that are tied."""
    if link.entity_id is not None:
        return ((link.kb or "", link.entity_id),)
    return tuple(sorted((c.kb, c.entity_id) for c in link.candidates if c.tie))


def _best_disjoint(readings: Sequence[SpanCandidate]) -> list[SpanCandidate]:
    """Weighted interval scheduling; of equal sums, the one with fewer spans."""
    ordered = sorted(readings, key=lambda r: (r.span.end, r.span.start))
    ends = [r.span.end for r in ordered]
    best: list[tuple[float, int]] = [(0.0, 0)]  # weight, and minus the number of spans, of the first n readings
    before: list[int] = []
    for i, reading in enumerate(ordered):
        n_before = bisect_right(ends, reading.span.start, hi=i)
        before.append(n_before)
        weight, n_spans = best[n_before]
        best.append(max(best[i], (weight + reading.weight, n_spans - 1)))
    kept = []
    i = len(ordered)
    while i > 0:
        if best[i] == best[i - 1]:
            i -= 1
        else:
            kept.append(ordered[i - 1])
            i = before[i - 1]
    return kept[::-1]


def select_nil(readings: Sequence[SpanCandidate], kept: Sequence[SpanCandidate]) -> list[SpanCandidate]:
    """Names and acronyms that the base does not have, beside what was kept, the longest first where they overlap."""
    taken = {offset for reading in kept for offset in range(reading.span.start, reading.span.end)}
    found = []
    for reading in sorted(readings, key=lambda r: (r.span.start - r.span.end, r.span.start)):
        span = reading.span
        is_name = span.shape in (Shape.NAME, Shape.ACRONYM) and not _JOINING.intersection(reading.link.mention.split())
        if (is_name or span.shape is Shape.GIVEN) and taken.isdisjoint(range(span.start, span.end)):
            taken.update(range(span.start, span.end))
            found.append(replace(reading, link=as_nil(reading.link)))
    return found


def as_nil(link: Link) -> Link:
    """The link, NIL for being below the threshold if it was not NIL before."""
    if link.entity_id is None and link.nil_reason is not NilReason.AMBIGUOUS:
        return link
    return replace(
        link, entity_id=None, canonical_name=None, probability=None, nil_reason=NilReason.BELOW_THRESHOLD, kb=None
    )
