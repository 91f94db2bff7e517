"""Question retrieval on GEOGRANNO: how often a correct paraphrase is among the first 1, 5 or 10 candidates.

Candidates with equal scores stand in random order, and the figure is the mean over these orders: BM25 gives many equal
scores, and a fixed order moves its figures by up to 3 points. The task of the first 10 also has the groups of Table 9
by length, in words: |q| is the length of the question, and the difference is that to the nearest correct candidate.
"""

from __future__ import annotations

from collections.abc import Callable
from math import comb

import numpy as np

from training.evaluation.datasets.data import Data
from training.evaluation.methods import Ranking
from training.evaluation.outcome import FloatArray, Outcome, mean_outcome
from training.evaluation.task import EvaluationOptions, Task
from training.evaluation.tasks.universal.geogranno import PATH, Questions, read_questions
from training.evaluation.tasks.universal.paper import RETRIEVAL

_EQUAL = 1e-9
"""Scores that differ by less are equal."""

_LENGTHS = {"1 to 6 words": (1, 6), "7 or 8 words": (7, 8), "9 words or more": (9, 10**9)}
_DIFFERENCES = {"differ by 2 or more": 2, "differ by 3 or more": 3}


def found_within(scores: FloatArray, gold: frozenset[int], depth: int) -> float:
    """Probability that a correct candidate is among the first `depth`, with equal scores in random order.

    Args:
        scores: Of all candidates, (m,); higher is better.
        gold: Indices of the correct candidates, at least one.
        depth: At least 1.
    """
    best = max(scores[i] for i in gold)
    places = depth - int(np.count_nonzero(scores > best + _EQUAL))
    equal = int(np.count_nonzero(np.abs(scores - best) <= _EQUAL))
    correct = sum(bool(abs(scores[i] - best) <= _EQUAL) for i in gold)
    if places <= 0:
        return 0.0
    return 1.0 if places >= equal else 1 - comb(equal - correct, places) / comb(equal, places)


def _groups(questions: Questions, correct: FloatArray) -> dict[str, float]:
    """Accuracy and size of the groups of Table 9 that are not empty."""
    lengths = np.array([len(question.split()) for question in questions.questions])
    sizes = [len(candidate.split()) for candidate in questions.candidates]
    differences = np.array(
        [min(abs(n - sizes[i]) for i in gold) for n, gold in zip(lengths.tolist(), questions.gold, strict=True)]
    )
    groups = {name: (lengths >= low) & (lengths <= high) for name, (low, high) in _LENGTHS.items()}
    groups |= {name: differences >= least for name, least in _DIFFERENCES.items()}
    details: dict[str, float] = {}
    for name, own in groups.items():
        if own.any():
            details |= {name: 100 * float(correct[own].mean()), f"n {name}": float(own.sum())}
    return details


def _run(depth: int, *, by_length: bool) -> Callable[[Data, Ranking, EvaluationOptions], Outcome]:
    def run(data: Data, method: Ranking, options: EvaluationOptions) -> Outcome:
        questions = read_questions(data)
        scores = method.score_matrix(questions.questions, questions.candidates)
        correct = np.array(
            [found_within(row, gold, depth) for row, gold in zip(scores, questions.gold, strict=True)],
            dtype=np.float64,
        )
        details = {"candidates": float(len(questions.candidates))}
        details |= _groups(questions, correct) if by_length else {}
        return mean_outcome([(np.arange(len(correct)), correct)], details=details)

    return run


TASKS = tuple(
    Task(
        name=f"geogranno_top{depth}",
        head=f"top-{depth}",
        group="Question Retrieval",
        metric=f"accuracy@{depth} among all canonical utterances",
        needs="ranking",
        reads=(PATH,),
        run=_run(depth, by_length=depth == max(RETRIEVAL)),
        paper=figures,
    )
    for depth, figures in RETRIEVAL.items()
)
