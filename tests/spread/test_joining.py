"""Segments of parts become those of one collection."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from edge_cases import manifest_of
from spread_cases import assert_equal, write_base

from pearl_qdrant import load_base
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.store.edge import joining, placing
from pearl_qdrant.store.edge import shard as edge_shard
from pearl_qdrant.store.edge.content import read_content
from pearl_qdrant.store.edge.joining import join_parts
from pearl_qdrant.store.edge.store import EdgeStore


@pytest.fixture(scope="module")
def encoder(model: Path) -> Encoder:
    """A tiny model."""
    return load_encoder(str(model), device="cpu")


@pytest.mark.slow
def test_graphs_of_parts_are_kept(tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part keeps its graph in the joined collection, and an update adds one more instead of merging them."""
    monkeypatch.setattr(edge_shard, "INDEXING_THRESHOLD_KB", 1)
    base, store = write_base(tmp_path / "base.tsv", 40), str(tmp_path / "store")
    load_base(base, "parts", store=store, model=encoder, partitions=2)
    folder = tmp_path / "store" / "parts"
    opened = EdgeStore(tmp_path / "store")
    with closing(opened.open("parts")) as collection:
        status = collection.status()
        before = graphs(folder)
        assert (status.is_finalized, status.indexed_vectors, status.segments) == (True, status.vectors, 3)
    write_base(base, 60)
    load_base(base, "parts", store=store, model=encoder, update=True)

    state = read_content(folder, "parts")[1].index
    assert state is not None
    assert state.parts == 2
    assert len(before) == 2
    assert before < graphs(folder)
    load_base(base, "whole", kb="parts", store=store, model=encoder)
    with closing(opened.open("parts")) as parts, closing(opened.open("whole")) as whole:
        assert parts.status().is_finalized
        query = encoder.encode(["w3 times", "new york 17", "late 7"]).vectors
        ours = [[found.point.name for found in names] for names in parts.search(query, limit=5)]
        theirs = [[found.point.name for found in names] for names in whole.search(query, limit=5)]
        assert ours == theirs


def graphs(folder: Path) -> set[str]:
    """The segments with a graph."""
    files = read_content(folder, "parts")[1].files
    return {path.split("/")[1] for path in files if path.endswith("/vector_index-dense/graph.bin")}


@pytest.mark.slow
def test_parts_are_copied_where_there_are_no_hard_links(
    tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another disk than the store, the work folder's parts are copied; the collection is the same."""

    def refuse(path: Path, target: Path) -> None:
        raise OSError(18, "Invalid cross-device link")

    base, store = write_base(tmp_path / "base.tsv", 20), tmp_path / "store"
    load_base(base, "whole", kb="kb", store=str(store), model=encoder)
    monkeypatch.setattr(placing.Path, "hardlink_to", refuse)
    load_base(base, "parts", kb="kb", store=str(store), model=encoder, partitions=2, work=tmp_path / "work")

    assert_equal(store, "whole", "parts")
    assert sorted(path.name for path in store.iterdir()) == ["parts", "whole"]
    assert list((tmp_path / "work").iterdir()) == []


def test_a_full_disk_is_an_error_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors of the file system while parts are joined are errors of the store."""
    store = EdgeStore(tmp_path)
    for name in ("c", "part"):
        store.create(manifest_of(name)).close()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(joining, "share_files", full)
    with pytest.raises(edge_shard.StoreFullError, match="No space left for collection 'c'"):
        join_parts(tmp_path / "c", [tmp_path / "part"], "c")
    assert store.open("c").count() == 0
    store.close()
