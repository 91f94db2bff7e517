"""`EntityLinker.build`: a collection from entities that a program holds, in one call."""

from __future__ import annotations

from pathlib import Path

import pytest

from pearl_qdrant import Entity, EntityLinker
from pearl_qdrant.errors import CollectionExistsError, InvalidEntityError
from pearl_qdrant.linking import editing as building
from pearl_qdrant.linking.editing import read_entities
from pearl_qdrant.store.administration import verify_collection

CITY = {"id": "nyc", "name": "New York City", "aliases": ["NYC", "Big Apple"], "types": ["GPE", "city"]}
POST = Entity("nyp", "New York Post", ("nypost.com",), ("ORG",), ("ORG",))


def test_a_collection_in_memory_takes_one_line_and_is_gone_afterwards(model: Path) -> None:
    """Without a path, the collection lives as long as the linker, answers at once, and takes more entities."""
    with EntityLinker.build([CITY, POST], model=model) as linker:
        folder = Path(linker._store.location)
        assert folder.is_dir()
        assert linker.link("NYC").entity_id == "nyc"
        assert linker.entity("nyc").types == ("GPE",)
        assert linker.entity("nyp").aliases == ("nypost.com",)
        assert linker.link("NYC", types=["city"]).entity_id == "nyc"
        linker.add([Entity("hk", "Hong Kong")])
        assert linker.link("Hong Kong").entity_id == "hk"
        assert linker.warnings == ()

    assert not folder.exists()


def test_a_collection_in_a_folder_stays(model: Path, tmp_path: Path) -> None:
    """With a path the collection is there for `EntityLinker.open`, whole and verified, and is not overwritten."""
    EntityLinker.build([CITY, POST], path=tmp_path, collection="towns", model=model).close()

    with EntityLinker.open("towns", store=str(tmp_path)) as linker:
        assert linker.link("Big Apple").entity_id == "nyc"
    assert verify_collection("towns", store=str(tmp_path)).problems == ()
    with pytest.raises(CollectionExistsError, match="towns"):
        EntityLinker.build([POST], path=tmp_path, collection="towns", model=model)
    with pytest.raises(ValueError, match="not both"):
        EntityLinker.build([CITY], path=tmp_path, store=":memory:")
    with EntityLinker.open("towns", store=str(tmp_path)) as linker:
        assert linker.entity("nyc").canonical_name == "New York City"


@pytest.mark.slow
def test_a_large_collection_is_written_by_a_bulk_load(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many names go through the child process of a load, and answer the same."""
    monkeypatch.setattr(building, "_BULK_NAMES", 3)

    with EntityLinker.build([CITY, POST], model=model) as linker:
        assert linker.link("Big Apple").entity_id == "nyc"


def test_a_build_that_fails_leaves_nothing(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the collection cannot be finished, it is deleted, so that the same call works later."""

    def fail(*_: object) -> None:
        raise OSError("no space")

    with monkeypatch.context() as patch:
        patch.setattr(building.IdfTable, "from_names", fail)
        with pytest.raises(OSError, match="no space"):
            EntityLinker.build([CITY], path=tmp_path, model=model)

    EntityLinker.build([CITY], path=tmp_path, model=model).close()


def test_rows_of_a_pandas_frame_are_entities() -> None:
    """Empty cells are left out, numbers are ids without a point, rows of one id are names of one entity."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "id": [1.0, 2.0, 2.0],
            "name": ["heart attack", "aspirin", "ASA"],
            "aliases": ["MI|myocardial infarction", None, float("nan")],
            "type": ["disease", None, "drug"],
            "popularity": [3, float("nan"), 2],
            "source": ["a", "b", None],
        }
    )

    first, second = read_entities(frame)

    assert first == Entity(
        "1", "heart attack", ("MI", "myocardial infarction"), ("disease",), extra={"source": "a"}, popularity=3.0
    )
    assert second == Entity("2", "aspirin", ("ASA",), ("drug",), extra={"source": "b"}, popularity=2.0)


def test_rows_of_a_polars_frame_are_entities() -> None:
    """Lists of polars are aliases and types."""
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"id": ["x"], "name": ["Acme"], "aliases": [["ACME", "Acme"]], "types": [["ORG"]]})

    assert read_entities(frame) == [Entity("x", "Acme", ("ACME",), ("ORG",), ("ORG",))]


@pytest.mark.parametrize(
    "entities, reason",
    [
        ([], "there is no entity"),
        (["Paris"], r"item 0: it is a str, not an Entity"),
        ("Paris", "not str"),
        (CITY, "not dict"),
        ([POST, {"name": "Paris"}], r"item 1: it has no 'id' \(or 'entity_id'\); it has 'name'"),
        ([{"id": "x", "name": " "}], "item 0: entity 'x' has an empty name"),
        ([{"id": "x", "name": "y", "aliases": 3}], "its aliases is a list"),
        ([{"id": "x", "name": "y", "popularity": "much"}], "its popularity is no number: 'much'"),
        ([{"id": "x", "name": "y", "popularity": -1}], "finite number of at least 0"),
    ],
)
def test_what_is_no_entity_is_refused_with_its_number(entities: object, reason: str) -> None:
    """Nothing is loaded or written; the message says which item is wrong and why."""
    with pytest.raises(InvalidEntityError, match=reason):
        EntityLinker.build(entities, model="nowhere")  # type: ignore[arg-type]
