"""What a calibration changes, by kind of mention: right links, wrong links and NIL before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pearl_qdrant.linking.calibration.metrics import Answers, is_linked

EXACT_KIND = "exact"
"""Kind of the mentions that are a name of one entity; a calibration must not lose any of them."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What becomes of some mentions, as shares of their weight.

    Attributes:
        right: Linked to the right entity.
        wrong: Linked to another one, or to any if the base has none.
        nil: Not linked.
    """

    right: float
    wrong: float
    nil: float


@dataclass(frozen=True, slots=True)
class KindChange:
    """The change for one kind of mention.

    Attributes:
        kind: Name of the kind (`linking.mention_kinds.KINDS`), or "labelled".
        n: Number of mentions.
        weight: Their weight in the whole.
        before, after: What becomes of them.
    """

    kind: str
    n: int
    weight: float
    before: Outcome
    after: Outcome


def changes_by_kind(
    kinds: Sequence[str], before: Answers, after: Answers, *, threshold_before: float, threshold_after: float
) -> tuple[KindChange, ...]:
    """The changes for each kind, in the order of their first mentions.

    Args:
        kinds: Kind of each of n mentions.
        before, after: Answers for the same n mentions.
        threshold_before, threshold_after: Minimum probabilities of a link.
    """
    changes = []
    for kind in dict.fromkeys(kinds):
        rows = np.array([i for i, one in enumerate(kinds) if one == kind], dtype=np.int64)
        changes.append(
            KindChange(
                kind,
                len(rows),
                float(before.weights[rows].sum()),
                _outcome(before.take(rows), threshold_before),
                _outcome(after.take(rows), threshold_after),
            )
        )
    return tuple(changes)


def right_minus_wrong(changes: Sequence[KindChange]) -> tuple[float, float]:
    """Share of right links minus share of wrong ones, before and after, over all kinds by weight."""
    total = sum(change.weight for change in changes) or 1.0
    before = sum(change.weight * (change.before.right - change.before.wrong) for change in changes)
    after = sum(change.weight * (change.after.right - change.after.wrong) for change in changes)
    return before / total, after / total


def loses_exact_names(changes: Sequence[KindChange]) -> bool:
    """Whether fewer names of one entity are linked than before."""
    return any(change.kind == EXACT_KIND and change.after.right < change.before.right - 1e-9 for change in changes)


def _outcome(answers: Answers, threshold: float) -> Outcome:
    linked = is_linked(answers, threshold)
    shares = answers.weights / (answers.weights.sum() or 1.0)
    right, wrong = linked * answers.first_correct, linked * (1 - answers.first_correct)
    return Outcome(float(shares @ right), float(shares @ wrong), float(shares @ ~linked))
