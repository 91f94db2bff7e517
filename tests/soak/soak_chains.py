"""One chain of the soak: kill a load several times, resume it, compare. Also faults without a kill."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from soak_base import write_base
from soak_child import FULL_FLAG
from soak_places import COLLECTION, Contents, Difference, Place, ServerPlace, compare, stored_entities
from soak_process import MOMENTS, Ended, Moment, Run, Victim, draw_moment, ingest_words

from pearl_qdrant.store.verify import verify_collection

MOST_KILLS = 3  # in a chain

_TRIES = 5

INTERRUPT_S = 120.0
"""A run that Ctrl-C does not end within this time hangs, also on a busy machine; alone it takes a second."""


class Failed(AssertionError):
    """A check of the soak failed."""


@dataclass
class Lab:
    """Shared by all chains: the model, the base, and the result of a load that is not killed.

    Attributes:
        folder: Folder of all files.
        model: A checkpoint.
        base: What is loaded.
        wanted: Expected contents by store and release.
        seconds: Duration of the load that is not killed, by store.
        verifies_here: Whether `collections verify` runs in this process, which then has the sizes of the loads.
    """

    folder: Path
    model: Path
    base: Path
    wanted: dict[tuple[str, str], Contents] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    verifies_here: bool = False

    @classmethod
    def make(cls, folder: Path, model: Path, n_entities: int) -> Lab:
        """Write the base."""
        folder.mkdir(parents=True, exist_ok=True)
        return cls(folder, model, write_base(folder / "base.tsv", n_entities))

    def prepare(self, place: Place) -> None:
        """Load without a kill, and keep the contents."""
        place.reset()
        ended = Run(self.folder, ingest_words(self.base, self.model, place)).wait()
        if ended.status:
            raise Failed(f"the load that is not killed ended with {ended.status}: {ended.err[-500:]}")
        contents = place.contents()
        if len(contents.points) != ended.counts()["names"]:
            raise Failed(f"{len(contents.points)} points of {ended.counts()['names']} names, without any kill")
        self.wanted[place.kind, self.base.name] = contents
        self.seconds[place.kind] = ended.seconds

    def check(self, place: Place, folder: Path, *, verify: bool = True) -> Difference:
        """Compare with the load that was not killed, and run `collections verify`."""
        wrong = compare(place.contents(), self.wanted[place.kind, self.base.name])
        if not verify:
            return wrong
        if self.verifies_here:
            verified = verify_collection(COLLECTION, store=place.location)
            wrong.notes += [f"verify: {problem.message}" for problem in verified.problems]
            return wrong
        words = ["collections", "verify", COLLECTION, "--store", place.location, "--json"]
        ended = Run(folder, words).wait()
        if ended.status:
            wrong.notes.append(f"verify: {(ended.out + ended.err).strip()[-500:]}")
        return wrong


@dataclass
class Kill:
    """One kill of a chain.

    Attributes:
        moment: Name of the moment of the kill.
        victim: The killed process.
        seconds: Time after the start of the run.
        state: State of the collection just after: "none", "loading", "loading@192" (the checkpoint), "ready".
        resumed_at: Where the next run resumed, as it reports; None if it was killed too.
    """

    moment: str
    victim: Victim
    seconds: float
    state: str
    resumed_at: int | None = None


@dataclass
class Chain:
    """A load that is killed up to `MOST_KILLS` times.

    Attributes:
        kills: The kills so far.
        wrong: The difference at the end; None before.
        verify: Whether to run `collections verify` too, in one more process.
    """

    lab: Lab
    place: Place
    folder: Path
    rng: random.Random
    kills: list[Kill] = field(default_factory=list)
    wrong: Difference | None = None
    verify: bool = True

    def run(self, *, most_kills: int = MOST_KILLS) -> Difference:
        """Run the chain.

        Raises:
            Failed: If a run ends in a wrong way.
            TimeoutError: If a run hangs.
        """
        self.place.reset()
        for _ in range(min(most_kills, self.rng.randint(1, MOST_KILLS))):
            if not self.kill(self.rng.choice(MOMENTS), self._draw_victim()):
                return self.check()
        self.resume()
        return self.check()

    def kill(self, moment: str, victim: Victim, *, nth: int | None = None) -> bool:
        """Start the command and kill it at the nth moment of that name, or a random one; False if it ended before."""
        before = self.place.manifest()
        is_due = self._moment(moment, nth)
        run = Run(self.folder, self.words())
        was_due = run.wait_until(is_due)
        seconds = run.seconds
        killed = run.kill(victim) if was_due else victim
        ended = run.wait()
        if was_due and killed == "child":
            self._check_complaint(ended)
        elif ended.status == 0:
            self._check_resumed(ended, before)
            return False
        elif ended.status != -signal.SIGKILL or not was_due:
            raise Failed(f"it ended with {ended.status}: {ended.err[-800:]}")
        self.kills.append(Kill(moment, killed, seconds, self._state()))
        return True

    def resume(self) -> Ended:
        """Run the command to its end."""
        before = self.place.manifest()
        ended = Run(self.folder, self.words()).wait()
        if ended.status:
            raise Failed(f"the resumed load ended with {ended.status}: {ended.err[-800:]}")
        self._check_resumed(ended, before)
        return ended

    def check(self) -> Difference:
        """Compare."""
        self.wrong = self.lab.check(self.place, self.folder, verify=self.verify)
        return self.wrong

    def words(self) -> list[str]:
        """The command."""
        return ingest_words(self.lab.base, self.lab.model, self.place)

    def begin(self, moment: str, *more: str, nth: int | None = None, env: dict[str, str] | None = None) -> Run:
        """Start the command with more words, in an empty store; return at the moment, or when the command has ended."""
        self.place.reset()
        is_due = self._moment(moment, nth)
        run = Run(self.folder, [*self.words(), *more], env=env)
        run.wait_until(is_due)
        return run

    def _moment(self, name: str, nth: int | None) -> Moment:
        return draw_moment(self.rng, name, self.place, self.lab.seconds[self.place.kind], nth=nth)

    def _check_resumed(self, ended: Ended, before: dict[str, Any] | None) -> None:
        """Check that nothing that the manifest had noted as stored was written again."""
        resumed_at = ended.counts()["resumed_at"]
        noted = stored_entities(before)
        if resumed_at < noted:
            raise Failed(f"it resumed at {resumed_at}, but the checkpoint was {noted}")
        if self.kills:
            self.kills[-1].resumed_at = resumed_at

    def _draw_victim(self) -> Victim:
        if self.place.kind == "edge" and self.rng.random() < 0.2:
            return "child"
        return self.rng.choice(("parent", "group"))

    def _check_complaint(self, ended: Ended) -> None:
        """Check that a load whose writing process was killed reports this, unless that process had already finished."""
        if ended.status == 0:
            return
        said = ended.err
        if ended.status != 1 or "Traceback" in said or "run the same command again" not in said.replace("\n", " "):
            raise Failed(f"a killed writing process ended it with {ended.status}: {said[-800:]}")

    def _state(self) -> str:
        manifest: dict[str, Any] | None = self.place.manifest()
        if manifest is None:
            return "none"
        stored = stored_entities(manifest)
        return f"{manifest['state']}@{stored}" if stored else str(manifest["state"])


def interrupt(chain: Chain, moment: str) -> None:
    """Ctrl-C ends a load soon, with 130 and a message; the load can be resumed."""

    def run_with_fault() -> Ended:
        run = chain.begin(moment, nth=1)
        start = time.monotonic()
        run.signal_group(signal.SIGINT)
        ended = run.wait()
        if (seconds := time.monotonic() - start) > INTERRUPT_S:
            raise Failed(f"Ctrl-C took {seconds:.1f} s")
        return ended

    # Python ends itself by the signal, which is 130 to a shell, where it came while an extension was being imported.
    _check_fault(chain, run_with_fault, statuses=(130, -signal.SIGINT), message="interrupted; what was stored is kept")


def lose_store(chain: Chain) -> None:
    """The server stops during a load, and comes back later."""
    place = chain.place
    assert isinstance(place, ServerPlace)

    def run_with_fault() -> Ended:
        run = chain.begin("checkpoint", "--wait", "2", nth=2)  # not the ten minutes of a restart
        place.go_away()
        ended = run.wait()
        place.come_back()
        return ended

    _check_fault(chain, run_with_fault, statuses=(1,), message="Start it with: docker compose up -d")


def fill_disk(chain: Chain) -> None:
    """The disk fills up during a load, and is freed later."""
    flag = chain.folder / "disk-is-full"

    def run_with_fault() -> Ended:
        run = chain.begin("checkpoint", nth=1, env={FULL_FLAG: str(flag)})
        flag.touch()
        ended = run.wait()
        flag.unlink()
        return ended

    _check_fault(chain, run_with_fault, statuses=(1,), message="free some space and run the same command again")


def _check_fault(chain: Chain, run_with_fault: Callable[[], Ended], *, statuses: tuple[int, ...], message: str) -> None:
    """Repeat a fault until it hits the load; check status and message, then resume the load and compare."""
    ended = run_with_fault()
    for _ in range(_TRIES):
        if ended.status:
            break
        ended = run_with_fault()  # the fault came too late
    if ended.status not in statuses or "Traceback" in ended.err or message not in ended.err:
        raise Failed(f"it ended with {ended.status}: {ended.err[-1500:]}")
    chain.resume()
    if wrong := chain.check():
        raise Failed(f"after the resume: {wrong}")
