"""LangChain: the retriever, the tool and the document transformer."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from pydantic import ValidationError

from pearl_qdrant import EntityLinker
from pearl_qdrant.encoder.protocol import Encoder

pytest.importorskip("langchain_core")
pytest.importorskip("langchain_tests")

from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.tools import BaseTool
from langchain_tests.integration_tests.retrievers import RetrieversIntegrationTests
from langchain_tests.unit_tests.tools import ToolsUnitTests

from pearl_qdrant.integrations.langchain import EntityRetriever, EntityTagger, make_link_tool

TEXT = "A heart attack in New York State, says The New York Times."


@pytest.mark.anyio
class TestStandardRetriever(RetrieversIntegrationTests):
    """LangChain's own tests of a retriever."""

    @pytest.fixture(autouse=True)
    def _take_linker(self, linker: EntityLinker) -> None:
        self._linker = linker

    @property
    def retriever_constructor(self) -> type[BaseRetriever]:
        return EntityRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"linker": self._linker}

    @property
    def retriever_query_example(self) -> str:
        return "New York"


class TestStandardTool(ToolsUnitTests):
    """LangChain's own tests of a tool."""

    @pytest.fixture(autouse=True)
    def _take_linker(self, linker: EntityLinker) -> None:
        self._linker = linker

    @property
    def tool_constructor(self) -> BaseTool:
        return make_link_tool(self._linker)

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return {"mentions": ["NYTimes"]}


def test_a_document_is_an_entity_with_what_the_base_says(linker: EntityLinker) -> None:
    """The text is the name with the description; the metadata is plain JSON, and filters by type and probability."""
    first, *_ = EntityRetriever(linker=linker, k=2).invoke("NYTimes")

    assert (first.id, first.page_content) == ("nyt", "The New York Times: A newspaper")
    assert first.metadata["types"] == ["ORG", "newspaper"]
    assert first.metadata["probability"] > 0.5
    assert json.dumps(first.metadata)
    assert [one.id for one in EntityRetriever(linker=linker, types=("state",)).invoke("New York")] == ["nys"]
    assert [one.id for one in EntityRetriever(linker=linker).invoke("New York", types=["city"], k=1)] == ["nyc"]
    retriever = EntityRetriever(linker=linker)
    assert asyncio.run(retriever.ainvoke("New York")) == retriever.invoke("New York")
    assert EntityRetriever(linker=linker, min_probability=0.9).invoke("completely unknown") == []
    with pytest.raises(ValidationError, match="greater than 0"):
        EntityRetriever(linker=linker, k=0)


def test_the_tool_gives_text_to_the_model_and_links_to_the_program(linker: EntityLinker) -> None:
    """The content names entities and NIL, the artifact has the records; synchronous or not."""
    tool = make_link_tool(linker)
    call = {"type": "tool_call", "id": "1", "name": tool.name, "args": {"mentions": ["nytimes.com", "qwertz"]}}

    answer = tool.invoke(call)

    assert answer.content.splitlines()[0].startswith("nytimes.com: The New York Times [nyt], probability 0.9")
    assert answer.content.splitlines()[1].startswith("qwertz: NIL (")
    assert [link.entity_id for link in answer.artifact] == ["nyt", None]
    assert asyncio.run(tool.ainvoke(call)).artifact == answer.artifact
    with pytest.raises(ValidationError, match="mentions"):
        tool.invoke({"names": ["x"]})


def test_the_tool_names_the_entities_of_an_ambiguous_name(shipped: Encoder) -> None:
    """A model can ask which one is meant, as it is told them with their descriptions."""
    rows = [
        {"id": "p1", "name": "John Smith", "description": "painter"},
        {"id": "p2", "name": "John Smith", "description": "bishop"},
        {"id": "p3", "name": "Jane Roe"},
    ]
    with EntityLinker.build(rows, model=shipped) as linker:
        told = make_link_tool(linker).invoke({"mentions": ["John Smith"]})

    assert told == "John Smith: NIL (ambiguous: John Smith [p1, painter], John Smith [p2, bishop])"


def test_documents_are_tagged_with_their_entities(linker: EntityLinker) -> None:
    """Copies have the ids beside their own metadata, each once, and on request every mention with its place."""
    given = [Document(TEXT, metadata={"source": "a"}, id="7"), Document("Nothing here.")]

    tagged, empty = EntityTagger(linker, mentions=True).transform_documents(given)

    assert tagged.metadata["entity_ids"] == ["mi", "nys", "nyt"]
    assert tagged.metadata["entity_names"] == ["myocardial infarction", "New York State", "The New York Times"]
    first = tagged.metadata["entity_mentions"][0]
    assert TEXT[first["start"] : first["end"]] == "heart attack"
    assert (tagged.id, tagged.metadata["source"], given[0].metadata) == ("7", "a", {"source": "a"})
    assert empty.metadata == {"entity_ids": [], "entity_names": [], "entity_mentions": []}
    assert asyncio.run(EntityTagger(linker, mentions=True).atransform_documents(given)) == [tagged, empty]
