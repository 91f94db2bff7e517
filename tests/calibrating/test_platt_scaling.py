"""The fit of slope, NIL bias and threshold, on made-up logits."""

from __future__ import annotations

import numpy as np
import pytest
from calibration_samples import made_samples, without_features

from pearl_qdrant.errors import CalibrationError
from pearl_qdrant.linking.calibration.metrics import Samples, measure
from pearl_qdrant.linking.calibration.platt_scaling import fit, fit_slope_and_bias
from pearl_qdrant.linking.ranking import Calibration
from pearl_qdrant.linking.ranking.scoring import EXACT_CERTAINTY, HIGHEST_THRESHOLD
from pearl_qdrant.linking.state import calibration_of
from pearl_qdrant.store.schema import LinkCalibration


def test_the_fit_finds_the_slope_and_bias_that_made_the_answers() -> None:
    """20,000 mentions drawn with slope 0.5 and bias 1 give these values; three that are hardly right change little."""
    found = fit_slope_and_bias(made_samples(20_000, np.random.default_rng(2), slope=0.5, nil_bias=1.0))
    assert (found.slope, found.nil_bias) == pytest.approx((0.5, 1.0), abs=0.05)

    others = np.full(3, -9.0), np.array([[True, False]] * 3), np.ones(3, dtype=np.int64), np.zeros(3, bool), np.ones(3)
    found = fit_slope_and_bias(without_features(np.array([[0.1, 0.0]] * 3), *others))
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
    assert measure(fresh, found.calibration.threshold, rng=np.random.default_rng(0)).precision > 0.88


def test_an_unreachable_precision_is_refused_with_the_best_one() -> None:
    """If the probabilities are uninformative, no threshold gives 99 %."""
    rng = np.random.default_rng(6)
    made = made_samples(500, rng)
    shuffled = without_features(
        made.logits, made.nil_logits, rng.permutation(made.is_right), made.n_tied, made.is_nil, made.weights
    )

    with pytest.raises(
        CalibrationError, match=r"No threshold gives links of precision 0.99 .* the best one gives 0\.\d+"
    ):
        fit(shuffled, precision=0.99, before=Calibration(), groups=np.arange(500), rng=rng)


def decided_by_a_rule(n: int) -> Samples:
    """Exact names of one entity: linked with the precision of the rule."""
    logits = np.tile([24.0, 4.0, 3.0, 2.0, 1.0], (n, 1))
    is_right = np.arange(5) == np.zeros((n, 1), dtype=int)
    ones = np.ones(n, dtype=np.int64)
    return without_features(
        logits, np.full(n, 3.0), is_right, ones, np.zeros(n, bool), np.ones(n), certainty=EXACT_CERTAINTY
    )


def test_what_a_rule_decides_does_not_move_slope_and_bias() -> None:
    """A thousand exact names among a hundred other mentions change nothing; exact names alone give the defaults."""
    others = made_samples(100, np.random.default_rng(7), slope=0.5)
    alone = fit_slope_and_bias(others)

    together = fit_slope_and_bias(Samples.joined([others, decided_by_a_rule(1000)]))

    assert (together.slope, together.nil_bias) == pytest.approx((alone.slope, alone.nil_bias))
    assert fit_slope_and_bias(decided_by_a_rule(10)) == Calibration()


@pytest.mark.parametrize("precision", [0.5, 0.9, 0.97])
def test_no_calibration_loses_exact_names(precision: float) -> None:
    """However wrong and sure the other links are, the threshold stays below the probability of an exact name."""
    rng = np.random.default_rng(8)
    others = made_samples(600, rng)
    misleading = without_features(
        4 * others.logits, others.nil_logits, ~others.is_right, others.n_tied, others.is_nil, others.weights
    )
    made = Samples.joined([misleading, decided_by_a_rule(12_000)])

    found = fit(made, precision=precision, before=Calibration(), groups=np.arange(len(made)), rng=rng)

    assert found.calibration.threshold <= HIGHEST_THRESHOLD < EXACT_CERTAINTY
    exact = made.answers(found.calibration).link_probability[600:]
    assert (exact >= found.calibration.threshold).all()


def test_a_precision_above_that_of_exact_names_is_still_reached_with_them() -> None:
    """The threshold is below them, although their rule promises less than the precision."""
    made = Samples.joined([decided_by_a_rule(2000), made_samples(20, np.random.default_rng(9))])

    found = fit(made, precision=0.99, before=Calibration(), groups=np.arange(len(made)), rng=np.random.default_rng(0))

    assert found.calibration.threshold < EXACT_CERTAINTY
    assert found.after.coverage > 0.95


@pytest.mark.parametrize("stored, used", [(0.9881, HIGHEST_THRESHOLD), (0.4, 0.4)])
def test_a_stored_threshold_above_that_of_exact_names_is_lowered(stored: float, used: float) -> None:
    """Older versions stored such thresholds; slope and bias are used as they are."""
    found = calibration_of(LinkCalibration(slope=1.2, nil_bias=0.3, threshold=stored))

    assert found == Calibration(1.2, 0.3, used)
