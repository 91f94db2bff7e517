"""A base is cut by entity; loads in parts give the collection of a load in one piece, also after a kill at any step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from small_loads import CountingEncoder
from spread_cases import assert_equal, write_base
from store_cases import CLOSE

from ingest.base.reader import Reader
from ingest.formats import open_reader
from ingest.io.report import ReadReport
from ingest.spread import parts
from ingest.spread.parts import (
    CUT_FILES,
    LEAST_NAMES,
    NAMES_PER_PART,
    CutReader,
    Work,
    count_parts,
    cut_and_scan,
    cut_file_of,
)
from pearl_qdrant import EntityLinker, load_base
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.errors import InputError, OptionError, StoreError, StoreLockedError
from pearl_qdrant.records import Entity
from pearl_qdrant.store import open_store
from pearl_qdrant.store.edge import content as placing
from pearl_qdrant.store.edge import shard as edge_shard
from pearl_qdrant.store.edge.content import read_content

N_PARTS = 2
N_NAMES = 296


class Killed(BaseException):
    """In place of the end of the process."""


@pytest.fixture(scope="module")
def encoder(model: Path) -> Encoder:
    """A tiny model."""
    return load_encoder(str(model), device="cpu")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base of 90 entities."""
    return write_base(tmp_path_factory.mktemp("base") / "base.tsv")


@pytest.fixture(scope="module")
def whole(base: Path, encoder: Encoder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the base, loaded in one piece."""
    store = tmp_path_factory.mktemp("store")
    load_base(base, "whole", kb="kb", store=str(store), model=encoder)
    return store


@pytest.fixture
def name(whole: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """A collection of the store that is deleted afterwards, with what is left of its load."""
    yield "parts"
    opened = open_store(str(whole))
    if "parts" in opened.collections():
        opened.delete("parts")
    Work(whole / ".parts-parts").clear()


def load(base: Path, store: Path, encoder: Encoder, **options: Any) -> Any:
    """Load in parts into the collection `parts`."""
    given = {"parts": N_PARTS, "kb": "kb", **options}
    return load_base(base, "parts", store=str(store), model=encoder, **given)


def links(store: Path, collection: str, model: Path, mentions: Sequence[str]) -> list[Any]:
    """Entities and probabilities of mentions."""
    with EntityLinker.open(collection, store=str(store), model=str(model), read_only=True) as linker:
        found = list(linker.link_batch(mentions))
    return [
        (one.entity_id, one.nil_reason, one.rule, one.probability, [c.entity_id for c in one.candidates])
        for one in found
    ]


def test_a_load_in_parts_equals_one_in_one_piece(
    base: Path, whole: Path, encoder: Encoder, model: Path, name: str
) -> None:
    """Counts, ids, payloads, vectors, manifest and links are those of a load in one piece; nothing else is left."""
    result = load(base, whole, encoder)

    assert (result.entities, result.names, result.points) == (90, N_NAMES, N_NAMES)
    assert not result.resumed_at
    assert_equal(whole, "whole", name)
    mentions = [f"w{i} times" for i in range(0, 90, 4)] + [f"w{i} pst" for i in range(0, 90, 6)] + ["nowhere at all"]
    for one, other in zip(links(whole, "whole", model, mentions), links(whole, name, model, mentions), strict=True):
        assert one[:3] == other[:3]
        assert one[3] == pytest.approx(other[3], abs=CLOSE)
        assert one[4] == other[4]
    assert sorted(path.name for path in whole.iterdir()) == [name, "whole"]


@pytest.mark.slow
def test_the_collection_is_as_any_other(base: Path, whole: Path, encoder: Encoder, name: str) -> None:
    """Names can be added and deleted; the same base again is unchanged; another process may read it."""
    load(base, whole, encoder)
    opened = open_store(str(whole))
    collection = opened.open(name)
    assert collection.delete_entities(["E3", "E7"]) == 8
    assert collection.count() == N_NAMES - 8
    opened.close()

    assert open_store(str(whole)).open(name, read_only=True).count() == N_NAMES - 8
    assert load_base(base, name, kb="kb", store=str(whole), model=encoder).points == N_NAMES
    assert_equal(whole, "whole", name)
    assert load_base(base, name, kb="kb", store=str(whole), model=encoder).is_unchanged
    assert load(base, whole, encoder).is_unchanged


def test_a_killed_worker_repeats_only_its_part(base: Path, whole: Path, encoder: Encoder, name: str) -> None:
    """After a kill while the last part is encoded, the part before it is not encoded again."""
    killed, again = CountingEncoder(encoder, fail_at=N_PARTS), CountingEncoder(encoder)
    with pytest.raises(MemoryError):
        load(base, whole, killed)

    result = load(base, whole, again)

    assert (killed.calls, again.calls, result.resumed_at > 0) == (N_PARTS, 1, True)
    assert_equal(whole, "whole", name)


STEPS: tuple[tuple[object, str], ...] = (
    (parts, "cut_and_scan"),
    (Work, "write_plan"),
    (Work, "write_done"),
    (parts, "join_parts"),
    (parts, "finish_load"),
    (Work, "write_joined"),
    (Path, "rename"),
    (parts, "sync_folder"),
    (Work, "clear"),
)
KILLS = [(place, step, after) for place, step in STEPS for after in (False, True)]


def test_a_part_that_another_worker_is_making_is_waited_for(
    base: Path, whole: Path, encoder: Encoder, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker before may be ending while it makes a part: the next one opens what is there then, or makes it."""
    store = type(open_store(str(whole)))
    create, met = store.create, list[str]()

    def locked_once(opened: Any, manifest: Any, *more: Any, **named: Any) -> Any:
        if manifest.collection != name and manifest.collection not in met:
            met.append(manifest.collection)
            raise StoreLockedError(manifest.collection, "a worker that is ending")
        return create(opened, manifest, *more, **named)

    monkeypatch.setattr(store, "create", locked_once)
    load_base(base, name, kb="kb", store=str(whole), model=encoder, parts=N_PARTS)

    assert len(met) == N_PARTS
    assert_equal(whole, "whole", name)


@pytest.mark.slow
@pytest.mark.parametrize(
    "place, step, after", KILLS, ids=[f"{'after' if after else 'before'}-{step}" for _, step, after in KILLS]
)
def test_a_killed_driver_goes_on(
    base: Path,
    whole: Path,
    encoder: Encoder,
    name: str,
    place: object,
    step: str,
    after: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a kill before or after any step, the same call completes the collection, and nothing else is left."""
    with monkeypatch.context() as patch:
        patch.setattr(place, step, killed_at(getattr(place, step), after=after, n=2 if step == "clear" else 1))
        with pytest.raises(Killed):
            load(base, whole, encoder)
    if (step, after) in (("write_joined", False), ("cut_and_scan", True)):
        assert name not in open_store(str(whole)).collections()

    load(base, whole, encoder)

    assert_equal(whole, "whole", name)
    assert sorted(path.name for path in whole.iterdir()) == [name, "whole"]


def killed_at(function: Callable[..., Any], *, after: bool, n: int) -> Callable[..., Any]:
    """A function that is killed in its n-th call, before or after it did its work."""
    calls = iter(range(1, 1000))

    def call(*given: Any, **named: Any) -> Any:
        if next(calls) != n:
            return function(*given, **named)
        if after:
            function(*given, **named)
        raise Killed

    return call


@pytest.mark.slow
def test_another_base_starts_over(base: Path, whole: Path, encoder: Encoder, name: str, tmp_path: Path) -> None:
    """What is built of a base that has changed since is not used."""
    changed = tmp_path / base.name
    changed.write_text(base.read_text().replace("w5 times", "other 5"))
    killed, again = CountingEncoder(encoder, fail_at=2), CountingEncoder(encoder)
    with pytest.raises(MemoryError):
        load(changed, whole, killed)

    load(base, whole, again)

    assert len(again.names) > 250
    assert_equal(whole, "whole", name)


@pytest.mark.slow
def test_a_collection_of_something_else_is_kept(
    base: Path, whole: Path, encoder: Encoder, name: str, tmp_path: Path
) -> None:
    """It is refused, and replaced on request; until all parts are built it answers as before."""
    other = write_base(tmp_path / "other.tsv", 5)
    load_base(other, name, kb="kb", store=str(whole), model=encoder)
    with pytest.raises(OptionError, match="holds something else") as found:
        load(base, whole, encoder)
    with pytest.raises(MemoryError):
        load(base, whole, CountingEncoder(encoder, fail_at=2), restart=True)

    assert found.value.option == "parts"
    assert open_store(str(whole)).open(name, read_only=True).count() == 17
    assert load(base, whole, encoder, restart=True).resumed_at
    assert_equal(whole, "whole", name)


@pytest.mark.slow
def test_lost_files_of_a_part_are_an_error(
    base: Path, whole: Path, encoder: Encoder, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part that disappeared is noticed by its points, before anything is replaced."""
    with monkeypatch.context() as patch:
        patch.setattr(parts, "join_parts", killed_at(parts.join_parts, after=False, n=1))
        with pytest.raises(Killed):
            load(base, whole, encoder)
    open_store(str(whole / ".parts-parts" / "parts")).delete("0001")

    with pytest.raises(StoreError, match=r"The parts hold \d+ points of 296 names"):
        load(base, whole, encoder)
    assert name not in open_store(str(whole)).collections()


def test_arguments_are_checked_first(base: Path, tmp_path: Path, encoder: Encoder) -> None:
    """Numbers of parts, a folder that cannot be made, and bad rows are errors before anything is built."""
    for number in (0, 257):
        with pytest.raises(OptionError, match="from 1 to 256"):
            load(base, tmp_path, encoder, parts=number)
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="work folder"):
        load(base, tmp_path, encoder, work=tmp_path / "file")
    bad = tmp_path / "bad.tsv"
    bad.write_text("id\tname\nE1\n\tx\n")
    with pytest.raises(InputError):
        load(bad, tmp_path, encoder, max_errors=0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.tsv", "file"]


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
