"""Real ingest processes for the soak: started, watched until a moment, killed. Linux only: it reads /proc."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import soak_child
from soak_places import COLLECTION, EdgePlace, Place, ServerPlace, stored_entities

Victim = Literal["parent", "group", "child"]

HANG_S = 240.0
"""A run that takes longer has hung: alone it takes two or three seconds."""

ORPHAN_S = 120.0

_POLL_S = 0.002

SIZES = {
    "ingest.load.pipeline.WINDOW": 96,
    "ingest.load.pipeline.FLUSH_S": 0.0,
    "ingest.load.pipeline.CAPACITY": 40,
    "pearl_qdrant.store.edge.points.BATCH_POINTS": 40,
    "pearl_qdrant.store.edge.folder.SMALL_POINTS": 500,
    "pearl_qdrant.store.edge.folder.COMPACT_POINTS": 400,
    "pearl_qdrant.store.edge.folder.COMPACT_UNINDEXED_POINTS": 700,
    "pearl_qdrant.store.edge.shard.INDEXING_THRESHOLD_KB": 16,
    "pearl_qdrant.store.server.upload.MAX_BATCH_POINTS": 32,
}


@dataclass
class Ended:
    """A run that has ended: its exit status (negative: the signal), its output, and its seconds."""

    status: int
    out: str
    err: str
    seconds: float

    def counts(self) -> dict[str, Any]:
        """Return the counts that it printed."""
        return dict(json.loads(self.out))


class Run:
    """One process in its own session. Its output goes to files: with pipes, orphans would keep it from ending."""

    def __init__(self, folder: Path, words: list[str], *, env: Mapping[str, str] | None = None) -> None:
        self._out, self._err = folder / "out.txt", folder / "err.txt"
        self.started = time.monotonic()
        command = [sys.executable, soak_child.__file__, json.dumps(SIZES), *words]
        root = Path(soak_child.__file__).resolve().parents[2]
        paths = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")]).strip(os.pathsep)
        with self._out.open("w") as out, self._err.open("w") as err:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {}), "PYTHONPATH": paths},
            )

    @property
    def seconds(self) -> float:
        """Seconds since its start."""
        return time.monotonic() - self.started

    def is_alive(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    def has_spoken(self) -> bool:
        """Whether the command has printed something; before that, Python is starting."""
        return self._err.stat().st_size > 0

    def children(self) -> list[int]:
        """Process ids of its children."""
        found: list[int] = []
        for task in Path(f"/proc/{self.process.pid}/task").glob("*/children"):
            try:
                found += map(int, task.read_text().split())
            except OSError:  # the thread, or all of it, has gone
                continue
        return found

    def finalizer(self) -> int | None:
        """Return the child that builds the graph, if there is one."""
        for pid in self.children():
            try:
                if b'"task": "finalize"' in Path(f"/proc/{pid}/cmdline").read_bytes():
                    return pid
            except OSError:
                continue
        return None

    def wait(self) -> Ended:
        """Wait for its end.

        Raises:
            TimeoutError: If it hangs; it is killed.
        """
        try:
            status = self.process.wait(max(0.1, HANG_S - self.seconds))
        except subprocess.TimeoutExpired:
            self.signal_group(signal.SIGKILL)
            self.process.wait()
            raise TimeoutError(f"it hung for {HANG_S:.0f} s; it said: {self._err.read_text()[-500:]}") from None
        return Ended(status, self._out.read_text(), self._err.read_text(), self.seconds)

    def wait_until(self, is_due: Callable[[Run], bool]) -> bool:
        """Wait for a moment; False if it ended before."""
        while self.is_alive():
            if is_due(self):
                return True
            if self.seconds > HANG_S:
                return False
            time.sleep(_POLL_S)
        return False

    def signal_group(self, number: int) -> None:
        """Send a signal to it and its children."""
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            return

    def kill(self, victim: Victim) -> Victim:
        """Kill it; return what was killed: the parent if there is no child."""
        if victim == "child":
            for pid in self.children():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                return "child"
            victim = "parent"
        if victim == "group":
            self.signal_group(signal.SIGKILL)
        else:
            orphans = self.children()
            self.process.kill()
            _wait_for_orphans(orphans)
        return victim


def _wait_for_orphans(pids: list[int]) -> None:
    """Children of a load go with it: one that stayed would hold the store, and the next load would find it locked.

    Raises:
        TimeoutError: If one stays.
    """
    deadline = time.monotonic() + ORPHAN_S
    while running := [pid for pid in pids if _is_running(pid)]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the load was killed, but its children {running} live on after {ORPHAN_S:.0f} s")
        time.sleep(_POLL_S)


def _is_running(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def ingest_words(base: Path, model: Path, place: Place) -> list[str]:
    """Return the command that loads into a store; the base has a few bad rows, over 1 % where it is small."""
    options = {"--collection": COLLECTION, "--model": str(model), "--store": place.location, "--device": "cpu"}
    return ["ingest", str(base), *(word for pair in options.items() for word in pair), "--max-errors", "10", "--json"]


MOMENTS = ("random", "start", "checkpoint", "write", "compaction", "optimize", "ready")

Moment = Callable[[Run], bool]


def draw_moment(rng: random.Random, name: str, place: Place, whole_s: float, *, nth: int | None = None) -> Moment:
    """Draw a moment of a run to wait for.

    Args:
        rng: Source of randomness.
        name: One of `MOMENTS`, or "running": any moment after the start.
        place: The store of the run.
        whole_s: Duration of a whole run, in seconds.
        nth: Which of the moments of that name; None: draw it too.
    """
    if name in ("random", "start"):
        due = rng.uniform(0, whole_s if name == "random" else 0.35 * whole_s)
        return lambda run: run.seconds >= due
    if name == "running":
        return _after(Run.has_spoken, rng.uniform(0, 0.8 * whole_s))
    wait_s = rng.choice((0.0, 0.0, rng.uniform(0, 0.005), rng.uniform(0, 0.05)))
    if isinstance(place, EdgePlace):
        sign = _edge_sign(rng, name, place, nth)
    else:
        assert isinstance(place, ServerPlace)
        sign = _server_sign(rng, name, place, nth)
    return _after(sign, wait_s)


def _after(sign: Moment, wait_s: float) -> Moment:
    """Wait this long after a sign."""
    seen: list[float] = []

    def is_due(run: Run) -> bool:
        if not seen and sign(run):
            seen.append(time.monotonic())
        return bool(seen) and time.monotonic() - seen[0] >= wait_s

    return is_due


def _nth(sign: Callable[[Run], object], n: int) -> Moment:
    """The nth time that a sign changes to a true value."""
    last: object = None
    count = 0

    def is_due(run: Run) -> bool:
        nonlocal last, count
        now = sign(run)
        if now and now != last:
            count += 1
        last = now
        return count >= n

    return is_due


def _edge_sign(rng: random.Random, name: str, place: EdgePlace, nth: int | None) -> Moment:
    """Return the sign of a moment in the folder."""
    shard = place.collection / "work" / "shard"

    def building(run: Run) -> object:
        return any((shard / "temp_segments").glob("*"))

    def checkpoint(run: Run) -> object:
        return stored_entities(place.manifest())

    if name == "checkpoint":
        return _nth(checkpoint, nth or rng.randint(1, 8))
    if name == "write":
        return _nth(lambda run: next(iter(run.children()), None), nth or rng.randint(1, 3))
    if name == "compaction":
        return _nth(building, nth or rng.randint(1, 3))
    if name == "optimize":
        started = rng.random() < 0.3
        return lambda run: run.finalizer() is not None and (started or bool(building(run)))
    before = _index_of(place)
    return lambda run: _index_of(place) != before


def _index_of(place: EdgePlace) -> object:
    """The state of the graph."""
    return (place.manifest() or {}).get("content", {}).get("index")


def _server_sign(rng: random.Random, name: str, place: ServerPlace, nth: int | None) -> Moment:
    """Return the sign of a moment in the server's requests."""
    double, begin = place.double, len(place.double.requests)
    wanted, drawn = {
        "checkpoint": ("PATCH ", rng.randint(2, 10)),
        "write": ("PUT /collections/base/points", rng.randint(1, 60)),
        "compaction": ("PUT /collections/base/index", rng.randint(1, 8)),
        "optimize": ("GET /collections/base/optimizations", rng.randint(1, 2)),
        "ready": ("GET /collections/base/optimizations", 3),
    }[name]

    n = nth or drawn

    def is_due(run: Run) -> bool:
        requests = double.requests[begin:]
        return sum(request.startswith(wanted) for request in requests) >= n

    return is_due
