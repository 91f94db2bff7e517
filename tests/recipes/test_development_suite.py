"""The tasks of the development suite, read from small tables in the layout of the real ones.
The development suite: folds, intervals, and whether a worse encoder is found below its start.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import development_tasks.everyday as everyday
import development_tasks.readers as readers
import numpy as np
import pytest
from development_suite import Figures, as_table, compare, measure, read_suite
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
from evaluation_data import made_up_names, write_table

from training.evaluation.outcome import mean_outcome


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with every table that the suite reads, and pairs in place of WordNet's."""

    def pairs(wordnet: Path, rng: random.Random, n: int) -> Iterator[tuple[str, str, float]]:
        for i, name in enumerate(made_up_names(60, 3)):
            yield name, name[::-1], i % 3 / 2

    monkeypatch.setattr(readers, "related_pairs", pairs)
    monkeypatch.setattr(readers, "FEWEST_TITLES", 3)
    monkeypatch.setattr(readers, "FEWEST", 2)
    monkeypatch.setattr(everyday, "FEWEST", 2)
    names = iter(made_up_names(8_000))

    def take(n: int) -> list[str]:
        return [next(names) for _ in range(n)]

    for kb in ("doid", "uberon", "cl", "go"):
        write_table(tmp_path, f"kb/biomedical/{kb}.tsv", "id name type aliases", _rows(kb, take(100), take(100)))
    write_table(tmp_path, "kb/general.tsv", "id name", [(f"Q{i}", name) for i, name in enumerate(take(100))])
    for kb in ("fb15k", "geonames"):
        rows = [
            (f"{alias}", f"{kb}{i}", name) for i, (alias, name) in enumerate(zip(take(100), take(100), strict=True))
        ]
        write_table(tmp_path, f"alias_pairs/{kb}_pairs.tsv", "alias id canonical", rows)
    firsts, seconds = take(60), take(60)
    rated = [(*pair, i % 5 / 5) for i, pair in enumerate(zip(firsts, seconds, strict=True))]
    write_table(tmp_path, "pearl_bench/bird.tsv", "term1 term2 relatedness", rated)
    choices = [tuple(take(6)) for _ in range(40)]
    write_table(
        tmp_path, "pearl_bench/turney.tsv", "query answer " + " ".join(f"distractor{i}" for i in range(1, 5)), choices
    )
    labelled = [(first, second, ("pos", "neg")[i % 2]) for i, (first, second, _) in enumerate(rated)]
    write_table(tmp_path, "pearl_bench/ppdb.tsv", "phrase1 phrase2 label", labelled)
    conll = [("dev", name, ("PER", "LOC", "ORG")[i % 3]) for i, name in enumerate(take(60))]
    write_table(tmp_path, "pearl_bench/conll2003.tsv", "split mention type", [*conll, *conll[:9]])
    analogies = [("word", *pair, *other, "|".join(take(4))) for pair, other in _pairs_of_pairs(take(40))]
    write_table(tmp_path, "ulr_analogy/analogies.tsv", "level a b c d_gold distractors", analogies)
    questions = list(zip(take(40), take(40), strict=True))
    write_table(tmp_path, "geogranno/geo_pairs.tsv", "question canonical", questions)
    write_table(tmp_path, "geogranno/geo_canonicals.tsv", "canonical", [(name,) for name in take(20)])
    write_table(tmp_path, "tweets/sentiment.tsv", "text label", [(name, i % 3) for i, name in enumerate(take(90))])
    intents = sorted(readers.INTENTS)
    write_table(tmp_path, "intent/atis.tsv", "text intent", [(n, intents[i % 5]) for i, n in enumerate(take(90))])
    _write_context(tmp_path, take)
    kinds = ("PERSON", "ORG", "GPE", "FAC", "EVENT", "OTHER")
    sources = ("fewnerd:dev", "crossner_ai:dev|yago", "wnut17:dev")
    typed = [(name, kinds[i % 6], sources[i // 6 % 3], 1) for i, name in enumerate(take(1800))]
    write_table(tmp_path, "typed_names/onto_typed_names.tsv", "name onto_type sources n_types_for_name", typed)
    left, right = take(120), take(120)
    joins = [(f"set {i % 12}", one, other) for i, (one, other) in enumerate(zip(left, right, strict=True))]
    write_table(tmp_path, "autofj/left.tsv", "dataset title", [row[:2] for row in joins])
    write_table(tmp_path, "autofj/gt.tsv", "dataset title_l title_r", joins)
    return tmp_path


def _rows(kb: str, names: Sequence[str], aliases: Sequence[str]) -> list[tuple[str, ...]]:
    return [(f"{kb}:{i}", name, "", alias) for i, (name, alias) in enumerate(zip(names, aliases, strict=True))]


def _pairs_of_pairs(names: Sequence[str]) -> list[tuple[tuple[str, str], tuple[str, str]]]:
    pairs = list(zip(names[::2], names[1::2], strict=True))
    return [(one, other) for one in pairs for other in pairs if one != other]


def _write_context(folder: Path, take: object) -> None:
    assert callable(take)
    mesh = [(f"D{i}", name, ("Diseases|x", "Chemicals and Drugs")[i % 2]) for i, name in enumerate(take(400))]
    write_table(folder, "context/base_mesh.tsv", "id name types", mesh)
    for kb in ("cl", "so"):
        write_table(folder, f"context/base_{kb}.tsv", "id name", [(f"{kb}{i}", n) for i, n in enumerate(take(100))])
    corpora = ("bio-bc5cdr-training", "bio-ncbi-train")
    mentions = [
        (corpora[i % 3 == 2], name, "NIL" if i % 10 == 0 else f"D{i // 4}", "Chemical" if i % 3 == 0 else "Disease")
        for i, name in enumerate(take(200))
    ]
    write_table(folder, "context/mentions.tsv", "corpus mention gold_id type", [*mentions, *mentions[:20]])


def letters(names: Sequence[str]) -> FloatArray:
    """Unit vectors that count letters."""
    counts = np.array(
        [[name.count(letter) for letter in "abcdefghijklmnopqrstuvwxyz"] for name in names], dtype=np.float32
    )
    found: FloatArray = counts / np.maximum(np.linalg.norm(counts, axis=1, keepdims=True), 1e-9)
    return found


def test_folds_have_the_same_tasks_and_no_item_in_common(data: Path) -> None:
    """The two folds have the same tasks, and no mention, pair, typed name or data set is in both."""
    suite = read_suite(data, data)

    assert [task.name for task in suite[1]] == [task.name for task in suite[2]]
    for one, other in zip(suite[1], suite[2], strict=True):
        assert min(one.n, other.n) > 0, one.name
        if isinstance(one, SearchTask) and isinstance(other, SearchTask):
            items = [{m for search in task.searches for m, _ in search.mentions} for task in (one, other)]
        elif isinstance(one, RelatednessTask) and isinstance(other, RelatednessTask):
            items = [{first for first, *_ in task.pairs} for task in (one, other)]
        elif isinstance(one, ClusterTask) and isinstance(other, ClusterTask):
            items = [set(task.names) | set(task.groups) for task in (one, other)]
        else:
            items = [set(one.strings()[:1]), set(other.strings()[:1])]
        assert not items[0] & items[1], one.name


def test_a_data_set_of_autofj_is_in_one_fold(data: Path) -> None:
    """Fuzzy joins are split by data set, and the misspelt titles are those of the same sets."""
    suite = read_suite(data, data)
    sets = {
        (fold, task.name): {search.name for search in task.searches}
        for fold, tasks in suite.items()
        for task in tasks
        if isinstance(task, SearchTask) and task.by_search
    }

    assert not sets[1, "AutoFJ"] & sets[2, "AutoFJ"]
    assert sets[1, "AutoFJ"] == sets[1, "AutoFJ with typos"]


def test_everyday_mentions_are_made_from_entities_of_the_fold(data: Path) -> None:
    """Each everyday mention is of an entity of the fold, is none of the names searched, and has a right one there."""
    for fold, tasks in read_suite(data, data).items():
        found = [task for task in tasks if task.name.startswith("everyday: ")]
        assert {task.name for task in found} == set(everyday.GROUPS)
        for task in found:
            assert isinstance(task, SearchTask)
            for search in task.searches:
                names, ids = ({row[i] for row in search.names} for i in (0, 1))
                for mention, gold in search.mentions:
                    assert {readers.fold_of(i) for i in gold} == {fold}
                    assert gold <= ids
                    assert mention not in names


def test_every_mention_counts_as_often_as_it_occurs(data: Path) -> None:
    """One task of diseases and chemicals has each mention of BC5CDR with its count, the other each string once."""
    tasks = {task.name: task for tasks in read_suite(data, data).values() for task in tasks}
    every = tasks["clusters: diseases, chemicals (BC5CDR, every mention)"]
    distinct = tasks["clusters: diseases, chemicals (distinct mentions)"]

    assert isinstance(every, ClusterTask)
    assert isinstance(distinct, ClusterTask)
    assert 2 in every.counts
    assert set(distinct.counts) == {1}
    assert distinct.n > every.n


def test_the_whole_suite_runs(data: Path) -> None:
    """A model beside itself has score 0 on the whole suite, and each name is encoded once, both folds together."""
    calls: list[str] = []

    def encode(names: list[str]) -> FloatArray:
        calls.extend(names)
        return letters(names)

    suite = read_suite(data, data)
    figures = measure(encode, suite, n_resamples=100)

    assert len(calls) == len(set(calls))
    assert compare(figures[1], figures[1]).score == 0
    assert all(np.isfinite(figure.resamples).all() for found in figures.values() for figure in found.values())


def test_reading_is_deterministic(data: Path) -> None:
    """The same folder gives the same tasks, and one fold alone those that it has beside the other."""
    assert read_suite(data, data, folds=[2])[2] == read_suite(data, data)[2]


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
