"""What a calibration changes by kind, on made-up answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from calibration_samples import answers

from pearl_qdrant.linking.calibration.metrics import (
    KindChange,
    Outcome,
    changes_by_kind,
    loses_exact_names,
    right_minus_wrong,
)


def change(kind: str, before: tuple[float, float], after: tuple[float, float], weight: float = 1.0) -> KindChange:
    """A change from shares of right and wrong links to others."""
    return KindChange(kind, 10, weight, *(Outcome(*shares, 1 - sum(shares)) for shares in (before, after)))


def test_each_kind_is_counted_by_itself() -> None:
    """Links at or above each threshold count, right or wrong; the others are NIL."""
    kinds = ["exact", "alias", "exact", "alias", "alias"]
    before = answers([0.9, 0.8, 0.6, 0.7, 0.2], [1, 0, 1, 1, 1])
    after = answers([0.95, 0.4, 0.45, 0.7, 0.6], [1, 0, 1, 1, 1])
    weighed = replace(before, weights=np.array([1.0, 2.0, 1.0, 2.0, 2.0]))

    found = changes_by_kind(kinds, weighed, after, threshold_before=0.5, threshold_after=0.6)

    assert [(one.kind, one.n, one.weight) for one in found] == [("exact", 2, 2.0), ("alias", 3, 6.0)]
    assert found[0].before == Outcome(1.0, 0.0, 0.0)
    assert found[0].after == Outcome(0.5, 0.0, 0.5)
    shares = [(one.right, one.wrong, one.nil) for one in (found[1].before, found[1].after)]
    assert shares == [pytest.approx((1 / 3, 1 / 3, 1 / 3)), pytest.approx((2 / 3, 0.0, 1 / 3))]


def test_mentions_of_a_kind_count_by_their_weight() -> None:
    """Pairs that are weighted to another share of NIL give shares of that mixture."""
    linked = answers([0.9, 0.9, 0.1], [1, 1, 0], is_nil=[False, False, True])
    weighed = replace(linked, weights=np.array([0.75, 0.75, 1.5]))

    (found,) = changes_by_kind(["labelled"] * 3, weighed, weighed, threshold_before=0.5, threshold_after=0.5)

    assert found.after == Outcome(0.5, 0.0, 0.5)


def test_the_gain_is_right_minus_wrong_links_by_weight() -> None:
    """A kind with three quarters of the weight counts three times as much."""
    found = [change("exact", (1.0, 0.0), (1.0, 0.0), 3.0), change("alias", (0.5, 0.5), (0.4, 0.0), 1.0)]

    assert right_minus_wrong(found) == pytest.approx((0.75, 0.85))
    assert right_minus_wrong([]) == (0.0, 0.0)


@pytest.mark.parametrize(
    "kind, before, after, is_lost",
    [
        ("exact", (1.0, 0.0), (0.99, 0.0), True),
        ("exact", (0.9, 0.1), (0.9, 0.0), False),
        ("exact", (0.9, 0.0), (1.0, 0.0), False),
        ("alias", (1.0, 0.0), (0.0, 0.0), False),
    ],
)
def test_only_a_lost_exact_name_is_a_loss_of_names(
    kind: str, before: tuple[float, float], after: tuple[float, float], is_lost: bool
) -> None:
    """Fewer right links of exact names count; fewer of another kind are weighed against wrong ones."""
    assert loses_exact_names([change("case", (1.0, 0.0), (1.0, 0.0)), change(kind, before, after)]) is is_lost
