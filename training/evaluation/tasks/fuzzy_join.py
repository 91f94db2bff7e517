"""Fuzzy join (AutoFJ): accuracy of the nearest left title for each right title that has a match.

The figure is accuracy@1 in each set, then the mean over sets. `autofj_typos` adds one random character edit to each
right title; each seed has other edits.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from pearl_qdrant.errors import FormatError
from training.evaluation.data import Data
from training.evaluation.methods import Similarity
from training.evaluation.outcome import FloatArray, IntArray, Outcome, mean_outcome
from training.evaluation.paper import paper_figures
from training.evaluation.task import EvaluationOptions, Task

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def one_edit(name: str, rng: random.Random) -> str:
    """The name with one character swapped with the next, deleted, inserted, or replaced.

    The result differs from the name and is not blank. An empty name stays empty.
    """
    if not name:
        return name
    while True:
        at = rng.randrange(len(name))
        edit = rng.choice(("swap", "delete", "insert", "substitute"))
        if edit == "swap":
            edited = name[:at] + name[at + 1 : at + 2] + name[at] + name[at + 2 :]
        elif edit == "delete":
            edited = name[:at] + name[at + 1 :]
        else:
            edited = name[:at] + rng.choice(_LETTERS) + name[at + (edit == "substitute") :]
        if edited.strip() and edited != name:
            return edited


_READS = ("autofj/left.tsv", "autofj/right.tsv", "autofj/gt.tsv")


@dataclass(frozen=True, slots=True)
class _Join:
    """One set: all left titles, the right titles with a match, and the correct left titles for each of these."""

    left: list[str]
    right: list[str]
    gold: list[frozenset[str]]


def _joins(data: Data) -> list[_Join]:
    """The sets with at least one match, in alphabetical order."""
    left: dict[str, list[str]] = {}
    for name, title in data.rows(_READS[0], "dataset", "title"):
        left.setdefault(name, []).append(title)
    gold: dict[tuple[str, str], set[str]] = {}
    for name, title_l, title_r in data.rows(_READS[2], "dataset", "title_l", "title_r"):
        gold.setdefault((name, title_r), set()).add(title_l)
    right: dict[str, list[str]] = {}
    for name, title in data.rows(_READS[1], "dataset", "title"):
        if (name, title) in gold:
            right.setdefault(name, []).append(title)
    if not right or not right.keys() <= left.keys():
        raise FormatError(_READS[2], None, "no right title has a match, or a set has no left titles.")
    return [
        _Join(left[name], titles, [frozenset(gold[name, title]) for title in titles])
        for name, titles in sorted(right.items())
    ]


def _score_joins(joins: list[_Join], method: Similarity, rng: random.Random | None) -> FloatArray:
    """1 for each right title whose nearest left title is correct, else 0; with `rng`, each title has one edit."""
    correct: list[bool] = []
    for join in joins:
        mentions = [one_edit(title, rng) for title in join.right] if rng else join.right
        found = method.nearest(mentions, join.left).tolist()
        correct += [join.left[i] in gold for i, gold in zip(found, join.gold, strict=True)]
    return np.array(correct, dtype=np.float64)


def _strata(joins: list[_Join]) -> IntArray:
    strata: IntArray = np.repeat(np.arange(len(joins)), [len(join.right) for join in joins])
    return strata


def _without_typos(data: Data, method: Similarity, options: EvaluationOptions) -> Outcome:
    joins = _joins(data)
    strata = _strata(joins)
    correct = _score_joins(joins, method, None)
    return mean_outcome([(np.arange(len(strata)), correct)], strata=strata, details={"n_sets": len(joins)})


def _with_typos(data: Data, method: Similarity, options: EvaluationOptions) -> Outcome:
    joins = _joins(data)
    strata = _strata(joins)
    items = np.arange(len(strata))
    by_seed = [(items, _score_joins(joins, method, random.Random(seed))) for seed in range(options.n_seeds)]
    outcome = mean_outcome(by_seed, strata=strata)
    without = mean_outcome([(items, _score_joins(joins, method, None))], strata=strata).value
    return mean_outcome(by_seed, strata=strata, details={"without_typos": without, "fall": without - outcome.value})


TASKS = (
    Task(
        "autofj",
        "AutoFJ",
        "Fuzzy Join",
        "accuracy@1, mean over sets",
        "similarity",
        _READS,
        _without_typos,
        paper_figures("autofj"),
        True,
    ),
    Task(
        "autofj_typos",
        "AutoFJ typos",
        "Fuzzy Join",
        "accuracy@1 with a typo in each mention",
        "similarity",
        _READS,
        _with_typos,
    ),
)
