"""LlamaIndex: the extractor and the retriever."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import ValidationError
from resolution_names import LetterEncoder

from pearl_qdrant import EntityLinker

TEXT = "A heart attack in New York State, says The New York Times."

pytestmark = pytest.mark.slow
"""Importing llama-index-core takes seconds; `test_independence.py` has a quick test."""


@pytest.fixture(autouse=True, scope="module")
def _installed() -> None:
    pytest.importorskip("llama_index.core")


def test_nodes_get_one_dictionary_each(linker: EntityLinker) -> None:
    """In a pipeline the extractor writes ids and names into the metadata of text nodes, and of nothing else."""
    from llama_index.core.ingestion import IngestionPipeline
    from llama_index.core.schema import ImageNode, IndexNode, TextNode

    from pearl_qdrant.integrations.llama_index import EntityExtractor

    extractor = EntityExtractor(linker, mentions=True, show_progress=False)
    nodes = [TextNode(text=TEXT, metadata={"title": "nypost.com"}), TextNode(text="Nothing here."), ImageNode()]

    tagged, empty, _ = asyncio.run(extractor.aextract(nodes))

    assert tagged["entity_ids"] == ["mi", "nys", "nyt"]
    assert tagged["entity_names"][0] == "myocardial infarction"
    assert TEXT[tagged["entity_mentions"][0]["start"] :].startswith("heart attack")
    assert empty == {"entity_ids": [], "entity_names": [], "entity_mentions": []}
    assert asyncio.run(extractor.aextract([])) == []
    before = TextNode(text=TEXT, metadata={"entity_ids": ["mesh:1", "mi"], "entity_names": ["Boston", "infarction"]})
    (added,) = asyncio.run(extractor.aextract([before]))
    assert added["entity_ids"] == ["mesh:1", "mi", "nys", "nyt"]
    assert added["entity_names"][:2] == ["Boston", "infarction"]
    plain = EntityExtractor(linker, types=["city"])
    made = IngestionPipeline(transformations=[plain]).run(nodes=[IndexNode(text="I love NYC.", index_id="1")])
    assert made[0].metadata == {"entity_ids": ["nyc"], "entity_names": ["New York"]}
    assert "linker" not in plain.to_json()
    assert plain.to_dict()["types"] == ["city"]
    with pytest.raises(ValidationError, match="threshold"):
        EntityExtractor(linker, threshold=2)


def test_candidates_are_nodes_with_their_probability(linker: EntityLinker) -> None:
    """The retriever returns entities as nodes; a language model reads names, not scores; synchronous or not."""
    from llama_index.core.schema import MetadataMode

    from pearl_qdrant.integrations.llama_index import EntityRetriever

    retriever = EntityRetriever(linker, similarity_top_k=3)

    found = retriever.retrieve("NYTimes")

    assert len(found) == 3
    assert (found[0].node_id, found[0].node.metadata["types"]) == ("nyt", ["ORG", "newspaper"])
    assert found[0].score == found[0].node.metadata["probability"] > 0.5
    assert "dense_score" not in found[0].node.get_content(MetadataMode.LLM)
    assert asyncio.run(retriever.aretrieve("NYTimes")) == found
    assert [one.node_id for one in EntityRetriever(linker, types=["state"]).retrieve("New York")] == ["nys"]
    with pytest.raises(ValueError, match="at least 1, not 0"):
        EntityRetriever(linker, similarity_top_k=0)


def test_entities_of_a_property_graph_that_mean_the_same_are_one_node() -> None:
    """As the last of the extractors, the merger leaves one node in the store, with all relations and names."""
    from llama_index.core import Document, MockEmbedding, PropertyGraphIndex
    from llama_index.core.graph_stores import SimplePropertyGraphStore
    from llama_index.core.graph_stores.types import EntityNode, Relation
    from llama_index.core.indices.property_graph import ImplicitPathExtractor
    from llama_index.core.schema import BaseNode, TransformComponent

    from pearl_qdrant.integrations.llama_index import EntityMerger
    from pearl_qdrant.integrations.merging import NameMerger

    class Extractor(TransformComponent):
        """What a language model would find in each text."""

        def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> Sequence[BaseNode]:
            for node in nodes:
                person, verb, place = node.get_content().split("|")
                ends = [EntityNode(name=person, label="PERSON", properties={"born": 1879}),
                        EntityNode(name=place, label="CITY")]  # fmt: skip
                relation = Relation(label=verb, source_id=ends[0].id, target_id=ends[1].id)
                node.metadata |= {"nodes": ends, "relations": [relation]}
            return nodes

    def build(merger: NameMerger) -> SimplePropertyGraphStore:
        texts = ["Albert Einstein|LIVED_IN|Princeton", "A. Einstein|WORKED_IN|Princeton"]
        store = SimplePropertyGraphStore()
        PropertyGraphIndex.from_documents(
            [Document(text=text) for text in texts],
            kg_extractors=[Extractor(), ImplicitPathExtractor(), EntityMerger(merger)],
            property_graph_store=store,
            embed_model=MockEmbedding(embed_dim=4),
            use_async=False,
        )
        return store

    dry = NameMerger(dry_run=True, encoder=LetterEncoder())
    people = {node.name for node in build(dry).get() if node.label == "PERSON"}
    assert people == {"Albert Einstein", "A. Einstein"}
    assert dry.report().startswith("A. Einstein -> Albert Einstein")

    merger = NameMerger(encoder=LetterEncoder())
    store = build(merger)
    (person,) = [node for node in store.get() if node.label == "PERSON"]
    assert (person.name, person.properties["aliases"]) == ("Albert Einstein", ["A. Einstein"])
    assert person.properties["born"] == 1879
    found = {(a.id, relation.label, b.id) for a, relation, b in store.get_triplets(entity_names=["Albert Einstein"])}
    assert found == {("Albert Einstein", "LIVED_IN", "Princeton"), ("Albert Einstein", "WORKED_IN", "Princeton")}

    merger.undo(["A. Einstein"])
    assert {node.name for node in build(merger).get() if node.label == "PERSON"} == people


def test_a_relation_between_two_names_of_one_entity_goes_away_and_given_nodes_stay() -> None:
    """Nodes that I gave are unchanged; a relation stays with the one of two namesakes that keeps the name."""
    from llama_index.core.graph_stores.types import EntityNode, Relation
    from llama_index.core.schema import TextNode

    from pearl_qdrant.integrations.llama_index import EntityMerger
    from pearl_qdrant.integrations.merging import NameMerger

    ends = [EntityNode(name=name, label=label) for name, label in
            (("Niels Bohr", "PERSON"), ("N. Bohr", "PERSON"), ("N. Bohr", "SHIP"))]  # fmt: skip
    relations = [Relation(label="IS", source_id="N. Bohr", target_id="Niels Bohr"),
                 Relation(label="SAILS", source_id="N. Bohr", target_id="chunk-1")]  # fmt: skip
    given = TextNode(text="...", metadata={"nodes": ends, "relations": relations})
    transform = EntityMerger(NameMerger(encoder=LetterEncoder()))

    (made,) = transform([given])
    (alone,) = transform([TextNode(text="...", metadata={"nodes": ends[:2], "relations": relations[:1]})])

    assert [(one.name, one.label) for one in made.metadata["nodes"]] == [("Niels Bohr", "PERSON"), ("N. Bohr", "SHIP")]
    assert [(one.source_id, one.label, one.target_id) for one in made.metadata["relations"]] == [
        ("N. Bohr", "IS", "Niels Bohr"),
        ("N. Bohr", "SAILS", "chunk-1"),
    ]
    assert alone.metadata["relations"] == []
    assert (given.metadata["nodes"], ends[1].name) == (ends, "N. Bohr")
    assert asyncio.run(transform.acall([TextNode(text="no graph")]))[0].metadata == {}
