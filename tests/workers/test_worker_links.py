"""Links that worker processes make are those of one process."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any, cast

import pytest
from worker_cases import assert_same

from pearl_qdrant import EntityLinker
from pearl_qdrant.errors import LinkerClosedError, OptionError, UnknownTypeError
from pearl_qdrant.linking.workers import pool


class Loud(str):
    """Text of another class."""

    __slots__ = ()


MENTIONS: list[Any] = [
    "New York",
    "NYTimes",
    "nytimes",
    "heart atack",
    "New York Tmies",
    "big apple",
    "\U0001f984",
    "nothing like it",
    "",
    "  NYC  ",
    None,
    7,
    [],
    "\ud800",
    Loud("NYC"),
    "x" * 10_001,
    "nyt",
    "NYC",
    "NYC",
    "CafÃ© de New York",
    "NYC",
]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"types": ["ORG"]},
        {"types": ["city"], "type_mode": "soft", "limit": 2},
        {"type_mode": "off", "threshold": 0.9, "limit": 30},
        {"on_tie": "null"},
        {"on_tie": "first", "threshold": 1.0},
        {"context": "A newspaper of New York."},
    ],
    ids=lambda options: " ".join(options) or "default",
)
def test_workers_make_the_links_of_one_process(reader: EntityLinker, options: dict[str, Any]) -> None:
    """Mentions of all kinds have the same links in the same order, whatever the options."""
    expected = list(reader.link_batch(MENTIONS, workers=1, **options))

    assert_same(reader.link_batch(iter(MENTIONS), workers=2, **options), expected)


def test_equal_mentions_share_nothing(reader: EntityLinker) -> None:
    """Who changes the features of a link changes no other link."""
    first, second = reader.link_batch(["NYC", "NYC"], workers=2)
    cast("dict[str, float]", first.candidates[0].features)["dense"] = 9.0

    assert first.entity_id == second.entity_id == "nyc"
    assert second.candidates[0].features["dense"] != 9.0


def test_nothing_gives_nothing(reader: EntityLinker) -> None:
    """An empty batch has no links."""
    assert list(reader.link_batch([], workers=2)) == []


def test_an_error_of_the_mentions_comes_after_their_links(reader: EntityLinker) -> None:
    """If a file is broken in the middle, the links of the windows before it are there."""

    def mentions() -> Iterator[str]:
        for _ in range(20):
            yield "NYC"
        raise OSError("the disk is gone")

    links = reader.link_batch(mentions(), workers=2)

    assert [next(links).entity_id for _ in range(16)] == ["nyc"] * 16
    with pytest.raises(OSError, match="the disk is gone"):
        next(links)


def test_an_endless_source_is_not_read_far_ahead(reader: EntityLinker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a few windows are read before the first link is taken."""
    monkeypatch.setattr(pool, "SLOW_SOURCE_S", 1e9)
    numbers = count()
    links = reader.link_batch((f"mention {number}" for number in numbers), workers=2)

    assert next(links).mention == "mention 0"
    assert next(numbers) <= 8 * (pool.AHEAD + 1)
    links.close()
    assert next(reader.link_batch(["NYC"], workers=2)).entity_id == "nyc", "the workers go on with the next batch"


def test_a_slow_source_does_not_hold_links_back(reader: EntityLinker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where mentions come slowly, what is there is linked before more is read."""
    monkeypatch.setattr(pool, "SLOW_SOURCE_S", -1.0)
    numbers = count()
    links = reader.link_batch((f"mention {number}" for number in numbers), workers=2)

    next(links)

    assert next(numbers) == 8
    links.close()


def test_wrong_arguments_are_refused_at_once(reader: EntityLinker) -> None:
    """Unknown types, a single string and a number of workers that makes no sense are errors of the call."""
    with pytest.raises(UnknownTypeError):
        reader.link_batch(MENTIONS, types=["citty"], workers=2)
    with pytest.raises(TypeError, match="one string"):
        reader.link_batch("NYC", workers=2)
    with pytest.raises(ValueError, match="at least 1, not 0"):
        reader.link_batch(["NYC"], workers=0)
    with pytest.raises(ValueError, match="not True"):
        reader.annotate_batch(["NYC"], workers=True)
    with pytest.raises(TypeError):
        reader.link_batch(["NYC"], workers=cast("int", 1.5))


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with two cores, where 12 mentions are many."""
    monkeypatch.setattr(pool, "count_workers", lambda wanted=None: wanted or 2)
    monkeypatch.setattr(pool, "START_MENTIONS", 12)
    monkeypatch.setattr(pool, "RUNNING_MENTIONS", 12)


@pytest.mark.usefixtures("two_cores")
def test_many_mentions_go_to_workers_by_themselves(reader: EntityLinker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of many mentions, or a generator that turns out to have many, uses all cores; a few mentions do not."""
    sent: list[int] = []
    submit = reader._workers.submit
    monkeypatch.setattr(reader._workers, "submit", lambda number, *more: sent.append(number) or submit(number, *more))

    few = list(reader.link_batch(MENTIONS[:11]))
    list(reader.link_batch(iter(MENTIONS[:11])))
    assert sent == []
    assert_same(reader.link_batch(MENTIONS), reader.link_batch(MENTIONS, workers=1))
    assert set(sent) == {2}
    n_of_list = len(sent)
    assert_same(reader.link_batch(iter(MENTIONS)), reader.link_batch(MENTIONS, workers=1))
    assert n_of_list < len(sent) < 2 * n_of_list, "the first of a generator are linked here"
    assert_same(few, reader.link_batch(MENTIONS[:11], workers=1))


@pytest.mark.usefixtures("two_cores")
def test_one_core_has_no_workers(reader: EntityLinker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is one core, this process links alone."""
    monkeypatch.setattr(pool, "count_workers", lambda wanted=None: wanted or 1)
    monkeypatch.setattr(reader._workers, "submit", None)

    assert len(list(reader.link_batch(MENTIONS))) == len(MENTIONS)


class _Reranker:
    """Scores nothing."""

    def score(self, mention: str, names: list[str]) -> list[float]:
        return [0.0 for _ in names]


@pytest.mark.usefixtures("two_cores")
def test_what_workers_cannot_do_is_done_here(reader: EntityLinker) -> None:
    """A linker with a reranker links alone, and says why it can have no workers."""
    with EntityLinker.open("base", store=reader._store.location, read_only=True, reranker=_Reranker()) as linker:
        assert len(list(linker.link_batch(MENTIONS))) == len(MENTIONS)
        assert linker._workers.n_running == 0
        with pytest.raises(OptionError, match="Several workers are not possible here: the linker has a reranker"):
            linker.link_batch(MENTIONS, workers=2)


def test_a_closed_linker_has_no_workers(reader: EntityLinker) -> None:
    """After close, workers are gone, and a batch says that the linker is closed."""
    with EntityLinker.open("base", store=reader._store.location, read_only=True) as linker:
        links = linker.link_batch(MENTIONS, workers=2)
        next(links)
    assert linker._workers.pids() == []
    with pytest.raises(LinkerClosedError):
        next(links)
    with pytest.raises(LinkerClosedError):
        next(linker.link_batch(MENTIONS, workers=2))
