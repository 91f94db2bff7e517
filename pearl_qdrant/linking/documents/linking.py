"""Links the mentions of one document: searched in one batch, then with what the document says of them.

Learned names, popularity and types are set for each mention alone; then partial names, passages and coherence, each by
the probabilities so far. All features together give logits and the logit of NIL, for the decision that every mention
goes through. Each distinct string is searched once, for more candidates than `link` has, since a document can bring a
later one to the front.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import BinaryIO, NamedTuple, Protocol

from pearl_qdrant.errors import FormatError
from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.lexical.words import is_common
from pearl_qdrant.linking.documents import features
from pearl_qdrant.linking.documents.model import (
    FEATURES,
    DocumentMention,
    DocumentModel,
    Setting,
    document_mention,
    keep_own_name,
    set_own_decision,
    shipped_document_model,
)
from pearl_qdrant.linking.documents.word_types import Passages, Words, word_types
from pearl_qdrant.linking.learned.names import LearnedMention, LearnedNames
from pearl_qdrant.linking.mention_detection.abbreviations import (
    LEAST_LIKELY,
    Forms,
    find_abbreviations,
    find_uses,
    forms_of,
    short_forms,
)
from pearl_qdrant.linking.mention_detection.assertions import with_assertions
from pearl_qdrant.linking.mention_detection.blocks import GivenSpan, Passage, read_passages, read_spans
from pearl_qdrant.linking.mentions import clean_mention, take
from pearl_qdrant.linking.options import LinkOptions
from pearl_qdrant.linking.ranking.model import Calibration, ScoredEntity, ScoredMention, log_sum_exp
from pearl_qdrant.linking.ranking.scoring import in_order
from pearl_qdrant.pieces import pausing
from pearl_qdrant.records import Annotation, Link


class DocumentSource(Protocol):
    """What scores and decides the mentions of documents: a `LinkerState`, which says more of each."""

    @property
    def calibration(self) -> Calibration: ...
    @property
    def learned(self) -> LearnedNames: ...
    def score_batch(self, mentions: Iterable[str], options: LinkOptions) -> Iterator[ScoredMention]: ...
    def passages(self, text: str) -> Passages: ...
    def decide_in_document(
        self, scored: ScoredMention, learned: LearnedMention | None, options: LinkOptions
    ) -> Link: ...


def set_features(
    mentions: Sequence[DocumentMention],
    model: DocumentModel,
    *,
    compare: features.Compare | None = None,
    without: frozenset[str] = frozenset(),
) -> None:
    """Set all features of the mentions of one document, which are in the order of the text; passages count if they are
    compared. `without` are parts that are switched off (`model.PARTS`).
    """
    has_types, has_coherence = "types" not in without, "coherence" not in without
    unit = features.unit_of_popularity(mentions)
    for mention in pausing(mentions):
        if "learned names" not in without:
            features.set_learned_names(mention)
        if mention.has_popularity:
            features.set_popularity(mention, unit)
            if has_coherence:
                set_own_decision(mention)
        if has_types:
            features.set_word_types(mention)
        keep_own_name(mention, model)
    if "partial names" not in without:
        features.set_partial_names(mentions, model)
        for mention in mentions:
            if has_types:
                features.set_word_types(mention)  # of the entities of longer names
            keep_own_name(mention, model)
    # Where popularity and coherence count, passages bring 0.3 points and take a third of the time.
    has_both = has_coherence and any(mention.has_popularity for mention in mentions)
    if compare is not None and "passages" not in without and not has_both:
        features.set_passages(mentions, model, compare)
        for mention in mentions:
            keep_own_name(mention, model)
    if has_coherence:
        features.set_coherence(mentions, model)


def rescored(mention: DocumentMention, model: DocumentModel, *, limit: int) -> ScoredMention:
    """The mention with its candidates in their new order, `limit` and tied ones, and logits for `scoring.decide`."""
    if mention.is_id or not mention.entities:
        return mention.scored
    parts = mention.values * model.features
    logits = parts.sum(axis=1)
    found = in_order(
        ScoredEntity(
            entity.name,
            entity.features,
            logit,
            document={n: part for n, part in zip(FEATURES, row, strict=True) if part},
        )
        for entity, logit, row in zip(mention.entities, logits.tolist(), parts.tolist(), strict=True)
    )
    n_kept = max(limit, sum(entity.tie for entity in found))
    first = found[0]
    kept = [
        replace(one, is_namesake=True)
        if one.name.point.name == first.name.point.name or one.name.folded == first.name.folded != ""
        else one
        for one in found[:n_kept]
    ]
    nil_logit = log_sum_exp(logits) - float(mention.of_decision @ model.decision)
    # A rule names the candidate that was first without the document.
    is_same = bool(mention.scored.found) and first.key == mention.scored.found[0].key
    rule = mention.scored.rule if is_same else None
    return replace(mention.scored, found=kept, nil_logit=nil_logit, rule=rule, certainty=1.0)


def read_document_lines(file: BinaryIO, name: str) -> Iterator[Passage]:
    """Yield the documents of a file, each with its `ents`. Raises FormatError as `read_passages`."""
    for passage in read_passages(file, name, "jsonl", spans_key="mentions"):
        if passage.ents is None:
            raise FormatError(name, passage.line, "not an object with a text and mentions, which may be []")
        yield passage


class DocumentSpan(NamedTuple):
    """The place of a mention in a document, in characters, and what is linked for it."""

    start: int
    end: int
    forms: Forms


def document_spans(text: str, spans: Iterable[GivenSpan]) -> list[DocumentSpan]:
    """The mentions of a text, in the order of the spans. Raises ValueError as `read_spans`."""
    abbreviations = find_abbreviations(text)
    uses, short = find_uses(text, abbreviations), short_forms(abbreviations)
    return [
        DocumentSpan(span.start, span.end, forms_of(text, span.start, span.end, uses, short))
        for span in read_spans(text, spans)
    ]


CANDIDATES, CANDIDATES_IN_CONTEXT = 20, 15
"""Entities for each mention of a document, and for one with a context, which has little to choose by. Of news, 80 %
have the right one among 10, and 86 % among 30, with which no more answers are right than with 20."""

LONGER_NAMES = 8  # of a context that have the words of a mention, from the end
MENTIONS_AT_ONCE = 64  # mentions with a context that are searched together
_WORD = re.compile(r"[^\W_](?:[\w'’&-]|\.(?=\w))*")
_SMALL_WORDS = frozenset("of the and for in de du la van von al bin".split())


MentionInText = tuple[ScoredMention, LearnedMention | None]  # as its text scored it, with what was learned of it


def link_document(
    source: DocumentSource,
    text: str,
    spans: Iterable[GivenSpan],
    options: LinkOptions,
    *,
    without: frozenset[str] = frozenset(),
) -> list[Annotation]:
    """The links of the mentions of a document, one for each span, in the order of the spans. Raises ValueError if a
    span is empty or outside the text, or of an unknown kind. `without` are parts that are switched off (`model.PARTS`).
    """
    places = document_spans(text, spans)
    found = []
    in_document = score_document(source, text, places, options, without=without)
    for place, (scored, learned) in pausing(zip(places, in_document, strict=True)):
        link = source.decide_in_document(scored, learned, options)
        found.append(Annotation(text[place.start : place.end], place.start, place.end, link, place.forms.long_form))
    return with_assertions(text, found, None)


def score_document(
    source: DocumentSource,
    text: str,
    places: Sequence[DocumentSpan],
    options: LinkOptions,
    *,
    without: frozenset[str] = frozenset(),
) -> list[MentionInText]:
    """The mentions of a document with their scored candidates, in the order of their places."""
    wide = options.updated(limit=max(options.most_candidates, CANDIDATES), context=None)
    distinct = list(dict.fromkeys(one for place in places for one in place.forms if one is not None))
    scored = dict(zip(distinct, source.score_batch(distinct, wide), strict=True))
    of_forms = {place.forms: by_form(place.forms, scored, source.calibration) for place in places}
    has_learned = "learned names" not in without
    look_up = partial(source.learned.in_document, calibration=source.calibration, options=options)
    learned = {forms: look_up(one) if has_learned else None for forms, one in of_forms.items()}
    words = Words(text)
    mentions = [
        document_mention(
            of_forms[place.forms],
            place.start,
            has_popularity="popularity" not in without,
            learned=learned[place.forms],
            type_scores=word_types().log_probabilities(words.rows_around(place.start, place.end)),
        )
        for place in pausing(places)
    ]
    if not features.is_coherent(mentions):
        without |= {"coherence"}
    setting: Setting = "no_coherence" if "coherence" in without else "coherence"
    learned_share = sum(bool(mention.learned) for mention in mentions) / max(1, len(mentions))
    model = shipped_document_model(setting, learned_share=learned_share)
    # Features look at mentions before and after each one; spans may come in any order.
    in_order = sorted(mentions, key=lambda mention: mention.start)
    set_features(in_order, model, compare=source.passages(text).compare, without=without)
    return [
        (rescored(mention, model, limit=options.most_candidates), learned[place.forms])
        for place, mention in pausing(zip(places, mentions, strict=True))
    ]


def by_form(forms: Forms, scored: Mapping[str, ScoredMention], calibration: Calibration) -> ScoredMention:
    """The long form, or, where it would not be linked, the short form that is a name of the base; of a few letters only
    if the long form is not unlike it. The long form tells entities of that name apart.
    """
    long = scored[forms.query]
    if forms.short is None or long.rule is not None or (short := scored[forms.short]).rule is None:
        return long
    shares = dict(
        zip((one.key for one in long.found), calibration.probabilities(long.logits, long.nil_logit), strict=True)
    )
    likely = max([shares.get(one.key, 0.0) for one in short.found if one.is_namesake], default=0.0)
    if max(shares.values(), default=0.0) >= calibration.threshold or (forms.is_ambiguous and likely < LEAST_LIKELY):
        return long
    known = {one.key: one.logit for one in long.found}
    least = min(known.values(), default=0.0)
    near = [known.get(one.key, least) if one.is_namesake else least for one in short.found]
    found = [replace(one, logit=one.logit + level - max(near)) for one, level in zip(short.found, near, strict=True)]
    return replace(short, found=in_order(found))


def score_in_context(
    source: DocumentSource, mentions: Iterable[str], context: str, options: LinkOptions
) -> Iterator[MentionInText]:
    """Mentions, in order, each scored as if it were the only one, with what a text around it says. A longer name of the
    text that has the words of the mention, the types that the words around it suggest, and the passage are added to
    what names say.
    """
    names = [(name, f" {fold_name(name)} ") for name in capitalised_names(context)]
    words = Words(context)
    passages = source.passages(context)
    remaining = iter(mentions)
    wide = options.updated(limit=max(options.most_candidates, CANDIDATES_IN_CONTEXT), context=None)
    model = shipped_document_model("context")
    while batch := take(remaining, MENTIONS_AT_ONCE):
        longer = []
        for mention in batch:
            folded = f" {fold_name(clean_mention(mention))} "
            with_it = [name for name, words in names if folded.strip() and folded in words and folded != words]
            longer.append(with_it[-LONGER_NAMES:])
        distinct = list(dict.fromkeys(name for found in longer for name in found))
        answers = source.score_batch([*distinct, *batch], wide)
        scored = dict(zip(distinct, answers, strict=False))
        for mention, of_mention in pausing(zip(batch, longer, strict=True)):
            found = _last_name(of_mention, scored)
            start, end = _place(mention, context)
            document = [
                document_mention(scored[name], -len(found) + i, has_popularity=False) for i, name in enumerate(found)
            ]
            for other in document:
                other.is_compared = False
            alone = next(answers)
            learned = source.learned.in_document(alone, source.calibration, options)
            types = word_types().log_probabilities(words.rows_around(start, end)) if end else None
            own = document_mention(alone, start, has_popularity=False, learned=learned, type_scores=types)
            document.append(own)
            set_features(document, model, compare=passages.compare, without=frozenset(("coherence",)))
            yield rescored(own, model, limit=options.most_candidates), learned


def _last_name(names: Sequence[str], scored: Mapping[str, ScoredMention]) -> Sequence[str]:
    """The last of some names of a text, at most one: before others one that the base has, and then one that does not
    begin with a common word, as `Later Clinton` does at the start of a sentence.
    """
    known = [name for name in names if scored[name].rule is not None]
    return (known or [name for name in names if not is_common(name.split()[0].lower())] or names)[-1:]


def _place(mention: object, context: str) -> tuple[int, int]:
    """The first place of a mention in a context, in characters; (0, 0) if it is not in it."""
    name = clean_mention(mention)
    if not name:
        return 0, 0
    words = r"\s+".join(re.escape(word) for word in name.split())
    pattern = rf"(?<!\w){words}(?!\w)"
    found = re.search(pattern, context) or re.search(pattern, context, re.IGNORECASE)
    return found.span() if found else (0, 0)


def capitalised_names(text: str) -> list[str]:
    """The runs of at least two words of a text that begin and end with a capital, in its order, each once."""
    found: dict[str, None] = {}
    start = end = at = n_words = 0
    for word in _WORD.finditer(text):
        is_capital = word.group()[0].isupper()
        is_next = at and not text[at : word.start()].strip(" \t\r\n")
        if not is_next or not (is_capital or word.group() in _SMALL_WORDS):
            if n_words > 1:
                found.setdefault(" ".join(text[start:end].split()))
            n_words = at = 0
        if is_capital:
            start, end, n_words = (start, word.end(), n_words + 1) if n_words else (word.start(), word.end(), 1)
        if n_words:
            at = word.end()
    if n_words > 1:
        found.setdefault(" ".join(text[start:end].split()))
    return list(found)
