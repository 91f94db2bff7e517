"""Question retrieval on GEOGRANNO: how often a correct paraphrase is among the first 1, 5 or 10 candidates.

The paper states 546 pairs and 158 candidates. Its percentages fit the 365 distinct questions of the splits train and
dev; the distinct canonical utterances of these rows are the 158 candidates. Placeholders have the values of the
canonical utterances: `how long is the _river_ river ?` is "how long is the colorado river river". Candidates with equal
scores stand in random order, and the figure is the mean over these orders: BM25 gives many equal scores.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from math import comb

import numpy as np

from training.evaluation.data import Data
from training.evaluation.methods import Ranking
from training.evaluation.outcome import FloatArray, Outcome, mean_outcome
from training.evaluation.task import Task
from training.options import EvaluationOptions

GEOGRANNO = "geogranno/geo_pairs.tsv"

_SPLITS = frozenset({"train", "dev"})
_VALUES = {
    "_state_": "california",
    "_city_": "sacramento",
    "_country_": "usa",
    "_river_": "colorado river",
    "_place_": "death valley",
}
"""What the canonical utterances of GEOGRANNO say for each placeholder of the questions."""

_PLACEHOLDER = re.compile(r"_\w+?_")


@dataclass(frozen=True, slots=True)
class Questions:
    """Distinct questions, distinct candidates, and the indices of the correct candidates of each question."""

    questions: list[str]
    candidates: list[str]
    gold: list[frozenset[int]]


def plain_question(question: str) -> str:
    """The question with values for placeholders, and without words that have neither letter nor digit."""
    filled = _PLACEHOLDER.sub(lambda found: _VALUES.get(found[0], found[0].strip("_")), question)
    return " ".join(word for word in filled.split() if any(character.isalnum() for character in word))


def read_questions(data: Data) -> Questions:
    """The questions of the splits train and dev; of all rows if the file has neither."""
    rows = data.rows(GEOGRANNO, "split", "question", "canonical")
    rows = [row for row in rows if row[0] in _SPLITS] or rows
    candidates = {canonical: i for i, canonical in enumerate(dict.fromkeys(row[2] for row in rows))}
    gold: dict[str, set[int]] = {}
    for _, question, canonical in rows:
        gold.setdefault(plain_question(question), set()).add(candidates[canonical])
    return Questions(list(gold), list(candidates), [frozenset(found) for found in gold.values()])


_EQUAL = 1e-9
"""Scores that differ by less are equal."""

_DEPTHS = (1, 5, 10)


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


def _run(depth: int) -> Callable[[Data, Ranking, EvaluationOptions], Outcome]:
    def run(data: Data, method: Ranking, options: EvaluationOptions) -> Outcome:
        questions = read_questions(data)
        scores = method.score_matrix(questions.questions, questions.candidates)
        correct = np.array(
            [found_within(row, gold, depth) for row, gold in zip(scores, questions.gold, strict=True)], dtype=np.float64
        )
        details = {"candidates": float(len(questions.candidates))}
        return mean_outcome([(np.arange(len(correct)), correct)], details=details)

    return run


QUESTION_TASKS = tuple(
    Task(
        name=f"geogranno_top{depth}",
        head=f"top-{depth}",
        group="Question Retrieval",
        metric=f"accuracy@{depth} among all canonical utterances",
        needs="ranking",
        reads=(GEOGRANNO,),
        run=_run(depth),
    )
    for depth in _DEPTHS
)
