"""Transfers that are killed, and damaged files, aliases or marks of versions: nothing is lost or half visible.
`collections push`, `pull`, `prune` and `reencode` at the command line.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
from pathlib import Path

import pytest
from cli_runner import Run
from edge_cases import python
from linker_base import ENTITIES
from linker_base import fill as fill_base
from qdrant_client import models
from qdrant_double import QdrantDouble
from qdrant_double_http import Fault
from tiny_models import make_pearl
from transfer_cases import NAME, check_same, embedded, fill

from pearl_qdrant.errors import CollectionNotFoundError, ManifestError
from pearl_qdrant.store import Store
from pearl_qdrant.store.edge import content as edge_content
from pearl_qdrant.transfer import (
    EverydayChange,
    EverydayKind,
    prune_collection,
    pull_collection,
    push_collection,
    reencoding,
)


@pytest.fixture
def other(tmp_path: Path) -> Store:
    """Another store with a collection `toy` of ten names."""
    return embedded(tmp_path / "other", 10)


@pytest.mark.parametrize("step", ["share_files", "write_content", "remove_other_files"])
def test_a_kill_between_the_steps_of_a_switch_leaves_one_version_current(
    local: Store, other: Store, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Whoever is killed in a switch leaves the old version or the new one current, and the other one hidden."""

    def die(*given: object, **named: object) -> None:
        raise KeyboardInterrupt

    def switch_and_die(store: Store, name: str, version: str) -> None:
        patch.setattr(edge_content, step, die)
        switch(store, name, version)

    switch = type(local).switch
    with monkeypatch.context() as patch:
        patch.setattr(type(local), "switch", switch_and_die)
        patch.setattr(type(local), "delete", lambda *given, **named: None)
        with pytest.raises(KeyboardInterrupt):
            pull_collection(NAME, source=other, store=local, replace=True)
    local.close()

    is_done = step == "remove_other_files"
    assert local.open(NAME, read_only=True).count() == (10 if is_done else 60)
    assert [one.is_current for one in local.versions(NAME)].count(True) == 1
    pull_collection(NAME, source=other, store=local, replace=True)
    assert local.open(NAME, read_only=True).count() == 10
    rollback = [one for one in local.versions(NAME) if one.mark.is_complete and not one.is_current]
    assert rollback
    local.close()
    prune_collection(NAME, store=local)
    assert [one.is_current for one in local.versions(NAME)] == [True]


def test_a_damaged_manifest_is_an_error_and_nothing_is_pruned(local: Store, other: Store) -> None:
    """What is current is not known: no version is deleted, and the collection is not replaced."""
    pull_collection(NAME, source=other, store=local, replace=True)
    local.close()
    manifest = Path(local.location) / NAME / "manifest.json"
    content = manifest.read_bytes()
    manifest.write_bytes(b'{"format')
    for call in (
        lambda: local.open(NAME),
        lambda: prune_collection(NAME, store=local),
        lambda: pull_collection(NAME, source=other, store=local, replace=True),
    ):
        with pytest.raises(ManifestError, match="Restore it from a copy"):
            call()
    manifest.write_bytes(content)
    assert [one.is_current for one in local.versions(NAME)] == [True, False]
    assert prune_collection(NAME, store=local) == 1
    assert local.open(NAME, read_only=True).count() == 10


@pytest.mark.slow
def test_a_lost_alias_is_said_and_nothing_is_pruned(other: Store, server: Store, double: QdrantDouble) -> None:
    """On a server the alias says which version is current: without it nothing is deleted, and the error names them."""
    pull_collection(NAME, source=other, store=server)
    remove = models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=NAME))
    double.client.update_collection_aliases([remove])
    for call in (lambda: server.open(NAME), lambda: prune_collection(NAME, store=server)):
        with pytest.raises(CollectionNotFoundError, match=r"alias 'toy' is missing.*toy\.pearl-qdrant-v\."):
            call()

    assert [one.mark.is_complete for one in server.versions(NAME)] == [True]


def test_a_version_that_somebody_deleted_on_a_server_is_said(other: Store, server: Store, double: QdrantDouble) -> None:
    """Where the current version was deleted by hand, the one before it is not opened in its place."""
    fill(server, 20)
    pull_collection(NAME, source=other, store=server, replace=True)
    (hidden,) = (one.name for one in double.client.get_collections().collections if one.name != NAME)
    double.client.delete_collection(hidden)
    for call in (lambda: server.open(NAME), lambda: prune_collection(NAME, store=server)):
        with pytest.raises(CollectionNotFoundError, match=rf"names {hidden}, which is missing.*pearl_qdrant_current"):
            call()

    server._client.update_collection(NAME, metadata={"pearl_qdrant_current": None})
    assert server.open(NAME).count() == 20


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


@pytest.mark.slow
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


DEMO = "demo"


@pytest.fixture
def other_model(tmp_path: Path) -> str:
    """Another model."""
    make_pearl(tmp_path / "other", seed=1)
    return str(tmp_path / "other")


@pytest.mark.slow
def test_there_and_back_with_another_model(
    run: Run, tmp_path: Path, model: Path, other_model: str, double: QdrantDouble
) -> None:
    """A collection goes to a server, gets another model there, comes back, and nothing old is left after pruning."""
    fill_base(tmp_path / "store", DEMO, str(model), ENTITIES, is_loaded=True)
    pushed = run("collections", "push", DEMO, "--to", double.url)
    again = run("collections", "push", DEMO, "--to", double.url)
    encoded = run("reencode", DEMO, "--model", other_model, "--store", double.url)
    listed = run("collections", "list", "--store", double.url)
    pulled = run("collections", "pull", DEMO, "--from", double.url, "--replace")
    pruned = [
        run("collections", "prune", DEMO, "--yes", "--store", one) for one in (double.url, str(tmp_path / "store"))
    ]

    assert (pushed.status, f"{DEMO}: 16 names streamed" in pushed.err) == (0, True)
    assert (again.status, "--replace" in again.err) == (1, True)
    assert encoded.status == 0, encoded.err
    assert "16 of 16 names encoded" in encoded.err
    assert listed.out.count("\n") == 2
    assert pulled.status == 0, pulled.err
    assert "collections prune" in pulled.err
    assert [one.err for one in pruned] == [f"{DEMO}: 1 older versions deleted.\n"] * 2
    assert other_model in run("collections", "show", DEMO).out
    assert len(double.client.get_collections().collections) == 1


@pytest.mark.slow
def test_everyday_mentions_are_shown(run: Run, tmp_path: Path, model: Path, other_model: str) -> None:
    """`--everyday` prints both models; a worse one ends with status 1, and the command without it takes it."""
    fill_base(tmp_path / "store", DEMO, str(model), ENTITIES, is_loaded=True)
    command = ["reencode", DEMO, "--model", other_model]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reencoding, "compare_everyday", lambda *args: change(after=80.0))
        refused = run(*command, "--everyday")
        taken = run(*command)
        run("reencode", DEMO, "--rollback")
        patch.setattr(reencoding, "compare_everyday", lambda *args: change(after=95.0))
        shown = run(*command, "--everyday")

    assert (shown.status, "mean of the kinds" in shown.err, other_model in shown.err) == (0, True, True)
    assert refused.status == 1
    assert "exact                 10    90.0    80.0" in refused.err
    assert "the same command without --everyday switches to it" in refused.err
    assert (taken.status, "0 of 16 names encoded" in taken.err) == (0, True)


def change(*, after: float) -> EverydayChange:
    """Figures of a model that answers so many percent right, and of one before it with 90."""
    return EverydayChange((EverydayKind("exact", 10, 90.0, after),), 3.0)


def test_what_is_missing_is_said(run: Run) -> None:
    """Without a model or the way back, or with both, `reencode` says what to give."""
    assert "--rollback" in run("reencode", DEMO).err
    assert run("reencode", DEMO, "--model", "m", "--rollback").status == 2
    assert run("reencode", DEMO, "--rollback", "--everyday").status == 2
    assert run("reencode", DEMO, "--rollback").status == 1
    assert run("collections", "prune", DEMO, "--yes").status == 1
