"""The bases and mentions that `linking_model.py` fits the coefficients to: read from DATA, or made of its names."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from multilingual.names import read_entities
from multilingual.tasks import multilingual_tasks
from rapidfuzz.distance import OSA
from recipe_tables import exact_synonyms, read_tsv

from pearl_qdrant.cells import split_list
from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.lexical.words import english_words, is_word
from pearl_qdrant.linking.mention_kinds import NamedEntity
from training.examples.example import DEVELOPMENT_SPLITS, split_of
from training.examples.wordnet import read_synsets
from training.judge.differences import Named, Words, other, same, words_of_kind

TRADES = (
    "brands brands-2 brands-scripts operators suppliers",
    "companies exchange-names banks",
    "tv-channels tv-channels-2",
    "emoji emoji-2",
    "map-presets file-types instruments foods-multilingual",
    "country-variants subdivisions",
    "software-offers packages abt-buy",
    "german-laws courts conferences",
    "legislators councils",
    "universities college-teams",
    "symptoms headings-mesh",
    "economics-terms concepts-english topics",
    "birds mosses viruses",
)
"""Sets that others made, of one source or one trade: none is measured by a fit to another one of its line."""
MENTIONS = 600  # a base, at most
EVERYDAY_BASES = ("doid_2024", "mondo_2026", "uberon_mondo_import", "go_2022", "general", "general_whole", "aida")
EVERYDAY_ROWS = 60_000
"""Rows of the part of the general base that everyday mentions are made from."""
SMALL_STEMS = ("general", "aida", "doid_2024", "uberon_mondo_import", "go_2022")
SMALL_SIZES = ((20, 1), (60, 1), (60, 2), (150, 1), (300, 1), (300, 2), (3000, 1))
"""Entities of the small bases, and the seed of each."""
ABSENT = 200
"""Names that a small base lacks and that share a word of SHARED_LETTERS letters with it, at most."""
SHARED_LETTERS = 3
GENERAL_NAMES = (8_000, 60_000)
"""Sizes of the parts of the general base."""


@dataclass(frozen=True, slots=True)
class Row:
    """An entity of a base."""

    entity_id: str
    name: str
    types: str
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Base:
    """A base and mentions of its entities."""

    name: str  # "autofj:Song", "biomedical:doid_2024", "general:60000", ...; bases of one kind share the first part
    rows: list[Row]  # its entities
    mentions: list[tuple[str, frozenset[str]]]  # strings with the ids that are right
    has_aliases: bool = False  # whether aliases are loaded too, without the mention's own string


def rows_of(path: Path, kind: str = "") -> list[Row]:
    """The entities of a table; the first type of a column, if one is named."""
    return [
        Row(
            row["id"],
            row["name"],
            row[kind].partition("|")[0] if kind else "",
            tuple(split_list(row.get("aliases") or "")),
        )
        for row in read_tsv(path)
    ]


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
            rows.append(Row(row["id"], row["name"], "", tuple(split_list(row.get("aliases") or ""))))
            if split_of(row["id"]) in DEVELOPMENT_SPLITS:
                mentions += [(alias, frozenset((row["id"],))) for alias in exact_synonyms(row)]
        if len(mentions) < 100:
            continue
        random.Random(path.stem).shuffle(mentions)
        yield Base(f"biomedical:{path.stem}", rows, mentions[:MENTIONS])
        if len(rows) < 15_000:
            yield Base(f"biomedical:{path.stem}+aliases", rows, mentions[-MENTIONS:], has_aliases=True)


def general_bases(data: Path) -> Iterator[Base]:
    """Parts of the general base, with the entities of the alias pairs."""
    rows = rows_of(data / "kb" / "general.tsv", "onto_type")
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
            rows = rows_of(data / "kb" / "general.tsv", "onto_type")
            rows = random.Random(0).sample(rows, min(EVERYDAY_ROWS, len(rows))) if stem == "general" else rows
        elif stem == "aida":
            rows = rows_of(data / "context" / "base_aida.tsv", "types")
        else:
            rows = rows_of(data / "kb" / "biomedical" / f"{stem}.tsv")
        yield Base(f"everyday:{stem}", rows, [], has_aliases=True)


def real_bases(data: Path) -> Iterator[Base]:
    """Sets with the answers of curators: all ids that are right, joined by `|`, or NIL."""
    for folder in sorted((data / "real").iterdir()):
        name = folder.name
        if not (folder / "base.tsv").exists():
            continue
        rows = rows_of(folder / "base.tsv", "type")
        mentions = [
            (row["mention"], frozenset(row["gold"].split("|")) - {"NIL"}) for row in read_tsv(folder / "mentions.tsv")
        ]
        yield Base(f"real:{name}", rows, mentions, has_aliases=True)


MADE = 70
"""Made mentions of other things, and of the same, of a set."""
_PEOPLE = [
    NamedEntity("", (name,), ("PERSON",)) for name in ("Anna Keller", "Thomas Novak", "Emma Moretti", "Paul Lind")
]


def made_bases(real: Sequence[Base], wordnet: Path) -> Iterator[Base]:
    """Made differences over the names of sets: two bases a set. What equals another name is no example."""
    words = Words.read(wordnet)
    known = frozenset((*english_words(), *words.nouns))
    for base in real:
        rng = random.Random(base.name)
        owners: dict[str, set[str]] = {}
        for row in base.rows:
            for name in (row.name, *row.aliases):
                owners.setdefault(fold_name(name), set()).add(row.entity_id)
        for sort in ("other", "same"):
            mentions: list[tuple[str, frozenset[str]]] = []
            for _ in range(20 * MADE):
                row = rng.choice(base.rows)
                name = rng.choice((row.name, *row.aliases)) if rng.random() < 0.5 else row.name
                if not 3 <= len(name) <= 60 or len(owners[fold_name(name)]) > 1:
                    continue
                types = tuple(row.types.split("|"))
                named = Named(name, types, words_of_kind(types, known))
                made = other(named, words, _PEOPLE, rng) if sort == "other" else same(named, rng)
                own = {row.entity_id} if sort == "same" else set()
                if made and owners.get(fold_name(made), own) == own:
                    mentions.append((made, frozenset(own)))
                if len(mentions) == MADE:
                    break
            yield Base(f"{sort}:{base.name.partition(':')[2]}", base.rows, mentions, has_aliases=True)


def trade_of(name: str) -> str:
    """The trade of a set: what it shares with its neighbours, or its own name."""
    return next((trade.split()[0] for trade in TRADES if name in trade.split()), name)


JUDGE_FOLDS = 3


def judge_folds(names: Sequence[str]) -> dict[str, int]:
    """The fold of each set, trades whole: a judge that is measured on a set learned from the other folds."""
    by_trade: dict[str, list[str]] = {}
    for name in sorted(names):
        by_trade.setdefault(trade_of(name), []).append(name)
    folds: dict[str, int] = {}
    sizes = [0] * JUDGE_FOLDS
    for _, some in sorted(by_trade.items(), key=lambda item: (-len(item[1]), item[0])):
        smallest = sizes.index(min(sizes))
        folds |= dict.fromkeys(some, smallest)
        sizes[smallest] += len(some)
    return folds


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
    for base in (*cut_bases(data), *list_bases(data), *world_bases()):
        yield base
        yield small_part(base)
    real = list(real_bases(data))
    yield from real
    yield from made_bases(real, wordnet)
    yield from autofj_bases(data)
    yield from biomedical_bases(data)
    yield from general_bases(data)


SMALL_PART = 40
"""Entities of a small part of a base whose mentions are not names: its answers must not depend on the size alone."""


def small_part(base: Base) -> Base:
    """A part of a base: some of the entities that are asked for, as many others, and the mentions of the first."""
    rng = random.Random(f"part {base.name}")
    asked = sorted({entity for _, ids in base.mentions for entity in ids})
    chosen = set(rng.sample(asked, min(SMALL_PART, len(asked))))
    others = rng.sample(base.rows, min(SMALL_PART, len(base.rows)))
    rows = [row for row in base.rows if row.entity_id in chosen]
    rows += [row for row in others if row.entity_id not in chosen]
    mentions = [(text, ids) for text, ids in base.mentions if ids <= chosen]
    return Base(f"{base.name}_part", rows, mentions, has_aliases=base.has_aliases)


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
    some = rng.sample([row.name for row in part], min(len(part), ABSENT // 4))
    numbered = [f"{name} {rng.randint(2, 9)}" for name in some]
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
