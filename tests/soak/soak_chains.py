"""Real ingest processes that are killed, interrupted or left without a store, resumed, and compared. Linux only."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import soak_child
from edge_cases import is_running
from qdrant_double import QdrantDouble
from store_cases import check_same_load

from pearl_qdrant.store import Store, open_store

COLLECTION = "base"
HANG_S = 240.0
"""A run that takes longer has hung: alone it takes two or three seconds."""
POLL_S = 0.002
MOMENTS = ("random", "start", "checkpoint", "write", "build")

Victim = Literal["parent", "group", "child"]


def write_base(path: Path, n_entities: int) -> Path:
    """A base with shared names, scattered rows, names that no model can encode, and a few bad rows."""
    rng = random.Random(7)
    syllables = "ba co di fu ga he ki lo mu ne or pa qui ro sa tu ve wi xy zo".split()

    def name() -> str:
        return " ".join("".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(rng.randint(1, 4)))

    shared = [name() for _ in range(max(4, n_entities // 25))] + ["\U0001f5de", "\U0001f984"]
    rows = ["id\tname\ttype\taliases\tdescription\tsource"]
    for i in range(n_entities):
        own = rng.choice(shared) if rng.random() < 0.1 else f"{name()} {i}"
        aliases = [rng.choice(shared) if rng.random() < 0.2 else name() for _ in range(rng.randrange(4))]
        kind, text = rng.choice(("ORG", "PERSON", "Place|City", "")), f"the {i}th of its kind" if i % 3 else ""
        rows.append(f"E{i}\t{own}\t{kind}\t{'|'.join(aliases)}\t{text}\tbook {i % 9}")
        if rng.random() < 0.06:  # of an entity that came before
            rows.append(f"E{rng.randrange(i + 1)}\t{name()}\tORG\t{rng.choice(shared)}\t\tbook 1")
        if i % (n_entities // 5) == 1:
            rows.append(("no id at all", "\ta name without an id\tORG\t\t\t")[i % 2])
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


@dataclass
class Ended:
    """A run that has ended: its exit status (negative: the signal), its output, and its seconds."""

    status: int
    out: str
    err: str
    seconds: float

    def counts(self) -> dict[str, Any]:
        """The counts that it printed."""
        return dict(json.loads(self.out))


class Run:
    """One process in its own session. Its output goes to files: with pipes, orphans would keep it from ending."""

    def __init__(self, folder: Path, words: list[str], **env: str) -> None:
        self._out, self._err = folder / "out.txt", folder / "err.txt"
        self._started = time.monotonic()
        root = Path(__file__).resolve().parents[2]
        paths = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")]).strip(os.pathsep)
        with self._out.open("w") as out, self._err.open("w") as err:
            self.process = subprocess.Popen(
                [sys.executable, soak_child.__file__, *words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                env={**os.environ, "OMP_NUM_THREADS": "1", **env, "PYTHONPATH": paths},
            )

    @property
    def seconds(self) -> float:
        """Seconds since its start."""
        return time.monotonic() - self._started

    def children(self) -> list[int]:
        """Process ids of its children."""
        found: list[int] = []
        for task in Path(f"/proc/{self.process.pid}/task").glob("*/children"):
            with suppress(OSError):  # the thread, or all of it, has gone
                found += map(int, task.read_text().split())
        return found

    def wait(self) -> Ended:
        """Wait for its end. Raises TimeoutError if it hangs; it is killed then."""
        try:
            status = self.process.wait(max(0.1, HANG_S - self.seconds))
        except subprocess.TimeoutExpired:
            self.signal_group(signal.SIGKILL)
            self.process.wait()
            raise TimeoutError(f"it hung for {HANG_S:.0f} s; it said: {self._err.read_text()[-500:]}") from None
        return Ended(status, self._out.read_text(), self._err.read_text(), self.seconds)

    def wait_until(self, is_due: Callable[[Run], object]) -> bool:
        """Wait for a moment; False if it ended before."""
        while self.process.poll() is None and self.seconds < HANG_S:
            if is_due(self):
                return True
            time.sleep(POLL_S)
        return False

    def signal_group(self, number: int) -> None:
        """Send a signal to it and its children."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def kill(self, victim: Victim) -> Victim:
        """Kill it; return what was killed: the parent if there is no child. Its children have to go with it."""
        children = self.children()
        if victim == "child" and children:
            with suppress(ProcessLookupError):
                os.kill(children[0], signal.SIGKILL)
            return "child"
        if victim == "group":
            self.signal_group(signal.SIGKILL)
            return "group"
        self.process.kill()
        deadline = time.monotonic() + HANG_S / 2
        while any(is_running(pid) for pid in children):
            assert time.monotonic() < deadline, f"the load was killed, but its children {children} live on"
            time.sleep(POLL_S)
        return "parent"


class EdgePlace:
    """A folder."""

    kind = "edge"

    def __init__(self, folder: Path) -> None:
        self.location = str(folder / "store")

    def reset(self) -> None:
        """Empty it."""
        shutil.rmtree(self.location, ignore_errors=True)

    def stored(self) -> int:
        """Entities that a load has noted as stored, of one that runs or was killed."""
        with suppress(FileNotFoundError):
            manifest = json.loads((Path(self.location) / COLLECTION / "work" / "manifest.json").read_bytes())
            return sum(one["entities"] for one in manifest.get("checkpoints", ()))
        return 0

    def open_store(self) -> Store:
        """The store, while no load runs."""
        return open_store(Path(self.location))

    def sign(self, name: str, nth: int) -> Callable[[Run], object]:
        """Whether a run is at a moment: after a number of checkpoints, while it writes, while files are built."""
        seen, built = set[int](), Path(self.location) / COLLECTION / "work" / "shard" / "temp_segments"
        left = {*built.glob("*")}  # by a process that was killed

        def is_due(run: Run) -> object:
            if name == "checkpoint":
                seen.add(self.stored())
                return len(seen - {0}) >= nth
            if name == "write":
                return run.children()
            return {*built.glob("*")} - left

        return is_due


class ServerPlace:
    """The double of a server."""

    kind = "server"

    def __init__(self, double: QdrantDouble) -> None:
        self.double = double

    @property
    def location(self) -> str:
        """Its address."""
        return self.double.url

    def reset(self) -> None:
        """Empty it."""
        self.double.reset()
        self.double.optimizer_polls = 4
        self.double._server.handle_error = lambda *_: None  # type: ignore[method-assign] # of a client that was killed

    def stored(self) -> int:
        """Entities that a load has noted as stored."""
        with closing(self.open_store()) as store:
            if COLLECTION not in store.collections():
                return 0
            return sum(one.entities for one in store.open(COLLECTION).read_manifest().checkpoints)

    def open_store(self) -> Store:
        """The store."""
        return open_store(self.location)

    def sign(self, name: str, nth: int) -> Callable[[Run], object]:
        """Whether a run has made a number of requests of a kind."""
        begin = len(self.double.requests)
        wanted = {"checkpoint": "PATCH ", "write": "PUT /collections/base/points", "build": "GET /collections/base/opt"}

        def is_due(run: Run) -> object:
            requests = self.double.requests[begin:]
            return sum(request.startswith(wanted[name]) for request in requests) >= nth

        return is_due


Place = EdgePlace | ServerPlace


@dataclass
class Lab:
    """What all chains share: the model, the base, and the store and seconds of a load that nobody killed."""

    folder: Path
    model: Path
    base: Path
    seconds: float = 0.0

    @classmethod
    def make(cls, folder: Path, model: Path, n_entities: int) -> Lab:
        """Write the base, and load it without a kill."""
        folder.mkdir(parents=True, exist_ok=True)
        lab = cls(folder, model, write_base(folder / "base.tsv", n_entities))
        ended = Run(folder, lab.words(EdgePlace(folder))).wait()
        assert ended.status == 0, ended.err
        lab.seconds = ended.seconds
        return lab

    def words(self, place: Place) -> list[str]:
        """The command that loads into a store; the base has a few bad rows, over 1 % where it is small."""
        options = {"--collection": COLLECTION, "--model": str(self.model), "--store": place.location}
        words = [word for pair in options.items() for word in pair]
        return ["ingest", str(self.base), *words, "--max-errors", "10", "--set", "device=cpu", "--json"]


@dataclass
class Kill:
    """One kill, and where the next run resumed, as it reports; None if it was killed too."""

    moment: str
    victim: Victim
    resumed_at: int | None = None


@dataclass
class Chain:
    """A load that is killed a few times, and its kills so far."""

    lab: Lab
    place: Place
    folder: Path
    rng: random.Random
    kills: list[Kill] = field(default_factory=list)

    def run(self) -> None:
        """Kill it up to three times, resume it, compare. Raises AssertionError, or TimeoutError if a run hangs."""
        self.place.reset()
        for _ in range(self.rng.randint(1, 3)):
            victim: Victim = self.rng.choice(("parent", "group", "child" if self.place.kind == "edge" else "parent"))
            if not self.kill(self.rng.choice(MOMENTS), victim, nth=self.rng.randint(1, 8)):
                break
        else:
            self.resume()
        self.check()

    def words(self) -> list[str]:
        """The command."""
        return self.lab.words(self.place)

    def begin(self, moment: str, *more: str, nth: int, **env: str) -> Run:
        """Start the command with more words; return at the moment, or when the command has ended."""
        whole_s = self.lab.seconds
        due = self.rng.uniform(0, whole_s if moment == "random" else 0.35 * whole_s)
        sign = None if moment in ("random", "start") else self.place.sign(moment, nth)
        run = Run(self.folder, [*self.words(), *more], **env)
        run.wait_until(sign or (lambda run: run.seconds >= due))
        return run

    def kill(self, moment: str, victim: Victim, *, nth: int) -> bool:
        """Start the command and kill it at the nth moment of that name; False if it ended before."""
        before = self.place.stored()
        run = self.begin(moment, nth=nth)
        if run.process.poll() is not None:
            self._resumed(run.wait(), before)
            return False
        killed = run.kill(victim)
        ended = run.wait()
        if killed != "child":
            assert ended.status == -signal.SIGKILL, ended
        elif ended.status:  # it may have been done already
            assert (ended.status, "Traceback" in ended.err) == (1, False), ended.err
            assert "run the same command again" in ended.err.replace("\n", " ")
        self.kills.append(Kill(moment, killed))
        return True

    def resume(self) -> Ended:
        """Run the command to its end."""
        before = self.place.stored()
        ended = Run(self.folder, self.words()).wait()
        self._resumed(ended, before)
        return ended

    def _resumed(self, ended: Ended, stored: int) -> None:
        """It ended well, and wrote nothing again that had been noted as stored."""
        assert ended.status == 0, ended.err
        assert ended.counts()["resumed_at"] >= stored
        if self.kills:
            self.kills[-1].resumed_at = ended.counts()["resumed_at"]

    def check(self, *, verify: bool = True) -> None:
        """Compare with the load that nobody killed, and run `collections verify`."""
        wanted = open_store(EdgePlace(self.lab.folder).location)
        with closing(self.place.open_store()) as store, closing(wanted.open(COLLECTION, read_only=True)) as complete:
            check_same_load(store.open(COLLECTION), complete)
        if verify:
            words = ["collections", "verify", COLLECTION, "--store", self.place.location]
            ended = Run(self.folder, words).wait()
            assert ended.status == 0, ended.out + ended.err


def check_fault(chain: Chain, fault: Callable[[], Ended], *, statuses: tuple[int, ...], message: str) -> None:
    """Repeat a fault until it hits the load; look at status and message, then resume the load and compare."""
    for _ in range(5):
        chain.place.reset()
        ended = fault()
        if ended.status:  # else it came too late
            break
    assert ended.status in statuses, ended.err
    assert "Traceback" not in ended.err
    assert message in ended.err
    chain.resume()
    chain.check(verify=False)
