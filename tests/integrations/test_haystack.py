"""Haystack: the tagging, the retrieving and the merging component."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from resolution_names import LetterEncoder

from pearl_qdrant import EntityLinker
from pearl_qdrant.errors import OptionError

TEXT = "A heart attack in New York State, says The New York Times."

pytestmark = pytest.mark.slow
"""Importing haystack-ai takes seconds; `test_independence.py` has a quick test."""


@pytest.fixture(autouse=True, scope="module")
def _installed() -> None:
    os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # there is no network
    pytest.importorskip("haystack")


def test_what_is_serialised_comes_back(store_path: Path) -> None:
    """Defaults and given values survive a round trip, alone and as YAML of a whole pipeline, without an open linker."""
    from haystack import Pipeline

    from pearl_qdrant.integrations.haystack import EntityRetriever, EntityTagger

    store = str(store_path)
    tagger = EntityTagger("base", store=store, types=["ORG"], threshold=0.7, mentions=True)
    retriever = EntityRetriever(["base"])

    assert tagger.to_dict() == {
        "type": "pearl_qdrant.integrations.haystack.EntityTagger",
        "init_parameters": {
            "collections": ["base"],
            "store": store,
            "types": ["ORG"],
            "threshold": 0.7,
            "mentions": True,
        },
    }
    assert retriever.to_dict()["init_parameters"] == {
        "collections": ["base"],
        "store": None,
        "top_k": 10,
        "types": None,
    }
    assert EntityTagger.from_dict(tagger.to_dict()).to_dict() == tagger.to_dict()
    assert EntityRetriever.from_dict(retriever.to_dict()).to_dict() == retriever.to_dict()
    pipeline = Pipeline()
    pipeline.add_component("tagger", tagger)
    loaded = Pipeline.loads(pipeline.dumps(), allowed_modules=["pearl_qdrant.integrations.haystack"])
    assert loaded.get_component("tagger").to_dict() == tagger.to_dict()


@pytest.mark.parametrize(
    "arguments, reason",
    [
        ({}, "either names of collections or an open linker"),
        ({"collections": []}, "either names"),
        ({"collections": "base", "threshold": 3}, "probability"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], reason: str) -> None:
    """A component says at once what is missing, before anything is opened."""
    from pearl_qdrant.integrations.haystack import EntityTagger

    with pytest.raises((OptionError, ValueError), match=reason):
        EntityTagger(**arguments)


def test_documents_are_tagged_in_a_pipeline(store_path: Path, linker: EntityLinker) -> None:
    """A pipeline opens the collections by itself; documents keep their id and meta; the asynchronous run is equal."""
    from haystack import Document, Pipeline

    from pearl_qdrant.integrations.haystack import EntityTagger

    given = [Document(content=TEXT, meta={"source": "a"}), Document(content=None)]
    pipeline = Pipeline()
    pipeline.add_component("tagger", EntityTagger("base", store=str(store_path)))

    tagged, empty = pipeline.run({"tagger": {"documents": given}})["tagger"]["documents"]

    assert tagged.meta["entity_ids"] == ["mi", "nys", "nyt"]
    assert (tagged.id, tagged.meta["source"], given[0].meta) == (given[0].id, "a", {"source": "a"})
    assert empty.meta == {"entity_ids": [], "entity_names": []}
    tagger = pipeline.get_component("tagger")
    tagger.close()
    assert asyncio.run(tagger.run_async(given)) == {"documents": [tagged, empty]}
    tagger.close()
    shared = EntityTagger(linker=linker)
    assert shared.run(given) == {"documents": [tagged, empty]}
    shared.close()
    assert linker.link("NYTimes").entity_id == "nyt"
    with pytest.raises(OptionError, match="cannot be serialised"):
        shared.to_dict()


def test_entities_are_retrieved_with_their_probability(linker: EntityLinker) -> None:
    """The retriever returns documents, best first; arguments of a run replace those of the component."""
    from pearl_qdrant.integrations.haystack import EntityRetriever

    retriever = EntityRetriever(linker=linker, top_k=2)
    retriever.warm_up()

    found = retriever.run("NYTimes")["documents"]

    assert [one.id for one in found][:1] == ["nyt"]
    assert len(found) == 2
    assert found[0].score == found[0].meta["probability"] > 0.5
    assert [one.id for one in retriever.run("New York", top_k=5, types=["state"])["documents"]] == ["nys"]
    assert asyncio.run(retriever.run_async("NYTimes"))["documents"] == found
    with pytest.raises(ValueError, match="at least 1, not 0"):
        EntityRetriever(linker=linker, top_k=0)


def test_entities_that_a_language_model_extracted_get_one_name(tmp_path: Path) -> None:
    """Behind the extractor in a pipeline, entities and relations of all documents have one name for each entity; a dry
    run says so and changes nothing; what was undone stays.
    """
    from haystack import Document, Pipeline, component, default_from_dict
    from haystack.components.extractors import LLMMetadataExtractor
    from haystack.dataclasses import ChatMessage

    from pearl_qdrant.integrations.haystack import EntityMerger

    @component
    class Model:
        """What a language model would answer."""

        @component.output_types(replies=list[ChatMessage])
        def run(self, messages: list[ChatMessage]) -> dict[str, Any]:
            """Two entities and a relation."""
            place, company = str(messages[0].text).split("|")
            entities = [{"entity": place, "entity_type": "city"}, {"entity": company, "entity_type": "company"}]
            relations = [{"source": company, "target": place, "type": "in"}]
            return {"replies": [ChatMessage.from_assistant(json.dumps({"entities": entities, "relations": relations}))]}

    def run(merger: EntityMerger) -> tuple[list[dict[str, Any]], str]:
        pipeline = Pipeline()
        keys = ["entities", "relations"]
        extractor = LLMMetadataExtractor("{{ document.content }}", chat_generator=Model(), expected_keys=keys)
        pipeline.add_component("extractor", extractor)
        pipeline.add_component("merger", merger)
        pipeline.connect("extractor.documents", "merger.documents")
        texts = [Document(content="Berlin|deepset"), Document(content="Berlin|deepset GmbH")]
        found = pipeline.run({"extractor": {"documents": texts}})["merger"]
        return [document.meta for document in found["documents"]], found["report"]

    nodes = str(tmp_path / "nodes.tsv")
    dry, planned = run(EntityMerger(nodes, dry_run=True))
    assert dry[1]["entities"][1] == {"entity": "deepset GmbH", "entity_type": "company"}
    assert "deepset GmbH -> deepset" in planned
    assert not (tmp_path / "nodes.tsv").exists()

    merger = EntityMerger(nodes)
    one, other = (meta for meta in run(merger)[0])
    assert one["entities"] == other["entities"]
    assert one["entities"][1] == {"entity": "deepset", "entity_type": "company", "aliases": ["deepset GmbH"]}
    assert one["relations"] == other["relations"] == [{"source": "deepset", "target": "Berlin", "type": "in"}]

    merger.merger.undo(["deepset GmbH"])
    apart, _ = run(EntityMerger(nodes))
    assert [meta["entities"][1]["entity"] for meta in apart] == ["deepset", "deepset GmbH"]
    assert default_from_dict(EntityMerger, merger.to_dict()).to_dict() == merger.to_dict()


def test_what_a_language_model_wrote_wrongly_is_left_as_it_is() -> None:
    """Metadata of another shape passes; a relation between two names of one entity goes away."""
    from haystack import Document

    from pearl_qdrant.integrations.haystack import EntityMerger
    from pearl_qdrant.integrations.merging import NameMerger

    wrong: list[Any] = [None, "deepset", ["deepset"], [{"name": "deepset"}], [{"entity": None}]]
    relations: list[Any] = [{"source": "Acme", "target": "Acme GmbH"}, {"source": "Acme GmbH"}, {"source": ["a"]}, {}]
    names = [{"entity": "Acme", "entity_type": "company"}, {"entity": "Acme GmbH"}]
    given = [*(Document(meta={"entities": one}) for one in wrong),
             Document(meta={"entities": names, "relations": relations})]  # fmt: skip
    merger = EntityMerger(merger=NameMerger(encoder=LetterEncoder()))

    *left, merged = merger.run(given)["documents"]

    assert left == given[:-1]
    assert [one["entity"] for one in merged.meta["entities"]] == ["Acme", "Acme"]
    assert merged.meta["relations"] == [{"source": "Acme"}, {"source": ["a"]}, {}]
    with pytest.raises(OptionError, match="cannot be serialised"):
        merger.to_dict()
    with pytest.raises(OptionError, match="either a merger"):
        EntityMerger("nodes.tsv", merger=merger.merger)
