"""Build parts by workers of a Ray cluster, through Ray Data: a row a part, an actor with an encoder a core or GPU.

Ray starts an actor again that was killed, and gives its part to it or to another one; the part then goes on behind its
last checkpoint. When the driver is killed, Ray ends its workers, and the same command goes on with what is left.

Nothing of Ray is imported before a cluster is asked for.
"""

from __future__ import annotations

import logging
import os
import queue
import socket
import threading
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ingest.spread.work import PartResult
from ingest.spread.worker import Job, OnNames, PartBuilder
from pearl_qdrant import errors
from pearl_qdrant.errors import OptionError, PearlQdrantError, StoreError
from pearl_qdrant.installing import install_command

AUTO = "auto"
"""In place of an address: a cluster that is started on this machine, for this load alone."""

_POLL_S = 0.5
_ANSWER_S = 10.0
_TRIES = 3  # a cluster that starts has 15 seconds for its agents, which a busy machine may not give at first
_OBJECT_STORE_BYTES = 100 * 1024 * 1024  # only numbers of parts and counts are exchanged
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_BACKEND_LOG_LEVEL": "fatal"}
"""Ray sends nothing anywhere, and prints no tips."""

Row = dict[str, Any]


class RayRunner:
    """A `driver.Runner` on a Ray cluster.

    Attributes:
        workers: Actors that it will have: one a GPU, or without GPUs one a core.
    """

    def __init__(self, address: str) -> None:
        """Connect to a cluster, or start one.

        Args:
            address: As `ray` of `load_base_in_parts`.

        Raises:
            OptionError: If Ray is not installed, or no cluster answers.
        """
        ray = _import_ray()
        self._is_ours = not ray.is_initialized()
        if self._is_ours:
            _connect(ray, address)
        resources = ray.cluster_resources()
        cores, gpus = int(resources.get("CPU", 1)), int(resources.get("GPU", 0))
        self.workers = max(1, gpus or cores)
        self._cores = max(1, cores // self.workers)
        self._gpus = 1 if gpus else 0

    def __call__(self, job: Job, parts: Sequence[int], on_names: OnNames) -> Iterator[PartResult]:
        """Build the parts; see `driver.Runner`.

        Raises:
            PearlQdrantError: The error of a worker.
            StoreError: If Ray itself fails.
        """
        try:
            yield from self._run(job, parts, on_names)
        finally:
            self.close()

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        if self._is_ours:
            _import_ray().shutdown()

    def _run(self, job: Job, parts: Sequence[int], on_names: OnNames) -> Iterator[PartResult]:
        ray = _import_ray()
        progress = ray.remote(num_cpus=0, max_restarts=-1)(_Progress).remote()
        rows: queue.SimpleQueue[Row | None] = queue.SimpleQueue()
        thread = threading.Thread(target=self._fill, args=(rows, job, parts, progress), daemon=True)
        thread.start()
        while True:
            try:
                row = rows.get(timeout=_POLL_S)
            except queue.Empty:
                _drain(ray, progress, on_names)
                continue
            if row is None:
                return
            _drain(ray, progress, on_names)
            if "kind" in row:
                raise _as_error(row)
            yield msgspec.convert(row, PartResult)

    def _fill(self, rows: queue.SimpleQueue[Row | None], job: Job, parts: Sequence[int], progress: Any) -> None:
        """Run the pipeline of Ray Data, and put what it yields into a queue."""
        try:
            import ray.data

            ray.data.DataContext.get_current().enable_progress_bars = False
            pool = ray.data.ActorPoolStrategy(size=min(self.workers, len(parts)), max_tasks_in_flight_per_actor=1)
            built = ray.data.from_items([{"part": part} for part in parts], override_num_blocks=len(parts)).map(
                _Worker,  # type: ignore[arg-type] # a class makes actors
                fn_constructor_args=(job, self._cores, progress),
                compute=pool,
                num_cpus=self._cores,
                num_gpus=self._gpus,  # actors and their parts are started again without end, by default
            )
            if not logging.getLogger().isEnabledFor(logging.INFO):
                logging.getLogger("ray.data").setLevel(logging.ERROR)  # Ray has just set it
            for row in built.iter_rows():
                rows.put(row)
        except BaseException as error:  # noqa: BLE001 - it is raised again by the thread that reads the queue
            rows.put(_as_row(error))
        rows.put(None)


class _Worker:
    """The actor: an encoder, and a part a row. Errors of ours travel as rows: Ray would run the part again."""

    def __init__(self, job: Job, cores: int, progress: Any) -> None:
        self._progress = progress
        self._builder: PartBuilder | None = None
        self._error: Row | None = None
        try:
            self._builder = PartBuilder(job, threads=cores)
        except PearlQdrantError as error:
            self._error = _as_row(error)

    def __call__(self, row: Row) -> Row:
        if self._builder is None:
            return self._error or {}
        try:
            return msgspec.structs.asdict(self._builder.build(int(row["part"]), self._report))
        except PearlQdrantError as error:
            return _as_row(error)

    def _report(self, part: int, names: int) -> None:
        self._progress.add.remote(part, names)


class _Progress:
    """An actor that adds up what the workers report."""

    def __init__(self) -> None:
        self._names: dict[int, int] = {}

    def add(self, part: int, names: int) -> None:
        self._names[part] = self._names.get(part, 0) + names

    def drain(self) -> dict[int, int]:
        """The names of each part since the last call."""
        names, self._names = self._names, {}
        return names


def _drain(ray: Any, progress: Any, on_names: OnNames) -> None:
    try:
        names = ray.get(progress.drain.remote(), timeout=_POLL_S)
    except (ray.exceptions.RayError, TimeoutError):  # progress is not worth a failed load
        return
    for part, n_names in names.items():
        on_names(part, n_names)


def _import_ray() -> Any:
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise OptionError("ray", f"Ray is not installed. Install it with: {install_command('ray')}") from error
    return ray


def _connect(ray: Any, address: str) -> None:
    """Connect to a cluster, or start one on this machine."""
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address == AUTO:
        options |= {"include_dashboard": False, "object_store_memory": _OBJECT_STORE_BYTES}
    tries = _TRIES if address == AUTO else 1
    try:
        if address != AUTO:
            _check_answers(address)
        while True:
            tries -= 1
            try:
                ray.init(address="local" if address == AUTO else address, **options)
            except Exception:  # Ray's own, of no class
                ray.shutdown()
                if not tries:
                    raise
            else:
                return
    except Exception as error:
        lines = str(error).strip().splitlines()
        raise OptionError(
            "ray",
            f"No Ray cluster answers at '{address}' ({lines[0] if lines else type(error).__name__}). Start one "
            f"by Ray's command 'ray start' and give the address that it prints, or 'auto' for one on this machine.",
        ) from error


def _check_answers(address: str) -> None:
    """Refuse an address where nobody listens: Ray itself would try for minutes."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError("give HOST:PORT")
    socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_S).close()


def _as_row(error: BaseException) -> Row:
    """An error as a row that can be sent."""
    if isinstance(error, PearlQdrantError):
        return {"kind": type(error).__name__, "message": str(error), "option": error.option or ""}
    last = traceback.format_exception_only(type(error), error)[-1].strip()
    return {"kind": "StoreError", "message": f"Ray failed: {last}. The same command goes on.", "option": ""}


def _as_error(row: Row) -> PearlQdrantError:
    """Reverse `_as_row`; a class that takes other arguments becomes the nearest one that takes a message."""
    kind = getattr(errors, row["kind"], PearlQdrantError)
    option = row["option"] or None
    for one in kind.__mro__:
        if one in (StoreError, errors.ModelError, PearlQdrantError):
            return one(row["message"], option=option)
    return PearlQdrantError(row["message"], option=option)
