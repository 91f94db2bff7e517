"""Fit the coefficients of `pearl_qdrant.linking.ranking.model` by logistic regression over candidates and NIL.

    loss = weighted mean over tasks of mean over mentions of -log p(right entity, or NIL)
           + l2 * |scaled coefficients|^2

A mention whose entity is not among the candidates counts as NIL, the best remaining answer. A mention that a rule
decides does not count. The weight of a task does not depend on its number of mentions. A coefficient has the sign that
follows from the meaning of its feature, or is 0: a property of a single base (such as equal names that are rarely
right) must not enter a model for all bases.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from pearl_qdrant.linking.ranking.model import FEATURES, NEGATIVE, NIL_FEATURES, UNFITTED, UNSIGNED, RankingModel
from pearl_qdrant.linking.ranking.scoring import ScoredMention
from pearl_qdrant.settings import DEFAULT_THRESHOLD

FIXED = dict.fromkeys(UNFITTED, 2.0)
"""Fixed coefficients; exp(2) multiplies the odds by 7."""

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Task:
    """Scored mentions of one base as arrays; m mentions, at most k candidates.

    Attributes:
        name: Name of the task.
        features: (m, k, len(FEATURES)).
        present: (m, k) bool; false if a mention has fewer candidates.
        right: (m, k) bool; the candidates that are the mention's entity.
        nil_features: (m, len(NIL_FEATURES)).
        is_nil: (m,) bool; the base does not have the entity.
        offsets: (m, k); what rules add to the logits (`linking.ranking.rules`).
        by_rule: (m,) bool; a rule decides the mention.
        weight: Weight of the task in the fit, > 0.
    """

    name: str
    features: FloatArray
    present: npt.NDArray[np.bool_]
    right: npt.NDArray[np.bool_]
    nil_features: FloatArray
    is_nil: npt.NDArray[np.bool_]
    offsets: FloatArray
    by_rule: npt.NDArray[np.bool_]
    weight: float = 1.0

    def take(self, rows: npt.NDArray[np.bool_]) -> Task:
        """The mentions of these rows, (m,) bool."""
        return replace(
            self,
            features=self.features[rows],
            present=self.present[rows],
            right=self.right[rows],
            nil_features=self.nil_features[rows],
            is_nil=self.is_nil[rows],
            offsets=self.offsets[rows],
            by_rule=self.by_rule[rows],
        )


def to_task(name: str, scored: Sequence[ScoredMention], gold: Sequence[frozenset[str]], *, weight: float = 1.0) -> Task:
    """Convert scored mentions to arrays.

    Args:
        name: Name of the task.
        scored: m mentions.
        gold: m sets of entity ids, each of which counts as right; empty for NIL.
        weight: Weight of the task.
    """
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
    return Task(name, features, present, right, nil_features, is_nil, offsets, by_rule, weight)


def fit_ranking(tasks: Iterable[Task], *, l2: float = 1e-3, iterations: int = 100) -> RankingModel:
    """Fit the coefficients.

    Args:
        tasks: Weighted by their `weight`.
        l2: Weight of the squared coefficients, each scaled by the deviation of its feature.
        iterations: Iterations of L-BFGS-B, at most.
    """
    tasks = [task.take(~task.by_rule) for task in tasks if not task.by_rule.all()]
    total_weight = sum(task.weight for task in tasks)
    stacked = np.concatenate([task.features[task.present] for task in tasks])
    scale = stacked.std(axis=0) + 1e-6
    n = len(FEATURES)

    def loss(parameters: FloatArray) -> tuple[float, FloatArray]:
        weights, nil_weights = parameters[:n] / scale, parameters[n:]
        total, gradient = l2 * float(parameters[:n] @ parameters[:n]), np.zeros_like(parameters)
        gradient[:n] = 2 * l2 * parameters[:n]
        for task in tasks:
            value, by_feature, by_nil = _task_loss(task, weights, nil_weights)
            share = task.weight / total_weight
            total += share * value
            gradient[:n] += share * by_feature / scale
            gradient[n:] += share * by_nil
        return total, gradient

    start = np.concatenate([np.zeros(n), np.zeros(len(NIL_FEATURES))])
    bounds: list[tuple[float | None, float | None]] = []
    for i, name in enumerate(FEATURES):
        if name in FIXED:
            start[i] = FIXED[name] * scale[i]
            bounds.append((start[i], start[i]))
        else:
            start[i] = 0.0 if name in UNSIGNED else -0.3 if name in NEGATIVE else 0.3
            bounds.append((None if name in NEGATIVE | UNSIGNED else 0.0, 0.0 if name in NEGATIVE else None))
    bounds += [(None, None)] * len(NIL_FEATURES)
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": iterations})
    return RankingModel(found.x[:n] / scale, found.x[n:])


def _task_loss(task: Task, weights: FloatArray, nil_weights: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """Return the mean loss of one task, and its gradients."""
    odds = _odds(task, weights, nil_weights)
    total = odds.sum(axis=1, keepdims=True)
    aim = np.zeros_like(odds)
    hits = odds[:, :-1] * task.right
    is_found = task.right.any(axis=1)
    aim[is_found, :-1] = hits[is_found] / hits[is_found].sum(axis=1, keepdims=True)
    aim[~is_found, -1] = 1.0
    likelihood = np.where(is_found, hits.sum(axis=1), odds[:, -1]) / total[:, 0]
    residual = (odds / total - aim) / len(odds)
    by_feature: FloatArray = np.einsum("mk,mkf->f", residual[:, :-1], task.features)
    return (
        -float(np.log(np.maximum(likelihood, 1e-300)).mean()),
        by_feature,
        residual[:, -1] @ task.nil_features,
    )


def _odds(task: Task, weights: FloatArray, nil_weights: FloatArray, offsets: FloatArray | float = 0.0) -> FloatArray:
    """Return (m, k + 1): exponentials of the logits, NIL last; the largest of a row is 1."""
    logits = np.concatenate([task.features @ weights + offsets, (task.nil_features @ nil_weights)[:, None]], axis=1)
    logits[:, :-1][~task.present] = -np.inf
    odds: FloatArray = np.exp(logits - logits.max(axis=1, keepdims=True))
    return odds


def probabilities(task: Task, model: RankingModel) -> FloatArray:
    """Return (m, k + 1): the probabilities of the candidates and of NIL."""
    odds = _odds(task, model.features, model.nil_features)
    shares: FloatArray = odds / odds.sum(axis=1, keepdims=True)
    return shares


def accuracy_at_1(task: Task, model: RankingModel, *, has_rules: bool = True) -> float:
    """Return the share of mentions with an entity whose first candidate is right; n tied ones earn 1/n each.

    Args:
        task: Scored mentions.
        model: Coefficients.
        has_rules: Whether rules go before the coefficients.
    """
    return _earned(task, task.features @ model.features + (task.offsets if has_rules else 0.0))


def right_and_wrong(task: Task, model: RankingModel, *, threshold: float = DEFAULT_THRESHOLD) -> tuple[float, float]:
    """Return the shares of mentions with a right and with a wrong link; the others are NIL. Ties are NIL."""
    odds = _odds(task, model.features, model.nil_features, task.offsets)
    shares = odds[:, :-1] / odds.sum(axis=1, keepdims=True)
    first = shares.argmax(axis=1)
    best = np.take_along_axis(shares, first[:, None], axis=1)[:, 0]
    is_linked = (best >= threshold) & ((shares >= best[:, None] - 1e-6).sum(axis=1) == 1)
    is_right = np.take_along_axis(task.right, first[:, None], axis=1)[:, 0]
    return float((is_linked & is_right).mean()), float((is_linked & ~is_right).mean())


def accuracy_of_fusion(task: Task, *, k: int = 60) -> float:
    """Return the same for reciprocal rank fusion of dense and lexical scores (Cormack et al. 2009), to compare."""
    fused = np.zeros(task.present.shape)
    for name in ("dense", "lexical"):
        scores = np.where(task.present, task.features[:, :, FEATURES.index(name)], -np.inf)
        ranks = (-scores).argsort(axis=1, kind="stable").argsort(axis=1, kind="stable") + 1
        fused += 1.0 / (k + ranks)
    return _earned(task, 100.0 * fused)


def single_feature(name: str) -> RankingModel:
    """Return a ranking by a single feature, for comparison."""
    return RankingModel(np.array([float(feature == name) for feature in FEATURES]), np.zeros(len(NIL_FEATURES)))


def _earned(task: Task, scores: FloatArray) -> float:
    """Return the mean credit of the first candidates by these scores, over mentions that have an entity."""
    kept = ~task.is_nil & task.present.any(axis=1)
    if not kept.any():
        return 0.0
    ours = np.where(task.present[kept], scores[kept], -np.inf)
    first = ours >= ours.max(axis=1, keepdims=True) - 1e-4
    earned = (first & task.right[kept]).sum(axis=1) / first.sum(axis=1)
    return float(earned.sum() / max(1, (~task.is_nil).sum()))
