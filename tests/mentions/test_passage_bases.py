"""Annotating against several bases: each link names its base."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pytest

from pearl_qdrant import Candidate, Link, NilReason
from pearl_qdrant.linking.mention_detection.annotate import annotate
from pearl_qdrant.linking.mention_detection.selection import SpanCandidate, select
from pearl_qdrant.linking.mention_detection.spans import Shape, Span


class TwoCities:
    """Two bases with a Springfield each, and one with the bird and the country."""

    def link_batch(
        self, mentions: Iterable[str], *, types: Sequence[str] = (), limit: int = 10, threshold: float | None = None
    ) -> Iterator[Link]:
        known = {
            "springfield": [("b", "Springfield"), ("a", "Springfield")],
            "turkey": [("a", "turkey"), ("b", "Turkey")],
        }
        for mention in mentions:
            found = known.get(mention.lower(), [])
            candidates = tuple(
                Candidate("1", kb, name, name, score=1.0, probability=0.48, tie=True) for kb, name in found
            )
            reason = NilReason.AMBIGUOUS if found else NilReason.NO_CANDIDATES
            yield Link(mention, None, None, None, reason, candidates)


@pytest.mark.parametrize(
    "text, kb", [("We left Springfield.", "a"), ("She ate turkey there.", "a"), ("In Turkey.", "b")]
)
def test_a_broken_tie_names_the_base(text: str, kb: str) -> None:
    """Whether the first id or letter case breaks a tie, the link names the base of the entity."""
    (annotation,) = annotate(TwoCities(), text, on_tie="first")

    assert (annotation.link.entity_id, annotation.link.kb) == ("1", kb)


def test_nil_has_no_base() -> None:
    """A span below the threshold has no entity, and so no base either."""

    class Sure(TwoCities):
        def link_batch(self, mentions: Iterable[str], **_: object) -> Iterator[Link]:  # type: ignore[override]
            for mention in mentions:
                candidate = Candidate("1", "a", "x", "x", score=1.0, probability=0.6)
                yield Link(mention, "1", "x", 0.6, None, (candidate,), "a")

    (annotation,) = annotate(Sure(), "We left Springfield.", spans=[(8, 19)], threshold=0.7, include_nil=True)

    assert (annotation.link.entity_id, annotation.link.kb) == (None, None)


def test_one_id_in_two_bases_is_two_entities() -> None:
    """A span is not redundant because of another one with the same id in another base."""

    def reading(start: int, kb: str, probability: float) -> SpanCandidate:
        link = Link("y", "1", "x", probability, None, (Candidate("1", kb, "x", "x"),), kb)
        return SpanCandidate(Span(start, 13, Shape.LOWER, 2 - start / 6), link, probability)

    kept = select([reading(0, "a", 0.9), reading(6, "b", 0.95)], threshold=0.5)

    assert [r.link.kb for r in kept] == ["a"]
