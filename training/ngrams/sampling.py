"""Choose the n-gram w of a sequence S that the objective of ULR sets against the rest R (ULR, sections 3.3 and 7.2).

    strategy        chooses
    lowest_score    the n-gram that a masked language model predicts worst: the paper
    random_ngram    one of its n-grams: the published code
    random_span     words in a row, as many as a geometric distribution says: an ablation of the paper
    entity          one of its entity mentions: an ablation of the paper

A span of all words of a sequence is never chosen, because nothing would be left for R.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from training.ngrams.files import MarkedSequence, NgramSpan, word_pattern

Strategy = Literal["lowest_score", "random_ngram", "random_span", "entity"]

SPAN_PROBABILITY = 0.2
"""Parameter of the geometric distribution of the lengths of random spans: ULR, section 7.2."""

MAX_SPAN_WORDS = 6
"""Words of the longest random span: ULR, section 7.2."""


class SpanScorer(Protocol):
    """Gives scores to spans; the lowest one of a sequence is chosen. See `training.ulr.views`."""

    def __call__(self, texts: Sequence[str], spans: Sequence[tuple[int, int]]) -> Sequence[float]:
        """Return the score of a span of each text; NaN for one that must not be chosen.

        Args:
            texts: Any number of texts; the same text may be given with several spans.
            spans: First character of the span in each text, and the first one after it.
        """


def choose_spans(
    sequences: Sequence[MarkedSequence],
    strategy: Strategy,
    *,
    rng: random.Random,
    score: SpanScorer | None = None,
    entities: bool = True,
) -> list[NgramSpan | None]:
    """Choose a span of each sequence.

    Args:
        sequences: Any number; with `lowest_score` all their n-grams are scored in one call.
        strategy: See the module.
        rng: Makes the draws; `lowest_score` needs none.
        score: Needed for `lowest_score`.
        entities: Whether entity mentions that are no n-grams by their PMI take part as n-grams.

    Returns:
        The span, or None for a sequence that has none to choose.

    Raises:
        ValueError: If the strategy is unknown, `lowest_score` has no `score`, or `score` gives another number of
            scores than there are spans.
    """
    if strategy == "lowest_score":
        if score is None:
            raise ValueError("the strategy 'lowest_score' needs a scorer as 'score'")
        return _choose_lowest([_ngrams(one, entities=entities) for one in sequences], sequences, score)
    draw: Callable[[MarkedSequence], NgramSpan | None]
    if strategy == "random_ngram":

        def draw(sequence: MarkedSequence) -> NgramSpan | None:
            return _draw(_ngrams(sequence, entities=entities), rng)

    elif strategy == "entity":

        def draw(sequence: MarkedSequence) -> NgramSpan | None:
            return _draw([span for span in _ngrams(sequence, entities=True) if span.is_entity], rng)

    elif strategy == "random_span":

        def draw(sequence: MarkedSequence) -> NgramSpan | None:
            return draw_random_span(sequence.text, rng)

    else:
        raise ValueError(f"strategy is {strategy!r}, but must be lowest_score, random_ngram, random_span or entity")
    return [draw(sequence) for sequence in sequences]


def draw_random_span(
    text: str,
    rng: random.Random,
    *,
    probability: float = SPAN_PROBABILITY,
    max_words: int = MAX_SPAN_WORDS,
) -> NgramSpan | None:
    """Draw words in a row, as SpanBERT does.

    The length l has probability p (1 - p)^(l - 1), over the lengths from 1 to `max_words` that leave a word for the
    rest; each place is then as likely as another.

    Args:
        text: The sequence.
        rng: Makes two draws.
        probability: p, in (0, 1].
        max_words: The longest span.

    Returns:
        The span, or None if the text has fewer than two words.
    """
    if not 0 < probability <= 1 or max_words < 1:
        raise ValueError(
            f"probability is {probability} and max_words {max_words}; they must be in (0, 1], and 1 or more"
        )
    words = [found.span() for found in word_pattern().finditer(text)]
    longest = min(max_words, len(words) - 1)
    if longest < 1:
        return None
    length = longest
    if probability < 1:
        # The inverse of the distribution function, cut off after `longest`.
        share = 1 - (1 - probability) ** longest
        length = min(longest, 1 + int(math.log1p(-rng.random() * share) / math.log1p(-probability)))
    else:
        rng.random()  # as many draws for any p
        length = 1
    first = rng.randrange(len(words) - length + 1)
    return NgramSpan(words[first][0], words[first + length - 1][1], length)


def _ngrams(sequence: MarkedSequence, *, entities: bool) -> list[NgramSpan]:
    """Return the n-grams that leave a rest."""
    return [span for span in sequence.spans if span.words < sequence.words and (entities or span.pmi is not None)]


def _draw(spans: Sequence[NgramSpan], rng: random.Random) -> NgramSpan | None:
    return spans[rng.randrange(len(spans))] if spans else None


def _choose_lowest(
    candidates: Sequence[Sequence[NgramSpan]], sequences: Sequence[MarkedSequence], score: SpanScorer
) -> list[NgramSpan | None]:
    """Return the span of the lowest score of each sequence, of equal ones the first."""
    texts = [sequence.text for sequence, spans in zip(sequences, candidates, strict=True) for _ in spans]
    places = [(span.start, span.end) for spans in candidates for span in spans]
    scores = list(score(texts, places)) if texts else []
    if len(scores) != len(texts):
        raise ValueError(f"the scorer gave {len(scores):,} scores for {len(texts):,} spans")
    chosen: list[NgramSpan | None] = []
    start = 0
    for spans in candidates:
        best, lowest = None, math.inf
        for span, value in zip(spans, scores[start : start + len(spans)], strict=True):
            if value < lowest:
                best, lowest = span, value
        chosen.append(best)
        start += len(spans)
    return chosen
