"""GLUE: frozen vectors, from a folder and from the hub."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evaluation_data import OPTIONS, Letters, write_table

from pearl_qdrant.errors import FormatError
from training.evaluation.data import Data, FolderData, HubData
from training.evaluation.methods import EncoderMethod
from training.evaluation.outcome import Outcome
from training.evaluation.registry import find_tasks
from training.evaluation.tasks.classification import f1, matthews


def outcome(data: Data, task: str) -> Outcome:
    """The outcome of a task for an encoder of letters."""
    (found,) = find_tasks((task,))
    return found.run(data, EncoderMethod(Letters()), OPTIONS)


def texts(n: int) -> list[tuple[str, str]]:
    """Texts of the letters a and b, or of x and y, with a label that says which."""
    return [("ab" * (i % 4 + 1), "0") if i % 2 else ("xy" * (i % 4 + 1), "1") for i in range(n)]


def hub(repository: str, config: str, split: str) -> list[Mapping[str, Any]]:
    """Two sets of GLUE with the columns of the hub."""
    assert repository == "nyu-mll/glue"
    n = {"train[:10000]": 30}.get(split, 10)
    if config == "cola":
        return [{"sentence": text, "label": int(label), "idx": i} for i, (text, label) in enumerate(texts(n))]
    assert split.startswith(("train", "validation_m"))
    return [{"premise": text, "hypothesis": "ab", "label": int(label)} for text, label in texts(n)]


def test_sets_of_the_hub_are_read_with_their_splits() -> None:
    """Sets of one text and of pairs, and both validation sets of MNLI, are learnt from and tested on."""
    data = HubData(load=hub)

    cola, matched, mismatched = (outcome(data, f"glue_{name}") for name in ("cola", "mnli_matched", "mnli_mismatched"))
    assert cola.value == cola.details["accuracy"] == matched.value == mismatched.value == 100
    assert (cola.n, matched.n) == (10, 10)
    assert {row[0] for row in data.rows("glue/mnli.tsv", "split")} == {
        *("train", "validation_matched", "validation_mismatched")
    }
    assert set(data.paths("glue/*.tsv")) >= {"glue/qqp.tsv", "glue/stsb.tsv"}


def test_scores_of_pairs_are_those_of_the_cosine(tmp_path: Path) -> None:
    """STS-B correlates the cosine with the human scores, of the validation rows alone."""
    rows = [("train", "ab", "xy", "5"), ("validation", "ab", "ba", "5"), ("validation", "ab", "ax", "2.5")]
    write_table(tmp_path, "glue/stsb.tsv", "split text1 text2 label", [*rows, ("validation", "a", "x", "0")])

    found = outcome(FolderData(tmp_path), "glue_stsb")
    assert found.n == 3
    assert found.value > 95


def test_f1_and_matthews_are_those_of_their_formulas() -> None:
    """Both take weights, as a resample has them, and are 0 where they are not defined."""
    gold, found = np.array([1, 1, 0, 0, 1]), np.array([1, 0, 0, 1, 1])
    ones, twice = np.ones(5), np.array([2.0, 1, 1, 1, 1])

    assert f1(ones, gold, found) == pytest.approx(2 * 2 / (3 + 3))
    assert f1(twice, gold, found) == pytest.approx(2 * 3 / (4 + 4))
    assert matthews(ones, gold, found) == pytest.approx((2 * 1 - 1 * 1) / (3 * 2 * 3 * 2) ** 0.5)
    assert (f1(ones, 0 * gold, 0 * found), matthews(ones, gold, 0 * found)) == (0, 0)


@pytest.mark.parametrize(
    "rows, message",
    [
        ([("train", "a", "0"), ("validation", "b", "1")], "1 rows of the split train and 1 of validation are too few"),
        ([*[("train", "a", "0")] * 5, ("test", "b", "-1")], "5 rows of the split train and 0 of validation"),
        ([*[("train", "a", "0")] * 5, ("validation", "b", "0")], "labels must be two or more"),
    ],
)
def test_sets_that_nothing_can_be_learnt_from_are_errors(
    tmp_path: Path, rows: list[tuple[str, ...]], message: str
) -> None:
    """The message has the counts."""
    write_table(tmp_path, "glue/cola.tsv", "split text label", rows)
    with pytest.raises(FormatError, match=message):
        outcome(FolderData(tmp_path), "glue_cola")


@pytest.mark.slow
def test_the_datasets_library_reads_a_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`datasets.load_dataset` itself gives the rows, with the slice of the training rows."""
    pytest.importorskip("datasets")
    (tmp_path / "cola").mkdir()
    for split in ("train", "validation"):
        lines = (json.dumps({"sentence": text, "label": int(label)}) for text, label in texts(20))
        (tmp_path / "cola" / f"{split}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")

    import datasets

    load = datasets.load_dataset

    def from_folder(repository: str, config: str, *, split: str) -> Any:
        assert repository == "nyu-mll/glue"
        return load(str(tmp_path / config), split=split, cache_dir=str(tmp_path / "cache"))

    monkeypatch.setattr(datasets, "load_dataset", from_folder)
    rows = HubData().rows("glue/cola.tsv", "split", "text", "label")
    assert rows == [(split, *row) for split in ("train", "validation") for row in texts(20)]
