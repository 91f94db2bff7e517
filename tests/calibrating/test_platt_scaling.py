"""The fit of slope, NIL bias and threshold, on made-up logits."""

from __future__ import annotations

import numpy as np
import pytest
from calibration_samples import made_samples, without_features

from pearl_qdrant.linking.calibration.metrics import (
    measure,
)
from pearl_qdrant.linking.calibration.platt_scaling import UnreachablePrecisionError, fit, fit_slope_and_bias
from pearl_qdrant.linking.ranking.model import Calibration


def test_the_fit_finds_the_slope_and_bias_that_made_the_answers() -> None:
    """A fit on 20,000 mentions drawn with slope 0.5 and bias 1 returns these values."""
    found = fit_slope_and_bias(made_samples(20_000, np.random.default_rng(2), slope=0.5, nil_bias=1.0))

    assert (found.slope, found.nil_bias) == pytest.approx((0.5, 1.0), abs=0.05)


def test_a_few_pairs_change_little() -> None:
    """Three mentions that are right by a small margin leave slope and bias near 1 and 0."""
    one = without_features(
        np.array([[0.1, 0.0]] * 3),
        np.array([-9.0] * 3),
        np.array([[True, False]] * 3),
        np.ones(3, dtype=np.int64),
        np.zeros(3, dtype=bool),
        np.ones(3),
    )

    found = fit_slope_and_bias(one)

    assert found.slope == pytest.approx(1, abs=0.3)
    assert abs(found.nil_bias) < 0.5


def test_a_share_of_nil_mentions_moves_the_bias_by_its_odds() -> None:
    """Mentions weighted to another share of NIL get the bias that follows from the odds of the shares."""
    rng = np.random.default_rng(3)
    made = made_samples(20_000, rng)
    share = made.nil_share

    found = fit_slope_and_bias(made.with_nil_share(0.5))

    assert made.with_nil_share(0.5).nil_share == pytest.approx(0.5)
    assert found.nil_bias == pytest.approx(np.log((1 - share) / share), abs=0.15)


def test_a_calibrated_model_is_calibrated_on_mentions_it_was_not_fitted_on() -> None:
    """Cross-fitted, the calibration error is small, better than before, and the target precision is reached."""
    made = made_samples(6000, np.random.default_rng(4), slope=0.5)

    found = fit(made, precision=0.9, before=Calibration(), groups=np.arange(6000), rng=np.random.default_rng(0))

    assert found.after.ece < 0.03 < found.before.ece
    assert found.after.precision > 0.87
    assert found.after.ece_interval[0] <= found.after.ece <= found.after.ece_interval[1]
    fresh = made_samples(6000, np.random.default_rng(5), slope=0.5).answers(found.calibration)
    assert measure(fresh, found.calibration.threshold, rng=np.random.default_rng(0), n_resamples=2).precision > 0.88


def test_an_unreachable_precision_is_refused_with_the_best_one() -> None:
    """If the probabilities are uninformative, no threshold gives 99 %."""
    rng = np.random.default_rng(6)
    made = made_samples(500, rng)
    shuffled = without_features(
        made.logits, made.nil_logits, rng.permutation(made.is_right), made.n_tied, made.is_nil, made.weights
    )

    with pytest.raises(UnreachablePrecisionError) as error:
        fit(shuffled, precision=0.99, before=Calibration(), groups=np.arange(500), rng=rng)

    assert 0 < error.value.best < 0.99
