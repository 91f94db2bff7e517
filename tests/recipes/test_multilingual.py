"""The recipes of the shipped model: what is held out, its examples, and the measures by which it was chosen."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
from development_suite import FOLDS, FoldData, compare, summary
from evaluation_data import Letters, made_up_names, write_table
from mini_en.examples import (
    alias_examples,
    held_out_aliases,
    typed_examples,
    without_strings,
)
from multilingual.names import Entity, held_out_names
from multilingual.tasks import multilingual_tasks

from pearl_qdrant.encoder.protocol import Encoded
from training.evaluation.data import FolderData
from training.evaluation.methods import EncoderMethod
from training.examples.example import (
    DEVELOPMENT_SPLITS,
    TEST_SPLITS,
    TRAIN_SPLITS,
    any_class,
    name_key,
    split_of,
)


def id_in(splits: range) -> str:
    """An id whose fold is in these splits."""
    return next(str(i) for i in range(1_000) if split_of(str(i)) in splits)


class Reader(Letters):
    """Letters, which reads Cyrillic as Latin, and eight letters of a name."""

    def encode(self, names: Sequence[str]) -> Encoded:
        back = str.maketrans("абцдефгхийклмноп", "abcdefghijklmnop")
        return super().encode([name.translate(back)[:8] for name in names])


def test_entities_of_the_test_and_their_names_are_held_out() -> None:
    """An id of the test keeps an entity out of training. All names of a held-out country are held out, but not the
    English one of a place of GeoNames, which many places share.
    """
    train, test, held = id_in(TRAIN_SPLITS), id_in(TEST_SPLITS), id_in(DEVELOPMENT_SPLITS)
    entities = [
        Entity("territory", (held, train), "Moldavia", {"Молдавия": "ru"}),
        Entity("place", (held,), "Moscow", {"Москва": ""}),
        Entity("place", (train,), "Minsk", {"Мінск": ""}),
    ]

    assert Entity("territory", (train, test), "A").split in TEST_SPLITS
    assert held_out_names(entities, DEVELOPMENT_SPLITS) == {"moldavia", "молдавия", "москва"}


def test_mentions_are_held_out_names_looked_for_among_all_english_ones() -> None:
    """An encoder of both scripts finds every one; only larger languages are asked for; all folds are searched."""
    rng, cyrillic = random.Random(0), str.maketrans("abcdefghijklmnop", "абцдефгхийклмноп")
    names = ["".join(rng.choices("abcdefghijklmnop", k=8)) for _ in range(300)]
    entities = [
        Entity("territory", (f"T{i}",), name, {name.translate(cyrillic): "ru", f"{name}a": "it", f"{name}o": "xx"})
        for i, name in enumerate(names)
    ] + [Entity("place", (f"P{i}",), name, {name.translate(cyrillic): ""}) for i, name in enumerate(names)]
    tasks = [task for task in multilingual_tasks(entities) if any(search.mentions for search in task.searches)]
    assert all({name for name, _ in search.names} == set(names) for task in tasks for search in task.searches)

    figures = {task.name: task.measure(EncoderMethod(Reader(has_head=False))).value for task in tasks}
    assert set(figures) == {"territory: other scripts", "territory: other languages, Latin", "place: other scripts"}
    assert all(value > 99 for value in figures.values())
    for search in (search for task in tasks for search in task.searches):
        assert all(not mention.endswith("o") or not mention.isascii() for mention, _ in search.mentions)
        assert all(split_of(min(gold).partition(":")[2]) in DEVELOPMENT_SPLITS for _, gold in search.mentions)


def test_splits_are_by_entity_and_no_held_out_string_enters(tmp_path: Path) -> None:
    """No alias of a held-out entity is in training, nor any string equal to one after case folding, nor a typed name of
    another split; a typed name with two types allows either.
    """
    rows = "".join(f"E{i}\tname {i}\tAlias {i}|shared {i % 3}\n" for i in range(60))
    path = tmp_path / "base.tsv"
    path.write_text(f"id\tname\taliases\n{rows}", encoding="utf-8")
    held = held_out_aliases(path)
    kept = without_strings(alias_examples(path, kb="b"), held)

    assert {split_of(e.entity.partition(":")[2]) for e in kept} <= set(TRAIN_SPLITS)
    assert not held & {name.casefold() for e in kept for name in (e.name, *e.others)}
    assert "shared 0" in held
    assert name_key("Route 66 ") == name_key("route 12")

    names = [f"place {a}{b}" for a in "abcdefgh" for b in "abcdef"]
    path.write_text("name\tonto_type\n" + "".join(f"{name}\tGPE\n{name}\tLOC\n" for name in names), encoding="utf-8")
    found = typed_examples(path)
    assert 0 < len(found) < len(names)
    assert all(split_of(name_key(e.name)) in TRAIN_SPLITS for e in found)
    assert found[0].allowed == any_class(["GPE", "LOC"])


@pytest.fixture
def data(tmp_path: Path) -> FolderData:
    """Phrases with ratings, choices, paraphrases both ways, joins and mentions in text."""
    names = made_up_names(120)
    rated = [(name, name[::-1] if i % 2 else names[i - 1], i % 2) for i, name in enumerate(names)]
    write_table(tmp_path, "pearl_bench/bird.tsv", "term1 term2 relatedness", rated)
    choices = [(name, name[::-1], *names[i + 1 : i + 5]) for i, name in enumerate(names[:-5])]
    header = "query answer distractor1 distractor2 distractor3 distractor4"
    write_table(tmp_path, "pearl_bench/turney.tsv", header, choices)
    pairs = [(a, b, "neg") for a, b in pairwise(names)]
    write_table(tmp_path, "pearl_bench/ppdb.tsv", "phrase1 phrase2 label", [*pairs, *((b, a, k) for a, b, k in pairs)])
    joins = [(f"set {i % 12}", i, name) for i, name in enumerate(names)]
    write_table(tmp_path, "autofj/left.tsv", "dataset id title", joins)
    mentions = [(split, "PER", f"{name} {split}") for split in ("train", "dev", "test") for name in names]
    write_table(tmp_path, "pearl_bench/conll2003.tsv", "split type mention", mentions)
    return FolderData(tmp_path)


def test_each_item_is_in_one_fold(data: FolderData) -> None:
    """The folds have no item in common, a pair and its reverse or a data set of AutoFJ being one, and are the table
    together; of CoNLL a fold measures the development part, and none of the test.
    """
    for path, *columns in (("pearl_bench/bird.tsv", "term1"), ("autofj/left.tsv", "dataset", "title")):
        folds = [FoldData(data, fold).rows(path, *columns) for fold in FOLDS]
        assert not {row[0] for row in folds[0]} & {row[0] for row in folds[1]}
        assert sorted([*folds[0], *folds[1]]) == sorted(data.rows(path, *columns))
        assert all(split_of(name_key(row[0])) % 2 == 1 for row in folds[0])  # as the development splits: 7 is fold 1
    pairs = set(FoldData(data, 1).rows("pearl_bench/ppdb.tsv", "phrase1", "phrase2"))
    assert pairs == {(b, a) for a, b in pairs}
    mentions = FoldData(data, 2).rows("pearl_bench/conll2003.tsv", "split", "mention")
    assert {mention.split()[1] for split, mention in mentions if split == "test"} == {"dev"}


class Noisy(Letters):
    """Letters with noise of the name's own."""

    def encode(self, names: Sequence[str]) -> Encoded:
        encoded = super().encode(names)
        noise = [np.random.default_rng(crc32(name.encode())).normal(size=27) for name in names]
        vectors = encoded.vectors + np.array(noise, dtype=np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return Encoded(vectors, encoded.encodable, encoded.type_probabilities)


def test_a_worse_model_is_found_below(data: FolderData, tmp_path: Path) -> None:
    """A model with much noise is below its start on the tasks, and named with them; one beside itself has score 0."""
    for path in ("ppdb", "conll2003"):
        (tmp_path / f"pearl_bench/{path}.tsv").unlink()
    start = EncoderMethod(Letters(), name="start")

    worse = summary(compare(EncoderMethod(Noisy(), name="noisy"), start, data, 1))
    same = summary(compare(EncoderMethod(Letters(), name="same"), start, data, 1))
    assert worse.startswith("score -")
    assert worse.endswith("below the start: turney, bird")
    assert same.startswith("score +0.00")
    assert same.endswith("below the start: none")
