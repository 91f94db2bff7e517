"""The figures of a calibration, computed by hand and by scikit-learn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from calibration_samples import answers, without_features
from sklearn.metrics import roc_auc_score

from pearl_qdrant.linking.calibration.metrics import (
    Answers,
    auroc,
    bins,
    brier_score,
    calibration_error,
    coverage_and_precision,
    nil_f1,
    threshold_for_precision,
)
from pearl_qdrant.linking.ranking.model import Calibration
from training.evaluation.reports.reliability_figure import draw_reliability


def test_the_calibration_error_is_the_mean_gap_of_bins_of_equal_mass() -> None:
    """Two bins of two answers each: half of |0.15 - 0.5| plus half of |0.85 - 1|."""
    given = answers([0.9, 0.1, 0.2, 0.8], [1, 0, 1, 1])

    assert calibration_error(given, n_bins=2) == pytest.approx((0.35 + 0.15) / 2)
    assert calibration_error(answers([0.5] * 40, [1, 0] * 20)) == pytest.approx(0)


def test_the_order_of_equal_probabilities_does_not_matter() -> None:
    """Answers with equal probabilities are pooled, whatever their order."""
    right = [1.0] * 10 + [0.0] * 10

    assert calibration_error(answers([0.5] * 20, right)) == calibration_error(answers([0.5] * 20, right[::-1]))


def test_bins_have_equal_mass_of_weighted_answers() -> None:
    """Fifteen bins have a fifteenth each, for any weights."""
    rng = np.random.default_rng(0)
    given = answers(rng.random(1000), (rng.random(1000) < 0.5).astype(float))
    weighed = Answers(*(getattr(given, name) for name in given.__slots__[:-1]), weights=rng.random(1000))

    mass, probability, _ = bins(weighed)

    assert mass == pytest.approx([1 / 15] * 15)
    assert np.all(np.diff(probability) > 0)


def test_brier_and_auroc_agree_with_scikit_learn() -> None:
    """The figures equal those of scikit-learn, also with ties."""
    rng = np.random.default_rng(1)
    p, right = np.round(rng.random(300), 1), (rng.random(300) < 0.4).astype(float)
    given = answers(p, right)

    assert brier_score(given) == pytest.approx(np.mean((p - right) ** 2))
    assert auroc(given) == pytest.approx(roc_auc_score(right, p))
    assert np.isnan(auroc(answers([0.1, 0.2], [1, 1])))


def test_coverage_precision_and_f1_of_nil_by_hand() -> None:
    """Three of four mentions are linked, two of them right; the wrong link is one of two NIL mentions."""
    given = answers([0.9, 0.8, 0.7, 0.2], [1, 1, 0, 0], is_nil=[False, False, True, True])

    assert coverage_and_precision(given, 0.5) == pytest.approx((0.75, 2 / 3))
    assert nil_f1(given, 0.5) == pytest.approx(2 / 3)


def test_a_threshold_for_95_percent_needs_more_than_a_few_links() -> None:
    """One extra link counts as wrong: 18 of 18 right links are not enough, 19 are."""
    assert threshold_for_precision(answers([0.9] * 18, [1.0] * 18), 0.95) is None
    assert threshold_for_precision(answers([0.9] * 19, [1.0] * 19), 0.95) == 0.9


def test_links_of_one_probability_are_not_divided_by_a_threshold() -> None:
    """If half of the links at 0.5 are wrong, the threshold is above all of them."""
    given = answers([0.9] * 50 + [0.5] * 20, [1.0] * 60 + [0.0] * 10)

    assert threshold_for_precision(given, 0.95) == 0.9


def test_tied_candidates_share_the_credit_and_are_never_linked() -> None:
    """If one of two tied candidates is right, the answer counts half, and there is no link."""
    tied = without_features(
        np.array([[5.0, 5.0]]),
        np.array([0.0]),
        np.array([[False, True]]),
        np.array([2]),
        np.array([False]),
        np.ones(1),
    ).answers(Calibration())

    assert tied.correct.tolist() == [0.5]
    assert coverage_and_precision(tied, 0.1)[0] == 0


def test_a_nil_answer_is_right_where_the_base_has_no_entity() -> None:
    """NIL is right for a mention without an entity, and wrong if the search missed the entity."""
    made = without_features(
        np.array([[-5.0], [-5.0], [-np.inf]]),
        np.zeros(3),
        np.zeros((3, 1), dtype=bool),
        np.array([1, 1, 0]),
        np.array([True, False, True]),
        np.ones(3),
    ).answers(Calibration())

    assert made.correct.tolist() == [1, 0, 1]
    assert made.probability[2] == 1


def test_a_figure_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """If the folder does not exist, the error names the path."""
    from pearl_qdrant.errors import SettingsError

    with pytest.raises(SettingsError, match="cannot be written"):
        draw_reliability(tmp_path / "none" / "x.png", {"a": answers([0.5, 0.6], [1, 0])})
