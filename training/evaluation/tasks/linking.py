"""Linking: accuracy of the first entity of each mention, and reliability of the linker's probabilities.

    linking_autofj            right titles against the left titles of each fuzzy join; the mean over the joins
    linking_BASE              aliases against a base of canonical names only
    linking_BASE_left_out     aliases against the whole base, without the mention's own string on its entity

The figure is accuracy@1 on mentions that have an entity, before NIL; n tied first entities count 1/n each. The linker
has more figures: accuracy@5, recall@64, milliseconds a mention; and for each share of NIL mentions, precision and
coverage at its threshold, ECE with its interval, Brier score, AUROC, and F1 of NIL, all in percent.

Cost: encoding of the bases dominates (`kb/general.tsv` twice); they can be kept. Peers compare each mention with every
name.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pearl_qdrant.linking.calibration.samples import Samples
from training.evaluation.data import Data
from training.evaluation.linking.methods import Linker, LinkingMethod
from training.evaluation.linking.sets import (
    LinkingSet,
    Protocol,
    SetSource,
    expected_accuracies,
    read_joins,
    read_set,
    reliability_details,
)
from training.evaluation.methods import Need
from training.evaluation.outcome import Outcome, mean_outcome
from training.evaluation.task import EvaluationOptions, LinkingOptions, Task

GROUP = "linking"
"""Name that stands for all linking tasks."""

_JOINS = ("autofj/left.tsv", "autofj/right.tsv", "autofj/gt.tsv")
_ONTOLOGIES = ("doid", "go", "uberon", "mondo", "ordo", "cl", "chebi", "pato")
_PAIRS = {
    "fb15k": "alias_pairs/fb15k_wikidata_alias_pairs.tsv",
    "geonames": "alias_pairs/geonames_alias_pairs.tsv",
}

Read = Callable[[Data, LinkingOptions], list[LinkingSet]]


class _CachedSets:
    """Reads the sets of a task once for all methods of a run."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._last: tuple[Data, LinkingOptions, list[LinkingSet]] | None = None

    def __call__(self, data: Data, options: LinkingOptions) -> list[LinkingSet]:
        if self._last is None or self._last[0] is not data or self._last[1] != options:
            self._last = data, options, self._read(data, options)
        return self._last[2]


def _run(read: Read) -> Callable[[Data, LinkingMethod, EvaluationOptions], Outcome]:
    cached = _CachedSets(read)

    def run(data: Data, method: LinkingMethod, options: EvaluationOptions) -> Outcome:
        sets = cached(data, options.linking)
        rankings = [method.rank(one) for one in sets]
        accuracies = expected_accuracies(sets, rankings)
        strata = np.repeat(np.arange(len(sets)), [len(one.queries) for one in sets]) if len(sets) > 1 else None
        details: dict[str, float] = {"accuracy_5": 100 * float(expected_accuracies(sets, rankings, 5).mean())}
        if isinstance(method, Linker):
            details |= _linker_details(sets, method, options.linking)
        return mean_outcome([(np.arange(len(accuracies)), accuracies)], strata=strata, details=details)

    return run


def _linker_details(sets: list[LinkingSet], method: Linker, options: LinkingOptions) -> dict[str, float]:
    samples, nil_samples, hits, milliseconds, n = [], [], 0.0, 0.0, 0
    for one in sets:
        output = method.output(one)
        samples.append(output.samples)
        nil_samples.append(output.nil_samples)
        n += len(one.queries)
        hits += method.recall(one) * len(one.queries)
        milliseconds += method.milliseconds(one) * len(one.queries)
    figures = reliability_details(
        Samples.joined(samples), Samples.joined(nil_samples), method.calibration, options.nil_shares
    )
    return {"recall_64": 100 * hits / n, **figures, "milliseconds": milliseconds / n}


def _join_task() -> Task:
    def read(data: Data, options: LinkingOptions) -> list[LinkingSet]:
        return read_joins(data)

    metric = "accuracy@1, mean over sets"
    return Task("linking_autofj", "AutoFJ", "Linking, titles", metric, "linking", _JOINS, _run(read))


def linking_task(name: str, base: str, pairs: str | None, protocol: Protocol, needs: Need = "linking") -> Task:
    """A task that links the aliases of a base, or those of a table of pairs."""
    source = SetSource(base, pairs, protocol)

    def read(data: Data, options: LinkingOptions) -> list[LinkingSet]:
        return [read_set(data, source, options)]

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


TASKS = (_join_task(), *_tasks("canonical"), *_tasks("left_out"))
