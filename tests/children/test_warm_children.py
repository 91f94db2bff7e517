"""Forked children of the embedded store are as those that a program starts."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from store_cases import manifest_of, many

from pearl_qdrant.errors import StoreError
from pearl_qdrant.store.edge import child_process as edge_process
from pearl_qdrant.store.edge.store import EdgeStore

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="children are forked on Linux alone")


@pytest.fixture(params=["warm", "cold"])
def writing(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EdgeStore]:
    """A store whose children are forked, or started as a program starts them."""
    if request.param == "cold":
        request.getfixturevalue("cold_children")
    opened = EdgeStore(tmp_path / "store")
    yield opened
    opened.close()


def test_a_load_and_a_graph_are_written(writing: EdgeStore) -> None:
    """What is written is found, and the graph is built."""
    collection = writing.create(manifest_of())
    points, vectors, encodable = many(20)
    with collection.writer() as writer:
        writer.write(points, vectors, encodable)
    collection.finalize()

    assert collection.count() == 20


@pytest.fixture
def idle(writing: EdgeStore) -> Iterator[edge_process.EdgeProcess]:
    """A child that waits for points."""
    folder = writing.create(manifest_of())._folder
    with folder.hand_over("being loaded"):
        child = edge_process.EdgeProcess(folder.job("load"))
        assert child.receive_answer() == {"points": 0}
        yield child
        child.end()


def test_a_killed_child_is_named_by_its_signal(idle: edge_process.EdgeProcess) -> None:
    """The writer sees the death of its child, and by what signal."""
    os.kill(idle.pid, signal.SIGTERM)

    with pytest.raises(StoreError, match="was killed by SIGTERM"):
        idle.receive_answer()
