"""Phrase similarity: Turney (multiple choice) and BIRD (correlation with human ratings).

Turney is scored by the cosine. PEARL's code uses the dot product of raw vectors, but our encoders only give vectors of
length 1. Choices with equal scores share the point.
"""

from __future__ import annotations

import numpy as np

from training.evaluation.data import Data, as_number
from training.evaluation.methods import Similarity
from training.evaluation.outcome import Outcome, mean_outcome, pearson_outcome
from training.evaluation.paper import paper_figures
from training.evaluation.task import EvaluationOptions, Task

_TURNEY = "pearl_bench/turney.tsv"
_BIRD = "pearl_bench/bird.tsv"
_CHOICES = ("answer", "distractor1", "distractor2", "distractor3", "distractor4")


def _turney(data: Data, method: Similarity, options: EvaluationOptions) -> Outcome:
    """Accuracy of the choice that is most similar to the query."""
    rows = data.rows(_TURNEY, "query", *_CHOICES)
    queries = [row[0] for row in rows for _ in _CHOICES]
    choices = [choice for row in rows for choice in row[1:]]
    scores = method.pair_scores(queries, choices).reshape(len(rows), len(_CHOICES))
    firsts = scores >= scores.max(axis=1, keepdims=True)
    correct = firsts[:, 0] / firsts.sum(axis=1)
    return mean_outcome([(np.arange(len(rows)), correct)])


def _bird(data: Data, method: Similarity, options: EvaluationOptions) -> Outcome:
    """Pearson's correlation of the similarity with human ratings of relatedness."""
    rows = data.rows(_BIRD, "term1", "term2", "relatedness")
    gold = np.array([as_number(row[2], _BIRD, "a relatedness") for row in rows])
    return pearson_outcome(method.pair_scores([row[0] for row in rows], [row[1] for row in rows]), gold)


TASKS = (
    Task(
        "turney",
        "Turney",
        "Phrase Similarity",
        "accuracy",
        "similarity",
        (_TURNEY,),
        _turney,
        paper_figures("turney"),
        True,
    ),
    Task(
        "bird",
        "BIRD",
        "Phrase Similarity",
        "Pearson r x 100",
        "similarity",
        (_BIRD,),
        _bird,
        paper_figures("bird"),
        True,
    ),
)
