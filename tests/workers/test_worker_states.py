"""Workers see the state of the linker that they work for."""

from __future__ import annotations

from pathlib import Path

import pytest
from linker_base import ENTITIES, fill
from worker_cases import assert_same

from pearl_qdrant import Entity, EntityLinker
from pearl_qdrant.linking import workers as pool

FLU = Entity("flu", "influenza", ("grippe",), ("disease",), ("OTHER",))
MENTIONS = ["grippe", "NYC", "influenza", "New York", "heart attack", "NYTimes", "Big Apple", "nypost.com", "nys"]


def ids(linker: EntityLinker, *mentions: str, workers: int = 2) -> list[str | None]:
    """The entities of mentions."""
    return [link.entity_id for link in linker.link_batch(mentions or MENTIONS, workers=workers, threshold=0.6)]


def test_the_next_batch_has_every_edit(writer: EntityLinker) -> None:
    """What I add, delete, accept and learn counts for workers as it does for this process."""
    assert ids(writer, "grippe", "NYC") == [None, "nyc"]
    pids = writer._workers.pids()

    writer.add([FLU])
    assert ids(writer, "grippe", "NYC") == ["flu", "nyc"]
    writer.accept("la grippe", "flu")
    writer.learn([("NYC", "nys")] * 60)
    assert_same(writer.link_batch(["la grippe", "NYC"], workers=2), writer.link_batch(["la grippe", "NYC"], workers=1))
    assert ids(writer, "la grippe", "NYC") == ["flu", "nys"]
    assert next(writer.link_batch(["NYC"], workers=2)).learned[0].as_written == 60
    writer.delete(["flu"])
    assert ids(writer, "grippe", "NYC") == [None, "nys"]
    assert writer._workers.pids() == pids, "the same processes saw it all"


def test_a_running_batch_has_an_edit_from_its_next_window_on(
    writer: EntityLinker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was linked ahead of an edit is linked again."""
    monkeypatch.setattr(pool, "SLOW_SOURCE_S", 1e9)
    links = writer.link_batch(iter(["grippe"] * 40), workers=2, threshold=0.6)

    assert next(links).entity_id is None
    writer.add([FLU])

    assert [link.entity_id for link in links] == [None] * 3 + ["flu"] * 36


def test_a_reader_keeps_its_state_until_it_reloads(tmp_path: Path, model: Path) -> None:
    """Beside a writer, workers answer from the state that their reader opened, though they start later."""
    fill(tmp_path, "base", str(model), ENTITIES, is_loaded=True)
    with (
        EntityLinker.open("base", store=str(tmp_path), read_only=True) as reader,
        EntityLinker.open("base", store=str(tmp_path)) as writer,
    ):
        writer.add([FLU])
        assert ids(reader, "grippe", "NYC") == [None, "nyc"]
        assert reader.reload()
        assert ids(reader, "grippe", "NYC") == ["flu", "nyc"]
        pids = reader._workers.pids()
        writer.delete(["flu"])
        assert ids(reader, "grippe", "NYC") == ["flu", "nyc"], "the views of the workers are older too"
        assert reader._workers.pids() == pids


def test_what_is_not_committed_is_linked_here(writer: EntityLinker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within an edit that readers do not see yet, this process links alone."""
    (collection,) = writer.collections
    with collection.editing():
        collection.write_manifest(collection.manifest.model_copy(update={"entities": 8}))
        assert collection.state_token is None
        monkeypatch.setattr(writer._workers, "submit", None)
        assert ids(writer) == ids(writer, workers=1)
    assert collection.state_token is not None


@pytest.mark.slow
def test_several_collections_have_workers_too(tmp_path: Path, model: Path) -> None:
    """Workers open all collections of the linker."""
    fill(tmp_path, "base", str(model), ENTITIES, is_loaded=True)
    fill(tmp_path, "other", str(model), [FLU], is_loaded=True)
    with EntityLinker.open("base", "other", store=str(tmp_path), read_only=True) as linker:
        found = list(linker.link_batch(MENTIONS, workers=2))
        assert_same(found, linker.link_batch(MENTIONS, workers=1))

    assert {link.kb for link in found} >= {"base", "other"}
