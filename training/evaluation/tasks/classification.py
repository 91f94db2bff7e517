"""Paraphrases and short texts, classified by frozen vectors (one hidden layer with ReLU); and entity types of names.

The classifier is that of Phrase-BERT and PEARL: 256 hidden units, batches of 200, Adam, 70 % of the rows to train, 15 %
to choose the epoch, 15 % to test, at most 100 epochs, and early stopping after 5 epochs without improvement. Unlike
PEARL's code it learns at 1e-3, since our vectors have length 1, tests the weights that are best on the validation rows,
and has at least 20 batches; an epoch with equal accuracy is better if its loss is lower.

Paraphrases are split at random as in the paper, or by pair: PPDB-filtered has 3,148 pairs both ways. S and L are short
and long texts: a tweet is short up to 10 words, a query up to 7 (the paper does not say). Tweets are TweetEval's
without the neutral ones; ATIS is limited to its eight most frequent single intents. Equal texts stay together.

Type classification: accuracy of the type head on names that training never saw: the typed names of the test split (by
case-folded name with digits as 0), without those whose key the training rules for numbers can make. The sample has the
distribution of the table. For a name with several types, each counts as correct.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from pearl_qdrant.errors import FormatError
from pearl_qdrant.phrase_types import ENTITY_TYPES
from training.evaluation.data import Data
from training.evaluation.methods import EncoderMethod
from training.evaluation.outcome import FloatArray, IntArray, Outcome, mean_outcome
from training.evaluation.task import Task
from training.examples.example import TEST_SPLITS, name_key, split_of
from training.examples.numbers import number_names
from training.options import EvaluationOptions

_HIDDEN = 256
_BATCH = 200
_MIN_BATCHES = 20
_MIN_BATCH = 16
_LEARNING_RATE = 1e-3
_PATIENCE = 5
_SHARES = (0.7, 0.85)
"""Shares of the rows at which training and validation end."""


@dataclass(frozen=True, slots=True)
class Split:
    """Rows for training, for choosing the epoch, and for testing."""

    train: IntArray
    validation: IntArray
    test: IntArray


def split_rows(groups: Sequence[Hashable], rng: np.random.Generator) -> Split:
    """Divide rows at random, 70 : 15 : 15; rows of one group stay together. There must be three groups."""
    number: dict[Hashable, int] = {}
    group_of = np.array([number.setdefault(group, len(number)) for group in groups], dtype=np.int64)
    if len(number) < 3:
        raise ValueError(f"{len(number)} distinct items cannot be divided into training, validation and test")
    position = np.empty(len(number), dtype=np.int64)
    position[rng.permutation(len(number))] = np.arange(len(number))
    ends = [min(max(1, round(share * len(number))), len(number) - 1) for share in _SHARES]
    ends[0] = min(ends[0], ends[1] - 1) or 1
    part = np.searchsorted(ends, position[group_of], side="right")
    return Split(*(np.flatnonzero(part == i) for i in range(3)))


def probe(features: Tensor, labels: IntArray, split: Split, *, seed: int, max_epochs: int) -> FloatArray:
    """Train the classifier and test it. Returns 1 for each correct test row, else 0.

    `features` are (n, width), `labels` (n,), from 0; `seed` gives the initial weights and the order of the batches.
    """
    generator = torch.Generator().manual_seed(seed)
    target = torch.from_numpy(labels)
    layers = _layers(features.shape[1], 1 + int(labels.max()), generator)
    optimizer = torch.optim.Adam(layers.parameters(), lr=_LEARNING_RATE, fused=True)
    train, validation, test = (torch.from_numpy(rows) for rows in (split.train, split.validation, split.test))
    size = min(_BATCH, max(_MIN_BATCH, len(train) // _MIN_BATCHES))
    best, best_state, since = (-1.0, 0.0), layers.state_dict(), 0
    for _ in range(max_epochs):
        for rows in torch.split(train[torch.randperm(len(train), generator=generator)], size):
            loss = nn.functional.cross_entropy(layers(features[rows]), target[rows])
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
        quality = _quality(layers(features[validation]).detach(), target[validation])
        since = 0 if quality > best else since + 1
        if since == 0:
            best, best_state = quality, {name: value.clone() for name, value in layers.state_dict().items()}
        elif since >= _PATIENCE:
            break
    layers.load_state_dict(best_state)
    with torch.no_grad():
        correct: FloatArray = (layers(features[test]).argmax(1) == target[test]).double().numpy()
    return correct


def _layers(width: int, n_labels: int, generator: torch.Generator) -> nn.Module:
    """Two linear layers, initialised as in torch, but from an explicit generator."""
    hidden, output = nn.Linear(width, _HIDDEN), nn.Linear(_HIDDEN, n_labels)
    with torch.no_grad():
        for layer in (hidden, output):
            bound = layer.in_features**-0.5
            layer.weight.uniform_(-bound, bound, generator=generator)
            layer.bias.uniform_(-bound, bound, generator=generator)
    return nn.Sequential(hidden, nn.ReLU(), output)


def _quality(logits: Tensor, target: Tensor) -> tuple[float, float]:
    """Accuracy, then negative loss; higher is better."""
    accuracy = (logits.argmax(1) == target).double().mean()
    return float(accuracy), -float(nn.functional.cross_entropy(logits, target))


def _classify(features: Tensor, labels: IntArray, groups: Sequence[Hashable], options: EvaluationOptions) -> Outcome:
    """Accuracy of the classifier, split anew for each seed."""
    by_seed = []
    for seed in range(options.n_seeds):
        split = split_rows(groups, np.random.default_rng(seed))
        by_seed.append((split.test, probe(features, labels, split, seed=seed, max_epochs=options.max_epochs)))
    return mean_outcome(by_seed)


_LABELS = ("neg", "pos")


def _paraphrase(path: str, by_pair: bool) -> Callable[[Data, EncoderMethod, EvaluationOptions], Outcome]:
    def run(data: Data, method: EncoderMethod, options: EvaluationOptions) -> Outcome:
        rows = data.rows(path, "phrase1", "phrase2", "label")
        if unknown := {label for _, _, label in rows} - set(_LABELS):
            raise FormatError(path, None, f"labels must be pos or neg, not {', '.join(sorted(unknown))}.")
        left, right = [row[0] for row in rows], [row[1] for row in rows]
        labels = np.array([_LABELS.index(row[2]) for row in rows], dtype=np.int64)
        groups = [frozenset(row[:2]) for row in rows] if by_pair else list(range(len(rows)))
        features = torch.from_numpy(np.concatenate([method.vectors(left), method.vectors(right)], axis=1))
        return _classify(features, labels, groups, options)

    return run


PARAPHRASE_TASKS = tuple(
    Task(
        name + ("_by_pair" if by_pair else ""),
        head + (" by pair" if by_pair else ""),
        "Paraphrase Classification",
        "accuracy" + (", split by unordered pair" if by_pair else ""),
        "vectors",
        (f"pearl_bench/{name}.tsv",),
        _paraphrase(f"pearl_bench/{name}.tsv", by_pair),
    )
    for name, head in (("ppdb", "PPDB"), ("ppdb_filtered", "PPDB filtered"))
    for by_pair in (False, True)
)


_TWITTER = ("tweets/sentiment.tsv", "label", ("0", "2"), 10)
_INTENTS = "flight airfare ground_service airline abbreviation aircraft flight_time quantity".split()
_ATIS = ("intent/atis.tsv", "intent", tuple(f"atis_{intent}" for intent in _INTENTS), 7)
_FEWEST = 20
"""Minimum number of texts to train a classifier."""


def _short_text(
    path: str, column: str, labels: tuple[str, ...], longest_short: int, *, short: bool
) -> Callable[[Data, EncoderMethod, EvaluationOptions], Outcome]:
    def run(data: Data, method: EncoderMethod, options: EvaluationOptions) -> Outcome:
        rows = [
            (text, label)
            for text, label in data.rows(path, "text", column)
            if label in labels and (len(text.split()) <= longest_short) == short
        ]
        if len({text.casefold() for text, _ in rows}) < _FEWEST:
            raise FormatError(path, None, f"{len(rows)} {'short' if short else 'long'} texts are too few to classify.")
        targets = np.array([labels.index(label) for _, label in rows], dtype=np.int64)
        features = torch.from_numpy(method.vectors([text for text, _ in rows]))
        groups = [text.casefold() for text, _ in rows]
        return _classify(features, targets, groups, options)

    return run


SHORT_TEXT_TASKS = tuple(
    Task(
        f"{name}_{size.lower()}",
        f"{head}-{size}",
        group,
        "accuracy",
        "vectors",
        source[:1],
        _short_text(*source, short=size == "S"),
    )
    for name, head, group, source in (
        ("twitter", "Twitter", "Sentiment Analysis", _TWITTER),
        ("atis", "ATIS", "Intent Classification", _ATIS),
    )
    for size in "SL"
)


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
