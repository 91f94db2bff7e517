"""Fitting the ranking's coefficients."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from pearl_qdrant.linking.ranking.features import FEATURES, NIL_FEATURES
from pearl_qdrant.linking.ranking.model import RankingModel
from training.ranking import (
    DECISION_FIXED,
    FIXED,
    Task,
    accuracy_at_1,
    accuracy_of_fusion,
    fit_ranking,
    probabilities,
    right_and_wrong,
    single_feature,
)

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

TRUE = {"dense": 8.0, "lexical": 4.0, "missing_numbers": -2.0}
TRUE_DECISION = {"dense": 5.0, "lexical": 3.0, "missing_numbers": -1.0}


def task_of(features: FloatArray, present: BoolArray, right: BoolArray, nil: FloatArray, is_nil: BoolArray) -> Task:
    """A task without rules."""
    return Task("made:up", features, present, right, nil, is_nil, np.zeros(present.shape), np.zeros(len(nil), bool))


def made_up(n: int, *, seed: int) -> tuple[Task, RankingModel]:
    """Mentions whose right answers are drawn from a known model."""
    rng = np.random.default_rng(seed)
    model = RankingModel(
        np.array([TRUE.get(name, FIXED.get(name, 0.0)) for name in FEATURES]),
        np.array([TRUE_DECISION.get(name, DECISION_FIXED.get(name, 0.0)) for name in FEATURES]),
        np.array([4.0 if name == "bias" else 0.0 for name in NIL_FEATURES]),
    )
    features = np.zeros((n, 6, len(FEATURES)))
    for name in TRUE:
        features[:, :, FEATURES.index(name)] = (
            rng.random((n, 6)) if name != "missing_numbers" else rng.random((n, 6)) < 0.3
        )
    present = rng.random((n, 6)) < 0.9
    nil_features = np.zeros((n, len(NIL_FEATURES)))
    nil_features[:, 0] = 1.0
    blank = task_of(features, present, np.zeros((n, 6), dtype=bool), nil_features, np.zeros(n, dtype=bool))
    drawn = np.array([rng.choice(7, p=p / p.sum()) for p in probabilities(blank, model)])
    return replace(blank, right=np.arange(6) == drawn[:, None], is_nil=drawn == 6), model


def test_fitting_finds_the_coefficients_that_made_the_data() -> None:
    """Right answers drawn from known coefficients give roughly these back, and 0 for irrelevant features."""
    task, true = made_up(4000, seed=1)

    fitted = fit_ranking([task], l2=1e-5)

    assert np.allclose(fitted.features, true.features, atol=0.6)
    assert np.allclose(fitted.decision, true.decision, atol=0.8)
    assert abs(fitted.nil_features[0] - 4.0) < 0.8


def test_a_coefficient_keeps_the_sign_of_its_meaning() -> None:
    """Data in which similarity is evidence against an entity does not reverse the model."""
    task, _ = made_up(500, seed=2)
    turned = replace(task, features=-task.features)

    model = dict(zip(FEATURES, fit_ranking([turned]).features.tolist(), strict=True))

    assert model["dense"] == model["lexical"] == model["missing_numbers"] == 0.0
    assert model["wanted_type"] == FIXED["wanted_type"]


def test_tied_first_candidates_share_the_credit() -> None:
    """If one of n tied first candidates is right, accuracy@1 counts 1/n; NIL mentions do not count."""
    features = np.zeros((2, 2, len(FEATURES)))
    right = np.array([[True, False], [False, False]])
    task = task_of(features, np.ones((2, 2), bool), right, np.ones((2, len(NIL_FEATURES))), np.array([False, True]))
    model = RankingModel(np.ones(len(FEATURES)), np.zeros(len(FEATURES)), np.zeros(len(NIL_FEATURES)))

    assert accuracy_at_1(task, model) == 0.5
    assert np.allclose(probabilities(task, model), [[0.25, 0.25, 0.5]] * 2)


def test_fusion_and_single_features_can_be_compared() -> None:
    """A candidate that both scores rank first wins the fusion; if they disagree, ranks decide."""
    features = np.zeros((1, 3, len(FEATURES)))
    features[0, :, FEATURES.index("dense")] = [0.9, 0.8, 0.1]
    features[0, :, FEATURES.index("lexical")] = [0.2, 0.6, 0.5]
    nil = np.ones((1, len(NIL_FEATURES)))
    for right, dense, lexical, fused in ((0, 1.0, 0.0, 0.0), (1, 0.0, 1.0, 1.0), (2, 0.0, 0.0, 0.0)):
        task = task_of(features, np.ones((1, 3), bool), np.arange(3)[None] == right, nil, np.array([False]))

        assert accuracy_at_1(task, single_feature("dense")) == dense
        assert accuracy_at_1(task, single_feature("lexical")) == lexical
        assert accuracy_of_fusion(task) == fused


def test_what_a_rule_decides_does_not_count_in_the_fit() -> None:
    """Mentions decided by a rule may have any features and answers."""
    task, _ = made_up(800, seed=3)
    odd, _ = made_up(800, seed=4)
    decided = replace(odd, features=odd.features[:, ::-1], by_rule=np.ones(800, dtype=bool))

    alone, together = fit_ranking([task]), fit_ranking([task, decided])

    assert np.allclose(alone.features, together.features)


def test_a_task_counts_by_its_weight() -> None:
    """Of two tasks that contradict each other, the one with most of the weight decides, in either fit."""
    task, _ = made_up(800, seed=5)
    turned = replace(task, features=-task.features)
    lexical = FEATURES.index("lexical")

    for_task = fit_ranking([replace(task, weight=9.0, decision_weight=9.0), replace(turned, weight=0.1)])
    for_turned = fit_ranking([replace(task, weight=0.1), replace(turned, weight=9.0)])
    absent = replace(task, right=np.zeros_like(task.right), is_nil=np.ones_like(task.is_nil))
    divided = fit_ranking([replace(task, weight=9.0, decision_weight=0.1), replace(absent, decision_weight=9.0)])

    assert for_task.features[lexical] > 1
    assert for_turned.features[lexical] < 0.1
    assert divided.features[lexical] > 1
    assert divided.nil_features[0] > for_task.nil_features[0] + 1


def test_rules_go_before_coefficients_in_the_figures() -> None:
    """The offset of an exact name puts it first; without rules the coefficients decide."""
    features = np.zeros((1, 2, len(FEATURES)))
    features[0, :, FEATURES.index("dense")] = [0.2, 0.9]
    task = task_of(
        features, np.ones((1, 2), bool), np.array([[True, False]]), np.ones((1, len(NIL_FEATURES))), np.array([False])
    )
    exact = replace(task, offsets=np.array([[20.0, 0.0]]), by_rule=np.array([True]))
    model = single_feature("dense")

    assert accuracy_at_1(exact, model) == 1.0
    assert accuracy_at_1(exact, model, has_rules=False) == 0.0
    assert right_and_wrong(exact, model) == (1.0, 0.0)
    assert right_and_wrong(task, model, threshold=0.1) == (0.0, 1.0)
