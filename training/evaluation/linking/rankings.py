"""Rankings of entities: their accuracy, and the reliability of the linker's probabilities."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pearl_qdrant.linking.calibration.metrics import Answers, measure
from pearl_qdrant.linking.calibration.samples import Samples
from pearl_qdrant.linking.ranking.model import Calibration
from training.evaluation.linking.sets import LinkingSet
from training.evaluation.outcome import FloatArray

DEPTH = 64
"""Number of candidates that a method returns."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """The entities that a method finds for a mention.

    Attributes:
        ids: Entity ids, best first.
        n_tied: Number of first entities with equal scores: 1 for a single best one, 0 without entities.
    """

    ids: tuple[str, ...]
    n_tied: int

    def expected_accuracy(self, gold: frozenset[str], depth: int = 1) -> float:
        """Probability that a gold entity is among the first `depth`, with tied entities in random order."""
        if self.n_tied <= depth:
            return float(not gold.isdisjoint(self.ids[:depth]))
        n_wrong = self.n_tied - sum(key in gold for key in self.ids[: self.n_tied])
        return 1 - math.comb(n_wrong, depth) / math.comb(self.n_tied, depth)


def rank_entities(scored: Sequence[tuple[str, float]], *, tolerance: float = 1e-6) -> Ranking:
    """Rank entities by score, highest first, then by id; those within the tolerance of the best one are tied."""
    if not scored:
        return Ranking((), 0)
    ordered = sorted(scored, key=lambda pair: (-pair[1], pair[0]))
    n_tied = sum(ordered[0][1] - score <= tolerance for _, score in ordered)
    return Ranking(tuple(key for key, _ in ordered), n_tied)


def expected_accuracies(
    sets: Sequence[LinkingSet], rankings: Sequence[Sequence[Ranking]], depth: int = 1
) -> FloatArray:
    """Expected accuracy of each mention that has an entity, in the order of the sets, (n,)."""
    return np.array(
        [
            ranking.expected_accuracy(query.gold, depth)
            for one, of_set in zip(sets, rankings, strict=True)
            for query, ranking in zip(one.queries, of_set, strict=True)
        ]
    )


def reliability_details(
    samples: Samples, nil_samples: Samples, calibration: Calibration, shares: Sequence[float]
) -> Mapping[str, float]:
    """Reliability of the probabilities at each share of NIL mentions, in percent, by name and share.

    Args:
        samples: Samples of n mentions with an entity.
        nil_samples: Samples of the same mentions, with their entities removed from the base.
        calibration: Calibration of the linker.
        shares: Shares in [0, 1) of the mentions that are replaced by their NIL twins; drawn once.
    """
    details: dict[str, float] = {}
    n = len(samples)
    order = np.random.default_rng(0).permutation(n)
    known, unknown = samples.answers(calibration), nil_samples.answers(calibration)
    for share in shares:
        n_nil = round(share * n)
        answers = Answers.joined([known.take(order[n_nil:]), unknown.take(order[:n_nil])])
        found = measure(answers, calibration.threshold, rng=np.random.default_rng(0))
        figures = {
            "precision": found.precision,
            "coverage": found.coverage,
            "ece": found.ece,
            "ece_low": found.ece_interval[0],
            "ece_high": found.ece_interval[1],
            "brier": found.brier,
            "auroc": found.auroc,
            "first_ece": found.first_ece,
            "first_auroc": found.first_auroc,
            "nil_f1": found.nil_f1,
        }
        # Undefined figures are skipped, such as the F1 of NIL without NIL mentions.
        details |= {f"{key}_{share:.0%}": 100 * value for key, value in figures.items() if math.isfinite(value)}
    return details
