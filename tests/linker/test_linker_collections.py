"""The collections of a linker: opening, several at once, calibration, and those that are incomplete."""

from __future__ import annotations

from pathlib import Path

import pytest
from linker_base import ENTITIES, fill
from tiny_models import make_pearl

from pearl_qdrant import Entity, EntityLinker
from pearl_qdrant.errors import (
    CollectionNotFoundError,
    EntityNotFoundError,
    IncompleteError,
    ModelMismatchError,
    StoreClosedError,
)
from pearl_qdrant.linking.ranking import Calibration
from pearl_qdrant.store import open_store
from pearl_qdrant.store.schema import Checkpoint, LinkCalibration


def test_an_entity_can_be_looked_up(linker: EntityLinker) -> None:
    """An id gives me all names, types and the description."""
    entity = linker.entity("nyt")

    assert entity.canonical_name == "The New York Times"
    assert set(entity.aliases) == {"NYTimes", "nytimes.com"}
    assert (entity.kb_types, entity.types) == (("ORG", "newspaper"), ("ORG",))
    assert entity.description == "A newspaper"
    with pytest.raises(EntityNotFoundError, match="No entity 'NYT' in base"):
        linker.entity("NYT")


def test_several_collections_answer_together(tmp_path: Path, model: Path) -> None:
    """I can link against two bases at once, and each candidate names its base."""
    fill(tmp_path, "news", str(model), ENTITIES[:2])
    fill(tmp_path, "medicine", str(model), [ENTITIES[4]])
    with EntityLinker.open("news", "medicine", store=str(tmp_path), threshold=0.0) as linker:
        assert linker.link("heart attack").entity_id == "mi"
        assert linker.link("NYTimes").candidates[0].kb == "news"
        assert {c.kb for c in linker.link("NYTimes", limit=10).candidates} == {"news", "medicine"}
        with pytest.raises(ValueError, match="name the collection to add to"):
            linker.add([Entity("x", "x")])
        assert linker.add([Entity("x", "aspirin")], collection="medicine") == 1
        assert linker.link("aspirin").candidates[0].kb == "medicine"


def test_the_order_of_collections_does_not_matter(
    tmp_path: Path, model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """If collections have different calibrations, the default one is used, and a warning says so."""
    for name in ("one", "two"):
        fill(tmp_path, name, str(model), [Entity(name, f"{name} street")])
    store = open_store(tmp_path)
    one = store.open("one")
    fitted = LinkCalibration(slope=2.0, nil_bias=0.0, threshold=0.1)
    one.write_manifest(one.manifest.model_copy(update={"calibration": fitted}))
    store.close()

    for order in (("one", "two"), ("two", "one")):
        with EntityLinker.open(*order, store=str(tmp_path)) as linker:
            assert linker.calibration == Calibration()
            assert linker.link("one street").kb == "one"
    assert "different calibrations" in caplog.text
    with EntityLinker.open("one", store=str(tmp_path)) as linker:
        assert linker.calibration.threshold == 0.1


def test_another_model_is_refused(tmp_path: Path, store_path: Path) -> None:
    """A model of the same width but other weights would give wrong answers without an error; it is refused. The error
    for a typo in a collection lists the existing ones.
    """
    make_pearl(tmp_path / "other", name="other", seed=7)
    with pytest.raises(ModelMismatchError, match=r"holds vectors of .*but the model in use is .*other"):
        EntityLinker.open("base", store=str(store_path), model=str(tmp_path / "other"))
    with pytest.raises(CollectionNotFoundError, match=r"'bsae' does not exist \(there are: base\)"):
        EntityLinker.open("bsae", store=str(store_path))


def test_an_open_store_serves_a_linker(tmp_path: Path, model: Path) -> None:
    """It is closed with the linker, and stays open where the linker cannot be opened."""
    fill(tmp_path, "base", str(model), ENTITIES)
    store = open_store(str(tmp_path))
    with pytest.raises(CollectionNotFoundError):
        EntityLinker.open("bsae", store=store)
    with EntityLinker.open("base", store=store) as linker:
        (collection,) = linker.collections
        assert linker.link("NYC").entity_id == "nyc"
    with pytest.raises(StoreClosedError):
        collection.get(["x"])


def left_unfinished(path: Path, **facts: object) -> None:
    """Change the manifest of the collection `base` as a load that was killed leaves it."""
    store = open_store(path)
    collection = store.open("base")
    collection.write_manifest(collection.manifest.model_copy(update={"state": "loading", **facts}))
    store.close()


@pytest.mark.parametrize(
    "facts, what",
    [
        ({"checkpoints": (Checkpoint(input="a.tsv", digest="d", entities=2),)}, "load"),
        ({"checkpoints": (Checkpoint(input="a.tsv", digest="d", entities=2),), "names": 9}, "load"),
        ({}, "load"),
        ({"names": 9, "entities": 3}, "update"),
    ],
)
def test_links_from_an_incomplete_collection_carry_a_warning(
    tmp_path: Path, model: Path, caplog: pytest.LogCaptureFixture, facts: dict[str, object], what: str
) -> None:
    """If a load or an update stopped in the middle, the log, the linker and every link say so, and what to do."""
    fill(tmp_path, "base", str(model), ENTITIES)
    left_unfinished(tmp_path, **facts)
    with EntityLinker.open("base", store=str(tmp_path), threshold=0.0) as linker:
        (warning,) = linker.warnings
        (found,) = [one.link for one in linker.annotate("NYC is big.") if one.text == "NYC"]

        assert f"'base' is incomplete, so answers may be missing or wrong: its {what} did not finish" in warning
        assert "Run the same ingest command again" in warning
        assert warning in caplog.text
        assert [link.warnings for link in linker.link_batch(["NYTimes", ""])] == [(warning,), (warning,)]
        assert found.warnings == (warning,)


def test_strict_refuses_an_incomplete_collection(tmp_path: Path, model: Path) -> None:
    """Who must not miss an entity gets an error of its own that names the collection; others are not in the way, and a
    complete one has no warnings.
    """
    for name in ("base", "other"):
        fill(tmp_path, name, str(model), ENTITIES[:1])
    with EntityLinker.open("base", "other", store=str(tmp_path), strict=True) as linker:
        assert linker.warnings == linker.link("NYTimes").warnings == ()
    left_unfinished(tmp_path)

    with pytest.raises(IncompleteError, match=r"'base' is incomplete.*Run the same ingest") as error:
        EntityLinker.open("other", "base", store=str(tmp_path), strict=True)
    assert error.value.collections == ("base",)
    EntityLinker.open("other", store=str(tmp_path), strict=True).close()
    EntityLinker.open("base", store=str(tmp_path)).close()
