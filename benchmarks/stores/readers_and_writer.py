"""Readers and a writer of one embedded collection, some of them killed: does a reader ever see a half-written state?

    python benchmarks/stores/readers_and_writer.py --minutes 5 --readers 8 --kills 50

The writer adds, replaces and deletes entities of three names, learns names, updates the base to another release, and
builds the graph, in a random order. Each name of an entity has the entity's version, and each name of the base its
release. So a reader that finds an entity with names of two versions, or a base of two releases, has seen a half-written
state. Each reader opens, checks, reloads and closes again and again. Kills (SIGKILL) take the writer or a reader. After
a kill of the writer the next one checks that all is there that was acknowledged. At the end nothing may be left in the
store but the collection.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import click

from pearl_qdrant import Entity, EntityLinker, load_base
from pearl_qdrant.store.administration import finalize_collection
from pearl_qdrant.store.edge.store import EdgeStore

COLLECTION = "base"
N_BASE = 500  # names of a release
N_ENTITIES = 30  # that the writer edits


def names_of(entity: int, version: int) -> list[str]:
    """The names of an edited entity; all have its version."""
    return [f"{word} thing {entity} v{version}" for word in ("red", "green", "blue")]


def write_release(path: Path, release: int) -> Path:
    """Write a table of names."""
    rows = [f"b{i}\tsubject number {i} r{release}" for i in range(N_BASE)]
    path.write_text("\n".join(["id\tname", *rows]) + "\n", encoding="utf-8")
    return path


def check_state(names: dict[str, list[str]], manifest_names: int | None) -> list[str]:
    """What is wrong with a state: its names by entity, and the number of names that its manifest has."""
    wrong = []
    releases = Counter(name.rpartition(" r")[2] for key, own in names.items() if key[0] == "b" for name in own)
    if len(releases) > 1 or sum(releases.values()) != N_BASE:
        wrong.append(f"releases {dict(releases)}")
    for key, own in names.items():
        if key[0] == "e" and (len(own) != 3 or len({name.rpartition(" v")[2] for name in own}) != 1):
            wrong.append(f"{key} has {own}")
    n_names = sum(map(len, names.values()))
    if manifest_names not in (None, n_names):
        wrong.append(f"{n_names} names, {manifest_names} in the manifest")
    return wrong


def read(store: str, until: float) -> None:
    """Open, check and reload until the time is over; print a line for each check."""
    rng = random.Random(os.getpid())
    while time.time() < until:
        start = time.perf_counter()
        with EntityLinker.open(COLLECTION, store=store, read_only=True) as linker:
            seconds = time.perf_counter() - start
            for _ in range(rng.randint(1, 4)):
                (collection,) = linker.collections
                names: dict[str, list[str]] = {}
                for point in collection.scroll():
                    names.setdefault(point.entity_id, []).append(point.name)
                is_complete = not linker.warnings
                wrong = check_state(names, collection.manifest.names) if is_complete else []
                known = rng.choice(sorted(names))
                found = linker.link(names[known][0])
                if found.entity_id != known:
                    wrong.append(f"{names[known][0]} was linked to {found.entity_id}")
                print(json.dumps({"wrong": wrong, "complete": is_complete, "open_s": seconds}), flush=True)
                linker.reload()


def write(store: str, until: float, folder: str) -> None:
    """Change the collection until the time is over; note what is acknowledged."""
    acknowledged = Path(folder) / "acknowledged.json"
    state = json.loads(acknowledged.read_text())
    rng = random.Random(os.getpid())
    # What was begun and not acknowledged may be there or not; an update that was begun runs to its end first.
    if state["begun"] == "update":
        update(store, folder, state)
    with EntityLinker.open(COLLECTION, store=store) as linker:
        for key, version in state["versions"].items():
            if key == state["begun"]:
                continue
            found = linker.missing([key])
            if bool(found) == (version is not None):
                print(json.dumps({"lost": f"{key} version {version}, missing: {found}"}), flush=True)
    while time.time() < until:
        kind = rng.choices(["edits", "update", "finalize"], [20, 2, 1])[0]
        if kind == "update":
            note(acknowledged, state, "update")
            update(store, folder, state)
        elif kind == "finalize":
            finalize_collection(COLLECTION, store=store)
        else:
            edit(store, rng, state, acknowledged)
        print(json.dumps({"did": kind}), flush=True)


def update(store: str, folder: str, state: dict[str, object]) -> None:
    """Bring the base to the next release, which removes what was added by hand."""
    release = int(str(state["release"])) + 1
    load_base(write_release(Path(folder) / "base.tsv", release), COLLECTION, store=store, update=True)
    note(Path(folder) / "acknowledged.json", {**state, "release": release, "versions": {}}, None)
    state.update(release=release, versions={})


def edit(store: str, rng: random.Random, state: dict[str, object], acknowledged: Path) -> None:
    """Add, replace, delete and learn for a while."""
    versions: dict[str, int | None] = dict(state["versions"])  # type: ignore[call-overload]
    with EntityLinker.open(COLLECTION, store=store) as linker:
        for _ in range(rng.randint(1, 60)):
            number = rng.randrange(N_ENTITIES)
            key = f"e{number}"
            state["versions"] = versions
            note(acknowledged, state, key)
            if rng.random() < 0.2:
                linker.delete([key])
                versions[key] = None
            else:
                version = (versions.get(key) or 0) + 1
                first, *others = names_of(number, version)
                linker.add([Entity(key, first, tuple(others))])
                versions[key] = version
            note(acknowledged, state, None)
            if rng.random() < 0.1:
                linker.accept(f"nickname {rng.randrange(9)}", f"b{rng.randrange(N_BASE)}")


def note(acknowledged: Path, state: dict[str, object], begun: str | None) -> None:
    """Write what is acknowledged, and what was begun."""
    state["begun"] = begun
    temporary = acknowledged.with_suffix(".new")
    temporary.write_text(json.dumps({**state, "begun": begun}))
    temporary.replace(acknowledged)


class Role:
    """A process that is started again when it ends or is killed."""

    def __init__(self, arguments: list[str], output: Path) -> None:
        self._arguments, self._output = arguments, output
        self.failures: list[str] = []
        self.n_starts = 0
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        self.n_starts += 1
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        with self._output.open("ab") as output:
            command = [sys.executable, __file__, *self._arguments]
            return subprocess.Popen(command, stdout=output, stderr=self._errors)

    def kill(self) -> None:
        """Kill it and start another one."""
        self._process.kill()
        self.keep_up()

    def keep_up(self, *, again: bool = True) -> None:
        """Note an error; start it again if it has ended."""
        if again and self._process.poll() is None:
            return
        if self._process.wait(120) not in (0, -signal.SIGKILL):
            self._errors.seek(0)
            self.failures.append(self._errors.read().decode(errors="replace")[-2000:])
        self._errors.close()
        if again:
            self._process = self._start()


@click.command()
@click.option("--minutes", type=float, default=5.0, show_default=True)
@click.option("--readers", "n_readers", type=int, default=8, show_default=True)
@click.option("--kills", "n_kills", type=int, default=50, show_default=True)
@click.option("--role", type=click.Choice(["read", "write"]), hidden=True)
@click.option("--store", hidden=True)
@click.option("--until", type=float, hidden=True)
@click.option("--folder", hidden=True)
def main(minutes: float, n_readers: int, n_kills: int, role: str | None, store: str, until: float, folder: str) -> None:
    """Run it, and print what was seen."""
    if role == "read":
        read(store, until)
    elif role == "write":
        write(store, until, folder)
    else:
        with tempfile.TemporaryDirectory() as made:
            run(Path(made), minutes, n_readers, n_kills)


def run(folder: Path, minutes: float, n_readers: int, n_kills: int) -> None:
    """Start the processes, kill some, and report."""
    store = folder / "store"
    load_base(write_release(folder / "base.tsv", 1), COLLECTION, store=str(store))
    (folder / "acknowledged.json").write_text(json.dumps({"release": 1, "versions": {}, "begun": None}))
    until = time.time() + minutes * 60
    shared = ["--store", str(store), "--until", str(until), "--folder", str(folder)]
    roles = [Role(["--role", "write", *shared], folder / "write.jsonl")]
    roles += [Role(["--role", "read", *shared], folder / f"read{i}.jsonl") for i in range(n_readers)]
    rng = random.Random(0)
    kills = sorted(rng.uniform(time.time() + 10, until - 5) for _ in range(n_kills))
    while time.time() < until - 2:
        time.sleep(0.2)
        for one in roles:
            one.keep_up()
        while kills and kills[0] < time.time():
            kills.pop(0)
            rng.choice([roles[0], *roles]).kill()
    for one in roles:
        one.keep_up(again=False)
    lines = [json.loads(line) for path in folder.glob("*.jsonl") for line in complete_lines(path)]
    checks = [line for line in lines if "wrong" in line]
    EdgeStore(store).open(COLLECTION, read_only=True).close()  # removes what killed readers left
    opened = sorted(line["open_s"] for line in checks)
    report = {
        "checks": len(checks),
        "of complete states": sum(line["complete"] for line in checks),
        "half-written": [line["wrong"] for line in checks if line["wrong"]][:5],
        "lost": [line["lost"] for line in lines if "lost" in line][:5],
        "errors": [text for one in roles for text in one.failures][:5],
        "writer": Counter(line["did"] for line in lines if "did" in line),
        "starts": {"writer": roles[0].n_starts, "readers": sum(one.n_starts for one in roles[1:])},
        "median and slowest opening, s": [round(opened[len(opened) // 2], 2), round(opened[-1], 2)],
        # A reader that was killed before it had its lock leaves a folder that goes after a minute.
        "left": sorted(one.name for one in store.iterdir() if one.name != COLLECTION and (one / ".lock").exists()),
    }
    click.echo(json.dumps(report, indent=2))


def complete_lines(path: Path) -> list[str]:
    """The lines of a file; a killed process may have left half a line."""
    return [line for line in path.read_text("utf-8").split("\n") if line.startswith("{") and line.endswith("}")]


if __name__ == "__main__":
    main()
