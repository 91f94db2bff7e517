"""Type classification: accuracy of the type head on names that training never saw.

Names are the typed names of the test split (by case-folded name with digits as 0), without those whose key the training
rules for numbers can make. The sample has the distribution of the table. For a name with several types, each counts as
correct.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from pearl_qdrant.errors import FormatError
from pearl_qdrant.phrase_types import ENTITY_TYPES
from training.evaluation.data import Data
from training.evaluation.methods import EncoderMethod
from training.evaluation.outcome import Outcome, mean_outcome
from training.evaluation.task import Task
from training.examples.example import TEST_SPLITS, name_key, split_of
from training.examples.numbers import number_names
from training.options import EvaluationOptions

_TRAINING_NAMES = 10_000
"""Names of each type that are drawn to learn what the training rules make; training draws fewer."""


@cache
def training_keys() -> frozenset[str]:
    """Keys (`example.name_key`) of the names that the training rules make."""
    return frozenset(name_key(name) for name, _ in number_names(_TRAINING_NAMES, random.Random(0)))


@dataclass(frozen=True, slots=True)
class TypeScores:
    """Scores on a set of names."""

    accuracy: float  # share of names whose predicted entity type is one of theirs, in [0, 1]
    macro_f1: float  # mean F1 over the types that occur, in [0, 1]
    f1: dict[str, float]  # F1 by type
    n: int  # number of names
    support: dict[str, int]  # number of names by type


def score_predictions(predicted: Sequence[str], types: Sequence[Collection[str]]) -> TypeScores:
    """Score the predicted type of each name against its correct types, at least one.

    For F1 the type that counts is the predicted one if it is correct, else the first correct one by name.
    """
    actual = [p if p in right else min(right) for p, right in zip(predicted, types, strict=True)]
    hits = Counter(p for p, kind in zip(predicted, actual, strict=True) if p == kind)
    support, total = Counter(actual), Counter(actual) + Counter(predicted)
    f1 = {kind: 2 * hits[kind] / total[kind] for kind in sorted(support)}
    return TypeScores(hits.total() / len(predicted), sum(f1.values()) / len(f1), f1, len(predicted), dict(support))


READS = "typed_names/onto_typed_names.tsv"
_NATURAL = 8000

TypedName = tuple[str, Collection[str]]


def held_out_names(data: Data, splits: Collection[int] = TEST_SPLITS) -> list[TypedName]:
    """Names of the splits with all their types, in the order of the table. Raises FormatError."""
    seen = training_keys()
    types: dict[str, set[str]] = {}
    for name, kind in data.rows(READS, "name", "onto_type"):
        if kind not in ENTITY_TYPES:
            raise FormatError(READS, None, f"{name!r} has type {kind!r}, not one of {', '.join(ENTITY_TYPES)}.")
        key = name_key(name)
        if key and key not in seen and split_of(key) in splits:
            types.setdefault(name, set()).add(kind)
    if not types:
        raise FormatError(READS, None, f"no name belongs to splits {', '.join(map(str, splits))}.")
    return list(types.items())


def _natural(data: Data, method: EncoderMethod, options: EvaluationOptions) -> Outcome:
    names = held_out_names(data, options.splits or TEST_SPLITS)
    chosen = random.Random(0).sample(names, min(_NATURAL, len(names)))
    predicted = method.entity_types([name for name, _ in chosen])
    scores = score_predictions(predicted, [kinds for _, kinds in chosen])
    correct = np.array([p in kinds for p, (_, kinds) in zip(predicted, chosen, strict=True)], dtype=np.float64)
    details = {"macro_f1": 100 * scores.macro_f1, **{f"f1_{kind}": 100 * value for kind, value in scores.f1.items()}}
    details |= {f"n_{kind}": float(scores.support[kind]) for kind in scores.f1}
    return mean_outcome([(np.arange(len(chosen)), correct)], details=details)


TYPE_TASKS = (
    Task("types_natural", "natural", "Type Classification", "accuracy, natural sample", "types", (READS,), _natural),
)
