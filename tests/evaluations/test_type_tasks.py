"""Tasks on entity types: which names they use, and their scores."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from evaluation_data import made_up_names, task_outcome, write_table

from training.evaluation.data import FolderData
from training.evaluation.tasks.entity_types import (
    balanced_names,
    held_out_names,
    score_predictions,
    training_keys,
    unseen_number_names,
)
from training.examples.example import name_key, split_of
from training.examples.numbers import number_names


def test_types_are_the_marginal_over_lexical_classes(folder: Path) -> None:
    """The most probable single label is LAW, but the largest sum over lexical classes is correct."""
    found = task_outcome(folder, "types_natural")

    assert found.value == 100
    assert found.details["macro_f1"] == 100
    assert found.n == len(held_out_names(FolderData(folder)))


def test_only_names_of_the_test_split_are_used(folder: Path) -> None:
    """Names of other splits are skipped, and so are names that the training rules make."""
    write_table(
        folder,
        "typed_names/onto_typed_names.tsv",
        "name onto_type",
        [(f"{a} {i}", "ORG") for i, a in enumerate(made_up_names(50))]
        + [(f"{y}", "DATE") for y in range(1000, 2000)]
        + [("45%", "PERCENT")],
    )
    names = held_out_names(FolderData(folder))

    assert names
    assert all(split_of(name_key(name)) == 9 for name, _ in names)
    assert all(kinds == {"ORG"} for _, kinds in names)


def test_rules_for_rare_types_share_no_name_with_the_training_rules() -> None:
    """There are 100 names or more of MONEY, ORDINAL, PERCENT and TIME each, none with a key from training."""
    made = unseen_number_names(200, random.Random(0), seen=training_keys())
    other_draw = {name_key(name) for name, _ in number_names(5_000, random.Random(7))}

    assert set(made) == {"MONEY", "ORDINAL", "PERCENT", "TIME"}
    for names in made.values():
        assert len(names) >= 100
        assert len({name_key(name) for name in names}) == len(names)
        assert not other_draw & {name_key(name) for name in names}


def test_a_balanced_sample_fills_rare_types(folder: Path) -> None:
    """The sample has the four types that rules make, though the table has none of them."""
    chosen = balanced_names(held_out_names(FolderData(folder)), random.Random(0))
    kinds = [kind for _, found in chosen for kind in found]

    assert all(kinds.count(kind) >= 100 for kind in ("MONEY", "ORDINAL", "PERCENT", "TIME"))
    assert kinds.count("ORG") <= 200


def test_a_name_with_two_types_counts_for_either() -> None:
    """A prediction is correct if it is one of them; macro-F1 agrees with scikit-learn on the resolved types."""
    from sklearn.metrics import f1_score

    predicted = ["ORG", "GPE", "PERSON", "LAW"]
    scores = score_predictions(predicted, [{"ORG", "FAC"}, {"GPE"}, {"ORG", "GPE"}, {"LAW"}])

    assert scores.accuracy == 0.75
    expected = f1_score(["ORG", "GPE", "GPE", "LAW"], predicted, labels=["GPE", "LAW", "ORG"], average="macro")
    assert scores.macro_f1 == pytest.approx(expected)
    assert scores.support == {"GPE": 2, "LAW": 1, "ORG": 1}
