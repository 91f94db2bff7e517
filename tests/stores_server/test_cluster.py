"""Shards and replicas: set when a collection is created; an embedded store has none."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_runner import Run
from qdrant_double import QdrantDouble

NAMES = ("shard_number", "replication_factor", "write_consistency_factor")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A base of one entity."""
    path = tmp_path / "base.tsv"
    path.write_text("E1\tw1 times\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "options, created", [(("--shards", "6", "--replicas", "2"), [6, 2]), ((), [])], ids=["set", "default"]
)
def test_shards_and_replicas_are_set(
    double: QdrantDouble, run: Run, base: Path, model: Path, options: tuple[str, ...], created: list[int]
) -> None:
    """`ingest` sends the given settings alone, so that the cluster's defaults apply to the rest."""
    outcome = run("ingest", str(base), "--model", str(model), "--store", double.url, *options)

    assert outcome.status == 0, outcome.err
    assert [double.created["base"][name] for name in NAMES if name in double.created["base"]] == created


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
