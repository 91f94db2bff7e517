"""What a ranking of entities earns, and the figures of its probabilities."""

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
"""Candidates among which the right one is looked for."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """Entities for a mention.

    Attributes:
        ids: Best first.
        n_tied: First ones that nothing separates; 1 where there is a single best one, 0 without any.
    """

    ids: tuple[str, ...]
    n_tied: int

    def credit(self, gold: frozenset[str], depth: int = 1) -> float:
        """The chance that a right one is among the first `depth`, tied ones in random order."""
        if self.n_tied <= depth:
            return float(not gold.isdisjoint(self.ids[:depth]))
        n_wrong = self.n_tied - sum(key in gold for key in self.ids[: self.n_tied])
        return 1 - math.comb(n_wrong, depth) / math.comb(self.n_tied, depth)


def rank(scored: Sequence[tuple[str, float]], *, same: float = 1e-6) -> Ranked:
    """Entities by their score, higher first, equal ones by id; those within `same` of the best one are tied."""
    ordered = sorted(scored, key=lambda pair: (-pair[1], pair[0]))
    return Ranked(tuple(key for key, _ in ordered), sum(ordered[0][1] - score <= same for _, score in ordered))


def all_credits(sets: Sequence[LinkingSet], ranked: Sequence[Sequence[Ranked]], depth: int = 1) -> FloatArray:
    """What each mention with an entity earns, in the order of the sets, (n,)."""
    return np.array(
        [
            answer.credit(query.gold, depth)
            for one, answers in zip(sets, ranked, strict=True)
            for query, answer in zip(one.queries, answers, strict=True)
        ]
    )


def reliability_details(
    samples: Samples, nil_samples: Samples, calibration: Calibration, shares: Sequence[float]
) -> Mapping[str, float]:
    """Figures of the probabilities at each share of NIL mentions, in percent, by name and share.

    Args:
        samples: Mentions with an entity, n.
        nil_samples: The same mentions without theirs.
        calibration: Of the linker.
        shares: In [0, 1); that part of the mentions, drawn once, is replaced by their twins.
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
        # What is not defined, as the F1 of NIL without any, is left out.
        details |= {f"{key}_{share:.0%}": 100 * value for key, value in figures.items() if math.isfinite(value)}
    return details
