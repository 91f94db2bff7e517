"""A Ray cluster that encodes the names of a load and writes them to a Qdrant server, by Ray Data.

    read, compare    here: what the server lacks, in windows of names
    map_batches      by an actor a GPU, or without GPUs one a core: encode a window, write it, wait until it is stored
    count, graph     here, and by the server

A window is written whole before it counts, and writing it twice changes nothing: so Ray starts a killed actor again, as
often as it takes, and gives it its window once more, and after a kill of this process the same command goes on with
what lacks.

Nothing of Ray is imported before a cluster is asked for.
"""

from __future__ import annotations

import logging
import os
import pickle
import socket
import time
import traceback
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from ingest.base.reader import Hashes
from ingest.load.pipeline import RepeatedNames, Window, Written, names_of, overlap, write_window
from ingest.load.request import LoadRequest
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.errors import OptionError, PearlQdrantError, SettingsError, StoreError
from pearl_qdrant.installing import install_command
from pearl_qdrant.settings import ServerAccess, is_url
from pearl_qdrant.store.open import location_of, open_store
from pearl_qdrant.store.protocol import Collection
from pearl_qdrant.store.schema import Manifest

if TYPE_CHECKING:
    import pyarrow as pa

AUTO = "auto"  # In place of an address: a cluster that is started on this machine, for this load alone

WINDOWS = 50
"""Windows that the cluster holds at once, at most, for each worker: 40 MB of names; as many are read meanwhile."""

_ANSWER_S = 10.0
_TRIES = 3  # a cluster that starts has 15 seconds for its agents, which a busy machine may not give at first
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_BACKEND_LOG_LEVEL": "fatal"}
"""Ray sends nothing anywhere, and prints no tips."""


@dataclass(frozen=True, slots=True)
class Job:
    """What every worker knows. Key and certificates of the server are in no file of ours."""

    model: str
    device: str
    pooling: str | None
    prefix: str | None
    location: str
    access: ServerAccess
    wait_s: float
    manifest: Manifest
    repeated: Hashes
    threads: int


class RayCluster:
    """Writes the windows of a load by the workers of a Ray cluster."""

    def __init__(self, request: LoadRequest) -> None:
        """Connect to a cluster, or start one. Raises OptionError if the model is an encoder, Ray is not installed, or
        no cluster answers; SettingsError if the store is embedded.
        """
        address, self._location, self._request = request.ray or AUTO, location_of(request.store), request
        if not is_url(self._location):
            raise SettingsError(
                f"Workers of Ray write to a Qdrant server; the embedded store at {self._location} is one machine's. "
                f"Give the URL of a server as the store.",
                option="store",
            )
        if not isinstance(request.model, (str, os.PathLike)):
            message = "Workers of Ray load the model themselves: give its name or folder, not an encoder."
            raise OptionError("model", message)
        self._model = os.fspath(request.model)
        ray = _import_ray()
        self._is_ours = not ray.is_initialized()
        if self._is_ours:
            _connect(ray, address)
        resources = ray.cluster_resources()
        cores, gpus = int(resources.get("CPU", 1)), int(resources.get("GPU", 0))
        self._workers = max(1, gpus or cores)
        self._cores, self._gpus = max(1, cores // self._workers), 1 if gpus else 0

    def write(self, manifest: Manifest, repeated: Hashes, windows: Iterable[Window]) -> Generator[Written, None, None]:
        """Encode and write all windows, and yield what is stored of each. Raises the PearlQdrantError of a worker;
        StoreError if Ray fails.
        """
        ray, asked = _import_ray(), self._request
        given = self._model, asked.device, asked.pooling, asked.prefix, self._location, ServerAccess.from_environment()
        job = Job(*given, asked.wait_s, manifest, repeated, self._cores)
        ray.data.DataContext.get_current().enable_progress_bars = False
        logging.getLogger("ray.data").setLevel(logging.CRITICAL)
        try:
            with closing(overlap(self._put(windows), 1)) as read:
                for some in read:
                    written = ray.data.from_arrow_refs(some).map_batches(
                        _Writer,
                        batch_size=1,
                        batch_format="pyarrow",
                        fn_constructor_args=(job,),
                        compute=ray.data.ActorPoolStrategy(size=min(self._workers, len(some))),
                        num_cpus=self._cores,
                        num_gpus=self._gpus,
                    )
                    for row in written.iter_rows():
                        if row["error"]:
                            raise pickle.loads(row["error"])  # noqa: S301 - made by a worker of this load
                        yield row["entities"], row["names"], row["seconds"]
        except ray.exceptions.RayError as error:
            last = traceback.format_exception_only(type(error), error)[-1].strip()
            advice = "The same command goes on; if workers are killed, take fewer a machine."
            raise StoreError(f"Ray failed: {last}. {advice}") from error

    def _put(self, windows: Iterable[Window]) -> Iterator[list[Any]]:
        """Give windows to the cluster, so many at once that its memory is bounded."""
        import pyarrow as pa

        ray, rows = _import_ray(), map(msgspec.json.encode, windows)
        while refs := [ray.put(pa.table({"window": [row]})) for row in islice(rows, WINDOWS * self._workers)]:
            yield refs

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        if self._is_ours:
            _import_ray().shutdown()


class _Writer:
    """What an actor does with each window. Errors of ours are answers: Ray would wrap them and start anew."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._opened: tuple[RepeatedNames, Collection] | None = None

    def __call__(self, batch: pa.Table) -> dict[str, list[Any]]:
        window = msgspec.json.decode(batch["window"][0].as_py(), type=Window)
        try:
            self._opened = self._opened or self._open()
            encoder, target = self._opened
            start = time.perf_counter()
            encoded = encoder.encode(names_of(window))
            seconds = time.perf_counter() - start
            with target.writer() as writer:
                n_names = write_window(writer, target.manifest.kb, window, encoded)
                writer.flush()
        except PearlQdrantError as error:
            return {"entities": [0], "names": [0], "seconds": [0.0], "error": [pickle.dumps(error)]}
        return {"entities": [len(window)], "names": [n_names], "seconds": [seconds], "error": [b""]}

    def _open(self) -> tuple[RepeatedNames, Collection]:
        """Load the encoder, which runs a batch a core of this actor at once, and open the collection."""
        job = self._job
        encoder = load_encoder(
            job.model, device=job.device, pooling=job.pooling, prefix=job.prefix, threads=job.threads
        )
        job.manifest.check_model(encoder.info)
        target = open_store(job.location, access=job.access, wait_s=job.wait_s).open(job.manifest.collection)
        return RepeatedNames(encoder, job.repeated), target


def _import_ray() -> Any:
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray
        import ray.data
        import ray.exceptions
    except ImportError as error:
        raise OptionError("ray", f"Ray is not installed. Install it with: {install_command('ray')}") from error
    return ray


def _connect(ray: Any, address: str) -> None:
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address == AUTO:
        options |= {"include_dashboard": False}
    try:
        if address != AUTO:
            _check_answers(address)
        for n_left in reversed(range(_TRIES if address == AUTO else 1)):
            try:
                ray.init(address="local" if address == AUTO else address, **options)
                break
            except Exception:  # Ray's own, of no class
                ray.shutdown()
                if not n_left:
                    raise
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
