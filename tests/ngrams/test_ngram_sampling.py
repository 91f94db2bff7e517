"""The n-gram of a sequence that is set against its rest, by each strategy."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from training.ngrams.files import MarkedSequence, NgramSpan, choose_spans, draw_random_span

TEXT = "The New York Times of New York"
TIMES = NgramSpan(4, 18, 3, 3.0)
CITY = NgramSpan(4, 12, 2, 2.5, is_entity=True)
AGAIN = NgramSpan(22, 30, 2, 2.5)
NAME = NgramSpan(13, 18, 1, None, is_entity=True)
WHOLE = NgramSpan(0, 30, 7, 9.0)
MARKED = MarkedSequence(TEXT, (WHOLE, CITY, TIMES, NAME, AGAIN), 7)
NONE = MarkedSequence("Paris", (NgramSpan(0, 5, 1, None, is_entity=True),), 1)


def test_the_ngram_of_the_lowest_score_is_chosen() -> None:
    """All n-grams of all sequences are scored in one call; of equal scores the first counts, and NaN never does."""
    calls = []

    def score(texts: Sequence[str], spans: Sequence[tuple[int, int]]) -> list[float]:
        calls.append([text[start:end] for text, (start, end) in zip(texts, spans, strict=True)])
        return [float("nan"), 0.2, 0.1, 0.1]

    chosen = choose_spans([NONE, MARKED], "lowest_score", rng=random.Random(0), score=score)
    assert chosen == [None, NAME]
    assert calls == [["New York", "New York Times", "Times", "New York"]]
    assert choose_spans([NONE], "lowest_score", rng=random.Random(0), score=score) == [None]


def test_an_ngram_is_drawn_at_random() -> None:
    """Each n-gram that leaves a rest is as likely as another; the seed decides."""
    rng = random.Random(1)
    drawn = Counter(choose_spans([MARKED] * 4000, "random_ngram", rng=rng))

    assert drawn.keys() == {CITY, TIMES, NAME, AGAIN}
    assert all(900 < count < 1100 for count in drawn.values())
    assert choose_spans([MARKED] * 9, "random_ngram", rng=random.Random(3)) == choose_spans(
        [MARKED] * 9, "random_ngram", rng=random.Random(3)
    )
    assert choose_spans([NONE], "random_ngram", rng=rng) == [None]


def test_an_entity_is_drawn_at_random() -> None:
    """Only entity mentions are drawn."""
    chosen = choose_spans([MARKED] * 100 + [NONE], "entity", rng=random.Random(0))

    assert set(chosen[:-1]) == {CITY, NAME}
    assert chosen[-1] is None


def test_random_spans_have_geometric_lengths() -> None:
    """Lengths follow the geometric distribution with 0.2, cut off after 6 words, and each place is as likely."""
    text = " ".join(f"w{i}" for i in range(10))
    rng, n = random.Random(2), 5_000
    spans = [draw_random_span(text, rng) for _ in range(n)]
    lengths = Counter(span.words for span in spans if span)
    whole = 1 - 0.8**6

    assert sorted(lengths) == [1, 2, 3, 4, 5, 6]
    for words, count in lengths.items():
        assert count / n == pytest.approx(0.2 * 0.8 ** (words - 1) / whole, abs=0.02)
    firsts = Counter(span.start for span in spans if span and span.words == 1)
    assert len(firsts) == 10
    assert all(len(text[span.start : span.end].split()) == span.words for span in spans if span)


def test_a_random_span_leaves_a_rest() -> None:
    """A sequence of one word has no span, and one of two has spans of one word."""
    rng = random.Random(0)

    assert draw_random_span("Paris!", rng) is None
    assert {draw_random_span("New York!", rng) for _ in range(20)} == {NgramSpan(0, 3, 1), NgramSpan(4, 8, 1)}
    assert choose_spans([NONE], "random_span", rng=rng) == [None]
