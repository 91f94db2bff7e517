"""LlamaIndex: the extractor and the retriever."""

from __future__ import annotations

import asyncio

import pytest
from pydantic import ValidationError

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
