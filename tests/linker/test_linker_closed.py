"""A closed linker: one clear error from every method, also from streams. And arguments that are refused at the call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import cast

import pytest

from pearl_qdrant import Entity, EntityLinker
from pearl_qdrant.encoder.protocol import Encoded, Encoder, ModelInfo
from pearl_qdrant.errors import LinkerClosedError, UnknownTypeError
from pearl_qdrant.linking.mention_detection.annotate import PASSAGES_AT_ONCE
from pearl_qdrant.linking.mention_stream import BATCH


@pytest.fixture
def linker(store_path: Path) -> Iterator[EntityLinker]:
    """A linker over the collection `base`, for each test its own."""
    with EntityLinker.open("base", store=str(store_path), threshold=0.0) as opened:
        yield opened


async def collect(links: AsyncIterator[object]) -> list[object]:
    """The items of an asynchronous iterator."""
    return [link async for link in links]


def enter(linker: EntityLinker) -> None:
    """Use it as a context manager."""
    with linker:
        raise AssertionError("a closed linker was entered")


USES: list[Callable[[EntityLinker], object]] = [
    lambda linker: linker.link("NYC"),
    lambda linker: linker.link_batch(["NYC"]),
    lambda linker: linker.link_batch([]),
    lambda linker: linker.score_batch(["NYC"]),
    lambda linker: asyncio.run(linker.alink("NYC")),
    lambda linker: asyncio.run(collect(linker.alink_batch(["NYC"]))),
    lambda linker: linker.annotate("We saw NYC."),
    lambda linker: linker.annotate_batch(["We saw NYC."]),
    lambda linker: linker.entity("nyc"),
    lambda linker: linker.add([Entity("x", "y")]),
    lambda linker: linker.delete(["nyc"]),
    enter,
]


def test_a_closed_linker_raises_one_clear_error(linker: EntityLinker) -> None:
    """Every use raises at the call, and not somewhere in the store; closing again is allowed."""
    linker.close()
    linker.close()

    for use in USES:
        with pytest.raises(LinkerClosedError, match="The linker to base is closed") as caught:
            use(linker)
        assert caught.value.collections == ("base",)
    assert linker.calibration.threshold == 0.0, "what needs no store goes on"


@pytest.mark.parametrize(
    "stream",
    [
        lambda linker: linker.link_batch(["NYC"] * (BATCH + 1)),
        lambda linker: linker.score_batch(["NYC"] * 3),
        lambda linker: linker.annotate_batch(["We saw NYC."] * (PASSAGES_AT_ONCE + 1)),
    ],
    ids=["link_batch", "score_batch", "annotate_batch"],
)
def test_a_stream_ends_with_the_linker(
    linker: EntityLinker, stream: Callable[[EntityLinker], Iterator[object]]
) -> None:
    """A stream of links raises once the linker is closed, also if the next links are already computed."""
    answers = stream(linker)
    next(answers)
    linker.close()

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
        lambda linker: linker.link("NYC paper"),
        lambda linker: linker.annotate("We saw NYC."),
        lambda linker: linker.add([Entity("x", "Xanadu")]),
    ],
    ids=["link", "annotate", "add"],
)
def test_closing_during_a_call_raises_the_same_error(
    linker: EntityLinker, ask: Callable[[EntityLinker], object]
) -> None:
    """If another thread closes the linker during a call, the error is not one of the store."""
    encoder = Interrupted(linker.encoder)
    other = EntityLinker(linker._store, linker.collections, encoder)
    encoder.meanwhile = other.close

    with pytest.raises(LinkerClosedError):
        ask(other)


def test_an_error_of_the_callers_iterator_is_not_changed(linker: EntityLinker) -> None:
    """An error of the caller's mentions is passed on while the linker is open."""

    def mentions() -> Iterator[str]:
        yield "NYC"
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        list(linker.link_batch(mentions()))


def test_an_abandoned_stream_leaves_the_linker_usable(linker: EntityLinker) -> None:
    """A generator, plain or asynchronous, may be closed early, and a task cancelled."""
    links = linker.link_batch(["NYC"] * 10)
    next(links)
    links.close()  # type: ignore[attr-defined]

    async def first() -> str | None:
        async for link in linker.alink_batch(["NYC"] * 1000):
            return link.entity_id
        return None

    async def cancelled() -> str | None:
        task = asyncio.create_task(collect(linker.alink_batch(["NYC"] * 2000)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return (await linker.alink("NYC")).entity_id

    assert asyncio.run(first()) == asyncio.run(cancelled()) == linker.link("NYC").entity_id == "nyc"


@pytest.mark.parametrize("one", ["heart attack", b"heart attack"])
def test_one_string_is_not_the_list_of_its_letters(linker: EntityLinker, one: str | bytes) -> None:
    """A single string in place of many mentions or passages is refused, also by `alink_batch`; so is no collection."""
    mentions = cast("list[str]", one)

    with pytest.raises(TypeError, match="letters would be linked one by one"):
        linker.link_batch(mentions)
    with pytest.raises(TypeError, match="letters would be linked one by one"):
        asyncio.run(collect(linker.alink_batch(mentions)))
    with pytest.raises(TypeError, match="letters would be annotated one by one"):
        linker.annotate_batch(mentions)
    with pytest.raises(ValueError, match="at least one"):
        EntityLinker.open()


def test_a_text_without_mentions_is_checked_too(linker: EntityLinker) -> None:
    """A typo in a type is reported for every text. Bytes from a shell that are not UTF-8 cause no error."""
    for text in ("", "We saw New York."):
        with pytest.raises(UnknownTypeError, match="Similar: newspaper"):
            linker.annotate(text, types=["newspapr"])
        with pytest.raises(UnknownTypeError, match="Similar: newspaper"):
            linker.annotate_batch([text], types=["newspapr"])
    found = linker.annotate("We saw New York.", context="planets \udcff", include_nil=True)

    assert [annotation.text for annotation in found] == ["New York"]
