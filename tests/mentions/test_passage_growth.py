"""The cost of annotating: work is counted, not timed, and is linear in the text for every kind of text."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from exact_linker import Names, annotate

import pearl_qdrant.linking
from pearl_qdrant import Candidate, Link

LINKING = str(Path(pearl_qdrant.linking.__file__).parent)

SHAPES = (
    *("a/b", "b-", "A.", "IL-", "a1/2-", "A B ", "A-B C-D E-F ", "(ab) ", "alpha beta (AB) ", "(", "[[(", "ﬁ"),
    *("a\u0301\u0316", "\u0301", "x", " ", " \n ", ". \n", "北", "A's ", "A of the "),
)
QUICK_SHAPES = ("A.", "A B ", "(ab) ", "alpha beta (AB) ", "[[(", "x", "北")
LENGTH = 600


class OneEntity(Names):
    """Links every string to the same entity with varying probability; counts their characters."""

    def __init__(self) -> None:
        super().__init__(())
        self.n_characters = 0

    def _link(self, mention: str) -> Link:
        self.n_characters += len(mention)
        probability = 0.6 + len(mention) % 7 / 20
        candidate = Candidate("x", "kb", "x", "x", score=probability, probability=probability)
        return Link(mention, "x", "x", probability, None, (candidate,), "kb")


def of_length(piece: str, n: int) -> str:
    """A text of one kind."""
    return (piece * (n // len(piece) + 1))[:n]


def steps(work: Callable[[], object]) -> int:
    """Number of executed lines in `linking`; each round of a loop or comprehension counts."""
    n = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal n
        if not frame.f_code.co_filename.startswith(LINKING):
            return None
        n += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return n


@pytest.mark.parametrize(
    "piece", [one if one in QUICK_SHAPES else pytest.param(one, marks=pytest.mark.slow) for one in SHAPES]
)
def test_twice_the_text_is_twice_the_work(piece: str) -> None:
    """A text that was made to be slow costs no more than other text of its length."""
    once, twice = (
        steps(lambda n=n: annotate(OneEntity(), of_length(piece, n), include_nil=True))  # type: ignore[misc]
        for n in (LENGTH, 2 * LENGTH)
    )

    assert twice <= 2.3 * once + 1000
    assert twice <= 2500 * 2 * LENGTH


def test_short_forms_do_not_make_lookups_huge() -> None:
    """A run of short forms is not looked up with all of them expanded."""
    linker = OneEntity()
    text = f"A{'x' * 120} B{'y' * 120} (AB) " + "AB-" * 1000

    annotate(linker, text)

    assert linker.n_characters < 20_000


@pytest.mark.slow
def test_unused_links_are_not_kept() -> None:
    """Most spans of a text are not mentions: their candidates do not stay in memory."""

    class Rich(OneEntity):
        """Returns as many candidates as the linker does, most of them improbable."""

        def _link(self, mention: str) -> Link:
            names = [f"{mention} {i}" for i in range(10)]
            candidates = tuple(Candidate(name, "kb", name, name, probability=0.05) for name in names)
            probability = 0.9 if mention == "Alpha100 beta100" else 0.05
            return Link(mention, names[0], names[0], probability, None, candidates, "kb")

    text = " ".join(f"Alpha{i} beta{i}" for i in range(600))
    annotate(Rich(), text[:100])  # lists of words are read once
    tracemalloc.start()
    try:
        annotations = annotate(Rich(), text)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert [len(annotation.link.candidates) for annotation in annotations] == [10]
    assert peak < 700 * len(text)
