"""Entity-aware retrieval: an index of tagged documents, over qdrant-client's local mode."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

from pearl_qdrant import EntityLinker
from pearl_qdrant.integrations.retrieval import EntityIndex

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    ("1", "New York State has many lakes.", {"source": "atlas"}),
    ("2", "A heart attack needs help at once."),
    ("3", "Help came from nytimes.com readers."),
    ("4", "Lakes freeze in winter."),
]


@pytest.fixture(scope="module")
def index(linker: EntityLinker) -> Iterator[EntityIndex]:
    """The documents above; their dense vectors say nothing."""
    from qdrant_client import QdrantClient

    client = QdrantClient(":memory:")
    made = EntityIndex(client, "documents", linker, embed=lambda texts: [[1.0, 0.0]] * len(texts), dim=2)
    assert made.add(DOCUMENTS) == 4
    assert made.add(DOCUMENTS[:1]) == 1
    assert client.count("documents").count == 4
    yield made
    client.close()


def test_another_name_of_an_entity_finds_its_document(index: EntityIndex) -> None:
    """A question that shares no word with the document finds it by the entity; without entities it does not. Text and
    metadata are stored as they are; the score falls from document to document.
    """
    question = "The New York Times"

    assert index.entities_of(question) == ["nyt"]
    found = index.search(question, limit=1)[0]
    assert (found.document_id, found.entity_ids) == ("3", ("nyt",))
    assert [one.document_id for one in index.search(question, entities="filter")] == ["3"]
    assert index.search(question, dense=False, entities="off")[0].document_id == "1"
    assert index.search("myocardial infarction", dense=False)[0].document_id == "2"
    first, *others = index.search("New York State lakes")
    assert (first.text, first.metadata, first.entity_ids) == (DOCUMENTS[0][1], {"source": "atlas"}, ("nys",))
    assert [one.score for one in (first, *others)] == sorted((one.score for one in (first, *others)), reverse=True)


def test_a_question_without_an_entity_is_searched_as_usual(index: EntityIndex) -> None:
    """A filter that nothing passes, and a question without entities, leave plain search; without any there is none."""
    assert index.search("winter", limit=1, entities="filter", dense=False)[0].document_id == "4"
    assert index.search("winter", limit=1, dense=False, entity_ids=["nobody"])[0].document_id == "4"
    assert index.search("winter", limit=1, dense=False, entities="filter", entity_ids=["nobody"])[0].document_id == "4"
    assert index.search("", dense=False) == []
    with pytest.raises(ValueError, match="at least 1, not 0"):
        index.search("x", limit=0)
    with pytest.raises(ValueError, match="by dense vectors, by words, or by both"):
        index.search("x", dense=False, sparse=False)


@pytest.mark.slow
def test_the_example_finds_every_document_by_its_entity() -> None:
    """With the sample base and the shipped model, entities put the right document first for all twelve questions."""
    ranks = runpy.run_path(str(ROOT / "examples" / "entity_aware_retrieval.py"))["first_ranks"]()

    assert (ranks["boost"], ranks["filter"]) == (12, 12)
    assert ranks["dense"] < 12
    assert ranks["hybrid"] < 12
