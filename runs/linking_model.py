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
    cut, list   names whose longer words are cut short: `N. Engl. J. Med.`; organisations within an address

A fifth of the mentions of the second, third and last two sorts is made NIL: every entity that shares a folded name with
the right one is excluded. `WEIGHTS` and `SHARES` say how much each sort and kind counts.

The printed figures are cross-fitted: each task is scored by a model that was fitted without its base, and without the
bases that cover the same things. The run takes about an hour on two cores.
"""

from __future__ import annotations

import json
import logging
import pickle
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import click
from multilingual.names import read_entities
from multilingual.tasks import multilingual_tasks
from rapidfuzz.distance import OSA
from recipe_tables import read_tsv

from ingest.base.scan import scan
from ingest.formats import ReadOptions, open_reader
from ingest.load.pipeline import ingest
from ingest.readers.columns import TableColumns
from pearl_qdrant.cells import join_list, split_list
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.lexical.word_rarity import is_word
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.linking.mention_kinds import KINDS, NamedEntity, make_mentions
from pearl_qdrant.linking.mention_kinds.make import NameOwners
from pearl_qdrant.linking.ranking.model import RankingModel
from pearl_qdrant.store.open import open_store
from pearl_qdrant.store.protocol import Store
from pearl_qdrant.store.schema import Manifest, NamePoint
from training.examples.example import DEVELOPMENT_SPLITS, split_of
from training.examples.wordnet import read_synsets
from training.ranking import (
    Task,
    accuracy_at_1,
    accuracy_of_fusion,
    fit_ranking,
    right_and_wrong,
    single_feature,
    to_task,
)

REAL_SETS = ("abt-buy", "football-clubs", "gene-mentions", "country-variants")
NIL_SHARE = 0.2
MENTIONS = 600  # a base, at most
EVERYDAY_BASES = ("doid_2024", "mondo_2026", "uberon_mondo_import", "go_2022", "general", "general_whole", "aida")
EVERYDAY_ROWS = 60_000
"""Rows of the part of the general base that everyday mentions are made from."""
PER_KIND = 250
"""Everyday mentions of each kind and base, at most."""
SMALL_STEMS = ("general", "aida", "doid_2024", "uberon_mondo_import", "go_2022")
SMALL_SIZES = ((300, 1), (300, 2), (3000, 1))
"""Entities of the small bases, and the seed of each."""
PER_SMALL_KIND = 60
WEIGHTS = {
    "real": (2.0, 20.0),
    "world": (1.5, 8.0),
    "autofj": (3.0, 6.0),
    "biomedical": (1.5, 0.5),
    "general": (2.0, 1.0),
    "everyday": (3.0, 8.0),
    "small": (1.5, 13.0),
    "absent": (0.0, 3.0),
    "near": (0.0, 1.5),
    "cut": (0.5, 1.0),
    "list": (0.5, 0.7),
}
"""Weights of each sort of task, in the ranking and in the decision, divided among its bases."""
SHARES = {kind.name: kind.share for kind in KINDS} | {
    "one slip": 0.4,
    "two slips": 0.3,
    "in words": 0.15,
    "nil removed": 0.5,
    "nil sibling": 0.08,
    "nil brackets": 0.05,
    "nil word more": 0.05,
    "nil number": 0.03,
    "nil first name": 0.03,
}
SMALL_SHARES = {kind.name: kind.share for kind in KINDS} | {
    "in words": 0.15,
    "nil removed": 0.12,
    "nil sibling": 0.12,
    "nil brackets": 0.4,
    "nil word more": 0.4,
    "nil number": 0.1,
    "nil first name": 0.2,
}
"""Weights of the kinds of made mentions: what must not be linked counts for more, most of all in small bases."""
ABSENT = 200
"""Names that a small base lacks and that share a word of SHARED_LETTERS letters with it, at most."""
SHARED_LETTERS = 3
L2 = 3e-5
SAME_FIELD = {**dict.fromkeys(("doid_2024", "mondo_2026", "ordo_2018"), "diseases"), "general_whole": "general"}
"""Bases that cover the same things are left out together."""
GENERAL_NAMES = (8_000, 60_000)
"""Sizes of the parts of the general base."""

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


def real_bases(data: Path) -> Iterator[Base]:
    """Sets with the answers of curators: all ids that are right, joined by `|`, or NIL."""
    for name in REAL_SETS:
        folder = data / "real" / name
        rows = [
            Row(row["id"], row["name"], row["type"].partition("|")[0], tuple(split_list(row.get("aliases") or "")))
            for row in read_tsv(folder / "base.tsv")
        ]
        mentions = [
            (row["mention"], frozenset(row["gold"].split("|")) - {"NIL"}) for row in read_tsv(folder / "mentions.tsv")
        ]
        yield Base(f"real:{name}", rows, mentions, has_aliases=True)


def world_bases() -> Iterator[Base]:
    """English names of things of the world; names in other scripts, and in other languages in Latin script."""
    for task in multilingual_tasks(read_entities()):
        rows = [Row(key, name, "") for name, key in task.searches[0].names]
        asked = [mention for search in task.searches for mention in search.mentions]
        random.Random(task.name).shuffle(asked)
        yield Base(f"world:{task.name.replace(': ', ':').replace(' ', '_')}", rows, asked[:MENTIONS])


def bases(data: Path, wordnet: Path) -> Iterator[Base]:
    """All bases; those of made mentions first."""
    everyday = list(everyday_bases(data))
    yield from everyday
    rows = {base.name.partition(":")[2]: base.rows for base in everyday}
    for stem in SMALL_STEMS:
        for size, seed in SMALL_SIZES:
            part = random.Random(f"{stem}{size}{seed}").sample(rows[stem], size)
            yield Base(f"small:{stem}_{size}_{seed}", part, [], has_aliases=True)
            absent = absent_names(rows[stem], part, f"absent {stem}{size}{seed}")
            yield Base(f"absent:{stem}_{size}_{seed}", part, absent, has_aliases=True)
    yield from near_bases(data, wordnet)
    yield from cut_bases(data)
    yield from list_bases(data)
    yield from real_bases(data)
    yield from world_bases()
    yield from autofj_bases(data)
    yield from biomedical_bases(data)
    yield from general_bases(data)


def absent_names(rows: Sequence[Row], part: Sequence[Row], seed: str) -> list[tuple[str, frozenset[str]]]:
    """Names of entities of which a part has no name; half of them share a word with a name of it.

    To them come names of the part with a number more: `Scary Movie 5`.
    """
    known = {fold_name(name) for row in part for name in (row.name, *row.aliases)}
    words = {word for name in known for word in name.split() if len(word) >= SHARED_LETTERS}
    rng = random.Random(seed)
    alike: list[str] = []
    others: list[str] = []
    for row in rng.sample(rows, len(rows)):
        if known.isdisjoint(map(fold_name, (row.name, *row.aliases))):
            shares = not words.isdisjoint(fold_name(row.name).split())
            (alike if shares else others).append(row.name)
    numbered = [f"{name} {rng.randint(2, 9)}" for name in rng.sample([row.name for row in part], ABSENT // 4)]
    numbered = [name for name in numbered if fold_name(name) not in known]
    return [(name, frozenset()) for name in (*alike[:ABSENT], *others[: ABSENT // 2], *numbered)]


NEAR_STEMS = ("doid_2024", "uberon_mondo_import", "go_2022", "general", "aida")
NEAR_LETTERS = (4, 5)  # of both words, from which they may be one and two edits apart


def near_bases(data: Path, wordnet: Path) -> Iterator[Base]:
    """Bases, and names of them that differ from another entity's name in one word, by an edit or two."""
    rows = {base.name.partition(":")[2]: base.rows for base in everyday_bases(data) if "whole" not in base.name}
    for stem in NEAR_STEMS:
        yield Base(f"near:{stem}", rows[stem], near_names(rows[stem], stem), has_aliases=True)
    nouns = [one for one in read_synsets(wordnet) if one.lexical_class == "NP"]
    words = [Row(one.synset_id, one.names[0], "", one.names[1:]) for one in nouns]
    yield Base("near:wordnet", words, near_names(words, "wordnet"), has_aliases=True)


def near_names(rows: Sequence[Row], seed: str) -> list[tuple[str, frozenset[str]]]:
    """Names with the entities that have them; another entity has such a name but for one word, an edit or two away."""
    owners: dict[str, set[str]] = {}
    written: dict[str, str] = {}
    for row in rows:
        for name in (row.name, *row.aliases):
            folded = fold_name(name)
            owners.setdefault(folded, set()).add(row.entity_id)
            written.setdefault(folded, name)
    masked: dict[tuple[str, str, str], list[str]] = {}  # what is equal, and the start or end of the other word
    for folded in owners:
        words = folded.split()
        for i, word in enumerate(words):
            if len(word) >= NEAR_LETTERS[0] and word.isalpha():
                rest = " ".join((*words[:i], "*", *words[i + 1 :]))
                masked.setdefault((rest, word[:3], ""), []).append(folded)
                masked.setdefault((rest, "", word[-3:]), []).append(folded)
    found = set()
    for (rest, _, _), names in masked.items():
        at = rest.split().index("*")
        for a, b in combinations(names[:300], 2):
            x, y = a.split()[at], b.split()[at]
            distance = OSA.distance(x, y, score_cutoff=2)
            is_slip = distance <= 2 and min(len(x), len(y)) >= NEAR_LETTERS[distance == 2]
            if is_slip and owners[a].isdisjoint(owners[b]):
                # What is no known word is a slip for all that can be seen.
                found |= {name for name, word in ((a, x), (b, y)) if is_word(word)}
    chosen = sorted(found)
    random.Random(seed).shuffle(chosen)
    return [(written[folded], frozenset(owners[folded])) for folded in chosen[:MENTIONS]]


def cut_bases(data: Path) -> Iterator[Base]:
    """Names of two words and more whose longer words are cut, some with full stops; small words may be left out."""
    for base in everyday_bases(data):
        stem = base.name.partition(":")[2]
        if stem not in NEAR_STEMS:
            continue
        rng = random.Random(f"cut {stem}")
        mentions: list[tuple[str, frozenset[str]]] = []
        for row in rng.sample(base.rows, len(base.rows)):
            text = None if row.types == "PERSON" else cut_name(row.name, rng)
            if text is not None and len(mentions) < MENTIONS // 2:
                mentions.append((text, frozenset((row.entity_id,))))
        yield Base(f"cut:{stem}", base.rows, mentions, has_aliases=True)


def cut_name(name: str, rng: random.Random) -> str | None:
    """A name of two to six words with its longer words cut short after a consonant; None if it has too few of them."""
    words = name.split()
    if not 2 <= len(words) <= 6 or not all(re.fullmatch(r"[A-Za-z]+", word) for word in words):
        return None
    stop, without_small = rng.choice((".", ".", "")), rng.random() < 0.7
    found, n_cut = [], 0
    for word in words:
        if word.lower() in _SMALL_WORDS:
            found += [] if without_small else [word]
            continue
        ends = [i for i in range(3, min(7, len(word) - 1)) if word[i - 1].lower() not in "aeiouy"]
        if not ends or rng.random() < 0.2:
            found.append(word)
            continue
        found.append(word[: 1 if rng.random() < 0.1 else rng.choice(ends)] + stop)
        n_cut += 1
    return " ".join(found) if n_cut * 2 >= len(found) > 1 and sum(map(len, found)) > 8 else None


_SMALL_WORDS = frozenset("of the and in for on de".split())
_UNITS = (
    "Department of {}|Faculty of {}|School of {}|Institute of {}|Division of {}|Laboratory of {}|{} Department|{} Unit|"
    "Centre for {}|Chair of {}"
).split("|")
_FIELDS = (
    "Physics|Medicine|Computer Science|Neurology|Economics|Applied Mathematics|Chemistry|Public Health|Law|History|"
    "Molecular Biology|Psychiatry|Marketing|Sales|Civil Engineering|Ecology"
).split("|")


def list_bases(data: Path) -> Iterator[Base]:
    """Organisations within an affiliation or an address: a unit before the name, places and numbers after it."""
    for base in everyday_bases(data):
        stem = base.name.partition(":")[2]
        if stem not in ("general", "aida"):
            continue
        rng = random.Random(f"list {stem}")
        places = [row.name for row in base.rows if row.types == "GPE" and "," not in row.name]
        wanted = [row for row in base.rows if row.types == "ORG" and "," not in row.name and len(row.name.split()) > 1]
        mentions = []
        for row in rng.sample(wanted, min(MENTIONS // 2, len(wanted))):
            parts = [rng.choice(_UNITS).format(rng.choice(_FIELDS)), row.name, rng.choice(places)]
            if rng.random() < 0.3:
                del parts[0]
            if rng.random() < 0.3:
                parts.insert(-1, f"{rng.randint(1, 300)} {rng.choice(places).split()[0]} Street")
            if rng.random() < 0.3:
                parts[-1] = f"{parts[-1]} {rng.randint(10000, 99999)}"
            if rng.random() < 0.5:
                parts.append(rng.choice(places))
            mentions.append((", ".join(parts), frozenset((row.entity_id,))))
        yield Base(f"list:{stem}", base.rows, mentions, has_aliases=True)


def collection_of(base: Base) -> str:
    """The collection of a base; sorts of mentions that are made from one base share that of everyday mentions."""
    sort_of, _, stem = base.name.partition(":")
    if sort_of == "absent":
        return f"small-{stem}"
    return f"everyday-{stem}" if sort_of in _OF_EVERYDAY else base.name.replace(":", "-")


_OF_EVERYDAY = ("near", "cut", "list")


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
    reader = open_reader([path], "tsv", ReadOptions(columns=TableColumns()))
    collection = store.create(Manifest.for_model(encoder.info, collection=name, kb=name))
    ingest(reader, scan(reader), encoder, collection, max_errors=None)
    collection.close()
    return name


def score_base(base: Base, location: Path, model: str) -> list[Task]:
    """Score the mentions of a base that is loaded; of aliases, a share is made NIL."""
    rng = random.Random(base.name)
    names = {row.entity_id: {fold_name(name) for name in (row.name, *row.aliases)} for row in base.rows}
    sort_of = base.name.partition(":")[0]
    excluded: list[set[str]] = []
    gold = []
    for _, ids in base.mentions:
        is_nil = sort_of == "near" or (sort_of != "real" and rng.random() < NIL_SHARE)
        excluded.append(set().union(*(names.get(i, set()) for i in ids)) if is_nil else set())
        gold.append(frozenset() if is_nil else ids)
    own = [(fold_name(mention), ids) for mention, ids in base.mentions]

    def exclude(number: int, point: NamePoint) -> bool:
        if excluded[number] and not names[point.entity_id].isdisjoint(excluded[number]):
            return True
        string, ids = own[number]
        is_own = base.has_aliases and sort_of not in ("real", *_OF_EVERYDAY) and point.entity_id in ids
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


def report(tasks: Sequence[Task], models: dict[str, RankingModel]) -> Iterator[str]:
    """A line a base, AutoFJ's as one: accuracy@1 by the model named after the task, and of what it is made from."""
    yield f"{'accuracy@1, %':44} linker  dense  n-grams  RRF  right / wrong / absent"
    rows: dict[str, list[tuple[float, ...]]] = {}
    for task in tasks:
        name = task.name if sort(task) != "autofj" else "autofj, mean of its sets"
        singles = (accuracy_at_1(task, single_feature(feature), has_rules=False) for feature in ("dense", "lexical"))
        model = models[task.name]
        decided = answered(task, model)
        rows.setdefault(name, []).append((accuracy_at_1(task, model), *singles, accuracy_of_fusion(task), *decided))
    for name, found in rows.items():
        means = [100 * sum(column) / len(found) for column in zip(*found, strict=True)]
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
    if of in ("autofj", "real"):
        return of
    stem = stem.partition("_300")[0] if of in ("small", "absent") else stem
    return SAME_FIELD.get(stem, "general" if of == "general" else stem)


def cross_fitted(tasks: Sequence[Task], n_parts: int = 4) -> dict[str, RankingModel]:
    """Fit a model for each task without its field; of AutoFJ, whose sets have nothing in common, without a part."""
    part = {task.name: f"autofj {sum(map(ord, task.name)) % n_parts}" for task in tasks if field(task) == "autofj"}
    part |= {task.name: task.name for task in tasks if field(task) == "real"}
    part |= {task.name: "real:country-variants" for task in tasks if field(task) == "territory"}
    part |= {task.name: field(task) for task in tasks if task.name not in part}
    models: dict[str, RankingModel] = {}
    for held in sorted(set(part.values())):
        model = fit_ranking(weighted([task for task in tasks if part[task.name] != held]), l2=L2)
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
def main(data: Path, wordnet: Path, work: Path, out: Path, model: str) -> None:
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
    models = cross_fitted(tasks)
    made = [task for task in tasks if sort(task) in ("everyday", "small")]
    others = [task for task in tasks if sort(task) not in ("everyday", "small")]
    for line in (*report_made(made, models), *report(others, models)):
        click.echo(line)
    found = fit_ranking(weighted(tasks), l2=L2)
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
