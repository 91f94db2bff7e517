"""Examples of the shipped model's recipe: WordNet, splits, typed names."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from mini_en.examples import (
    alias_examples,
    held_out_aliases,
    prepositional_examples,
    typed_examples,
    without_strings,
    wordnet_examples,
)

from pearl_qdrant.phrase_types import PHRASE_TYPES
from training.examples.example import TEST_SPLITS, TRAIN_SPLITS, any_class, name_key, split_of


@pytest.fixture
def wordnet(tmp_path: Path) -> Path:
    """Made-up synsets in WordNet's format, after lines of the licence."""
    licence = "  1 This is a licence line.\n"
    noun = "00000001 06 n 02 red_lorry 0 truck 0 001 @ 00000002 n 0000 | a made-up lorry\n"
    person = "00000003 18 n 01 Jane_Q._Sample 0 001 @i 00000002 n 0000 | a made-up person\n"
    adjective = "00000004 00 a 02 speedy(p) 0 rapid 0 000 | made up\n"
    for part, lines in (("noun", noun + person), ("verb", ""), ("adj", adjective), ("adv", "")):
        (tmp_path / f"data.{part}").write_text(licence + lines, encoding="utf-8")
    return tmp_path


def test_synsets_are_read_with_class_and_type(wordnet: Path) -> None:
    """Lemmas have spaces and no markers; common nouns are OTHER, a named person is PERSON."""
    found = {e.name: e for e in wordnet_examples(wordnet)}

    assert found["red lorry"].others == ("truck",)
    assert [PHRASE_TYPES[i] for i in found["red lorry"].allowed] == ["NP-OTHER"]
    assert [PHRASE_TYPES[i] for i in found["Jane Q. Sample"].allowed] == ["NP-PERSON"]
    assert [PHRASE_TYPES[i] for i in found["speedy"].allowed] == ["ADJP-OTHER"]


def test_splits_are_by_entity_and_no_held_out_string_enters(tmp_path: Path) -> None:
    """No alias of a held-out entity is in training, nor any string equal to one after case folding."""
    rows = "".join(f"E{i}\tname {i}\tAlias {i}|shared {i % 3}\n" for i in range(60))
    path = tmp_path / "base.tsv"
    path.write_text(f"id\tname\taliases\n{rows}", encoding="utf-8")
    held = held_out_aliases(path)
    kept = without_strings(alias_examples(path, kb="b"), held)

    assert {split_of(e.entity.partition(":")[2]) for e in kept} <= set(TRAIN_SPLITS)
    assert not held & {name.casefold() for e in kept for name in (e.name, *e.others)}
    assert "shared 0" in held
    assert name_key("Route 66 ") == name_key("route 12")


def test_typed_names_keep_all_their_types(tmp_path: Path) -> None:
    """A name with two types allows either; test names are skipped."""
    names = [f"place {chr(97 + i)}{chr(97 + j)}" for i in range(20) for j in range(5)]
    path = tmp_path / "typed.tsv"
    rows = "".join(f"{name}\tGPE\n{name}\tLOC\n" for name in names)
    path.write_text(f"name\tonto_type\n{rows}", encoding="utf-8")
    found = typed_examples(path)

    assert 0 < len(found) < len(names)
    assert all(split_of(name_key(e.name)) not in TEST_SPLITS for e in found)
    assert found[0].allowed == any_class(["GPE", "LOC"])
    prepositional = prepositional_examples(found, 5, random.Random(0))
    assert {PHRASE_TYPES[i] for i in prepositional[0].allowed} == {"PP-GPE", "PP-LOC"}
