"""Parts of names: what one or two edits leave as it was."""

from __future__ import annotations

import string

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pearl_qdrant.lexical.keys import stored_rows
from pearl_qdrant.lexical.parts import FIRST, MAX_LETTERS, mention_parts, part_rows

LETTERS = st.text(alphabet=string.ascii_lowercase, min_size=4, max_size=MAX_LETTERS)
LONG = st.text(alphabet=string.ascii_lowercase, min_size=11, max_size=MAX_LETTERS)


def shared(mention: str, name: str) -> set[int]:
    """The parts that a mention asks for and a name has."""
    return mention_parts(mention) & set(part_rows([name]).indices.tolist())


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
    """Names of other letters, or of a length that no slip explains, have no part in common with a mention."""
    assert not shared("winchester", "manchester united")
    assert not shared("winchester", "dorchester abbey")
    assert shared("winchetser", "winchester")


@pytest.mark.parametrize("key", ["", "abc", "a" * (MAX_LETTERS + 1)])
def test_short_and_very_long_names_have_no_parts(key: str) -> None:
    """Three letters fit too many names; what long names have in common is found by n-grams."""
    assert len(part_rows([key]).indices) == 0


def test_features_are_the_same_in_every_release() -> None:
    """Stored features must not change: they are the highest numbers of 32 bits, six of a long name."""
    (row, values), others = part_rows(["winchester"]).row(0), stored_rows(["Winchester"]).row(0)[0]

    assert row.tolist() == sorted(row.tolist())
    assert len(row) == 6
    assert row.min() >= FIRST
    assert np.isin(row, others).all()
    assert (values == 0.25).all()
    assert row[0] == GOLDEN


GOLDEN = 4294106965
"""The first feature of winchester, noted when the features were made."""
