"""The figures of a calibration, by hand and by scikit-learn; what it changes by kind, on made-up answers. The fit of
slope, NIL bias and threshold, on made-up logits.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from calibration_samples import answers, made_samples, without_features

from pearl_qdrant.errors import CalibrationError
from pearl_qdrant.linking.calibration.metrics import (
    Answers,
    KindChange,
    Outcome,
    Samples,
    auroc,
    best_precision,
    bins,
    brier_score,
    calibration_error,
    changes_by_kind,
    coverage_and_precision,
    gain_of_links,
    loses_exact_names,
    measure,
    nil_f1,
    threshold_for_precision,
)
from pearl_qdrant.linking.calibration.platt_scaling import fit, fit_slope_and_bias
from pearl_qdrant.linking.ranking import Calibration
from pearl_qdrant.linking.ranking.scoring import EXACT_CERTAINTY, HIGHEST_THRESHOLD
from pearl_qdrant.linking.state import calibration_of
from pearl_qdrant.store.schema import LinkCalibration
from training.evaluation.figures import draw_reliability


def test_the_calibration_error_is_the_mean_gap_of_bins_of_equal_mass() -> None:
    """Two bins of two answers each: half of |0.15 - 0.5| plus half of |0.85 - 1|. Fifteen bins have a fifteenth each,
    for any weights.
    """
    given = answers([0.9, 0.1, 0.2, 0.8], [1, 0, 1, 1])

    assert calibration_error(given, n_bins=2) == pytest.approx((0.35 + 0.15) / 2)
    assert calibration_error(answers([0.5] * 40, [1, 0] * 20)) == pytest.approx(0)
    right = [1.0] * 10 + [0.0] * 10  # equal probabilities are pooled, whatever their order
    assert calibration_error(answers([0.5] * 20, right)) == calibration_error(answers([0.5] * 20, right[::-1]))
    rng = np.random.default_rng(0)
    given = answers(rng.random(1000), (rng.random(1000) < 0.5).astype(float))
    weighed = Answers(*(getattr(given, name) for name in given.__slots__[:-1]), weights=rng.random(1000))

    mass, probability, _ = bins(weighed)

    assert mass == pytest.approx([1 / 15] * 15)
    assert np.all(np.diff(probability) > 0)


def test_figures_agree_with_scikit_learn_and_by_hand() -> None:
    """Brier score and AUROC also with ties; coverage, precision and F1 of NIL where three of four are linked."""
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(1)
    p, right = np.round(rng.random(300), 1), (rng.random(300) < 0.4).astype(float)
    given = answers(p, right)

    assert brier_score(given) == pytest.approx(np.mean((p - right) ** 2))
    assert auroc(given) == pytest.approx(roc_auc_score(right, p))
    assert np.isnan(auroc(answers([0.1, 0.2], [1, 1])))
    given = answers([0.9, 0.8, 0.7, 0.2], [1, 1, 0, 0], is_nil=[False, False, True, True])

    assert coverage_and_precision(given, 0.5) == pytest.approx((0.75, 2 / 3)), (
        "the wrong link is one of two NIL mentions"
    )
    assert nil_f1(given, 0.5) == pytest.approx(2 / 3)


def test_the_threshold_for_a_precision() -> None:
    """One extra link counts as wrong: 18 of 18 right ones are not enough, 19 are. Equal probabilities stay together.
    Links that are more often wrong than right are left out, although the precision would bear them.
    """
    below = [0.5] * 20, [0.0] * 20
    few = answers([0.9] * 18 + below[0], [1.0] * 18 + below[1])
    enough = answers([0.9] * 19 + below[0], [1.0] * 19 + below[1])

    assert threshold_for_precision(few, 0.95) is None
    assert threshold_for_precision(enough, 0.95) == pytest.approx(0.7)
    half_wrong = answers([0.9] * 50 + [0.5] * 20, [1.0] * 60 + [0.0] * 10)
    assert threshold_for_precision(half_wrong, 0.95) == pytest.approx(0.7), "halfway to the next probability"
    useful = answers([0.9] * 90 + [0.6] * 10 + [0.3] * 10, [1.0] * 90 + [1.0] * 6 + [0.0] * 4 + [0.0] * 10)

    assert threshold_for_precision(useful, 0.8) == pytest.approx(0.45)
    assert coverage_and_precision(useful, 0.45) == pytest.approx((100 / 110, 0.96))
    harmful = answers([0.9] * 90 + [0.6] * 10, [1.0] * 90 + [1.0] * 4 + [0.0] * 6)
    assert threshold_for_precision(harmful, 0.8) == pytest.approx(0.75)


def test_no_threshold_is_above_the_highest_that_is_allowed() -> None:
    """Where only links far above it are precise, there is none; at most it is the highest itself."""
    exact = answers([0.99] * 100 + [0.985] * 100 + [0.2] * 50, [1.0] * 200 + [0.0] * 50)
    assert threshold_for_precision(exact, 0.95, highest=0.985) == pytest.approx((0.985 + 0.2) / 2)

    wrong_below = answers([0.99] * 100 + [0.985] * 100 + [0.984] * 100, [1.0] * 200 + [0.0] * 100)
    assert 0.984 < (threshold_for_precision(wrong_below, 0.95, highest=0.985) or 0) <= 0.985

    only_above = answers([0.999] * 100 + [0.99] * 100, [1.0] * 100 + [0.0] * 100)
    assert threshold_for_precision(only_above, 0.95) == pytest.approx(0.9945)
    assert threshold_for_precision(only_above, 0.95, highest=0.985) is None
    assert best_precision(only_above, highest=0.985) == pytest.approx(100 / 201, abs=1e-3)
    assert best_precision(only_above) == pytest.approx(100 / 101, abs=1e-3)
    for wrong, expected in ((0.001, 0.5), (0.98, 0.985)):  # still between all right links and the wrong ones
        given = answers([0.999] * 100 + [wrong] * 100, [1.0] * 100 + [0.0] * 100)
        assert threshold_for_precision(given, 0.5, highest=0.985) == pytest.approx(expected)
        assert coverage_and_precision(given, expected) == (0.5, 1.0)


def test_a_rule_limits_the_probability_of_its_answers() -> None:
    """An exact name has the precision of its rule, and the rest is NIL, under any slope and bias."""
    others = np.array([3.0]), np.array([[True, False]]), np.array([1]), np.array([False]), np.ones(1)
    exact = without_features(np.array([[25.0, 1.0]]), *others, certainty=0.985)
    for calibration in (Calibration(), Calibration(2.0, 1.0)):
        candidates, nil = exact.probabilities(calibration)

        assert candidates[0].tolist() == pytest.approx([0.985, 0.0], abs=1e-6)
        assert nil.tolist() == pytest.approx([0.015], abs=1e-6)


def test_tied_candidates_share_the_credit_and_nil_is_right_where_there_is_no_entity() -> None:
    """If one of two tied candidates is right, the answer counts half, without a link. NIL is wrong if the search missed
    the entity.
    """
    others = np.array([0.0]), np.array([[False, True]]), np.array([2]), np.array([False]), np.ones(1)
    tied = without_features(np.array([[5.0, 5.0]]), *others).answers(Calibration())

    assert tied.correct.tolist() == [0.5]
    assert coverage_and_precision(tied, 0.1)[0] == 0
    is_nil = np.array([True, False, True])
    others = np.zeros(3), np.zeros((3, 1), dtype=bool), np.array([1, 1, 0]), is_nil, np.ones(3)
    made = without_features(np.array([[-5.0], [-5.0], [-np.inf]]), *others).answers(Calibration())

    assert made.correct.tolist() == [1, 0, 1]
    assert made.probability[2] == 1


def test_a_figure_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """If the folder does not exist, the error names the path."""
    from pearl_qdrant.errors import SettingsError

    with pytest.raises(SettingsError, match="cannot be written"):
        draw_reliability(tmp_path / "none" / "x.png", {"a": answers([0.5, 0.6], [1, 0])})


def change(kind: str, before: tuple[float, float], after: tuple[float, float]) -> KindChange:
    """A change from shares of right and wrong links to others."""
    return KindChange(kind, 10, 1.0, *(Outcome(*shares, 1 - sum(shares)) for shares in (before, after)))


def test_each_kind_is_counted_by_itself() -> None:
    """Links at or above each threshold count, right or wrong, by weight; the others are NIL."""
    kinds = ["exact", "alias", "exact", "alias", "alias"]
    before = answers([0.9, 0.8, 0.6, 0.7, 0.2], [1, 0, 1, 1, 1])
    after = answers([0.95, 0.4, 0.45, 0.7, 0.6], [1, 0, 1, 1, 1])
    weighed = replace(before, weights=np.array([1.0, 2.0, 1.0, 2.0, 2.0]))

    found = changes_by_kind(kinds, weighed, after, threshold_before=0.5, threshold_after=0.6)

    assert [(one.kind, one.n, one.weight) for one in found] == [("exact", 2, 2.0), ("alias", 3, 6.0)]
    assert found[0].before == Outcome(1.0, 0.0, 0.0)
    assert found[0].after == Outcome(0.5, 0.0, 0.5)
    shares = [(one.right, one.wrong, one.nil) for one in (found[1].before, found[1].after)]
    assert shares == [pytest.approx((1 / 3, 1 / 3, 1 / 3)), pytest.approx((2 / 3, 0.0, 1 / 3))]


def test_the_gain_is_right_minus_wrong_links_by_weight() -> None:
    """A mention with three quarters of the weight counts three times as much. It has a standard error."""
    before, after = (replace(answers([p, 0.9], [1, 0]), weights=np.array([3.0, 1.0])) for p in (0.1, 0.9))

    assert gain_of_links(before, after, 0.5, 0.5)[0] == pytest.approx(0.75)
    assert gain_of_links(before, after, 0.5, 0.95)[0] == pytest.approx(0.25)
    assert gain_of_links(before.take(np.arange(0)), after.take(np.arange(0)), 0.5, 0.5) == (0.0, 0.0)
    before, after = answers([0.9, 0.9, 0.1, 0.1], [1, 1, 1, 0]), answers([0.9] * 4, [1, 1, 1, 0])
    assert gain_of_links(before, after, 0.5, 0.5) == (0.0, pytest.approx(np.sqrt(2) / 4)), "one right, one wrong more"
    assert gain_of_links(before, after, 0.5, 0.95) == (-0.5, pytest.approx(0.25))


def test_only_a_lost_exact_name_is_a_loss_of_names() -> None:
    """Fewer right links of exact names count; fewer of another kind are weighed against wrong ones."""
    assert loses_exact_names([change("case", (1.0, 0.0), (1.0, 0.0)), change("exact", (1.0, 0.0), (0.99, 0.0))])
    fewer_wrong = change("exact", (0.9, 0.1), (0.9, 0.0))
    assert not loses_exact_names([fewer_wrong, change("alias", (1.0, 0.0), (0.0, 0.0))])


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
