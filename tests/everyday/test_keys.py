"""Keys and parts of names: which spellings are one key, what edits leave as it was, and what is one edit away."""

from __future__ import annotations

import string

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pair_table import other_outcomes

from pearl_qdrant.lexical.keys import (
    FIRST_PART,
    KEY_WEIGHT,
    MAX_LETTERS,
    SHORT_LETTERS,
    fits_initials,
    initials,
    key_rows,
    mention_parts,
    name_keys,
    part_rows,
    slip_features,
    spelling_features,
    spelling_key,
    stored_rows,
)
from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.lexical.words import variant_word


def keys(name: str) -> tuple[str, str, str]:
    """The keys of a name."""
    return name_keys(fold_name(name))


@pytest.mark.parametrize("place, kind", [(0, "spelling"), (1, "variant"), (2, "words")])
def test_names_have_one_key(place: int, kind: str) -> None:
    """Whatever differs by spaces, joints, case and accents; by British or American spelling, plural, articles and
    numbers in words; by the order of words, small words and legal forms. Letters count, and spaces between numbers.
    """
    same = {True: "same", False: "other"}
    assert other_outcomes(__file__, kind, lambda one, other: same[keys(one)[place] == keys(other)[place]]) == []


def test_what_has_no_key_in_common() -> None:
    """A rule applies to longer words only, and not to singulars that end in s. An emoji has an empty row."""
    words = ["gas", "aids", "virus", "paralysis", "ribs", "toe", "jone"]
    assert [variant_word(word) for word in words] == words
    assert keys("🗞") == ("", "", "")
    assert len(key_rows([name_keys(fold_name("🗞"))]).indices) == 0


LETTERS = st.text(alphabet=string.ascii_lowercase, min_size=4, max_size=MAX_LETTERS)
LONG = st.text(alphabet=string.ascii_lowercase, min_size=11, max_size=MAX_LETTERS)


def shared(mention: str, name: str) -> set[int]:
    """The parts that a mention asks for and a name has."""
    return mention_parts(mention) & set(part_rows([name], [name]).indices.tolist())


def edited(name: str, place: int, kind: str) -> str:
    """A name with one edit."""
    place %= len(name)
    rest = name[place + 1 :]
    if kind == "left out":
        return name[:place] + rest
    if kind == "added":
        return name[:place] + "q" + name[place:]
    if kind == "replaced":
        return name[:place] + "q" + rest
    return name[:place] + rest[:1] + name[place] + rest[1:]


KINDS = st.sampled_from(("left out", "added", "replaced", "swapped"))


@given(LETTERS, st.integers(0, 100), KINDS)
def test_one_edit_leaves_a_part(name: str, place: int, kind: str) -> None:
    """A half, or the outer thirds, are as they were; in a very short name a swap in the middle may change all."""
    if len(name) < 6 and kind == "swapped":
        return
    assert shared(edited(name, place, kind), name)


@given(LONG, st.tuples(st.integers(0, 100), KINDS), st.tuples(st.integers(0, 100), KINDS))
def test_two_edits_leave_a_part_of_a_long_name(name: str, first: tuple[int, str], second: tuple[int, str]) -> None:
    """One of three thirds is as it was, unless a swap crosses the end of one."""
    if "swapped" in (first[1], second[1]):
        return
    assert shared(edited(edited(name, *first), *second), name)


def test_another_name_shares_nothing() -> None:
    """Names of other letters, or of a length that no slip explains, have no part in common with a mention. Three
    letters fit too many names; what long names have in common is found by n-grams.
    """
    assert not shared("winchester", "manchester united")
    assert not shared("winchester", "dorchester abbey")
    assert shared("winchetser", "winchester")
    assert len(part_rows(*[["", "abc", "a" * (MAX_LETTERS + 1)]] * 2).indices) == 0


@pytest.mark.parametrize(
    "short, name",
    [
        ("ICASSP", "IEEE International Conference on Acoustics, Speech, and Signal Processing"),
        ("ISAAC", "International Symposium on Algorithms and Computation"),
        ("BVDV-1", "bovine viral diarrhoea virus 1"),
        ("M.W.R.D.", "Metropolitan Water Reclamation District"),
    ],
)
def test_initials_find_a_name(short: str, name: str) -> None:
    """With and without small words and the first one, numbers whole; a short name is found by a long mention, too."""
    short, name = fold_name(short), fold_name(name)
    stored = set(part_rows([name], [spelling_key(name)]).indices.tolist())
    assert stored & set(slip_features(short)[0].tolist())
    assert fits_initials(name, spelling_key(short))
    own = set(spelling_features([short.replace(" ", "")]).tolist())
    assert own.issubset(slip_features(name)[0].tolist()) == (name.split()[0] != "ieee")


def test_initials_of_two_letters_find_nothing() -> None:
    """Too many names have them."""
    assert not initials(["facebook"])
    stored = set(part_rows(["formal methods"], ["formalmethods"]).indices.tolist())
    assert not stored & set(slip_features("fm")[0].tolist())


def test_features_are_the_same_in_every_release() -> None:
    """Stored features must not change: they are the highest numbers of 32 bits, six of a long name."""
    (row, values), others = part_rows(["winchester"], ["winchester"]).row(0), stored_rows(["Winchester"]).row(0)[0]

    assert row.tolist() == sorted(row.tolist())
    assert len(row) == 6
    assert row.min() >= FIRST_PART
    assert np.isin(row, others).all()
    assert (values == 0.25).all()
    assert row[0] == GOLDEN


GOLDEN = 4294106965
"""The first feature of winchester, noted when the features were made."""


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
        assert name == mention or certain(mention).issuperset(spelling_features([name]).tolist())


@given(ANY, st.integers(0, MAX_LETTERS))
def test_swaps_of_any_mention(mention: str, place: int) -> None:
    """Two neighbours in another order, also in the middle, where no part stays as it was."""
    place %= len(mention) - 1
    name = mention[:place] + mention[place + 1] + mention[place] + mention[place + 2 :]

    assert name == mention or certain(mention).issuperset(spelling_features([name]).tolist())
