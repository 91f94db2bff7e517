"""Fits the ranking of `pearl_qdrant.linking.ranking.model` by a logistic regression, and the decision by boosted trees.

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

from pearl_qdrant.encoder.judge import NameJudge
from pearl_qdrant.linking.ranking.forest import Forest
from pearl_qdrant.linking.ranking.model import (
    DECISION_FEATURES,
    FEATURES,
    JUDGED,
    NIL_FEATURES,
    SIGNS,
    UNFITTED,
    RankingModel,
    ScoredMention,
    all_margins,
    decision_rows,
    in_order,
    judge_features,
)
from pearl_qdrant.linking.ranking.scoring import N_JUDGED, judged_name
from pearl_qdrant.linking.ranking.string_features import string_features
from pearl_qdrant.settings import DEFAULT_THRESHOLD

FIXED = dict.fromkeys(UNFITTED, 2.0)
"""Fixed coefficients of the ranking; exp(2) multiplies the odds by 7."""

DECISION_FIXED = dict.fromkeys(UNFITTED, 1.0) | {"opposite": -4.0, "known_word": -4.0}
"""Coefficients of the decision that are added to its trees: few mentions of the tasks have a type that is asked for, a
word that excludes one of the name, or another known name of a person."""

N_TREES = 300
TREES: dict[str, Any] = {
    "num_leaves": 8,
    "learning_rate": 0.04,
    "min_sum_hessian_in_leaf": 8,
    "min_data_in_leaf": 40,
    "lambda_l2": 10,
    "feature_fraction": 0.3,
    "num_threads": 1,
    "verbose": -1,
}
"""Options of lightgbm; chosen by sets left out (docs/experiments/decision.md)."""

UNJUDGED = 0.15
"""Weight of the decisions without a judge, beside those with one: not every model has one."""

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
    mentions: npt.NDArray[np.object_]  # (m,) str
    names: npt.NDArray[np.object_]  # (m,) tuples of str: the best names of the candidates, as a judge reads them
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
    mentions, names = np.empty(m, dtype=np.object_), np.empty(m, dtype=np.object_)
    for i, one in enumerate(scored):
        of_mention = string_features(one.mention)
        mentions[i], names[i] = one.mention, tuple(judged_name(of_mention, entity.point) for entity in one.found)
    return Task(name, features, present, right, nil_features, is_nil, offsets, by_rule, mentions, names)


def judge_again(task: Task, judge: NameJudge, ranking: FloatArray) -> Task:
    """The task with the scores of another judge, of the first candidates by a ranking, (len(FEATURES),)."""
    features = task.features.copy()
    features[:, :, JUDGED] = 0.0
    logits = np.where(task.present, features @ ranking, -np.inf)
    order = np.argsort(-logits, axis=1, kind="stable")[:, :N_JUDGED]
    rows = np.flatnonzero(~task.by_rule & task.present.any(axis=1))
    asked = [(int(i), int(j)) for i in rows for j in order[i] if task.present[i, j]]
    scores = judge.scores([(task.mentions[i], task.names[i][j]) for i, j in asked])
    of_mention: dict[int, dict[int, float]] = {}
    for (i, j), score in zip(asked, scores.tolist(), strict=True):
        of_mention.setdefault(i, {})[j] = score
    for i, found in of_mention.items():
        features[i, :, JUDGED] = judge_features(np.array(min(found.values())))
        for j, score in found.items():
            features[i, j, JUDGED] = judge_features(np.array(score))
    return replace(task, features=features)


def fit_ranking(tasks: Iterable[Task], *, l2: float = 1e-3) -> RankingModel:
    """Fit the coefficients of the ranking, then the trees of the decision about first candidates, over tasks weighted
    by their `weight` and `decision_weight`. `l2` is the weight of the squared coefficients, each scaled by the
    deviation of its feature.
    """
    tasks = [task.take(~task.by_rule & task.present.any(axis=1)) for task in tasks]
    tasks = [task for task in tasks if len(task.is_nil)]
    # Mentions whose entity is among several candidates say which is nearer.
    several = [task.take(task.right.any(axis=1) & (task.present.sum(axis=1) > 1)) for task in tasks]
    ranking = _fit([task for task in several if len(task.is_nil)], l2)
    forest = fit_forest([*tasks, *map(_without_judge, tasks)], ranking)
    return RankingModel(ranking, in_order(DECISION_FIXED, FEATURES), np.zeros(len(NIL_FEATURES)), forest)


def _without_judge(task: Task) -> Task:
    """The task as a model without a judge sees it."""
    features = task.features.copy()
    features[:, :, JUDGED] = 0.0
    return replace(task, features=features, decision_weight=UNJUDGED * task.decision_weight)


def fit_forest(tasks: Sequence[Task], ranking: FloatArray, *, seed: int = 1) -> Forest:
    """Fit the trees of the decision about the first candidates of a ranking, (len(FEATURES),). A feature that has a
    sign moves the logit that way alone. Needs lightgbm.
    """
    import lightgbm

    parts = [_decision_rows(task, ranking) for task in tasks if task.decision_weight]
    rows, right = (np.concatenate([getattr(part, name) for part in parts]) for name in ("rows", "right"))
    shares = np.concatenate([part.shares for part in parts])
    weights = np.concatenate([np.full(len(part.right), part.weight / max(1, len(part.right))) for part in parts])
    weights /= weights.mean()

    def slopes(logits: FloatArray, _: object) -> tuple[FloatArray, FloatArray]:
        """First and second derivatives of -log p, for p = share * logistic(logit)."""
        near = 1.0 / (1.0 + np.exp(-logits))
        p = np.clip(shares * near, 1e-6, 1 - 1e-6)
        first = np.where(right, near - 1.0, p * (1.0 - near) / (1.0 - p))
        second = np.where(right, near * (1.0 - near), first * np.maximum(0.1, 1.0 - near))
        return first * weights, np.maximum(second, 1e-3) * weights

    mean = float(np.clip(weights @ right / (weights @ shares), 1e-3, 1 - 1e-3))
    start = float(np.log(mean / (1.0 - mean)))
    signs = [SIGNS[name] for name in FEATURES] + [0] * len(NIL_FEATURES)
    data = lightgbm.Dataset(rows, right, weight=weights, init_score=np.full(len(right), start))
    how = {**TREES, "objective": slopes, "monotone_constraints": signs, "seed": seed, "deterministic": True}
    found = lightgbm.train(how, data, N_TREES)
    return to_forest(found.dump_model()["tree_info"], start, DECISION_FEATURES)


@dataclass(frozen=True, slots=True)
class _Decisions:
    """First candidates: (m, p) their features and those of the mention, (m,) their shares, and which are right."""

    rows: FloatArray
    shares: FloatArray
    right: npt.NDArray[np.bool_]
    weight: float


def _decision_rows(task: Task, ranking: FloatArray) -> _Decisions:
    logits = np.where(task.present, task.features @ ranking, -np.inf)
    at, first = np.arange(len(logits)), logits.argmax(axis=1)
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    of_mention = all_margins(task.nil_features, logits, task.features)
    rows = decision_rows(task.features[at, first], of_mention)
    return _Decisions(rows, 1.0 / odds.sum(axis=1), task.right[at, first], task.decision_weight)


def to_forest(trees: Sequence[Mapping[str, Any]], start: float, features: tuple[str, ...]) -> Forest:
    """The trees of a booster as arrays, the start in the first of them."""
    flat = [_flat(tree["tree_structure"]) for tree in trees]
    n = max(map(len, flat))
    column, left, right = (np.zeros((len(flat), n), dtype=np.int64) for _ in range(3))
    threshold, value = np.zeros((len(flat), n)), np.zeros((len(flat), n))
    for i, nodes in enumerate(flat):
        for j, (split, limit, low, high, logit) in enumerate(nodes):
            column[i, j], threshold[i, j], left[i, j], right[i, j], value[i, j] = split, limit, low, high, logit
    value[0] += start
    # As it is stored, so that the fit's figures are those of what ships.
    stored = Forest(features, column, threshold, left, right, value, max(map(_depth, flat))).to_arrays()
    return Forest.from_arrays(stored)


_Node = tuple[int, float, int, int, float]
"""Column, threshold, the nodes to the left and to the right, and the mean logit; a leaf leads to itself."""


def _flat(root: Mapping[str, Any]) -> list[_Node]:
    """The nodes of a tree, the root first."""
    nodes: list[_Node] = []

    def add(node: Mapping[str, Any]) -> int:
        at = len(nodes)
        if "leaf_value" in node:
            nodes.append((0, 0.0, at, at, float(node["leaf_value"])))
            return at
        nodes.append((0, 0.0, at, at, 0.0))
        low, high = add(node["left_child"]), add(node["right_child"])
        # Up to half precision's neighbour: what is stored in 32 bits must not move a value to the other side.
        limit = float(np.float32(node["threshold"]))
        nodes[at] = int(node["split_feature"]), limit, low, high, float(node["internal_value"])
        return at

    add(root)
    return nodes


def _depth(nodes: Sequence[_Node], at: int = 0) -> int:
    """Splits on the longest way from a node."""
    _, _, low, high, _ = nodes[at]
    return 0 if low == at else 1 + max(_depth(nodes, low), _depth(nodes, high))


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

    return _minimise(loss, scale)


def _scale(features: FloatArray) -> FloatArray:
    """Deviations of the features of candidates, (p,); 1 for constant ones."""
    scale: FloatArray = features.std(axis=0)
    scale[scale < 1e-6] = 1.0
    return scale


def _minimise(loss: Callable[[FloatArray], tuple[float, FloatArray]], scale: FloatArray) -> FloatArray:
    """Coefficients with the least loss, (p,), each with the sign of its feature."""
    start = np.zeros(len(scale))
    bounds: list[tuple[float | None, float | None]] = [(None, None)] * len(scale)
    for i, name in enumerate(FEATURES):
        if name in FIXED:
            start[i] = FIXED[name] * scale[i]
            bounds[i] = (start[i], start[i])
        elif SIGNS[name]:
            bounds[i] = (0.0, None) if SIGNS[name] > 0 else (None, 0.0)
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
