"""The tasks of the suite, read from a folder of data and from WordNet.

Nothing here is in the training splits: entities and typed names are those of splits 7 and 8. BIRD, Turney, PPDB,
CoNLL's development part and AutoFJ have no splits; they are whole evaluation sets or parts of them, and nothing of
them may enter training.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from recipe_tables import read_tsv

from development_tasks.everyday import everyday_tasks
from development_tasks.sources import AliasSet, read_aliases, related_pairs, typed_names
from development_tasks.tasks import (
    Choice,
    ChoiceTask,
    ClusterTask,
    ParaphraseTask,
    RelatednessTask,
    Search,
    SearchTask,
    Task,
    TypeTask,
)
from training.evaluation.tasks.phrases import one_edit
from training.examples.example import DEVELOPMENT_SPLITS, name_key, split_of

N_MENTIONS = 1_200
"""Mentions of a base, in both folds together."""
N_OTHERS = 5_000
"""Names of other entities among which they are looked for; half as many for an ontology."""
N_PAIRS = 5_000
"""Pairs of WordNet's nouns, in both folds together."""
N_PARAPHRASES = 2_500
"""Pairs of PPDB in each fold."""
N_TITLES = 200
"""Right titles of a data set of AutoFJ."""
FEWEST_TITLES = 40
"""A data set of AutoFJ with fewer right titles is not used: one title would be several points."""
N_NEAR, N_FAR = 6, 250
"""Left titles of AutoFJ: the nearest by n-grams to each right title, and others of the set at random."""
N_EACH = 800
"""Names of each kind in a fold, for clusters and types."""
FEWEST = 20
"""A type with fewer names in a fold is not a type of the task."""

FOLDS = (1, 2)
SPLIT_OF_FOLD = {1: 7, 2: 8}
"""The development split of each fold."""

INTENTS = {f"atis_{kind}" for kind in ("flight", "airfare", "ground_service", "airline", "abbreviation")}
"""ATIS's frequent intents."""

T = TypeVar("T")

ENTITIES = {"PERSON", "ORG", "GPE", "LOC", "FAC", "WORK_OF_ART", "EVENT", "PRODUCT", "LAW", "LANGUAGE", "NORP"}
"""OntoNotes types that say what a name is; OTHER does not."""


def fold_of(key: str) -> int:
    """Return the fold of an item, 1 or 2, by its hash. Of the development splits, 7 is fold 1 and 8 is fold 2."""
    return 1 if split_of(key) % 2 else 2


def read_tasks(data: Path, wordnet: Path, folds: Sequence[int] = FOLDS) -> dict[int, list[Task]]:
    """Read the tasks of each fold; deterministic."""
    rng = random.Random(22)
    aliases = read_aliases(data, rng, n_mentions=N_MENTIONS, n_others=N_OTHERS)
    pairs = list(related_pairs(wordnet, rng, N_PAIRS))
    typed = [(name, kind, name_key(name), 1) for name, kind in typed_names(data, rng)]
    tasks: dict[int, list[Task]] = {}
    for fold in folds:
        related = tuple(pair for pair in pairs if fold_of(name_key(pair[0])) == fold)
        tasks[fold] = [
            *_aliases(aliases, fold),
            *everyday_tasks(data, SPLIT_OF_FOLD[fold]),
            RelatednessTask("relatedness: WordNet", related),
            _bird(data, fold),
            _turney(data, fold),
            _analogies(data, fold),
            _paraphrases(data, fold),
            _questions(data, fold),
            cluster_task("clusters: people, places, organisations", [row for row in typed if fold_of(row[2]) == fold]),
            _mesh_names(data, fold),
            _mesh_mentions(data, fold, "bio-", distinct=True),
            _mesh_mentions(data, fold, "bio-bc5cdr", distinct=False),
            _few_nerd(data, fold),
            _craft(data, fold),
            _conll(data, fold),
            *_fuzzy_joins(data, fold),
            *(_types(data, fold, source) for source in ("fewnerd", "crossner")),
            _texts(data, fold, "tweets: sentiment", "tweets/sentiment.tsv", "label", {"0", "2"}),
            _texts(data, fold, "questions: intent", "intent/atis.tsv", "intent", INTENTS),
        ]
    return tasks


def _aliases(sets: Sequence[AliasSet], fold: int) -> Iterator[SearchTask]:
    """The ontologies are one task, each other base is one."""
    by_task: dict[str, list[Search]] = {}
    names = {"fb15k": "Wikidata", "geonames": "GeoNames", "misspelt": "one character edited"}
    for found in sets:
        mentions = tuple((mention, frozenset([i])) for mention, i in found.mentions if fold_of(i) == fold)
        task = f"aliases: {names.get(found.name, 'ontologies')}"
        by_task.setdefault(task, []).append(Search(found.name, found.names, mentions))
    for task, searches in by_task.items():
        yield SearchTask(task, tuple(searches), by_search=False)


def _bird(data: Path, fold: int) -> RelatednessTask:
    rows = read_tsv(data / "pearl_bench" / "bird.tsv")
    pairs = ((row["term1"], row["term2"], float(row["relatedness"])) for row in rows)
    return RelatednessTask("relatedness: BIRD", tuple(pair for pair in pairs if fold_of(name_key(pair[0])) == fold))


def _turney(data: Path, fold: int) -> ChoiceTask:
    answers = ("answer", *(f"distractor{i}" for i in range(1, 5)))
    return ChoiceTask(
        "relatedness: Turney",
        tuple(
            Choice((row["query"],), (), tuple(row[answer] for answer in answers), row["query"])
            for row in read_tsv(data / "pearl_bench" / "turney.tsv")
            if fold_of(name_key(row["query"])) == fold
        ),
    )


def _analogies(data: Path, fold: int) -> ChoiceTask:
    """A : b :: c : d, both pairs of the fold; those with the usual number of distractors."""
    choices = []
    for row in read_tsv(data / "ulr_analogy" / "analogies.tsv"):
        pairs = (f"{row['a']}:{row['b']}", f"{row['c']}:{row['d_gold']}")
        if row["level"] == "word" and {fold_of(name_key(pair)) for pair in pairs} == {fold}:
            answers = (row["d_gold"], *row["distractors"].split("|"))
            choices.append(Choice((row["b"], row["c"]), (row["a"],), answers, pairs[1]))
    usual = Counter(len(choice.answers) for choice in choices).most_common(1)[0][0]
    return ChoiceTask("relatedness: analogies of words", tuple(c for c in choices if len(c.answers) == usual))


def _paraphrases(data: Path, fold: int) -> ParaphraseTask:
    by_pair: dict[tuple[str, str, bool], str] = {}
    for row in read_tsv(data / "pearl_bench" / "ppdb.tsv"):
        key = min(row["phrase1"], row["phrase2"])
        if fold_of(name_key(key)) == fold:
            by_pair[row["phrase1"], row["phrase2"], row["label"] == "pos"] = key
    chosen = _some(list(by_pair.items()), N_PARAPHRASES)
    return ParaphraseTask("relatedness: PPDB", tuple(pair for pair, _ in chosen), tuple(key for _, key in chosen))


def _questions(data: Path, fold: int) -> SearchTask:
    """Which canonical utterance has the meaning of a question, among all of them (GeoGranno)."""
    rows = [(row["question"], row["canonical"]) for row in read_tsv(data / "geogranno" / "geo_pairs.tsv")]
    other = [row["canonical"] for row in read_tsv(data / "geogranno" / "geo_canonicals.tsv")]
    names = tuple((name, name) for name in dict.fromkeys([*(canonical for _, canonical in rows), *_some(other, 1500)]))
    of_fold = tuple((question, frozenset([gold])) for question, gold in rows if fold_of(name_key(gold)) == fold)
    return SearchTask("relatedness: questions (GeoGranno)", (Search("geogranno", names, of_fold),), by_search=False)


def cluster_task(name: str, rows: Sequence[tuple[str, str, str, int]], *, n_each: int = N_EACH) -> ClusterTask:
    """Make a task from rows of (name, kind, group, count): at most `n_each` names of each kind."""
    chosen = _some_of_each(rows, lambda row: row[1], n_each)
    names, kinds, groups, counts = zip(*chosen, strict=True)
    return ClusterTask(name, names, kinds, groups, counts)


def _mesh_names(data: Path, fold: int) -> ClusterTask:
    rows = [
        (row["name"], kind, row["id"], 1)
        for row in read_tsv(data / "context" / "base_mesh.tsv")
        if (kind := row["types"].partition("|")[0]) in ("Diseases", "Chemicals and Drugs")
        and _is_held_out(row["id"], fold)
    ]
    return cluster_task("clusters: diseases, chemicals (MeSH names)", rows)


def _mesh_mentions(data: Path, fold: int, corpora: str, *, distinct: bool) -> ClusterTask:
    """Mentions in abstracts, each once or as often as it occurs; of the fold of their most frequent entity."""
    entities: dict[str, Counter[str]] = {}
    kinds: dict[str, set[str]] = {}
    for row in read_tsv(data / "context" / "mentions.tsv"):
        if row["corpus"].startswith(corpora):
            gold = row["gold_id"] if row["gold_id"] != "NIL" else name_key(row["mention"])
            entities.setdefault(row["mention"], Counter())[gold] += 1
            kinds.setdefault(row["mention"], set()).add("chemical" if row["type"] == "Chemical" else "disease")
    rows = []
    for name, found in entities.items():
        entity = found.most_common(1)[0][0]
        if fold_of(entity) == fold and len(kinds[name]) == 1:
            rows.append((name, min(kinds[name]), entity, 1 if distinct else sum(found.values())))
    where = "distinct mentions" if distinct else "BC5CDR, every mention"
    return cluster_task(f"clusters: diseases, chemicals ({where})", rows, n_each=4 * N_EACH)


def _craft(data: Path, fold: int) -> ClusterTask:
    rows = [
        (row["name"], kind, row["id"], 1)
        for kind in ("cl", "so")
        for row in read_tsv(data / "context" / f"base_{kind}.tsv")
        if _is_held_out(row["id"], fold)
    ]
    return cluster_task("clusters: cells, sequences (CRAFT)", rows)


def _conll(data: Path, fold: int) -> ClusterTask:
    counts: Counter[tuple[str, str]] = Counter(
        (row["mention"], row["type"])
        for row in read_tsv(data / "pearl_bench" / "conll2003.tsv")
        if row["split"] == "dev" and row["type"] in ("PER", "LOC", "ORG") and fold_of(name_key(row["mention"])) == fold
    )
    n_kinds = Counter(name for name, _ in counts)
    rows = [(name, kind, name_key(name), n) for (name, kind), n in counts.items() if n_kinds[name] == 1]
    return cluster_task("clusters: CoNLL 2003, development part", rows)


def names_in_text(data: Path, fold: int, source: str) -> list[tuple[str, str]]:
    """Return (name, type) of names of one type that a source of names in running text has."""
    return [
        (row["name"], row["onto_type"])
        for row in read_tsv(data / "typed_names" / "onto_typed_names.tsv")
        if row["n_types_for_name"] == "1"
        and row["onto_type"] in ENTITIES
        and any(found.startswith(source) for found in row["sources"].split("|"))
        and _is_held_out(name_key(row["name"]), fold)
    ]


def _few_nerd(data: Path, fold: int) -> ClusterTask:
    """The five most frequent types of Few-NERD, in equal parts as far as there are names."""
    rows = names_in_text(data, fold, "fewnerd")
    usual = {kind for kind, _ in Counter(kind for _, kind in rows).most_common(5)}
    each = min(Counter(kind for _, kind in rows if kind in usual).values())
    return cluster_task(
        "clusters: Few-NERD", [(n, k, name_key(n), 1) for n, k in rows if k in usual], n_each=min(N_EACH, 2 * each)
    )


def _types(data: Path, fold: int, source: str) -> TypeTask:
    rows = names_in_text(data, fold, source)
    n_names = Counter(kind for _, kind in rows)
    chosen = _some_of_each([row for row in rows if n_names[row[1]] >= FEWEST], lambda row: row[1], N_EACH)
    names, kinds = zip(*chosen, strict=True)
    title = {"fewnerd": "Few-NERD", "crossner": "CrossNER"}[source]
    return TypeTask(f"types: {title}, linear probe", names, kinds, tuple(name_key(name) for name in names))


def _texts(data: Path, fold: int, title: str, path: str, column: str, labels: Collection[str]) -> TypeTask:
    """Short texts and what they are; at most as many of a kind as of names."""
    kinds = {row["text"]: row[column] for row in read_tsv(data / path) if row[column] in labels}
    rows = [(text, kind) for text, kind in kinds.items() if fold_of(name_key(text)) == fold]
    names, found = zip(*_some_of_each(rows, lambda row: row[1], N_EACH), strict=True)
    return TypeTask(f"{title}, linear probe", names, found, tuple(name_key(name) for name in names))


def _fuzzy_joins(data: Path, fold: int) -> Iterator[SearchTask]:
    """AutoFJ as it is, and with a typo in each right title; a data set is in one fold."""
    left: dict[str, list[str]] = {}
    gold: dict[str, dict[str, set[str]]] = {}
    for row in read_tsv(data / "autofj" / "left.tsv"):
        left.setdefault(row["dataset"], []).append(row["title"])
    for row in read_tsv(data / "autofj" / "gt.tsv"):
        gold.setdefault(row["dataset"], {}).setdefault(row["title_r"], set()).add(row["title_l"])
    clean, misspelt = [], []
    for name, titles in sorted(gold.items()):
        if len(titles) < FEWEST_TITLES or fold_of(name) != fold:
            continue
        rng = random.Random(name)
        right = rng.sample(sorted(titles), min(N_TITLES, len(titles)))
        wanted = set().union(*(titles[title] for title in right))
        names = tuple((title, title) for title in _candidates(right, left[name], wanted, rng))
        clean.append(Search(name, names, tuple((title, frozenset(titles[title])) for title in right)))
        typos = tuple((one_edit(title, rng), frozenset(titles[title])) for title in right)
        misspelt.append(Search(name, names, typos))
    yield SearchTask("AutoFJ", tuple(clean), by_search=True)
    yield SearchTask("AutoFJ with typos", tuple(misspelt), by_search=True)


def _candidates(right: list[str], left: list[str], wanted: set[str], rng: random.Random) -> list[str]:
    """The left titles that are right, the nearest by n-grams, and some at random: a tenth of the encoder's work."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    titles = sorted(set(left))
    vectorizer = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 3))
    names = vectorizer.fit_transform(titles)
    similarity = (vectorizer.transform(right) @ names.T).toarray()
    near = {titles[i] for row in similarity for i in row.argsort(kind="stable")[-N_NEAR:]}
    return sorted(wanted | near | set(rng.sample(titles, min(N_FAR, len(titles)))))


def _is_held_out(key: str, fold: int) -> bool:
    return split_of(key) in DEVELOPMENT_SPLITS and fold_of(key) == fold


def _some(rows: Sequence[T], n: int) -> list[T]:
    return random.Random(0).sample(list(rows), min(n, len(rows)))


def _some_of_each(rows: Sequence[T], kind_of: Callable[[T], str], n: int) -> list[T]:
    by_kind: dict[str, list[T]] = {}
    for row in rows:
        by_kind.setdefault(kind_of(row), []).append(row)
    return [row for kind in sorted(by_kind) for row in _some(by_kind[kind], n)]
