"""What builds the parts of a load: this process, or a Ray cluster, by an actor with an encoder for each core or GPU.

Ray starts an actor again that was killed, and gives it its part once more, which then lacks less. When the driver is
killed, Ray ends its workers, and the same command goes on with what is left.

Nothing of Ray is imported before a cluster is asked for.
"""

from __future__ import annotations

import logging
import os
import socket
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ingest.load.request import LoadEvents, LoadRequest
from ingest.spread.parts import CUT_FILES, Job, PartBuilder, PartResult, Runner
from pearl_qdrant.errors import OptionError, PearlQdrantError, SettingsError, StoreError
from pearl_qdrant.installing import install_command
from pearl_qdrant.settings import is_url
from pearl_qdrant.store.edge.store import EdgeStore
from pearl_qdrant.store.open import location_of
from pearl_qdrant.store.protocol import Placement

AUTO = "auto"  # In place of an address: a cluster that is started on this machine, for this load alone

MAX_STARTS = 20
"""A worker that was started again so often is given up: it is killed each time, probably because memory runs out."""

_ANSWER_S = 10.0
_TRIES = 3  # a cluster that starts has 15 seconds for its agents, which a busy machine may not give at first
_OBJECT_STORE_BYTES = 100 * 1024 * 1024  # only numbers of parts and counts are exchanged
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_BACKEND_LOG_LEVEL": "fatal"}
"""Ray sends nothing anywhere, and prints no tips."""


def start_runner(request: LoadRequest) -> Runner:
    """What builds the parts. Raises OptionError if there are too many, workers cannot open the store or load the model,
    or Ray does not answer; SettingsError if an embedded store is given a placement.
    """
    parts, store = request.parts, request.store
    if parts is not None and not 1 <= parts <= CUT_FILES:
        raise OptionError("parts", f"A base has from 1 to {CUT_FILES} parts, not {parts}.")
    location = location_of(store)
    if not is_url(location):
        if store is not None and not isinstance(store, (str, os.PathLike, EdgeStore)):
            raise OptionError("store", "A base in parts goes to a folder, or to a server by its URL.")
        if request.placement not in (None, Placement()):
            message = f"The embedded store at {location} has no shards or replicas. Use a Qdrant server as the store."
            raise SettingsError(message, option="store")
    if request.ray is None:
        return RunnerHere()
    if not isinstance(request.model, (str, os.PathLike)):
        raise OptionError("model", "Workers of Ray load the model themselves: give its name or folder, not an encoder.")
    return RayRunner(request.ray)


class RunnerHere:
    """Builds the parts in this process, one after the other: memory is bounded by the largest part."""

    workers = 1

    def __call__(self, job: Job, parts: Sequence[int], on_names: Callable[[int], None]) -> Iterator[PartResult]:
        builder, events = PartBuilder(job), LoadEvents()
        events.names_done = on_names  # type: ignore[method-assign, assignment]  # and nothing else of a part
        for part in parts:
            yield builder.build(part, events)

    def close(self) -> None: ...


class RayRunner:
    """A `parts.Runner` on a Ray cluster: an actor a GPU, or without GPUs one a core."""

    def __init__(self, address: str) -> None:
        """Connect to a cluster, or start one. Raises OptionError if Ray is not installed, or no cluster answers."""
        ray = _import_ray()
        self._is_ours = not ray.is_initialized()
        if self._is_ours:
            _connect(ray, address)
        resources = ray.cluster_resources()
        cores, gpus = int(resources.get("CPU", 1)), int(resources.get("GPU", 0))
        self.workers = max(1, gpus or cores)
        self._cores = max(1, cores // self.workers)
        self._gpus = 1 if gpus else 0

    def __call__(self, job: Job, parts: Sequence[int], on_names: Callable[[int], None]) -> Iterator[PartResult]:
        """Build the parts; see `parts.Runner`. Raises the PearlQdrantError of a worker; StoreError if Ray fails."""
        ray = _import_ray()
        actor = ray.remote(
            num_cpus=self._cores, num_gpus=self._gpus, max_restarts=MAX_STARTS, max_task_retries=MAX_STARTS
        )(_Worker)
        free = [actor.remote(job, self._cores) for _ in range(min(self.workers, len(parts)))]
        waiting, busy = list(parts), dict[Any, Any]()
        try:
            while waiting or busy:
                while waiting and free:
                    worker = free.pop()
                    busy[worker.build.remote(waiting.pop(0))] = worker
                (done, *_), _ = ray.wait(list(busy), num_returns=1)
                free.append(busy.pop(done))
                found: PartResult | PearlQdrantError = ray.get(done)
                if isinstance(found, PearlQdrantError):
                    raise found
                on_names(found.names)
                yield found
        except ray.exceptions.RayError as error:
            last = traceback.format_exception_only(type(error), error)[-1].strip()
            advice = "The same command goes on; if workers are killed, take more parts, or fewer workers a machine."
            raise StoreError(f"Ray failed: {last}. {advice}") from error
        finally:
            self.close()

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        if self._is_ours:
            _import_ray().shutdown()


class _Worker:
    """The actor: an encoder, and a part a call. Errors of ours are answers: Ray would wrap them and start anew."""

    def __init__(self, job: Job, cores: int) -> None:
        self._job, self._cores = job, cores
        self._builder: PartBuilder | None = None

    def build(self, part: int) -> PartResult | PearlQdrantError:
        try:
            self._builder = self._builder or PartBuilder(self._job, threads=self._cores)
            return self._builder.build(part)
        except PearlQdrantError as error:
            return error


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
