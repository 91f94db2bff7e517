"""What tests of worker processes compare."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from edge_cases import is_running, wait_until

from pearl_qdrant import Link
from pearl_qdrant.records import Candidate

CLOSE = 1e-6
"""Vectors depend a little on what is encoded with them."""


def wait_for_end(pids: Sequence[int]) -> None:
    """Wait until processes have ended."""
    wait_until(lambda: not any(map(is_running, pids)))


def rounded(link: Link) -> Link:
    """A link without its floating-point numbers."""
    return replace(link, probability=None, candidates=tuple(map(_rounded, link.candidates)))


def _rounded(candidate: Candidate) -> Candidate:
    known = dict.fromkeys(candidate.features, 0.0)
    return replace(
        candidate,
        features=known,
        probability=None,
        score=0.0,
        dense_score=None,
        lexical_score=None,
        type_probability=None,
        document=dict.fromkeys(candidate.document, 0.0),
    )


def assert_same(links: Iterable[Link], expected: Iterable[Link]) -> None:
    """Links are equal, their numbers almost."""
    ours, theirs = list(links), list(expected)
    assert [rounded(one) for one in ours] == [rounded(one) for one in theirs]
    for own, other in zip(ours, theirs, strict=True):
        assert own.mention is other.mention
        assert own.probability == pytest.approx(other.probability, abs=CLOSE)
        for mine, its in zip(own.candidates, other.candidates, strict=True):
            assert mine.probability == pytest.approx(its.probability, abs=CLOSE)
            assert mine.dense_score == pytest.approx(its.dense_score, abs=CLOSE)
            assert mine.lexical_score == pytest.approx(its.lexical_score, abs=CLOSE)
            assert mine.features == pytest.approx(its.features, abs=100 * CLOSE)
            # The names of a small model lie close together; their similarities are spread. Coefficients are up to 40.
            explained = 40 * sum(abs(value - its.features[name]) for name, value in mine.features.items())
            assert mine.score == pytest.approx(its.score, abs=100 * CLOSE + explained)
            assert mine.document == pytest.approx(its.document, abs=100 * CLOSE + explained)
