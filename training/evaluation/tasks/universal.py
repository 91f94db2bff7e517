"""The tasks of ULR: universal analogy, and question retrieval on GEOGRANNO.

Universal analogy: a is to b as c is to d, for words, phrases and sentences.

The answer is chosen from a closed list: the correct one and the distractors of its row (four for words and semantic
relations, one for syntactic phrases and sentences). The choice is the d with the largest cosine of c + b - a and d,
where a, b, c and d have length 1 (appendix A.1 of the paper; 3CosAdd). The figure is the mean of the accuracy over all
semantic and over all syntactic questions, as in Table 2. Choices with equal scores share the point. Other than in
3CosAdd over a vocabulary, a, b and c are never excluded: the list says what can be chosen.

Question retrieval on GEOGRANNO: how often a correct paraphrase is among the first 1, 5 or 10 candidates.

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

from pearl_qdrant.cells import split_list
from pearl_qdrant.errors import FormatError
from training.evaluation.data import Data
from training.evaluation.methods import Bm25Method, EncoderMethod, StringMethod
from training.evaluation.outcome import FloatArray, IntArray, Outcome, mean_outcome
from training.evaluation.task import Task
from training.options import EvaluationOptions

Arithmetic = EncoderMethod | StringMethod

PATH = "ulr_analogy/analogies.tsv"
LEVELS = ("word", "phrase", "sentence")
_KINDS = ("semantic", "syntactic")
_EQUAL_COSINES = 1e-6
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
    is_first = scores >= np.repeat(np.maximum.reduceat(scores, starts), sizes) - _EQUAL_COSINES
    shares: FloatArray = is_first[starts] / np.add.reduceat(is_first.astype(np.float64), starts)
    return shares


def _details(questions: list[_Question], kinds: IntArray, correct: FloatArray) -> dict[str, float]:
    """Accuracy by kind and by relation, in percent."""
    details = {kind: 100 * float(correct[kinds == i].mean()) for i, kind in enumerate(_KINDS) if np.any(kinds == i)}
    for relation in dict.fromkeys(question.relation for question in questions):
        own = np.array([question.relation == relation for question in questions])
        details[relation] = 100 * float(correct[own].mean())
    return details


def _run_analogies(level: str) -> Callable[[Data, Arithmetic, EvaluationOptions], Outcome]:
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
        run=_run_analogies(level),
    )
    for level in LEVELS
)


Ranking = EncoderMethod | StringMethod | Bm25Method

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


_EQUAL_SCORES = 1e-9
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
    places = depth - int(np.count_nonzero(scores > best + _EQUAL_SCORES))
    equal = int(np.count_nonzero(np.abs(scores - best) <= _EQUAL_SCORES))
    correct = sum(bool(abs(scores[i] - best) <= _EQUAL_SCORES) for i in gold)
    if places <= 0:
        return 0.0
    return 1.0 if places >= equal else 1 - comb(equal - correct, places) / comb(equal, places)


def _run_retrieval(depth: int) -> Callable[[Data, Ranking, EvaluationOptions], Outcome]:
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
        run=_run_retrieval(depth),
    )
    for depth in _DEPTHS
)
