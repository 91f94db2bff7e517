"""LightRAG: merging its entities and taking them apart, in its default storage. LightRAG needs older versions of some
libraries than ours, so this runs in an environment of its own: `python .ci/extras.py lightrag` has one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from resolution_names import DIM, LetterEncoder

from pearl_qdrant.errors import OptionError
from pearl_qdrant.integrations.lightrag import EntityMerger
from pearl_qdrant.integrations.merging import NameMerger

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(autouse=True, scope="module")
def _installed() -> None:
    pytest.importorskip("lightrag")


class Characters:
    """LightRAG's default tokenizer needs a download."""

    def encode(self, text: str) -> list[int]:
        """A number for each character."""
        return [ord(one) for one in text]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of such numbers."""
        return "".join(map(chr, tokens))


async def opened(path: Path) -> Any:
    """An open LightRAG with two names of a person and two of a newspaper."""
    from lightrag import LightRAG
    from lightrag.utils import EmbeddingFunc, Tokenizer

    async def embed(texts: list[str], **_: Any) -> Any:
        return LetterEncoder().encode(texts).vectors

    async def complete(prompt: str, **_: Any) -> str:
        raise AssertionError("merging asks no language model")

    rag = LightRAG(
        working_dir=str(path),
        embedding_func=EmbeddingFunc(embedding_dim=DIM, max_token_size=512, func=embed),
        llm_model_func=complete,
        tokenizer=Tokenizer("characters", Characters()),
    )
    await rag.initialize_storages()
    types = {"Albert Einstein": "PERSON", "A. Einstein": "PERSON", "The Daily News": "PAPER", "Daily News": "PAPER"}
    facts = {("Albert Einstein", "The Daily News"): "reads", ("A. Einstein", "Daily News"): "writes to"}
    entities = [
        {"entity_name": name, "entity_type": kind, "description": f"{name}, in a letter", "source_id": "letter"}
        for name, kind in types.items()
    ]
    relations = [
        {"src_id": a, "tgt_id": b, "description": what, "keywords": what, "weight": 1.0, "source_id": "letter"}
        for (a, b), what in facts.items()
    ]
    chunks = [{"content": "A. Einstein wrote to the Daily News.", "source_id": "letter"}]
    await rag.ainsert_custom_kg({"chunks": chunks, "entities": entities, "relationships": relations})
    return rag


async def stored(rag: Any) -> tuple[list[Any], list[Any]]:
    """All entities and relations, with what they say."""
    graph = rag.chunk_entity_relation_graph
    nodes = [(one["entity_id"], one["entity_type"], one["description"]) for one in await graph.get_all_nodes()]
    edges = [(*sorted((one["source"], one["target"])), one["description"]) for one in await graph.get_all_edges()]
    return sorted(nodes), sorted(edges)


def test_entities_are_merged_and_taken_apart_in_the_storages(tmp_path: Path) -> None:
    """A dry run changes nothing; a merge leaves two entities and a relation; undoing brings all back, with what came
    since; and a later run keeps them apart.
    """

    async def run() -> None:
        rag = await opened(tmp_path)
        before = await stored(rag)
        dry = NameMerger(dry_run=True, encoder=LetterEncoder())
        await EntityMerger(rag, dry).merge()
        assert sorted(line.split(" (")[0] for line in dry.report().splitlines()) == [
            "A. Einstein -> Albert Einstein",
            "The Daily News -> Daily News",
        ]
        assert await stored(rag) == before

        merger = EntityMerger(rag, NameMerger(encoder=LetterEncoder()))
        await merger.merge()
        nodes, edges = await stored(rag)
        assert [name for name, *_ in nodes] == ["Albert Einstein", "Daily News"]
        assert [edge[:2] for edge in edges] == [("Albert Einstein", "Daily News")]

        await rag.acreate_entity("Ulm", {"entity_type": "CITY", "description": "A city"})
        await rag.acreate_relation("Albert Einstein", "Ulm", {"description": "born in", "keywords": "birth"})
        await merger.undo("A. Einstein")
        await merger.undo("The Daily News")
        nodes, edges = await stored(rag)
        assert nodes == sorted([*before[0], ("Ulm", "CITY", "A city")])
        assert {edge[:2] for edge in edges} >= {("A. Einstein", "Daily News"), ("Albert Einstein", "Ulm")}
        hits = await rag.entities_vdb.query("A. Einstein", top_k=1)
        assert [hit["entity_name"] for hit in hits] == ["A. Einstein"]
        with pytest.raises(OptionError, match="No node named"):
            await merger.undo("A. Einstein")
        await merger.merge()
        assert (await stored(rag))[0] == nodes
        await rag.finalize_storages()

    asyncio.run(run())
