"""Rerankers: a second model that scores the best candidates."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from linker_base import fill
from tiny_models import make_pearl

from pearl_qdrant import Entity, EntityLinker, NilReason
from pearl_qdrant.errors import ModelError
from pearl_qdrant.linking.ranking import CrossEncoder
from pearl_qdrant.store.schema import NamePoint


class Contrary:
    """A reranker that prefers the candidate with the longest name."""

    def score(self, mention: str, candidates: Sequence[NamePoint]) -> list[float]:
        assert mention
        return [50.0 * len(point.name) for point in candidates]


def test_a_reranker_changes_the_order(store_path: Path) -> None:
    """My own model can score the best candidates again, and its scores count."""
    with EntityLinker.open("base", store=str(store_path), threshold=0.0, reranker=Contrary()) as linker:
        link = linker.link("Nwe Yrok Tims")

    assert link.candidates[0].name == max((c.name for c in link.candidates), key=len)
    assert link.entity_id == link.candidates[0].entity_id


def test_a_reranker_does_not_overrule_an_exact_name(store_path: Path) -> None:
    """A name that a rule decides keeps its entity and its probability."""
    answers = []
    for reranker in (None, Contrary()):
        with EntityLinker.open("base", store=str(store_path), threshold=0.0, reranker=reranker) as linker:
            answers.append([linker.link(mention, limit=10) for mention in ("New York", "heart attack")])

    assert [link.entity_id for link in answers[1]] == ["nyc", "mi"]
    assert answers[0] == answers[1]


def test_a_reranker_chooses_among_namesakes_that_nothing_separates(tmp_path: Path, model: Path) -> None:
    """Two entities of one name are tied without it; with it, one of them is first."""
    fill(tmp_path, "twins", str(model), [Entity("a", "Springfield"), Entity("b", "Springfield")])

    class Second:
        def score(self, mention: str, candidates: Sequence[NamePoint]) -> list[float]:
            return [9.0 * (point.entity_id == "b") for point in candidates]

    with EntityLinker.open("twins", store=str(tmp_path)) as linker:
        assert linker.link("Springfield").nil_reason is NilReason.AMBIGUOUS
    with EntityLinker.open("twins", store=str(tmp_path), reranker=Second()) as linker:
        assert linker.link("Springfield").entity_id == "b"


def test_a_cross_encoder_is_loaded_from_a_folder(store_path: Path, tmp_path: Path) -> None:
    """Any sequence classifier of transformers works; anything else is refused with a hint."""
    folder = make_classifier(tmp_path / "classifier")
    encoder = CrossEncoder(str(folder))
    point = NamePoint("kb", "x", "New York", "New York", True, description="a city")

    alone = encoder.score("Big Apple", [point])
    together = encoder.score("Big Apple", [point, replace(point, name="New York Post", description=None)])

    assert together[0] == pytest.approx(alone[0], abs=1e-5)
    with EntityLinker.open("base", store=str(store_path), threshold=0.0, reranker=encoder) as linker:
        assert linker.link("heart attack").candidates
    with pytest.raises(ModelError, match=r"Cross-encoder .* cannot be loaded .*Pass a folder or a hub id"):
        CrossEncoder(str(tmp_path / "nothing"))


def make_classifier(folder: Path) -> Path:
    """A tiny random sequence classifier with the tokenizer of the tiny models."""
    from transformers import BertConfig, BertForSequenceClassification

    made = make_pearl(folder / "pearl").folder
    vocabulary = len(json.loads((made / "tokenizer.json").read_text("utf-8"))["model"]["vocab"])
    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        num_labels=1,
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        shutil.copy(made / name, folder / name)
    return folder
