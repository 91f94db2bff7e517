"""Clients take turns: long calls go on in pieces, short ones pass, and mentions of many requests are joined into
batches.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from service_client import handle_of, serving

from pearl_qdrant.linking.options import LinkOptions
from pearl_qdrant.pieces import pause
from pearl_qdrant.records import Link
from pearl_qdrant.service import ServiceSettings, lanes, queues
from pearl_qdrant.service.lanes import SHORT_TEXT, Lane, asking
from pearl_qdrant.service.queues import Joiner, KeepAll
from pearl_qdrant.service.settings import ClientGoneError, ServiceError, TimedOutError

WAIT_S = 60
"""Bounds a hang."""


@pytest.fixture(autouse=True)
def _each_pause_is_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "_PIECE_S", 0.0)


def lane(**given: Any) -> Lane:
    """A lane with one thread."""
    return Lane("calls", **{"threads": 1, "timeout_s": WAIT_S, **given})


async def call(of: Lane, client: str, function: Callable[[], Any], *, size: int = 0) -> Any:
    """A call of a client."""
    asking.set((client, b""))
    return await of.run(function, size=size)


def until(happened: threading.Event, begun: threading.Event | None = None) -> None:
    """Work that goes on in pieces until something happens."""
    if begun is not None:
        begun.set()
    while not happened.is_set():
        pause()


@pytest.mark.anyio
@pytest.mark.parametrize("other, size", [("b", 100), ("a", 1)], ids=["of another client", "of the same client"])
async def test_a_short_call_passes_a_long_one(other: str, size: int) -> None:
    """While a long call of a client runs, a call of another client, and a shorter one of its own, are answered."""
    done = threading.Event()
    one = lane()
    long = asyncio.create_task(call(one, "a", lambda: until(done), size=100))
    await asyncio.sleep(0)
    await asyncio.create_task(call(one, other, done.set, size=size))
    await long
    one.close()


@pytest.mark.anyio
async def test_a_long_call_stands_still_while_short_ones_are_answered() -> None:
    """Each step of a short call would wait for the interpreter beside a long one, which has a lane of its own."""
    short = lane()
    long, done, steps = lane(before=(short,)), threading.Event(), [0]

    def work() -> None:
        while not done.is_set():
            steps[0] += 1
            pause()

    def look() -> None:
        before = -1
        while before != steps[0]:  # without the turn it would never stand still
            before = steps[0]
            done.wait(0.05)

    task = asyncio.create_task(call(long, "a", work, size=100))
    await asyncio.sleep(0)
    await asyncio.wait_for(call(short, "a", look), WAIT_S)
    done.set()
    await task
    short.close()
    long.close()


@pytest.mark.anyio
async def test_clients_take_turns() -> None:
    """A client with one call does not wait for all calls of a client that came before."""
    one, ended, may_go = lane(), [], threading.Event()

    def work(name: str) -> None:
        while not may_go.is_set():
            pause()
        ended.append(name)

    tasks = [asyncio.create_task(call(one, "a", lambda name=f"a{i}": work(name))) for i in range(4)]
    await asyncio.sleep(0)
    tasks.append(asyncio.create_task(call(one, "b", lambda: (may_go.set(), work("b")))))
    await asyncio.gather(*tasks)

    assert ended.index("b") <= 1
    one.close()


@pytest.mark.anyio
async def test_a_call_ends_with_its_time() -> None:
    """A call that takes too long is answered in time, ends at its next pause, and leaves its thread to others."""
    one, never = lane(timeout_s=0.05), threading.Event()

    with pytest.raises(TimedOutError, match="timeout_s"):
        await call(one, "a", lambda: until(never))
    while one.queued:
        await asyncio.sleep(0.001)

    assert await call(one, "a", lambda: 7) == 7
    one.close()


@pytest.mark.anyio
async def test_who_no_longer_waits_ends_its_call() -> None:
    """A call ends at its next pause when its client is gone, or the lane is closed."""
    one, never, begun = lane(), threading.Event(), threading.Event()
    tasks = [asyncio.create_task(call(one, "a", lambda: until(never, begun))) for _ in range(2)]
    await asyncio.to_thread(begun.wait, WAIT_S)

    tasks[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks[0]
    one.close()
    with pytest.raises((TimedOutError, asyncio.CancelledError)):
        await tasks[1]
    while one.queued:
        await asyncio.sleep(0.001)


@pytest.mark.anyio
async def test_one_client_does_not_fill_the_queue() -> None:
    """A client with as many calls as may wait is refused; another is not."""
    one, done = lane(max_queued=2), threading.Event()
    tasks = [asyncio.create_task(call(one, "a", lambda: until(done))) for _ in range(2)]
    await asyncio.sleep(0)

    with pytest.raises(ServiceError, match="Too much is waiting"):
        await call(one, "a", lambda: 1)
    assert await asyncio.create_task(call(one, "b", lambda: 2)) == 2
    done.set()
    await asyncio.gather(*tasks)
    one.close()


def test_long_texts_keep_no_short_one_waiting(
    service_settings: ServiceSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a client's long texts are annotated, short texts and mentions are answered, of the same client, too."""
    settings = service_settings.model_copy(update={"max_text_characters": 20_000, "max_body_bytes": 1 << 20})
    with serving(settings) as client, ThreadPoolExecutor(4) as clients:
        plain, begun, may_go = handle_of(client).linker.annotate, threading.Event(), threading.Event()

        def annotate(text: str, *given: Any, **named: Any) -> Any:
            if len(text) > SHORT_TEXT:
                until(may_go, begun)
            return plain(text[:100], *given, **named)

        monkeypatch.setattr(handle_of(client).linker, "annotate", annotate)
        long = {"text": "New York Times (NYT) " * 900, "document": True}
        running = [clients.submit(client.post, "/v1/annotate", json=long) for _ in range(4)]
        assert begun.wait(WAIT_S)

        short = client.post("/v1/annotate", json={"text": "She read the NYTimes.", "threshold": 0})
        link = client.post("/v1/link", json={"mentions": ["NYTimes"], "threshold": 0})

        assert (short.status_code, link.status_code) == (200, 200)
        assert not any(one.done() for one in running)
        may_go.set()
        assert [one.result().status_code for one in running] == [200] * 4


pytestmark = pytest.mark.anyio

PLAIN = LinkOptions()


class Linker:
    """Links when it is told to, and keeps what it was given."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.options: list[LinkOptions] = []
        self.may_answer = asyncio.Event()
        self.error: Exception | None = None

    async def link(
        self, mentions: Sequence[str], options: LinkOptions, n_requests: int, keep: KeepAll
    ) -> list[list[Any]]:
        self.batches.append(list(mentions))
        self.options.append(options)
        await self.may_answer.wait()
        if self.error is not None:
            raise self.error
        return keep([Link(mention, mention.upper(), None, None, None) for mention in mentions])


def joiner(linker: Linker, **given: Any) -> Joiner:
    """A joiner of small batches."""
    chosen = {"batch_mentions": 8, "join_s": 0.0, "max_queued": 100, "timeout_s": 60.0, **given}
    return Joiner(linker.link, **chosen)


async def settled() -> None:
    """Let all tasks run until they wait."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
def linker() -> Linker:
    """A linker that has not answered yet."""
    return Linker()


async def test_requests_of_other_options_are_not_joined(linker: Linker) -> None:
    """A batch has one set of options; the oldest request is in the next batch."""
    joined = joiner(linker)
    strict = LinkOptions(threshold=0.9)
    tasks = [
        asyncio.create_task(joined.link([name], options, keep=list))
        for name, options in (("a", strict), ("b", PLAIN), ("c", LinkOptions(threshold=0.9)))
    ]
    linker.may_answer.set()
    await asyncio.gather(*tasks)
    assert linker.batches == [["a", "c"], ["b"]]
    assert linker.options == [strict, PLAIN]


async def test_a_long_request_does_not_keep_short_ones_waiting(linker: Linker) -> None:
    """A request with more mentions than a batch is linked in parts, beside others."""
    joined = joiner(linker)
    long = asyncio.create_task(joined.link([f"m{i}" for i in range(20)], PLAIN, keep=list))
    short = asyncio.create_task(joined.link(["s"], PLAIN, keep=list))
    linker.may_answer.set()
    assert [link.mention for link in await short] == ["s"]
    assert [link.mention for link in await long] == [f"m{i}" for i in range(20)]
    assert linker.batches[0] == [*(f"m{i}" for i in range(7)), "s"]


async def test_a_large_request_passes_an_empty_queue(linker: Linker) -> None:
    """A request that is larger than the queue is answered if nothing waits."""
    linker.may_answer.set()
    assert len(await joiner(linker, max_queued=4).link(list("abcdef"), PLAIN, keep=list)) == 6


async def test_a_request_without_an_answer_in_time_ends(linker: Linker) -> None:
    """A request that took too long raises, and what it has in the queue is not linked later."""
    joined = joiner(linker, timeout_s=0.01)
    running = asyncio.create_task(joined.link(["a"], PLAIN, keep=list))
    await settled()
    with pytest.raises(TimedOutError, match="timeout_s"):
        await joined.link(["b"], PLAIN, keep=list)
    with pytest.raises(TimedOutError):
        await running
    linker.may_answer.set()
    await settled()
    assert linker.batches == [["a"]]
    assert joined.queued == 0


async def test_an_error_reaches_every_request_of_its_batch_alone(linker: Linker) -> None:
    """A batch that fails raises in its requests; the next one is linked."""
    joined = joiner(linker)
    linker.error = ValueError("broken")
    linker.may_answer.set()
    failed = await asyncio.gather(*(joined.link([name], PLAIN, keep=list) for name in "ab"), return_exceptions=True)
    assert [str(error) for error in failed] == ["broken", "broken"]
    linker.error = None
    assert len(await joined.link(["c"], PLAIN, keep=list)) == 1


async def test_a_client_that_hung_up_is_dropped(linker: Linker) -> None:
    """A request whose client is gone when the next batch starts is not linked."""
    joined = joiner(linker, batch_mentions=1)

    async def is_gone() -> bool:
        return True

    first = asyncio.create_task(joined.link(["a"], PLAIN, keep=list))
    second = asyncio.create_task(joined.link(["b"], PLAIN, keep=list))
    gone = asyncio.create_task(joined.link(["c"], PLAIN, keep=list, is_gone=is_gone))
    await settled()
    linker.may_answer.set()
    await asyncio.gather(first, second)
    with pytest.raises(ClientGoneError):
        await gone
    assert linker.batches == [["a"], ["b"]]


async def of_client(joined: Joiner, client: str, mentions: Sequence[str], options: LinkOptions = PLAIN) -> list[Link]:
    """The links that a client asks for."""
    asking.set((client, b""))
    return await joined.link(mentions, options, keep=list)


async def test_a_full_queue_refuses_its_own_client_alone(linker: Linker) -> None:
    """A client whose large requests fill the queue is refused; its small ones and those of others are not."""
    joined = joiner(linker, max_queued=50)
    large = [asyncio.create_task(of_client(joined, "a", [f"m{i}"] * 40)) for i in range(2)]
    await settled()
    small = [asyncio.create_task(of_client(joined, client, ["s"])) for client in "ab"]
    others = asyncio.create_task(of_client(joined, "b", ["o"] * 40))
    await settled()
    linker.may_answer.set()

    found = await asyncio.gather(*large, *small, others, return_exceptions=True)

    assert [type(one) for one in found] == [list, ServiceError, list, list, list]


async def test_requests_of_other_options_take_turns(linker: Linker) -> None:
    """A long request with other options does not keep a short one waiting until it is linked."""
    joined = joiner(linker)
    long = asyncio.create_task(joined.link([f"m{i}" for i in range(40)], PLAIN, keep=list))
    await settled()
    short = asyncio.create_task(joined.link(["s"], LinkOptions(threshold=0.9), keep=list))
    linker.may_answer.set()
    await asyncio.gather(long, short)

    assert linker.batches.index(["s"]) <= 2


async def test_who_comes_during_a_batch_is_next(linker: Linker) -> None:
    """A client whose first mention comes while a long request is linked does not wait for two batches of it."""
    joined = joiner(linker)
    long = asyncio.create_task(of_client(joined, "a", [f"m{i}" for i in range(40)]))
    await settled()
    short = asyncio.create_task(of_client(joined, "b", ["s"], LinkOptions(threshold=0.9)))
    await settled()
    linker.may_answer.set()
    await asyncio.gather(long, short)

    assert linker.batches.index(["s"]) == 1


async def test_mentions_that_take_long_make_small_batches(linker: Linker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each mention takes a tenth of a second, a batch is soon one of a few, so that others need not wait."""
    monkeypatch.setattr(queues.time, "monotonic", lambda: 0.1 * sum(map(len, linker.batches[:-1])))
    linker.may_answer.set()

    links = await joiner(linker, batch_mentions=128, max_queued=1000).link(
        [f"m{i}" for i in range(500)], PLAIN, keep=list
    )

    assert [link.mention for link in links] == [f"m{i}" for i in range(500)]
    assert len(linker.batches[0]) == 128
    assert max(map(len, linker.batches[5:])) == 16


async def test_long_mentions_make_small_batches(linker: Linker) -> None:
    """The characters of a batch are bounded, since long mentions take longer, and so do those with a context; all of
    them are linked in the end.
    """
    joined = joiner(linker, batch_mentions=128)
    mentions = [f"{i:03}" + "x" * 2997 for i in range(10)]
    linker.may_answer.set()

    links = await joined.link([*mentions, "y" * 9000], PLAIN, keep=list)

    assert [link.mention for link in links] == [*mentions, "y" * 9000]
    assert max(map(len, linker.batches)) == 2

    linker.batches.clear()
    assert len(await joined.link(["x"] * 40, LinkOptions(context="a text"), keep=list)) == 40
    assert max(map(len, linker.batches)) == 16
