"""SQuAD as retrieval: which sentence of a paragraph has the answer to a question.

The candidates are the sentences of the question's own paragraph. The figure is how often the sentence with the answer
is the first; sentences with equal scores share the point. Paragraphs of one sentence are left out. SQuAD's own task,
the exact words of the answer, needs a head that reads both texts at once, which an encoder of vectors has not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from pearl_qdrant.errors import FormatError
from training.evaluation.data import Data
from training.evaluation.methods import Ranking
from training.evaluation.outcome import Outcome, mean_outcome
from training.evaluation.task import EvaluationOptions, Task
from training.evaluation.tasks.geogranno import found_within

GROUP = "squad"
PATH = "squad/squad.tsv"
_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[]?[A-Z0-9])")
_AT_ONCE = 64
"""Paragraphs that are scored together."""


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Sentences, and the questions on them with the sentence that has the answer."""

    sentences: list[str]
    questions: list[tuple[str, int]]


def sentences_of(text: str) -> list[tuple[int, str]]:
    """Divide a paragraph into sentences, each with its first character."""
    starts = [0, *(found.end() for found in _END.finditer(text))]
    ends = [*(found.start() for found in _END.finditer(text)), len(text)]
    return [(start, text[start:end]) for start, end in zip(starts, ends, strict=True)]


def read_paragraphs(data: Data) -> list[Paragraph]:
    """Read the paragraphs of two sentences and more, in the order of the table.

    Raises:
        FormatError: If the table is broken, or an answer begins outside its paragraph.
    """
    found: dict[str, Paragraph] = {}
    for number, (question, context, start) in enumerate(data.rows(PATH, "question", "context", "start"), 2):
        parts = sentences_of(context)
        if not start.isdigit() or int(start) >= len(context):
            raise FormatError(PATH, number, f"start is {start!r}, not a character of a context of {len(context)}.")
        if len(parts) > 1:
            known = found.setdefault(context, Paragraph([text for _, text in parts], []))
            known.questions.append((question, sum(first <= int(start) for first, _ in parts) - 1))
    if not found:
        raise FormatError(PATH, None, "no context has two sentences.")
    return list(found.values())


def _run(data: Data, method: Ranking, options: EvaluationOptions) -> Outcome:
    paragraphs = read_paragraphs(data)
    correct: list[float] = []
    for begin in range(0, len(paragraphs), _AT_ONCE):
        chunk = paragraphs[begin : begin + _AT_ONCE]
        sentences = [sentence for one in chunk for sentence in one.sentences]
        scores = method.score_matrix([question for one in chunk for question, _ in one.questions], sentences)
        row = column = 0
        for one in chunk:
            own = slice(column, column + len(one.sentences))
            for _, gold in one.questions:
                correct.append(found_within(scores[row, own], frozenset([gold]), 1))
                row += 1
            column += len(one.sentences)
    return mean_outcome([(np.arange(len(correct)), np.array(correct))])


TASKS = (
    Task(
        name="squad_sentence",
        head="SQuAD",
        group="Answer Retrieval",
        metric="accuracy@1 among the sentences of the paragraph",
        needs="ranking",
        reads=(PATH,),
        run=_run,
    ),
)
