"""Shared by the tests of clusters: collections that were built in parts, and where the double has their points."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path

import numpy as np
from edge_cases import manifest_of, many
from qdrant_double import QdrantDouble
from transfer_cases import embedded, ready

from pearl_qdrant.store.edge.parts.joining import join_parts
from pearl_qdrant.store.edge.store import EdgeStore
from pearl_qdrant.store.partitions.rule import Partitions
from pearl_qdrant.store.server.cluster.keys import ShardKeys

NAME = "toy"
NODES = (11, 12, 13)
PARTS = 4


def marked_as_parts(path: Path, parts: int = PARTS) -> EdgeStore:
    """An embedded store with the complete collection `toy` of 60 names, whose manifest says that it has parts.

    Its names are in one segment. A joined collection has a segment a part, of files of 120 MB, most of it holes.
    """
    store = embedded(path)
    with closing(store.open(NAME)) as collection:
        partitions = Partitions(count=parts)
        collection.write_manifest(collection.manifest.model_copy(update={"partitions": partitions}))
    return store


def built_in_parts(path: Path, n: int = 60, parts: int = 2) -> EdgeStore:
    """An embedded store with the complete collection `toy`, joined of parts as `ingest --partitions` does it."""
    partitions = Partitions(count=parts)
    points, vectors, encodable = many(n)
    encodable[0] = False
    of = np.array([partitions.partition_of(point.entity_id) for point in points])
    with closing(EdgeStore(path.with_name("parts"))) as built:
        for part in range(parts):
            rows = np.flatnonzero(of == part)
            with closing(built.create(manifest_of(f"{part}"))) as collection:
                collection.upsert([points[row] for row in rows], vectors[rows], encodable[rows])
        folders = [path.with_name("parts") / f"{part}" for part in range(parts)]
    with closing(EdgeStore(path)) as store:
        store.create(manifest_of(NAME).model_copy(update={"partitions": partitions})).close()
        join_parts(path / NAME, folders, NAME)
        with closing(store.open(NAME)) as collection:
            ready(collection)
    return EdgeStore(path)


def check_keys(double: QdrantDouble, n: int, parts: int = PARTS) -> str:
    """The one collection with keys has n points, each in the shard of its entity; returns the server's name of it."""
    ((name, shards),) = double.cluster_state.shards.items()
    keys = ShardKeys(Partitions(count=parts))
    records = double.client.scroll(name, limit=10_000, with_payload=True)[0]
    wanted = {key: {str(one.id) for one in records if keys.key_of(entity_of(one)) == key} for key in keys.all}

    assert sum(map(len, wanted.values())) == n
    assert {key: shard.points for key, shard in shards.items()} == wanted
    return name


def entity_of(record: object) -> str:
    """The entity of a stored point."""
    payload = getattr(record, "payload", None) or {}
    return str(payload["entity_id"])


def copies(double: QdrantDouble, name: str) -> Counter[int]:
    """How many copies of shards each node has, all of them active."""
    shards = double.cluster_state.shards[name].values()
    assert {state for shard in shards for state in shard.nodes.values()} == {"Active"}
    return Counter(node for shard in shards for node in shard.nodes)
