"""Links the mentions of one document: searched in one batch, then with what the document says of them.

Each distinct string is searched once, for more candidates than `link` has, since a document can bring a later one to
the front.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.linking.documents.coherence import is_coherent
from pearl_qdrant.linking.documents.mentions import document_mention
from pearl_qdrant.linking.documents.model import shipped_document_model
from pearl_qdrant.linking.documents.resolve import rescored, set_features
from pearl_qdrant.linking.documents.spans import DocumentSpan, document_spans
from pearl_qdrant.linking.mention_detection.given_spans import GivenSpan
from pearl_qdrant.linking.mentions import clean_mention, take
from pearl_qdrant.linking.options import LinkOptions
from pearl_qdrant.linking.ranking.scored import ScoredMention
from pearl_qdrant.records import Annotation, Link

CANDIDATES = 30
"""Entities for each mention of a document: of news, 80 % have the right one among 10, 86 % among 30."""

CANDIDATES_IN_CONTEXT = 15
"""Entities for one mention with a context, which has little to choose by."""

MOST_NAMES = 1
"""Longer names of a context that are searched for a mention, at most: the last ones. Each costs as much as one."""

MENTIONS_AT_ONCE = 64
"""Mentions with a context that are searched together."""

_WORD = re.compile(r"[^\W_](?:[\w'’&-]|\.(?=\w))*")
_SMALL_WORDS = frozenset("of the and for in de du la van von al bin".split())


class BatchScorer(Protocol):
    """Scores many strings; `EntityLinker` is one."""

    def score_batch(self, mentions: Iterable[str], options: LinkOptions | None = None) -> Iterator[ScoredMention]:
        """Yield scored mentions, in order; see `EntityLinker.score_batch`."""
        ...


Decide = Callable[[ScoredMention], Link]
"""The decision: a scored mention to its link."""


def link_document(
    linker: BatchScorer,
    text: str,
    spans: Iterable[GivenSpan],
    options: LinkOptions,
    decide: Decide,
    *,
    without: frozenset[str] = frozenset(),
) -> list[Annotation]:
    """The links of the mentions of a document, one for each span, in the order of the spans.

    Args:
        linker: Scores the distinct strings.
        text: The document.
        spans: Where its mentions are, as for `annotate`.
        options: As for `link`.
        decide: Makes the links.
        without: Parts of the model that are switched off (`model.PARTS`).

    Raises:
        ValueError: If a span is empty or outside the text, or of an unknown kind.
    """
    places = document_spans(text, spans)
    scored = score_document(linker, places, options, without=without)
    return [
        Annotation(text[place.start : place.end], place.start, place.end, decide(one), place.long_form)
        for place, one in zip(places, scored, strict=True)
    ]


def score_document(
    linker: BatchScorer,
    places: Sequence[DocumentSpan],
    options: LinkOptions,
    *,
    without: frozenset[str] = frozenset(),
) -> list[ScoredMention]:
    """The mentions of a document with their scored candidates, in the order of their places."""
    wide = options.updated(limit=max(options.limit, CANDIDATES), context=None)
    distinct = list(dict.fromkeys(place.query for place in places))
    scored = dict(zip(distinct, linker.score_batch(distinct, wide), strict=True))
    has_popularity = "popularity" not in without
    mentions = [document_mention(scored[place.query], place.start, has_popularity=has_popularity) for place in places]
    if not is_coherent(mentions):
        without |= {"coherence"}
    model = shipped_document_model(is_coherent="coherence" not in without)
    # Features look at mentions before and after each one; spans may come in any order.
    set_features(sorted(mentions, key=lambda mention: mention.start), model, without=without)
    return [rescored(mention, model, limit=options.limit) for mention in mentions]


def score_in_context(
    linker: BatchScorer, mentions: Iterable[str], context: str, options: LinkOptions
) -> Iterator[ScoredMention]:
    """Mentions with their candidates, in order, each scored with the names of a text that have its words and others.

    Args:
        linker: Scores the strings.
        mentions: The mentions; each is scored as if it were the only one.
        context: Any text around them.
        options: As for `link`.
    """
    names = [(name, f" {fold_name(name)} ") for name in capitalised_names(context)]
    remaining = iter(mentions)
    alone = options.updated(context=None)
    wide = alone.updated(limit=max(options.limit, CANDIDATES_IN_CONTEXT))
    model = shipped_document_model(is_coherent=False)
    while batch := take(remaining, MENTIONS_AT_ONCE):
        longer = [_longer_names(mention, names) for mention in batch]
        # A context without such a name says nothing of a mention, which is then linked as it is alone.
        plain = linker.score_batch([m for m, found in zip(batch, longer, strict=True) if not found], alone)
        distinct = list(dict.fromkeys(name for found in longer for name in found))
        answers = linker.score_batch([*distinct, *(m for m, found in zip(batch, longer, strict=True) if found)], wide)
        scored = dict(zip(distinct, answers, strict=False))
        for found in longer:
            if not found:
                yield next(plain)
                continue
            document = [document_mention(scored[name], start) for start, name in enumerate(found)]
            own = document_mention(next(answers), len(document))
            set_features([*document, own], model, without=frozenset(("coherence",)))
            yield rescored(own, model, limit=options.limit)


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


def _longer_names(mention: object, names: Sequence[tuple[str, str]]) -> list[str]:
    """The names, given with their folded words, that have all words of a mention and others."""
    own = f" {fold_name(clean_mention(mention))} "
    if not own.strip():
        return []
    return [name for name, words in names if own in words and own != words][-MOST_NAMES:]
