"""The parent's side of the child process that holds a shard during a load, or while the graph is built.

Edge's growing segments take anonymous memory that a process never returns, and `update` and `optimize` hold the
interpreter lock. In a child the memory is returned at its end, the parent's encoder keeps running, and Ctrl-C can stop
it. They exchange frames over the child's standard input and output: one answer for each request.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Literal

from pearl_qdrant.errors import StoreError
from pearl_qdrant.store.edge import shard as edge_shard
from pearl_qdrant.store.resources import resource_error
from pearl_qdrant.store.schema import Quantization

MODULE = "pearl_qdrant.store.edge.child_main"

POINTS, FLUSH, COMPACT, FINISH = b"P", b"F", b"C", b"E"
"""Requests: write a batch; flush; compact, flush and exit; flush and exit."""

OK, FAILED = b"+", b"!"

Answer = dict[str, Any]

_STDERR_CHARS = 2000  # characters of a dead child's standard error that an error message shows
_EXIT_S = 60.0  # a child flushes before it exits


@dataclass(frozen=True, slots=True)
class Job:
    """The job of a child: what it does to which shard, with how many links and candidates of the graph.

    Segments from `threshold_kb` of vectors on are compacted, or get a graph. With `has_graph`, compacted segments have
    one already, so that new ones need it too. Beyond `small_points` a load drops the payload indexes until the graph is
    built. A growing segment is compacted at `compact_points`, without payload indexes at `compact_unindexed_points`.
    """

    task: Literal["load", "finalize"]
    collection: str
    shard: str
    dim: int
    threshold_kb: int
    quantization: Quantization
    has_graph: bool
    graph_m: int
    graph_ef_construct: int
    parts: int
    small_points: int
    compact_points: int
    compact_unindexed_points: int


def send(stream: IO[bytes], kind: bytes, body: object = b"") -> None:
    """Send a request or an answer: its kind, and a body that can be pickled."""
    pickle.dump((kind, body), stream, protocol=pickle.HIGHEST_PROTOCOL)
    stream.flush()


def receive(stream: IO[bytes]) -> tuple[bytes, Any] | None:
    """Read the next request or answer; None if the other side has closed the pipe, even within one."""
    try:
        kind, body = pickle.load(stream)  # noqa: S301 - our own parent or child sent it
    except (EOFError, pickle.UnpicklingError):
        return None
    return kind, body


class EdgeProcess:
    """One child. It first sends an answer by itself, when it is ready. After an error it exits."""

    def __init__(self, job: Job) -> None:
        self._job = job
        command, environment, folder = python_child(MODULE)
        try:
            self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `end`
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [*command, json.dumps(asdict(job))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                cwd=folder,
                env=environment,
            )
        except OSError as error:  # also if the disk is full: then there is no folder for temporary files
            if hasattr(self, "_stderr"):
                self._stderr.close()
            failed = f"Cannot start the process that writes collection '{job.collection}'"
            raise resource_error(error, failed) or StoreError(
                f"{failed} ({error}). Free some space, or point TMPDIR to another disk."
            ) from error

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._process.pid

    def receive_answer(self) -> Answer:
        """Wait for the next answer; StoreError if the child reports an error, or died."""
        assert self._process.stdout is not None
        frame = receive(self._process.stdout)
        if frame is None:
            raise self._died()
        if frame[0] == FAILED:
            raise frame[1]
        answer: Answer = frame[1]
        return answer

    def send(self, kind: bytes, body: bytes = b"") -> None:
        """Send a request, whose answer is to be received."""
        assert self._process.stdin is not None
        with suppress(OSError):  # the child has exited; it may have sent an error before
            send(self._process.stdin, kind, body)

    def request(self, kind: bytes, body: bytes = b"") -> Answer:
        """Send a request and wait for its answer; errors as in `receive_answer`."""
        self.send(kind, body)
        return self.receive_answer()

    def end(self) -> None:
        """Close the pipes and wait: the child then flushes and exits. If it does not, it is killed."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):  # data that a dead child did not read
                    pipe.close()
        try:
            self._process.wait(_EXIT_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._stderr.close()

    def kill(self) -> None:
        """Kill the child; what it has acknowledged is kept."""
        self._process.kill()
        self._process.wait()

    def _died(self) -> StoreError:
        """Make the error for a child that has exited without an answer."""
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
            return edge_shard.disk_full_error(name, what, doing="building its graph" if is_graph else "writing to it")
        if is_bus:
            why += f": a write to a mapped file failed, although {free / 1e6:,.0f} MB are free now"
        elif -code == getattr(signal, "SIGKILL", None):
            why += ", perhaps because memory ran out"
        self._stderr.seek(0)
        output = self._stderr.read().decode("utf-8", "replace").strip()[-_STDERR_CHARS:]
        doing = "builds the graph of" if is_graph else "writes"
        if (lack := resource_error(output, f"The process that {doing} collection '{name}' {why}")) is not None:
            return lack
        kept = "is stored in it" if is_graph else "it had acknowledged"
        return StoreError(
            f"The process that {doing} collection '{name}' {why}. What {kept} is kept; run the same command again to "
            f"resume." + (f"\nIts last output: {output}" if output else "")
        )

    def _free_bytes(self) -> int:
        """Return the free space on the shard's disk; unlimited if the shard is gone."""
        try:
            return shutil.disk_usage(Path(self._job.shard).parent).free
        except OSError:
            return sys.maxsize


def python_child(module: str) -> tuple[list[str], dict[str, str], Path]:
    """Return command, environment and working folder that run a module of this package in a new process."""
    root = Path(__file__).resolve().parents[3]
    search = [str(root), *(str(Path(entry).resolve()) for entry in sys.path if entry)]
    # `-m` puts the working folder first in the child's search path.
    return [sys.executable, "-m", module], {**os.environ, "PYTHONPATH": os.pathsep.join(search)}, root


def why_ended(code: int) -> str:
    """Describe how a process ended, as in "was killed by SIGKILL"."""
    if code >= 0:
        return f"ended with status {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
