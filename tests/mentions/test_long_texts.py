"""Texts of any length: in blocks, in bounded memory, by one process or several."""

from __future__ import annotations

import tracemalloc

from exact_linker import Names

from pearl_qdrant import Annotation
from pearl_qdrant.linking.mention_detection.annotate import annotate, annotate_batch, annotate_blocks
from pearl_qdrant.linking.mention_detection.blocks import MOST, of_texts, read_blocks
from pearl_qdrant.linking.options import AnnotateOptions

BASE = Names([("heart attack", "mi"), ("tumor necrosis factor", "tnf"), ("New York", "ny"), ("aspirin", "asa")])

CHAPTER = (
    "Chapter: in New York he had a heart attack. The TNF 🦄 was low. He denied another heart attack.\n"
    "He took aspirin,\nand walked to New\nYork.\n\n"
)
BOOK = "We measured tumor necrosis factor (TNF) first.\n\n" + CHAPTER * 400


def places(found: list[Annotation]) -> list[tuple[int, int]]:
    """Where they are."""
    return [(one.start, one.end) for one in found]


def test_a_book_is_annotated_as_its_chapters_are() -> None:
    """No mention is lost or cut between blocks, and abbreviations of the first page hold on the last one."""
    options = AnnotateOptions()
    assert len(list(read_blocks(BOOK, options))) > len(BOOK) / MOST > 5

    found = annotate(BASE, BOOK, options)

    assert all(BOOK[one.start : one.end] == one.text for one in found)
    in_chapter = [one for one in found if one.start >= BOOK.index("Chapter")]
    texts = ["New York", "heart attack", "TNF", "heart attack", "aspirin", "New\nYork"]
    assert [one.text for one in in_chapter] == texts * 400
    assert [one.assertion for one in in_chapter] == [*["affirmed"] * 3, "negated", *["affirmed"] * 2] * 400
    assert {one.section for one in in_chapter} == {"Chapter"}
    assert {BOOK[slice(*one.sentence)] for one in in_chapter if one.text == "TNF"} == {"The TNF 🦄 was low."}


def test_offsets_of_a_book_count_what_is_before() -> None:
    """Also in UTF-16 code units, over all blocks."""
    units = BOOK.encode("utf-16-le")

    last = annotate(BASE, BOOK, offsets="utf-16")[-1]

    assert units[2 * last.start : 2 * last.end].decode("utf-16-le") == "New\nYork"


def test_a_text_without_an_end_of_a_sentence_is_cut_between_words() -> None:
    """Nor does one without any space fail."""
    found = annotate(BASE, "took aspirin, " * 3000)
    assert len(found) == 3000
    assert annotate(BASE, "x" * (3 * MOST)) == []


def test_a_book_takes_bounded_memory() -> None:
    """Twice the text, but not twice the memory on top of the text."""
    options = AnnotateOptions()
    chapter = CHAPTER.replace("New York", "Old Town")

    def peak(n_chapters: int) -> int:
        blocks = read_blocks(chapter * n_chapters, options)
        tracemalloc.start()
        try:
            for _ in annotate_blocks(Names([]), blocks, options):
                pass
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(600) < 1.3 * peak(300) + 200_000


def test_progress_counts_bytes_of_what_is_done() -> None:
    """A bar can be drawn within one text, and over several."""
    done: list[int] = []
    texts = ["Zürich", BOOK]
    options = AnnotateOptions()
    blocks = (block for text in texts for block in read_blocks(text, options))

    annotated = list(of_texts(blocks, lambda some: annotate_blocks(BASE, some, options), done.append))

    assert annotated == list(annotate_batch(BASE, texts))
    assert done[0] == len("Zürich".encode())
    assert done[-1] == len("".join(texts).encode())
    assert len(done) > 5
