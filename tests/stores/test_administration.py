"""List, describe, verify, finalize and delete collections from Python, in every kind of store."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

from store_cases import fill, put
from tiny_models import make_pearl

from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.store import (
    Store,
    describe_collection,
    finalize_collection,
    list_collections,
    open_store,
    verify_collection,
)
from pearl_qdrant.store.protocol import Collection
from pearl_qdrant.store.schema import INDEXED_FIELDS, Manifest

COMPLETE = {"state": "ready", "names": 4, "entities": 2}


def kinds(name: str, store: Store) -> list[str]:
    """The kinds of problems found; the model of these collections does not exist."""
    return [problem.kind for problem in verify_collection(name, store=store).problems]


def test_collections_are_listed_and_described(store: Store, collection: Collection, name: str) -> None:
    """I get names, counts, types and the model of a collection without opening it myself."""
    fill(collection, **COMPLETE)
    described = describe_collection(name, store=store)

    assert name in list_collections(store)
    assert (described.manifest.names, described.status.points) == (4, 4)
    assert described.types["types"] == {"ORG": 4}
    assert described.to_json()["model"] == "toy"
    assert "ngram_rarity" not in described.to_json()


def test_a_collection_is_finalized_with_progress(store: Store, collection: Collection, name: str) -> None:
    """Progress is reported by a call, and the status is returned."""
    fill(collection, **COMPLETE)
    progress: list[tuple[int, int]] = []

    status = finalize_collection(name, store=store, on_progress=lambda done, total: progress.append((done, total)))

    assert status.is_finalized
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


def test_a_collection_with_its_model_has_no_problems(tmp_path: Path) -> None:
    """A folder is enough to verify; another model is a problem that names both."""
    model, other = make_pearl(tmp_path / "model").folder, make_pearl(tmp_path / "other", seed=7).folder
    info = load_encoder(str(model), device="cpu").info
    store = open_store(tmp_path / "store")
    collection = store.create(Manifest.for_model(info, collection="toy", kb="test"))
    collection.write_manifest(collection.manifest.model_copy(update={"state": "ready"}))
    store.close()

    assert verify_collection("toy", store=str(tmp_path / "store")).problems == ()
    (problem,) = verify_collection("toy", store=tmp_path / "store", model=str(other)).problems
    assert problem.kind == "model"
    assert str(other) in problem.message


def test_the_given_model_is_compared_also_where_the_count_is_wrong(tmp_path: Path) -> None:
    """A wrong count of names hides neither that the given model is another one, nor that it is the right one."""
    model, other = (str(make_pearl(tmp_path / name, seed=seed).folder) for name, seed in (("model", 0), ("other", 7)))
    with closing(open_store(tmp_path / "store")) as store:
        info = replace(load_encoder(model, device="cpu").info, name=str(tmp_path / "gone"))
        collection = store.create(Manifest.for_model(info, collection="toy", kb="test"))
        collection.write_manifest(collection.manifest.model_copy(update={"state": "ready", "names": 1}))
    found = {
        given: {
            one.kind: one.message for one in verify_collection("toy", store=tmp_path / "store", model=given).problems
        }
        for given in (None, model, other)
    }

    assert list(found[model]) == ["wrong_count"]
    assert f"--model {tmp_path / 'gone'}" in found[model]["wrong_count"]
    assert [list(found[given]) for given in (None, other)] == [["wrong_count", "model"]] * 2
    assert str(other) in found[other]["model"]


def test_missing_indexes_name_the_command_that_makes_them(tmp_path: Path) -> None:
    """The problem names `collections finalize`, and that makes them."""
    store = open_store(tmp_path / "store")
    collection = store.create(Manifest(collection="toy", kb="t", model="toy", weights_hash="", dim=8, has_head=False))
    put(collection)
    folder = collection._writable("testing")
    with folder.editing(), folder.shard("testing") as shard:
        from pearl_qdrant.store.edge import shard as edge_shard

        edge_shard.drop_indexes(shard)
        folder.record_change()

    problems = {problem.kind: problem for problem in verify_collection("toy", store=store).problems}
    assert "pearl-qdrant collections finalize toy" in problems["missing_indexes"].message
    assert all(field in problems["missing_indexes"].message for field in INDEXED_FIELDS)
    finalize_collection("toy", store=store)
    assert "missing_indexes" not in kinds("toy", store)
    store.close()
