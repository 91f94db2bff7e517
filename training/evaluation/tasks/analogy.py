"""Universal analogy: a is to b as c is to d, for words, phrases and sentences.

The answer is chosen from a closed list: the correct one and the distractors of its row (four for words and semantic
relations, one for syntactic phrases and sentences). The choice is the d with the largest cosine of c + b - a and d,
where a, b, c and d have length 1 (appendix A.1 of the paper; 3CosAdd). The figure is the mean of the accuracy over all
semantic and over all syntactic questions, as in Table 2. Choices with equal scores share the point. Other than in
3CosAdd over a vocabulary, a, b and c are never excluded: the list says what can be chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pearl_qdrant.cells import split_list
from pearl_qdrant.errors import FormatError
from training.evaluation.data import Data
from training.evaluation.methods import Arithmetic
from training.evaluation.outcome import FloatArray, IntArray, Outcome, mean_outcome
from training.evaluation.task import Task
from training.options import EvaluationOptions

PATH = "ulr_analogy/analogies.tsv"
LEVELS = ("word", "phrase", "sentence")
_KINDS = ("semantic", "syntactic")
_EQUAL = 1e-6
"""Cosines of float32 vectors that differ by less are equal."""


@dataclass(frozen=True, slots=True)
class _Question:
    """One question; the first candidate is the correct one."""

    kind: int
    relation: str
    given: tuple[str, str, str]
    candidates: tuple[str, ...]


def _questions(data: Data, level: str) -> list[_Question]:
    """The questions of a level, in the order of the file."""
    questions = []
    columns = ("kind", "level", "relation", "a", "b", "c", "d_gold", "distractors")
    for number, (kind, row_level, relation, a, b, c, gold, others) in enumerate(data.rows(PATH, *columns), 2):
        if row_level not in LEVELS or kind not in _KINDS:
            known = f"level is one of {', '.join(LEVELS)}, and kind one of {', '.join(_KINDS)}"
            raise FormatError(PATH, number, f"{known}, not {row_level!r} and {kind!r}.")
        if row_level != level:
            continue
        distractors = [name for name in dict.fromkeys(split_list(others)) if name != gold]
        if not distractors:
            raise FormatError(PATH, number, "no distractor other than d_gold. Join distractors by |.")
        questions.append(_Question(_KINDS.index(kind), relation, (a, b, c), (gold, *distractors)))
    if not questions:
        raise FormatError(PATH, None, f"no question of the level {level}.")
    return questions


def _choose(method: Arithmetic, questions: list[_Question]) -> FloatArray:
    """The share of the point for each question, (n,)."""
    sizes = np.array([len(question.candidates) for question in questions])
    a, b, c = ([text for q in questions for text in [q.given[i]] * len(q.candidates)] for i in range(3))
    scores = method.offset_scores(a, b, c, [text for q in questions for text in q.candidates])
    starts = np.cumsum(sizes) - sizes
    is_first = scores >= np.repeat(np.maximum.reduceat(scores, starts), sizes) - _EQUAL
    shares: FloatArray = is_first[starts] / np.add.reduceat(is_first.astype(np.float64), starts)
    return shares


def _details(questions: list[_Question], kinds: IntArray, correct: FloatArray) -> dict[str, float]:
    """Accuracy by kind and by relation, in percent."""
    details = {kind: 100 * float(correct[kinds == i].mean()) for i, kind in enumerate(_KINDS) if np.any(kinds == i)}
    for relation in dict.fromkeys(question.relation for question in questions):
        own = np.array([question.relation == relation for question in questions])
        details[relation] = 100 * float(correct[own].mean())
    return details


def _run(level: str) -> Callable[[Data, Arithmetic, EvaluationOptions], Outcome]:
    def run(data: Data, method: Arithmetic, options: EvaluationOptions) -> Outcome:
        questions = _questions(data, level)
        kinds = np.array([question.kind for question in questions], dtype=np.int64)
        correct = _choose(method, questions)
        items = np.arange(len(questions))
        return mean_outcome([(items, correct)], strata=kinds, details=_details(questions, kinds, correct))

    return run


ANALOGY_TASKS = tuple(
    Task(
        name=f"analogy_{level}",
        head=f"{level}s",
        group="Universal Analogy",
        metric="accuracy among the candidates of each row, mean of semantic and syntactic",
        needs="arithmetic",
        reads=(PATH,),
        run=_run(level),
    )
    for level in LEVELS
)
