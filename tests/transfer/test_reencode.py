"""`reencode_collection` and `rollback_collection`, with tiny models, over both stores."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from double_fixtures import connect
from linker_base import ENTITIES, fill
from qdrant_double import QdrantDouble
from store_cases import HALF
from tiny_models import make_pearl

from pearl_qdrant import Entity, EntityLinker
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.errors import CollectionMovedError, ModelMismatchError, OptionError, StoreLockedError
from pearl_qdrant.linking.mention_kinds import MadeMention
from pearl_qdrant.store import Collection, open_store
from pearl_qdrant.store.administration import verify_collection
from pearl_qdrant.store.schema import LinkCalibration
from pearl_qdrant.transfer import (
    EverydayChange,
    EverydayKind,
    prune_collection,
    push_collection,
    reencode_collection,
    reencoding,
    rollback_collection,
)
from pearl_qdrant.transfer.names import retyped

NAME = "demo"


@pytest.fixture(scope="module")
def filled(models: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An embedded store with a collection of the first model, never opened by a test."""
    folder = tmp_path_factory.mktemp("filled") / "store"
    fill(folder, NAME, models[0], ENTITIES, is_loaded=True)
    return folder


SERVERS = [pytest.param("plain", marks=pytest.mark.slow), pytest.param("alias", marks=pytest.mark.slow)]


@pytest.fixture(params=["embedded", *SERVERS])
def location(
    request: pytest.FixtureRequest, filled: Path, tmp_path: Path, double: QdrantDouble, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """Where a collection of the first model is: a folder, a server that loaded it, or one that it was pushed to."""
    shutil.copytree(filled, tmp_path / "store")
    if request.param == "embedded":
        yield str(tmp_path / "store")
        return
    monkeypatch.setattr(reencoding, "MOVE_WAIT_S", 0.2)
    server = connect(double.url)
    push_collection(NAME, to=server, store=str(tmp_path / "store"))
    if request.param == "plain":
        version = server.versions(NAME)[0].id
        pushed = server.open(NAME, version=version)
        rows, manifest = list(pushed.scroll_rows()), pushed.manifest
        server.delete(NAME)
        plain = server.create(manifest)
        for page in rows:
            plain.upsert(page.points, page.vectors, page.encodable)
        plain.write_manifest(manifest)
    server.close()
    yield double.url


def names(location: str) -> set[str]:
    """Names of the current version."""
    with closing(open_store(location)) as store:
        return {point.name for point in store.open(NAME, read_only=True).scroll()}


def model_of(location: str) -> str:
    """The model that the current version names."""
    with closing(open_store(location)) as store:
        return store.open(NAME, read_only=True).manifest.model


def test_another_model_and_back(location: str, models: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """All names get what a load with the other model gives; the way back needs no encoding, and pruning ends it. What
    was encoded before a kill is not encoded again, and nobody sees it before the end.
    """
    before = names(location)

    def die(*given: Any, **named: Any) -> None:
        raise KeyboardInterrupt

    for method in ("_check_sample", "_switch"):
        with monkeypatch.context() as patch:
            patch.setattr("pearl_qdrant.transfer.names.WINDOW", 4)
            patch.setattr(reencoding._Reencoding, method, die)
            with pytest.raises(KeyboardInterrupt):
                reencode_collection(NAME, model=models[1], store=location)
        assert model_of(location) == models[0]
    result = reencode_collection(NAME, model=models[1], store=location)
    encoder = load_encoder(models[1])
    expected = encoder.encode(["heart attack"]).vectors[0]
    with closing(open_store(location)) as store:
        collection = store.open(NAME, read_only=True)
        found = collection.search(expected[None], limit=1)[0][0]
        pages = list(collection.scroll_rows())
    for rows in pages:
        encoded = encoder.encode([point.name for point in rows.points])
        np.testing.assert_allclose(rows.vectors, np.where(encoded.encodable[:, None], encoded.vectors, 0), atol=HALF)
        assert rows.points == retyped(rows.points, encoded)

    assert sum(len(rows.points) for rows in pages) == 16
    assert (result.model_before, result.model, result.switched) == (*models, True)
    assert (result.names, result.encoded, result.recall) == (16, 0, 1.0)
    assert (found.point.name, found.score) == ("heart attack", pytest.approx(1.0, abs=HALF))
    assert names(location) == before
    assert not reencode_collection(NAME, model=models[1], store=location).switched
    back = rollback_collection(NAME, store=location)
    assert (back.model, back.encoded, back.recall, model_of(location)) == (models[0], 0, None, models[0])
    again = reencode_collection(NAME, model=models[1], store=location)
    assert (again.encoded, model_of(location)) == (0, models[1])
    assert prune_collection(NAME, store=location) == 1
    assert names(location) == before
    with pytest.raises(OptionError):
        rollback_collection(NAME, store=location)


def test_another_type_head_writes_the_types_again(filled: Path, tmp_path: Path) -> None:
    """A model that differs in its type head alone has the same vectors, and is another one for the types of names."""
    shutil.copytree(filled, tmp_path / "store")
    other = make_pearl(tmp_path / "other", seed=0, head_seed=5).folder
    with closing(open_store(str(tmp_path / "store"))) as store:
        before = next(store.open(NAME, read_only=True).scroll_rows())
        result = reencode_collection(NAME, model=str(other), store=store)
        after = next(store.open(NAME, read_only=True).scroll_rows())
        assert not reencode_collection(NAME, model=str(other), store=store).switched

    expected = retyped(after.points, load_encoder(str(other)).encode([point.name for point in after.points]))
    assert (result.switched, result.encoded) == (True, 16)
    np.testing.assert_allclose(after.vectors, before.vectors, atol=1e-6)
    assert [one.phrase_type for one in after.points] == [one.phrase_type for one in expected]
    assert [one.phrase_type for one in after.points] != [one.phrase_type for one in before.points]


def test_a_worse_model_is_not_taken(location: str, models: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Everyday mentions are answered with both models; if the mean falls by too much, the old version stays."""
    compared, really_compare = [], reencoding.compare_everyday

    def compare(before: Any, after: Any, n: int) -> EverydayChange:
        change = really_compare(before, after, n)
        compared.append([(one.manifest.ngram_rarity, encoder.info.name) for one, encoder in (before, after)])
        worse = EverydayKind("worse", 1, 100.0, 0.0)
        return EverydayChange((*change.kinds, *[worse] * len(change.kinds)), change.error)

    monkeypatch.setattr(reencoding, "compare_everyday", compare)
    refused = reencode_collection(NAME, model=models[1], store=location, everyday=60)
    still = model_of(location)
    taken = reencode_collection(NAME, model=models[1], store=location, everyday=60, max_fall=100)

    assert (refused.switched, refused.encoded, still) == (False, 16, models[0])
    assert refused.everyday is not None
    assert taken.everyday is not None
    assert refused.everyday.mentions == taken.everyday.mentions > 10
    assert refused.everyday.fall > 0
    assert (taken.switched, taken.encoded, model_of(location)) == (True, 0, models[1])
    assert compared[0][0][0] is not None
    assert [[rarity == compared[0][0][0] for rarity, _ in pair] for pair in compared] == [[True, True]] * 2
    assert [[name for _, name in pair] for pair in compared] == [[*models]] * 2
    for wrong in ({"everyday": 0}, {"everyday": 1, "max_fall": -1.0}, {"everyday": 1, "max_fall": float("nan")}):
        with pytest.raises(OptionError):
            reencode_collection(NAME, model=models[0], store=location, **wrong)


def test_figures_are_means_over_kinds() -> None:
    """Each kind counts the same, and the error is that of mentions compared one by one."""
    made = [MadeMention("exact", str(i), None) for i in range(4)] + [MadeMention("alias", "a", None)]
    before, after = np.array([1, 1, 1, 1, 0], np.bool_), np.array([1, 1, 0, 0, 1], np.bool_)
    change = reencoding.summarise(made, before, after)

    assert (change.mentions, change.before, change.after, change.fall) == (5, 50.0, 75.0, -25.0)
    assert change.error == pytest.approx(100 * (0.25 / 4) ** 0.5 / 2)
    empty = reencoding.summarise([], before[:0], after[:0])
    assert (empty.mentions, empty.before, empty.after, empty.error, empty.kinds) == (0, 0.0, 0.0, 0.0, ())


@pytest.mark.slow
def test_an_open_linker_notices(location: str, models: tuple[str, str]) -> None:
    """A linker answers with its own version until it reloads, and then with the other model; never with a mixture."""
    with EntityLinker.open(NAME, store=location, read_only=True) as linker:
        before = linker.link("heart attack", threshold=0)
        reencode_collection(NAME, model=models[1], store=location)
        linker.collections[0].__dict__["_seen_at"] = -1e9
        meanwhile = linker.link("heart attack", threshold=0)

        assert linker.is_outdated
        assert meanwhile.candidates == before.candidates
        assert linker.reload()
        assert linker.encoder.info.name == models[1]
        assert linker.link("heart attack", threshold=0).candidates[0].dense_score == pytest.approx(1.0, abs=1e-3)
        assert not linker.is_outdated
    with EntityLinker.open(NAME, store=location, read_only=True, model=models[1]) as fixed:
        rollback_collection(NAME, store=location)
        with pytest.raises(ModelMismatchError):
            fixed.reload()


@pytest.mark.slow
def test_edits_reach_the_new_version(location: str, models: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that are added, changed and deleted while the names are encoded reach both versions."""
    real = reencoding.catch_up
    edits: list[Callable[[EntityLinker], Any]] = [
        lambda linker: linker.add([Entity("new", "a new name", ("another new name",))]),
        lambda linker: linker.delete(["nyp"]),
    ]

    def catch_up(*given: Any, **named: Any) -> Any:
        found = real(*given, **named)
        if edits:
            edit = edits.pop()
            with EntityLinker.open(NAME, store=location) as linker:
                edit(linker)
        return found

    monkeypatch.setattr(reencoding, "catch_up", catch_up)
    monkeypatch.setattr(reencoding, "FEW_CHANGES", 0)
    result = reencode_collection(NAME, model=models[1], store=location)
    expected = {name for entity in ENTITIES if entity.entity_id != "nyp" for name in entity.names()}

    assert not edits
    assert names(location) == expected | {"a new name", "another new name"}
    assert result.names == len(names(location)) + 1  # two entities share a name
    rollback_collection(NAME, store=location)
    assert names(location) == expected | {"a new name", "another new name"}


@pytest.mark.slow
def test_an_open_writer_is_waited_for(filled: Path, tmp_path: Path, models: tuple[str, str]) -> None:
    """An embedded collection that is open for writing is not switched under its writer."""
    shutil.copytree(filled, tmp_path / "store")
    location = str(tmp_path / "store")
    with EntityLinker.open(NAME, store=location), pytest.MonkeyPatch.context() as patch:
        patch.setattr(reencoding, "MOVE_WAIT_S", 0.1)
        with pytest.raises(StoreLockedError):
            reencode_collection(NAME, model=models[1], store=location)
    assert reencode_collection(NAME, model=models[1], store=location).encoded == 0


@pytest.mark.slow
@pytest.mark.parametrize("location", [SERVERS[0], "alias"], indirect=True)
def test_a_writer_on_a_server_loses_nothing(
    location: str, models: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A linker that is open for writing repeats its edit in the new version, with the new model."""
    with EntityLinker.open(NAME, store=location) as linker:
        stale = linker.collections[0]
        reencode_collection(NAME, model=models[1], store=location)
        linker.add(entity for entity in [Entity("late", "a late name")])

        assert linker.encoder.info.name == models[1]
        assert linker.link("a late name").entity_id == "late"
        assert linker.delete(["late"]) == 1
        with pytest.raises(CollectionMovedError):
            stale.delete_points({"8f9e1a52-6a0b-5d43-9a57-2d1f0c1b7e11"})


@pytest.mark.parametrize("location", ["alias"], indirect=True)
def test_a_write_during_the_switch(location: str, models: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that reaches the current version after the last pass is repeated in the new one."""
    real, n_passes, threads = reencoding.catch_up, [0], list[threading.Thread]()

    def add() -> None:
        with EntityLinker.open(NAME, store=location) as linker:
            linker.add([Entity("late", "a late name")])

    def catch_up(source: Collection, *given: Any, **named: Any) -> Any:
        found = real(source, *given, **named)
        n_passes[0] += 1
        if n_passes[0] == 2:  # one pass with writers, and the one of the switch
            before = source.count()
            threads.append(threading.Thread(target=add))
            threads[0].start()
            while threads[0].is_alive() and source.count() == before:
                time.sleep(0.01)
        return found

    monkeypatch.setattr(reencoding, "catch_up", catch_up)
    result = reencode_collection(NAME, model=models[1], store=location)
    threads[0].join()

    assert result.switched
    assert model_of(location) == models[1]
    assert "a late name" in names(location)


def links_of(location: Path, model: str) -> list[tuple[str | None, float]]:
    """The answers to every name of the entities, and to one slip: an id and a probability."""
    mentions = [*dict.fromkeys(one for entity in ENTITIES for one in entity.names()), "hart attack"]
    with EntityLinker.open(NAME, store=str(location), model=model, read_only=True) as linker:
        found = list(linker.link_batch(mentions))
    return [(one.entity_id, one.candidates[0].probability if one.candidates else 0.0) for one in found]


@pytest.fixture
def older(filled: Path, tmp_path: Path) -> Path:
    """The store of an older release: whole vectors, 8 bits a number beside them."""
    folder = tmp_path / "older"
    with closing(open_store(str(shutil.copytree(filled, tmp_path / "now")))) as now:
        source = now.open(NAME, read_only=True)
        manifest = source.manifest.model_copy(update={"quantization": "int8"})
        with closing(open_store(folder)) as store:
            collection = store.create(manifest)
            for rows in source.scroll_rows():
                collection.upsert(rows.points, rows.vectors, rows.encodable)
            collection.write_manifest(manifest)
    return folder


def kept_as(location: Path) -> str:
    """How the current version says that it keeps vectors."""
    with closing(open_store(str(location))) as store:
        return store.open(NAME, read_only=True).manifest.quantization


def test_an_older_collection_stays_as_it_is(filled: Path, older: Path, models: tuple[str, str]) -> None:
    """A collection of an older release opens, answers as a new one, takes entities and is whole, in its own form."""
    assert (kept_as(filled), kept_as(older)) == ("turbo4", "int8")
    now, before = links_of(filled, models[0]), links_of(older, models[0])

    assert [entity for entity, _ in before] == [entity for entity, _ in now]
    np.testing.assert_allclose([one for _, one in before], [one for _, one in now], atol=2e-3)
    with EntityLinker.open(NAME, store=str(older), model=models[0]) as linker:
        linker.add([Entity("NEW", "a new disease")])
        assert linker.link("a new disease").entity_id == "NEW"
    assert verify_collection(NAME, store=str(older)).problems == ()
    assert kept_as(older) == "int8"


def test_the_same_model_brings_an_older_collection_up(older: Path, models: tuple[str, str]) -> None:
    """`reencode` with the model of an older collection writes it in the form of new ones, once, and keeps its
    calibration; `--rollback` goes back.
    """
    with closing(open_store(str(older))) as store:
        collection = store.open(NAME)
        calibration = LinkCalibration(slope=1.0, nil_bias=0.5, threshold=0.25)
        collection.write_manifest(collection.manifest.model_copy(update={"calibration": calibration}))
    before = links_of(older, models[0])

    result = reencode_collection(NAME, model=models[0], store=str(older))

    assert (result.switched, result.encoded, kept_as(older)) == (True, 16, "turbo4")
    with closing(open_store(str(older))) as store:
        assert store.open(NAME, read_only=True).manifest.calibration == calibration
    assert [entity for entity, _ in links_of(older, models[0])] == [entity for entity, _ in before]
    assert not reencode_collection(NAME, model=models[0], store=str(older)).switched
    rollback_collection(NAME, store=str(older))
    assert kept_as(older) == "int8"
