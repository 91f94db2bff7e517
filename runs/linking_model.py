"""The recipe of `pearl_qdrant/linking/ranking/ranking.json`: the coefficients that score candidates and decide.

    python runs/linking_model.py --data FOLDER --wordnet FOLDER --work FOLDER \
        --out pearl_qdrant/linking/ranking/ranking.json

--wordnet is the `dict` folder of WordNet 3.0 (Debian: wordnet-base). --data has `real/`, `autofj/`, `kb/`, `context/`
and `alias_pairs/` (TSV with a header). Bases, of 50 to 451,518 entities, are loaded into an embedded store in
--work and their mentions scored once; both are kept there. There are these sorts of tasks:

    real        sets that others made: names with the answers of curators, and names without an entity
    autofj      titles that mean the same; all of AutoFJ, since no other part of the model uses it
    biomedical, general
                real aliases of the development splits (`training.examples.example`). Bases have canonical names only,
                or all names without the mention's own string
    world       English names of countries, languages, cities and places, and held-out names of them in other languages
                (`multilingual.tasks`; packages of the extra `names`)
    everyday    seven bases with all their names, and mentions of every kind made from them, one task for each
                (`linking.mention_kinds`); of the general base a part, and all of it
    small       parts of these bases of 300 and 3,000 entities, with mentions made from them
    absent      names of entities that these parts lack, half of which share a word with a name of the part
    near        names of these bases and of WordNet with a known word an edit or two from that of a name that stays
    other, same made differences over the names of the real sets (`training.judge.differences`): another thing by a word
                more or another number; and the same, with a slip or its own type
    cut, list   names whose longer words are cut short: `N. Engl. J. Med.`; organisations within an address

A fifth of the mentions of the second, third and last two sorts is made NIL: every entity that shares a folded name with
the right one is excluded. `WEIGHTS` and `SHARES` say how much each sort and kind counts.

The printed figures are cross-fitted: each task is scored by a model that was fitted without its base, and without the
bases that cover the same things; with --judges, real sets by judges that did not learn from their trade
(`judge_examples.py --fold`). Trees are written to decision.npz beside OUT. The run takes about an hour on two cores.
"""

from __future__ import annotations

import json
import logging
import pickle
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from linking_bases import Base, bases, judge_folds, trade_of
from ranking_fit import (
    Task,
    accuracy_at_1,
    accuracy_of_fusion,
    fit_ranking,
    judge_again,
    right_and_wrong,
    single_feature,
    to_task,
)
from recipe_tables import page_option, write_rows

from ingest.base.format import ReadOptions, TableColumns
from ingest.load_base import load_base
from pearl_qdrant.cells import join_list
from pearl_qdrant.encoder.judge import NameJudge
from pearl_qdrant.encoder.loading import find_model, load_encoder
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.linking.mention_kinds import KINDS, NamedEntity, NameOwners, make_mentions
from pearl_qdrant.linking.ranking.model import RankingModel, shipped_model
from pearl_qdrant.store.open import open_store
from pearl_qdrant.store.protocol import Store
from pearl_qdrant.store.schema import NamePoint

NIL_SHARE = 0.2
PER_KIND = 250
"""Everyday mentions of each kind and base, at most."""
PER_SMALL_KIND = 60
WEIGHTS = {
    "real": (200.0, 800.0),
    "world": (1.5, 24.0),
    "autofj": (0.0, 0.0),  # the judge learns from them
    "biomedical": (1.5, 0.5),
    "general": (2.0, 1.0),
    "everyday": (3.0, 8.0),
    "small": (1.5, 9.0),
    "absent": (0.0, 1.0),
    "near": (0.0, 1.5),
    "other": (0.0, 40.0),
    "same": (0.0, 50.0),
    "cut": (0.5, 8.0),
    "list": (0.5, 15.0),
}
"""Weights of each sort of task, in the ranking and in the decision, divided among its bases."""
SHARES = {kind.name: kind.share for kind in KINDS} | {
    "one slip": 6.0,
    "two slips": 3.6,
    "in words": 0.15,
    "nil removed": 0.5,
    "nil sibling": 0.08,
    "nil brackets": 0.6,
    "nil word more": 0.05,
    "nil number": 0.1,
    "nil first name": 0.2,
}
SMALL_SHARES = {kind.name: kind.share for kind in KINDS} | {
    "one slip": 3.6,
    "two slips": 2.4,
    "in words": 0.15,
    "alias": 5.0,
    "nil removed": 0.12,
    "nil sibling": 0.8,
    "nil brackets": 2.5,
    "nil word more": 2.0,
    "nil number": 0.8,
    "nil first name": 2.0,
}
"""Weights of the kinds of made mentions: what must not be linked counts for more, most of all in small bases."""
L2 = 1e-4
SAME_FIELD = {**dict.fromkeys(("doid_2024", "mondo_2026", "ordo_2018"), "diseases"), "general_whole": "general"}
"""Bases that cover the same things are left out together."""

PAGE_ALIASES = {
    "autofj, mean of its sets": "AutoFJ titles, mean of 20 sets",
    "general:fb15k_wikidata:60000": "Wikidata aliases, 60,000 names",
    "general:geonames:60000": "GeoNames aliases, 60,000 names",
    "biomedical:doid_2024": "exact synonyms, Disease Ontology",
    "biomedical:uberon_mondo_import": "exact synonyms, Uberon",
    "biomedical:go_2022": "exact synonyms, Gene Ontology",
}
"""What a page calls bases."""

_log = logging.getLogger("linking_model")


def collection_of(base: Base) -> str:
    """The collection of a base; sorts of mentions that are made from one base share that of everyday mentions."""
    sort_of, _, stem = base.name.partition(":")
    if sort_of == "absent":
        return f"small-{stem}"
    is_whole = not stem.endswith("_part")
    if sort_of in _OF_REAL:
        return f"real-{stem}"
    return f"everyday-{stem}" if sort_of in _OF_EVERYDAY and is_whole else base.name.replace(":", "-")


_OF_EVERYDAY = ("near", "cut", "list")
_OF_REAL = ("other", "same")


def load(base: Base, store: Store, encoder: Encoder, work: Path) -> str:
    """Load a base into the store, unless it is there; returns the collection's name."""
    name = collection_of(base)
    if name in store.collections():
        existing = store.open(name)
        is_complete = existing.manifest.state == "ready"
        existing.close()
        if is_complete:
            return name
        store.delete(name)
    path = work / f"{name}.tsv"
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write("id\tname\ttype\taliases\n")
        for row in base.rows:
            aliases = join_list(row.aliases)
            file.write(f"{row.entity_id}\t{row.name}\t{row.types}\t{aliases if base.has_aliases else ''}\n")
    options = ReadOptions(columns=TableColumns())
    load_base(path, name, store=store, model=encoder, kind="tsv", options=options, max_errors=None)
    return name


def score_base(base: Base, location: Path, model: str) -> list[Task]:
    """Score the mentions of a base that is loaded; of aliases, a share is made NIL."""
    rng = random.Random(base.name)
    names = {row.entity_id: {fold_name(name) for name in (row.name, *row.aliases)} for row in base.rows}
    sort_of = base.name.partition(":")[0]
    excluded: list[set[str]] = []
    gold = []
    for _, ids in base.mentions:
        is_nil = sort_of == "near" or (sort_of not in ("real", *_OF_REAL) and rng.random() < NIL_SHARE)
        excluded.append(set().union(*(names.get(i, set()) for i in ids)) if is_nil else set())
        gold.append(frozenset() if is_nil else ids)
    own = [(fold_name(mention), ids) for mention, ids in base.mentions]

    def exclude(number: int, point: NamePoint) -> bool:
        if excluded[number] and not names[point.entity_id].isdisjoint(excluded[number]):
            return True
        string, ids = own[number]
        is_own = base.has_aliases and sort_of not in ("real", *_OF_REAL, *_OF_EVERYDAY) and point.entity_id in ids
        return is_own and fold_name(point.name) == string

    with EntityLinker.open(collection_of(base), store=str(location), model=model) as linker:
        scored = list(linker.score_batch([mention for mention, _ in base.mentions], exclude=exclude))
    return [to_task(base.name, scored, gold)]


def score_made(base: Base, location: Path, model: str) -> list[Task]:
    """Make mentions of every kind and score them; one task a kind."""
    entities = [
        NamedEntity(row.entity_id, tuple(dict.fromkeys((row.name, *row.aliases))), (row.types,) if row.types else ())
        for row in base.rows
    ]
    is_small = base.name.startswith("small:")
    owners = NameOwners((entity.entity_id, name) for entity in entities for name in entity.names)
    made = make_mentions(entities, owners, per_kind=PER_SMALL_KIND if is_small else PER_KIND)

    def exclude(number: int, point: NamePoint) -> bool:
        return made[number].excludes(point.entity_id, point.name)

    with EntityLinker.open(collection_of(base), store=str(location), model=model) as linker:
        scored = list(linker.score_batch([one.mention for one in made], exclude=exclude))
    tasks = []
    for kind in KINDS:
        rows = [i for i, one in enumerate(made) if one.kind == kind.name]
        gold = [frozenset((made[i].entity_id or "",)) - {""} for i in rows]
        if rows:
            tasks.append(to_task(f"{base.name}:{kind.name}", [scored[i] for i in rows], gold))
    return tasks


def weighted(tasks: Sequence[Task]) -> list[Task]:
    """The tasks with the weights of their sorts, bases and kinds."""
    bases: dict[str, set[str]] = {}
    for task in tasks:
        bases.setdefault(sort(task), set()).add(base_of(task))
    found = []
    for task in tasks:
        ranking, decision = WEIGHTS[sort(task)]
        shares = {"everyday": SHARES, "small": SMALL_SHARES}.get(sort(task))
        part = (1.0 if shares is None else shares[task.name.rpartition(":")[2]]) / len(bases[sort(task)])
        found.append(replace(task, weight=ranking * part, decision_weight=decision * part))
    return found


def sort(task: Task) -> str:
    """The sort of a task."""
    return task.name.partition(":")[0]


def base_of(task: Task) -> str:
    """The base of a task; made mentions have a task for each kind of one base."""
    return task.name.rpartition(":")[0] if sort(task) in ("everyday", "small") else task.name


def figures(tasks: Sequence[Task], models: dict[str, RankingModel]) -> dict[str, list[float]]:
    """For each base, AutoFJ's as one: accuracy@1 by the model named after the task, and of what it is made from; right,
    wrong and absent; in percent.
    """
    rows: dict[str, list[tuple[float, ...]]] = {}
    for task in tasks:
        name = task.name if sort(task) != "autofj" else "autofj, mean of its sets"
        singles = (accuracy_at_1(task, single_feature(feature), has_rules=False) for feature in ("dense", "lexical"))
        model = models[task.name]
        decided = answered(task, model)
        rows.setdefault(name, []).append((accuracy_at_1(task, model), *singles, accuracy_of_fusion(task), *decided))
    return {
        name: [100 * sum(column) / len(found) for column in zip(*found, strict=True)] for name, found in rows.items()
    }


def report(found: dict[str, list[float]]) -> Iterator[str]:
    """A line a base."""
    yield f"{'accuracy@1, %':44} linker  dense  n-grams  RRF  right / wrong / absent"
    for name, means in found.items():
        scores = f"{name:44} {means[0]:6.1f} {means[1]:6.1f} {means[2]:8.1f} {means[3]:5.1f}"
        yield f"{scores} {means[4]:6.1f} /{means[5]:5.1f} /{means[6]:5.1f}"


def answered(task: Task, model: RankingModel) -> tuple[float, float, float]:
    """Shares of the mentions with a right answer, NIL too; with a wrong link; and linked though absent."""
    right, wrong = right_and_wrong(task, model)
    share = float(task.is_nil.mean())
    absent = share * right_and_wrong(task.take(task.is_nil), model)[1] if share else 0.0
    return right + share - absent, wrong - absent, absent


def field(task: Task) -> str:
    """What bases that cover the same things share."""
    of, stem, *_ = task.name.removesuffix("+aliases").split(":")
    if of in ("autofj", "real", *_OF_REAL):
        return "real" if of in _OF_REAL else of
    stem = stem.removesuffix("_part")
    stem = re.sub(r"_\d+_\d+$", "", stem) if of in ("small", "absent") else stem
    return SAME_FIELD.get(stem, "general" if of == "general" else stem)


def set_of(task: Task) -> str:
    """The name of the set of a task over a set that others made."""
    return task.name.partition(":")[2]


def fit(tasks: Sequence[Task]) -> RankingModel:
    """Fit the coefficients to weighted tasks."""
    return fit_ranking(weighted(tasks), l2=L2)


def judged(tasks: Sequence[Task], model: str, judges: Path | None) -> list[Task]:
    """The tasks with the scores of the judge of today, which are not kept; real sets with those of judges that did not
    learn from their trade. The shipped judge learned from all sets: by its scores no fit is honest.
    """
    folds = judge_folds([set_of(task) for task in tasks if sort(task) == "real"])
    folder, ranking = find_model(model).folder, shipped_model().features
    shipped = NameJudge(folder)
    several = {
        fold: shipped if judges is None else NameJudge(folder, judges / str(fold) / "judge.onnx")
        for fold in sorted(set(folds.values()))
    }
    return [
        judge_again(task, several[folds[set_of(task)]] if field(task) == "real" else shipped, ranking) for task in tasks
    ]


def cross_fitted(tasks: Sequence[Task], n_parts: int = 4) -> dict[str, RankingModel]:
    """Fit a model for each task without its field; of AutoFJ, whose sets have nothing in common, without a part."""
    part = {task.name: f"autofj {sum(map(ord, task.name)) % n_parts}" for task in tasks if field(task) == "autofj"}
    part |= {task.name: f"real {trade_of(set_of(task))}" for task in tasks if field(task) == "real"}
    part |= {task.name: "real country-variants" for task in tasks if field(task) == "territory"}
    part |= {task.name: field(task) for task in tasks if task.name not in part}
    models: dict[str, RankingModel] = {}
    for held in sorted(set(part.values())):
        model = fit([task for task in tasks if part[task.name] != held])
        models |= {name: model for name, own in part.items() if own == held}
    return models


def report_made(tasks: Sequence[Task], models: dict[str, RankingModel]) -> Iterator[str]:
    """A line a kind: % right / wrong at the default threshold, for each base."""
    bases = list(dict.fromkeys(base_of(task) for task in tasks))
    yield f"{'right / wrong, %':18}" + "".join(f"{base.partition(':')[2][:16]:>18}" for base in bases)
    for name in (one.name for one in KINDS):
        cells = []
        for base in bases:
            task = next((t for t in tasks if t.name == f"{base}:{name}"), None)
            right, wrong = (0.0, 0.0) if task is None else right_and_wrong(task, models[task.name])
            cells.append(f"{'-':>18}" if task is None else f"{100 * right:11.1f} /{100 * wrong:5.1f}")
        yield f"{name:18}" + "".join(cells)


@click.command()
@click.option("--data", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--wordnet", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--work", type=click.Path(path_type=Path), required=True)
@click.option("--out", type=click.Path(path_type=Path), required=True)
@click.option("--model", default="pearl-mini")
@click.option("--judges", type=click.Path(path_type=Path, exists=True), help="Folders 0, 1, 2 of `train_judge`.")
@page_option
def main(data: Path, wordnet: Path, work: Path, out: Path, model: str, judges: Path | None, page: Path | None) -> None:
    """Fit the coefficients."""
    logging.basicConfig(level=logging.INFO)
    work.mkdir(parents=True, exist_ok=True)
    tasks: list[Task] = []
    encoder = None
    for base in bases(data, wordnet):
        kept = work / f"{base.name.replace(':', '-')}.pickle"  # of our own making
        if not kept.exists():
            encoder = encoder or load_encoder(model)
            store = open_store(str(work / "store"))
            load(base, store, encoder, work)
            store.close()
            score = score_made if base.name.startswith(("everyday:", "small:")) else score_base
            scored = score(base, work / "store", model)
            kept.write_bytes(pickle.dumps(scored))
            _log.info("%s: %d mentions", base.name, sum(len(task.is_nil) for task in scored))
        tasks += pickle.loads(kept.read_bytes())  # noqa: S301
    tasks = judged(tasks, model, judges)
    models = cross_fitted(tasks)
    made = [task for task in tasks if sort(task) in ("everyday", "small")]
    others = [task for task in tasks if sort(task) not in ("everyday", "small")]
    accuracies = figures(others, models)
    for line in (*report_made(made, models), *report(accuracies)):
        click.echo(line)
    aliases = [[title, *(f"{one:.1f}" for one in accuracies[name][:4])] for name, title in PAGE_ALIASES.items()]
    write_rows(page, __file__, "mentions and base | linker | dense alone | n-grams alone | RRF of both", aliases)
    found = fit(tasks)
    assert found.forest is not None
    arrays: dict[str, Any] = found.forest.to_arrays()
    np.savez_compressed(out.with_name("decision.npz"), **arrays)
    text = {
        **{part: {name: round(value, 3) for name, value in named.items()} for part, named in found.by_name().items()},
        "model": model,
        "mentions": sum(len(task.is_nil) for task in tasks),
        "tasks": len(tasks),
    }
    out.write_text(json.dumps(text, indent=2) + "\n", encoding="utf-8")
    click.echo(json.dumps(text))


if __name__ == "__main__":
    main()
