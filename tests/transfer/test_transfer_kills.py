"""Transfers that are killed: processes that end without a word, in the middle."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from pathlib import Path

import pytest
from edge_cases import python
from qdrant_double import QdrantDouble
from qdrant_double_http import Fault
from transfer_cases import NAME, check_same

from pearl_qdrant.store import Store
from pearl_qdrant.transfer import push_collection

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("PEARL_QDRANT_KILLS", "6"))
"""50 in a thorough run by hand: five seconds each."""

PUSH = """
import sys
sys.path[:0] = ["tests/transfer", "tests/doubles"]
from double_fixtures import connect
from transfer_cases import NAME
from pearl_qdrant.transfer import push_collection
print("started", flush=True)
push_collection(NAME, to=connect(sys.argv[1]), store=sys.argv[2], replace=sys.argv[3] == "yes")
print("done", flush=True)
"""


def push(url: str, store: Path, *, replace: bool) -> subprocess.Popen[str]:
    """A push in a process of its own that has just begun."""
    process = python(PUSH, url, str(store), "yes" if replace else "no")
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    return process


def killed_push(double: QdrantDouble, store: Path, *, nth: int, is_applied: bool) -> None:
    """Kill a push as the server gets its n-th request, which it carries out or not."""
    with push(double.url, store, replace=True) as process:
        n_left = nth

        def kill_at_last() -> None:
            nonlocal n_left
            n_left -= 1
            if not n_left:
                process.kill()

        double.before_fault = kill_at_last
        passes = [Fault("pass", match=".")] * (nth - 1)
        double.faults = [*passes, Fault("pass" if is_applied else "drop", match=".")]
        assert process.stdout is not None
        assert "done" not in process.stdout.read()
    assert process.returncode == -signal.SIGKILL
    double.before_fault = None


def test_kills_leave_nothing_half_visible(local: Store, server: Store, double: QdrantDouble) -> None:
    """After each kill the server has no collection of that name, or all of it; the last push brings the rest."""
    rng = random.Random(3)
    with push(double.url, Path(local.location), replace=False) as process:
        assert process.stdout is not None
        assert process.stdout.read() == "done\n"
    n_requests = len(double.requests)
    server.delete(NAME)
    for _ in range(KILLS):
        nth = rng.randint(1, n_requests)
        killed_push(double, Path(local.location), nth=nth, is_applied=rng.random() < 0.5)
        if server.collections():
            assert server.collections() == [NAME]
            check_same(server.open(NAME), local.open(NAME, read_only=True))
    push_collection(NAME, to=server, store=local, replace=True)

    check_same(server.open(NAME), local.open(NAME, read_only=True))
    versions = server.versions(NAME)
    assert all(version.mark.is_complete for version in versions), "leftovers of the killed ones are gone"
