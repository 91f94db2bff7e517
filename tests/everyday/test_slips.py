"""Names one edit away are found whatever the edit and however short the name."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pearl_qdrant.lexical.keys import name_keys, spelling_feature, stored_rows
from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.lexical.parts import MAX_LETTERS
from pearl_qdrant.lexical.slips import KEY_WEIGHT, SHORT_LETTERS, slip_features

SHORT = st.text(alphabet=string.ascii_lowercase, min_size=3, max_size=SHORT_LETTERS)
ANY = st.text(alphabet=string.ascii_lowercase, min_size=3, max_size=MAX_LETTERS)


def certain(mention: str) -> set[int]:
    """The features that only names one edit away have."""
    indices, values = slip_features(mention)
    return set(indices[values == KEY_WEIGHT].tolist())


@given(SHORT, st.integers(0, SHORT_LETTERS), st.sampled_from(string.ascii_lowercase))
def test_all_edits_of_a_short_mention(mention: str, place: int, letter: str) -> None:
    """A letter less, more, or replaced."""
    place %= len(mention)
    for name in (
        mention[:place] + mention[place + 1 :],
        mention[:place] + letter + mention[place:],
        mention[:place] + letter + mention[place + 1 :],
        mention + letter,
    ):
        assert name == mention or spelling_feature(name) in certain(mention)


@given(ANY, st.integers(0, MAX_LETTERS))
def test_swaps_of_any_mention(mention: str, place: int) -> None:
    """Two neighbours in another order, also in the middle, where no part stays as it was."""
    place %= len(mention) - 1
    name = mention[:place] + mention[place + 1] + mention[place] + mention[place + 2 :]

    assert name == mention or spelling_feature(name) in certain(mention)


@pytest.mark.parametrize("mention", ["", "ab", "a" * (MAX_LETTERS + 3)])
def test_nothing_is_searched_for_very_short_and_very_long_ones(mention: str) -> None:
    """Two letters fit too many names."""
    assert len(slip_features(mention)[0]) == 0


def test_features_are_those_of_stored_names() -> None:
    """The spelling key is folded, and its feature is the one that a store keeps."""
    spelling = name_keys(fold_name("Köln-Süd"))[0]

    assert spelling_feature(spelling) in stored_rows(["Köln-Süd"]).indices.tolist()
    assert spelling_feature(spelling) in certain("koldnsud")


def test_indices_ascend() -> None:
    """A sparse vector has each index once, in order."""
    indices, values = slip_features("winchster")

    assert (indices[1:] > indices[:-1]).all()
    assert len(indices) == len(values)
    assert len(set(values.tolist())) == 2
