"""Fitting the coefficients of the ranking to a base, on samples drawn from known coefficients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pearl_qdrant.linking.calibration.fit_coefficients import fit_coefficients
from pearl_qdrant.linking.calibration.platt_scaling import fit
from pearl_qdrant.linking.calibration.samples import Samples
from pearl_qdrant.linking.ranking.model import (
    FEATURES,
    NEGATIVE,
    NIL_FEATURES,
    Calibration,
    RankingModel,
    shipped_model,
)


def samples_of_a_base(n: int, rng: np.random.Generator, model: RankingModel) -> Samples:
    """Mentions of 8 candidates with random features; a model draws the right answer, the shipped one scores them."""
    features = rng.random((n, 8, len(FEATURES))).astype(np.float32)
    nil_features = np.concatenate([np.ones((n, 1)), rng.random((n, len(NIL_FEATURES) - 1))], axis=1)
    logits = np.concatenate([features @ model.features, (nil_features @ model.nil_features)[:, None]], axis=1)
    drawn = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    ones = np.ones(n)
    made = Samples(logits[:, :8], ones, np.arange(8) == drawn[:, None], ones, drawn == 8, ones, features, nil_features)
    return made.scored_by(shipped_model())


def test_an_unusual_base_gets_its_own_coefficients() -> None:
    """If spelling misleads and acronyms mean nothing, the fit finds it, and other mentions of the base gain."""
    shipped = shipped_model()
    names = dict(zip(FEATURES, shipped.features.tolist(), strict=True))
    other = RankingModel.from_names({**names, "lexical": 0.0, "some_lexical": 0.0, "acronym": 0.0, "dense": 12.0}, {})
    rng = np.random.default_rng(8)
    made = samples_of_a_base(1500, rng, other)
    asked: dict[str, Any] = {"precision": 0.6, "before": Calibration(), "groups": np.arange(1500)}

    found = fit(made, **asked, rng=np.random.default_rng(0), shipped=shipped)
    without = fit(made, **asked, rng=np.random.default_rng(0))

    assert found.model is not None
    assert without.model is None
    fitted = dict(zip(FEATURES, found.model.features.tolist(), strict=True))
    assert fitted["acronym"] < 1 < names["acronym"]
    assert fitted["dense"] > names["dense"]
    assert fitted["wanted_type"] == names["wanted_type"], "no data tells"
    assert all(value <= 0 if name in NEGATIVE else value >= 0 for name, value in fitted.items())
    assert found.after.first_accuracy > without.after.first_accuracy + 0.05
    assert found.after.first_auroc > without.after.first_auroc
    fresh = samples_of_a_base(1500, rng, other)
    ours, theirs = fresh.scored_by(found.model).answers(found.calibration), fresh.answers(without.calibration)
    assert ours.first_correct.mean() > theirs.first_correct.mean() + 0.05


def test_the_default_coefficients_stay_if_others_do_no_better() -> None:
    """A base that follows the shipped coefficients keeps them, or loses nothing."""
    made = samples_of_a_base(120, np.random.default_rng(9), shipped_model())
    asked: dict[str, Any] = {"precision": 0.5, "before": Calibration(), "groups": np.arange(120)}

    found = fit(made, **asked, rng=np.random.default_rng(0), shipped=shipped_model())
    without = fit(made, **asked, rng=np.random.default_rng(0))

    assert found.after.first_accuracy >= without.after.first_accuracy
    few = fit_coefficients(made.take(np.arange(3)), shipped_model())
    assert few.features == pytest.approx(shipped_model().features, abs=1.0), "three mentions move little"


def test_scoring_again_sorts_the_candidates_again() -> None:
    """Ties are computed again, and missing candidates stay last."""
    by_dense = RankingModel.from_names({"dense": 1.0}, {"bias": 2.0})
    features = np.zeros((2, 3, len(FEATURES)), dtype=np.float32)
    features[:, :, FEATURES.index("dense")] = [[0.1, 0.9, 0.9], [0.3, 0.4, 0.0]]
    logits = np.array([[3.0, 2.0, 1.0], [2.0, 1.0, -np.inf]])
    is_right = np.array([[False, False, True], [True, False, False]])
    nil_features = np.eye(1, len(NIL_FEATURES)).repeat(2, axis=0)
    ones = np.ones(2)

    again = Samples(logits, ones, is_right, ones, ones == 0, ones, features, nil_features).scored_by(by_dense)

    assert again.logits.tolist() == [pytest.approx([0.9, 0.9, 0.1]), pytest.approx([0.4, 0.3, -np.inf])]
    assert again.n_tied.tolist() == [2, 1]
    assert again.is_right.tolist() == [[False, True, False], [False, True, False]]
    assert again.nil_logits.tolist() == [2.0, 2.0]
    assert again.first_is_right.tolist() == [0.5, 0.0]
