"""Keys of names: which spellings are one key, and that they are found in a collection."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pearl_qdrant.lexical.keys import key_rows, name_keys, stored_rows
from pearl_qdrant.lexical.ngrams import fold_name, ngram_rows
from pearl_qdrant.lexical.spelling_variants import variant_word


def keys(name: str) -> tuple[str, str, str]:
    """The keys of a name."""
    return name_keys(fold_name(name))


@pytest.mark.parametrize(
    "one, other",
    [
        ("Chicken Pox", "chickenpox"),
        ("chicken-pox", "chickenpox"),
        ("N.A.S.A.", "NASA"),
        ("Malmö", "MALMO"),
        ("IL-2", "IL2"),
        ("Type II", "type 2"),
    ],
)
def test_spaces_joints_case_and_accents_are_one_key(one: str, other: str) -> None:
    """Spellings that differ by them are the same name."""
    assert keys(one)[0] == keys(other)[0]


@pytest.mark.parametrize("one, other", [("12 3", "1 23"), ("type 1 1", "type 11"), ("hepatitis B", "hepatitis C")])
def test_different_numbers_and_letters_are_different_keys(one: str, other: str) -> None:
    """A space between numbers counts."""
    assert keys(one)[0] != keys(other)[0]


@pytest.mark.parametrize(
    "one, other",
    [
        ("oesophageal tumours", "esophageal tumor"),
        ("anaemia", "anemia"),
        ("vertebrae", "vertebra"),
        ("Johnson and Johnson", "Johnson & Johnson"),
        ("The Beatles", "Beatles"),
        ("St. Louis", "Saint Louis"),
        ("localised fibre", "localized fiber"),
        ("type two", "type 2"),
        ("metastases", "metastasis"),
        ("sulphur", "sulfur"),
    ],
)
def test_spelling_variants_are_one_variant_key(one: str, other: str) -> None:
    """British or American, plural, articles and numbers in words do not count in it."""
    assert keys(one)[1] == keys(other)[1]


@pytest.mark.parametrize("word", ["gas", "AIDS", "virus", "paralysis", "ribs", "toe", "Jones"[:4]])
def test_short_words_and_singulars_stay(word: str) -> None:
    """A rule applies to longer words only, and not to those that end in s without being a plural."""
    assert variant_word(word.lower()) == word.lower()


@pytest.mark.parametrize(
    "one, other",
    [
        ("diabetes mellitus, type 2", "Type 2 Diabetes Mellitus"),
        ("University of Cambridge", "Cambridge University"),
        ("Einstein, Albert", "Albert Einstein"),
        ("Apple Inc.", "Apple"),
    ],
)
def test_the_order_of_words_is_one_words_key(one: str, other: str) -> None:
    """Small words and legal forms do not count in it."""
    assert keys(one)[2] == keys(other)[2]


def test_a_name_without_letters_has_no_keys() -> None:
    """An emoji has an empty row."""
    assert keys("🗞") == ("", "", "")
    assert len(key_rows([name_keys(fold_name("🗞"))]).indices) == 0


@given(st.lists(st.text(max_size=12), max_size=5))
def test_stored_rows_are_n_grams_with_keys_on_top(names: list[str]) -> None:
    """Indices ascend in each row, n-grams keep their values, and each name has its keys."""
    rows, grams = stored_rows(names), ngram_rows(names)
    wanted = key_rows([name_keys(fold_name(name)) for name in names])

    for i in range(len(names)):
        indices, values = rows.row(i)
        assert (np.diff(indices.astype(np.int64)) > 0).all()
        found = dict(zip(indices.tolist(), values.tolist(), strict=True))
        assert set(wanted.row(i)[0].tolist()) <= set(found)
        of_keys = set(wanted.row(i)[0].tolist())
        for index, value in zip(*(part.tolist() for part in grams.row(i)), strict=True):
            assert index in of_keys or found[index] == value
