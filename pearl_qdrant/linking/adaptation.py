"""Adapts the decision to a workload without labels: how many of its mentions are in the base at all.

One constant cannot be right for product titles, clubs and diseases at once: which share of a list has an entity
depends on where it comes from. The scores of the list itself say so. Each first candidate has x = log(p / (1 - p)), and
the x of all are a mixture of two normal distributions:

    wrong    as of names of the base that are asked with their own entity taken out, which is measured
    right    unknown; estimated by expectation maximisation, with priors that keep it near the default

The share of right ones, where the two lie, and so how many first candidates are expected to be right, follow. Nothing
but one number comes out of it: what is added to the logit of NIL so that as many are right as expected. It moves within
`LOWEST` and `HIGHEST`, so that a mixture that is not clear cannot do much harm. That is the estimate of Fellegi and
Sunter 1969 as record linkage uses it (Winkler 1988), over calibrated probabilities in place of agreement patterns.

`docs/experiments/decision.md` has the figures.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha1
from itertools import islice
from typing import NamedTuple

import numpy as np

from pearl_qdrant.errors import CalibrationError
from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.linking.mentions import clean_mention
from pearl_qdrant.linking.options import LinkOptions
from pearl_qdrant.linking.ranking.model import Calibration, FloatArray, ScoredMention
from pearl_qdrant.linking.state import LinkerState
from pearl_qdrant.store.schema import NamePoint

FEWEST = 200  # distinct mentions that an adaptation needs
FEWEST_UNDECIDED = 100  # of them, such that no rule decides; with fewer there is nothing to adapt
MOST = 20_000  # distinct mentions that are read; more say no more
OWN_NAMES = 300  # names of the base that are asked without their entity
READ = 20_000  # points of a collection among which these names are chosen
LOWEST, HIGHEST = -2.0, 0.1  # what may be added to the logit of NIL
_CUTS = (-1.0, 0.25)  # where a first candidate may be as probably right as not, as x of the default
_SLOPES = (0.8, 1.5)
_WRONG_SPREADS = (0.8, 1.6)
_RIGHT_MEAN, _RIGHT_SPREAD = 2.0, 1.2  # centres of the priors of the right first candidates
_MEAN_WEIGHT, _SPREAD_WEIGHT, _SHARE_WEIGHT = 30.0, 300.0, 0.3
"""How many mentions the priors count as; that of the share as a part of the mentions."""
_ROUNDS = 200


@dataclass(frozen=True, slots=True)
class Adaptation:
    """What a list of mentions says of itself.

    Attributes:
        nil_bias: Added to the logit of NIL: pass it as `LinkOptions.nil_bias`. Below 0 more is linked.
        mentions: Distinct mentions that were read.
        nil_share: Share of them that is expected to have no right candidate, in [0, 1].
        precision: Share of the links that is expected to be right, in [0, 1]; NaN without links.
        linked_before, linked: Share of them that is linked without and with the bias.
    """

    nil_bias: float
    mentions: int
    nil_share: float
    precision: float
    linked_before: float
    linked: float

    def __str__(self) -> str:
        if math.isnan(self.precision):
            return f"adapted to {self.mentions:,} mentions: none is linked"
        return (
            f"adapted to {self.mentions:,} distinct mentions: {self.linked:.1%} are linked ({self.linked_before:.1%} "
            f"before), {self.precision:.1%} of the links are expected to be right, and {self.nil_share:.1%} of the "
            f"mentions to be absent from the base or not found (NIL {self.nil_bias:+.2f})"
        )


def adapt(state: LinkerState, mentions: Iterable[str], options: LinkOptions) -> Adaptation:
    """Estimate how much of a list of mentions is in the base; `EntityLinker.adapt` calls this. The result does not
    depend on the order of the mentions, nor on how often one is there. Raises CalibrationError if there are fewer than
    `FEWEST` distinct ones.
    """
    distinct = {clean_mention(mention): None for mention in mentions}
    distinct.pop("", None)
    texts = sorted(distinct, key=_order)[:MOST]
    if len(texts) < FEWEST:
        raise CalibrationError(
            f"There are {len(texts):,} different mentions, and an adaptation needs at least {FEWEST}: fewer do not "
            f"show how much of a list is in the base. Link them without it, or label some (pearl-qdrant calibrate "
            f"--pairs).",
            option="adapt",
        )
    points = [p for collection in state.collections for p in islice(collection.scroll(), READ) if p.is_canonical]
    names = sorted(points, key=lambda point: _order(point.name + point.entity_id))[:OWN_NAMES]
    keys = [fold_name(point.name) for point in names]

    def is_own(number: int, point: NamePoint) -> bool:
        own = names[number]
        return (point.kb, point.entity_id) == (own.kb, own.entity_id) or fold_name(point.name) == keys[number]

    base = state.calibration
    scored = list(state.score_batch(texts, options))
    absent = _Scores.of(state.score_batch([point.name for point in names], options, exclude=is_own), base)
    found = _Scores.of(scored, base)
    decided = [one for one in scored if one.certainty < 1 and one.found]
    nil_bias, expected = 0.0, float(found.probabilities(0.0).sum())
    if len(found.share) >= FEWEST_UNDECIDED and len(absent.share) >= FEWEST_UNDECIDED:
        expected = _expected_right(_log_odds(found.probabilities(0.0)), _log_odds(absent.probabilities(0.0)))
        nil_bias = _bias_for(found, expected)
    threshold = base.threshold if options.threshold is None else options.threshold
    sure = [base.probabilities(one.logits, one.nil_logit, certainty=one.certainty)[0] for one in decided]
    before = np.concatenate([found.probabilities(0.0), sure])
    after = np.concatenate([found.probabilities(nil_bias), sure])
    is_linked = after >= threshold
    return Adaptation(
        nil_bias=round(nil_bias, 3),
        mentions=len(texts),
        nil_share=round(1 - float(after.sum()) / len(texts), 4),
        precision=round(float(after[is_linked].mean()), 4) if is_linked.any() else math.nan,
        linked_before=round(float((before >= threshold).sum()) / len(texts), 4),
        linked=round(float(is_linked.sum()) / len(texts), 4),
    )


def _order(text: str) -> bytes:
    """A fixed order that has nothing to do with what the strings mean."""
    return sha1(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).digest()


class _Scores(NamedTuple):
    """First candidates that no rule decides, (n,) each."""

    share: FloatArray  # share of the first candidate among all
    logit: FloatArray  # logit of the candidates together against NIL

    @classmethod
    def of(cls, scored: Iterable[ScoredMention], calibration: Calibration) -> _Scores:
        """The scores of mentions."""
        rows = []
        for one in scored:
            if one.certainty == 1 and one.found:
                logits = calibration.slope * np.array(one.logits)
                total = float(logits[0]) + math.log(float(np.exp(logits - logits[0]).sum()))
                nil = calibration.slope * one.nil_logit + calibration.nil_bias
                rows.append((math.exp(float(logits[0]) - total), total - nil))
        found = np.array(sorted(rows), dtype=np.float64).reshape(-1, 2)
        return cls(found[:, 0], found[:, 1])

    def probabilities(self, nil_bias: float) -> FloatArray:
        """Of the first candidates, (n,)."""
        found: FloatArray = self.share / (1.0 + np.exp(nil_bias - self.logit))
        return found


def _log_odds(p: FloatArray) -> FloatArray:
    kept = np.clip(p, 1e-6, 1 - 1e-6)
    return np.log(kept) - np.log1p(-kept)


def _logistic(x: FloatArray) -> FloatArray:
    return 1.0 / (1.0 + np.exp(-x))


def _expected_right(x: FloatArray, absent: FloatArray) -> float:
    """How many first candidates are expected to be right: by their log odds, (n,), and those of absent names, (m,)."""
    n = len(x)
    wrong = float(np.median(absent))
    wrong_spread = float(np.clip(1.4826 * np.median(np.abs(absent - wrong)), *_WRONG_SPREADS))
    share_before = float(_logistic(x).mean())
    share, right, spread = share_before, _RIGHT_MEAN, _RIGHT_SPREAD
    for _ in range(_ROUNDS):
        # Beyond a deviation above the right ones nothing speaks against them, nor below the wrong ones.
        of_right = math.log(share) - math.log(spread) - ((np.minimum(x, right + spread) - right) / spread) ** 2 / 2
        far = (np.maximum(x, wrong - wrong_spread) - wrong) / wrong_spread
        of_wrong = math.log(1 - share) - math.log(wrong_spread) - far**2 / 2
        is_right = _logistic(of_right - of_wrong)
        total = float(is_right.sum())
        share = (total + _SHARE_WEIGHT * n * share_before) / (n + _SHARE_WEIGHT * n)
        share = min(max(share, 1e-3), 1 - 1e-3)
        right = (float(is_right @ x) + _MEAN_WEIGHT * _RIGHT_MEAN) / (total + _MEAN_WEIGHT)
        square = float(is_right @ (x - right) ** 2) + _SPREAD_WEIGHT * _RIGHT_SPREAD**2
        spread = math.sqrt(square / (total + _SPREAD_WEIGHT))
    slope = (right - wrong) / (share * spread**2 + (1 - share) * wrong_spread**2)
    slope = min(max(slope, _SLOPES[0]), _SLOPES[1])
    middle = (right * wrong_spread + wrong * spread) / (wrong_spread + spread)
    cut = min(max(middle - math.log(share / (1 - share)) / slope, _CUTS[0]), _CUTS[1])
    return float(_logistic(slope * (x - cut)).sum())


def _bias_for(found: _Scores, expected: float) -> float:
    """What makes the probabilities of the first candidates sum to this, within the bounds."""
    low, high = LOWEST, HIGHEST
    if found.probabilities(low).sum() <= expected:
        return low
    if found.probabilities(high).sum() >= expected:
        return high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if found.probabilities(middle).sum() > expected else (low, middle)
    return (low + high) / 2
