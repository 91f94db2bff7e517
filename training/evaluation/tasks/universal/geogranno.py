"""GEOGRANNO as the paper uses it: questions, and canonical utterances that paraphrase them.

The paper states 546 pairs and 158 candidates. Its percentages fit 365 queries, which are the distinct questions of the
splits train and dev; the distinct canonical utterances of these rows are the 158 candidates. The lengths of its Table 9
fit questions in which the placeholders have the values of the canonical utterances, without the question mark:

    how long is the _river_ river ?  ->  how long is the colorado river river
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from training.evaluation.datasets.data import Data

PATH = "geogranno/geo_pairs.tsv"

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
    """The questions of the splits train and dev; of all rows if the file has neither.

    Raises:
        FormatError: If the table is broken.
    """
    rows = data.rows(PATH, "split", "question", "canonical")
    rows = [row for row in rows if row[0] in _SPLITS] or rows
    candidates = {canonical: i for i, canonical in enumerate(dict.fromkeys(row[2] for row in rows))}
    gold: dict[str, set[int]] = {}
    for _, question, canonical in rows:
        gold.setdefault(plain_question(question), set()).add(candidates[canonical])
    return Questions(list(gold), list(candidates), [frozenset(found) for found in gold.values()])
