"""Kinds of tasks. Each is made of names alone, and is measured with unit vectors of these names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from development_tasks.figures import N_RESAMPLES, Array, Draws, Figure, draw_groups
from training.evaluation.outcome import Outcome, mean_outcome, nmi_outcome, pearson_outcome

FloatArray = npt.NDArray[np.float32]
VectorsOf = Callable[[Sequence[str]], FloatArray]
"""From n names to their unit vectors, (n, dim)."""

N_CLUSTERINGS, N_STARTS, FITTED = 8, 5, 0.6
"""K-means is run eight times, each on a random 60 % of the groups, as the best of five starts.

All names then go to their nearest centre. Two clusterings of the same names can be almost equally tight and agree very
differently with the kinds (53 and 77 percent of NMI); one run on all names would hide that.
"""

TIES = 1e-6
"""Cosines that differ by less are equal: equal answers share the point."""

RIDGE = 1.0
"""Penalty of the linear probes, times the number of features; these have unit variance."""

N_PARTS = 5
"""Parts of cross-fitting: a probe is measured on items that it was not fitted to."""


class Task(Protocol):
    """A task on the items of one fold."""

    @property
    def name(self) -> str:
        """Name in the table."""
        ...

    @property
    def n(self) -> int:
        """Items."""
        ...

    def strings(self) -> list[str]:
        """Every name that the task needs, maybe repeated."""
        ...

    def measure(self, vectors_of: VectorsOf, n_resamples: int = N_RESAMPLES) -> Figure:
        """Measure an encoder."""
        ...


@dataclass(frozen=True, slots=True)
class Search:
    """Names among which mentions are looked for.

    Attributes:
        name: Base or data set.
        names: (name, entity id).
        mentions: (mention, entity ids that are right).
    """

    name: str
    names: tuple[tuple[str, str], ...]
    mentions: tuple[tuple[str, frozenset[str]], ...]


@dataclass(frozen=True, slots=True)
class SearchTask:
    """How often the nearest name is right: the mean over bases, resampled by entity or by base."""

    name: str
    searches: tuple[Search, ...]
    by_search: bool

    @property
    def n(self) -> int:
        return sum(len(search.mentions) for search in self.searches)

    def strings(self) -> list[str]:
        return [text for search in self.searches for text, _ in (*search.names, *search.mentions)]

    def measure(self, vectors_of: VectorsOf, n_resamples: int = N_RESAMPLES) -> Figure:
        right = [_found(search, vectors_of) for search in self.searches]
        if self.by_search:
            draws = draw_groups(self.name, [search.name for search in self.searches], n_resamples=n_resamples)
            figure = draws.figure(_share(np.array([found.mean() for found in right])))
            return Figure(figure.value, figure.resamples, self.n)
        strata = [search.name for search in self.searches for _ in search.mentions]
        keys = [min(gold) for search in self.searches for _, gold in search.mentions]
        draws = draw_groups(self.name, keys, strata=strata, n_resamples=n_resamples)
        return draws.figure(_share(np.concatenate(right), strata))


def _share(right: Array, strata: Sequence[str] | None = None) -> Outcome:
    """The mean of how right items are, (n,), or the mean over strata of the means within them."""
    of = None if strata is None else np.unique(strata, return_inverse=True)[1]
    return mean_outcome([(np.arange(len(right)), right)], strata=of)


def _found(search: Search, vectors_of: VectorsOf) -> Array:
    """How right the nearest name of each mention is, (n,)."""
    similarity = vectors_of([text for text, _ in search.mentions]) @ vectors_of([name for name, _ in search.names]).T
    right = np.empty(len(search.mentions))
    for i, (row, (_, gold)) in enumerate(zip(similarity, search.mentions, strict=True)):
        first = np.flatnonzero(row >= row.max() - TIES)
        right[i] = sum(search.names[j][1] in gold for j in first) / len(first)
    return right


@dataclass(frozen=True, slots=True)
class RelatednessTask:
    """Pearson's correlation of the cosine with how related two phrases are, resampled by the first phrase.

    Attributes:
        pairs: Two phrases and their relatedness.
    """

    name: str
    pairs: tuple[tuple[str, str, float], ...]

    @property
    def n(self) -> int:
        return len(self.pairs)

    def strings(self) -> list[str]:
        return [phrase for pair in self.pairs for phrase in pair[:2]]

    def measure(self, vectors_of: VectorsOf, n_resamples: int = N_RESAMPLES) -> Figure:
        firsts = [first for first, *_ in self.pairs]
        x = (vectors_of(firsts) * vectors_of([second for _, second, _ in self.pairs])).sum(axis=1).astype(np.float64)
        y = np.array([related for *_, related in self.pairs])
        return draw_groups(self.name, firsts, n_resamples=n_resamples).figure(pearson_outcome(x, y))


@dataclass(frozen=True, slots=True)
class Choice:
    """A question with several answers.

    Attributes:
        plus: Names whose vectors are added.
        minus: Names whose vectors are taken away.
        answers: The right one first.
        group: What is resampled.
    """

    plus: tuple[str, ...]
    minus: tuple[str, ...]
    answers: tuple[str, ...]
    group: str


@dataclass(frozen=True, slots=True)
class ChoiceTask:
    """How often the right answer is the nearest one; all questions have the same number of answers."""

    name: str
    choices: tuple[Choice, ...]

    @property
    def n(self) -> int:
        return len(self.choices)

    def strings(self) -> list[str]:
        return [name for choice in self.choices for name in (*choice.plus, *choice.minus, *choice.answers)]

    def measure(self, vectors_of: VectorsOf, n_resamples: int = N_RESAMPLES) -> Figure:
        def summed(names: Sequence[tuple[str, ...]]) -> FloatArray | float:
            size = len(names[0])
            if not size:
                return 0.0
            total: FloatArray = vectors_of([name for part in names for name in part]).reshape(self.n, size, -1).sum(1)
            return total

        query = summed([choice.plus for choice in self.choices]) - summed([choice.minus for choice in self.choices])
        answers = vectors_of([answer for choice in self.choices for answer in choice.answers])
        cosines = np.einsum("nd,nad->na", query, answers.reshape(self.n, -1, answers.shape[1]))
        firsts = cosines >= cosines.max(axis=1, keepdims=True) - TIES
        draws = draw_groups(self.name, [choice.group for choice in self.choices], n_resamples=n_resamples)
        return draws.figure(_share(firsts[:, 0] / firsts.sum(axis=1)))


@dataclass(frozen=True, slots=True)
class ParaphraseTask:
    """Accuracy of a linear probe that says whether two phrases mean the same; cross-fitted by pair.

    Attributes:
        pairs: Two phrases, and whether they mean the same.
        groups: What is resampled, and stays on one side of cross-fitting.
    """

    name: str
    pairs: tuple[tuple[str, str, bool], ...]
    groups: tuple[str, ...]

    @property
    def n(self) -> int:
        return len(self.pairs)

    def strings(self) -> list[str]:
        return [phrase for first, second, _ in self.pairs for phrase in (first, second)]

    def measure(self, vectors_of: VectorsOf, n_resamples: int = N_RESAMPLES) -> Figure:
        first = vectors_of([phrase for phrase, _, _ in self.pairs])
        second = vectors_of([phrase for _, phrase, _ in self.pairs])
        draws = draw_groups(self.name, self.groups, n_resamples=n_resamples)
        labels = np.array([same for *_, same in self.pairs], dtype=np.int64)
        answers = _cross_fit(np.concatenate([first * second, np.abs(first - second)], axis=1), labels, draws)
        return draws.figure(_share((answers == labels).astype(np.float64)))


@dataclass(frozen=True, slots=True)
class _KindTask:
    """Names and their kinds.

    Attributes:
        names: Distinct names.
        kinds: Kind of each.
        groups: What is resampled: the entity of each name, or the name.
    """

    name: str
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    groups: tuple[str, ...]

    @property
    def n(self) -> int:
        return len(self.names)

    def strings(self) -> list[str]:
        return list(self.names)


@dataclass(frozen=True, slots=True)
class ClusterTask(_KindTask):
    """NMI of k-means with the kinds of names; as many clusters as kinds.

    Attributes:
        counts: How often each name is mentioned; it weighs as much.
    """

    counts: tuple[int, ...]

    def measure(self, vectors_of: VectorsOf, n_resamples: int = N_RESAMPLES) -> Figure:
        from sklearn.cluster import KMeans

        vectors = vectors_of(self.names)
        n_kinds = len(set(self.kinds))
        labels = np.unique(self.kinds, return_inverse=True)[1]
        counts = np.array(self.counts, dtype=np.float64)
        draws = draw_groups(self.name, self.groups, n_resamples=n_resamples)
        values, resamples = [], []
        for seed in range(N_CLUSTERINGS):
            of_group = np.random.default_rng(seed).random((draws.counts.shape[1],))
            fitted = of_group[draws.group] < FITTED
            means = KMeans(n_kinds, n_init=N_STARTS, random_state=seed)
            means.fit(vectors[fitted], sample_weight=counts[fitted])
            found = draws.figure(nmi_outcome(labels, [means.predict(vectors).astype(np.int64)], weights=counts))
            values.append(found.value)
            resamples.append(found.resamples)
        # Each resample draws clusterings with replacement, so that the interval has their chance too.
        drawn = np.random.default_rng(0).integers(N_CLUSTERINGS, size=(n_resamples, N_CLUSTERINGS))
        by_seed = np.stack(resamples, axis=1)
        return Figure(float(np.mean(values)), np.take_along_axis(by_seed, drawn, axis=1).mean(axis=1), self.n)


@dataclass(frozen=True, slots=True)
class TypeTask(_KindTask):
    """Macro-recall of a linear probe for the types of names: the mean over types; cross-fitted by group."""

    def measure(self, vectors_of: VectorsOf, n_resamples: int = N_RESAMPLES) -> Figure:
        labels = np.unique(self.kinds, return_inverse=True)[1]
        draws = draw_groups(self.name, self.groups, n_resamples=n_resamples)
        right = (_cross_fit(vectors_of(self.names), labels, draws) == labels).astype(np.float64)
        return draws.figure(_share(right, self.kinds))


def _cross_fit(features: FloatArray, labels: npt.NDArray[np.int64], draws: Draws) -> npt.NDArray[np.int64]:
    """Answers of a ridge regression to one-hot labels, each by a fit without the item's part, (n,).

    Kinds weigh the same, whatever their number of items.
    """
    scaled = (features - features.mean(axis=0)) / np.maximum(features.std(axis=0), 1e-6)
    x = np.concatenate([scaled, np.ones((len(scaled), 1))], axis=1).astype(np.float64)
    y = (labels[:, None] == np.arange(labels.max() + 1)).astype(np.float64)
    weights = (1 / np.maximum(y.sum(axis=0), 1))[labels]
    weights *= len(weights) / weights.sum()
    part = np.random.default_rng(0).permutation(draws.counts.shape[1])[draws.group] % N_PARTS
    answers = np.zeros(len(x), dtype=np.int64)
    penalty = RIDGE * x.shape[1] * np.eye(x.shape[1])
    for held_out in range(N_PARTS):
        fitted, tested = part != held_out, part == held_out
        weighted = x[fitted] * weights[fitted, None]
        answers[tested] = (
            x[tested] @ np.linalg.solve(weighted.T @ x[fitted] + penalty, weighted.T @ y[fitted])
        ).argmax(1)
    return answers
