"""The development suite: folds of the tasks of `evaluate`, and whether a worse encoder is found below its start."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
from development_suite import FOLDS, FoldData, compare, summary
from evaluation_data import Letters, made_up_names, write_table

from pearl_qdrant.encoder.protocol import Encoded
from training.evaluation.data import FolderData
from training.evaluation.methods import EncoderMethod
from training.examples.example import name_key, split_of


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


@pytest.mark.parametrize(
    "path, columns", [("pearl_bench/bird.tsv", ("term1",)), ("autofj/left.tsv", ("dataset", "title"))]
)
def test_each_item_is_in_one_fold(data: FolderData, path: str, columns: tuple[str, ...]) -> None:
    """The folds have no item in common, a data set of AutoFJ among them, and are the table together."""
    folds = [FoldData(data, fold).rows(path, *columns) for fold in FOLDS]

    assert not {row[0] for row in folds[0]} & {row[0] for row in folds[1]}
    assert sorted([*folds[0], *folds[1]]) == sorted(data.rows(path, *columns))
    assert all(split_of(name_key(row[0])) % 2 == 1 for row in folds[0])  # as the development splits: 7 is fold 1


def test_a_pair_and_its_reverse_are_in_one_fold(data: FolderData) -> None:
    """PPDB has many pairs both ways."""
    found = set(FoldData(data, 1).rows("pearl_bench/ppdb.tsv", "phrase1", "phrase2"))

    assert found == {(b, a) for a, b in found}


def test_development_rows_stand_for_those_of_the_test(data: FolderData) -> None:
    """Of CoNLL a fold measures the development part, and none of the test."""
    rows = FoldData(data, 2).rows("pearl_bench/conll2003.tsv", "split", "mention")

    assert {mention.split()[1] for split, mention in rows if split == "test"} == {"dev"}


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
