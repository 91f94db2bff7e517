"""Linking: accuracy of the first entity of each mention, and reliability of the linker's probabilities.

    linking_autofj            right titles against the left titles of each fuzzy join; the mean over the joins
    linking_BASE              aliases against a base of canonical names only
    linking_BASE_left_out     aliases against the whole base, without the mention's own string on its entity

The figure is accuracy@1 on mentions that have an entity, before NIL; n tied first entities count 1/n each. The linker
has more figures: accuracy@5, recall@64, milliseconds a mention; and for each share of NIL mentions, precision and
coverage at its threshold, ECE with its interval, Brier score, AUROC, and F1 of NIL, all in percent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from pearl_qdrant.linking.calibration.metrics import Samples
from pearl_qdrant.linking.mention_kinds import KINDS, MadeMention
from training.evaluation.data import Data, OwnBase
from training.evaluation.linking_methods import Answers, Dense, ExactNames, Linker, ScoredNames, made_mentions
from training.evaluation.linking_sets import (
    Base,
    LinkingSet,
    Protocol,
    expected_accuracies,
    read_base,
    read_joins,
    read_set,
    reliability_details,
)
from training.evaluation.methods import Need
from training.evaluation.outcome import Outcome, mean_outcome
from training.evaluation.task import Task
from training.options import EvaluationOptions

LINKING = "linking"
"""Name that stands for all linking tasks."""

_JOINS = ("autofj/left.tsv", "autofj/right.tsv", "autofj/gt.tsv")
_ONTOLOGIES = ("doid", "go", "uberon", "mondo", "ordo", "cl", "chebi", "pato")
_PAIRS = {"fb15k": "alias_pairs/fb15k_wikidata_alias_pairs.tsv", "geonames": "alias_pairs/geonames_alias_pairs.tsv"}

Run = Callable[[Data, Any, EvaluationOptions], Outcome]


def _run(read: Callable[[Data, EvaluationOptions], list[LinkingSet]]) -> Run:
    cached = lru_cache(maxsize=1)(read)  # once for all methods of a run

    def run(data: Data, method: Linker | Dense | ExactNames | ScoredNames, options: EvaluationOptions) -> Outcome:
        sets = cached(data, options)
        rankings = [method.rank(one) for one in sets]
        accuracies = expected_accuracies(sets, rankings)
        strata = np.repeat(np.arange(len(sets)), [len(one.queries) for one in sets]) if len(sets) > 1 else None
        details: dict[str, float] = {"accuracy_5": 100 * float(expected_accuracies(sets, rankings, 5).mean())}
        if isinstance(method, Linker):
            details |= _linker_details(sets, method, options.nil_shares)
        return mean_outcome([(np.arange(len(accuracies)), accuracies)], strata=strata, details=details)

    return run


def _linker_details(sets: list[LinkingSet], method: Linker, nil_shares: Sequence[float]) -> dict[str, float]:
    outputs, sizes = [method.output(one) for one in sets], [len(one.queries) for one in sets]
    samples = Samples.joined([known for _, known, _ in outputs])
    nil_samples = Samples.joined([unknown for _, _, unknown in outputs])
    figures = reliability_details(samples, nil_samples, method.calibration, nil_shares)
    recall = 100 * float(np.average([method.recall(one) for one in sets], weights=sizes))
    milliseconds = float(np.average([method.milliseconds(one) for one in sets], weights=sizes))
    return {"recall_64": recall, **figures, "milliseconds": milliseconds}


def linking_task(name: str, base: str, pairs: str | None, protocol: Protocol, needs: Need = "linking") -> Task:
    """A task that links the aliases of a base, or those of a table of pairs."""

    def read(data: Data, options: EvaluationOptions) -> list[LinkingSet]:
        return [read_set(data, base, table=pairs, protocol=protocol, options=options)]

    is_canonical = protocol == "canonical"
    return Task(
        name=f"linking_{name}" if is_canonical else f"linking_{name}_left_out",
        head=name,
        group="Linking, canonical names only" if is_canonical else "Linking, own string excluded",
        metric="accuracy@1",
        needs=needs,
        reads=(base, pairs) if pairs else (base,),
        run=_run(read),
    )


def own_base_tasks(name: str) -> tuple[Task, ...]:
    """The tasks for a base of the user's own, given by name: one for each protocol."""
    return linking_task(name, name, None, "canonical"), linking_task(name, name, None, "left_out")


def _tasks(protocol: Protocol) -> list[Task]:
    large = [linking_task(name, "kb/general.tsv", pairs, protocol, "large_linking") for name, pairs in _PAIRS.items()]
    own = [linking_task(name, f"kb/biomedical/{name}*.tsv", None, protocol) for name in _ONTOLOGIES]
    return [*large, *own]


_JOIN_TASK = Task(
    "linking_autofj",
    "AutoFJ",
    "Linking, titles",
    "accuracy@1, mean over sets",
    "linking",
    _JOINS,
    _run(lambda data, _: read_joins(data)),
)

LINKING_TASKS = (_JOIN_TASK, *_tasks("canonical"), *_tasks("left_out"))


EVERYDAY = "everyday"
"""Name that stands for all tasks of this module."""


_EVERYDAY_BASES = ("doid", "go", "uberon", "mondo")


def _run_everyday(pattern: str) -> Run:
    @lru_cache(maxsize=1)
    def made(data: Data, n_mentions: int) -> tuple[Base, tuple[MadeMention, ...]]:
        path = data.paths(pattern)[0]
        entities = data.entities if isinstance(data, OwnBase) else tuple(read_base(data, path).values())
        base = Base(path.removesuffix(".tsv").replace("/", "-"), entities)
        return base, made_mentions(base, n_mentions)

    def run(data: Data, method: Any, options: EvaluationOptions) -> Outcome:
        base, mentions = made(data, options.n_mentions)
        return as_outcome(mentions, method.answer(mentions, base))

    return run


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
    return Task(
        f"{EVERYDAY}_{name}",
        name,
        "Everyday mentions",
        "right answers, mean over kinds",
        "everyday",
        (base,),
        _run_everyday(base),
    )


EVERYDAY_TASKS = tuple(everyday_task(name, f"kb/biomedical/{name}*.tsv") for name in _EVERYDAY_BASES)
