"""The collections of a linker: opening, several at once, calibration, and those that are incomplete. Entities added to
and deleted from an open linker. A closed linker: one clear error from every method, and from streams.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import cast

import pytest
from linker_base import ENTITIES, fill, linker_over
from tiny_models import make_pearl

from pearl_qdrant import Entity, EntityLinker, Link
from pearl_qdrant.encoder.protocol import Encoded, Encoder, ModelInfo
from pearl_qdrant.errors import (
    CollectionNotFoundError,
    EntityNotFoundError,
    IncompleteError,
    InvalidEntityError,
    LinkerClosedError,
    ModelMismatchError,
    PearlQdrantError,
    StoreClosedError,
    UnknownTypeError,
)
from pearl_qdrant.linking import editing
from pearl_qdrant.linking.mention_detection.annotate import PASSAGES_AT_ONCE
from pearl_qdrant.linking.mention_stream import BATCH
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


@pytest.fixture
def to_close(store_path: Path) -> Iterator[EntityLinker]:
    """A linker over the collection `base`, for each test its own."""
    with EntityLinker.open("base", store=str(store_path), threshold=0.0) as opened:
        yield opened


async def collect(links: AsyncIterator[object]) -> list[object]:
    """The items of an asynchronous iterator."""
    return [link async for link in links]


def enter(to_close: EntityLinker) -> None:
    """Use it as a context manager."""
    with to_close:
        raise AssertionError("a closed linker was entered")


USES: list[Callable[[EntityLinker], object]] = [
    lambda to_close: to_close.link("NYC"),
    lambda to_close: to_close.link_batch(["NYC"]),
    lambda to_close: to_close.link_batch([]),
    lambda to_close: to_close.score_batch(["NYC"]),
    lambda to_close: asyncio.run(to_close.alink("NYC")),
    lambda to_close: asyncio.run(collect(to_close.alink_batch(["NYC"]))),
    lambda to_close: to_close.annotate("We saw NYC."),
    lambda to_close: to_close.annotate_batch(["We saw NYC."]),
    lambda to_close: to_close.entity("nyc"),
    lambda to_close: to_close.add([Entity("x", "y")]),
    lambda to_close: to_close.delete(["nyc"]),
    enter,
]


def test_a_closed_linker_raises_one_clear_error(to_close: EntityLinker) -> None:
    """Every use raises at the call, and not somewhere in the store; closing again is allowed."""
    to_close.close()
    to_close.close()

    for use in USES:
        with pytest.raises(LinkerClosedError, match="The linker to base is closed") as caught:
            use(to_close)
        assert caught.value.collections == ("base",)
    assert to_close.calibration.threshold == 0.0, "what needs no store goes on"


@pytest.mark.parametrize(
    "stream",
    [
        lambda to_close: to_close.link_batch(["NYC"] * (BATCH + 1)),
        lambda to_close: to_close.score_batch(["NYC"] * 3),
        lambda to_close: to_close.annotate_batch(["We saw NYC."] * (PASSAGES_AT_ONCE + 1)),
    ],
    ids=["link_batch", "score_batch", "annotate_batch"],
)
def test_a_stream_ends_with_the_linker(
    to_close: EntityLinker, stream: Callable[[EntityLinker], Iterator[object]]
) -> None:
    """A stream of links raises once the linker is closed, also if the next links are already computed."""
    answers = stream(to_close)
    next(answers)
    to_close.close()

    with pytest.raises(LinkerClosedError):
        next(answers)
    assert list(answers) == []


class Interrupted:
    """An encoder that runs a function while it encodes."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self.meanwhile: Callable[[], None] = lambda: None
        self.info: ModelInfo = encoder.info

    def encode(self, names: Sequence[str]) -> Encoded:
        encoded = self._encoder.encode(names)
        self.meanwhile()
        return encoded


@pytest.mark.parametrize(
    "ask",
    [
        lambda to_close: to_close.link("NYC paper"),
        lambda to_close: to_close.annotate("We saw NYC."),
        lambda to_close: to_close.add([Entity("x", "Xanadu")]),
    ],
    ids=["link", "annotate", "add"],
)
def test_closing_during_a_call_raises_the_same_error(
    to_close: EntityLinker, ask: Callable[[EntityLinker], object]
) -> None:
    """If another thread closes the linker during a call, the error is not one of the store."""
    encoder = Interrupted(to_close.encoder)
    other = EntityLinker(to_close._store, to_close.collections, encoder)
    encoder.meanwhile = other.close

    with pytest.raises(LinkerClosedError):
        ask(other)


def test_an_error_of_the_callers_iterator_is_not_changed(to_close: EntityLinker) -> None:
    """An error of the caller's mentions is passed on while the linker is open."""

    def mentions() -> Iterator[str]:
        yield "NYC"
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        list(to_close.link_batch(mentions()))


def test_an_abandoned_stream_leaves_the_linker_usable(to_close: EntityLinker) -> None:
    """A generator, plain or asynchronous, may be closed early, and a task cancelled."""
    links = to_close.link_batch(["NYC"] * 10)
    next(links)
    links.close()  # type: ignore[attr-defined]

    async def first() -> str | None:
        async for link in to_close.alink_batch(["NYC"] * 1000):
            return link.entity_id
        return None

    async def cancelled() -> str | None:
        task = asyncio.create_task(collect(to_close.alink_batch(["NYC"] * 2000)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return (await to_close.alink("NYC")).entity_id

    assert asyncio.run(first()) == asyncio.run(cancelled()) == to_close.link("NYC").entity_id == "nyc"


@pytest.mark.parametrize("one", ["heart attack", b"heart attack"])
def test_one_string_is_not_the_list_of_its_letters(to_close: EntityLinker, one: str | bytes) -> None:
    """A single string in place of many mentions or passages is refused, also by `alink_batch`; so is no collection."""
    mentions = cast("list[str]", one)

    with pytest.raises(TypeError, match="letters would be linked one by one"):
        to_close.link_batch(mentions)
    with pytest.raises(TypeError, match="letters would be linked one by one"):
        asyncio.run(collect(to_close.alink_batch(mentions)))
    with pytest.raises(TypeError, match="letters would be annotated one by one"):
        to_close.annotate_batch(mentions)
    with pytest.raises(ValueError, match="at least one"):
        EntityLinker.open()


def test_a_text_without_mentions_is_checked_too(to_close: EntityLinker) -> None:
    """A typo in a type is reported for every text. Bytes from a shell that are not UTF-8 cause no error."""
    for text in ("", "We saw New York."):
        with pytest.raises(UnknownTypeError, match="Similar: newspaper"):
            to_close.annotate(text, types=["newspapr"])
        with pytest.raises(UnknownTypeError, match="Similar: newspaper"):
            to_close.annotate_batch([text], types=["newspapr"])
    found = to_close.annotate("We saw New York.", context="planets \udcff", include_nil=True)

    assert [annotation.text for annotation in found] == ["New York"]
