"""Features of edits and words: slips, siblings, added words, codes."""

from __future__ import annotations

import pytest

from pearl_qdrant.lexical.words import word_rarity
from pearl_qdrant.linking.ranking.string_features import (
    edit_similarity,
    is_misread,
    is_probably_slip,
    is_short_slip,
    is_swap,
    is_unknown,
    margin,
    slips,
    sorted_similarity,
    string_features,
    word_changes,
)


def changes(mention: str, name: str, known: dict[str, float] | None = None) -> dict[str, float]:
    """`word_changes` by name, without zeros."""
    found = word_changes(string_features(mention), string_features(name), known or {})
    return {key: value for key, value in found._asdict().items() if value}


def similarity(mention: str, name: str) -> float:
    """Edit similarity of the spelling keys."""
    return edit_similarity(string_features(mention).joined, string_features(name).joined)


@pytest.mark.parametrize(
    "mention, name, n",
    [
        ("meazles", "measles", 1),
        ("myocardial infraction", "Myocardial Infarction", 1),  # a swap is one edit
        ("myocardail infraction", "myocardial infarction", 2),
        ("measles", "Measles", 0),
        ("gout", "gut", 0),  # too short for a slip
        ("type 2 diabetes", "type 3 diabetes", 0),  # another number is no slip
    ],
)
def test_slips_are_counted_where_a_name_is_long_enough(mention: str, name: str, n: int) -> None:
    """One or two edits, swaps of neighbours included, but not of numbers."""
    assert slips(string_features(mention), string_features(name), similarity(mention, name)) == n


def test_another_order_of_words_is_near_when_sorted() -> None:
    """Sorting brings the words together; a single word gains if the other side has a legal form more."""
    inverted = string_features("mellitus diabetes, type 2x"), string_features("type 2 diabetes mellitus")

    assert sorted_similarity(*inverted, similarity("mellitus diabetes, type 2x", "type 2 diabetes mellitus")) > 0.3
    assert sorted_similarity(string_features("measles"), string_features("measles"), 1.0) == 0.0
    company, chip = string_features("ibm corp"), string_features("ibm chip")
    assert sorted_similarity(company, string_features("IBM"), similarity("ibm corp", "IBM")) > 0.5
    assert sorted_similarity(chip, string_features("IBM"), similarity("ibm chip", "IBM")) == 0.0
    assert similarity("heart attack", "myocardial infarction") == 0.0, "below 0.5 all strings are equally unlike"
    assert slips(string_features("a"), string_features("b"), 0.0) == 0


@pytest.mark.parametrize(
    "mention, name, expected",
    [
        ("measles", "Measles", {}),
        ("meazles", "measles", {}),  # a slip has its counterpart
        ("left lung", "right lung", {"replaced": 0.5, "any_replaced": 1.0, "replaced_rare": word_rarity("left")}),
        ("lung cancer", "cancer", {"only_added": 1.0, "added_plain": 1 - word_rarity("lung")}),
        ("neuropeptide Y", "neuropeptides", {"only_added": 1.0, "added_plain": 1 - word_rarity("y"), "is_code": True}),
        ("cancer", "lung cancer", {"only_missing": 1.0, "missing_rare": word_rarity("lung")}),
        ("cancer cases", "cancer", {"only_added": 1.0, "added_plain": 1 - word_rarity("case")}),
        ("hepatitis Z", "hepatitis B", {"replaced": 0.5, "any_replaced": 1.0, "replaced_rare": 1.0, "is_code": True}),
        ("DFNA13", "DFNB13", {"is_code": True}),
        ("chicken pox", "chickenpox", {}),
        ("chicken poks", "chickenpox", {}),
        ("tumours of the lung", "tumor of lung", {}),
    ],
)
def test_words_without_a_counterpart(mention: str, name: str, expected: dict[str, float]) -> None:
    """Replaced, added and missing words are told apart; slips and spellings are none."""
    assert changes(mention, name) == expected


def test_added_words_count_by_their_frequency_in_the_base() -> None:
    """A word that names of the base have is probably part of another name."""
    of_base = changes("lung measles", "measles", {"lung": 0.6, "measle": 0.2})

    assert of_base == {"only_added": 1.0, "added_plain": pytest.approx(0.4 * (1 - word_rarity("lung")))}
    assert changes("familial measles", "measles") == {"only_added": 1.0}, "a rare word is no plain one"


@pytest.mark.parametrize(
    "mention, name, expected",
    [
        ("Sard0al", "Sardoal", True),
        ("Las Vegas 1imited", "Las Vegas Limited", True),
        ("Sardoal", "Sard0al", False),  # names are not misread
        ("type 5 lesion", "type 8 lesion", False),  # no two digits look alike
        ("IL1", "ILL", False),  # too short
        ("C0LD", "cold", False),
    ],
)
def test_a_digit_may_be_a_misread_letter(mention: str, name: str, expected: bool) -> None:
    """Where all else is equal, the mention is long enough, and the letter looks like the digit."""
    assert is_misread(string_features(mention), string_features(name)) == expected


@pytest.mark.parametrize(
    "mention, name, expected",
    [
        ("myocardial infraction", "myocardial infarction", True),
        ("myocrdial infraction", "myocardial infarction", True),  # two slips in a long name
        ("newyork", "new york", False),
        ("iraq", "iran", False),  # too short
        ("austria", "australia", False),  # two edits, and too short for them
        ("hepatitis z", "hepatitis b", False),  # a short word tells them apart
        ("election 2019", "election 2018", False),
    ],
)
def test_a_name_with_a_slip_in_a_long_word_is_found_without_ngrams(mention: str, name: str, expected: bool) -> None:
    """Words with digits and short words are no slips: the name of another entity may be meant."""
    assert is_probably_slip(mention, name) == expected


@pytest.mark.parametrize(
    "mention, name, expected",
    [
        ("gut", "gout", True),
        ("dxta", "data", True),
        ("ab", "abc", False),  # two letters
        ("data", "data", False),
        ("meazles", "measles", False),  # long enough for a slip as any other
        ("dxty", "data", False),  # two edits
        ("ab1", "ab2", False),  # another number
    ],
)
def test_short_names_with_one_edit(mention: str, name: str, expected: bool) -> None:
    """Three or four letters, one of them wrong."""
    assert is_short_slip(string_features(mention), string_features(name), similarity(mention, name)) is expected


def test_a_word_that_the_base_does_not_have_is_no_other_name() -> None:
    """Only words that the name has not are looked up; a misspelt word is in no base. A swap has the same letters, as
    often. Only the nearest name has a margin, its lead over those of other entities.
    """
    mention, name = string_features("left lumg"), string_features("left lung")

    assert is_unknown(mention, name, {"left": 0.9})
    assert not is_unknown(mention, name, {"left": 0.9, "lumg": 0.1})
    assert is_unknown(name, name, {"left": 0.9, "lung": 0.9})
    swapped = [is_swap(string_features(one), string_features("Mexico")) for one in ("Mexioc", "Mexicoo", "Mexiko")]
    assert swapped == [True, False, False]
    assert [margin(*pair) for pair in ((1.0, 0.75), (0.75, 1.0), (1.0, 0.0))] == [pytest.approx(0.5), 0.0, 1.0]
