"""Graphiti: merging its entity nodes and taking them apart, in an embedded Kuzu. It is not among our dependencies."""

from __future__ import annotations

import asyncio
import os
from datetime import datetime, timezone
from typing import Any

import pytest
from resolution_names import LetterEncoder

from pearl_qdrant.errors import OptionError
from pearl_qdrant.integrations.merging import NameMerger

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

GROUP = "letters"


@pytest.fixture(autouse=True, scope="module")
def _installed() -> None:
    os.environ["GRAPHITI_TELEMETRY_ENABLED"] = "false"  # there is no network
    pytest.importorskip("graphiti_core")
    pytest.importorskip("kuzu")


def opened() -> Any:
    """A Graphiti over an empty Kuzu in memory, without models."""
    from graphiti_core import Graphiti
    from graphiti_core.cross_encoder.client import CrossEncoderClient
    from graphiti_core.driver.kuzu_driver import KuzuDriver
    from graphiti_core.embedder.client import EmbedderClient
    from graphiti_core.llm_client import LLMClient, LLMConfig

    class Model(LLMClient):
        """Merging asks no language model."""

        async def _generate_response(self, *_: Any, **__: Any) -> dict[str, Any]:
            raise AssertionError("no language model")

    class Embedder(EmbedderClient):
        """Merging embeds nothing."""

        async def create(self, input_data: Any) -> list[float]:
            raise AssertionError("no embeddings")

    class Ranker(CrossEncoderClient):
        """Merging ranks nothing."""

        async def rank(self, query: str, passages: list[str]) -> list[tuple[str, float]]:
            raise AssertionError("no ranking")

    driver = KuzuDriver(db=":memory:")
    return Graphiti(graph_driver=driver, llm_client=Model(LLMConfig()), embedder=Embedder(), cross_encoder=Ranker())


async def filled() -> Any:
    """A Graphiti with two names of a person, a city, a fact of each, and an episode that mentions all."""
    from graphiti_core.edges import EntityEdge, EpisodicEdge
    from graphiti_core.nodes import EntityNode, EpisodeType, EpisodicNode

    graphiti = opened()
    driver = graphiti.driver
    now = datetime(2026, 1, 1, tzinfo=timezone.utc)
    names = {"Albert Einstein": "Person", "A. Einstein": "Person", "Princeton": "City"}
    nodes = {
        name: EntityNode(
            name=name, group_id=GROUP, labels=[label], summary=f"{name}.", name_embedding=[1.0, 2.0], created_at=now
        )
        for name, label in names.items()
    }
    episode = EpisodicNode(
        name="letter", group_id=GROUP, source=EpisodeType.text, source_description="", content="...", valid_at=now
    )
    await episode.save(driver)
    for node in nodes.values():
        await node.save(driver)
        mention = EpisodicEdge(
            source_node_uuid=episode.uuid, target_node_uuid=node.uuid, group_id=GROUP, created_at=now
        )
        await mention.save(driver)
    facts = (
        ("Albert Einstein", "LIVED_IN", "Princeton"),
        ("A. Einstein", "WORKED_IN", "Princeton"),
        ("A. Einstein", "IS", "Albert Einstein"),
    )
    for source, name, target in facts:
        edge = EntityEdge(
            name=name,
            fact=f"{source} {name} {target}",
            source_node_uuid=nodes[source].uuid,
            target_node_uuid=nodes[target].uuid,
            group_id=GROUP,
            fact_embedding=[0.5, 0.5],
            created_at=now,
        )
        await edge.save(driver)
    return graphiti


async def stored(graphiti: Any) -> tuple[list[Any], list[Any], int]:
    """All nodes, all facts by the names of their ends, and the number of mentions."""
    from graphiti_core.edges import EntityEdge, EpisodicEdge
    from graphiti_core.nodes import EntityNode

    driver = graphiti.driver
    nodes = await EntityNode.get_by_group_ids(driver, [GROUP], with_embeddings=True)
    name = {node.uuid: node.name for node in nodes}
    edges = await EntityEdge.get_by_group_ids(driver, [GROUP], with_embeddings=True)
    mentions = await EpisodicEdge.get_by_group_ids(driver, [GROUP])
    return (
        sorted((one.name, one.summary, one.attributes, one.name_embedding) for one in nodes),
        sorted(
            (name[one.source_node_uuid], one.name, name[one.target_node_uuid], one.uuid, one.fact_embedding)
            for one in edges
        ),
        len(mentions),
    )


def test_entity_nodes_are_merged_and_taken_apart_in_the_database() -> None:
    """A dry run changes nothing; after a merge one node has all facts, with their ids; undoing brings back what was."""
    from pearl_qdrant.integrations.graphiti import EntityMerger

    async def run() -> None:
        graphiti = await filled()
        before = await stored(graphiti)
        dry = NameMerger(dry_run=True, encoder=LetterEncoder())
        await EntityMerger(graphiti, dry).merge(GROUP)
        assert dry.report().startswith("A. Einstein -> Albert Einstein")
        assert await stored(graphiti) == before

        merger = EntityMerger(graphiti, NameMerger(encoder=LetterEncoder()))
        await merger.merge(GROUP)
        nodes, edges, mentions = await stored(graphiti)
        assert nodes[0] == (
            "Albert Einstein", "Albert Einstein.\nA. Einstein.", {"aliases": ["A. Einstein"]}, [1.0, 2.0]
        )  # fmt: skip
        assert [edge[:3] for edge in edges] == [
            ("Albert Einstein", "LIVED_IN", "Princeton"),
            ("Albert Einstein", "WORKED_IN", "Princeton"),
        ]
        assert {edge[3] for edge in edges} < {edge[3] for edge in before[1]}
        assert (len(nodes), mentions) == (2, 3)

        await merger.undo("A. Einstein")
        assert await stored(graphiti) == before
        with pytest.raises(OptionError, match="No node named"):
            await merger.undo("A. Einstein")
        await merger.merge(GROUP)
        assert await stored(graphiti) == before

    asyncio.run(run())
