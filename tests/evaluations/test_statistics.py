"""Classifiers, clustering scores, correlations and the bootstrap, compared with references."""

from __future__ import annotations

import numpy as np
import pytest

from training.evaluation.outcome import mean_outcome, nmi_outcome, paired_bootstrap, pearson_outcome
from training.evaluation.tasks.classification import probe, split_rows


def test_a_probe_learns_a_pattern_and_is_reproducible() -> None:
    """It separates two clouds but not noise, and a seed gives the same result twice."""
    import torch

    generator = torch.Generator().manual_seed(0)
    features = torch.randn(300, 8, generator=generator)
    noise = np.random.default_rng(0).integers(0, 2, 300)
    labels = (features[:, 0] > 0).long().numpy()
    split = split_rows(range(300), np.random.default_rng(0))
    correct = probe(features, labels, split, seed=1, max_epochs=20)

    assert correct.mean() > 0.8
    assert 0.2 < probe(features, noise, split, seed=1, max_epochs=20).mean() < 0.8
    assert np.array_equal(correct, probe(features, labels, split, seed=1, max_epochs=20))


def test_a_split_keeps_groups_whole() -> None:
    """No group is in two parts, every row is in one, and the parts have the documented shares."""
    groups = [f"g{i // 2}" for i in range(400)]
    split = split_rows(groups, np.random.default_rng(0))
    parts = [{groups[i] for i in rows.tolist()} for rows in (split.train, split.validation, split.test)]

    assert sorted(np.concatenate([split.train, split.validation, split.test]).tolist()) == list(range(400))
    assert [len(part) for part in parts] == [140, 30, 30]
    assert not parts[0] & parts[1] | parts[0] & parts[2] | parts[1] & parts[2]
    tiny = split_rows("abc", np.random.default_rng(0))
    assert [len(rows) for rows in (tiny.train, tiny.validation, tiny.test)] == [1, 1, 1]
    with pytest.raises(ValueError, match="2 distinct"):
        split_rows("abab", np.random.default_rng(0))


def test_nmi_agrees_with_scikit_learn_and_accepts_weights() -> None:
    """With weights of 1 it equals scikit-learn's; a weight of 2 counts an item twice."""
    from sklearn.metrics import normalized_mutual_info_score

    rng = np.random.default_rng(0)
    labels, clusters = rng.integers(0, 3, 50), rng.integers(0, 4, 50)
    found = nmi_outcome(labels, [clusters])
    weights = rng.integers(0, 3, 50)

    assert found.value == pytest.approx(100 * normalized_mutual_info_score(labels, clusters))
    repeated = [np.repeat(part, weights) for part in (labels, clusters)]
    assert found.score(weights.astype(float)) == pytest.approx(100 * normalized_mutual_info_score(*repeated))


def test_weights_are_repetitions_in_means_and_correlations() -> None:
    """The figure with weights equals the figure on repeated items."""
    rng = np.random.default_rng(1)
    x, y, weights = rng.normal(size=40), rng.normal(size=40), rng.integers(0, 4, 40)
    strata = np.arange(40) % 3
    correct = (x > 0).astype(float)

    pearson = 100 * np.corrcoef(np.repeat(x, weights), np.repeat(y, weights))[0, 1]
    assert pearson_outcome(x, y).score(weights.astype(float)) == pytest.approx(pearson)
    by_set = [np.repeat(correct, weights * (strata == i)).mean() for i in range(3)]
    found = mean_outcome([(np.arange(40), correct)], strata=strata)
    assert found.score(weights.astype(float)) == pytest.approx(100 * np.mean(by_set))
    assert found.score(np.ones(40)) == pytest.approx(found.value)


def test_the_bootstrap_separates_a_difference_from_chance() -> None:
    """Ten points on 2,000 items are significant; no difference, or one item, is not; a seed gives the same result."""
    rng = np.random.default_rng(0)
    base = (rng.random(2000) < 0.6).astype(float)
    better = np.where(rng.random(2000) < 0.25, 1.0, base)
    one_more = base.copy()
    one_more[np.flatnonzero(base == 0)[0]] = 1
    outcomes = {name: mean_outcome([(np.arange(2000), x)]) for name, x in (("a", base), ("b", better), ("c", one_more))}

    found = paired_bootstrap(outcomes["b"], outcomes["a"], rng=np.random.default_rng(1), n_resamples=300)
    assert found.low > 5
    assert found.low < found.mean < found.high
    assert found.significant
    assert found == paired_bootstrap(outcomes["b"], outcomes["a"], rng=np.random.default_rng(1), n_resamples=300)
    assert not paired_bootstrap(outcomes["c"], outcomes["a"], rng=np.random.default_rng(1), n_resamples=300).significant
    same = paired_bootstrap(outcomes["a"], outcomes["a"], rng=np.random.default_rng(1), n_resamples=50)
    assert (same.mean, same.low, same.high, same.significant) == (0, 0, 0, False)
