"""Mentions in running text, linked by exact names, of one or several bases; texts of any length, in bounded memory,
with work that is counted, not timed, and linear in the text.
"""

from __future__ import annotations

import sys
import tracemalloc
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from effort import examples
from exact_linker import KNOWN, Everything, Names, annotate, annotate_batch, differences, found, mentions
from hypothesis import example, given, settings
from hypothesis import strategies as st

import pearl_qdrant.linking
from pearl_qdrant import Candidate, Link, NilReason
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.linking.mention_detection import blocks as blocks_of
from pearl_qdrant.linking.mention_detection.annotate import PASSAGES_AT_ONCE, annotate_blocks
from pearl_qdrant.linking.mention_detection.blocks import MOST, of_texts, read_blocks
from pearl_qdrant.linking.mention_detection.spans import as_name
from pearl_qdrant.linking.options import AnnotateOptions


def test_mentions_are_found_by_their_shape() -> None:
    """Names, acronyms, phrases, and names in scripts without capitals or spaces are found as they are written."""
    assert differences("shapes", lambda text, names: annotate(Names((n, n) for n in names), text)) == {}
    assert mentions("Wir sahen Köln und Ko\u0308ln.", "Köln", "Ko\u0308ln") == ["Köln", "Ko\u0308ln"]


@pytest.mark.parametrize(
    "text, name",
    [
        ("Heart. Attack of the day", "heart attack"),
        ("He had a heart, attack followed.", "heart attack"),
        ("A heart\n\nattack", "heart attack"),
        ("a heart\x00attack", "heart attack"),
        ("He said that it is on.", "on"),
        ("The smart heartattack", "art"),
    ],
)
def test_a_mention_does_not_cross_punctuation(text: str, name: str) -> None:
    """Sentences, commas, table cells and control characters end a mention; stop words and numbers are not mentions."""
    assert mentions(text, name) == []


def test_a_line_end_does_not_end_a_name_and_the_longer_span_wins() -> None:
    """A name across two lines is found, and looked up with a space. Of overlapping spans with equal probability, the
    longer one is kept.
    """
    (annotation,) = annotate(Names([("New York Times", "nyt")]), "the New\r\n  York Times said")

    assert annotation.text == "New\r\n  York Times"
    assert annotation.link.mention == "New York Times"
    assert mentions("the New York Times", "New York", "Times", "New York Times", "York") == ["New York Times"]


def test_invalid_arguments_of_annotate_are_refused() -> None:
    """Bytes are not text, and a threshold is a probability."""
    with pytest.raises(TypeError, match="a str or a spaCy Doc, not bytes"):
        annotate(Names(KNOWN), b"text")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'threshold' is 2, but must be less than or equal to 1"):
        annotate(Names(KNOWN), "text", threshold=2)
    with pytest.raises(ValueError, match="'on_tie' is 'last', but must be 'canonical', 'null' or 'first'"):
        annotate(Names(KNOWN), "text", on_tie="last")  # type: ignore[arg-type]


def test_nil_is_shown_on_request() -> None:
    """Names without an entity, and ties, are returned only on request; `on_tie="first"` links the first by id."""
    names = Names([("Springfield", "a"), ("Springfield", "b")])
    text = "Doctor Zork and Mrs Quux of Springfield saw MAPK14 and a stone."

    assert annotate(names, text) == []
    shown = annotate(names, text, include_nil=True)
    assert [(a.text, a.link.nil_reason) for a in shown] == [
        ("Doctor Zork", NilReason.NO_CANDIDATES),
        ("Mrs Quux", NilReason.NO_CANDIDATES),
        ("Springfield", NilReason.AMBIGUOUS),
        ("MAPK14", NilReason.NO_CANDIDATES),
    ]
    names = Names([("Springfield", "b"), ("Springfield", "a")])
    assert found(annotate(names, "We left Springfield.", on_tie="first")) == [("Springfield", "a")]


def test_the_threshold_decides() -> None:
    """A mention that is less probable than the threshold is left out, or NIL for a span that the caller gave."""
    unsure = Names(KNOWN, probability=0.6)

    assert found(annotate(unsure, "It was in New York", threshold=0.5)) == [("New York", "ny")]
    assert annotate(unsure, "It was in New York", threshold=0.7) == []
    (nil,) = annotate(unsure, "New York", spans=[(0, 8)], threshold=0.7, include_nil=True)
    assert (nil.link.entity_id, nil.link.kb, nil.link.nil_reason) == (None, None, NilReason.BELOW_THRESHOLD)
    assert nil.link.candidates


def test_many_passages_share_their_lookups() -> None:
    """A batch gives the annotations of single passages, links each distinct string once, and reads little ahead."""
    texts = [f"A heart attack in New York, {n} times." for n in range(PASSAGES_AT_ONCE * 2 + 1)]
    names = Names(KNOWN)
    read = 0

    def counted() -> Iterator[str]:
        nonlocal read
        for text in texts:
            read += 1
            yield text

    stream = annotate_batch(names, counted(), types=["T"])
    first = next(stream)

    assert read == PASSAGES_AT_ONCE
    assert [first, *stream] == [annotate(Names(KNOWN), text) for text in texts]
    assert [len(queries) == len(set(queries)) and types == ("T",) for queries, types in names.calls] == [True] * 3


def test_empty_text_has_no_mentions() -> None:
    """Empty text, white space and punctuation have no mentions, and need no linker."""
    names = Names([])

    assert [annotate(names, text) for text in ("", " \n\t", "... !? ()", "\x00", "\ud800")] == [[]] * 5
    assert list(annotate_batch(names, [])) == []
    assert names.calls == []


ODD = (
    "aZ9 .,;()[]'-/&$%+#\n\r\t\x00\x0b\x85\u2028\u200b\ufeff\u200d\u200f"
    "e\u0301İß👩🔬🏽🇩ا\u064eש北京トの서กร\ud800\udfff"
)


texts = st.text(st.one_of(st.sampled_from(ODD), st.characters(exclude_categories=[])), max_size=80)


@settings(max_examples=examples(300), deadline=None, derandomize=True)
@given(texts)
@example("x Cafe\u0301 AB\u0301 5\u200d+\ufe0fU")
@example("İİİ (İI) İİ")
@example("(A\u0301B) alpha\u0301 beta (AB) AB\u0301")
def test_offsets_are_right_for_every_text(text: str) -> None:
    """The text from start to end is the mention, in order, without overlaps, and no accent is cut off."""
    at = 0
    for annotation in annotate(Everything(), text, threshold=0.05, include_nil=True):
        assert at <= annotation.start < annotation.end <= len(text)
        assert text[annotation.start : annotation.end] == annotation.text
        assert annotation.link.mention == (annotation.long_form or as_name(annotation.text))
        assert not unicodedata.category(text[annotation.end : annotation.end + 1] or " ").startswith("M")
        at = annotation.end


class TwoCities(Names):
    """Two bases with a Springfield each, and one with the bird and the country."""

    def _link(self, mention: str) -> Link:
        known = {
            "springfield": [("b", "Springfield"), ("a", "Springfield")],
            "turkey": [("a", "turkey"), ("b", "Turkey")],
        }
        found = known.get(mention.lower(), [])
        candidates = tuple(Candidate("1", kb, name, name, score=1.0, probability=0.48, tie=True) for kb, name in found)
        reason = NilReason.AMBIGUOUS if found else NilReason.NO_CANDIDATES
        return Link(mention, None, None, None, reason, candidates)


@pytest.mark.parametrize(
    "text, kb", [("We left Springfield.", "a"), ("She ate turkey there.", "a"), ("In Turkey.", "b")]
)
def test_a_broken_tie_names_the_base(text: str, kb: str) -> None:
    """Whether the first id or letter case breaks a tie, the link names the base of the entity."""
    (annotation,) = annotate(TwoCities(()), text, on_tie="first")

    assert (annotation.link.entity_id, annotation.link.kb) == ("1", kb)


BASE = Names([("heart attack", "mi"), ("tumor necrosis factor", "tnf"), ("New York", "ny"), ("aspirin", "asa")])

CHAPTER = (
    "Chapter: in New York he had a heart attack. The TNF 🦄 was low. He denied another heart attack.\n"
    "He took aspirin,\nand walked to New\nYork.\n\n"
)
BOOK = "We measured tumor necrosis factor (TNF) first.\n\n" + CHAPTER * 120


def test_a_book_is_annotated_as_its_chapters_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """No mention is lost or cut between blocks, and abbreviations of the first page hold on the last one. Offsets count
    what is before, also in UTF-16 code units. A text without an end of a sentence is cut between words.
    """
    most = MOST // 4
    monkeypatch.setattr(blocks_of, "MOST", most)
    assert len(list(read_blocks(BOOK, AnnotateOptions()))) > len(BOOK) / most > 5

    found = annotate(BASE, BOOK)

    assert all(BOOK[one.start : one.end] == one.text for one in found)
    in_chapter = [one for one in found if one.start >= BOOK.index("Chapter")]
    texts = ["New York", "heart attack", "TNF", "heart attack", "aspirin", "New\nYork"]
    assert [one.text for one in in_chapter] == texts * 120
    assert [one.assertion for one in in_chapter] == [*["affirmed"] * 3, "negated", *["affirmed"] * 2] * 120
    assert {one.section for one in in_chapter} == {"Chapter"}
    assert {BOOK[slice(*one.sentence)] for one in in_chapter if one.text == "TNF"} == {"The TNF 🦄 was low."}
    units = (CHAPTER * 40).encode("utf-16-le")

    last = annotate(BASE, CHAPTER * 40, offsets="utf-16")[-1]

    assert units[2 * last.start : 2 * last.end].decode("utf-16-le") == "New\nYork"
    assert len(annotate(BASE, "took aspirin, " * 400)) == 400
    assert annotate(BASE, "x" * (3 * MOST)) == []


@pytest.mark.slow
def test_a_book_takes_bounded_memory() -> None:
    """Twice the text, but not twice the memory on top of the text."""
    options = AnnotateOptions()
    chapter = CHAPTER.replace("New York", "Old Town")
    annotate(Names([]), chapter)  # lists of words are read once

    def peak(n_chapters: int) -> int:
        blocks = read_blocks(chapter * n_chapters, options)
        tracemalloc.start()
        try:
            for _ in annotate_blocks(Names([]), blocks, options):
                pass
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(240) < 1.3 * peak(120) + 200_000


def test_progress_counts_bytes_of_what_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bar can be drawn within one text, and over several."""
    monkeypatch.setattr(blocks_of, "MOST", MOST // 8)
    done: list[int] = []
    texts = ["Zürich", BOOK[: 6 * MOST // 8]]
    options = AnnotateOptions()
    blocks = (block for text in texts for block in read_blocks(text, options))

    annotated = list(of_texts(blocks, lambda some: annotate_blocks(BASE, some, options), done.append))

    assert annotated == list(annotate_batch(BASE, texts))
    assert done[0] == len("Zürich".encode())
    assert done[-1] == len("".join(texts).encode())
    assert len(done) > 5


def test_a_context_breaks_a_tie(shipped: Encoder) -> None:
    """The context chooses between entities with the same name; without it the mention is skipped."""
    names: Any = Names(
        [("Mercury", "smallest planet of the solar system"), ("Mercury", "British singer of a rock band")]
    )
    names.encoder = shipped
    text = "A film about Mercury is out."

    def about(context: str) -> list[tuple[str, str | None]]:
        return found(annotate(names, text, context=context))

    assert annotate(names, text) == []
    assert about("astronomy, planets and stars") == [("Mercury", "smallest planet of the solar system")]
    assert about("rock music and its singers") == [("Mercury", "British singer of a rock band")]
    assert about("\U0001f5de") == []


LINKING = str(Path(pearl_qdrant.linking.__file__).parent)

SHAPES = (
    *("a/b", "b-", "A.", "IL-", "a1/2-", "A B ", "A-B C-D E-F ", "(ab) ", "alpha beta (AB) ", "(", "[[(", "ﬁ"),
    *("a\u0301\u0316", "\u0301", "x", " ", " \n ", ". \n", "北", "A's ", "A of the "),
)
QUICK_SHAPES = ("A B ", "(ab) ", "alpha beta (AB) ", "x")
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
