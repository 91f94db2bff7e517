"""List, describe, verify, finalize and delete collections from Python; their state in a list."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from qdrant_client import models
from qdrant_double import QdrantDouble
from store_cases import fill, manifest_of
from tiny_models import make_pearl

from pearl_qdrant.doctor import check_collections
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.store import (
    Collection,
    Store,
    administration,
    describe_collection,
    finalize_collection,
    list_collections,
    open_store,
    summarize_collections,
    verify_collection,
)
from pearl_qdrant.store.administration import CollectionSummary
from pearl_qdrant.store.edge import shard as edge_shard
from pearl_qdrant.store.edge.content import MANIFEST_FILE
from pearl_qdrant.store.schema import Checkpoint, LinkCalibration, Manifest

COMPLETE = {"state": "ready", "names": 4, "entities": 2}


def kinds(name: str, store: Store) -> list[str]:
    """The kinds of problems found; the model of these collections does not exist."""
    return [problem.kind for problem in verify_collection(name, store=store).problems]


def test_collections_are_listed_described_and_finalized(store: Store, collection: Collection, name: str) -> None:
    """I get names, counts, types and the model of a collection without opening it myself, and progress by a call."""
    fill(collection, **COMPLETE)
    described = describe_collection(name, store=store)

    assert name in list_collections(store)
    assert (described.manifest.names, described.status.points) == (4, 4)
    assert described.types["types"] == {"ORG": 4}
    assert described.to_json()["model"] == "toy"
    assert "ngram_rarity" not in described.to_json()
    progress: list[tuple[int, int]] = []
    assert finalize_collection(name, store=store, on_progress=lambda *done: progress.append(done)).is_finalized
    assert progress[-1][1] == 4


def test_an_unfinished_load_is_a_problem(store: Store, collection: Collection, name: str) -> None:
    """A collection whose load did not finish, or that has lost points, is reported with what to do."""
    assert kinds(name, store)[0] == "unfinished_load"

    fill(collection, **COMPLETE)
    assert "wrong_count" not in kinds(name, store)
    collection.delete_entities(["E0"])

    verified = verify_collection(name, store=store)
    assert verified.points == 2
    assert verified.problems[0].kind == "wrong_count"
    assert "2 points, but 4 names were written" in verified.problems[0].message
    assert f"pearl-qdrant ingest FILE --collection {name} --model" in verified.problems[0].message


def test_the_given_model_is_compared(tmp_path: Path) -> None:
    """Another model than that of the collection is a problem that names it, whether or not its count is right too."""
    model, other = (str(make_pearl(tmp_path / name, seed=seed).folder) for name, seed in (("model", 0), ("other", 7)))
    with closing(open_store(tmp_path / "store")) as store:
        info = replace(load_encoder(model, device="cpu").info, name=str(tmp_path / "gone"))
        store.create(Manifest.for_model(info, collection="toy", kb="test"))
    for names in (0, 1):
        with closing(open_store(tmp_path / "store")) as store:
            collection = store.open("toy")
            collection.write_manifest(collection.manifest.model_copy(update={"state": "ready", "names": names}))
        found = {
            given: {
                one.kind: one.message
                for one in verify_collection("toy", store=tmp_path / "store", model=given).problems
            }
            for given in (None, model, other)
        }
        count = ["wrong_count"] * names
        assert [[*found[given]] for given in (model, None, other)] == [count, [*count, "model"], [*count, "model"]]
        assert str(other) in found[other]["model"]
    assert f"--model {tmp_path / 'gone'}" in found[model]["wrong_count"]


CHECKPOINT = Checkpoint(input="a.tsv", digest="d", entities=1)


def summary_of(name: str, store: Store | str) -> CollectionSummary:
    """The summary of one collection; other tests may have more in the same store."""
    (found,) = [one for one in summarize_collections(store) if one.name == name]
    return found


def test_a_complete_collection_has_the_counts_of_its_manifest(store: Store, collection: Collection, name: str) -> None:
    """Nothing is counted: the manifest has the counts, and where it has none, points are counted."""
    calibration = LinkCalibration(slope=1.0, nil_bias=0.0, threshold=0.5)
    fill(collection, state="ready", names=40, entities=20, kb_version="2026AA", calibration=calibration)

    assert summary_of(name, store) == CollectionSummary(
        name, "ready", kb="test", kb_version="2026AA", model="toy", entities=20, names=40, is_calibrated=True
    )
    fill(collection, names=0, entities=0, calibration=None)
    assert summary_of(name, store).to_json() == {
        "collection": name,
        "state": "ready",
        "kb": "test",
        "kb_version": "2026AA",
        "entities": 2,
        "names": 4,
        "model": "toy",
        "calibrated": False,
        "problem": None,
    }


def test_an_unfinished_load_is_counted(store: Store, collection: Collection, name: str) -> None:
    """I see how far a load came that was killed, and what to do; an update that was killed is told apart."""
    fill(collection, state="loading")
    collection.write_checkpoint(CHECKPOINT)

    found = summary_of(name, store)
    assert (found.state, found.entities, found.names) == ("unfinished", 2, 4)
    assert found.problem == "its load did not finish. Run the same ingest command again; it resumes where it stopped."
    assert describe_collection(name, store=store).problem == found.problem

    collection.remove_checkpoint("a.tsv")
    fill(collection, state="loading", names=9, entities=3)
    found = summary_of(name, store)
    assert (found.state, found.entities, found.names) == ("unfinished", 2, 4)
    assert found.problem is not None
    assert found.problem.startswith("its update did not finish.")


def test_entities_of_a_large_unfinished_load_are_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without payload indexes, counting entities reads every point: the list gives the names alone."""
    monkeypatch.setattr(administration, "MAX_COUNTED_NAMES", 3)
    store = open_store(tmp_path)
    fill(store.create(manifest_of("toy")))

    found = summary_of("toy", store)
    assert (found.entities, found.names) == (None, 4)
    store.close()


def test_a_missing_graph_is_seen_without_opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A complete collection that is large enough for a graph and has none is named, with the command that helps."""
    store = open_store(tmp_path)
    collection = store.create(manifest_of("toy"))
    fill(collection, 40, state="ready", names=40, entities=20)
    assert summary_of("toy", store).state == "ready"
    monkeypatch.setattr(edge_shard, "INDEXING_THRESHOLD_KB", 1)

    found = summary_of("toy", store)
    assert (found.state, found.names) == ("no_graph", 40)
    assert found.problem == (
        "no graph yet, so search is exact but slow. Build it with: pearl-qdrant collections finalize toy"
    )
    assert describe_collection("toy", store=store).problem == found.problem
    assert [check.state for check in check_collections(store)] == ["note"]
    store.close()


def test_a_damaged_collection_does_not_hide_the_others(tmp_path: Path) -> None:
    """The list and the doctor name a collection without a usable manifest, and go on."""
    store = open_store(tmp_path)
    for name in ("a", "b"):
        fill(store.create(manifest_of(name)), state="ready", names=4, entities=2)
    store.close()
    (tmp_path / "a" / MANIFEST_FILE).write_text("{", encoding="utf-8")

    damaged, good = summarize_collections(str(tmp_path))
    assert (damaged.state, good.state) == ("unusable", "ready")
    assert "has no usable manifest" in str(damaged.problem)
    found = list(check_collections(open_store(tmp_path)))
    assert [check.state for check in found] == ["fail", "ok"]
    assert found[1].finding == "b: ready, 2 entities, 4 names, model toy"


def test_collections_of_other_programs_are_named_as_such() -> None:
    """A server may have collections that are not ours: they are listed, and the doctor leaves them alone."""
    with QdrantDouble() as double:
        double.client.create_collection("theirs", models.VectorParams(size=2, distance=models.Distance.DOT))
        store = open_store(double.url)

        (found,) = summarize_collections(store)
        assert (found.state, found.is_foreign, found.names) == ("unusable", True, None)
        assert list(check_collections(store)) == []
        store.close()


def test_the_doctor_looks_at_a_limited_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a store with very many collections the doctor ends soon, and says how many it left out."""
    monkeypatch.setattr("pearl_qdrant.doctor.MAX_COLLECTIONS", 1)
    store = open_store(tmp_path)
    for name in ("a", "b"):
        store.create(manifest_of(name))
    checks = list(check_collections(store))

    assert [(check.state, check.finding.split(",")[0]) for check in checks] == [
        ("fail", "a: unfinished"),
        ("note", "only the first 1 of 2 were looked at"),
    ]
    store.close()
