"""Read-only linkers: beside a writer, outdated, reloaded."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from linker_base import ENTITIES, fill

from pearl_qdrant import Entity, EntityLinker
from pearl_qdrant.errors import CollectionNotFoundError, ReadOnlyError

ACME = Entity("acme", "Acme Corporation", ("ACME",), ("ORG",))


@pytest.fixture
def location(tmp_path: Path, model: Path) -> str:
    """A store with one collection, closed."""
    fill(tmp_path / "store", "news", str(model), ENTITIES, is_loaded=True)
    return str(tmp_path / "store")


@pytest.fixture
def writer(location: str) -> Iterator[EntityLinker]:
    """A linker that may write."""
    with EntityLinker.open("news", store=location) as linker:
        yield linker


@pytest.fixture
def reader(location: str) -> Iterator[EntityLinker]:
    """A linker that only reads."""
    with EntityLinker.open("news", store=location, read_only=True) as linker:
        yield linker


def views(location: str) -> int:
    """How many views the store has."""
    return len(list(Path(location).glob(".view-*")))


def test_reload_brings_what_was_added_learned_and_deleted(writer: EntityLinker, reader: EntityLinker) -> None:
    """A reader keeps its state, says that there is a newer one, and has it after a reload."""
    assert not reader.reload()
    for change in (
        lambda: writer.add([ACME]),
        lambda: writer.accept("the grey lady", "nyt"),
        lambda: writer.reject("Big Apple", "nyc"),
        lambda: writer.learn([("gotham", "nyc")]),
        lambda: writer.undo_learned(1),
        lambda: writer.delete(["mi"]),
    ):
        before = reader.link("ACME")
        change()
        assert reader.is_outdated
        assert reader.link("ACME").entity_id == before.entity_id
        assert "reload()" in reader.warnings[-1]
        assert reader.reload()
        for mention in ("ACME", "the grey lady", "Big Apple", "gotham", "heart attack"):
            assert reader.link(mention) == writer.link(mention)
        assert (reader.is_outdated, reader.warnings, reader.reload()) == (False, (), False)
    assert reader.link("ACME").entity_id == "acme"


def test_an_edit_is_seen_whole(
    writer: EntityLinker, reader: EntityLinker, monkeypatch: pytest.MonkeyPatch, location: str
) -> None:
    """While an entity is replaced, readers have all its old names or all its new ones."""
    collection = writer._target(None)
    delete = collection.delete_points
    seen: list[tuple[str, ...]] = []

    def look_before_deleting(ids: frozenset[str]) -> None:
        with EntityLinker.open("news", store=location, read_only=True) as other:
            seen.append(tuple(other.entity("nyt").names()))
        delete(ids)

    monkeypatch.setattr(collection, "delete_points", look_before_deleting)
    old = tuple(reader.entity("nyt").names())
    writer.add([Entity("nyt", "The Times", ("NYT",), ("ORG",))])

    assert seen == [old]
    reader.reload()
    assert tuple(reader.entity("nyt").names()) == ("The Times", "NYT")


def test_a_batch_goes_on_during_a_reload(writer: EntityLinker, reader: EntityLinker, location: str) -> None:
    """Links that run while a reader is reloaded are answered; the old view goes when they are done."""
    running = reader.link_batch(["NYTimes"] * 600)
    first = next(running)
    writer.add([ACME])
    reader.reload()

    assert all(link.entity_id == first.entity_id for link in running)
    del running
    gc.collect()
    assert views(location) == 1


def test_a_reader_refuses_edits(reader: EntityLinker) -> None:
    """Adding, deleting and learning say how to open the collection for it; nothing changes."""
    for edit in (
        lambda: reader.add([ACME]),
        lambda: reader.delete(["nyt"]),
        lambda: reader.accept("x", "nyt"),
        lambda: reader.reject("x", "nyt"),
        lambda: reader.learn([("x", "nyt")]),
        lambda: reader.undo_learned(1),
    ):
        with pytest.raises(ReadOnlyError, match=r"news is open read-only.*read_only=False"):
            edit()
    assert reader.learned_batches() == ()
    assert reader.link("NYTimes").entity_id == "nyt"


def test_a_reload_after_a_deletion_is_an_error(location: str, reader: EntityLinker) -> None:
    """If the collection was deleted, a reload says so, and the reader keeps its state."""
    from pearl_qdrant.store import delete_collection

    delete_collection("news", store=location)
    assert reader.is_outdated
    with pytest.raises(CollectionNotFoundError):
        reader.reload()
    assert reader.link("NYTimes").entity_id == "nyt"
