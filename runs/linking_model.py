"""The recipe of `pearl_qdrant/linking/ranking/ranking.json`: the coefficients that score candidates.

    python runs/linking_model.py --data FOLDER --work FOLDER --out pearl_qdrant/linking/ranking/ranking.json

--data has `autofj/`, `kb/`, `context/` and `alias_pairs/` (TSV with a header). Bases are loaded into an embedded store
in --work and their mentions scored once; both are kept there. There are two sorts of tasks:

    everyday    seven bases with all their names, and mentions of every kind made from them (`linking.mention_kinds`);
                one task for each kind, weighted by its share. The general base is there twice: a part of it, and all
                of it, where many names are near each other
    edits       names of the whole general base with one or two edits anywhere, short ones too
    aliases     real aliases of the development splits (`training.examples.example`); of AutoFJ all, since no other part
                of the model uses it. A fifth of the mentions is made NIL: every entity that shares a folded name with
                the right one is excluded. Bases have canonical names only, or all names without the mention's own
                string. All together weigh `ALIAS_WEIGHT` in the
                ranking, `ALIAS_DECISION_WEIGHT` in the decision

The printed figures are cross-fitted: each task is scored by a model that was fitted without its base, and without the
bases that cover the same things. The run takes about 45 minutes on two cores.
"""

from __future__ import annotations

import json
import logging
import pickle
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path

import click
from recipe_tables import read_tsv

from ingest.base.scan import scan
from ingest.formats import ReadOptions, open_reader
from ingest.load.pipeline import ingest
from ingest.readers.columns import TableColumns
from pearl_qdrant.cells import join_list, split_list
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.linking.mention_kinds import KINDS, NamedEntity, make_mentions
from pearl_qdrant.linking.mention_kinds.owners import NameOwners
from pearl_qdrant.linking.ranking.model import RankingModel
from pearl_qdrant.store.open import open_store
from pearl_qdrant.store.protocol import Store
from pearl_qdrant.store.schema import Manifest, NamePoint
from training.augment.edits import edit_character
from training.examples.example import DEVELOPMENT_SPLITS, split_of
from training.ranking import (
    Task,
    accuracy_at_1,
    accuracy_of_fusion,
    fit_ranking,
    right_and_wrong,
    single_feature,
    to_task,
)

NIL_SHARE = 0.2
LIMIT = 24
"""Entities scored per mention."""
MENTIONS = 600
"""Mentions per base, at most."""
EVERYDAY_BASES = ("doid_2024", "mondo_2026", "uberon_mondo_import", "go_2022", "general", "general_whole", "aida")
EVERYDAY_ROWS = 60_000
"""Rows of the part of the general base that everyday mentions are made from."""
EDITS = {"one edit": 1, "two edits": 2}
"""Edits of the names of the whole general base."""
EDITED = 1500
"""Names with one or two edits, at most."""
EDIT_WEIGHT, EDIT_DECISION_WEIGHT = 0.3, 0.1
"""Weights of each number of edits, in the ranking and in the decision."""
MIN_EDIT_LETTERS = 4
"""Characters of a name for each edit."""
PER_KIND = 400
"""Everyday mentions of each kind and base, at most."""
ALIAS_WEIGHT, ALIAS_DECISION_WEIGHT = 4.5, 0.15
"""Weights of all tasks of aliases together, in the ranking and in the decision; the everyday mentions of one base
have 1. Which of two names is nearer is best learned from hard aliases; how many of them there are is not."""
SAME_FIELD = {**dict.fromkeys(("doid_2024", "mondo_2026", "ordo_2018"), "diseases"), "general_whole": "general"}
"""Bases that cover the same things are left out together."""
GENERAL_NAMES = (8_000, 60_000)
"""Sizes of the parts of the general base, so that the density of a base is not confused with hard aliases."""

_log = logging.getLogger("linking_model")


@dataclass(frozen=True, slots=True)
class Row:
    """An entity of a base."""

    entity_id: str
    name: str
    types: str
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Base:
    """A base and mentions of its entities.

    Attributes:
        name: "autofj:Song", "biomedical:doid_2024", "general:60000", ...; bases of one kind share the first part.
        rows: Its entities.
        mentions: Strings with the ids that are right.
        has_aliases: Whether aliases are loaded too, without the mention's own string.
    """

    name: str
    rows: list[Row]
    mentions: list[tuple[str, frozenset[str]]]
    has_aliases: bool = False


def autofj_bases(data: Path) -> Iterator[Base]:
    """One base a set: the left titles; the right ones are mentions."""
    rows: dict[str, list[Row]] = {}
    right: dict[tuple[str, str], set[str]] = {}
    for row in read_tsv(data / "autofj" / "left.tsv"):
        rows.setdefault(row["dataset"], []).append(Row(row["id"], row["title"], ""))
    for row in read_tsv(data / "autofj" / "gt.tsv"):
        right.setdefault((row["dataset"], row["id_r"]), set()).add(row["id_l"])
    mentions: dict[str, list[tuple[str, frozenset[str]]]] = {}
    for row in read_tsv(data / "autofj" / "right.tsv"):
        if gold := right.get((row["dataset"], row["id"])):
            mentions.setdefault(row["dataset"], []).append((row["title"], frozenset(gold)))
    for name, entities in rows.items():
        yield Base(f"autofj:{name}", entities, mentions[name])


def biomedical_bases(data: Path) -> Iterator[Base]:
    """One base per ontology, without and with aliases; EXACT synonyms of the development splits are mentions."""
    for path in sorted((data / "kb" / "biomedical").glob("*.tsv")):
        rows, mentions = [], []
        for row in read_tsv(path):
            aliases = split_list(row.get("aliases") or "")
            scopes = (row.get("alias_scopes") or "").split("|") if row.get("alias_scopes") else ["EXACT"] * len(aliases)
            exact = tuple(a for a, scope in zip(aliases, scopes, strict=False) if scope == "EXACT")
            rows.append(Row(row["id"], row["name"], "", tuple(aliases)))
            if split_of(row["id"]) in DEVELOPMENT_SPLITS:
                mentions += [(alias, frozenset((row["id"],))) for alias in exact]
        if len(mentions) < 100:
            continue
        random.Random(path.stem).shuffle(mentions)
        yield Base(f"biomedical:{path.stem}", rows, mentions[:MENTIONS])
        if len(rows) < 15_000:
            yield Base(f"biomedical:{path.stem}+aliases", rows, mentions[-MENTIONS:], has_aliases=True)


def general_bases(data: Path) -> Iterator[Base]:
    """Parts of the general base, with the entities of the alias pairs."""
    rows = [
        Row(row["id"], row["name"], row["onto_type"], tuple(split_list(row["aliases"])))
        for row in read_tsv(data / "kb" / "general.tsv")
    ]
    for pairs in ("fb15k_wikidata", "geonames"):
        mentions = [
            (row["alias"], frozenset((row["id"],)))
            for row in read_tsv(data / "alias_pairs" / f"{pairs}_alias_pairs.tsv")
            if split_of(row["id"]) in DEVELOPMENT_SPLITS
        ]
        random.Random(pairs).shuffle(mentions)
        for size in GENERAL_NAMES:
            chosen = mentions[:MENTIONS] if size == GENERAL_NAMES[0] else mentions[-MENTIONS:]
            wanted = {entity_id for _, gold in chosen for entity_id in gold}
            others = [row for row in rows if row.entity_id not in wanted]
            part = [row for row in rows if row.entity_id in wanted] + random.Random(size).sample(others, size)
            yield Base(f"general:{pairs}:{size}", part, chosen)
            yield Base(f"general:{pairs}:{size}+aliases", part, chosen, has_aliases=True)


def everyday_bases(data: Path) -> Iterator[Base]:
    """The development bases with all their names; their mentions are made."""
    for stem in EVERYDAY_BASES:
        if stem in ("general", "general_whole"):
            rows = [
                Row(row["id"], row["name"], row["onto_type"], tuple(split_list(row["aliases"])))
                for row in read_tsv(data / "kb" / "general.tsv")
            ]
            rows = random.Random(0).sample(rows, min(EVERYDAY_ROWS, len(rows))) if stem == "general" else rows
        elif stem == "aida":
            rows = [
                Row(row["id"], row["name"], row["types"].partition("|")[0], tuple(split_list(row["aliases"])))
                for row in read_tsv(data / "context" / "base_aida.tsv")
            ]
        else:
            rows = [
                Row(row["id"], row["name"], "", tuple(split_list(row.get("aliases") or "")))
                for row in read_tsv(data / "kb" / "biomedical" / f"{stem}.tsv")
            ]
        yield Base(f"everyday:{stem}", rows, [], has_aliases=True)


def load(base: Base, store: Store, encoder: Encoder, work: Path) -> str:
    """Load a base into the store, unless it is there; returns the collection's name."""
    name = base.name.replace(":", "-")
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
    reader = open_reader([path], "tsv", ReadOptions(columns=TableColumns()))
    collection = store.create(Manifest.for_model(encoder.info, collection=name, kb=name))
    ingest(reader, scan(reader), encoder, collection, max_errors=None)
    collection.close()
    return name


def score_base(base: Base, location: Path, model: str) -> Task:
    """Scorer the mentions of a base that is loaded; a share of them is made NIL."""
    rng = random.Random(base.name)
    names = {row.entity_id: {fold_name(name) for name in (row.name, *row.aliases)} for row in base.rows}
    excluded: list[set[str]] = []
    gold = []
    for _, ids in base.mentions:
        is_nil = rng.random() < NIL_SHARE
        excluded.append(set().union(*(names.get(i, set()) for i in ids)) if is_nil else set())
        gold.append(frozenset() if is_nil else ids)
    own = [(fold_name(mention), ids) for mention, ids in base.mentions]

    def exclude(number: int, point: NamePoint) -> bool:
        if excluded[number] and not names[point.entity_id].isdisjoint(excluded[number]):
            return True
        string, ids = own[number]
        return base.has_aliases and point.entity_id in ids and fold_name(point.name) == string

    with EntityLinker.open(base.name.replace(":", "-"), store=str(location), model=model) as linker:
        scored = list(linker.score_batch([mention for mention, _ in base.mentions], limit=LIMIT, exclude=exclude))
    return to_task(base.name, scored, gold)


def score_everyday(base: Base, location: Path, model: str) -> list[Task]:
    """Make mentions of every kind and score them; one task a kind."""
    entities = [
        NamedEntity(row.entity_id, tuple(dict.fromkeys((row.name, *row.aliases))), (row.types,) if row.types else ())
        for row in base.rows
    ]
    owners = NameOwners((entity.entity_id, name) for entity in entities for name in entity.names)
    made = make_mentions(entities, owners, per_kind=PER_KIND)

    def exclude(number: int, point: NamePoint) -> bool:
        return made[number].excludes(point.entity_id, point.name)

    with EntityLinker.open(base.name.replace(":", "-"), store=str(location), model=model) as linker:
        scored = list(linker.score_batch([one.mention for one in made], exclude=exclude))
    tasks = []
    for kind in KINDS:
        rows = [i for i, one in enumerate(made) if one.kind == kind.name]
        gold = [frozenset((made[i].entity_id or "",)) - {""} for i in rows]
        if rows:
            tasks.append(to_task(f"{base.name}:{kind.name}", [scored[i] for i in rows], gold, weight=kind.share))
    return tasks


def score_edits(base: Base, location: Path, model: str) -> Iterator[Task]:
    """Score names with edits anywhere; a task for each number of edits."""
    rng = random.Random(base.name)
    owners: dict[str, set[str]] = {}
    for row in base.rows:
        for name in (row.name, *row.aliases):
            owners.setdefault(fold_name(name), set()).add(row.entity_id)
    with EntityLinker.open(base.name.replace(":", "-"), store=str(location), model=model) as linker:
        for what, n_edits in EDITS.items():
            long_enough = [row for row in base.rows if len(row.name) >= n_edits * MIN_EDIT_LETTERS]
            rows = rng.sample(long_enough, min(EDITED, len(long_enough)))
            mentions = [reduce(lambda name, _: edit_character(name, rng), range(n_edits), row.name) for row in rows]
            gold = [frozenset().union(*(owners[fold_name(name)] for name in (row.name, *row.aliases))) for row in rows]
            task = to_task(f"{base.name}:{what}", list(linker.score_batch(mentions, limit=LIMIT)), gold)
            yield replace(task, weight=EDIT_WEIGHT, decision_weight=EDIT_DECISION_WEIGHT)


def kind(task: Task) -> str:
    """What bases of one kind share."""
    return task.name.partition(":")[0]


def report(tasks: Sequence[Task], models: dict[str, RankingModel]) -> Iterator[str]:
    """A line a base, AutoFJ's as one: accuracy@1 by the model named after the task, and of what it is made from."""
    yield f"{'accuracy@1, %':44} linker  dense  n-grams  RRF"
    rows: dict[str, list[tuple[float, ...]]] = {}
    for task in tasks:
        name = task.name if kind(task) != "autofj" else "autofj, mean of its sets"
        singles = (accuracy_at_1(task, single_feature(feature), has_rules=False) for feature in ("dense", "lexical"))
        rows.setdefault(name, []).append(
            (accuracy_at_1(task, models[task.name]), *singles, accuracy_of_fusion(task)),
        )
    for name, found in rows.items():
        means = [100 * sum(column) / len(found) for column in zip(*found, strict=True)]
        yield f"{name:44} {means[0]:6.1f} {means[1]:6.1f} {means[2]:8.1f} {means[3]:5.1f}"


def field(task: Task) -> str:
    """What bases that cover the same things share."""
    sort, stem, *_ = task.name.removesuffix("+aliases").split(":")
    return sort if sort == "autofj" else SAME_FIELD.get(stem, "general" if sort == "general" else stem)


def cross_fitted(tasks: Sequence[Task], n_parts: int = 4) -> dict[str, RankingModel]:
    """Fit a model for each task without its field; of AutoFJ, whose sets have nothing in common, without a part."""
    part = {task.name: f"autofj {sum(map(ord, task.name)) % n_parts}" for task in tasks if field(task) == "autofj"}
    part |= {task.name: field(task) for task in tasks if task.name not in part}
    models: dict[str, RankingModel] = {}
    for held in sorted(set(part.values())):
        model = fit_ranking(task for task in tasks if part[task.name] != held)
        models |= {name: model for name, own in part.items() if own == held}
    return models


def report_everyday(tasks: Sequence[Task], models: dict[str, RankingModel]) -> Iterator[str]:
    """A line a kind: % right / wrong at the default threshold, for each base."""
    bases = list(dict.fromkeys(task.name.split(":")[1] for task in tasks))
    yield f"{'right / wrong, %':18}" + "".join(f"{base[:16]:>18}" for base in bases)
    for name in (*(one.name for one in KINDS), *EDITS):
        cells = []
        for base in bases:
            task = next((t for t in tasks if t.name == f"everyday:{base}:{name}"), None)
            right, wrong = (0.0, 0.0) if task is None else right_and_wrong(task, models[task.name])
            cells.append(f"{'-':>18}" if task is None else f"{100 * right:11.1f} /{100 * wrong:5.1f}")
        yield f"{name:18}" + "".join(cells)


@click.command()
@click.option("--data", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--work", type=click.Path(path_type=Path), required=True)
@click.option("--out", type=click.Path(path_type=Path), required=True)
@click.option("--model", default="pearl-mini-en")
def main(data: Path, work: Path, out: Path, model: str) -> None:
    """Fit the coefficients."""
    logging.basicConfig(level=logging.INFO)
    work.mkdir(parents=True, exist_ok=True)
    aliases: list[Task] = []
    everyday: list[Task] = []
    encoder = None
    for base in (*everyday_bases(data), *autofj_bases(data), *biomedical_bases(data), *general_bases(data)):
        kept = work / f"{base.name.replace(':', '-')}.pickle"  # of our own making
        if not kept.exists():
            encoder = encoder or load_encoder(model)
            store = open_store(str(work / "store"))
            load(base, store, encoder, work)
            store.close()
            is_everyday = base.name.startswith("everyday:")
            scored = (
                score_everyday(base, work / "store", model)
                if is_everyday
                else [score_base(base, work / "store", model)]
            )
            if base.name.endswith("_whole"):
                scored += score_edits(base, work / "store", model)
            kept.write_bytes(pickle.dumps(scored))
            _log.info("%s: %d mentions", base.name, sum(len(task.is_nil) for task in scored))
        of_base = pickle.loads(kept.read_bytes())  # noqa: S301
        (everyday if base.name.startswith("everyday:") else aliases).extend(of_base)
    weight, decision_weight = ALIAS_WEIGHT / len(aliases), ALIAS_DECISION_WEIGHT / len(aliases)
    aliases = [replace(task, weight=weight, decision_weight=decision_weight) for task in aliases]
    tasks = [*everyday, *aliases]
    models = cross_fitted(tasks)
    for line in (*report_everyday(everyday, models), *report(aliases, models)):
        click.echo(line)
    found = fit_ranking(tasks)
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
