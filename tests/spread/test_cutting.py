"""A base is cut by entity while it is scanned.
Segments of parts become those of one collection.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from spread_cases import assert_equal, write_base

from ingest.base.reader import Reader
from ingest.formats import open_reader
from ingest.io.report import ReadReport
from ingest.spread.parts import (
    CUT_FILES,
    LEAST_NAMES,
    NAMES_PER_PART,
    CutReader,
    count_parts,
    cut_and_scan,
    cut_file_of,
)
from pearl_qdrant import load_base
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.errors import InputError
from pearl_qdrant.records import Entity
from pearl_qdrant.store import open_store
from pearl_qdrant.store.edge import content as placing
from pearl_qdrant.store.edge import shard as edge_shard
from pearl_qdrant.store.edge.content import read_content


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A small base with scattered rows."""
    return write_base(tmp_path / "base.tsv")


def read(reader: Reader) -> dict[str, Entity]:
    """All entities by id; each comes once."""
    entities = list(reader.read(ReadReport()))
    assert len({one.entity_id for one in entities}) == len(entities)
    return {one.entity_id: one for one in entities}


def test_files_of_a_cut_hold_any_text(tmp_path: Path) -> None:
    """Lone surrogates, line ends and NUL in names come back as they were."""
    odd = Entity("a\u2028b", "x\ud800y", ("one\ntwo", "z\x85", "\0"), extra={"k": "\r"}, popularity=0.1)
    one = CutReader(tmp_path, range(0))
    one.read_runs = lambda report: iter([odd])  # type: ignore[method-assign]
    cut_and_scan(one, ReadReport(), tmp_path / "cut")

    assert read(CutReader(tmp_path / "cut", range(CUT_FILES))) == {odd.entity_id: odd}


def test_an_entity_is_in_the_same_file_everywhere() -> None:
    """The file of an id never changes: a cut of another version is read as this one."""
    assert [cut_file_of(one) for one in ("E1", "Q42", "C0027051", "é")] == [165, 146, 26, 203]


def test_a_damaged_file_is_reported(base: Path, tmp_path: Path) -> None:
    """A file that is gone or cut off is an error, with its path."""
    with open_reader([base]) as reader:
        cut_and_scan(reader, ReadReport(), tmp_path / "cut")
    (tmp_path / "cut" / "003.jsonl").unlink()
    torn = tmp_path / "cut" / f"{cut_file_of('E1'):03d}.jsonl"
    torn.write_bytes(torn.read_bytes()[:-9])

    with pytest.raises(InputError, match=r"003\.jsonl: a part of the base cannot be read"):
        read(CutReader(tmp_path / "cut", range(3, 4)))
    with pytest.raises(InputError, match="a part of the base cannot be read"):
        read(CutReader(tmp_path / "cut", range(cut_file_of("E1"), cut_file_of("E1") + 1)))


def test_a_folder_that_cannot_be_written_is_reported(base: Path, tmp_path: Path) -> None:
    """The error names the folder and what to do."""
    (tmp_path / "cut").write_text("a file")

    with open_reader([base]) as reader, pytest.raises(InputError, match="parts of the base cannot be written") as found:
        cut_and_scan(reader, ReadReport(), tmp_path / "cut")

    assert found.value.option == "work"


@pytest.mark.parametrize(
    "names, workers, expected",
    [
        (1, 2, 1),
        (LEAST_NAMES * 2, 16, 2),
        (NAMES_PER_PART * 2, 2, 2),
        (NAMES_PER_PART * 2 + 1, 2, 4),
        (10**9, 16, CUT_FILES),
    ],
)
def test_parts_are_a_multiple_of_the_workers(names: int, workers: int, expected: int) -> None:
    """A part has two million names at most and 25,000 at least; all workers get as many parts."""
    assert count_parts(names, workers) == expected


@pytest.fixture(scope="module")
def encoder(model: Path) -> Encoder:
    """A tiny model."""
    return load_encoder(str(model), device="cpu")


@pytest.mark.slow
def test_graphs_of_parts_are_kept(tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part keeps its graph in the joined collection, and an update adds one more instead of merging them."""
    monkeypatch.setattr(edge_shard, "INDEXING_THRESHOLD_KB", 1)
    base, store = write_base(tmp_path / "base.tsv", 40), str(tmp_path / "store")
    load_base(base, "parts", store=store, model=encoder, parts=2)
    folder = tmp_path / "store" / "parts"
    opened = open_store(str(tmp_path / "store"))
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
    load_base(base, "parts", kb="kb", store=str(store), model=encoder, parts=2, work=tmp_path / "work")

    assert_equal(store, "whole", "parts")
    assert sorted(path.name for path in store.iterdir()) == ["parts", "whole"]
    assert list((tmp_path / "work").iterdir()) == []
