"""Entity-aware retrieval: an index of tagged documents, over qdrant-client's local mode."""

from __future__ import annotations

import runpy
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pearl_qdrant import EntityLinker
from pearl_qdrant.integrations.retrieval import EntityIndex

ROOT = Path(__file__).resolve().parents[2]
Given = tuple[str, str] | tuple[str, str, dict[str, Any]]

DOCUMENTS: list[Given] = [
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
    assert [bool(one.entity_ids) for one in index.search(question, entities="filter")] == [True, False, False, False]
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


def test_a_filter_that_too_few_documents_pass_fills_the_limit_and_says_so(index: EntityIndex) -> None:
    """There are as many documents as were asked for; those without an entity of the question come last and name none.
    What plain search puts before all that have one stays there.
    """
    found = index.search("New York State lakes", entities="filter", limit=3, entity_ids=["nyt"])

    assert [one.document_id for one in found] == ["1", "3", "4"]
    assert [one.entity_ids for one in found] == [(), ("nyt",), ()]


def test_an_entity_of_most_documents_moves_no_document_that_says_more_of_the_question(linker: EntityLinker) -> None:
    """An entity that nearly every document has tells nothing; one that few have finds them. A less sure one counts
    less.
    """
    tags = {"entity_ids": ["common"]}
    texts: list[Given] = [
        ("words", "Medications have side effects."),
        *((f"{i}", "Obesity is frequent.", tags) for i in range(9)),
    ]
    texts.append(("rare", "Nothing else.", {"entity_ids": ["rare", "common"]}))
    index = in_memory(linker, texts)

    assert first(index, "medications and side effects of fat", ["common"]) == "words"
    assert first(index, "medications", {"common": 2.0}) == "words"
    assert first(index, "medications", {"rare": 2.0}) == "rare"
    assert first(index, "medications", {"rare": 0.5}) == "words"


def test_a_name_that_the_document_has_anyway_adds_little_in_a_long_question(linker: EntityLinker) -> None:
    """An entity that is a small part of the question adds nothing to the words of its name: the document with a word
    that is rarer comes first. One that names it otherwise gets what the words give.
    """
    tags = {"entity_ids": ["weight"], "entity_names": ["weight loss"]}
    index = in_memory(
        linker,
        [
            ("named", "The weight loss lasted.", tags),
            ("again", "The weight loss did not last at all.", tags),
            ("other", "They were slimmer.", tags),
            ("rare", "The Desmond program ran.", {"entity_ids": []}),
            *((f"{i}", "Nothing else.", {"entity_ids": []}) for i in range(36)),
        ],
    )
    question = "Has the Desmond program really caused a substantial loss of weight in most participants"

    assert first(index, question, {"weight": 1.4}) == "rare"
    assert first(index, "What of weight loss?", {"weight": 1.4}) == "named"
    found = index.search(question, dense=False, entity_ids={"weight": 1.4})
    assert [one.document_id for one in found[:4]] == ["rare", "named", "again", "other"]


def test_beside_dense_vectors_alone_an_entity_counts_no_more_than_it_tells(linker: EntityLinker) -> None:
    """An entity of most documents leaves the nearest document first; one that few have brings its own forward."""
    from qdrant_client import QdrantClient

    place = {"far": 1.0, "middle": 0.5}
    index = EntityIndex(
        QdrantClient(":memory:"),
        "documents",
        linker,
        embed=lambda texts: [[1.0, place.get(text.split()[0], 0.0)] for text in texts],
        dim=2,
    )
    index.add(
        [
            ("near", "side effects of medications", {"entity_ids": []}),
            ("middle", "middle of it", {"entity_ids": ["common", "rare"]}),
            *((f"{i}", "far from it", {"entity_ids": ["common"]}) for i in range(9)),
        ]
    )

    def best(**entity: float) -> str:
        return index.search("effects of medications", sparse=False, entity_ids=entity)[0].document_id

    assert best(common=1.0) == "near"
    assert best(rare=2.0) == "middle"


def test_documents_that_a_connector_tagged_are_found_by_their_tags(linker: EntityLinker) -> None:
    """The ids in a document's metadata are its entities: it is not linked again, and a surer mention comes first."""
    mentions = [{"entity_id": "nyt", "text": "paper", "probability": 0.6}]
    index = in_memory(
        linker,
        [
            ("unsure", "They read the paper.", {"entity_ids": ["nyt"], "entity_mentions": mentions}),
            ("sure", "They read it.", {"entity_ids": ["nyt"], "entity_names": ["The New York Times"]}),
            ("none", "The New York Times is read.", {"entity_ids": []}),
        ],
    )

    found = index.search("Who reads nytimes.com?", dense=False)
    assert [one.document_id for one in found if one.entity_ids] == ["sure", "unsure"]
    assert found[0].metadata == {"entity_ids": ["nyt"], "entity_names": ["The New York Times"]}


def test_a_collection_of_an_earlier_version_is_found_by_entities(linker: EntityLinker) -> None:
    """Documents that were stored with ids alone are found by them as soon as the collection is opened."""
    from qdrant_client import QdrantClient, models

    client = QdrantClient(":memory:")
    client.create_collection(
        "old",
        vectors_config={"dense": models.VectorParams(size=2, distance=models.Distance.COSINE)},
        sparse_vectors_config={"words": models.SparseVectorParams(modifier=models.Modifier.IDF)},
    )
    client.upsert(
        "old",
        [
            models.PointStruct(
                id=i,
                vector={"dense": [1.0, 0.0], "words": models.SparseVector(indices=[1], values=[1.0])},
                payload={"id": f"{i}", "text": f"Document {i}", "metadata": {}, "entity_ids": ids},
            )
            for i, ids in enumerate([[]] * 70 + [["nyt"]])
        ],
    )

    for _ in range(2):
        index = EntityIndex(client, "old", linker, embed=lambda texts: [[1.0, 0.0]] * len(texts), dim=2)
        assert first(index, "The New York Times") == "70"
        assert first(index, "document 12") == "12"
    client.close()


def in_memory(linker: EntityLinker, documents: Sequence[Given]) -> EntityIndex:
    """An index of these documents, whose dense vectors say nothing."""
    from qdrant_client import QdrantClient

    index = EntityIndex(
        QdrantClient(":memory:"), "documents", linker, embed=lambda texts: [[1.0, 0.0]] * len(texts), dim=2
    )
    index.add(documents)
    return index


def first(index: EntityIndex, question: str, entity_ids: list[str] | dict[str, float] | None = None) -> str:
    """The id of the first document that words and entities find."""
    return index.search(question, dense=False, entity_ids=entity_ids)[0].document_id


@pytest.mark.slow
def test_the_example_finds_every_document_by_its_entity() -> None:
    """With the sample base and the shipped model, entities put the right document first for all twelve questions."""
    ranks = runpy.run_path(str(ROOT / "examples" / "entity_aware_retrieval.py"))["first_ranks"]()

    assert (ranks["boost"], ranks["filter"]) == (12, 12)
    assert ranks["dense"] < 12
    assert ranks["hybrid"] < 12
