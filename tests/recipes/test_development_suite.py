"""The development suite: folds, intervals, and whether a worse encoder is found below its start."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
from development_suite import Figures, as_table, compare, measure
from development_tasks.figures import draw_groups
from development_tasks.readers import fold_of
from development_tasks.tasks import (
    Choice,
    ChoiceTask,
    ClusterTask,
    FloatArray,
    ParaphraseTask,
    RelatednessTask,
    Search,
    SearchTask,
    Task,
    TypeTask,
)

from training.evaluation.outcome import mean_outcome

N, DIM = 60, 12


def name_of(kind: int, i: int, form: str) -> str:
    """A name of entity `i`, whose kind is one of three, in one of its forms."""
    return f"{kind}/{i}/{form}"


def unit(vectors: FloatArray) -> FloatArray:
    """Vectors of length 1."""
    found: FloatArray = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return found


def encode(names: Sequence[str], *, noise: float) -> FloatArray:
    """Vectors of the entity and of its kind, with noise of the name's own."""
    rows = []
    for name in names:
        kind, i, _ = name.split("/")
        ours = np.random.default_rng(int(i)).normal(size=DIM)
        ours[int(kind)] += 4
        rows.append(ours + noise * np.random.default_rng(sum(map(ord, name)) * 1000 + int(i)).normal(size=DIM))
    return unit(np.array(rows, dtype=np.float32))


def some_tasks() -> list[Task]:
    """One task of each sort."""
    rng = random.Random(0)
    ids = [(i % 3, i) for i in range(N)]
    pairs = tuple(
        (name_of(*one, "a"), name_of(*other, "b"), float(one == other))
        for one in ids
        for other in (one, rng.choice(ids))
        if one == other or one[0] != other[0]
    )
    names = tuple((name_of(*one, "a"), str(one[1])) for one in ids)
    mentions = tuple((name_of(*one, "b"), frozenset([str(one[1])])) for one in ids)
    searches = tuple(Search(f"set {j}", names, mentions[j::6]) for j in range(6))
    choices = tuple(
        Choice((name_of(*one, "a"),), (), (name_of(*one, "b"), name_of(*ids[one[1] - 1], "b")), str(one[1]))
        for one in ids
    )
    all_names, kinds = tuple(name for name, _ in names), tuple(str(kind) for kind, _ in ids)
    return [
        SearchTask("aliases", searches, by_search=False),
        SearchTask("joins", searches, by_search=True),
        RelatednessTask("relatedness", pairs),
        ChoiceTask("choices", choices),
        ParaphraseTask("paraphrases", tuple((a, b, r > 0) for a, b, r in pairs), tuple(a for a, *_ in pairs)),
        ClusterTask("clusters", all_names, kinds, all_names, (1,) * N),
        TypeTask("types", all_names, kinds, all_names),
    ]


@cache
def figures_of(noise: float) -> Figures:
    """Figures of an encoder with some noise."""
    return measure(lambda names: encode(names, noise=noise), {1: some_tasks()}, n_resamples=200)[1]


def test_a_model_beside_itself_has_score_zero() -> None:
    """A model that is its own start has a difference of 0 on every task, and is below on none."""
    found = compare(figures_of(0.3), figures_of(0.3))

    assert found.score == found.low == found.size == 0
    assert found.below == []
    assert all(one.points == one.low == one.high == 0 for one in found.differences)


def test_a_worse_model_is_found_below() -> None:
    """A model with much noise is below its start on every task, and the start is above it."""
    good, bad = figures_of(0.3), figures_of(6)

    worse, better = compare(bad, good), compare(good, bad)

    assert set(worse.below) == set(good)
    assert worse.low < worse.score < -2
    assert better.below == []
    assert better.low > 2


def test_a_loss_on_one_task_is_not_hidden_by_the_mean() -> None:
    """A model that falls on one task alone is named with this task, whatever its score."""
    good, bad = figures_of(0.3), figures_of(3)

    found = compare({**good, "clusters": bad["clusters"]}, {**bad, "clusters": good["clusters"]})

    assert found.score > 0
    assert found.below == ["clusters"]
    assert "below the start: clusters" in as_table(found)[-1]


def test_the_interval_of_a_mean_is_that_of_the_formula() -> None:
    """The interval of a share agrees with the binomial standard error."""
    right = np.array([1.0] * 60 + [0.0] * 40)
    draws = draw_groups("share", [str(i) for i in range(100)], n_resamples=4000)

    figure = draws.figure(mean_outcome([(np.arange(100), right)]))

    assert figure.value == 60
    assert figure.resamples.std() == pytest.approx(100 * np.sqrt(0.6 * 0.4 / 99), rel=0.05)


def test_items_of_a_group_are_drawn_together() -> None:
    """Ten rows of one entity say no more than one: the interval is as wide as with one row each."""
    right = np.tile([1.0, 0.0], 20)
    once = draw_groups("once", [str(i) for i in range(40)], n_resamples=4000)
    ten_times = draw_groups("once", [str(i) for i in range(40) for _ in range(10)], n_resamples=4000)

    narrow = once.figure(mean_outcome([(np.arange(40), right)]))
    wide = ten_times.figure(mean_outcome([(np.arange(400), np.repeat(right, 10))]))

    assert wide.resamples == pytest.approx(narrow.resamples)


def test_strata_keep_their_numbers() -> None:
    """Each resample has as many groups of a base as the base has."""
    strata = ["small"] * 5 + ["large"] * 50
    draws = draw_groups("strata", [str(i) for i in range(55)], strata=strata, n_resamples=50)

    assert (draws.counts[:, draws.group[:5]].sum(axis=1) == 5).all()


def test_equal_answers_share_the_point() -> None:
    """A mention that is as near to two names has half a point."""
    search = Search("base", (("0/1/a", "1"), ("0/1/a", "2"), ("1/2/a", "3")), (("0/1/b", frozenset(["1"])),) * 2)
    other = Search("other", search.names, search.mentions)

    task = SearchTask("ties", (search, other), by_search=True)
    found = measure(lambda names: encode(names, noise=0), {1: [task]}, n_resamples=100)[1]

    assert found["ties"].value == 50


def test_development_splits_are_the_two_folds() -> None:
    """Items of split 7 are fold 1, those of split 8 fold 2, and any item is in one of both."""
    from training.examples.example import split_of

    keys = [str(i) for i in range(200)]

    assert {split_of(key): fold_of(key) for key in keys if split_of(key) in (7, 8)} == {7: 1, 8: 2}
    assert {fold_of(key) for key in keys} == {1, 2}
