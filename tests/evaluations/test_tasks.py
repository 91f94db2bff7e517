"""Each evaluation task by hand on tiny data."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from evaluation_data import OPTIONS, Letters, made_up_names, task_outcome, write_table

from pearl_qdrant.phrase_types import ENTITY_TYPES
from training.evaluation.data import FolderData
from training.evaluation.methods import EncoderMethod, StringMethod
from training.evaluation.registry import TASKS, find_tasks
from training.evaluation.run import evaluate
from training.evaluation.tasks.classification import split_rows
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


def test_string_baselines_find_names_with_shared_letters() -> None:
    """Both kinds find the name with the same words in another case; names that share nothing score 0."""
    for kind in ("jaccard", "tfidf"):
        method = StringMethod("jaccard" if kind == "jaccard" else "tfidf")
        names = ["New York Post", "The New York Times", "qqq"]
        assert method.nearest(["THE new york times", "zzz qqq"], names).tolist() == [1, 2]
        same, other, blank = method.pair_scores(["abcd", "abcd", " "], ["ABCD", "wxyz", ""])
        assert (same, other, blank) == (pytest.approx(1), 0, 0)


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
