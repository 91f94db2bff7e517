"""Adding and deleting entities of an open linker: it then behaves as one that is opened again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from linker_base import ENTITIES, fill, linker_over

from pearl_qdrant import Entity, EntityLinker, Link
from pearl_qdrant.errors import EntityNotFoundError, InvalidEntityError, PearlQdrantError, UnknownTypeError
from pearl_qdrant.linking import editing

MENTIONS = ["New York", "NYTimes", "heart attack", "new york times magazine", "Company 7", "\U0001f984", "zzz"]
MORE = [Entity(f"c{i}", f"Company {i}", (f"New York Company {i}",), ("firm",), ("ORG",)) for i in range(40)]


def answers(linker: EntityLinker) -> list[Link]:
    """What a linker says of some mentions, with every score."""
    return list(linker.link_batch(MENTIONS, threshold=0.3))


def reopened(path: Path) -> list[Link]:
    """The links of a linker that is opened now."""
    with EntityLinker.open("base", store=str(path)) as linker:
        return answers(linker)


@pytest.mark.parametrize("is_loaded", [True, False], ids=["loaded", "filled by add"])
def test_after_edits_a_linker_answers_as_a_reopened_one(tmp_path: Path, model: Path, is_loaded: bool) -> None:
    """A probability is the same whether I opened the base before or after the edits."""
    fill(tmp_path, "base", str(model), ENTITIES, is_loaded=is_loaded)
    with EntityLinker.open("base", store=str(tmp_path)) as linker:
        before = answers(linker)
        linker.add(MORE)
        added = answers(linker)
        linker.delete([entity.entity_id for entity in MORE[5:]])
        deleted = answers(linker)
        linker.add(MORE[5:])  # encoded with other names than before, which may change a last bit
        again = answers(linker)

    assert again == reopened(tmp_path)
    assert added != before, "the size of a base counts"
    assert deleted != added
    with EntityLinker.open("base", store=str(tmp_path)) as linker:
        linker.delete([entity.entity_id for entity in MORE])
        assert answers(linker) == before


def test_a_type_comes_and_goes_with_its_entities(own: EntityLinker) -> None:
    """An entity and its type are gone as soon as it is deleted, and another one with the type is found at once."""
    assert own.link("heart attack", types=["disease"]).entity_id == "mi"
    assert own.delete(["mi", "never there"]) == 2
    with pytest.raises(EntityNotFoundError):
        own.entity("mi")
    with pytest.raises(UnknownTypeError, match="No entity of type 'disease' in base"):
        own.link("heart attack", types=["disease"])
    assert own.add([Entity("flu", "influenza", (), ("disease",))]) == 1
    assert own.link("influenza", types=["disease"]).entity_id == "flu"


def test_counts_are_right_after_an_edit_that_stopped_half_way(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entities before an invalid one are written and counted; the same holds for an error of the caller's iterator."""
    monkeypatch.setattr(editing, "_BATCH", 2)
    fill(tmp_path, "base", str(model), ENTITIES, is_loaded=True)

    def broken() -> Iterator[Entity]:
        yield from MORE[:4]
        raise KeyError("the caller's")

    with EntityLinker.open("base", store=str(tmp_path)) as linker:
        (collection,) = linker.collections
        with pytest.raises(InvalidEntityError, match="empty id"):
            linker.add([*MORE[:2], Entity("", "Ghost")])
        assert collection.manifest.names == collection.count() == 16 + 4
        with pytest.raises(KeyError):
            linker.add(broken())
        assert collection.manifest.names == collection.count() == 16 + 8
        assert answers(linker) == answers(EntityLinker(linker._store, [collection], linker.encoder))


def test_an_entity_loses_old_names_however_many_are_replaced_at_once(
    own: EntityLinker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of a thousand replaced entities keeps a name that it no longer has."""
    monkeypatch.setattr(editing, "MAX_NAMES", 3)
    own.add([Entity(entity.entity_id, entity.canonical_name) for entity in ENTITIES])

    assert own.collections[0].count() == len(ENTITIES)
    own.add([Entity("many", "Many", tuple(f"name {i}" for i in range(20)))])
    assert len(own.entity("many").aliases) == 20


def test_of_several_entities_with_one_id_the_last_one_counts(tmp_path: Path, model: Path) -> None:
    """In one call and in several calls, the entity of an id is replaced with all its names. A base that is named twice
    is opened once.
    """
    fill(tmp_path, "base", str(model), ENTITIES)
    once = reopened(tmp_path)
    with EntityLinker.open("base", "base", store=str(tmp_path)) as linker:
        assert answers(linker) == once
        assert linker.add([Entity("x", "First", ("Premier",)), Entity("y", "Why"), Entity("x", "Second")]) == 2

        assert list(linker.entity("x").names()) == ["Second"]


NO_ENTITIES: list[object] = [
    ("x", "y"),
    {"entity_id": "x", "canonical_name": "y"},
    Entity(cast("str", 5), "five"),
    Entity("x", cast("str", b"y")),
    Entity("x", "y", (cast("str", 7),)),
    Entity("x", "y", cast("tuple[str]", "abc")),
    Entity("x", "y", (), (cast("str", 3),)),
    Entity("x", "y", (), (), cast("tuple[str]", "ORG")),
    Entity("x", "y", description=cast("str", 4)),
    Entity("x", "y", extra=cast("dict[str, str]", ["a"])),
    Entity("x\ud800", "y"),
    Entity("x", "\udcff"),
    Entity("", "y"),
    Entity("x", " "),
]


small = linker_over(ENTITIES[:1], model="model")


@pytest.mark.parametrize("bad", NO_ENTITIES, ids=range(len(NO_ENTITIES)))
def test_an_invalid_entity_is_refused(small: EntityLinker, bad: object) -> None:
    """A pair, a dictionary or a numeric id gives an error that shows it, and nothing is written."""
    with pytest.raises(PearlQdrantError) as caught:
        small.add([Entity("good", "Good"), cast("Entity", bad)])

    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, ValueError)
    assert len(str(caught.value)) < 300
    assert small.collections[0].count() == 3


def test_an_invalid_list_of_entities_is_refused(small: EntityLinker) -> None:
    """A single entity without a list is refused, too. Deleting "nyt" does not delete n, y and t."""
    for bad in ("nyt", Entity("x", "y"), 5, None):
        with pytest.raises(InvalidEntityError, match="add takes a list of entities, not"):
            small.add(cast("list[Entity]", bad))
    with pytest.raises(TypeError, match=r"entity_ids is a list of ids, not one: write \['nyt'\]"):
        small.delete("nyt")
