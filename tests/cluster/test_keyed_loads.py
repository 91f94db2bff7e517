"""All that writes to a collection whose shards have keys: loads, updates, edits and learned names."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_runner import Run
from cluster_cases import check_keys, copies
from qdrant_double import QdrantDouble
from spread_cases import write_base

from pearl_qdrant.store.server.store import ServerStore

pytestmark = pytest.mark.slow  # a dozen commands


@pytest.mark.parametrize("ways", [("--shards", "3"), ("--partitions", "3")], ids=["one piece", "parts"])
def test_every_command_writes_with_keys(
    server: ServerStore, double: QdrantDouble, run: Run, model: Path, tmp_path: Path, ways: tuple[str, ...]
) -> None:
    """`ingest --shards-by-key`, and then all commands that change the collection, keep each name in its shard."""
    base = write_base(tmp_path / "towns.tsv", 12)
    given = ("--store", double.url, "--collection", "towns")
    work = ("--work", str(tmp_path / "work")) if ways[0] == "--partitions" else ()

    def done(*command: str) -> None:
        outcome = run(*command)
        assert outcome.status == 0, outcome.err

    done("ingest", str(base), "--model", str(model), *given, *ways, *work, "--shards-by-key")
    n = server.open("towns").count()
    check_keys(double, n, parts=3)
    assert sum(copies(double, "towns").values()) == 6
    done("entities", "add", "--id", "X1", "--name", "a new town", "--alias", "one more", "--model", str(model), *given)
    done("entities", "delete", "E3", "--yes", *given)
    check_keys(double, server.open("towns").count(), parts=3)
    labelled = tmp_path / "labelled.tsv"
    labelled.write_text("neo borough\tX1\nneo borough\tX1\n", encoding="utf-8")
    done("learn", "--labelled", str(labelled), "--add-aliases", "1", "--model", str(model), *given)
    assert server.open("towns").find(names=["neo borough"], limit=2)
    write_base(base, 14)
    done("ingest", str(base), "--model", str(model), *given, "--update", "--yes")

    after = server.open("towns")
    assert after.count() > n
    check_keys(double, after.count(), parts=3)
    assert after.keys is not None


def test_keys_need_a_cluster_and_a_number(
    server: ServerStore, double: QdrantDouble, run: Run, model: Path, tmp_path: Path
) -> None:
    """The command names the flag that is missing, and a server that is no cluster."""
    base = write_base(tmp_path / "towns.tsv", 3)
    given = ("ingest", str(base), "--model", str(model), "--store", double.url, "--shards-by-key")
    without = run(*given)
    double.cluster_state.nodes = ()
    single = run(*given, "--shards", "2")

    assert (without.status, single.status) == (2, 2)
    assert "--shards" in without.err
    assert "is no cluster" in single.err
    assert "--shards-by-key" in single.err
    assert server.collections() == []
