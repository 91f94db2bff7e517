"""Shards and replicas: set when a collection is created; an embedded store has none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_runner import Run
from qdrant_double import QdrantDouble

NAMES = ("shard_number", "replication_factor", "write_consistency_factor")


@pytest.fixture
def double() -> Iterator[QdrantDouble]:
    """A server."""
    with QdrantDouble() as double:
        yield double


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A base of one entity."""
    path = tmp_path / "base.tsv"
    path.write_text("E1\tw1 times\n", encoding="utf-8")
    return path


def test_shards_and_replicas_are_set(double: QdrantDouble, run: Run, base: Path, model: Path) -> None:
    """`ingest --shards 6 --replicas 2` creates the collection with these settings."""
    options = ("--shards", "6", "--replicas", "2")
    outcome = run("ingest", str(base), "--model", str(model), "--store", double.url, *options)

    assert outcome.status == 0, outcome.err
    assert [double.created["base"].get(name) for name in NAMES] == [6, 2, None]


def test_by_default_the_server_decides(double: QdrantDouble, run: Run, base: Path, model: Path) -> None:
    """Without the options the request has no shard settings, so the cluster's defaults apply."""
    assert run("ingest", str(base), "--model", str(model), "--store", double.url).status == 0

    assert not double.created["base"].keys() & set(NAMES)


def test_a_collection_that_exists_keeps_its_shards(double: QdrantDouble, run: Run, base: Path, model: Path) -> None:
    """Changing the replicas of an existing collection is a clear error and is not ignored."""
    common = ("ingest", str(base), "--model", str(model), "--store", double.url)
    assert run(*common).status == 0
    again = run(*common, "--replicas", "2")

    assert again.status == 2
    assert "--restart" in again.err


def test_the_embedded_store_has_no_shards(run: Run, base: Path, model: Path) -> None:
    """Shards for an embedded store are an error, and no collection is created."""
    outcome = run("ingest", str(base), "--model", str(model), "--shards", "2")

    assert outcome.status == 1
    assert "no shards or replicas" in outcome.err
    assert run("collections", "list").out == ""
