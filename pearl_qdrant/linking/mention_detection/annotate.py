"""Annotates running text: finds mentions, links them, and keeps a set without overlaps.

Candidate spans come from the shapes of words (`spans.py`) or from the caller (`blocks.py`). Abbreviations that the
passage defines are looked up by their long form (`abbreviations.py`). Each distinct string is linked once, and the most
probable spans are kept (`selection.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.linking.mention_detection import selection
from pearl_qdrant.linking.mention_detection.abbreviations import Abbreviation, Use, expand, find_uses
from pearl_qdrant.linking.mention_detection.blocks import Block, DocLike, GivenSpan, finished, read_blocks, take_blocks
from pearl_qdrant.linking.mention_detection.name_policy import NameCase, Writing, may_mention
from pearl_qdrant.linking.mention_detection.name_windows import find_name_windows
from pearl_qdrant.linking.mention_detection.spans import Shape, Span, as_name, find_spans
from pearl_qdrant.linking.options import AnnotateOptions
from pearl_qdrant.records import Annotation, Link
from pearl_qdrant.settings import DEFAULT_LIMIT

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from pearl_qdrant.linking.options import AnnotateKeywords

PASSAGES_AT_ONCE, CHARACTERS_AT_ONCE = 32, 20_000
"""Passages, or long ones' characters, linked together: a few thousand strings, enough to fill the encoder's batches."""

MAX_EXPANDED = 500
"""Characters of a span with its short forms expanded. A longer one is not a name, but many definitions in a row."""


class BatchLinker(Protocol):
    """Links many strings; `EntityLinker` is one."""

    def link_batch(
        self, mentions: Iterable[str], *, types: Sequence[str] = (), limit: int = ..., threshold: float | None = None
    ) -> Iterator[Link]: ...


class _Lookup(NamedTuple):
    """A span and the string that is linked for it."""

    span: Span
    query: str
    is_abbreviated: bool


class _Passage(NamedTuple):
    """A block of a text, the lookups of its spans, and the places of short forms that the text defines."""

    block: Block
    lookups: list[_Lookup]
    uses: Sequence[Use]

    @property
    def text(self) -> str:
        return self.block.text


def annotate(
    linker: BatchLinker,
    text: str | DocLike,
    options: AnnotateOptions | None = None,
    *,
    spans: Iterable[GivenSpan] | None = None,
    encoder: Encoder | None = None,
    **keywords: Unpack[AnnotateKeywords],
) -> list[Annotation]:
    """Find the mentions of a passage, or a spaCy `Doc`, and link them, in the order of the text.

    Known places of mentions (`blocks.GivenSpan`) are all used, overlapping ones too; with `include_nil`, but not
    `assertions`, there is one annotation for each, in their order. The context is encoded by `linker.encoder` by
    default. Raises ValueError if a span is outside the text, an option is out of range, or a context has no encoder.
    """
    chosen = (options or AnnotateOptions()).updated(**keywords)
    blocks = read_blocks(text, chosen, spans)
    return [one for found in annotate_blocks(linker, blocks, chosen, encoder=encoder) for one in found]


def annotate_blocks(
    linker: BatchLinker, blocks: Iterable[Block], options: AnnotateOptions, *, encoder: Encoder | None = None
) -> Iterator[list[Annotation]]:
    """The annotations of blocks of texts, in order; a few are linked together."""
    choose: selection.Choose | None = None
    if options.context is not None:
        encoder = encoder or getattr(linker, "encoder", None)
        if encoder is None:
            raise ValueError(f"a context needs an encoder, and {type(linker).__name__} has none: pass one as encoder=")
        choose = selection.ContextChooser(options.context, encoder)

    def stream() -> Iterator[list[Annotation]]:
        remaining = iter(blocks)
        while group := take_blocks(remaining, PASSAGES_AT_ONCE, CHARACTERS_AT_ONCE):
            yield from _annotate_group(linker, [_prepare(block) for block in group], options, choose)

    return stream()


def _prepare(block: Block) -> _Passage:
    """The spans of a block and the strings to look them up by."""
    text, uses = block.text, find_uses(block.text, block.abbreviations)
    lookups = []
    spans = _candidate_spans(text, block.abbreviations, uses) if block.spans is None else block.spans
    for span in spans:
        expanded, is_abbreviated = expand(text, span.start, span.end, uses)
        if block.spans is None and len(expanded) > MAX_EXPANDED:
            continue
        lookups.append(_Lookup(span, as_name(expanded), is_abbreviated))
    return _Passage(block, lookups, uses)


def _candidate_spans(text: str, abbreviations: Sequence[Abbreviation], uses: Sequence[Use]) -> list[Span]:
    """Spans by shape, plus the short and long forms that the passage defines; no span cuts a short form."""
    used = [(use.start, use.end) for use in uses]
    long_forms = ((a.long_start, a.long_start + len(a.long)) for a in abbreviations)
    defined = {*used, *((start, end) for start, end in long_forms if start >= 0 and end <= len(text))}
    within = _offsets_within(uses)
    found = [
        span
        for span in find_spans(text)
        if (span.start, span.end) not in defined and span.start not in within and span.end not in within
    ]
    certain = [Span(start, end, Shape.DEFINED, len(text[start:end].split())) for start, end in defined]
    return sorted([*found, *certain], key=lambda span: (span.start, span.end))


def _offsets_within(uses: Sequence[Use]) -> set[int]:
    """The offsets where a span would cut a short form."""
    return {offset for use in uses for offset in range(use.start + 1, use.end)}


def _annotate_group(
    linker: BatchLinker, passages: Sequence[_Passage], options: AnnotateOptions, choose: selection.Choose | None
) -> Iterator[list[Annotation]]:
    """Link the distinct strings of some passages together, then select the annotations of each passage."""
    # A linker that does not say how its base writes names: as proper names or in small letters.
    case: NameCase = getattr(linker, "name_case", NameCase)()
    is_open = [passage for passage in passages if passage.block.spans is None]
    _drop_impossible(linker, is_open, options)
    _add_name_windows(linker, is_open, options, case)
    queries: dict[tuple[str, ...], dict[str, None]] = {}
    for passage in passages:
        for lookup in passage.lookups:
            queries.setdefault(options.types_of(lookup.span.label), {})[lookup.query] = None
    least = 0.0 if options.include_nil else options.least_probability
    link_of: dict[tuple[tuple[str, ...], str], Link] = {}
    for types, some in queries.items():
        # Without a threshold: it applies to spans, whose probability also depends on their shape.
        links = linker.link_batch(list(some), types=types, limit=DEFAULT_LIMIT, threshold=0.0)
        for query, link in zip(some, links, strict=True):
            # Candidates of a link with which no span can reach the threshold would fill memory: most cannot.
            is_used = max(selection.probability_of(link), selection.LOWEST) >= least or selection.is_name(link)
            link_of[types, query] = link if is_used else replace(link, candidates=())
    decide = partial(
        selection.decide_namesakes, threshold=options.least_probability, on_tie=options.on_tie, choose=choose
    )
    for passage in passages:
        found = []
        for one in _select_spans(passage, _span_candidates(passage, link_of, case, options), options):
            link, start, end = decide(one.link), one.span.start, one.span.end
            if options.include_nil or link.entity_id is not None:
                found.append(Annotation(passage.text[start:end], start, end, link, one.long_form))
        yield finished(passage.block, found, options)


def _drop_impossible(linker: BatchLinker, is_open: Sequence[_Passage], options: AnnotateOptions) -> None:
    """Drop what cannot be a name of the base, if the linker can say so: most of a text, which is not linked then."""
    possible_names = getattr(linker, "possible_names", None)
    if possible_names is None or options.include_nil or options.common_words == "all":
        return
    written = {one.query for passage in is_open for one in passage.lookups if one.span.shape is not Shape.DEFINED}
    possible = possible_names(written, types=options.types)
    for passage in is_open:
        passage.lookups[:] = [
            one for one in passage.lookups if one.span.shape is Shape.DEFINED or one.query in possible
        ]


def _add_name_windows(
    linker: BatchLinker, is_open: Sequence[_Passage], options: AnnotateOptions, case: NameCase
) -> None:
    """Add the spans that are names of the base as written, if the linker can look names up."""
    known_names = getattr(linker, "known_names", None)
    if known_names is None:
        return
    known_spellings = getattr(linker, "known_spellings", None)
    windows = find_name_windows(
        [passage.text for passage in is_open],
        partial(known_names, types=options.types),
        without=[{(lookup.span.start, lookup.span.end) for lookup in passage.lookups} for passage in is_open],
        case=case,
        known_spellings=partial(known_spellings, types=options.types) if known_spellings is not None else None,
    )
    for passage, spans in zip(is_open, windows, strict=True):
        within = _offsets_within(passage.uses) if spans else set()
        for span in spans:
            if span.start not in within and span.end not in within:
                query = as_name(passage.text[span.start : span.end])
                passage.lookups.append(_Lookup(span, query, is_abbreviated=False))


def _span_candidates(
    passage: _Passage, link_of: Mapping[tuple[tuple[str, ...], str], Link], case: NameCase, options: AnnotateOptions
) -> list[selection.SpanCandidate]:
    """The spans of a passage, each with its link, by types and string, and its probability of being a mention."""
    candidates = []
    for lookup in passage.lookups:
        span, link = lookup.span, link_of[options.types_of(lookup.span.label), lookup.query]
        is_exact = selection.is_name(link)
        long_form = lookup.query if lookup.is_abbreviated else None
        allowed = partial(
            may_mention, span, lookup.query, case=case, is_exact=is_exact, common_words=options.common_words
        )
        by_case = selection.break_by_case(link, allowed) if link.candidates else link
        if by_case is None:
            candidates.append(selection.SpanCandidate(span, link, 0.0, long_form))
            continue
        best = next((c for c in link.candidates if by_case.entity_id in (None, c.entity_id)), None)
        writing = case.writing_of(best) if best is not None else Writing.PROPER
        probability = selection.span_probability(span, by_case, is_exact=is_exact)
        candidates.append(selection.SpanCandidate(span, by_case, probability, long_form, is_exact, writing))
    return candidates


def _select_spans(
    passage: _Passage, candidates: Sequence[selection.SpanCandidate], options: AnnotateOptions
) -> list[selection.SpanCandidate]:
    """The spans to return, in the order of the text; of given spans all, in the caller's order."""
    threshold = options.least_probability
    if passage.block.spans is not None:
        return [c if c.probability >= threshold else replace(c, link=selection.as_nil(c.link)) for c in candidates]
    kept = selection.select(candidates, threshold=threshold, nested=options.nested)
    if options.include_nil:
        kept += selection.select_nil(candidates, kept)
    return sorted(kept, key=lambda c: (c.span.start, -c.span.end))
