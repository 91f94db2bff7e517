"""A newer release over an older one."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from cli_runner import Run
from counting_encoder import CountingEncoder
from small_loads import contents, load
from store_cases import HALF

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.store import Store, open_store

HEADER = "id\tname\ttype\taliases\n"
OLD = HEADER + "1\tParis\tGPE\tCity of Light\n2\tRome\tGPE\tRoma\n3\tParis Hilton\tPERSON\t\n4\tGone\tORG\tGone Inc.\n"
NEW = (
    HEADER
    + "1\tParis\tGPE\tCity of Light|Lutetia\n2\tRome\tLOC\tRoma\n3\tHilton\tPERSON\tParis Hilton\n5\tBerlin\tGPE\t\n"
)


@pytest.fixture
def loaded(tmp_path: Path, store: Store, encoder: Encoder) -> Path:
    """A base whose older release is loaded into the collection `base`."""
    load(tmp_path / "a.tsv", store, encoder, text=OLD)
    return tmp_path / "a.tsv"


@pytest.fixture
def fresh(tmp_path: Path, encoder: Encoder) -> dict[str, object]:
    """What a new ingest of the newer release makes."""
    other = open_store(str(tmp_path / "other"))
    load(tmp_path / "b.tsv", other, encoder, text=NEW)
    return contents(other)


def test_an_update_leaves_what_a_new_ingest_would_make(
    loaded: Path, store: Store, fresh: dict[str, object], encoder: Encoder
) -> None:
    """Added, changed and retired names are all as in the new release; only new names are encoded."""
    counting = CountingEncoder(encoder)

    result = load(loaded, store, counting, text=NEW, update=True, kb_version="2")

    assert contents(store) == fresh
    assert sorted(counting.names) == ["Berlin", "Hilton", "Lutetia"]
    # Rome and Roma have another type, Paris Hilton another canonical name; Gone and Gone Inc. have gone.
    assert (result.added, result.changed, result.unchanged, result.removed, result.kept) == (3, 3, 2, 2, 0)
    assert (result.points, result.names, result.entities) == (8, 8, 4)
    with closing(store.open("base")) as collection:
        assert (collection.manifest.state, collection.manifest.kb_version) == ("ready", "2")
        ((best, *_),) = collection.search(encoder.encode(["Roma"]).vectors, limit=3, types=["LOC"])
    assert (best.point.name, best.score) == ("Roma", pytest.approx(1.0, abs=HALF)), "its vector stays"


def test_an_update_that_was_stopped_can_be_run_again(
    loaded: Path, store: Store, fresh: dict[str, object], encoder: Encoder
) -> None:
    """Work that was done before a kill is found done; the result is the same."""

    def stop(removed: int, total: int) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load(loaded, store, encoder, text=NEW, update=True, may_remove=stop)
    with closing(store.open("base")) as collection:
        assert collection.manifest.state == "loading"

    result = load(loaded, store, encoder, text=NEW, update=True)

    assert (result.added, result.removed) == (0, 2)
    assert contents(store) == fresh


def test_nothing_is_removed_while_rows_cannot_be_read(loaded: Path, store: Store, encoder: Encoder) -> None:
    """A bad row may be that of an entity which is stored: it stays."""
    result = load(loaded, store, encoder, text=NEW + "4\t\tORG\t\n", max_errors=None, update=True)

    assert (result.removed, result.kept, result.points) == (0, 2, 10)
    assert result.report.skipped == {"no_name": 1}


def test_update_on_the_command_line(run: Run, model: Path, tmp_path: Path) -> None:
    """`ingest --update` reports what it did; many retired names need a yes. Without it, names that the input lacks
    stay, and a message explains how to remove them.
    """
    path = tmp_path / "base.tsv"
    path.write_text(OLD, encoding="utf-8")
    assert run("ingest", str(path), "--model", str(model), "--kb-version", "1").status == 0
    path.write_text(NEW, encoding="utf-8")

    kept = run("ingest", str(path), "--model", str(model), "--update", "--kb-version", "2", "--json")
    assert kept.status == 0
    assert "2 names that the new release lacks were kept: delete them with --update --yes" in kept.err
    (report,) = kept.lines()
    assert (report["added"], report["changed"], report["removed"], report["kept"]) == (3, 3, 0, 2)
    assert run("collections", "verify", "base").status == 0

    outcome = run("ingest", str(path), "--model", str(model), "--update", "--kb-version", "2", "--yes", "--json")
    assert outcome.status == 0, outcome.err
    (report,) = outcome.lines()
    assert (report["added"], report["changed"], report["removed"], report["points"]) == (0, 0, 2, 8)
    assert run("collections", "verify", "base").status == 0

    path.write_text(OLD, encoding="utf-8")
    beside = run("ingest", str(path), "--model", str(model), "--no-update")
    assert beside.status == 0
    assert "3 names that this input lacks" in beside.err
    assert "--update" in beside.err


@pytest.mark.parametrize(
    "words, status, said",
    [(("--max-entities", "2"), 2, "--update"), (("--restart",), 2, "--update"), ((), 1, "does not exist")],
)
def test_an_update_wants_the_whole_release_and_a_collection(
    run: Run, model: Path, tmp_path: Path, words: tuple[str, ...], status: int, said: str
) -> None:
    """Part of a release would retire the rest of it; and there must be a collection, of the same base."""
    path = tmp_path / "base.tsv"
    path.write_text(OLD, encoding="utf-8")

    outcome = run("ingest", str(path), "--model", str(model), "--update", *words)

    assert outcome.status == status
    assert said in outcome.err
