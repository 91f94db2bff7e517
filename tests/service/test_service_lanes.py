"""Clients take turns: long calls go on in pieces, and short ones pass."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from service_client import handle_of, serving

from pearl_qdrant.pieces import pause
from pearl_qdrant.service import ServiceSettings, lanes
from pearl_qdrant.service.lanes import SHORT_TEXT, Lane, asking
from pearl_qdrant.service.settings import ServiceError, TimedOutError

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
