"""`make fuzz`: made-up and damaged bases for every reader, for as long as it is told.

    python tests/fuzz/fuzz_readers.py --minutes 60 --seed 1

Inputs come in batches, drawn by hypothesis from `fuzz_inputs` by the batch's number, so that `--only tsv:1000003`
repeats one. Each is scanned and read by a process of its own, which is ended when it has used far more processor time
than its size explains, and fails when it takes `MEMORY_MB` more resident memory than it had before (anonymous, and the
mapped index files of UMLS with it). Right is: entities with ids and names, each id once, the same in scan and reading,
and counted skips; or an error of ours that names the file. Anything else is saved under --keep, and the status is 1.
Linux: memory is read from /proc.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import click
import zstandard
from fuzz_inputs import DUMP, INPUTS, Input
from hypothesis import HealthCheck, Phase, given, seed, settings
from obo_terms import TOES
from rdf_bases import GRAPH
from tables import CSV, JSONL, written_tables
from umls_release import CONSO
from yago_files import FACTS, turtle

from ingest.base.reader import Reader
from ingest.base.scan import ScanResult, scan
from ingest.base.type_map import TypeMap
from ingest.formats import open_reader
from ingest.io import limits
from ingest.io.report import ReadReport
from pearl_qdrant.errors import PearlQdrantError, SettingsError, TooManyErrorsError
from pearl_qdrant.records import Entity

MEMORY_MB = 300
GUARD_MB = 2_000  # past it the system says no, so that no input takes the machine along
CPU_S, CPU_S_PER_MB = 10.0, 40.0  # honest bases take 0.01 to 0.1 s a MB, the worst shapes known 1 to 8 s
KEPT_MB = 60  # that a process may have left over from one input
WAIT_TIMES = 10  # as long by the clock, on a busy machine
BATCH = 25
MOST_FAILURES = 10

_NAMED = ("scattered rows: ", "temporary file: ")
"""What errors name that are of no one file."""

_MAX_MESSAGE = 5_000
"""Characters of an error; some list what a file has."""


RENEW_S = 60
"""Processor seconds after which a child is replaced: Linux holds RLIMIT_CPU against time that it counts by ticks, which
drifts away from what `time.process_time` says, by ten seconds in ten minutes here."""

NO_ANSWER = "no answer"
"""The outcome of an input that was not read within its processor time; a failure if it is not read the second time."""


class WrongError(AssertionError):
    """A reader did what it must not."""


@dataclass(frozen=True)
class Result:
    """How the reading of an input ended; `failure` is empty if all was right."""

    outcome: str
    failure: str = ""
    entities: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    cpu_s: float = 0.0
    grown_mb: float = 0.0


def read_input(given_input: Input, folder: Path) -> Result:
    """Read the files of a folder; raises `WrongError`, or an error of a reader that is not one of ours."""
    paths = [folder] if len(given_input.files) > 1 else [folder / next(iter(given_input.files))]
    usual = {name: getattr(limits, name) for name in given_input.bounds}
    for name, bound in given_input.bounds.items():
        setattr(limits, name, bound)
    try:
        types = None
        if given_input.type_map is not None:
            path = folder.with_name("types.tsv")
            path.write_bytes(given_input.type_map)
            types = TypeMap.load(path)
        with open_reader(paths, given_input.as_kind, given_input.options, type_map=types or TypeMap.load()) as reader:
            scanned = scan(reader, ReadReport(max_errors=None))
            n_entities = _check_reading(reader, scanned)
            _check_limit_on_errors(reader, scanned.report)
    except SettingsError:
        return Result("SettingsError")
    except PearlQdrantError as error:
        if str(folder.parent) not in str(error) and not str(error).startswith(_NAMED):
            raise WrongError(f"the error does not name the file: {error}") from error
        if len(str(error)) > _MAX_MESSAGE:
            raise WrongError(f"the error has {len(str(error)):,} characters") from error
        return Result(type(error).__name__)
    finally:
        for name, bound in usual.items():
            setattr(limits, name, bound)
    return Result("read" if n_entities else "nothing in it", "", n_entities, scanned.report.skip_counts)


def _check_reading(reader: Reader, scanned: ScanResult) -> int:
    """Read all, compare with the scan, and look at each entity; how many there are."""
    report = ReadReport(max_errors=None)
    ids, n_names = set[str](), 0
    for entity in reader.read(report, scattered=scanned.scattered):
        _check_entity(entity)
        ids.add(entity.entity_id)
        n_names += 1 + len(entity.aliases)
    found = len(ids), n_names
    for what, counts in (
        ("the scan", (scanned.entities, scanned.names)),
        ("the report", (report.entities, report.names)),
    ):
        if counts != found:
            raise WrongError(f"{what} has {counts} entities and names, reading gave {found}")
    if report != scanned.report:
        raise WrongError(f"the reports differ: {report} and {scanned.report}")
    return len(ids)


def _check_entity(entity: Entity) -> None:
    names = list(entity.names())
    if not entity.entity_id or not all(names) or len(set(names)) < len(names):
        raise WrongError(f"an entity without id or name, or with a name twice: {entity!r:.500}")
    for text in (entity.entity_id, *names, *entity.kb_types, *entity.extra.values(), entity.description or ""):
        if "\0" in text:
            raise WrongError(f"an entity with NUL: {entity!r:.500}")
        text.encode("utf-8")


def _check_limit_on_errors(reader: Reader, report: ReadReport) -> None:
    """Where no bad row is allowed, the first one stops."""
    try:
        for _ in reader.read_runs(ReadReport(max_errors=0)):
            pass
    except TooManyErrorsError:
        if not report.n_skipped:
            raise WrongError("there were too many bad rows, though there is none") from None
    else:
        if report.n_skipped:
            raise WrongError(f"bad rows were allowed that were not: {report.skipped}")


def _status_mb(key: str) -> float:
    """A line of /proc/self/status, in MB."""
    rows = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(row.split()[1]) * 1024 / 1e6 for row in rows if row.startswith(key + ":"))


def _read_under_limits(given_input: Input, folder: Path, limit_s: float) -> Result:
    """Read, and judge what it took; more processor time than this ends the process."""
    start = time.process_time()
    resource.setrlimit(resource.RLIMIT_CPU, (int(start + limit_s) + 1, resource.RLIM_INFINITY))
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the highest mark begins here
    before = _status_mb("VmRSS")
    try:
        found = read_input(given_input, folder)
    except BaseException:  # noqa: BLE001 - this is what is looked for
        found = Result("failed", traceback.format_exc())
    grown = _status_mb("VmHWM") - before
    failure = found.failure or (f"memory grew by {grown:,.0f} MB" if grown > MEMORY_MB else "")
    outcome = "failed" if failure else found.outcome
    return Result(outcome, failure, found.entities, found.skipped, time.process_time() - start, grown)


def _serve(connection: Connection, folder: Path) -> None:
    """Read inputs until there are no more, or memory that was not given back would hide what the next one takes.

    With each answer goes whether another input can be sent.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    guard = int((_status_mb("VmData") + GUARD_MB) * 1e6)
    resource.setrlimit(resource.RLIMIT_DATA, (guard, guard))
    most, goes_on = _status_mb("VmRSS") + KEPT_MB, True
    while goes_on:
        try:
            given_input, limit_s = connection.recv()
        except EOFError:
            return
        result = _read_under_limits(given_input, folder, limit_s)
        goes_on = _status_mb("VmRSS") < most and time.process_time() < RENEW_S
        connection.send((result, goes_on))


class Child:
    """A process that reads inputs; it is started again when it has ended."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: BaseProcess | None = None

    def read(self, given_input: Input) -> Result:
        """Write the files of an input and have them read."""
        for path in self._folder.iterdir():
            path.unlink()
        for name, content in given_input.files.items():
            (self._folder / name).write_bytes(content)
        limit_s = CPU_S + CPU_S_PER_MB * given_input.size / 1e6
        if self._process is None:
            self._begin()
        process = self._process
        try:
            self._connection.send((given_input, limit_s))
            if self._connection.poll(WAIT_TIMES * limit_s):
                result, goes_on = self._connection.recv()
                if not goes_on:
                    self.close()
                assert isinstance(result, Result)
                return result
        except (EOFError, OSError):
            pass
        self.close()
        ended = f"it ended with {process.exitcode}" if process else ""
        return Result(NO_ANSWER, f"the child gave no answer: {ended}; it may use the processor for {limit_s:.0f} s")

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._connection.close()
            self._process.kill()
            self._process.join()
            self._process = None

    def _begin(self) -> None:
        context = multiprocessing.get_context("fork")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self._folder), daemon=True)
        self._process.start()
        theirs.close()


@dataclass
class Fuzzer:
    """What was read, and what came of it."""

    child: Child
    keep: Path
    inputs: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    entities: Counter[str] = field(default_factory=Counter)
    slowest: dict[str, float] = field(default_factory=dict)
    largest: dict[str, float] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    is_stopped: bool = False

    def stop(self, *_: object) -> None:
        """Read no more; as a handler of signals."""
        self.is_stopped = True

    @property
    def goes_on(self) -> bool:
        """Whether there is a reason to read another input."""
        return not self.is_stopped and len(self.failures) < MOST_FAILURES

    def read_batch(self, kind: str, number: int, n_inputs: int = BATCH) -> None:
        """Draw some inputs and read them."""
        place = 0

        @seed(number)
        @settings(
            max_examples=n_inputs,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(INPUTS[kind])
        def read_each(given_input: Input) -> None:
            nonlocal place
            place += 1
            if self.goes_on:
                result = self.child.read(given_input)
                if result.outcome == NO_ANSWER and not self.is_stopped:
                    # A busy machine can charge a process for work that is not its own: what is slow is slow again.
                    again = self.child.read(given_input)
                    result = result if again.failure else replace(again, outcome=NO_ANSWER)
                if not self.is_stopped:  # the child may have been told, too
                    self.note(kind, f"{kind}:{number}.{place}", given_input, result)

        read_each()

    def read_batches(self, kinds: Sequence[str], first: int, n_batches: int | None, end: float) -> None:
        """Batches of each reader in turn, until the number or the time is reached, or too many have failed."""
        for number in itertools.count(first) if n_batches is None else range(first, first + n_batches):
            for kind in kinds:
                if time.monotonic() > end or not self.goes_on:
                    return
                self.read_batch(kind, number)

    def note(self, kind: str, label: str, given_input: Input, result: Result) -> None:
        """Count a result; keep the input of a failure."""
        self.inputs[kind] += 1
        self.outcomes[kind, result.outcome] += 1
        self.entities[kind] += result.entities
        self.skipped.update(result.skipped)
        self.slowest[kind] = max(self.slowest.get(kind, 0.0), result.cpu_s)
        self.largest[kind] = max(self.largest.get(kind, 0.0), result.grown_mb)
        if not result.failure:
            return
        folder = self.keep / label.replace(":", "-")
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in given_input.files.items():
            (folder / name).write_bytes(content)
        if given_input.type_map is not None:
            (folder / "types.tsv").write_bytes(given_input.type_map)
        how = f"{label}: read as {given_input.as_kind}, {given_input.options}, {given_input.bounds}, saved in {folder}"
        self.failures.append(f"{how}\n{result.failure}")
        click.echo(self.failures[-1])

    def table(self) -> str:
        """What was done, by reader."""
        lines = [f"{'':10}{'inputs':>9}{'entities':>12}{'slowest s':>11}{'most MB':>9}  how they ended"]
        for kind in self.inputs:
            ends = {outcome: n for (of, outcome), n in self.outcomes.items() if of == kind}
            how = ", ".join(f"{outcome} {n:,}" for outcome, n in sorted(ends.items(), key=lambda end: -end[1]))
            numbers = f"{self.inputs[kind]:>9,}{self.entities[kind]:>12,}"
            lines.append(f"{kind:10}{numbers}{self.slowest[kind]:>11.1f}{self.largest[kind]:>9.0f}  {how}")
        reasons = ", ".join(f"{reason} {n:,}" for reason, n in sorted(self.skipped.items(), key=lambda row: -row[1]))
        return "\n".join([*lines, f"passed over: {reasons or 'nothing'}"])


def warm_up(folder: Path) -> None:
    """Import what readers import, so that no input pays for it."""
    folder.mkdir()
    (folder / "MRCONSO.RRF").write_text(CONSO)
    (folder / "yago-facts.ttl").write_text(turtle(FACTS))
    (folder / "toes.obo").write_text(TOES)
    (folder / "toes.json").write_text(GRAPH)
    (folder / "dump.json").write_bytes(DUMP)
    (folder / "base.csv").write_text(CSV)
    (folder / "base.jsonl").write_text(JSONL)
    for form, content in written_tables().items():
        (folder / form).write_bytes(content)
    (folder / "base.tsv.zst").write_bytes(zstandard.compress(b"Q1\tname\n"))
    for path in folder.iterdir():
        with open_reader([path]) as reader:
            scan(reader, ReadReport())


@click.command()
@click.option("--minutes", default=10.0, show_default=True, help="For how long.")
@click.option("--seed", "first", default=1, show_default=True, help="The first batch is a million times this.")
@click.option("--batches", type=int, help="Stop after so many of each reader.")
@click.option("--reader", "kinds", multiple=True, type=click.Choice(list(INPUTS)), help="Only these.")
@click.option("--only", metavar="READER:N", help="One batch, as a failure names it.")
@click.option("--keep", type=click.Path(path_type=Path), default=Path("fuzz-failures"), show_default=True)
def main(minutes: float, first: int, batches: int | None, kinds: tuple[str, ...], only: str | None, keep: Path) -> None:
    """Give bases to readers until the time is over."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="pearl-qdrant-fuzz-") as scratch:
        warm_up(Path(scratch) / "warm")
        (Path(scratch) / "base").mkdir()
        child = Child(Path(scratch) / "base")
        fuzzer = Fuzzer(child, keep)
        for number in (signal.SIGTERM, signal.SIGINT):  # what was done until then is told
            signal.signal(number, fuzzer.stop)
        if only is not None:
            kind, _, batch = only.partition(":")
            fuzzer.read_batch(kind, int(batch.partition(".")[0]))
        else:
            fuzzer.read_batches(kinds or tuple(INPUTS), first * 1_000_000, batches, start + 60 * minutes)
        child.close()
    click.echo(fuzzer.table())
    stopped = ", stopped by a signal" if fuzzer.is_stopped else ""
    click.echo(f"seed {first}: {len(fuzzer.failures)} failures in {time.monotonic() - start:.0f} s{stopped}")
    sys.exit(bool(fuzzer.failures) or fuzzer.is_stopped)


if __name__ == "__main__":
    main()
