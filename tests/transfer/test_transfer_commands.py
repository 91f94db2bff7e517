"""`collections push`, `pull`, `prune` and `reencode` at the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_runner import Run
from linker_base import ENTITIES, fill
from qdrant_double import QdrantDouble
from tiny_models import make_pearl

from pearl_qdrant.transfer import EverydayChange, EverydayKind, reencoding

NAME = "demo"


@pytest.fixture
def other(tmp_path: Path) -> str:
    """Another model."""
    make_pearl(tmp_path / "other", seed=1)
    return str(tmp_path / "other")


@pytest.mark.slow
def test_there_and_back_with_another_model(
    run: Run, tmp_path: Path, model: Path, other: str, double: QdrantDouble
) -> None:
    """A collection goes to a server, gets another model there, comes back, and nothing old is left after pruning."""
    fill(tmp_path / "store", NAME, str(model), ENTITIES, is_loaded=True)
    pushed = run("collections", "push", NAME, "--to", double.url)
    again = run("collections", "push", NAME, "--to", double.url)
    encoded = run("reencode", NAME, "--model", other, "--store", double.url)
    listed = run("collections", "list", "--store", double.url)
    pulled = run("collections", "pull", NAME, "--from", double.url, "--replace")
    pruned = [
        run("collections", "prune", NAME, "--yes", "--store", one) for one in (double.url, str(tmp_path / "store"))
    ]

    assert (pushed.status, f"{NAME}: 16 names streamed" in pushed.err) == (0, True)
    assert (again.status, "--replace" in again.err) == (1, True)
    assert encoded.status == 0, encoded.err
    assert "16 of 16 names encoded" in encoded.err
    assert listed.out.count("\n") == 2
    assert pulled.status == 0, pulled.err
    assert "collections prune" in pulled.err
    assert [one.err for one in pruned] == [f"{NAME}: 1 older versions deleted.\n"] * 2
    assert other in run("collections", "show", NAME).out
    assert len(double.client.get_collections().collections) == 1


@pytest.mark.slow
def test_everyday_mentions_are_shown(run: Run, tmp_path: Path, model: Path, other: str) -> None:
    """`--everyday` prints both models; a worse one ends with status 1, and the command without it takes it."""
    fill(tmp_path / "store", NAME, str(model), ENTITIES, is_loaded=True)
    command = ["reencode", NAME, "--model", other]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reencoding, "compare_everyday", lambda *args: change(after=80.0))
        refused = run(*command, "--everyday")
        taken = run(*command)
        run("reencode", NAME, "--rollback")
        patch.setattr(reencoding, "compare_everyday", lambda *args: change(after=95.0))
        shown = run(*command, "--everyday")

    assert (shown.status, "mean of the kinds" in shown.err, other in shown.err) == (0, True, True)
    assert refused.status == 1
    assert "exact                 10    90.0    80.0" in refused.err
    assert "the same command without --everyday switches to it" in refused.err
    assert (taken.status, "0 of 16 names encoded" in taken.err) == (0, True)


def change(*, after: float) -> EverydayChange:
    """Figures of a model that answers so many percent right, and of one before it with 90."""
    return EverydayChange((EverydayKind("exact", 10, 90.0, after),), 3.0)


def test_what_is_missing_is_said(run: Run) -> None:
    """Without a model or the way back, or with both, `reencode` says what to give."""
    assert "--rollback" in run("reencode", NAME).err
    assert run("reencode", NAME, "--model", "m", "--rollback").status == 2
    assert run("reencode", NAME, "--rollback", "--everyday").status == 2
    assert run("reencode", NAME, "--rollback").status == 1
    assert run("collections", "prune", NAME, "--yes").status == 1
