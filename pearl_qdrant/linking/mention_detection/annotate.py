"""Annotates running text: finds mentions, links them, and keeps a set without overlaps.

Candidate spans come from the shapes of words (`spans.py`) or from the caller (`blocks.py`). Abbreviations that the
passage defines are looked up by their long form (`abbreviations.py`). Each distinct string is linked once, and the most
probable spans are kept.

A linker's probability holds for strings that are worth linking. Most spans of running text are not mentions, and their
share depends on the shape of the span. So the odds of a link are multiplied by a factor of the shape,
but for several words that are exactly a name of the base, and for a name in another spelling or number:

    odds = p / (1 - p) * exp(shift[shape]),   probability = odds / (1 + odds)

Among overlapping spans, the set with the highest sum of weights is kept (weighted interval scheduling, by dynamic
programming over the ends): weight = probability^4 * words. So the longer one of two equally probable spans wins, and
two probable spans win over a less probable one. A span inside one that is exactly a name does not compete at all.

Two things separate entities with the same name: letter case, where the base spells only one of them that way (`turkey`
the bird, `Turkey` the country), and a context that the caller gives.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, Protocol

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.lexical.keys import name_keys
from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.linking.mention_detection.abbreviations import (
    Abbreviation,
    Forms,
    Use,
    find_uses,
    forms_of,
    short_forms,
)
from pearl_qdrant.linking.mention_detection.blocks import Block, finished, take_blocks
from pearl_qdrant.linking.mention_detection.links import (
    Choose,
    break_by_case,
    decide_namesakes,
    is_by_short_form,
    is_name,
    namesakes,
    probability_of,
    with_long_form,
)
from pearl_qdrant.linking.mention_detection.name_policy import NameCase, Writing, is_date, is_whole, may_mention
from pearl_qdrant.linking.mention_detection.name_windows import find_name_windows
from pearl_qdrant.linking.mention_detection.spans import MAX_CHARACTERS, Shape, Span, SpanFinder, as_name
from pearl_qdrant.linking.mention_detection.word_search import MayMention
from pearl_qdrant.linking.options import AnnotateOptions, CommonWords, LinkOptions
from pearl_qdrant.linking.outcomes import as_nil
from pearl_qdrant.pieces import pausing
from pearl_qdrant.records import Annotation, Candidate, Link, NilReason
from pearl_qdrant.settings import DEFAULT_LIMIT
from pearl_qdrant.store.schema import NamePoint

PASSAGES_AT_ONCE, CHARACTERS_AT_ONCE = 32, 20_000
"""Passages, or long ones' characters, linked together: a few thousand strings, enough to fill the encoder's batches."""

MAX_EXPANDED = 500
"""Characters of a span with its short forms expanded. A longer one is not a name, but many definitions in a row."""


class NameSource(Protocol):
    """What links the spans of passages, and knows the names of the base: a `LinkerState`, which says more of each."""

    @property
    def encoder(self) -> Encoder: ...
    def links(self, mentions: Iterable[str], options: LinkOptions) -> Iterator[Link]: ...
    def name_case(self) -> NameCase: ...
    def possible_names(self, written: Iterable[str], *, types: Sequence[str] = ()) -> set[str]: ...
    def names_by_words(
        self, spans: Mapping[str, Sequence[Span]], may: MayMention, *, types: Sequence[str] = ()
    ) -> set[str]: ...
    def known_names(self, names: Sequence[str], *, types: Sequence[str] = ()) -> set[str]: ...
    def known_spellings(self, names: Sequence[str], *, types: Sequence[str] = ()) -> set[str]: ...


class _Lookup(NamedTuple):
    """A span and what is linked for it, as `Forms` has it."""

    span: Span
    query: str
    short: str | None = None
    long_form: str | None = None


class _Passage(NamedTuple):
    """A block of a text with its words, None where its spans are given, the lookups of its spans, and the places of
    short forms that the text defines.
    """

    block: Block
    finder: SpanFinder | None
    lookups: list[_Lookup]
    uses: Sequence[Use]


def annotate_blocks(
    linker: NameSource, blocks: Iterable[Block], options: AnnotateOptions, *, with_features: bool = True
) -> Iterator[list[Annotation]]:
    """The annotations of blocks of texts, in order; a few are linked together. Given spans (`blocks.GivenSpan`) are all
    used, overlapping ones too; with `include_nil`, but not `assertions`, there is one annotation for each, in their
    order. Without their features, candidates take a third of the memory.
    """
    choose = None if options.context is None else ContextChooser(options.context, linker.encoder)
    remaining = iter(blocks)
    while group := take_blocks(remaining, PASSAGES_AT_ONCE, CHARACTERS_AT_ONCE):
        passages = [_prepare(block) for block in group]
        yield from _annotate_group(linker, passages, options, choose, with_features=with_features)


def _prepare(block: Block) -> _Passage:
    """The spans of a block and the strings to look them up by."""
    text, uses = block.text, find_uses(block.text, block.abbreviations)
    short = short_forms(block.abbreviations)
    finder = SpanFinder(text) if block.spans is None else None
    lookups = []
    for span in block.spans or () if finder is None else _candidate_spans(finder, block.abbreviations, uses):
        lookup = _Lookup(span, *forms_of(text, span.start, span.end, uses, short))
        if block.spans is not None or len(lookup.query) <= MAX_EXPANDED:
            lookups.append(lookup)
    return _Passage(block, finder, lookups, uses)


def _candidate_spans(finder: SpanFinder, abbreviations: Sequence[Abbreviation], uses: Sequence[Use]) -> list[Span]:
    """Spans by shape, plus the short and long forms that the passage defines; no span cuts a short form."""
    text, used = finder.text, [(use.start, use.end) for use in uses]
    long_forms = ((a.long_start, a.long_start + len(a.long)) for a in abbreviations)
    defined = {*used, *((start, end) for start, end in long_forms if start >= 0 and end <= len(text))}
    within = _offsets_within(uses)
    found = [
        span
        for span in pausing(finder.spans())
        if (span.start, span.end) not in defined and span.start not in within and span.end not in within
    ]
    certain = [Span(start, end, Shape.DEFINED, len(text[start:end].split())) for start, end in defined]
    return sorted([*found, *certain], key=lambda span: (span.start, span.end))


def _offsets_within(uses: Sequence[Use]) -> set[int]:
    """The offsets where a span would cut a short form."""
    return {offset for use in uses for offset in range(use.start + 1, use.end)}


def _annotate_group(
    linker: NameSource,
    passages: Sequence[_Passage],
    options: AnnotateOptions,
    choose: Choose | None,
    *,
    with_features: bool,
) -> Iterator[list[Annotation]]:
    """Link the distinct strings of some passages together, then select the annotations of each passage."""
    case = linker.name_case()
    is_open = [passage for passage in passages if passage.finder is not None]
    if not options.include_nil and options.common_words != "all":
        _drop_impossible(linker, is_open, case, options)
    _add_name_windows(linker, is_open, options.types, case)
    if options.common_words != "skip":
        _add_whole_texts(linker, is_open, options.types)
    least = 0.0 if options.include_nil else options.least_probability
    link_of: dict[tuple[tuple[str, ...], str], Link] = {}
    for types, some in _queries(passages, options).items():
        # Without a threshold: it applies to spans, whose probability also depends on their shape.
        links = linker.links(some, LinkOptions(types=types, limit=DEFAULT_LIMIT, threshold=0.0))
        for (query, is_long), link in pausing(zip(some.items(), links, strict=True)):
            # Candidates of a link with which no span can reach the threshold would fill memory: most cannot.
            is_used = is_long or max(probability_of(link), LOWEST) >= least or is_name(link)
            if not is_used:
                link = replace(link, candidates=())
            elif not with_features:
                link = replace(
                    link, candidates=tuple(replace(one, features={}, decision={}) for one in link.candidates)
                )
            link_of[types, query] = link
    decide = partial(decide_namesakes, threshold=options.least_probability, on_tie=options.on_tie, choose=choose)
    for passage in passages:
        found = []
        for one in _select_spans(passage, _span_candidates(passage, link_of, case, options), options):
            link, start, end = decide(one.link), one.span.start, one.span.end
            if options.include_nil or link.entity_id is not None:
                found.append(Annotation(passage.block.text[start:end], start, end, link, one.long_form))
        yield finished(passage.block, found, options)


def _queries(passages: Sequence[_Passage], options: AnnotateOptions) -> dict[tuple[str, ...], dict[str, bool]]:
    """The strings to link by their types, each with whether it has a short form."""
    found: dict[tuple[str, ...], dict[str, bool]] = {}
    for passage in passages:
        for lookup in passage.lookups:
            found.setdefault(options.types_of(lookup.span.label), {}).setdefault(lookup.query, False)
        for lookup in passage.lookups if passage.block.abbreviations else ():
            if lookup.short is not None:
                some = found[options.types_of(lookup.span.label)]
                some.setdefault(lookup.short, False)
                some[lookup.query] = True
    return found


def _drop_impossible(linker: NameSource, is_open: Sequence[_Passage], case: NameCase, options: AnnotateOptions) -> None:
    """Drop what cannot be a name of the base: most of a text, which is not linked then."""
    written = {one.query for passage in is_open for one in passage.lookups if one.span.shape is not Shape.DEFINED}
    possible = linker.possible_names(written, types=options.types)
    spans: dict[str, list[Span]] = {}
    for passage in is_open:
        for one in passage.lookups:
            if one.span.shape is not Shape.DEFINED and one.query in possible:
                spans.setdefault(one.query, []).append(one.span)
    may = partial(_may_mention, case=case, common_words=options.common_words)
    possible = linker.names_by_words(spans, may, types=options.types)
    for passage in is_open:
        passage.lookups[:] = [
            one for one in passage.lookups if one.span.shape is Shape.DEFINED or one.query in possible
        ]


def _may_mention(
    query: str, spans: Sequence[Span], point: NamePoint, is_exact: bool, *, case: NameCase, common_words: CommonWords
) -> bool:
    """Whether one of the spans of a string may mention a name."""
    kinds = {(one.shape, one.case_matters): one for one in spans}
    return any(
        may_mention(one, query, point, case, is_exact=is_exact, common_words=common_words) for one in kinds.values()
    )


def _add_name_windows(linker: NameSource, is_open: Sequence[_Passage], types: Sequence[str], case: NameCase) -> None:
    """Add the spans that are names of the base as written."""
    windows = find_name_windows(
        [passage.finder for passage in is_open if passage.finder is not None],
        partial(linker.known_names, types=types),
        partial(linker.known_spellings, types=types),
        without=[{(lookup.span.start, lookup.span.end) for lookup in passage.lookups} for passage in is_open],
        case=case,
    )
    for passage, spans in zip(is_open, windows, strict=True):
        within = _offsets_within(passage.uses) if spans else set()
        for span in spans:
            if span.start not in within and span.end not in within:
                query = as_name(passage.block.text[span.start : span.end])
                passage.lookups.append(_Lookup(span, query))


def _add_whole_texts(linker: NameSource, is_open: Sequence[_Passage], types: Sequence[str]) -> None:
    """Let a text that is a name of the base as written, and nothing else, mention it: a cell of a table."""
    of_name: dict[str, list[_Passage]] = {}
    for passage in is_open:
        block = passage.block
        if block.is_last and block.start == 0 and len(block.text) <= MAX_CHARACTERS:
            of_name.setdefault(as_name(block.text), []).append(passage)
    for name in linker.known_names(list(of_name), types=types):
        for passage in of_name.get(name, ()):
            text = passage.block.text
            start, end = len(text) - len(text.lstrip()), len(text.rstrip())
            others = [one for one in passage.lookups if (one.span.start, one.span.end) != (start, end)]
            whole = _Lookup(Span(start, end, Shape.GIVEN, len(name.split())), name)
            passage.lookups[:] = [*others, whole]


def _span_candidates(
    passage: _Passage, link_of: Mapping[tuple[tuple[str, ...], str], Link], case: NameCase, options: AnnotateOptions
) -> list[SpanCandidate]:
    """The spans of a passage, each with its link, by types and string, and its probability of being a mention."""
    candidates = []
    for lookup in pausing(passage.lookups):
        span, query, short, long_form = lookup
        link = link_of[options.types_of(span.label), query]
        if short is not None:
            link, query = _by_form(link, link_of[options.types_of(span.label), short], lookup, options)
        is_exact = is_name(link)
        allowed = partial(may_mention, span, query, case=case, is_exact=is_exact, common_words=options.common_words)
        by_case = break_by_case(link, allowed) if link.candidates else link
        if by_case is None:
            candidates.append(SpanCandidate(span, link, 0.0, long_form))
            continue
        best = next((c for c in link.candidates if by_case.entity_id in (None, c.entity_id)), None)
        writing = case.writing_of(best) if best is not None else Writing.PROPER
        probability = span_probability(span, by_case, is_exact=is_exact)
        candidates.append(SpanCandidate(span, by_case, probability, long_form, is_exact, writing))
    return candidates


def _by_form(long: Link, short: Link, lookup: _Lookup, options: AnnotateOptions) -> tuple[Link, str]:
    """The link of the long form or of the short form of a lookup, and which string it is of."""
    forms = Forms(*lookup[1:])
    if forms.short is not None and is_by_short_form(forms, long, short, options.least_probability):
        return with_long_form(short, long), forms.short
    return long, forms.query


def _select_spans(
    passage: _Passage, candidates: Sequence[SpanCandidate], options: AnnotateOptions
) -> list[SpanCandidate]:
    """The spans to return, in the order of the text; of given spans all, in the caller's order."""
    threshold = options.least_probability
    if passage.block.spans is not None:
        return [c if c.probability >= threshold else replace(c, link=without_entity(c.link)) for c in candidates]
    kept = select(candidates, threshold=threshold, nested=options.nested)
    if options.include_nil:
        kept += select_nil(candidates, kept)
    return sorted(kept, key=lambda c: (c.span.start, -c.span.end))


class ContextChooser:
    """Chooses the candidate whose description and types are closest to a context, which may be any text."""

    def __init__(self, context: str, encoder: Encoder) -> None:
        self._encoder = encoder
        encoded = encoder.encode([context.encode("utf-8", "replace").decode()])  # a shell may pass invalid bytes
        self._vector = encoded.vectors[0] if encoded.encodable[0] else None

    def __call__(self, candidates: Sequence[Candidate]) -> Candidate | None:
        """The closest candidate; None if the context has no vector, or several candidates are equally close."""
        if self._vector is None:
            return None
        cosines = self._encoder.encode([_description(c) for c in candidates]).vectors @ self._vector
        order = cosines.argsort()[::-1]
        # Two cosines of the same text differ by rounding.
        return None if cosines[order[0]] - cosines[order[1]] <= 1e-6 else candidates[int(order[0])]


def _description(candidate: Candidate) -> str:
    """Description and types of an entity as one phrase; the name is the same for all tied entities and is omitted."""
    types = ", ".join(candidate.kb_types or candidate.types)
    return f"{candidate.description}, {types}" if candidate.description else f"{candidate.canonical_name}, {types}"


SHIFT = {Shape.MIXED: -0.5, Shape.UNCASED: -1.0, Shape.LOWER: -1.0, Shape.PIECE: -1.0, Shape.PART: -2.0}
"""Log odds of being a mention, relative to a capitalised name and the other shapes. Chosen on the development half of
`benchmarks/passages.txt`; half a unit more or less changes F1 there by half a point at most."""

_JOINING = frozenset(("and", "or", "for", "with", "from", "in", "on", "at", "to"))
"""A span that no base contains and that has one of these words is more probably two names than one."""

_GENITIVE = re.compile(r"['’]s?$")
_BEFORE_NAME = re.compile(r"an?|the|[\W\d]+")
LOWEST, _HIGHEST = 1e-9, 1 - 1e-9  # probabilities are clipped, since log odds of 0 and 1 are infinite


@dataclass(frozen=True, slots=True)
class SpanCandidate:
    """A span that may be a mention, with its link."""

    span: Span
    link: Link  # the link of its string, made without a threshold
    probability: float  # probability that the span mentions the entity of the link, in [0, 1]
    long_form: str | None = None  # the string that was looked up in place of the text, if the passage defines one
    is_exact: bool = False  # whether the string is a name of the entity, up to case, accents and punctuation
    writing: Writing = Writing.PROPER

    @property
    def weight(self) -> float:
        """Value in the selection of overlapping spans; the words of an exact phrase do not meet by chance."""
        return (1.0 if self.is_phrase else self.probability) ** 4 * self.span.n_words

    @property
    def is_phrase(self) -> bool:
        """Whether it is exactly a name of several words."""
        return self.is_exact and self.span.n_words > 1


def span_probability(span: Span, link: Link, *, is_exact: bool = False) -> float:
    """The probability that a span mentions the entity of its link, in [0, 1]; `is_exact`: it is the entity's name."""
    probability = min(max(probability_of(link), LOWEST), _HIGHEST)
    log_odds = math.log(probability / (1 - probability))
    names = [link.mention, *(candidate.name for candidate in link.candidates[:1])]
    # The best name in another spelling or number: cardiomyopathy, Cardiomyopathies.
    is_variant = not is_exact and len(names) > 1 and len({name_keys(fold_name(name))[1] for name in names}) == 1
    if not (span.n_words > 1 if is_exact else is_variant):
        log_odds += SHIFT.get(span.shape, 0.0)
    return 1 / (1 + math.exp(-log_odds))


def select(candidates: Sequence[SpanCandidate], *, threshold: float, nested: bool = False) -> list[SpanCandidate]:
    """The best spans, in the order of the text, of at least this probability; none overlap unless `nested` is set. Then
    the best spans inside the best spans are returned, too, and so on, with other entities than those around them.
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
    """Drop spans that link to the same entity as a better span inside or around them. "daily aspirin" links to aspirin,
    but with a lower probability than "aspirin". "Obama" is not a separate mention within "President Obama".
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
        if inner.is_exact and _GENITIVE.sub("", outer.link.mention) == inner.link.mention != outer.link.mention:
            return not any(map(_GENITIVE.search, (c.name for c in outer.link.candidates[:1])))  # `McDonald's` has one
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
    """Names and acronyms without an entity that do not overlap the kept spans. Where they overlap, those that are names
    of the base and no pieces of longer ones go first, then the longest.
    """
    taken = {offset for candidate in kept for offset in range(candidate.span.start, candidate.span.end)}
    found = []
    for candidate in sorted(
        candidates, key=lambda c: (not c.is_exact or c.span.run is not None, c.span.start - c.span.end, c.span.start)
    ):
        span, words = candidate.span, candidate.link.mention.lower().split()
        # No date, and without an article or a number before it.
        is_name = span.shape in (Shape.NAME, Shape.ACRONYM) and _JOINING.isdisjoint(words)
        is_bare = is_name and not is_date(" ".join(words))
        may_be = span.shape in (Shape.GIVEN, Shape.DEFINED) or (
            is_bare and (candidate.is_exact or not _BEFORE_NAME.fullmatch(words[0]))
        )
        if may_be and taken.isdisjoint(range(span.start, span.end)):
            taken.update(range(span.start, span.end))
            found.append(replace(candidate, link=without_entity(candidate.link)))
    return found


def without_entity(link: Link) -> Link:
    """The link as NIL with the reason `below_threshold`, unless it already is NIL without a tie."""
    if link.entity_id is None and link.nil_reason is not NilReason.AMBIGUOUS:
        return link
    return as_nil(link, NilReason.BELOW_THRESHOLD)
