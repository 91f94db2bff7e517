"""List, describe, verify, finalize and delete collections from Python, in every kind of store."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

from store_cases import fill
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
from pearl_qdrant.store.schema import Manifest

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
