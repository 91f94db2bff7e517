"""Type classification: accuracy of the type head on names that training never saw.

Names are the typed names of the test split (by case-folded name with digits as 0), without those whose key the training
rules for numbers can make. The natural sample has the distribution of the table. The balanced sample has up to 200
names of each type; for PERCENT, ORDINAL, TIME and MONEY, rules make names in forms that the training rules never make:
a head that has learned only those patterns fails on them. For a name with several types, each counts as correct.
"""

from __future__ import annotations

import operator
import random
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from pearl_qdrant.errors import FormatError
from pearl_qdrant.phrase_types import ENTITY_TYPES
from training.evaluation.data import Data
from training.evaluation.methods import EncoderMethod
from training.evaluation.outcome import FloatArray, IntArray, Outcome, mean_outcome
from training.evaluation.task import Task
from training.examples.example import TEST_SPLITS, name_key, split_of
from training.examples.numbers import number_names, ordinal_words_of, words_of
from training.options import EvaluationOptions

_HALF_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()


def _percent(rng: random.Random) -> str:
    low, high, tenth = rng.randrange(1, 60), rng.randrange(60, 100), rng.randrange(10)
    words = words_of(rng.randrange(2, 99))
    return rng.choice(
        (
            f"between {low} and {high} percent",
            f"{low}-{high}%",
            f"{low} to {high} per cent",
            f"nearly {high}%",
            f"up to {low}.{tenth} percent",
            f"just over {low} per cent",
            f"less than {words} percent",
            f"{low}.{tenth} pct",
            f"minus {low} percent",
            f"+{low}.{tenth}%",
            f"-{low}%",
            f"a mere {low}.{tenth} %",
            f"roughly {words} per cent",
            f"{low} and a half percent",
            f"half of {words} percent",
            f"({low}%)",
        )
    )


def _ordinal(rng: random.Random) -> str:
    number = rng.randrange(1, 100)
    thousands = rng.randrange(1000, 10_000)
    ending = "th" if thousands % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(thousands % 10, "th")
    return rng.choice(
        (
            f"{thousands:,}{ending}",
            f"{thousands}{ending}",
            f"{words_of(rng.randrange(1, 10))} hundred and {ordinal_words_of(number)}",
            f"the {words_of(rng.randrange(1, 10))} hundred and {ordinal_words_of(number)}",
            f"one hundred {ordinal_words_of(number)}",
            f"{rng.choice(_HALF_TENS)} {ordinal_words_of(rng.randrange(1, 10))}",
            f"the very {ordinal_words_of(number)}",
            f"{ordinal_words_of(number)}-to-last",
            f"{words_of(number)} thousandth",
            f"{words_of(number)} hundredth",
            f"his {ordinal_words_of(number)}",
            f"every {ordinal_words_of(number)}",
        )
    )


def _time(rng: random.Random) -> str:
    hour, minute = rng.randrange(1, 13), rng.randrange(1, 60)
    words, many = words_of(hour), rng.randrange(2, 50)
    return rng.choice(
        (
            f"{hour}.{minute:02d} {rng.choice(('am', 'pm'))}",
            f"{rng.randrange(24):02d}:{minute:02d}:{rng.randrange(60):02d}",
            f"{hour}:{minute:02d} in the {rng.choice(('morning', 'evening', 'afternoon'))}",
            f"{words_of(minute)} minutes past {words}",
            f"{rng.choice(('ten', 'twenty', 'five'))} to {words}",
            f"quarter past {words}",
            f"{many} hours and {minute} minutes",
            f"{rng.randrange(24):02d}{minute:02d} hours",
            f"{words} and a half hours",
            f"just after {hour} {rng.choice(('am', 'pm', 'a.m.', 'p.m.'))}",
            f"{hour}:{minute:02d} {rng.choice(('GMT', 'UTC', 'EST', 'CET'))}",
            f"about {many} minutes",
            f"{rng.choice(('early', 'late'))} {rng.choice(('last night', 'in the afternoon', 'this evening'))}",
            f"{words} in the morning",
            f"a few {rng.choice(('minutes', 'seconds', 'hours'))}",
            f"{many} min {minute} s",
        )
    )


def _money(rng: random.Random) -> str:
    low, high = rng.randrange(1, 50), rng.randrange(50, 1000)
    words = words_of(rng.randrange(1, 100))
    return rng.choice(
        (
            f"{rng.choice('$€£')}{low}.{rng.randrange(10)}{rng.choice(('bn', 'm', 'k'))}",
            f"between ${low} and ${high}",
            f"{words} {rng.choice(('Canadian', 'Australian', 'Hong Kong'))} dollars",
            f"{high} {rng.choice(('Swedish kronor', 'roubles', 'zloty', 'Swiss francs', 'dirhams', 'shillings'))}",
            f"{low} crore rupees",
            f"{rng.choice(('HK$', 'C$', 'R$', '₹', '₩'))}{high}",
            f"{high} {rng.choice(('EUR', 'USD', 'GBP', 'INR'))}",
            f"nearly ${high} million",
            f"{words} dollars and fifty cents",
            f"several {rng.choice(('million', 'thousand', 'hundred'))} {rng.choice(('euros', 'dollars', 'pounds'))}",
            f"half a million {rng.choice(('pounds', 'dollars', 'euros'))}",
            f"{words} thousand {rng.choice(('pounds', 'yen', 'euros'))}",
            f"as much as £{high}",
            f"${high} a month",
            f"{high}p",
            f"{words} quid",
        )
    )


_MAKERS: dict[str, Callable[[random.Random], str]] = {
    "MONEY": _money,
    "ORDINAL": _ordinal,
    "PERCENT": _percent,
    "TIME": _time,
}

_TRAINING_NAMES = 10_000
"""Names of each type that are drawn to learn what the training rules make; training draws fewer."""


@cache
def training_keys() -> frozenset[str]:
    """Keys (`example.name_key`) of the names that the training rules make."""
    return frozenset(name_key(name) for name, _ in number_names(_TRAINING_NAMES, random.Random(0)))


def unseen_number_names(n_each: int, rng: random.Random, *, seen: frozenset[str]) -> dict[str, list[str]]:
    """Up to `n_each` names of each type, with distinct keys that are not in `seen`."""
    made: dict[str, list[str]] = {}
    for kind, make in _MAKERS.items():
        names: dict[str, str] = {}
        for _ in range(50 * n_each):
            name = make(rng)
            if len(names) < n_each and name_key(name) not in seen:
                names.setdefault(name_key(name), name)
        made[kind] = list(names.values())
    return made


@dataclass(frozen=True, slots=True)
class TypeScores:
    """Scores on a set of names.

    Attributes:
        accuracy: Share of names whose predicted entity type is one of theirs, in [0, 1].
        macro_f1: Mean F1 over the types that occur, in [0, 1].
        f1: F1 by type.
        n: Number of names.
        support: Number of names by type.
    """

    accuracy: float
    macro_f1: float
    f1: dict[str, float]
    n: int
    support: dict[str, int]


def resolve_types(predicted: Sequence[str], types: Sequence[Collection[str]]) -> list[str]:
    """The type that counts for each name: the predicted one if it is correct, else the first correct one by name."""
    return [p if p in right else min(right) for p, right in zip(predicted, types, strict=True)]


def score_predictions(predicted: Sequence[str], types: Sequence[Collection[str]]) -> TypeScores:
    """Score the predicted type of each name against its correct types, at least one."""
    actual = resolve_types(predicted, types)
    f1 = f1_by_type(np.ones(len(actual)), _numbers(predicted), _numbers(actual))
    support = Counter(actual)
    kinds = sorted(support)
    return TypeScores(
        sum(map(operator.eq, predicted, actual)) / len(predicted),
        sum(f1[kind] for kind in kinds) / len(kinds),
        {kind: f1[kind] for kind in kinds},
        len(predicted),
        {kind: support[kind] for kind in kinds},
    )


def _numbers(kinds: Sequence[str]) -> IntArray:
    return np.array([ENTITY_TYPES.index(kind) for kind in kinds], dtype=np.int64)


def f1_by_type(weights: FloatArray, predicted: IntArray, actual: IntArray) -> dict[str, float]:
    """F1 of each entity type over weighted names; 0 for one that neither occurs nor is predicted."""
    size = len(ENTITY_TYPES)
    hits = np.bincount(actual, weights * (predicted == actual), minlength=size)
    total = np.bincount(actual, weights, minlength=size) + np.bincount(predicted, weights, minlength=size)
    f1 = np.divide(2 * hits, total, out=np.zeros(size), where=total > 0)
    return dict(zip(ENTITY_TYPES, f1.tolist(), strict=True))


READS = "typed_names/onto_typed_names.tsv"
_NATURAL = 8000
_EACH = 200

TypedName = tuple[str, Collection[str]]


def held_out_names(data: Data) -> list[TypedName]:
    """Names of the test split with all their types, in the order of the table. Raises FormatError."""
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
    answered, actual = _numbers(predicted), _numbers(resolve_types(predicted, types))

    def score(weights: FloatArray) -> float:
        f1 = f1_by_type(weights, answered, actual)
        return 100 * float(np.mean([f1[kind] for kind in ENTITY_TYPES if kind in scores.f1]))

    return Outcome((score(np.ones(len(chosen))),), len(chosen), score, details=details)


def _by_type(scores: TypeScores) -> dict[str, float]:
    """F1 and number of names, by type."""
    f1 = {f"f1_{kind}": 100 * value for kind, value in scores.f1.items()}
    return {**f1, **{f"n_{kind}": scores.support[kind] for kind in scores.f1}}


TYPE_TASKS = (
    Task("types_natural", "natural", "Type Classification", "accuracy, natural sample", "types", (READS,), _natural),
    Task(
        "types_balanced", "balanced", "Type Classification", "macro-F1, balanced sample", "types", (READS,), _balanced
    ),
)
