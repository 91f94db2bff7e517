"""Everyday mentions: what becomes of every kind of mention that people type, for the linker and for what they use now.

    everyday_BASE    mentions made from a base, equally many of each kind (`pearl_qdrant.linking.mention_kinds`)

An answer is right if it is the entity of the mention, or NIL where there is none; wrong if it is another entity. The
figure is the share of right answers, the mean over the kinds. The details have, for each kind, the shares of right,
wrong and NIL answers in percent and the number of mentions, then milliseconds a mention and the cutoffs of a method.

The linker answers at its defaults, without calibration. Its ranking was fitted on mixtures of the same kinds, made from
other bases.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pearl_qdrant.linking.mention_kinds.kinds import KINDS
from pearl_qdrant.linking.mention_kinds.make import MadeMention
from training.evaluation.data import Data, OwnBase
from training.evaluation.linking.methods import EverydayMethod, EverydaySet, make_set
from training.evaluation.linking.peers import Answers
from training.evaluation.linking.sets import Base, read_base
from training.evaluation.outcome import Outcome, mean_outcome
from training.evaluation.task import EvaluationOptions, Task

GROUP = "everyday"
"""Name that stands for all tasks of this module."""

TITLE = "Everyday mentions"

_ONTOLOGIES = ("doid", "go", "uberon", "mondo")


def _run(pattern: str) -> Callable[[Data, EverydayMethod, EvaluationOptions], Outcome]:
    """Runs all methods on one set, which is made once for each base and number of mentions."""
    made: list[tuple[Data, int, EverydaySet]] = []

    def run(data: Data, method: EverydayMethod, options: EvaluationOptions) -> Outcome:
        n_mentions = options.linking.n_mentions
        if not made or made[0][0] is not data or made[0][1] != n_mentions:
            made[:] = [(data, n_mentions, make_set(_read(data, pattern), n_mentions))]
        one = made[0][2]
        return as_outcome(one.mentions, method.answer(one.mentions, one.base))

    return run


def _read(data: Data, pattern: str) -> Base:
    """The base of a task."""
    path = data.paths(pattern)[0]
    if isinstance(data, OwnBase):
        return Base(path, data.entities)
    return Base(path.removesuffix(".tsv").replace("/", "-"), tuple(read_base(data, path).values()))


def as_outcome(mentions: tuple[MadeMention, ...], answers: Answers) -> Outcome:
    """The outcome of the answers to mentions; see the module."""
    order = {kind.name: number for number, kind in enumerate(KINDS)}
    kinds = np.array([order[one.kind] for one in mentions], dtype=np.int64)
    pairs = list(zip(mentions, answers.entity_ids, strict=True))
    right = np.array([answer == one.entity_id for one, answer in pairs], dtype=np.float64)
    nil = np.array([answer is None for _, answer in pairs], dtype=np.float64)
    details: dict[str, float] = {}
    for name, number in order.items():
        rows = kinds == number
        if rows.any():
            details |= {
                f"{name}/n": float(rows.sum()),
                f"{name}/right": 100 * float(right[rows].mean()),
                f"{name}/wrong": 100 * float(((1 - right) * (1 - nil))[rows].mean()),
                f"{name}/nil": 100 * float(nil[rows].mean()),
            }
    details["milliseconds"] = answers.milliseconds
    details |= {f"cutoff_{half}": cutoff for half, cutoff in enumerate(answers.cutoffs, 1) if np.isfinite(cutoff)}
    return mean_outcome([(np.arange(len(mentions)), right)], strata=kinds, details=details)


def everyday_task(name: str, base: str) -> Task:
    """The task for a base."""
    return Task(f"{GROUP}_{name}", name, TITLE, "right answers, mean over kinds", "everyday", (base,), _run(base))


TASKS = tuple(everyday_task(name, f"kb/biomedical/{name}*.tsv") for name in _ONTOLOGIES)
