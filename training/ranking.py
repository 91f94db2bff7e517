"""Fit the coefficients of `pearl_qdrant.linking.ranking.model` by two logistic regressions.

    ranking     over the candidates of mentions whose entity is among them: which one is right
    decision    over all mentions, by the features and margins of the first candidate: is it the right one. Its
                probability is its share of the ranking, times that of the decision
    loss        weighted mean over tasks of mean over mentions of -log p(right answer) + l2 * |scaled coefficients|^2

A mention that a rule decides does not count. The weight of a task does not depend on its number of mentions. A
coefficient has the sign that follows from the meaning of its feature, or is 0: a property of a single base (such as
equal names that are rarely right) must not enter a model for all bases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from pearl_qdrant.linking.ranking.model import (
    FEATURES,
    FEW_NAMES,
    MARGINS,
    NIL_FEATURES,
    SIGNS,
    UNFITTED,
    RankingModel,
    ScoredMention,
    all_margins,
)
from pearl_qdrant.settings import DEFAULT_THRESHOLD

FIXED = dict.fromkeys(UNFITTED, 2.0)
"""Fixed coefficients of the ranking; exp(2) multiplies the odds by 7."""

DECISION_FIXED = dict.fromkeys(UNFITTED, 1.0) | {"opposite": -3.0}
"""Fixed coefficients of the decision. Few mentions of the tasks have a word that excludes one of the name: fitted, it
left `hypertension` at 0.53 for `hypotension` in a base of eight names."""

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Task:
    """Scored mentions of one base as arrays; m mentions, at most k candidates."""

    name: str  # name of the task
    features: FloatArray  # (m, k, len(FEATURES))
    present: npt.NDArray[np.bool_]  # (m, k) bool; false if a mention has fewer candidates
    right: npt.NDArray[np.bool_]  # (m, k) bool; the candidates that are the mention's entity
    nil_features: FloatArray  # (m, len(NIL_FEATURES))
    is_nil: npt.NDArray[np.bool_]  # (m,) bool; the base does not have the entity
    offsets: FloatArray  # (m, k); what rules add to the logits (`linking.ranking.scoring`)
    by_rule: npt.NDArray[np.bool_]  # (m,) bool; a rule decides the mention
    weight: float = 1.0  # weight of the task in the fit of the ranking, >= 0
    decision_weight: float = 1.0  # its weight in the fit of the decision, >= 0

    def take(self, rows: npt.NDArray[np.bool_]) -> Task:
        """The mentions of these rows, (m,) bool."""
        arrays: dict[str, Any] = {one.name: getattr(self, one.name)[rows] for one in fields(self)[1:-2]}
        return replace(self, **arrays)


def to_task(name: str, scored: Sequence[ScoredMention], gold: Sequence[frozenset[str]]) -> Task:
    """Convert m scored mentions to arrays, with m sets of entity ids, each of which counts as right; empty for NIL."""
    m, k = len(scored), max((len(one.found) for one in scored), default=0)
    features = np.zeros((m, k, len(FEATURES)))
    present, right = np.zeros((m, k), dtype=np.bool_), np.zeros((m, k), dtype=np.bool_)
    offsets = np.zeros((m, k))
    for i, (one, ids) in enumerate(zip(scored, gold, strict=True)):
        for j, entity in enumerate(one.found):
            features[i, j] = entity.features
            offsets[i, j] = entity.offset
            present[i, j] = True
            right[i, j] = entity.point.entity_id in ids
    nil_features = np.array([one.nil_features for one in scored]).reshape(m, len(NIL_FEATURES))
    is_nil = np.array([not ids for ids in gold])
    by_rule = np.array([one.certainty < 1 for one in scored])
    return Task(name, features, present, right, nil_features, is_nil, offsets, by_rule)


def fit_ranking(tasks: Iterable[Task], *, l2: float = 1e-3) -> RankingModel:
    """Fit the coefficients of the ranking, then those of the decision about its first candidates, over tasks weighted
    by their `weight` and `decision_weight`. `l2` is the weight of the squared coefficients, each scaled by the
    deviation of its feature.
    """
    tasks = [task.take(~task.by_rule & task.present.any(axis=1)) for task in tasks]
    tasks = [task for task in tasks if len(task.is_nil)]
    # Mentions whose entity is among several candidates say which is nearer.
    several = [task.take(task.right.any(axis=1) & (task.present.sum(axis=1) > 1)) for task in tasks]
    ranking = _fit([task for task in several if len(task.is_nil)], l2)
    fitted = _fit_decision([_decision_rows(task, ranking) for task in tasks], l2)
    n = len(FEATURES)
    return RankingModel(ranking, fitted[:n], -fitted[n:])


@dataclass(frozen=True, slots=True)
class _Decisions:
    """First candidates: (m, p) their features and those of the mention, (m,) their shares, and which are right."""

    features: FloatArray
    shares: FloatArray
    right: npt.NDArray[np.bool_]
    weight: float


def _decision_rows(task: Task, ranking: FloatArray) -> _Decisions:
    logits = np.where(task.present, task.features @ ranking, -np.inf)
    rows, first = np.arange(len(logits)), logits.argmax(axis=1)
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    of_mention = all_margins(task.nil_features, logits, task.features)
    features = np.concatenate([task.features[rows, first], of_mention], axis=1)
    return _Decisions(features, 1.0 / odds.sum(axis=1), task.right[rows, first], task.decision_weight)


def _fit_decision(tasks: Sequence[_Decisions], l2: float) -> FloatArray:
    """Coefficients of the features and of the mention, (p,), which make -log p(the first is right or not) least."""
    tasks = [task for task in tasks if task.weight]
    total_weight = sum(task.weight for task in tasks)
    scale = _scale(np.concatenate([task.features for task in tasks]))

    def loss(parameters: FloatArray) -> tuple[float, FloatArray]:
        total, gradient = l2 * float(parameters @ parameters), 2 * l2 * parameters
        for task in tasks:
            near = 1.0 / (1.0 + np.exp(-(task.features @ (parameters / scale))))
            p = np.clip(task.shares * near, 1e-9, 1 - 1e-9)
            value = -np.where(task.right, np.log(p), np.log1p(-p)).mean()
            slope = np.where(task.right, -1.0 / p, 1.0 / (1.0 - p)) * task.shares * near * (1.0 - near)
            total += task.weight / total_weight * value
            gradient = gradient + task.weight / total_weight * (slope @ task.features) / len(p) / scale
        return total, gradient

    return _minimise(loss, scale, DECISION_FIXED)


def _fit(tasks: Sequence[Task], l2: float) -> FloatArray:
    """The coefficients, (p,), of the features in their order."""
    tasks = [task for task in tasks if task.weight]
    total_weight = sum(task.weight for task in tasks)
    scale = _scale(np.concatenate([task.features[task.present] for task in tasks]))

    def loss(parameters: FloatArray) -> tuple[float, FloatArray]:
        total, gradient = l2 * float(parameters @ parameters), 2 * l2 * parameters
        for task in tasks:
            value, slope = _mean_loss(task, parameters / scale)
            total += task.weight / total_weight * value
            gradient = gradient + task.weight / total_weight * slope / scale
        return total, gradient

    return _minimise(loss, scale, FIXED)


def _scale(features: FloatArray) -> FloatArray:
    """Deviations of the features of candidates, (p,); 1 for those of the mention, and for constant ones."""
    scale: FloatArray = features.std(axis=0)
    scale[scale < 1e-6] = 1.0
    scale[len(FEATURES) :] = 1.0
    return scale


def _minimise(
    loss: Callable[[FloatArray], tuple[float, FloatArray]], scale: FloatArray, fixed: Mapping[str, float]
) -> FloatArray:
    """Coefficients with the least loss, (p,), each with the sign of its feature; margins raise a candidate."""
    start = np.zeros(len(scale))
    bounds: list[tuple[float | None, float | None]] = [(None, None)] * len(scale)
    for i, name in enumerate(FEATURES):
        if name in fixed:
            start[i] = fixed[name] * scale[i]
            bounds[i] = (start[i], start[i])
        elif SIGNS[name]:
            bounds[i] = (0.0, None) if SIGNS[name] > 0 else (None, 0.0)
    for i in range(len(FEATURES), len(scale))[MARGINS]:
        bounds[i] = (0.0, None)
    if len(scale) > len(FEATURES):
        bounds[len(FEATURES) + FEW_NAMES] = (0.0, 0.0)
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 200})
    fitted: FloatArray = found.x / scale
    return fitted


def _mean_loss(task: Task, weights: FloatArray) -> tuple[float, FloatArray]:
    """Mean of -log p(right) over the mentions, and its gradient."""
    logits = np.where(task.present, task.features @ weights, -np.inf)
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    total = odds.sum(axis=1, keepdims=True)
    hits = odds * task.right
    hit = np.maximum(hits.sum(axis=1, keepdims=True), 1e-300)
    slope: FloatArray = np.einsum("mk,mkp->p", (odds / total - hits / hit) / len(odds), task.features)
    return -float(np.log(hit / total).mean()), slope


def _odds(task: Task, model: RankingModel, offsets: FloatArray | float = 0.0) -> FloatArray:
    """Return (m, k + 1): exponentials of the logits, NIL last; the largest of a row is 1."""
    ranked = np.where(task.present, task.features @ model.features, -np.inf)
    nil = model.nil_logits(ranked, task.features, task.nil_features)
    logits = np.concatenate([ranked + offsets, nil[:, None]], axis=1)
    odds: FloatArray = np.exp(logits - logits.max(axis=1, keepdims=True))
    return odds


def probabilities(task: Task, model: RankingModel) -> FloatArray:
    """Return (m, k + 1): the probabilities of the candidates and of NIL."""
    odds = _odds(task, model)
    shares: FloatArray = odds / odds.sum(axis=1, keepdims=True)
    return shares


def accuracy_at_1(task: Task, model: RankingModel, *, has_rules: bool = True) -> float:
    """Return the share of mentions with an entity whose first candidate is right; n tied ones earn 1/n each. With
    `has_rules`, rules go before the coefficients.
    """
    return _earned(task, task.features @ model.features + (task.offsets if has_rules else 0.0))


def right_and_wrong(task: Task, model: RankingModel, *, threshold: float = DEFAULT_THRESHOLD) -> tuple[float, float]:
    """Return the shares of mentions with a right and with a wrong link; the others are NIL. Ties are NIL."""
    odds = _odds(task, model, task.offsets)
    shares = odds[:, :-1] / odds.sum(axis=1, keepdims=True)
    first = shares.argmax(axis=1)
    best = np.take_along_axis(shares, first[:, None], axis=1)[:, 0]
    is_linked = (best >= threshold) & ((shares >= best[:, None] - 1e-6).sum(axis=1) == 1)
    is_right = np.take_along_axis(task.right, first[:, None], axis=1)[:, 0]
    return float((is_linked & is_right).mean()), float((is_linked & ~is_right).mean())


def accuracy_of_fusion(task: Task) -> float:
    """Return the same for reciprocal rank fusion of dense and lexical scores (Cormack et al. 2009), to compare."""
    fused = np.zeros(task.present.shape)
    for name in ("dense", "lexical"):
        scores = np.where(task.present, task.features[:, :, FEATURES.index(name)], -np.inf)
        ranks = (-scores).argsort(axis=1, kind="stable").argsort(axis=1, kind="stable") + 1
        fused += 1.0 / (60 + ranks)
    return _earned(task, 100.0 * fused)


def single_feature(name: str) -> RankingModel:
    """Return a ranking by a single feature, for comparison."""
    only = np.array([float(feature == name) for feature in FEATURES])
    return RankingModel(only, np.zeros(len(FEATURES)), np.zeros(len(NIL_FEATURES)))


def _earned(task: Task, scores: FloatArray) -> float:
    """Return the mean credit of the first candidates by these scores, over mentions that have an entity."""
    kept = ~task.is_nil & task.present.any(axis=1)
    if not kept.any():
        return 0.0
    ours = np.where(task.present[kept], scores[kept], -np.inf)
    first = ours >= ours.max(axis=1, keepdims=True) - 1e-4
    earned = (first & task.right[kept]).sum(axis=1) / first.sum(axis=1)
    return float(earned.sum() / max(1, (~task.is_nil).sum()))
