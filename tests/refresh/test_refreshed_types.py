"""What a refreshed encoder still knows of types: the recipe of docs/training.md on a tiny checkpoint."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from cli_runner import Outcome, Run
from tiny_models import make_bert, make_pearl

from pearl_qdrant.encoder.checkpoint import read_config, write_config
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.phrase_types import PHRASE_TYPES

NAMES = ["new york", "heart attack", "aspirin"]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint whose type head has seen every label but the last."""
    folder = tmp_path_factory.mktemp("models") / "start"
    make_pearl(folder)
    return folder


def refreshed(run: Run, start: Path, out: Path, *words: str, types: str = "") -> Outcome:
    """Two steps of `train fit` on a base of its own, whose entities have the types given in turn."""
    kinds = types.split() or [""]
    rows = "".join(f"{i}\tnew york w{i}\t{kinds[i % len(kinds)]}\tcity {i}\n" for i in range(12))
    base = out.with_name("base.tsv")
    base.write_text(f"id\tname\ttype\taliases\n{rows}", encoding="utf-8")
    given = ["--base-model", str(start), "--aliases", str(base), "--steps", "2", "--batch", "12", "--out", str(out)]
    done = run("train", "fit", *given, *words)
    assert done.status == 0, done.err
    return done


def test_a_base_without_types_leaves_the_type_head_as_it_was(run: Run, start: Path, tmp_path: Path) -> None:
    """What the start's head could say can still be said: types are numbers, and no label is forgotten."""
    refreshed(run, start, tmp_path / "fitted")

    found = load_encoder(str(tmp_path / "fitted")).encode(NAMES).type_probabilities
    assert found is not None
    assert np.isfinite(found).all()
    assert read_config(tmp_path / "fitted").label_counts == read_config(start).label_counts


def test_types_of_the_base_are_added_to_those_known(run: Run, start: Path, tmp_path: Path) -> None:
    """A base of organisations does not make every other type one that was never seen."""
    refreshed(run, start, tmp_path / "fitted", types="ORG")

    counts = dict(zip(PHRASE_TYPES, read_config(tmp_path / "fitted").label_counts, strict=True))
    assert counts["NP-ORG"] == 13
    assert counts["NP-GPE"] == 1
    assert counts[PHRASE_TYPES[-1]] == 0


def test_few_types_are_warned_of(run: Run, start: Path, tmp_path: Path) -> None:
    """Training on one type makes a head forget the others: it is said, with the way to keep it."""
    warned = refreshed(run, start, tmp_path / "a", types="ORG GPE")
    silent = refreshed(run, start, tmp_path / "b", "--type-weight", "0", types="ORG GPE")

    assert "2 of the 19 entity types" in warned.err
    assert "--type-weight 0" in warned.err
    assert "--type-weight" not in silent.err
    assert read_config(tmp_path / "b").label_counts == read_config(start).label_counts


def test_a_head_that_learnt_nothing_says_nothing(run: Run, tmp_path: Path) -> None:
    """A plain encoder refreshed on names without types has no types to give, rather than some that mean nothing."""
    refreshed(run, make_bert(tmp_path / "bert"), tmp_path / "fitted")

    encoder = load_encoder(str(tmp_path / "fitted"))
    assert not encoder.info.has_head
    assert encoder.encode(NAMES).type_probabilities is None
    assert np.isfinite(encoder.encode(NAMES).vectors).all()


def test_a_graph_whose_head_learnt_nothing_gives_vectors_alone(start: Path, tmp_path: Path) -> None:
    """The same through ONNX: the vectors are those of the model, and there are no types."""
    folder = tmp_path / "untaught"
    shutil.copytree(start, folder)
    config = read_config(folder)
    write_config(folder, config.model_copy(update={"label_counts": (0,) * len(PHRASE_TYPES)}))

    encoder = load_encoder(str(folder), runtime="onnx")
    assert not encoder.info.has_head
    assert encoder.encode(NAMES).type_probabilities is None
    expected = load_encoder(str(start), runtime="onnx").encode(NAMES).vectors
    assert np.array_equal(encoder.encode(NAMES).vectors, expected)


def test_averaging_says_what_became_of_the_type_head(run: Run, start: Path, tmp_path: Path) -> None:
    """The head stays the fitted one; fitting another is a choice, and needs names of every type."""
    fitted = refreshed(run, start, tmp_path / "fitted")
    averaged = run("train", "average", str(start), str(tmp_path / "fitted"), str(tmp_path / "averaged"))

    assert "train average" in fitted.err
    assert "train head" not in fitted.err
    assert averaged.status == 0, averaged.err
    assert "type head is that of" in averaged.err
    assert "train head" in averaged.err
    assert "every type" in averaged.err
