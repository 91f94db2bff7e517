"""Words that exclude each other by how they are built, though they are an edit or two apart."""

from __future__ import annotations

import pytest

from pearl_qdrant import Entity, EntityLinker
from pearl_qdrant.lexical.opposites import exclude_each_other

OTHERS = ["Kiruna Iron Mine", "Blue Danube Waltz", "Hoover Dam", "Sahara Desert", "Panama Canal", "Standard Oil"]


@pytest.mark.parametrize(
    "word, other",
    [
        ("hyperthyroidism", "hypothyroidism"),
        ("intracellular", "extracellular"),
        ("tachycardia", "bradycardia"),
        ("asymptomatic", "symptomatic"),
        ("irregular", "regular"),
        ("prediabetes", "diabetes"),
        ("arthritis", "arthrosis"),
        ("nitrite", "nitrate"),
        ("ethyl", "methyl"),
    ],
)
def test_prefixes_endings_and_negations_exclude(word: str, other: str) -> None:
    """Neither word is a slip of the other, whichever comes first."""
    assert exclude_each_other(word, other)
    assert exclude_each_other(other, word)


@pytest.mark.parametrize(
    "word, other",
    [
        ("merican", "american"),
        ("nternational", "international"),
        ("hypertension", "hypertenson"),
        ("infraction", "infarction"),
        ("tumor", "tumour"),
        ("united", "unitde"),
        ("1990", "1991"),
        ("same", "same"),
    ],
)
def test_slips_and_spellings_do_not(word: str, other: str) -> None:
    """A letter that is missing, swapped or spelt otherwise makes no other word."""
    assert not exclude_each_other(word, other)


@pytest.mark.parametrize(
    "name, other",
    [
        ("hypertension", "hypotension"),
        ("hyperglycemia", "hypoglycemia"),
        ("typical autism", "atypical autism"),
        ("stable angina", "unstable angina"),
        ("organic chemistry", "inorganic chemistry"),
        ("aerobic exercise", "anaerobic exercise"),
        ("hernia with obstruction", "hernia without obstruction"),
        ("small cell lung carcinoma", "non-small cell lung carcinoma"),
        ("HER2+ breast carcinoma", "HER2- breast carcinoma"),
        ("Hepatitis A", "Hepatitis B"),
    ],
)
def test_the_opposite_of_a_name_is_not_linked(name: str, other: str) -> None:
    """A base that has one of the two answers NIL for the other."""
    for stored, mention in ((name, other), (other, name)):
        entities = [Entity("it", stored), *(Entity(one, one) for one in OTHERS)]
        with EntityLinker.build(entities) as linker:
            assert linker.link(stored).entity_id == "it"
            assert linker.link(mention).entity_id is None
