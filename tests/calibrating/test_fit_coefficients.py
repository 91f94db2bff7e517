"""Fitting the coefficients of the ranking, to a base and to tasks, on samples drawn from known coefficients."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from ranking_fit import (
    DECISION_FIXED,
    FIXED,
    Task,
    accuracy_at_1,
    fit_ranking,
    probabilities,
    right_and_wrong,
    single_feature,
)

from pearl_qdrant.linking.calibration.metrics import Samples
from pearl_qdrant.linking.calibration.platt_scaling import fit, fit_coefficients
from pearl_qdrant.linking.ranking import Calibration, RankingModel
from pearl_qdrant.linking.ranking.forest import Forest
from pearl_qdrant.linking.ranking.model import FEATURES, NIL_FEATURES, SIGNS, decision_rows

SHIPPED = RankingModel.from_names(
    {
        "dense": 9.0,
        "lexical": 6.0,
        "mention_coverage": 1.0,
        "number_differs": -1.0,
        "acronym": 4.5,
        "replaced_words": -0.5,
        "type_agreement": 0.5,
        "wanted_type": 2.0,
    },
    {"dense": 4.0, "lexical": 2.0, "acronym": 1.0, "number_differs": -1.0, "wanted_type": 1.0},
    {"bias": 1.0, "background_dense": 3.0, "log_size": 1.0},
)
"""Default coefficients like those that ship, which may change."""


def samples_of_a_base(n: int, rng: np.random.Generator, model: RankingModel) -> Samples:
    """Mentions of 8 candidates with random features; a model draws the right answer, the default one scores them."""
    features = rng.random((n, 8, len(FEATURES))).astype(np.float32)
    nil_features = np.concatenate([np.ones((n, 1)), rng.random((n, len(NIL_FEATURES) - 1))], axis=1)
    ranked = features @ model.features
    logits = np.concatenate([ranked, model.nil_logits(ranked, features, nil_features)[:, None]], axis=1)
    drawn = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    ones = np.ones(n)
    right, offsets = np.arange(8) == drawn[:, None], np.zeros((n, 8))
    made = Samples(logits[:, :8], ones, right, ones, drawn == 8, ones, features, nil_features, offsets, ones)
    return made.scored_by(SHIPPED)


def test_an_unusual_base_gets_its_own_coefficients() -> None:
    """If spelling misleads and acronyms mean nothing, the fit finds it, and other mentions of the base gain."""
    names = dict(zip(FEATURES, SHIPPED.features.tolist(), strict=True))
    other = RankingModel.from_names({**names, "lexical": 0.0, "acronym": 0.0, "dense": 12.0}, {"dense": 8.0}, {})
    rng = np.random.default_rng(8)
    made = samples_of_a_base(1500, rng, other)
    asked: dict[str, Any] = {"precision": 0.6, "before": Calibration(), "groups": np.arange(1500)}

    found = fit(made, **asked, rng=np.random.default_rng(0), shipped=SHIPPED)
    without = fit(made, **asked, rng=np.random.default_rng(0))

    assert found.model is not None
    assert without.model is None
    fitted = dict(zip(FEATURES, found.model.features.tolist(), strict=True))
    assert fitted["acronym"] < 1 < names["acronym"]
    assert fitted["dense"] > names["dense"]
    assert fitted["wanted_type"] == names["wanted_type"], "no data tells"
    assert all(value * SIGNS[name] >= 0 for name, value in fitted.items())
    assert found.after.first_accuracy > without.after.first_accuracy + 0.05
    assert found.after.first_auroc > without.after.first_auroc
    fresh = samples_of_a_base(1500, rng, other)
    ours, theirs = fresh.scored_by(found.model).answers(found.calibration), fresh.answers(without.calibration)
    assert ours.first_correct.mean() > theirs.first_correct.mean() + 0.05


def test_the_default_coefficients_stay_if_others_do_no_better() -> None:
    """A base that follows the shipped coefficients keeps them, or loses nothing."""
    made = samples_of_a_base(120, np.random.default_rng(9), SHIPPED)
    asked: dict[str, Any] = {"precision": 0.5, "before": Calibration(), "groups": np.arange(120)}

    found = fit(made, **asked, rng=np.random.default_rng(0), shipped=SHIPPED)
    without = fit(made, **asked, rng=np.random.default_rng(0))

    assert found.after.first_accuracy >= without.after.first_accuracy
    threes = [fit_coefficients(made.take(np.arange(i, i + 3)), SHIPPED).features for i in range(0, 60, 3)]
    moved = [np.abs(features - SHIPPED.features).max() for features in threes]
    assert np.median(moved) < 0.8, "three mentions move little"
    assert max(moved) < 1.5


def test_scoring_again_sorts_the_candidates_again() -> None:
    """Ties are computed again, missing candidates stay last, and what rules add is kept."""
    by_dense = RankingModel.from_names({"dense": 1.0}, {"dense": 1.0}, {"bias": 2.0})
    features = np.zeros((2, 3, len(FEATURES)), dtype=np.float32)
    features[:, :, FEATURES.index("dense")] = [[0.1, 0.9, 0.9], [0.3, 0.4, 0.0]]
    logits = np.array([[3.0, 2.0, 1.0], [2.0, 1.0, -np.inf]])
    is_right = np.array([[False, False, True], [True, False, False]])
    nil_features = np.eye(1, len(NIL_FEATURES)).repeat(2, axis=0)
    ones, offsets = np.ones(2), np.zeros((2, 3))
    made = Samples(logits, ones, is_right, ones, ones == 0, ones, features, nil_features, offsets, ones)

    again = made.scored_by(by_dense)

    assert again.logits.tolist() == [pytest.approx([0.9, 0.9, 0.1]), pytest.approx([0.4, 0.3, -np.inf])]
    assert again.n_tied.tolist() == [2, 1]
    assert again.is_right.tolist() == [[False, True, False], [False, True, False]]
    of_ranking = np.log([2 * np.exp(0.9) + np.exp(0.1), np.exp(0.4) + np.exp(0.3)])
    assert again.nil_logits == pytest.approx(of_ranking + 2.0 - np.array([0.9, 0.4]))
    assert again.first_is_right.tolist() == [0.5, 0.0]

    # The offset of an exact name stays with its candidate, whatever the coefficients say.
    offsets = np.array([[20.0, 0.0]])
    features = np.zeros((1, 2, len(FEATURES)), dtype=np.float32)
    features[0, :, FEATURES.index("dense")] = [0.2, 0.9]
    one, right = np.ones(1), np.array([[True, False]])
    exact = Samples(offsets, one, right, one, one == 0, one, features, nil_features[:1], offsets, np.array([0.985]))
    again = exact.scored_by(RankingModel.from_names({"dense": 10.0}, {}, {}))
    assert again.logits[0].tolist() == [pytest.approx(22.0), pytest.approx(9.0)]
    assert again.first_is_right.tolist() == [1.0]
    assert again.answers(Calibration()).first_probability == pytest.approx(0.985, abs=1e-4)


def test_mentions_that_a_rule_decides_do_not_count() -> None:
    """Exact names whose features point the wrong way change no coefficient; rules alone leave the defaults."""
    made = samples_of_a_base(200, np.random.default_rng(10), SHIPPED)
    wrong = replace(made, features=made.features[:, ::-1], certainty=np.full(200, 0.985))

    alone, together = (fit_coefficients(one, SHIPPED) for one in (made, Samples.joined([made, wrong])))

    assert together.features == pytest.approx(alone.features)
    assert together.decision == pytest.approx(alone.decision)
    assert fit_coefficients(wrong, SHIPPED) is SHIPPED


FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

TRUE = {"dense": 8.0, "lexical": 4.0, "number_differs": -2.0}
TRUE_DECISION = {"dense": 5.0, "lexical": 3.0, "number_differs": -1.0}


def task_of(features: FloatArray, present: BoolArray, right: BoolArray, nil: FloatArray, is_nil: BoolArray) -> Task:
    """A task without rules."""
    by_rule, texts = np.zeros(len(nil), bool), np.full(len(nil), "", dtype=np.object_)
    return Task("made:up", features, present, right, nil, is_nil, np.zeros(present.shape), by_rule, texts, texts)


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
            rng.random((n, 6)) if name != "number_differs" else rng.random((n, 6)) < 0.3
        )
    present = rng.random((n, 6)) < 0.9
    nil_features = np.zeros((n, len(NIL_FEATURES)))
    nil_features[:, 0] = 1.0
    blank = task_of(features, present, np.zeros((n, 6), dtype=bool), nil_features, np.zeros(n, dtype=bool))
    drawn = np.array([rng.choice(7, p=p / p.sum()) for p in probabilities(blank, model)])
    return replace(blank, right=np.arange(6) == drawn[:, None], is_nil=drawn == 6), model


def test_fitting_finds_the_coefficients_that_made_the_data() -> None:
    """Right answers drawn from known coefficients give roughly these back, 0 for irrelevant features, and trees with
    nearly the probabilities that they were drawn with.
    """
    task, true = made_up(4000, seed=1)

    fitted = fit_ranking([task], l2=1e-5)

    assert np.allclose(fitted.features, true.features, atol=0.6)
    assert np.abs(probabilities(task, fitted) - probabilities(task, true)).mean() < 0.05


def test_trees_are_those_that_were_fitted() -> None:
    """What each feature adds and the start sum up to the logit, and the file that ships gives the same trees back."""
    task, _ = made_up(600, seed=3)
    fitted = fit_ranking([task])
    forest = fitted.forest
    assert forest is not None
    stored = Forest.from_arrays(forest.to_arrays())
    rows = decision_rows(task.features[:5, 0], task.nil_features[:5])

    assert stored.logits(rows).tolist() == forest.logits(rows).tolist()
    for row, logit in zip(rows, forest.logits(rows), strict=True):
        start, parts = forest.contributions(row)
        assert start + sum(parts.values()) == pytest.approx(logit)
    higher = rows.copy()
    higher[:, FEATURES.index("dense")] += 0.5
    assert (forest.logits(higher) >= forest.logits(rows)).all(), "the sign of a feature holds in trees"


def test_a_coefficient_keeps_the_sign_of_its_meaning() -> None:
    """Data in which similarity is evidence against an entity does not reverse the model."""
    task, _ = made_up(500, seed=2)
    turned = replace(task, features=-task.features)

    model = dict(zip(FEATURES, fit_ranking([turned]).features.tolist(), strict=True))

    assert model["dense"] == model["lexical"] == model["number_differs"] == 0.0
    assert model["wanted_type"] == FIXED["wanted_type"]


def test_tied_first_candidates_share_the_credit() -> None:
    """If one of n tied first candidates is right, accuracy@1 counts 1/n; NIL mentions do not count."""
    features = np.zeros((2, 2, len(FEATURES)))
    right = np.array([[True, False], [False, False]])
    task = task_of(features, np.ones((2, 2), bool), right, np.ones((2, len(NIL_FEATURES))), np.array([False, True]))
    model = RankingModel(np.ones(len(FEATURES)), np.zeros(len(FEATURES)), np.zeros(len(NIL_FEATURES)))

    assert accuracy_at_1(task, model) == 0.5
    assert np.allclose(probabilities(task, model), [[0.25, 0.25, 0.5]] * 2)


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
    linked = [1 - probabilities(task, model)[:, -1].mean() for model in (divided, for_task)]
    assert linked[0] < linked[1] / 4


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
