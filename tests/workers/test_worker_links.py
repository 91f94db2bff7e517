"""The option `--workers` of `link` and `annotate`.
Links and annotations that worker processes make are those of one process, also where one of them is killed.
Parts of the workers: default number, packed links.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest
from cli_runner import Run
from worker_cases import CLOSE, assert_same, wait_for_end

from pearl_qdrant import Annotation, EntityLinker, settings
from pearl_qdrant.errors import LinkerClosedError, OptionError, UnknownTypeError
from pearl_qdrant.linking import workers as pool
from pearl_qdrant.linking.asking import Asking, LinkQuestion, LinkVerdict
from pearl_qdrant.linking.mention_detection.blocks import DocLike
from pearl_qdrant.settings import MAX_WORKERS_A_CORE, count_workers, usable_cores

ROWS = "id\tname\taliases\nnyc\tNew York\tNYC|Big Apple\nnyt\tThe New York Times\tNYTimes\nmi\theart attack\t\n"
LINES = "NYC\n\nheart atack\nNYTimes\nnothing of it\nBig Apple\nNew York\nNYC\nnyt\n"


@pytest.fixture
def base(run: Run, tmp_path: Path, model: Path) -> None:
    """The collection `base`."""
    (tmp_path / "base.tsv").write_text(ROWS)
    assert run("ingest", str(tmp_path / "base.tsv"), "--collection", "base", "--model", str(model)).status == 0


def without_numbers(value: Any) -> Any:
    """A JSON value with its floating-point numbers cut to what does not depend on the batch."""
    if isinstance(value, float):
        return round(value / CLOSE / 100)
    if isinstance(value, dict):
        return {key: without_numbers(one) for key, one in value.items()}
    return [without_numbers(one) for one in value] if isinstance(value, list) else value


@pytest.mark.slow
@pytest.mark.usefixtures("base")
@pytest.mark.parametrize("command", ["link", "annotate"])
def test_a_file_is_answered_the_same_by_workers(run: Run, tmp_path: Path, command: str) -> None:
    """With workers the command prints what it prints without."""
    (tmp_path / "mentions.txt").write_text(LINES)
    options = (command, "--file", str(tmp_path / "mentions.txt"), "--json", "--threshold", "0")

    alone = run(*options, "--set", "workers=1")
    found = run(*options, "--set", "workers=2")

    assert (alone.status, found.status, found.err) == (0, 0, alone.err)
    ours, theirs = ([json.loads(line) for line in out.splitlines()] for out in (found.out, alone.out))
    assert without_numbers(ours) == without_numbers(theirs)
    assert len(ours) > 3


def test_workers_are_for_many_mentions(run: Run, tmp_path: Path) -> None:
    """Workers without a file, with documents, or below 1 are a wrong use that says why."""
    (tmp_path / "documents.jsonl").write_text("")

    assert "--set workers is for --file" in run("link", "NYC", "--set", "workers=2").err
    assert "--set workers is for --file" in run("annotate", "NYC", "--set", "workers=2").err
    documents = run("link", "--file", str(tmp_path / "documents.jsonl"), "--set", "workers=2")
    assert "documents are linked one after the other" in documents.err
    assert run("link", "--file", "-", "--set", "workers=0").status == 2


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


def test_an_error_of_the_mentions_comes_after_their_links(reader: EntityLinker) -> None:
    """If a file is broken in the middle, the links of the windows before it are there."""

    def mentions() -> Iterator[str]:
        for _ in range(22):
            yield "NYC"
        raise OSError("the disk is gone")

    links = reader.link_batch(mentions(), workers=2)

    assert [next(links).entity_id for _ in range(20)] == ["nyc"] * 20
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

    assert next(numbers) == 4
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
    monkeypatch.setattr(pool, "count_workers", lambda wanted=None: wanted or 1)
    monkeypatch.setattr(reader._workers, "submit", None)
    assert len(list(reader.link_batch(MENTIONS))) == len(MENTIONS), "one core has no workers"


class _Reranker:
    """Scores nothing."""

    def score(self, mention: str, names: list[str]) -> list[float]:
        return [0.0 for _ in names]


@pytest.mark.usefixtures("two_cores")
def test_what_workers_cannot_do_is_done_here(reader: EntityLinker) -> None:
    """A linker with a reranker links alone, and says why it can have no workers."""
    with EntityLinker.open("base", store=reader._store.location, read_only=True, reranker=_Reranker()) as linker:
        assert len(list(linker.link_batch(MENTIONS))) == len(MENTIONS)
        assert linker._workers.pids() == []
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


@pytest.mark.parametrize(
    "quota, expected", [("max 100000\n", 12), ("50000 100000\n", 1), ("250000 100000", 3), ("odd", 12), (None, 12)]
)
def test_a_container_counts_its_own_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str | None, expected: int
) -> None:
    """A container that may use two of twelve cores has two workers."""
    monkeypatch.setattr(settings.os, "sched_getaffinity", lambda _: set(range(12)), raising=False)
    if quota is not None:
        (tmp_path / "cpu.max").write_text(quota)

    assert count_workers(quota=tmp_path / "cpu.max") == usable_cores(tmp_path / "cpu.max") == expected


@pytest.mark.parametrize("wanted, expected", [(7, 7), (10**9, 8)])
def test_more_than_four_workers_a_core_are_never_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: int, expected: int
) -> None:
    """Whatever is requested, two cores have eight processes at most."""
    monkeypatch.setattr(settings.os, "sched_getaffinity", lambda _: {0, 1}, raising=False)

    assert count_workers(wanted, tmp_path / "none") == expected <= 2 * MAX_WORKERS_A_CORE


TEXTS = [
    "She read the NYTimes in New York.",
    "",
    "A heart attack (HA) is no joke. After the HA he moved to the Big Apple.",
    "Nothing here",
    "The New York Post wrote of it, and nypost.com too.",
    "NYC, NYC, NYC",
    "He had myocardial infarction in New York State.",
]


@dataclass(frozen=True)
class Entity:
    """An entity of a `Doc`, which cannot be sent."""

    start_char: int
    end_char: int
    of: Any = None


class Doc:
    """As spaCy's, with entities."""

    def __init__(self, text: str, *spans: tuple[int, int]) -> None:
        self.text = text
        self.ents = [Entity(*span, of=lambda: self) for span in spans]


def assert_same_annotations(found: list[list[Annotation]], expected: list[list[Annotation]]) -> None:
    """Annotations are equal, their numbers almost."""
    ours, theirs = ([one for of_text in texts for one in of_text] for texts in (found, expected))
    assert [len(one) for one in found] == [len(one) for one in expected]
    assert [replace(one, link=its.link) for one, its in zip(ours, theirs, strict=True)] == theirs
    mentions = [its.link.mention for its in theirs]
    links = [replace(one.link, mention=mention) for one, mention in zip(ours, mentions, strict=True)]
    assert [one.link.mention for one in ours] == mentions
    assert_same(links, [its.link for its in theirs])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"types": ["ORG"], "include_nil": True},
        {"nested": True, "threshold": 0.1},
        {"document": True, "threshold": 0.0},
        {"context": "A newspaper", "on_tie": "first"},
    ],
    ids=lambda options: " ".join(options) or "default",
)
def test_workers_annotate_as_one_process(reader: EntityLinker, options: dict[str, Any]) -> None:
    """Passages have the same annotations in the same order, whatever the options; so has a `Doc`."""
    texts: list[str | DocLike] = [*TEXTS, Doc("the NYTimes and NYC", (4, 11), (16, 19)), Doc("no entity")]

    expected = list(reader.annotate_batch(texts, workers=1, **options))
    found = list(reader.annotate_batch(iter(texts), workers=2, **options))

    assert sum(map(len, expected)) > 3
    assert_same_annotations(found, expected)


def test_what_is_no_passage_is_an_error_after_the_others(reader: EntityLinker) -> None:
    """A number among the passages ends the batch; what was read before it is annotated."""
    found = reader.annotate_batch([*TEXTS[:4], 7], workers=2)  # type: ignore[list-item]

    assert len([next(found) for _ in range(4)]) == 4
    with pytest.raises(TypeError, match="not int"):
        next(found)
    with pytest.raises(TypeError, match="one string"):
        reader.annotate_batch("NYC", workers=2)
    with pytest.raises(UnknownTypeError):
        reader.annotate_batch(TEXTS, types=["nonsense"], workers=2)


def test_long_texts_go_to_workers_by_themselves(reader: EntityLinker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Much text uses all cores, a short text does not; a passage alone is annotated here."""
    sent: list[int] = []
    submit = reader._workers.submit
    monkeypatch.setattr(reader._workers, "submit", lambda number, *more: sent.append(number) or submit(number, *more))
    monkeypatch.setattr(pool, "count_workers", lambda wanted=None: wanted or 2)
    monkeypatch.setattr(pool, "START_MENTIONS", 20)
    monkeypatch.setattr(pool, "RUNNING_MENTIONS", 20)

    def texts() -> Iterator[str]:
        yield from TEXTS

    few = list(reader.annotate_batch(TEXTS[:2]))
    alone = reader.annotate(" ".join(TEXTS * 5))
    assert sent == []
    found = list(reader.annotate_batch(texts()))
    assert sent
    assert_same_annotations(found, list(reader.annotate_batch(TEXTS, workers=1)))
    assert_same_annotations(found[:2], few)
    assert len(alone) > 5


def test_workers_link_and_this_process_asks(reader: EntityLinker) -> None:
    """A function that cannot be sent to another process is a judge for several workers, too."""
    asked: list[str] = []

    def judge(questions: Sequence[LinkQuestion]) -> list[LinkVerdict]:
        asked.extend(one.mention for one in questions)
        return ["nyc" if one.mention == "post of York" else None for one in questions]

    asking = Asking(judge, between=(0.0, 1.0))
    links = list(reader.link_batch(["post of York", "NYTimes"] * 20, judge=asking, workers=2))

    assert {link.entity_id for link in links} == {"nyc", "nyt"}
    assert sorted(asked) == ["NYTimes", "post of York"]


def test_a_killed_worker_is_replaced(reader: EntityLinker) -> None:
    """If a worker is killed within a batch, another one links its mentions."""
    mentions = [f"New York {number}" for number in range(40)]
    links = reader.link_batch(mentions, workers=2)
    first = next(links)
    before = reader.worker_pids()
    os.kill(before[0], signal.SIGKILL)
    wait_for_end([before[0]])
    found = [first, *links]

    assert_same(found, reader.link_batch(mentions, workers=1))
    assert before[0] not in reader.worker_pids()
