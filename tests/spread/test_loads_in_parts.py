"""Loads in parts give the collection of a load in one piece, also after a kill at any step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from small_loads import CountingEncoder
from spread_cases import assert_equal, write_base
from store_cases import CLOSE

from ingest.spread import parts
from ingest.spread.parts import Work
from pearl_qdrant import EntityLinker, load_base
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.errors import InputError, OptionError, StoreError
from pearl_qdrant.store import open_store

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
