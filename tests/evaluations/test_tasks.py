"""Each evaluation task by hand on tiny data.
Classifiers, clustering scores, correlations and the bootstrap, compared with references.
"""

from __future__ import annotations

import math
import random
from itertools import permutations, product
from pathlib import Path

import numpy as np
import pytest
import torch
from evaluation_data import OPTIONS, Letters, made_up_names, run_tasks, task_outcome, write_table

from pearl_qdrant.errors import FormatError
from pearl_qdrant.phrase_types import ENTITY_TYPES
from training.evaluation.data import FolderData
from training.evaluation.methods import Bm25Method, EncoderMethod, StringMethod
from training.evaluation.outcome import mean_outcome, nmi_outcome, paired_bootstrap, pearson_outcome
from training.evaluation.run import evaluate, evaluate_model, report_as_text
from training.evaluation.tasks import TASKS, find_tasks
from training.evaluation.tasks.classification import held_out_names, probe, score_predictions, split_rows
from training.evaluation.tasks.phrases import one_edit
from training.evaluation.tasks.universal import found_within, read_questions
from training.examples.example import name_key, split_of

OF_LEVEL = {"semantic": 100, "syntactic": 50, "first": 100, "second": 100, "third": 0}


@pytest.mark.parametrize(
    "task, n, value, details",
    [
        ("turney", 2, 50, {}),  # the first query's answer is nearest, the second's is not
        ("yago_local", 2, 50, {"n_names": 5}),  # one mention finds its canonical name, the other a name of the base
        ("conll", 27, 100, {}),  # three clusters without shared letters; MISC and the training split do not count
        ("autofj", 5, (200 / 3 + 50) / 2, {"n_sets": 2}),  # the mean over sets; a title without a match is skipped
        *((f"analogy_{level}", 3, (100 + 50) / 2, OF_LEVEL) for level in ("word", "phrase", "sentence")),
        ("geogranno_top10", 2, 100, {"candidates": 2}),
        ("types_natural", 37, 100, {"macro_f1": 100}),  # LAW is most probable, but not the largest sum over classes
    ],
)
def test_figures_are_those_by_hand(folder: Path, task: str, n: int, value: float, details: dict[str, float]) -> None:
    """The figure of each kind of task, its number of items, and its details."""
    found = task_outcome(folder, task)

    assert (found.n, found.value) == (n, pytest.approx(value))
    assert details.items() <= found.details.items()
    if task == "autofj":
        with_typos = task_outcome(folder, "autofj_typos")
        assert with_typos.details["without_typos"] == pytest.approx(value)
        assert with_typos.details["fall"] == pytest.approx(value - with_typos.value)


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


def test_an_edit_always_changes_the_name_by_one_character() -> None:
    """An edit never gives the same name or a blank one; the length changes by at most one."""
    for name, seed in product(["a", "aa", "東京", " x ", "The New York Times"], range(200)):
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

    assert 30 < task_outcome(folder, "ppdb_by_pair").value < 70


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
    """It separates two clouds, and a seed gives the same result twice."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(300, 8, generator=generator)
    labels = (features[:, 0] > 0).long().numpy()
    split = split_rows(range(300), np.random.default_rng(0))
    correct = probe(features, labels, split, seed=1, max_epochs=20)

    assert correct.mean() > 0.8
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


ANALOGIES = "ulr_analogy/analogies.tsv"
COLUMNS = "kind level relation a b c d_gold distractors"
PAIRS = "geogranno/geo_pairs.tsv"


def test_an_offset_is_computed_on_vectors_of_length_one() -> None:
    """The score is the cosine of c + b - a and d, by numpy, and 0 where a vector or the sum is zero."""
    method = EncoderMethod(Letters())
    a, b, c, d = ["aab", "a", "a"], ["abc", "a", "b"], ["acc", "b", "a"], ["cccb", "", "b"]
    found = method.offset_scores(a, b, c, d)

    va, vb, vc, vd = (method.vectors([part[0]])[0] for part in (a, b, c, d))
    sum_of = vc + vb - va
    assert found[0] == pytest.approx(sum_of @ vd / np.linalg.norm(sum_of) / np.linalg.norm(vd), abs=1e-6)
    assert found.tolist()[1:] == [0, pytest.approx(1)]
    assert method.offset_scores(["a"], ["a"], [""], ["b"]).tolist() == [0]


def test_tfidf_answers_analogies_by_its_ngrams() -> None:
    """The string that has c and what b has beyond a scores highest; a string without n-grams scores 0."""
    method = StringMethod("tfidf")
    scores = method.offset_scores(["walk"] * 3, ["walking"] * 3, ["jump"] * 3, ["jumping", "jumped", ""])

    assert scores[0] > scores[1] > scores[2] == 0


@pytest.mark.parametrize(
    "row, expected",
    [
        (("semantic", "word", "r", "a", "b", "c", "xy", "yx|xyxy|yyxx"), 25),  # equal scores: like a guess
        (("semantic", "word", "r", "a", "ab", "c", "cb", "cb|bc|bc|c"), 50),  # a repeated one counts once
        (("syntactic", "word", "r", "a", "ab", "c", "cb", "xx"), 100),  # of one kind alone
    ],
)
def test_candidates_share_the_point_of_an_analogy(folder: Path, row: tuple[str, ...], expected: float) -> None:
    """Equal scores share it; distractors are distinct, and the correct answer is none; one kind is enough."""
    write_table(folder, ANALOGIES, COLUMNS, [row])

    assert task_outcome(folder, "analogy_word").value == pytest.approx(expected)


@pytest.mark.parametrize(
    "row, message",
    [
        (("semantic", "text", "r", "a", "b", "c", "d", "e"), "level is one of word, phrase, sentence.*not 'text'"),
        (("other", "word", "r", "a", "b", "c", "d", "e"), "kind one of semantic, syntactic, not .*'other'"),
        (("semantic", "word", "r", "a", "b", "c", "d", ""), ":2: no distractor"),
        (("semantic", "word", "r", "a", "b", "c", "xy", "xy|xy"), "no distractor other than d_gold"),
        (("semantic", "phrase", "r", "a", "b", "c", "d", "e"), "no question of the level word"),
    ],
)
def test_impossible_analogies_are_errors(folder: Path, row: tuple[str, ...], message: str) -> None:
    """The message says what is wrong, and in which row."""
    write_table(folder, ANALOGIES, COLUMNS, [row])
    with pytest.raises(FormatError, match=message):
        run_tasks(folder, "analogy_word")


def test_queries_are_distinct_and_candidates_come_from_train_and_dev(folder: Path) -> None:
    """Placeholders get the values of the canonical utterances, or keep their word. A repeated question counts once, one
    with two paraphrases has both, and other splits do not count.
    """
    rows = [("train", "q _state_ _x_ ?", "b"), ("train", "q _state_ _x_ ?", "b"), ("dev", "q california x ?", "c")]
    write_table(folder, PAIRS, "split question canonical", [*rows, ("train_nat", "other ?", "d")])
    found = read_questions(FolderData(folder))

    assert found.questions == ["q california x"]
    assert found.candidates == ["b", "c"]
    assert found.gold == [{0, 1}]
    write_table(folder, PAIRS, "split question canonical", [("test", "q ?", "b"), ("other", "r ?", "c")])
    assert read_questions(FolderData(folder)).questions == ["q", "r"], "without train and dev all rows count"


def test_equal_scores_count_as_the_mean_over_all_orders() -> None:
    """The probability is that of trying every order of the candidates."""
    scores = np.array([3.0, 2.0, 2.0, 2.0, 1.0])
    orders = [sorted(order, key=lambda i: -scores[i]) for order in permutations(range(5))]
    for gold, depth in product([{0}, {1}, {0, 2}, {1, 3}, {2, 3}, {1, 2, 4}], [1, 2, 3, 6]):
        hits = [bool(gold & set(ranked[:depth])) for ranked in orders]
        assert found_within(scores, frozenset(gold), depth) == pytest.approx(float(np.mean(hits)))


def test_bm25_is_the_formula_of_its_docstring() -> None:
    """Scores equal a loop over words; a word of most documents has a quarter of the mean IDF; unknown words add 0."""
    documents = ["the big river", "the state", "the the city of the state", "the lake"]
    query = "The river state state zebra"
    words = [document.split() for document in documents]
    raw = {}
    for word in {word for document in words for word in document}:
        n = sum(word in document for document in words)
        raw[word] = math.log((4 - n + 0.5) / (n + 0.5))
    floor = 0.25 * sum(raw.values()) / len(raw)
    mean = sum(map(len, words)) / 4
    expected = [
        sum(
            (raw[word] if raw[word] >= 0 else floor)
            * document.count(word)
            * 2.5
            / (document.count(word) + 1.5 * (0.25 + 0.75 * len(document) / mean))
            for word in query.casefold().split()
            if word in raw
        )
        for document in words
    ]

    assert Bm25Method().score_matrix([query], documents)[0] == pytest.approx(expected)
    assert Bm25Method().score_matrix(["", "zebra"], ["", "?"]).tolist() == [[0, 0], [0, 0]]


def test_every_string_method_ranks_candidates() -> None:
    """The candidate that shares the words comes first, in any case, and the best score is where `nearest` looks; names
    that share nothing score 0.
    """
    queries, candidates = ["area of texas", "zzz"], ["length of river", "texas area", "zzz top"]
    for method in (StringMethod("jaccard"), StringMethod("tfidf"), Bm25Method()):
        scores = method.score_matrix(queries, candidates)
        assert scores.shape == (2, 3)
        assert scores.argmax(axis=1).tolist() == [1, 2]
        if isinstance(method, StringMethod):
            assert method.nearest(queries, candidates).tolist() == [1, 2]
            names = ["New York Post", "The New York Times", "qqq"]
            assert method.nearest(["THE new york times", "zzz qqq"], names).tolist() == [1, 2]
            assert method.pair_scores(["abcd", "abcd", " "], ["ABCD", "wxyz", ""]).tolist() == pytest.approx([1, 0, 0])


def test_only_names_of_the_test_split_are_used(folder: Path) -> None:
    """Names of other splits are skipped, and so are names that the training rules make."""
    write_table(
        folder,
        "typed_names/onto_typed_names.tsv",
        "name onto_type",
        [(f"{a} {i}", "ORG") for i, a in enumerate(made_up_names(50))]
        + [(f"{y}", "DATE") for y in range(1000, 2000)]
        + [("45%", "PERCENT")],
    )
    names = held_out_names(FolderData(folder))

    assert names
    assert all(split_of(name_key(name)) == 9 for name, _ in names)
    assert all(kinds == {"ORG"} for _, kinds in names)


def test_a_name_with_two_types_counts_for_either() -> None:
    """A prediction is correct if it is one of them; macro-F1 agrees with scikit-learn on the resolved types."""
    from sklearn.metrics import f1_score

    predicted = ["ORG", "GPE", "PERSON", "LAW"]
    scores = score_predictions(predicted, [{"ORG", "FAC"}, {"GPE"}, {"ORG", "GPE"}, {"LAW"}])

    assert scores.accuracy == 0.75
    expected = f1_score(["ORG", "GPE", "GPE", "LAW"], predicted, labels=["GPE", "LAW", "ORG"], average="macro")
    assert scores.macro_f1 == pytest.approx(expected)
    assert scores.support == {"GPE": 2, "LAW": 1, "ORG": 1}


def test_the_string_methods_run_by_default_where_they_have_a_figure(model: Path, folder: Path) -> None:
    """BM25 stands in the table of retrieval with the paper's figures, and not in that of phrases."""
    report = evaluate_model(folder, str(model), tasks=["bird", "analogy_word", "geogranno_top1"])
    text = report_as_text(report)
    outcomes = {result.task.name: list(result.outcomes)[1:] for result in report.results}

    assert outcomes["analogy_word"] == ["tfidf"]
    assert outcomes["bird"] == ["jaccard", "tfidf"]
    assert outcomes["geogranno_top1"] == ["jaccard", "tfidf", "bm25"]
    assert text.count("\n  bm25 ") == 1
    assert "BM25 (paper)" in text
    assert "ULR-BERT-base (paper)" in text
    alone = evaluate_model(folder, str(model), tasks=["geogranno_top1"], baselines=["bm25"])
    assert set(alone.results[0].outcomes) == {str(model), "bm25"}
