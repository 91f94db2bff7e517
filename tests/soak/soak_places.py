"""The stores of the soak: an embedded store in a folder, and the Qdrant double in this process; read back raw."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any, Literal, Protocol, cast

import numpy as np
from qdrant_double import QdrantDouble
from qdrant_double_http import DoubleServer, Fault, handler_of

from pearl_qdrant.store.server.collection import CHECKPOINT_PREFIX, MANIFEST_KEY

COLLECTION = "base"

StoreKind = Literal["edge", "server"]

_TOLERANCE = 1e-6
"""Of vectors and probabilities: a name's last bits depend on the names that it was encoded with."""


@dataclass
class Contents:
    """All points of a collection as the engine returns them.

    Attributes:
        points: Payload and vector (or None) by id.
        n_records: Points returned by the scroll; more than `points` if one was returned twice.
        n_counted: The engine's exact count.
        manifest: The collection's manifest.
    """

    points: dict[str, tuple[dict[str, Any], list[float] | None]]
    n_records: int
    n_counted: int
    manifest: dict[str, Any]


@dataclass
class Difference:
    """The difference of a collection from the expected one."""

    lost: int = 0
    doubled: int = 0
    different: int = 0
    notes: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.lost or self.doubled or self.different or self.notes)


class Place(Protocol):
    """A store in which loads are killed."""

    kind: StoreKind

    @property
    def location(self) -> str:
        """For `--store`."""
        ...

    def reset(self) -> None:
        """Empty it."""
        ...

    def manifest(self) -> dict[str, Any] | None:
        """Of the collection, if it is there."""
        ...

    def contents(self) -> Contents:
        """Return its contents; no other process may have it open."""
        ...


def stored_entities(manifest: dict[str, Any] | None) -> int:
    """Return the stored entities of the checkpoint; there is one input, so at most one checkpoint."""
    return sum(checkpoint["entities"] for checkpoint in (manifest or {}).get("checkpoints", ()))


class EdgePlace:
    """A folder."""

    kind: StoreKind = "edge"

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "store"

    @property
    def location(self) -> str:
        return str(self.folder)

    @property
    def collection(self) -> Path:
        """The collection's folder."""
        return self.folder / COLLECTION

    def reset(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def manifest(self) -> dict[str, Any] | None:
        for folder in (self.collection / "work", self.collection):  # a load that runs, or was killed
            with suppress(FileNotFoundError):
                return cast("dict[str, Any]", json.loads((folder / "manifest.json").read_bytes()))
        return None

    def contents(self) -> Contents:
        from qdrant_edge import ScrollRequest

        from pearl_qdrant.store.edge.content import read_content, take_files
        from pearl_qdrant.store.edge.shard import count_points, load_shard

        points: dict[str, tuple[dict[str, Any], list[float] | None]] = {}
        n_records, offset = 0, None
        taken = self.folder.with_name("taken")
        shutil.rmtree(taken, ignore_errors=True)
        files = read_content(self.collection, COLLECTION)[1].files
        take_files(self.collection, COLLECTION, files, taken)
        shard = load_shard(taken, COLLECTION)
        try:
            while True:
                request = ScrollRequest(offset=offset, limit=500, with_payload=True, with_vector=True)
                records, offset = shard.scroll(request)
                for record in records:
                    payload = dict(record.payload or {})
                    payload["record"] = json.loads(payload["record"])
                    points[str(record.id)] = (payload, _vector(record.vector))
                n_records += len(records)
                if offset is None:
                    break
            manifest = {
                key: value for key, value in (self.manifest() or {}).items() if key not in {"content", "checksum"}
            }
            return Contents(points, n_records, count_points(shard), manifest)
        finally:
            shard.close()


class ServerPlace:
    """The double; a context manager."""

    kind: StoreKind = "server"

    def __init__(self, double: QdrantDouble) -> None:
        self.double = double
        self._keep_quiet()
        self.reset()

    @property
    def location(self) -> str:
        return self.double.url

    def reset(self) -> None:
        self.double.reset()
        self.double.optimizer_polls = 4

    def go_away(self) -> None:
        """Refuse connections, like a server that is down."""
        self.double.faults = [Fault("drop", ".*") for _ in range(1000)]  # at once, for connections that are open
        server = self.double._server
        server.shutdown()
        server.close_connections()
        server.server_close()
        self.double._thread.join()

    def come_back(self) -> None:
        """Answer again, at the same address, with the same points."""
        double = self.double
        double.faults = []
        double._server = DoubleServer(double._server.server_address, handler_of(double))
        double._thread = Thread(target=double._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._keep_quiet()
        double._thread.start()

    def _keep_quiet(self) -> None:
        """Print no traceback for a client that was killed during a request."""
        self.double._server.handle_error = lambda request, client_address: None  # type: ignore[method-assign]

    def manifest(self) -> dict[str, Any] | None:
        client = self.double.client
        with self.double.lock:
            if not client.collection_exists(COLLECTION):
                return None
            metadata = client.get_collection(COLLECTION).config.metadata or {}
        checkpoints = [value for key, value in metadata.items() if key.startswith(CHECKPOINT_PREFIX) and value]
        manifest = metadata.get(MANIFEST_KEY)
        return None if manifest is None else {**manifest, "checkpoints": checkpoints}

    def contents(self) -> Contents:
        client = self.double.client
        with self.double.lock:
            records, _ = client.scroll(COLLECTION, limit=10**6, with_payload=True, with_vectors=True)
            n_counted = client.count(COLLECTION, exact=True).count
        points = {str(record.id): (dict(record.payload or {}), _vector(record.vector)) for record in records}
        return Contents(points, len(records), n_counted, self.manifest() or {})


def _vector(vectors: object) -> list[float] | None:
    """The dense one."""
    return vectors.get("dense") if isinstance(vectors, dict) else None


def compare(found: Contents, wanted: Contents) -> Difference:
    """Compare with the contents of a load that was never killed."""
    wrong = Difference()
    wrong.lost = len(wanted.points.keys() - found.points.keys())
    extra = len(found.points.keys() - wanted.points.keys())
    wrong.doubled = extra + max(found.n_records, found.n_counted) - len(found.points)
    for identifier in found.points.keys() & wanted.points.keys():
        if not _is_same(found.points[identifier], wanted.points[identifier]):
            wrong.different += 1
            if wrong.different == 1:
                wrong.notes.append(f"{found.points[identifier]} instead of {wanted.points[identifier]}")
    for key, value in wanted.manifest.items():
        present = found.manifest.get(key)
        if key == "loaded":  # the paths of the inputs may differ
            present, value = ([one["digest"] for one in inputs or ()] for inputs in (present, value))
        if present != value:
            wrong.notes.append(f"manifest: {key} is {present!r}, not {value!r}")
    if found.n_counted != wanted.n_counted:
        wrong.notes.append(f"{found.n_counted} points counted, not {wanted.n_counted}")
    return wrong


def _is_same(
    found: tuple[Mapping[str, Any], list[float] | None], wanted: tuple[Mapping[str, Any], list[float] | None]
) -> bool:
    if (found[1] is None) != (wanted[1] is None):
        return False
    if found[1] is not None and wanted[1] is not None and not np.allclose(found[1], wanted[1], rtol=0, atol=_TOLERANCE):
        return False
    return all(_is_equal(a, b) for a, b in _pairs(found[0], wanted[0]))


def _pairs(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Values of two payloads by key, those of a nested one too."""
    for key in a.keys() | b.keys():
        x, y = a.get(key), b.get(key)
        if isinstance(x, dict) and isinstance(y, dict):
            yield from _pairs(x, y)
        else:
            yield x, y


def _is_equal(a: object, b: object) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) <= _TOLERANCE
    return type(a) is type(b) and a == b
