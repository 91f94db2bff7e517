"""Type classification: accuracy of the type head on names that training never saw.

Names are the typed names of the test split (by case-folded name with digits as 0), without those whose key the training
rules for numbers can make. The natural sample has the distribution of the table. The balanced sample has up to 200
names of each type; separate rules supply PERCENT, ORDINAL, TIME and MONEY. For a name with several types, each counts
as correct.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence

import numpy as np

from pearl_qdrant.errors import FormatError
from pearl_qdrant.phrase_types import ENTITY_TYPES
from training.evaluation.datasets.data import Data
from training.evaluation.methods import EncoderMethod
from training.evaluation.outcome import FloatArray, Outcome, mean_outcome
from training.evaluation.task import EvaluationOptions, Task
from training.evaluation.tasks.number_names import training_keys, unseen_number_names
from training.evaluation.tasks.type_scores import TypeScores, resolve_types, score_predictions
from training.examples.example import TEST_SPLITS, name_key, split_of

READS = "typed_names/onto_typed_names.tsv"
_NATURAL = 8000
_EACH = 200

TypedName = tuple[str, Collection[str]]


def held_out_names(data: Data) -> list[TypedName]:
    """Names of the test split with all their types, in the order of the table.

    Raises:
        FormatError: If a type is not one of OntoNotes', or no name is left.
    """
    seen = training_keys()
    types: dict[str, set[str]] = {}
    for name, kind in data.rows(READS, "name", "onto_type"):
        if kind not in ENTITY_TYPES:
            raise FormatError(READS, None, f"{name!r} has type {kind!r}, not one of {', '.join(ENTITY_TYPES)}.")
        key = name_key(name)
        if key and key not in seen and split_of(key) in TEST_SPLITS:
            types.setdefault(name, set()).add(kind)
    if not types:
        raise FormatError(READS, None, "no name belongs to the test split.")
    return list(types.items())


def balanced_names(names: Sequence[TypedName], rng: random.Random) -> list[TypedName]:
    """Up to 200 names of each type; rules supply types with few names."""
    by_type: dict[str, list[TypedName]] = {kind: [] for kind in ENTITY_TYPES}
    for name, kinds in names:
        for kind in kinds:
            by_type[kind].append((name, kinds))
    chosen: dict[str, Collection[str]] = {}
    for found in by_type.values():
        chosen.update(rng.sample(found, min(_EACH, len(found))))
    for kind, made in unseen_number_names(_EACH, rng, seen=training_keys()).items():
        lacking = max(0, _EACH - len(by_type[kind]))
        chosen.update((name, {kind}) for name in made[:lacking] if name not in chosen)
    return list(chosen.items())


def _natural(data: Data, method: EncoderMethod, options: EvaluationOptions) -> Outcome:
    names = held_out_names(data)
    chosen = random.Random(0).sample(names, min(_NATURAL, len(names)))
    predicted = method.entity_types([name for name, _ in chosen])
    scores = score_predictions(predicted, [kinds for _, kinds in chosen])
    correct = np.array([p in kinds for p, (_, kinds) in zip(predicted, chosen, strict=True)], dtype=np.float64)
    details = {"macro_f1": 100 * scores.macro_f1, **_by_type(scores)}
    return mean_outcome([(np.arange(len(chosen)), correct)], details=details)


def _balanced(data: Data, method: EncoderMethod, options: EvaluationOptions) -> Outcome:
    chosen = balanced_names(held_out_names(data), random.Random(0))
    types = [kinds for _, kinds in chosen]
    predicted = method.entity_types([name for name, _ in chosen])
    scores = score_predictions(predicted, types)
    details = {"accuracy": 100 * scores.accuracy, **_by_type(scores)}
    number = {kind: i for i, kind in enumerate(ENTITY_TYPES)}
    answered = np.array([number[kind] for kind in predicted], dtype=np.int64)
    actual = np.array([number[kind] for kind in resolve_types(predicted, types)], dtype=np.int64)
    occurring = np.unique(actual)

    def score(weights: FloatArray) -> float:
        size = len(ENTITY_TYPES)
        hits = np.bincount(actual, weights * (answered == actual), minlength=size)
        total = np.bincount(actual, weights, minlength=size) + np.bincount(answered, weights, minlength=size)
        f1 = np.divide(2 * hits, total, out=np.zeros(size), where=total > 0)
        return 100 * float(f1[occurring].mean())

    return Outcome((score(np.ones(len(chosen))),), len(chosen), score, details=details)


def _by_type(scores: TypeScores) -> dict[str, float]:
    """F1 and number of names, by type."""
    f1 = {f"f1_{kind}": 100 * value for kind, value in scores.f1.items()}
    return {**f1, **{f"n_{kind}": scores.support[kind] for kind in scores.f1}}


TASKS = (
    Task("types_natural", "natural", "Type Classification", "accuracy, natural sample", "types", (READS,), _natural),
    Task(
        "types_balanced", "balanced", "Type Classification", "macro-F1, balanced sample", "types", (READS,), _balanced
    ),
)
