"""Each evaluation task by hand on tiny data.
Classifiers, clustering scores, correlations and the bootstrap, compared with references.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from evaluation_data import OPTIONS, Letters, made_up_names, task_outcome, write_table

from pearl_qdrant.phrase_types import ENTITY_TYPES
from training.evaluation.data import FolderData
from training.evaluation.methods import EncoderMethod, StringMethod
from training.evaluation.outcome import mean_outcome, nmi_outcome, paired_bootstrap, pearson_outcome
from training.evaluation.run import evaluate
from training.evaluation.tasks import TASKS, find_tasks
from training.evaluation.tasks.classification import probe, split_rows
from training.evaluation.tasks.phrases import dictionary, one_edit


def test_turney_is_the_share_of_answers_closer_than_every_distractor(folder: Path) -> None:
    """The first query's answer is nearest, the second's is not."""
    assert task_outcome(folder, "turney").values == (50,)


def test_choices_with_equal_scores_share_the_point(folder: Path) -> None:
    """A method that sees no difference scores like a guess; the order in the file does not matter."""
    write_table(
        folder,
        "pearl_bench/turney.tsv",
        "query answer distractor1 distractor2 distractor3 distractor4",
        [("abc", "xyzw", "uvwx", "klmn", "zzzz", "qrst")],
    )
    report = evaluate(FolderData(folder), StringMethod("jaccard"), [], find_tasks(("turney",)), OPTIONS)

    assert report.results[0].outcomes["jaccard"].value == pytest.approx(20)


def test_bird_is_pearsons_correlation(folder: Path) -> None:
    """The figure is numpy's correlation of cosines and human ratings."""
    method = EncoderMethod(Letters())
    rows = FolderData(folder).rows("pearl_bench/bird.tsv", "term1", "term2", "relatedness")
    cosines = method.pair_scores([r[0] for r in rows], [r[1] for r in rows])

    expected = 100 * np.corrcoef(cosines, [float(r[2]) for r in rows])[0, 1]
    assert task_outcome(folder, "bird").value == pytest.approx(expected)


def test_retrieval_searches_canonical_names_and_names_of_the_base(folder: Path) -> None:
    """One mention finds its canonical name, the other a name of the base; the details have the number of names."""
    found = task_outcome(folder, "yago_local")

    assert found.values == (50.0,)
    assert found.details["n_names"] == 5


def test_a_dictionary_is_seeded_distinct_and_bounded(folder: Path) -> None:
    """It has all canonical names, other names up to the limit, no name twice, and always the same order."""
    data = FolderData(folder)
    names = dictionary(data, ["dcba", "qqq"], "kb/general.tsv", 2)

    assert len(names) == len(set(names)) == 4
    assert {"dcba", "qqq"} <= set(names) <= {"dcba", "qqq", "zyx", "mno", "ppp", "rst"}
    assert names == dictionary(data, ["dcba", "qqq"], "kb/general.tsv", 2)
    assert len(dictionary(data, ["dcba"], "kb/biomedical/*.tsv", 5)) == 1


def test_clustering_uses_the_test_split_and_three_types(folder: Path) -> None:
    """Mentions of three types without shared letters form three clusters; MISC and the training split do not count."""
    found = task_outcome(folder, "conll")

    assert found.n == 27
    assert found.value == pytest.approx(100)
    assert len(found.values) == 2


def test_autofj_is_the_mean_over_sets_of_matched_titles(folder: Path) -> None:
    """Two of three in one set and one of two in the other; the title without a match is skipped."""
    found = task_outcome(folder, "autofj")

    assert found.value == pytest.approx((200 / 3 + 50) / 2)
    assert found.n == 5
    assert found.details["n_sets"] == 2


def test_the_typo_task_reports_the_loss(folder: Path) -> None:
    """The details have the figure without typos, and the difference."""
    found = task_outcome(folder, "autofj_typos")

    assert found.details["without_typos"] == pytest.approx(task_outcome(folder, "autofj").value)
    assert found.details["fall"] == pytest.approx(found.details["without_typos"] - found.value)


@pytest.mark.parametrize("name", ["a", "ab", "aa", "Zürich", "東京", " x ", "The New York Times"])
def test_an_edit_always_changes_the_name_by_one_character(name: str) -> None:
    """An edit never gives the same name or a blank one; the length changes by at most one."""
    for seed in range(200):
        edited = one_edit(name, random.Random(seed))
        assert edited != name
        assert edited.strip()
        assert abs(len(edited) - len(name)) <= 1
    assert one_edit("", random.Random(0)) == ""


def test_reversed_pairs_do_not_leak_in_the_split_by_pair(folder: Path) -> None:
    """With random labels on pairs in both directions, a classifier cannot profit from pairs that it has seen."""
    rng, names = random.Random(0), [made_up_names(300, seed) for seed in (5, 6)]
    pairs = [(a, b, rng.choice(["pos", "neg"])) for a, b in zip(*names, strict=True)]
    both = [row for a, b, label in pairs for row in ((a, b, label), (b, a, label))]
    write_table(folder, "pearl_bench/ppdb.tsv", "phrase1 phrase2 label", both)

    groups = [frozenset(row[:2]) for row in both]
    split = split_rows(groups, np.random.default_rng(0))
    trained = {groups[i] for i in split.train.tolist()}
    assert not trained & {groups[i] for i in split.test.tolist()}
    by_pair = task_outcome(folder, "ppdb_by_pair")
    assert 30 < by_pair.value < 70


def test_jaccard_is_shared_over_all_trigrams() -> None:
    """The names abc and abd, with a space on each side, share one of five trigrams."""
    assert StringMethod("jaccard").pair_scores(["abc"], ["abd"])[0] == pytest.approx(1 / 5)
    assert StringMethod("jaccard").nearest(["abc zzz"], ["abc q", "abc zzz"]).tolist() == [1]


def test_every_task_is_described() -> None:
    """Names are unique, metrics and files are stated, and the paper's nine sets have its figures."""
    assert len({task.name for task in TASKS}) == len(TASKS)
    assert all(task.metric and task.reads and task.head for task in TASKS)
    assert sum(task.paper["PEARL-small"] for task in TASKS if task.in_table_3) / 9 == pytest.approx(63.1, abs=0.05)
    assert "OTHER" in ENTITY_TYPES


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
