"""The work folder of a load over several workers: what was cut, what is built, and what is left to do.

    WORK/.lock            locked while a driver works
    WORK/plan.json        what is built; written when the cut is complete
    WORK/cut/             the buckets of the base
    WORK/parts/           an embedded store with a collection a part; empty for a server
    WORK/done/PART.json   the counts of a part that is built
    WORK/joined/          an embedded store with the collection that is joined of the parts

Everything is kept until the collection is complete, so that the same command goes on after any kill. Machines of a
cluster share it.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TypeVar

import msgspec

from pearl_qdrant.errors import StoreError
from pearl_qdrant.store.atomic import read_at_most, write_atomically

_MAX_BYTES = 1 << 20

_T = TypeVar("_T")


class Plan(msgspec.Struct, frozen=True):
    """What is built. A command with another plan starts over.

    Attributes:
        digest: Of the base, as in `ScanResult`.
        input: Its paths.
        parts: Parts of the base.
        location, collection: Where it goes.
        kb: As in `Manifest`.
        model: Hash of the weights, width, pooling and prefix.
        quantization, has_descriptions: As in `Manifest`.
    """

    digest: str
    input: str
    parts: int
    location: str
    collection: str
    kb: str
    model: str
    quantization: str
    has_descriptions: bool


class PartResult(msgspec.Struct, frozen=True):
    """The counts of a part that is built.

    Attributes:
        part: Its number.
        entities, names: Entities and names of the part; each is a point.
        encode_seconds: Time in the encoder.
        graph_seconds: Time of building its graph.
        device: Where the encoder ran.
    """

    part: int
    entities: int = 0
    names: int = 0
    encode_seconds: float = 0.0
    graph_seconds: float = 0.0
    device: str = ""


class Work:
    """A work folder.

    Attributes:
        path: The folder.
        cut, parts, joined: Its folders; `joined` may lie elsewhere, on the disk of the store.
    """

    def __init__(self, path: Path, joined: Path | None = None) -> None:
        self.path = path
        self.cut, self.parts, self.joined = path / "cut", path / "parts", joined or path / "joined"
        self._done = path / "done"

    def read_plan(self) -> Plan | None:
        """The plan; None if the base was not cut completely."""
        return _read(self.path / "plan.json", Plan)

    def write_plan(self, plan: Plan) -> None:
        """Write the plan: the cut is complete."""
        _write(self.path / "plan.json", plan)

    def read_done(self, part: int) -> PartResult | None:
        """The counts of a part; None if it is not built."""
        return _read(self._done / f"{part:04d}.json", PartResult)

    def write_done(self, result: PartResult) -> None:
        """Note that a part is built."""
        _write(self._done / f"{result.part:04d}.json", result)

    def is_joined(self) -> bool:
        """Whether the joined collection is complete; it may have been moved to its place."""
        return (self._done / "joined.json").exists()

    def write_joined(self) -> None:
        """Note that the joined collection is complete."""
        _write(self._done / "joined.json", PartResult(-1))

    def clear(self) -> None:
        """Remove all but the lock; the plan first, so that a kill leaves no plan without its files."""
        (self.path / "plan.json").unlink(missing_ok=True)
        for folder in (self.cut, self.parts, self.joined, self._done):
            shutil.rmtree(folder, ignore_errors=True)


def _write(path: Path, record: msgspec.Struct) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, msgspec.json.encode(record).decode())
    except OSError as error:
        raise StoreError(
            f"The work folder {path.parent} cannot be written: {error}. Choose another one, or free some space.",
            option="work",
        ) from error


def _read(path: Path, kind: type[_T]) -> _T | None:
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(read_at_most(file, _MAX_BYTES), type=kind)
    except (OSError, ValueError, RecursionError):
        return None
