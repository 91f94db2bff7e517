"""What two names say of each other: the same words, doubts, types, places that others fill."""

from __future__ import annotations

import numpy as np
import pytest

from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.resolution.names import Types
from pearl_qdrant.resolution.pairs.features import Form, form_of
from pearl_qdrant.resolution.pairs.model import doubt
from pearl_qdrant.resolution.pairs.same_words import PART, SAME, Slots, sameness


def form(name: str) -> Form:
    """A name prepared for comparisons."""
    return form_of(name, fold_name(name))


@pytest.mark.parametrize(
    "one, other",
    [
        ("Aldermann Pharma", "Aldermann Pharma GmbH"),
        ("vector store", "the vector stores"),
        ("LLM", "LLMs"),
        ("Normandy", "Normandie"),
        ("MongoDB", "Mongo"),
        ("U.K.", "United Kingdom"),
        ("王小明", "王小明教授"),
    ],
)
def test_names_of_things_have_the_same_words(one: str, other: str) -> None:
    """Legal forms, plurals, articles, endings of other languages, abbreviations at the end, titles in other scripts."""
    assert sameness(form(one), form(other), is_person=False) == SAME
    assert sameness(form(other), form(one), is_person=False) == SAME


@pytest.mark.parametrize("one, other", [("FTPS", "FTP"), ("type 2", "type 2y"), ("Java", "JavaScript")])
def test_letters_make_other_words(one: str, other: str) -> None:
    """A capital S, a letter more and a longer word are something else."""
    assert not sameness(form(one), form(other), is_person=False)


@pytest.mark.parametrize(
    "one, other, expected",
    [
        ("Ada Bergström", "President Ada Bergström", SAME),
        ("Ada Bergström", "Ada K. Bergström", SAME),
        ("Bergström, Ada", "Ada Karin Bergström", SAME),
        ("Bergström", "Dr. Ada Bergström", PART),
        ("St. Ada Bergström", "Saint Ada Bergström", SAME),
        ("Ada K. Bergström", "Ada L. Bergström", 0),
        ("Bergström", "President Bergström", 0),
        ("Thomas King", "Thomas Bergström", 0),
        ("Bergströms", "Bergström", 0),
        ("A. Bergström", "Ada Bergström", 0),
        ("gentleman", "red-faced gentleman", 0),
        ("Mr. and Mrs. Bergström", "Mr. Bergström", 0),
    ],
)
def test_names_of_one_person(one: str, other: str, expected: int) -> None:
    """Titles before a name, middle names and a part of a name may differ, if they do not contradict."""
    assert sameness(form(one), form(other), is_person=True) == expected


def test_doubts_say_their_reason() -> None:
    """Each doubt has its words, and places that nobody knows may be spelt alike."""
    assert doubt(form("the baker"), form("the baker's friend"), is_same=False) == "what belongs to it"
    assert doubt(form("Harbour 7"), form("Harbour"), is_same=False) == "one has a number"
    assert doubt(form("Kowra"), form("Kovra"), is_same=False) == "short words that are spelt alike"
    assert not doubt(form("Kowra"), form("Kovra"), is_same=False, are_unknown_places=True)
    assert doubt(form("Mrs. Berg"), form("Berg"), is_same=True) == "title of another person"


def test_types_agree_by_how_much_they_say() -> None:
    """No type matches all, a coarse one loosely, a general one its kinds; special ones only themselves."""
    types = Types(["", "concept", "location", "city", "country", "planet"])
    pairs = [(0, 5), (1, 5), (2, 3), (3, 4), (2, 5)]
    found = types.agree(np.array([a for a, _ in pairs]), np.array([b for _, b in pairs]))
    assert found.tolist() == [True, True, True, False, False]
    assert types.is_loose(1, 5)
    assert not types.is_loose(0, 5)
    assert types.is_place(3)


def test_slots_count_what_others_have_in_a_place() -> None:
    """Siblings share a place that many fill; two spellings of one thing do not."""
    slots = Slots([("berg", part) for part in ("face", "voice", "hand", "coat")] + [("left", "lung")])
    assert slots.others(("berg", "face"), ("berg", "voice")) == 2
    assert slots.others(("left", "lung"), ("lung",)) == 0
    assert slots.share(("berg", "face"), ("berg", "voice")) > 0
