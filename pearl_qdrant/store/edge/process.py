"""The child process that holds a shard during a load or while the graph is built, as seen from the parent.

Edge's growing segments take anonymous memory that a process does not give back, and `update` and `optimize` hold the
interpreter lock. In a process of their own the memory goes with the process, the parent's encoder runs on, and
Ctrl-C can end it. Parent and child talk in frames over the child's standard input and output: one request, one
answer.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Literal

from pearl_qdrant.errors import StoreError, StoreFullError, StoreLockedError
from pearl_qdrant.store.edge import shard as edge_shard
from pearl_qdrant.store.schema import Quantization

MODULE = "pearl_qdrant.store.edge.writer"

POINTS, FLUSH, COUNT, COMPACT, FINISH = b"P", b"F", b"N", b"C", b"E"
"""Requests: write a batch; flush; count points; compact, flush and exit; flush and exit."""

OK, FAILED = b"+", b"!"

Answer = dict[str, Any]

_HEADER = struct.Struct("!cI")
_STDERR_TAIL = 2000  # characters of a dead child's standard error that an error shows
_EXIT_S = 60.0  # a child that was told to exit flushes first


@dataclass(frozen=True, slots=True)
class Job:
    """What a child is to do.

    Attributes:
        task: "load" or "finalize".
        collection: Name, for errors.
        shard: Folder of the shard.
        dim: Width of the vectors.
        has_lexical: Whether there are sparse vectors, to be made of the names.
        threshold_kb: Vectors from which a segment is made compact, or gets a graph, in KB.
        quantization: How the segments with a graph keep their vectors.
        has_graph: Whether compacted segments carry a graph already, and new ones must too.
        graph_m, graph_ef_construct: Its links, and candidates while it is built.
        small_points: Beyond so many points a load drops the payload indexes, until the graph is built.
        compact_points: Points in the growing segment at which it is compacted, with payload indexes.
        compact_lean_points: The same without them.
    """

    task: Literal["load", "finalize"]
    collection: str
    shard: str
    dim: int
    has_lexical: bool
    threshold_kb: int
    quantization: Quantization
    has_graph: bool
    graph_m: int
    graph_ef_construct: int
    small_points: int
    compact_points: int
    compact_lean_points: int

    def dump(self) -> str:
        """As JSON, for the command line."""
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> Job:
        """The reverse of `dump`."""
        return cls(**json.loads(text))


def send(stream: IO[bytes], kind: bytes, body: bytes = b"") -> None:
    """Send one frame: a byte of kind, the length, the body."""
    stream.write(_HEADER.pack(kind, len(body)))
    stream.write(body)
    stream.flush()


def receive(stream: IO[bytes]) -> tuple[bytes, bytes] | None:
    """Kind and body of the next frame; None where the other side has gone, in the middle of a frame too."""
    header = stream.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None
    kind, size = _HEADER.unpack(header)
    body = stream.read(size)
    return (kind, body) if len(body) == size else None


class EdgeProcess:
    """One child. `wait_ready` must come first; any error ends it."""

    def __init__(self, job: Job) -> None:
        self._job = job
        try:
            self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `end`
        except OSError as error:  # a full disk, too: then no folder takes temporary files
            raise StoreError(
                f"Cannot start the process that writes collection '{job.collection}' ({error}). Free some space, or "
                f"point TMPDIR to another disk."
            ) from error
        command, environment, folder = python_child(MODULE)
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [*command, job.dump()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                cwd=folder,
                env=environment,
            )
        except OSError as error:
            self._stderr.close()
            raise StoreError(
                f"Cannot start the process that writes collection '{job.collection}' ({sys.executable}: {error})."
            ) from error

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    def wait_answer(self) -> Answer:
        """Wait for the next answer.

        Raises:
            StoreError: What the child failed with, or that it died.
        """
        assert self._process.stdout is not None
        frame = receive(self._process.stdout)
        if frame is None:
            raise self._died()
        kind, body = frame
        answer: Answer = json.loads(body)
        if kind == FAILED:
            raise _error_from(answer, self._job.collection)
        return answer

    def request(self, kind: bytes, body: bytes = b"") -> Answer:
        """Send a request and wait for its answer; errors as in `wait_answer`."""
        assert self._process.stdin is not None
        try:
            send(self._process.stdin, kind, body)
        except OSError:  # the answer, if there is one, says why it has gone
            return self.wait_answer()
        return self.wait_answer()

    def end(self) -> None:
        """Close the pipes and wait: a child that is left alone flushes and exits. One that does not is killed."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:  # what was not sent to a dead child
                    continue
        try:
            self._process.wait(_EXIT_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._stderr.close()

    def kill(self) -> None:
        """Kill it; what it had acknowledged is kept."""
        self._process.kill()
        self._process.wait()

    def _died(self) -> StoreError:
        """Why the child has gone without an answer."""
        try:
            code = self._process.wait(_EXIT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            code = self._process.returncode
        name, is_graph = self._job.collection, self._job.task == "finalize"
        why = why_ended(code)
        is_bus = -code == getattr(signal, "SIGBUS", None)
        free = self._free_bytes()
        if free < (edge_shard.MIN_FREE_BYTES if is_bus else edge_shard.OPEN_BYTES):
            what = f"{free / 1e6:,.0f} MB free; the process that writes it {why}"
            return edge_shard.full_error(name, what, doing="building its graph" if is_graph else "writing to it")
        if is_bus:
            why += (
                f", a write to a mapped file that failed though {free / 1e6:,.0f} MB are free now: the disk was full "
                f"for a moment, a quota is used up, or the disk fails"
            )
        elif -code == getattr(signal, "SIGKILL", None):
            why += ", perhaps because memory ran out"
        self._stderr.seek(0)
        said = self._stderr.read().decode("utf-8", "replace").strip()[-_STDERR_TAIL:]
        doing = "builds the graph of" if is_graph else "writes"
        kept = "is stored in it" if is_graph else "it had acknowledged"
        return StoreError(
            f"The process that {doing} collection '{name}' {why}. What {kept} is kept; run the same command again to "
            f"go on." + (f"\nIts last words: {said}" if said else "")
        )

    def _free_bytes(self) -> int:
        """Space left where the shard lies; without an end if it has gone."""
        try:
            return shutil.disk_usage(Path(self._job.shard).parent).free
        except OSError:
            return sys.maxsize


def python_child(module: str) -> tuple[list[str], dict[str, str], Path]:
    """What starts a module of this package in a process: command, environment and working folder."""
    root = Path(__file__).resolve().parents[3]
    search = [str(root), *(str(Path(entry).resolve()) for entry in sys.path if entry)]
    # `-m` puts the working folder first in the child's path.
    return [sys.executable, "-m", module], {**os.environ, "PYTHONPATH": os.pathsep.join(search)}, root


def why_ended(code: int) -> str:
    """How a process ended, as in "was killed by SIGKILL"."""
    if code >= 0:
        return f"ended with status {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def dump_error(error: StoreError) -> bytes:
    """An error as the body of a FAILED frame."""
    kind = "full" if isinstance(error, StoreFullError) else "locked" if isinstance(error, StoreLockedError) else "store"
    owner = error.owner if isinstance(error, StoreLockedError) else ""
    return json.dumps({"kind": kind, "message": str(error), "owner": owner}).encode()


def _error_from(answer: Answer, collection: str) -> StoreError:
    """The reverse of `dump_error`."""
    if answer["kind"] == "locked":
        return StoreLockedError(collection, answer["owner"])
    return (StoreFullError if answer["kind"] == "full" else StoreError)(answer["message"])
