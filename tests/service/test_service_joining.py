"""Mentions of many requests are joined into batches."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from pearl_qdrant.linking.options import LinkOptions
from pearl_qdrant.records import Link
from pearl_qdrant.service import queues
from pearl_qdrant.service.lanes import asking
from pearl_qdrant.service.queues import Joiner, KeepAll
from pearl_qdrant.service.settings import ClientGoneError, ServiceError, TimedOutError

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
