"""Reading an embedded collection beside its writer: what a reader sees, and what it leaves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from edge_cases import add, check_files, digest, left, nearest_names, stored_bytes, stored_files
from store_cases import manifest_of, many

from pearl_qdrant.errors import CollectionNotFoundError, ReadOnlyError, StoreClosedError
from pearl_qdrant.store import Collection, Store
from pearl_qdrant.store.edge import content as edge_content
from pearl_qdrant.store.edge import shard as edge_shard

N = 60


@pytest.fixture
def graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph for the 60 names: its segment is compacted, so that most of its files are linked."""
    monkeypatch.setattr(edge_shard, "INDEXING_THRESHOLD_KB", 1)


def names(collection: Collection) -> set[str]:
    """All names."""
    return {point.name for point in collection.scroll()}


def digests(folder: Path) -> dict[str, tuple[str, int]]:
    """Content and file number of each file of a collection."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path): (digest(path), path.stat().st_ino) for path in files}


# What a reader sees


def test_a_reader_of_a_graph_answers_as_the_writer(filled: Store, graph: None) -> None:
    """A collection with a graph is read through links to its files; deletions by the writer do not show through."""
    writer = filled.open("toy")
    writer.finalize()
    before = filled.open("toy", read_only=True)
    _, queries, _ = many(N)
    assert before.status() == writer.status()
    assert before.search(queries, limit=3) == writer.search(queries, limit=3)
    kept = before.search(queries, limit=3)

    writer.delete_entities(["E1", "E2"])
    writer.close()
    assert before.search(queries, limit=3) == kept
    after = filled.open("toy", read_only=True)
    assert after.count() == N - 4
    assert "name 2" in nearest_names(before, queries)
    assert "name 2" not in nearest_names(after, queries)


def test_a_commit_stores_what_changed(filled: Store, graph: None) -> None:
    """A small change takes one more file; all else is stored already."""
    writer = filled.open("toy")
    writer.finalize()
    add(writer, N)
    before = stored_files(filled.location)
    add(writer, N + 10)

    after = stored_files(filled.location)
    assert len(set(after.values()) - set(before.values())) == 1
    assert sum(after[one] == file for one, file in before.items()) > 50


def test_the_space_of_older_states_is_given_back(filled: Store, graph: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that share one with many that are out of date are stored again, so that little is kept in vain."""
    monkeypatch.setattr(edge_content, "_SMALL_BYTES", 0)
    writer = filled.open("toy")
    add(writer, N, 400)
    writer.finalize()
    for i in range(5):
        writer.delete_entities([f"E{i}"])
        add(writer, 1000 + 10 * i)

    stored = stored_bytes(filled.location).values()
    n_current = sum(end - start for _, start, end in stored)
    assert sum(file.stat().st_size for file in {file for file, _, _ in stored}) < 2.5 * n_current
    filled.close()
    check_files(filled.location)


# What it leaves


def test_a_reader_changes_nothing(filled: Store, graph: None) -> None:
    """Opening, searching and closing, also for writing, changes no file of the collection; a view takes no lock."""
    filled.open("toy").finalize()
    filled.close()
    folder = Path(filled.location) / "toy"
    before = digests(folder)
    reader = filled.open("toy", read_only=True)
    _, queries, _ = many(N)
    reader.search(queries, limit=3, types=["ORG"])
    assert (folder / ".lock").read_bytes() == b""
    reader.close()
    writer = filled.open("toy")
    writer.search(queries, limit=3, types=["ORG"])
    writer.close()

    assert digests(folder) == before
    assert left(filled) == []


def test_a_view_goes_with_its_handle(filled: Store) -> None:
    """The folder of a view is removed when it is closed, or no longer used; then it cannot be used."""
    reader = filled.open("toy", read_only=True)
    other = filled.open("toy", read_only=True)
    assert len(left(filled)) == 2
    reader.close()
    reader.close()
    del other
    assert left(filled) == []
    with pytest.raises(StoreClosedError):
        reader.count()


# What it refuses


def test_a_reader_refuses_changes(filled: Store) -> None:
    """Each change of a read-only collection is an error that says what to do."""
    reader = filled.open("toy", read_only=True)
    points, vectors, encodable = many(1)
    changes = [
        lambda: reader.upsert(points, vectors, encodable),
        lambda: reader.writer().__enter__(),
        lambda: reader.delete_entities(["E0"]),
        lambda: reader.delete_points({points[0].id}),
        lambda: reader.replace_payloads(points),
        lambda: reader.write_manifest(reader.manifest),
        lambda: reader.append_ledger([b"x"]),
        reader.finalize,
        lambda: reader.editing().__enter__(),
    ]
    for change in changes:
        with pytest.raises(ReadOnlyError, match=r"read-only.*Open it for writing"):
            change()
    assert reader.count() == N


def test_a_missing_collection_is_the_usual_error(filled: Store) -> None:
    """Reading a collection that does not exist, or was deleted, names those that do; an open view goes on."""
    with pytest.raises(CollectionNotFoundError, match="there are: toy"):
        filled.open("other", read_only=True)
    reader = filled.open("toy", read_only=True)
    filled.delete("toy")
    assert reader.is_outdated
    assert np.isfinite(reader.count())
    with pytest.raises(CollectionNotFoundError):
        filled.open("toy", read_only=True)
    filled.create(manifest_of()).close()
    assert reader.is_outdated
