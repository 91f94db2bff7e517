"""Universal analogy and question retrieval on data that can be computed by hand.
GLUE: frozen vectors, from a folder and from the hub.
Tasks on entity types: which names they use, and their scores.
"""

from __future__ import annotations

import math
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from evaluation_data import OPTIONS, Letters, made_up_names, run_tasks, task_outcome, write_table

from pearl_qdrant.errors import FormatError
from training.evaluation.data import FolderData
from training.evaluation.methods import Bm25Method, EncoderMethod, StringMethod
from training.evaluation.run import evaluate, evaluate_model, report_as_text
from training.evaluation.tasks import find_tasks
from training.evaluation.tasks.classification import (
    held_out_names,
    score_predictions,
)
from training.evaluation.tasks.universal import found_within, plain_question, read_questions
from training.examples.example import name_key, split_of

ANALOGIES = "ulr_analogy/analogies.tsv"
COLUMNS = "kind level relation a b c d_gold distractors"
PAIRS = "geogranno/geo_pairs.tsv"


@pytest.mark.parametrize("level", ["word", "phrase", "sentence"])
def test_an_analogy_is_the_mean_of_semantic_and_syntactic_accuracy(folder: Path, level: str) -> None:
    """One semantic question is right, and one of two syntactic ones; the details name each relation."""
    found = task_outcome(folder, f"analogy_{level}")

    assert found.n == 3
    assert found.value == pytest.approx((100 + 50) / 2)
    assert found.details == {"semantic": 100, "syntactic": 50, "first": 100, "second": 100, "third": 0}


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


def test_questions_have_values_for_placeholders_and_no_question_mark() -> None:
    """Placeholders get the values of the canonical utterances; an unknown one keeps its word."""
    assert plain_question("how long is the _river_ river ?") == "how long is the colorado river river"
    assert plain_question("is _city_ in _lake_ , _state_ ?") == "is sacramento in lake california"


def test_queries_are_distinct_and_candidates_come_from_train_and_dev(folder: Path) -> None:
    """A repeated question counts once, one with two paraphrases has both, and other splits do not count."""
    rows = [("train", "q _state_ ?", "b"), ("train", "q _state_ ?", "b"), ("dev", "q california ?", "c")]
    write_table(folder, PAIRS, "split question canonical", [*rows, ("train_nat", "other ?", "d")])
    found = read_questions(FolderData(folder))

    assert found.questions == ["q california"]
    assert found.candidates == ["b", "c"]
    assert found.gold == [{0, 1}]
    write_table(folder, PAIRS, "split question canonical", [("test", "q ?", "b"), ("other", "r ?", "c")])
    assert read_questions(FolderData(folder)).questions == ["q", "r"], "without train and dev all rows count"


@pytest.mark.parametrize("gold", [{0}, {1}, {0, 2}, {1, 3}, {2, 3}, {1, 2, 4}])
@pytest.mark.parametrize("depth", [1, 2, 3, 6])
def test_equal_scores_count_as_the_mean_over_all_orders(gold: set[int], depth: int) -> None:
    """The probability is that of trying every order of the candidates."""
    scores = np.array([3.0, 2.0, 2.0, 2.0, 1.0])
    hits = []
    for order in permutations(range(5)):
        ranked = sorted(order, key=lambda i: -scores[i])
        hits.append(bool(gold & set(ranked[:depth])))

    assert found_within(scores, frozenset(gold), depth) == pytest.approx(float(np.mean(hits)))


def test_retrieval_counts_questions(folder: Path) -> None:
    """Both questions are within the first 10 of two candidates."""
    found = task_outcome(folder, "geogranno_top10")

    assert (found.n, found.value, found.details["candidates"]) == (2, 100, 2)


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
    """The candidate that shares the words comes first, and the best score is where `nearest` looks."""
    queries, candidates = ["area of texas", "zzz"], ["length of river", "texas area", "zzz top"]
    for method in (StringMethod("jaccard"), StringMethod("tfidf"), Bm25Method()):
        scores = method.score_matrix(queries, candidates)
        assert scores.shape == (2, 3)
        assert scores.argmax(axis=1).tolist() == [1, 2]
        if isinstance(method, StringMethod):
            assert method.nearest(queries, candidates).tolist() == [1, 2]


def test_a_table_leaves_out_methods_without_a_figure(folder: Path) -> None:
    """BM25 stands in the table of retrieval with the paper's figures, and not in the table of phrases."""
    tasks = find_tasks(("bird", "analogy_word", "geogranno_top1"))
    methods = [StringMethod("tfidf"), StringMethod("jaccard"), Bm25Method()]
    report = evaluate(FolderData(folder), EncoderMethod(Letters()), methods, tasks, OPTIONS)
    text = report_as_text(report)

    assert text.count("\n  bm25 ") == 1
    assert "BM25 (paper)" in text
    assert "ULR-BERT-base (paper)" in text
    outcomes = {result.task.name: set(result.outcomes) for result in report.results}
    assert outcomes["analogy_word"] == {"letters", "tfidf"}
    assert outcomes["bird"] == {"letters", "tfidf", "jaccard"}
    assert outcomes["geogranno_top1"] == {"letters", "tfidf", "jaccard", "bm25"}


def test_bm25_is_a_baseline_by_name_and_by_default(model: Path, folder: Path) -> None:
    """The three string methods run by default; BM25 alone can be asked for."""
    by_default = evaluate_model(folder, str(model), tasks=["geogranno_top1"])
    assert by_default.baselines == ("jaccard", "tfidf", "bm25")

    alone = evaluate_model(folder, str(model), tasks=["geogranno_top1"], baselines=["bm25"])
    assert set(alone.results[0].outcomes) == {str(model), "bm25"}


def test_types_are_the_marginal_over_lexical_classes(folder: Path) -> None:
    """The most probable single label is LAW, but the largest sum over lexical classes is correct."""
    found = task_outcome(folder, "types_natural")

    assert found.value == 100
    assert found.details["macro_f1"] == 100
    assert found.n == len(held_out_names(FolderData(folder)))


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
