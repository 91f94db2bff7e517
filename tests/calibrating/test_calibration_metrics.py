"""The figures of a calibration, by hand and by scikit-learn; what it changes by kind, on made-up answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from calibration_samples import answers, without_features

from pearl_qdrant.linking.calibration.metrics import (
    Answers,
    KindChange,
    Outcome,
    auroc,
    best_precision,
    bins,
    brier_score,
    calibration_error,
    changes_by_kind,
    coverage_and_precision,
    gain_of_links,
    loses_exact_names,
    nil_f1,
    threshold_for_precision,
)
from pearl_qdrant.linking.ranking import Calibration
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
