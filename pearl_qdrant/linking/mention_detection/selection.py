"""Selects mentions among the candidate spans of a passage, by the probability of their links and by their shapes.

A linker's probability holds for strings that are worth linking. Most spans of running text are not mentions, and their
share depends on the shape of the span. So the odds of a link are multiplied by a factor of the shape,
but for several words that are exactly a name of the base:

    odds = p / (1 - p) * exp(shift[shape]),   probability = odds / (1 + odds)

Among overlapping spans, the set with the highest sum of weights is kept (weighted interval scheduling, by dynamic
programming over the ends): weight = probability^4 * words. So the longer one of two equally probable spans wins, and
two probable spans win over a less probable one. A span inside one that is exactly a name does not compete at all.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.linking.mention_detection.name_policy import Writing, is_date, is_whole
from pearl_qdrant.linking.mention_detection.spans import MAX_CHARACTERS, Shape, Span
from pearl_qdrant.linking.mention_detection.tie_breaking import namesakes
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
"""Log odds of being a mention, relative to a capitalised name. Chosen on the development half of
`benchmarks/passages.txt`; half a unit more or less changes F1 there by half a point at most."""

EXACT_PHRASE = 1.0
"""Probability in the weight of several words that are exactly a name: such words do not meet by chance."""

_JOINING = frozenset(("and", "or", "for", "with", "from", "in", "on", "at", "to"))
"""A span that no base contains and that has one of these words is more probably two names than one."""

_BEFORE_NAME = re.compile(r"an?|the|[\W\d]+")

_LOWEST, _HIGHEST = 1e-9, 1 - 1e-9  # probabilities are clipped, since log odds of 0 and 1 are infinite


@dataclass(frozen=True, slots=True)
class SpanCandidate:
    """A span that may be a mention, with its link.

    Attributes:
        span: Place and shape.
        link: The link of its string, made without a threshold.
        probability: Probability that the span mentions the entity of the link, in [0, 1].
        long_form: The string that was looked up in place of the text, if the passage defines one.
        is_exact: Whether the string is a name of the entity, up to case, accents and punctuation.
        writing: How the entity's name is written.
    """

    span: Span
    link: Link
    probability: float
    long_form: str | None = None
    is_exact: bool = False
    writing: Writing = Writing.PROPER

    @property
    def weight(self) -> float:
        """Value in the selection of overlapping spans."""
        probability = EXACT_PHRASE if self.is_phrase else self.probability
        return probability**4 * self.span.n_words

    @property
    def is_phrase(self) -> bool:
        """Whether it is exactly a name of several words."""
        return self.is_exact and self.span.n_words > 1


def probability_of(link: Link) -> float:
    """Probability that the entity, or one of those with its name, is right; 0 without candidates."""
    same = namesakes(link)
    return min(1.0, math.fsum(c.probability or 0.0 for c in same)) if same else link.probability or 0.0


def can_reach(link: Link, threshold: float) -> bool:
    """Whether a span with this link can reach the threshold; shapes only lower probabilities, so the link's decides."""
    return max(probability_of(link), _LOWEST) >= threshold


def is_name(link: Link) -> bool:
    """Whether the linked string is, folded, the name of the best candidate, or was learned as one."""
    if not link.candidates:
        return False
    best, mention = link.candidates[0], link.mention
    if any(one.entity_id == best.entity_id and one.as_written for one in link.learned):
        return True
    return best.name == mention or (fold_name(best.name) == fold_name(mention) != "")


def span_probability(span: Span, link: Link, *, is_exact: bool = False) -> float:
    """The probability that a span mentions the entity of its link, in [0, 1].

    Args:
        link: The link of its string, made without a threshold.
        is_exact: Whether the span is the name of that entity.
    """
    probability = min(max(probability_of(link), _LOWEST), _HIGHEST)
    log_odds = math.log(probability / (1 - probability))
    if not (is_exact and span.n_words > 1):
        log_odds += SHIFT[span.shape]
    return 1 / (1 + math.exp(-log_odds))


def select(candidates: Sequence[SpanCandidate], *, threshold: float, nested: bool = False) -> list[SpanCandidate]:
    """The best spans, in the order of the text; none overlap unless `nested` is set.

    Args:
        candidates: All candidate spans of the passage.
        threshold: Minimum probability, in [0, 1].
        nested: Whether to return the best spans inside the best spans, too, and so on. They have other entities than
            the span around them.
    """
    probable = [c for c in candidates if c.probability >= threshold and c.link.candidates]
    kept = outer = _best(probable, ())
    while nested and outer:
        probable = _inside(probable, outer)
        outer = _best(probable, [c.span for c in kept])
        kept = kept + outer
    return sorted(kept, key=lambda c: (c.span.start, -c.span.end))


def _best(probable: Sequence[SpanCandidate], around: Sequence[Span]) -> list[SpanCandidate]:
    """The best ones that do not overlap and are no pieces of longer names, but of the spans around them."""
    best = _whole(_without_redundant(probable), around)
    best = _best_disjoint(_without_parts(best))
    while len(whole := _whole(best, around)) < len(best):
        best = whole
    return best


def _whole(candidates: Sequence[SpanCandidate], around: Sequence[Span]) -> list[SpanCandidate]:
    """Those that are no pieces of longer names, whose other words no other candidate has."""
    spans = sorted([*around, *(c.span for c in candidates)], key=lambda span: span.start)
    starts = [span.start for span in spans]
    return [c for c in candidates if is_whole(c.span, c.writing, _beside(c.span, spans, starts))]


def _beside(span: Span, spans: Sequence[Span], starts: Sequence[int]) -> list[Span]:
    """Those of some spans in order that may be in the run of words of a span: beside it, or all around it."""
    if span.run is None:
        return []
    first, last = span.run.words[0][0], span.run.words[-1][1]
    near = spans[bisect_right(starts, first - MAX_CHARACTERS) : bisect_right(starts, last)]
    return [
        o for o in near if o.end <= span.start or span.end <= o.start or (o.start <= span.start and span.end <= o.end)
    ]


def _inside(candidates: Sequence[SpanCandidate], outer: Sequence[SpanCandidate]) -> list[SpanCandidate]:
    """The candidates inside one of some spans in order that do not overlap, which have another entity than that."""
    starts = [c.span.start for c in outer]
    inside = []
    for candidate in candidates:
        around = outer[max(0, bisect_right(starts, candidate.span.start) - 1)]
        is_inside = around.span.start <= candidate.span.start and candidate.span.end <= around.span.end
        if is_inside and _entities(candidate.link) != _entities(around.link):
            inside.append(candidate)
    return inside


def _without_parts(candidates: Sequence[SpanCandidate]) -> list[SpanCandidate]:
    """Drop spans inside a longer span that is exactly a name: `heart` in `heart attack`. O(n log n)."""
    kept = []
    end = -1  # the last end of the names so far, all of which start at the candidate's start or before
    for candidate in sorted(candidates, key=lambda c: (c.span.start, -c.span.end)):
        if candidate.span.end <= end:
            continue
        kept.append(candidate)
        if candidate.is_exact:
            end = candidate.span.end
    return kept


def _without_redundant(candidates: Sequence[SpanCandidate]) -> list[SpanCandidate]:
    """Drop spans that link to the same entity as a better span inside or around them.

    "daily aspirin" links to aspirin, but with a lower probability than "aspirin". "Obama" is not a separate mention
    within "President Obama".
    """
    by_entity: dict[tuple[str, str], list[SpanCandidate]] = {}
    for candidate in candidates:
        for entity in _entities(candidate.link):
            by_entity.setdefault(entity, []).append(candidate)
    redundant: set[int] = set()
    for same in by_entity.values():
        same.sort(key=lambda c: (c.span.start, -c.span.end))  # outer spans first
        for i, outer in enumerate(same):
            end = outer.span.end
            for k in range(i + 1, len(same)):
                inner = same[k]
                if inner.span.start >= end:
                    break
                if inner.span.end <= end:
                    redundant.add(id(outer if _is_better(inner, outer) else inner))
    return [candidate for candidate in candidates if id(candidate) not in redundant]


def _is_better(inner: SpanCandidate, outer: SpanCandidate) -> bool:
    """Whether the inner one of two spans of an entity is the mention."""
    if outer.is_exact and inner.is_exact and outer.link.mention.lower() == f"the {inner.link.mention.lower()}":
        is_of_name = outer.link.canonical_name == outer.link.mention
        return outer.link.mention.startswith("the ") or not (outer.span.case_matters or is_of_name)
    if outer.is_exact or inner.is_exact:
        # "day pneumonia" is pneumonia, but "Jeffrey Bezos" is more than Bezos.
        added = set(outer.link.mention.split()) - set(inner.link.mention.split())
        is_fuller_name = outer.span.shape is Shape.NAME and all(len(word) > 1 for word in added)
        return not outer.is_exact and (inner.is_phrase or not is_fuller_name or inner.probability > outer.probability)
    return inner.probability > outer.probability


def _entities(link: Link) -> tuple[tuple[str, str], ...]:
    """Base and id of the linked entity, and of all that have its name."""
    if same := namesakes(link):
        return tuple(sorted((c.kb, c.entity_id) for c in same))
    return () if link.entity_id is None else ((link.kb or "", link.entity_id),)


def _best_disjoint(candidates: Sequence[SpanCandidate]) -> list[SpanCandidate]:
    """Weighted interval scheduling; among equal sums, the one with fewer spans. O(n log n)."""
    ordered = sorted(candidates, key=lambda c: (c.span.end, c.span.start))
    ends = [c.span.end for c in ordered]
    # best[n]: weight, and minus the number of spans, of the best selection among the first n candidates.
    best: list[tuple[float, int]] = [(0.0, 0)]
    n_compatible: list[int] = []  # candidates that end before each one starts
    for i, candidate in enumerate(ordered):
        n_before = bisect_right(ends, candidate.span.start, hi=i)
        n_compatible.append(n_before)
        weight, n_spans = best[n_before]
        best.append(max(best[i], (weight + candidate.weight, n_spans - 1)))
    # Walk back: a candidate belongs to the selection where it improved the best sum.
    kept = []
    i = len(ordered)
    while i > 0:
        if best[i] == best[i - 1]:
            i -= 1
        else:
            kept.append(ordered[i - 1])
            i = n_compatible[i - 1]
    return kept[::-1]


def select_nil(candidates: Sequence[SpanCandidate], kept: Sequence[SpanCandidate]) -> list[SpanCandidate]:
    """Names and acronyms without an entity that do not overlap the kept spans.

    Where they overlap, those that are names of the base and no pieces of longer ones go first, then the longest.
    """
    taken = {offset for candidate in kept for offset in range(candidate.span.start, candidate.span.end)}
    found = []
    for candidate in sorted(
        candidates, key=lambda c: (not c.is_exact or c.span.run is not None, c.span.start - c.span.end, c.span.start)
    ):
        span = candidate.span
        if _may_be_nil(candidate) and taken.isdisjoint(range(span.start, span.end)):
            taken.update(range(span.start, span.end))
            found.append(replace(candidate, link=as_nil(candidate.link)))
    return found


def _may_be_nil(candidate: SpanCandidate) -> bool:
    """Whether a span may be a name that no base has: no date, and without an article or a number before it."""
    if candidate.span.shape is Shape.GIVEN:
        return True
    words = candidate.link.mention.lower().split()
    is_name = candidate.span.shape in (Shape.NAME, Shape.ACRONYM) and _JOINING.isdisjoint(words)
    return is_name and not is_date(" ".join(words)) and (candidate.is_exact or not _BEFORE_NAME.fullmatch(words[0]))


def as_nil(link: Link) -> Link:
    """The link as NIL with the reason `below_threshold`, unless it already is NIL without a tie."""
    if link.entity_id is None and link.nil_reason is not NilReason.AMBIGUOUS:
        return link
    return replace(
        link, entity_id=None, canonical_name=None, probability=None, nil_reason=NilReason.BELOW_THRESHOLD, kb=None
    )
