"""A double of three nodes with two copies of each shard, and a store on it."""

from __future__ import annotations

import pytest
from cluster_cases import NODES
from double_fixtures import empty_double, running_double, shared_store  # noqa: F401 (fixtures)
from qdrant_double import QdrantDouble

from pearl_qdrant.store.server.store import ServerStore


@pytest.fixture
def server(double: QdrantDouble, shared: ServerStore) -> ServerStore:
    """A store on the cluster, which is empty."""
    double.cluster_state.nodes = NODES
    double.cluster_state.replicas = 2
    return shared
