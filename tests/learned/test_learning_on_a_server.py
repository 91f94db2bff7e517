"""Learning in a collection on a server, which several processes may teach at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from linker_base import ENTITIES, fill_server
from qdrant_double import QdrantDouble
from qdrant_double_http import Fault

from pearl_qdrant import EntityLinker
from pearl_qdrant.linking.learned import learned_batches
from pearl_qdrant.linking.learned.ledger import LearnedRow, append_batch, read_ledger
from pearl_qdrant.store import open_store


@pytest.fixture
def server(model: Path) -> Iterator[QdrantDouble]:
    """A server with the collection `base`."""
    with QdrantDouble() as double:
        fill_server(double.url, "base", str(model), ENTITIES)
        yield double


def test_a_server_learns_and_forgets(server: QdrantDouble) -> None:
    """Learning, listing and undoing work as in a folder, and the ledger is no collection in the list."""
    with EntityLinker.open("base", store=server.url) as linker:
        linker.learn([("Gotham", "nyc")] * 3, add_aliases=2)
        assert linker.link("Gotham").entity_id == "nyc"
    with EntityLinker.open("base", store=server.url) as again:
        assert again.link("GOTHAM").learned[0].other_forms == 3
        again.undo_learned(1)
        assert again.link("Gotham").learned == ()
        assert "Gotham" not in again.entity("nyc").aliases
    assert len(learned_batches("base", store=server.url)) == 2
    store = open_store(server.url)
    assert store.collections() == ["base"]
    store.close()


def test_two_processes_that_learn_at_once_are_both_kept(server: QdrantDouble) -> None:
    """Both saw the same ledger and took the same number; both count, and each can be undone by its key."""
    first, second = open_store(server.url), open_store(server.url)  # as of two processes
    keys = [
        append_batch(store.open("base"), 1, "accept", [LearnedRow("Gotham", "nyc", 1)]).key for store in (first, second)
    ]
    assert [one.key for one in read_ledger(first.open("base")).batches] == keys
    for store in (first, second):
        store.close()
    with EntityLinker.open("base", store=server.url) as linker:
        assert linker.link("Gotham").learned[0].as_written == 2
        linker.undo_learned(keys[0])
        assert linker.link("Gotham").learned[0].as_written == 1


def test_a_process_that_dies_while_it_learns_leaves_nothing(
    server: QdrantDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If only some parts of a batch arrive, none of them counts."""
    monkeypatch.setattr("pearl_qdrant.store.server.ledger.PART_BYTES", 10)
    store = open_store(server.url)
    collection = store.open("base")
    append_batch(collection, 1, "learn", [LearnedRow(f"name {i}", "nyc", 1) for i in range(5)])
    client = server.client
    name = "base.pearl-qdrant-learned"
    points, _ = client.scroll(name, limit=100)
    client.delete(name, [points[3].id])

    ledger = read_ledger(collection)
    assert ledger.batches == ()
    assert ledger.n_unreadable > 0, "which is said, as for a file"
    store.close()


def test_a_key_that_may_not_see_the_ledger_still_links(server: QdrantDouble, caplog: pytest.LogCaptureFixture) -> None:
    """With a key for the collection alone, the linker opens and says that it links without what was learned."""
    server.faults.append(Fault("status", match=r"GET .*pearl-qdrant-learned", status=403, error="forbidden"))
    with EntityLinker.open("base", store=server.url) as linker:
        assert linker.link("NYTimes").entity_id == "nyt"

    assert "Collection 'base' is linked without what it learned" in caplog.text
