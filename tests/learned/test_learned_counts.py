"""From the ledger to counts of a name."""

from __future__ import annotations

import pytest

from pearl_qdrant.linking.learned.counts import Counts, letter_case, name_of
from pearl_qdrant.linking.learned.ledger import LearnedRow


def counts(*rows: tuple[str, str | None, int]) -> Counts:
    """Counts of these rows."""
    made = Counts()
    made.add(LearnedRow(*row) for row in rows)
    return made


def test_other_spellings_of_a_name_are_known_apart_from_the_name_itself() -> None:
    """`U.S.` knows of `US`, and what was seen of `U.S.` itself is kept apart."""
    found = counts(("US", "Q30", 3), ("U.S.", "Q30", 1), ("US", None, 1)).evidence("U.S.")

    assert found is not None
    assert found.as_written.links == {"Q30": 1}
    assert found.other_forms.links == {"Q30": 3, None: 1}
    assert found.entity_ids() == ["Q30"]


@pytest.mark.parametrize(
    "seen, mention, is_heard",
    [
        ("US", "us", False),
        ("Us", "us", False),
        ("us", "US", False),
        ("Turkey", "turkey", False),
        ("turkey", "Turkey", True),
        ("BRUSSELS", "Brussels", True),
        ("Brussels", "BRUSSELS", True),
        ("Iran", "IRAN", True),
        ("the Gray Lady", "the gray lady", True),
        ("東京", "東京", True),
    ],
)
def test_letter_case_decides_which_forms_count(seen: str, mention: str, is_heard: bool) -> None:
    """What was seen of a name in capitals says nothing of the word in small letters."""
    assert (counts((seen, "Q1", 1)).evidence(mention) is not None) is is_heard


def test_names_without_letters_are_themselves() -> None:
    """An emoji and `++` have no spelling key, and are learned as they are."""
    known = counts(("🦄", "horse", 1), ("++", "plus", 1))

    assert known.evidence("🦄") is not None
    assert known.evidence("🐎") is None
    assert known.evidence("--") is None


def test_equal_rows_of_several_batches_add_up() -> None:
    """Accepting one link a thousand times makes one count of a thousand."""
    known = Counts()
    for _ in range(1000):
        known.add([LearnedRow("NYC", "Q60", 1)])
        known.add([LearnedRow("NYC", "Q60", 1)], are_rejections=True)
    found = known.evidence("NYC")

    assert found is not None
    assert (found.as_written.links, found.as_written.rejections) == ({"Q60": 1000}, {"Q60": 1000})
    assert [len(rows) for rows in known.rows()] == [2]


@pytest.mark.parametrize("mention", [None, 3, "", "  ", "\ud800", "x" * 20_000])
def test_what_is_no_text_has_no_name(mention: object) -> None:
    """Nothing is looked up for what is no mention."""
    assert name_of(mention) == ""


def test_white_space_is_not_part_of_a_name() -> None:
    """A mention over a line end is the same name."""
    assert name_of(" New\n  York ") == "New York"
    assert letter_case("new york") == "name"
