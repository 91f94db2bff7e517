"""Kill real loads many times: ``python tests/soak/soak.py --kills 200``, or ``make soak``.

The reference is a load that is never killed, one for each store (embedded; the Qdrant double over HTTP). Then loads are
killed at random moments and at dangerous ones (after a checkpoint, in a compaction, while the graph is built, between
`loading` and `ready`, at the start), resumed by the same command, and compared: ids, payloads, vectors, exact count,
manifest, `collections verify`. A chain is a load with up to three kills, drawn by seed, store and number:
`--seed S --chain edge:17` draws it again, although the scheduler also has an influence. Linux only: it reads /proc.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import click

os.environ.setdefault("OMP_NUM_THREADS", "1")

from qdrant_double import QdrantDouble
from soak_chains import MOST_KILLS, Chain, Failed, Lab
from soak_child import set_sizes
from soak_places import EdgePlace, Place, ServerPlace, StoreKind
from soak_process import SIZES

STORES: tuple[StoreKind, ...] = ("edge", "server")


class Soak:
    """Runs chains in a few threads and counts their results."""

    def __init__(self, lab: Lab, seed: int, kills: int) -> None:
        self.lab = lab
        self.seed = seed
        self.quota = {"edge": kills - kills // 2, "server": kills // 2}
        self.done: Counter[str] = Counter()
        self.totals: Counter[tuple[str, str]] = Counter()
        self.failures: list[str] = []
        self._started: Counter[str] = Counter()
        self._lock = threading.Lock()

    def work(self) -> None:
        """Run in one thread: chains until there were enough kills."""
        with ExitStack() as stack:
            servers = ServerPlace(stack.enter_context(QdrantDouble()))
            while (taken := self._take()) is not None:
                kind, number, most = taken
                self.run_chain(kind, number, most, servers)

    def _take(self) -> tuple[StoreKind, int, int] | None:
        """Draw the next chain: its store, its number, and its largest number of kills."""
        with self._lock:
            left = {kind: self.quota[kind] - self.done[kind] for kind in STORES}
            kind = max(STORES, key=lambda kind: left[kind])
            if left[kind] <= 0:
                return None
            self._started[kind] += 1
            most = min(MOST_KILLS, left[kind])
            self.done[kind] += most  # given back if it has fewer
            return kind, self._started[kind], most

    def chain(self, kind: StoreKind, number: int | str, servers: ServerPlace) -> Chain:
        """Make a chain that has not started."""
        folder = self.lab.folder / f"{kind}-{number}".replace(" ", "-")
        folder.mkdir(parents=True, exist_ok=True)
        place: Place = EdgePlace(folder) if kind == "edge" else servers
        return Chain(self.lab, place, folder, random.Random(f"{self.seed}:{kind}:{number}"))

    def run_chain(self, kind: StoreKind, number: int, most: int, servers: ServerPlace) -> None:
        """Run one chain; a failure is printed, and its folder is kept."""
        chain = self.chain(kind, number, servers)
        failure = self._attempt(f"{kind}:{number}", chain, lambda: chain.run(most_kills=most))
        with self._lock:
            self.done[kind] += len(chain.kills) - most
            for kill in chain.kills:
                for what in ("kills", f"moment {kill.moment}", f"killed: {kill.victim}", f"found {kill.state[:8]}"):
                    self.totals[kind, what] += 1
            if chain.wrong is not None:
                for what in ("lost", "doubled", "different"):
                    self.totals[kind, f"points {what}"] += getattr(chain.wrong, what)
            self.totals[kind, "chains"] += 1
            self.totals[kind, "failures"] += failure is not None
        for n, kill in enumerate(chain.kills, 1):
            resumed = "killed again" if kill.resumed_at is None else f"resumed at {kill.resumed_at}"
            where = f"{kill.moment}, {kill.seconds:.2f} s, {kill.state}"
            click.echo(f"{kind}:{number}.{n:<2} {where:38} {kill.victim:7} {resumed:18} {failure or 'same'}")

    def _attempt(self, label: str, chain: Chain, act: Callable[[], object]) -> str | None:
        """Run something; return its failure in one line, or None."""
        try:
            act()
            if not chain.wrong:
                if chain.folder.parent == self.lab.folder:
                    shutil.rmtree(chain.folder)
                return None
            problem = str(chain.wrong)
        except (Failed, TimeoutError) as error:
            problem = str(error)
        except Exception:  # noqa: BLE001 - an error of the harness is told like one of the load
            problem = traceback.format_exc()
        with self._lock:
            self.failures.append(f"{label} (seed {self.seed}, left in {chain.folder}):\n{problem}")
        return "FAILED"

    def table(self) -> str:
        """Format the kills and their results as a table."""
        rows = sorted({what for _, what in self.totals}, key=lambda what: (what.startswith("points"), what))
        lines = [f"{'':24}{'edge':>8}{'server':>8}"]
        lines += [f"{what:24}{self.totals['edge', what]:>8}{self.totals['server', what]:>8}" for what in rows]
        return "\n".join(lines)


@click.command()
@click.option("--kills", default=200, show_default=True, help="Over both stores.")
@click.option("--entities", default=700, show_default=True, help="Of the base; about 2.5 names each.")
@click.option("--seed", type=int, help="Default: drawn, and printed.")
@click.option("--jobs", default=2, show_default=True, help="Chains at a time.")
@click.option("--chain", "one", metavar="STORE:N", help="Only this chain.")
def main(kills: int, entities: int, seed: int | None, jobs: int, one: str | None) -> None:
    """Kill loads, resume them, and compare the results."""
    from tiny_models import make_pearl

    seed = random.SystemRandom().randrange(10**6) if seed is None else seed
    start = time.monotonic()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts background jobs without it
    folder = Path(tempfile.mkdtemp(prefix="pearl-qdrant-soak-"))
    make_pearl(folder / "tiny")
    lab = Lab.make(folder / "lab", folder / "tiny", entities)
    soak = Soak(lab, seed, kills)
    with ExitStack() as stack:
        servers = ServerPlace(stack.enter_context(QdrantDouble()))
        # `collections verify` in this process: one that has to start takes longer than all else that is compared.
        set_sizes(SIZES, to_server=False)
        lab.verifies_here = True
        for place in (EdgePlace(lab.folder), servers):
            lab.prepare(place)
            if wrong := lab.check(place, lab.folder):
                raise Failed(f"without any kill: {wrong}")
        names = len(lab.wanted["edge", lab.base.name].points)
        click.echo(f"seed {seed}, {names:,} names, a load takes {lab.seconds}")
        if one is not None:
            store, _, number = one.partition(":")
            soak.run_chain("edge" if store == "edge" else "server", int(number), MOST_KILLS, servers)
        else:
            with ThreadPoolExecutor(jobs) as pool:
                for future in [pool.submit(soak.work) for _ in range(jobs)]:
                    future.result()
    click.echo(soak.table())
    for failure in soak.failures:
        click.echo(f"\n{failure}")
    click.echo(f"{len(soak.failures)} failures in {time.monotonic() - start:.0f} s")
    if soak.failures:
        sys.exit(1)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
