"""Batches of pairs: what is drawn, and what is augmented."""

from __future__ import annotations

from typing import Any

import pytest

from training.batches import BatchMaker, EpochSampler
from training.examples.example import Example

EXAMPLES = [Example(f"heart attack {i}", (f"coronary {i}",), str(i)) for i in range(40)]
PLAIN = ["the united states", "in a state of", "a city of york"]


def maker(**changes: Any) -> BatchMaker:
    """Batches of 40 pairs; variants are in capitals."""
    return BatchMaker(
        EpochSampler(EXAMPLES, seed=3), n_pairs=40, seed=3, **{"augment": lambda name, _: name.upper(), **changes}
    )


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_plain_phrases_are_misspelt_for_the_network_only(share: float) -> None:
    """The encoder that they are distilled from gets the correct spelling."""
    batch = maker(plain=PLAIN, n_plain=30, misspelt_plain=share).make(1)

    assert len(batch.plain) == len(batch.plain_views) == 30
    assert set(batch.plain) == set(PLAIN)
    unchanged = [view == phrase for view, phrase in zip(batch.plain_views, batch.plain, strict=True)]
    # Swapping two letters that are the same changes nothing.
    assert all(unchanged) if share == 0 else sum(unchanged) < 5


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_other_names_are_augmented_as_often_as_requested(share: float) -> None:
    """With `augmented_aliases` an alias is misspelt like any mention; without, it is unchanged."""
    batch = maker(alias_share=1.0, augmented_aliases=share).make(1)

    assert {name.isupper() for name in batch.positives} == {share == 1.0}
    pairs = zip(batch.anchors, batch.positives, strict=True)
    assert all(anchor.casefold() != other.casefold() for anchor, other in pairs)
