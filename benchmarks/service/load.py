"""Load on the service: throughput beside `link_batch` in the process, and type-ahead.

    python benchmarks/service/load.py --store STORE --collection NAME --part PART

It starts the service itself, on a free port. Without --part both parts are measured, one after the other. Times of
clients tell of a quiet machine only. Processor time is steadier.

    --part link      32 clients for two minutes, each request with 8 mentions that nobody sent before, in turns with
                     `link_batch` in this process (four minutes in all).
    --part search    16 clients type beginnings of names, a tenth of them with a slip, for a minute with the pauses of
                     fast typists, and for a minute without any. With --serve workers=2 links and searches have an
                     interpreter each.

--seconds N makes a part shorter, to see that it works.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any
from urllib.parse import quote

import numpy as np
import psutil

from pearl_qdrant import EntityLinker
from pearl_qdrant.store.open import open_store

TURNS = 3
SEARCH_CLIENTS = 16
START_S = 600


@dataclass
class Connection:
    """One kept-alive connection to a service on this machine: little processor time, one request after the other."""

    port: int
    _streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def request(self, method: str, path: str, body: Any = None) -> int:
        """Send a request and return the status of its answer; a connection that the service closed is opened again.

        Raises:
            OSError: If the connection breaks before there is an answer.
        """
        if self._streams is None or self._streams[1].is_closing():
            self._streams = await asyncio.open_connection("127.0.0.1", self.port)
        reader, writer = self._streams
        packed = b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(packed)}"]
        if packed:
            lines.append("Content-Type: application/json")
        writer.write("\r\n".join([*lines, "", ""]).encode() + packed)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
            length = next((int(line.split(":")[1]) for line in head if line.startswith("content-length:")), 0)
            await reader.readexactly(length)
        except asyncio.IncompleteReadError as error:
            self.close()
            raise OSError("the connection was closed before an answer") from error
        if "connection: close" in head:
            self.close()
        return int(head[0].split()[1])

    def close(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


@dataclass
class Service:
    """A running service, in a process of its own."""

    process: subprocess.Popen[bytes]
    port: int

    def cpu_s(self) -> float:
        """Processor time so far, of all its processes, in seconds."""
        parent = psutil.Process(self.process.pid)
        return sum(sum(one.cpu_times()[:2]) for one in (parent, *parent.children(recursive=True)))

    def wait(self, path: str) -> None:
        """Wait until a GET is answered with 200."""
        end = time.monotonic() + START_S
        while not self._is_answered(path):
            if time.monotonic() > end or self.process.poll() is not None:
                raise SystemExit(f"the service does not answer {path}")
            time.sleep(0.2)

    def _is_answered(self, path: str) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as answer:
                return bool(answer.status == 200)
        except OSError:  # refused, or an error status
            return False


@contextmanager
def running(store: str, *options: str) -> Iterator[Service]:
    """Run a service on a free port until the block ends."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "pearl_qdrant", "serve", "--store", store, "--port", str(port), *options]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    service = Service(process, port)
    try:
        service.wait("/health/ready")
        yield service
    finally:
        process.terminate()
        process.wait(60)


@dataclass
class Outcome:
    """What the clients of a run saw."""

    seconds: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    mentions: int = 0

    def line(self) -> str:
        """One line for people: counts and times in ms."""
        if not self.seconds:
            return f"{dict(self.statuses)}"
        p50, p99 = 1000 * np.percentile(self.seconds, (50, 99))
        return f"{dict(self.statuses)}  p50 {p50:.1f} ms  p99 {p99:.1f} ms"


def shown(ratios: list[float]) -> str:
    """Ratios for people."""
    return ", ".join(f"{one:.2f}" for one in ratios)


Request = Callable[[Connection], Awaitable[tuple[int, int]]]
"""Sends a request; returns the status, and the mentions of it."""


async def run_clients(port: int, n: int, seconds: float, request: Request, pause: float = 0.0) -> Outcome:
    """Let n clients send one request after the other, each for some seconds, with a mean pause in seconds between."""
    rng = random.Random(n)
    outcome = Outcome()
    end = time.perf_counter() + seconds

    async def one() -> None:
        connection = Connection(port)
        while time.perf_counter() < end:
            if pause:
                await asyncio.sleep(rng.uniform(0, 2 * pause))
            start = time.perf_counter()
            try:
                status, mentions = await request(connection)
            except OSError:
                outcome.statuses[0] += 1
                continue
            outcome.statuses[status] += 1
            if status == 200:
                outcome.seconds.append(time.perf_counter() - start)
                outcome.mentions += mentions
            else:
                await asyncio.sleep(0.05)
        connection.close()

    await asyncio.gather(*(one() for _ in range(n)))
    return outcome


def names_of(store: str, collection: str, n: int) -> list[str]:
    """Names of a collection; ids are hashes, so that the first ones are a random sample."""
    opened = open_store(store)
    try:
        return [point.name for point in islice(opened.open(collection, read_only=True).scroll(), n)]
    finally:
        opened.close()


def mentions_of(names: list[str], rng: random.Random) -> Iterator[str]:
    """Distinct mentions without end: half of them names as they stand, half with a slip; a number makes them new."""
    for turn in range(10**9):
        for name in rng.sample(names, len(names)):
            at = rng.randrange(len(name))
            slipped = name[:at] + rng.choice("aeinrst") + name[at + 1 :]
            text = name if rng.random() < 0.5 else slipped
            yield text if turn == 0 else f"{text} {turn}"


def linking(mentions: Iterator[str], per_request: int, collection: str) -> Request:
    """Requests to link."""

    async def request(connection: Connection) -> tuple[int, int]:
        body = {"collection": collection, "mentions": list(islice(mentions, per_request))}
        return await connection.request("POST", "/v1/link", body), per_request

    return request


def typing(names: list[str], rng: random.Random, collection: str) -> Request:
    """Requests of people who type."""

    async def request(connection: Connection) -> tuple[int, int]:
        name = rng.choice(names)
        typed = name[: rng.randint(1, len(name))]
        if len(typed) > 4 and rng.random() < 0.1:
            at = rng.randrange(len(typed))
            typed = typed[:at] + rng.choice("aeinrst") + typed[at + 1 :]
        return await connection.request("GET", f"/v1/search?collection={quote(collection)}&q={quote(typed)}"), 0

    return request


def in_process(linker: EntityLinker, mentions: Iterator[str], seconds: float) -> tuple[float, float]:
    """Mentions a second of `link_batch` in this process, and processor seconds of 1,000 of them."""
    start, cpu, n = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - start < seconds:
        n += sum(1 for _ in linker.link_batch(list(islice(mentions, 256)), workers=1))
    return n / (time.perf_counter() - start), (time.process_time() - cpu) / n * 1000


def measure_links(service: Service, given: argparse.Namespace, names: list[str]) -> None:
    """Throughput through HTTP and in the process, in turns."""
    rng = random.Random(0)
    mentions = mentions_of(names, rng)
    ratios, cpu_ratios = [], []
    with EntityLinker.open(given.collection, store=given.store, read_only=True) as linker:
        list(linker.link_batch(list(islice(mentions, 256)), workers=1))
        for turn in range(TURNS):
            seconds = given.seconds / TURNS
            cpu = service.cpu_s()
            start = time.perf_counter()
            request = linking(mentions, given.mentions, given.collection)
            outcome = asyncio.run(run_clients(service.port, given.clients, seconds, request))
            rate = outcome.mentions / (time.perf_counter() - start)
            cost = (service.cpu_s() - cpu) / max(1, outcome.mentions) * 1000
            own_rate, own_cost = in_process(linker, mentions, seconds)
            ratios.append(rate / own_rate)
            cpu_ratios.append(own_cost / cost)
            print(f"turn {turn + 1}: service {rate:.0f} mentions/s, {cost:.2f} CPU s per 1,000; {outcome.line()}")
            print(f"        link_batch {own_rate:.0f} mentions/s, {own_cost:.2f} CPU s per 1,000")
    print(f"by processor time, link_batch is 1: {sum(cpu_ratios) / TURNS:.2f} ({shown(cpu_ratios)})")
    print(f"throughput of the service, link_batch is 1: {sum(ratios) / TURNS:.2f} ({shown(ratios)})")


def measure_search(service: Service, given: argparse.Namespace, names: list[str]) -> None:
    """Type-ahead at 16 clients."""
    request = typing(names, random.Random(2), given.collection)
    for what, pause in (("type a letter each tenth of a second", 0.1), ("type without a pause", 0.0)):
        cpu = service.cpu_s()
        outcome = asyncio.run(run_clients(service.port, SEARCH_CLIENTS, given.seconds, request, pause))
        cost = (service.cpu_s() - cpu) / max(1, len(outcome.seconds)) * 1000
        print(f"{SEARCH_CLIENTS} clients {what}: {outcome.line()}  {cost:.2f} ms of processor time a request")


PARTS = {"link": measure_links, "search": measure_search}

SECONDS = {"link": 120.0, "search": 60.0}
"""How long each part measures, if nobody says otherwise."""


def main() -> None:
    """Run the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", required=True, help="folder or URL of the store")
    parser.add_argument("--collection", required=True, help="a collection with some thousand names or more")
    parser.add_argument("--part", choices=list(PARTS), action="append", help="may be repeated; by default all")
    parser.add_argument("--seconds", type=float, help=f"of each part; by default {SECONDS}")
    parser.add_argument("--clients", type=int, default=32, help="of links; by default 32")
    parser.add_argument("--mentions", type=int, default=8, help="mentions of a request")
    parser.add_argument("--names", type=int, default=20_000, help="names that mentions are made of")
    parser.add_argument("--serve", nargs="*", default=[], help="further options of serve, without dashes: workers=2")
    given = parser.parse_args()
    wanted = given.seconds
    names = names_of(given.store, given.collection, given.names)
    options = [part for one in given.serve for part in (f"--{one.split('=')[0]}", *one.split("=", 1)[1:])]
    for part in given.part or list(PARTS):
        print(f"== {part}", flush=True)
        given.seconds = SECONDS[part] if wanted is None else wanted
        with running(given.store, "--collection", given.collection, *options) as service:
            # The index of names is built by now: it would count as processor time of what is measured.
            service.wait(f"/v1/search?q=a&collection={quote(given.collection)}")
            PARTS[part](service, given, names)


if __name__ == "__main__":
    main()
