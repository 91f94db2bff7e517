"""The cost of annotating: work is counted, not timed, and is linear in the text for every kind of text."""

from __future__ import annotations

import re
import sys
import tracemalloc
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

import pearl_qdrant.linking
from pearl_qdrant import Candidate, Link
from pearl_qdrant.linking.mention_detection.abbreviations import (
    Abbreviation,
    Use,
    expand,
    find_abbreviations,
    find_uses,
)
from pearl_qdrant.linking.mention_detection.annotate import annotate
from pearl_qdrant.linking.mention_detection.spans import find_spans

LINKING = str(Path(pearl_qdrant.linking.__file__).parent)

SHAPES = (
    "a/b",
    "b-",
    "A.",
    "IL-",
    "a1/2-",
    "A B ",
    "A-B C-D E-F ",
    "(ab) ",
    "alpha beta (AB) ",
    "(",
    "[[(",
    "ﬁ",
    "a\u0301\u0316",
    "\u0301",
    "x",
    " ",
    " \n ",
    ". \n",
    "北",
    "A's ",
    "A of the ",
)
QUICK_SHAPES = ("A.", "A B ", "(ab) ", "alpha beta (AB) ", "[[(", "x", "北")
LENGTH = 600


class OneEntity:
    """Links every string to the same entity with varying probability; counts its calls."""

    def __init__(self) -> None:
        self.n_characters = 0

    def link_batch(
        self, mentions: Iterable[str], *, types: Sequence[str] = (), limit: int = 10, threshold: float | None = None
    ) -> Iterator[Link]:
        for mention in mentions:
            self.n_characters += len(mention)
            probability = 0.6 + len(mention) % 7 / 20
            candidate = Candidate("x", "kb", "x", "x", score=probability, probability=probability)
            yield Link(mention, "x", "x", probability, None, (candidate,), "kb")


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


@pytest.mark.parametrize("piece", SHAPES)
def test_a_word_starts_a_bounded_number_of_spans(piece: str) -> None:
    """In a run of joined words of any length, each character starts only a few spans."""
    few, many = (len(find_spans(of_length(piece, n))) for n in (LENGTH, 4 * LENGTH))

    assert many <= 8 * 4 * LENGTH
    assert many <= 4.4 * few + 40


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

        def link_batch(self, mentions: Iterable[str], **_: object) -> Iterator[Link]:  # type: ignore[override]
            for number, mention in enumerate(mentions):
                names = [f"{mention} {i}" for i in range(10)]
                candidates = tuple(Candidate(name, "kb", name, name, probability=0.05) for name in names)
                probability = 0.9 if number == 100 else 0.05
                yield Link(mention, names[0], names[0], probability, None, candidates, "kb")

    text = " ".join(f"Alpha{i} beta{i}" for i in range(600))
    tracemalloc.start()
    try:
        annotations = annotate(Rich(), text)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert [len(annotation.link.candidates) for annotation in annotations] == [10]
    assert peak < 700 * len(text)


class Watched(Sequence[Use]):
    """Uses that count how often they are looked at."""

    def __init__(self, uses: Sequence[Use]) -> None:
        self._uses = uses
        self.n_looks = 0

    def __len__(self) -> int:
        return len(self._uses)

    def __getitem__(self, i: Any) -> Any:
        self.n_looks += 1
        return self._uses[i]


def test_a_late_span_is_expanded_as_fast_as_an_early_one() -> None:
    """The short forms before a span are not scanned again for each span."""
    meaning = Abbreviation("TNF", "tumor necrosis factor", 0, 0)
    uses = Watched([Use(4 * i, 4 * i + 3, meaning) for i in range(1, 5001)])
    text = "TNF " * 5001

    written, has_any = expand(text, 20_000, 20_003, uses)

    assert (written, has_any) == ("tumor necrosis factor", True)
    assert uses.n_looks < 50


def by_one_pattern(text: str, shorts: Sequence[str]) -> list[tuple[int, int, str]]:
    """Uses of short forms by one pattern of all of them, the longest first: the slow equivalent of `find_uses`."""
    either = "|".join(re.escape(short) for short in sorted(shorts, key=len, reverse=True))
    found = []
    for use in re.finditer(rf"(?<!\w)({either})(s?)(?!\w)", text):
        short, is_plural = use.group(1), bool(use.group(2))
        goes_on = unicodedata.category(text[use.end() : use.end() + 1] or " ").startswith("M")
        if not goes_on and (not is_plural or short[-1].isupper() or short[-1].isdigit()):
            found.append((use.start(), use.end(), short))
    return found


SHORTS = ("AB", "AB-2", "ABs", "A B", "ab", "A.B", "İI", "2A", "AB C")


@settings(max_examples=examples(300), deadline=None, derandomize=True)
@given(st.lists(st.sampled_from((*SHORTS, "s", " ", "-", "_", "A", "\u0301", ".", "é", "C"))).map("".join))
def test_uses_are_those_of_a_pattern_of_all_short_forms(text: str) -> None:
    """The longest short form wins, as a whole word, with the plural of capitals and digits."""
    meanings = [Abbreviation(short, "x", 0, 0) for short in SHORTS]

    found = [(use.start, use.end, use.meaning.short) for use in find_uses(text, meanings)]

    assert found == by_one_pattern(text, SHORTS)


def test_real_names_keep_their_joined_words() -> None:
    """A name of many joined words is found whole, and so is a short piece of it."""
    name = "UDP-N-acetyl-D-glucosamine/N-acetylmuramoyl-L-alanyl-D-glutamyl-meso-2,6-diaminopimelyl-D-alanine"
    text = f"We saw {name} and anti-IL-2 drugs."

    found = {text[span.start : span.end] for span in find_spans(text)}

    assert {name, "IL-2", "anti-IL-2", "D-glucosamine"} <= found
    assert find_abbreviations(text) == []
