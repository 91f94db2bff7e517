"""A collection moves from one store to another: built hidden, checked, made current; and `push_collection`.

A transfer that is killed, or whose server goes away, leaves a hidden version that nobody sees; the same call goes on
there. What is left of another collection of that name is removed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from pearl_qdrant.errors import (
    CollectionExistsError,
    OptionError,
    PearlQdrantError,
    ShardUnavailableError,
    StoreError,
    StoreFullError,
    StoreUnavailableError,
)
from pearl_qdrant.store.open import StoreLike, use_store
from pearl_qdrant.store.protocol import Collection, Placement, Store
from pearl_qdrant.store.schema import Manifest
from pearl_qdrant.store.verify import check_complete
from pearl_qdrant.store.versions import Maker, new_version, placement_of
from pearl_qdrant.transfer.inventory import Inventory
from pearl_qdrant.transfer.sample import NameSample

MOVE_WAIT_S = 10.0
"""How long a switch waits for a writer of an embedded collection, in seconds."""

_HEALING = (StoreUnavailableError, ShardUnavailableError, StoreFullError)
"""After these errors the same call goes on where it ended."""


class NoSnapshotError(StoreError):
    """A collection cannot move as a snapshot; the message says why, as a part of a sentence."""


MakeShard = Callable[[Collection, str], Collection]
"""Makes a hidden version of the target from the source's finished shard; if it raises NoSnapshotError, none is left."""

Way = Literal["auto", "snapshot", "stream"]
"""How a collection is pulled: as its finished shard, as points with their vectors, or the first where it can."""

OnProgress = Callable[[int, int], None]
"""Called with (names moved, all names)."""


def no_progress(done: int, total: int) -> None:
    """Report nothing."""


@dataclass(frozen=True, slots=True)
class TransferResult:
    """What `push_collection` or `pull_collection` did.

    Attributes:
        collection: Its name.
        source, target: Locations of the stores.
        way: "stream": points with their vectors; "snapshot" (of a pull): the finished shard, with its graph.
        reason: Why not as a snapshot; empty if it is one, or there never is one.
        names: Names of the collection; as many points are in the target, counted exactly.
        sent: Names that this call brought; an earlier one that ended early had brought the others.
        checked: Names whose points were compared, and that were searched in both stores with the same answer.
        replaced: Whether a collection of that name was there. It stays hidden in the target, until it is pruned.
        seconds: Time of all of it.
    """

    collection: str
    source: str
    target: str
    way: Literal["snapshot", "stream"]
    reason: str
    names: int
    sent: int
    checked: int
    replaced: bool
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Return all facts as one flat JSON object."""
        return {**asdict(self), "seconds": round(self.seconds, 3)}


def push_collection(
    name: str,
    *,
    to: StoreLike,
    store: StoreLike = None,
    replace: bool = False,
    placement: Placement | None = None,
    wait_s: float | None = None,
    on_progress: OnProgress = no_progress,
) -> TransferResult:
    """Copy a collection to a server. No name is encoded again.

    Names travel with their vectors, several requests at a time, and the server builds the graph once, at the end. It is
    built hidden, checked, and then visible at once. If the call is killed, or the server goes away, the same call goes
    on: what is there is not sent again.

    Args:
        name: The collection.
        to: URL of the server, or another store. Its key is read from the environment.
        store: The store that has it; None: from PEARL_QDRANT_STORE, else QDRANT_URL, else the user's data folder.
        replace: Whether to replace a collection of that name. The one before it stays hidden, until it is pruned.
        placement: How a cluster distributes it.
        wait_s: How long to wait for a server that does not answer, in seconds; None as in `open_store`.
        on_progress: Called from time to time with (names moved, all names).

    Raises:
        CollectionNotFoundError: If there is no such collection.
        CollectionExistsError: If the server has one of that name, and `replace` is not set.
        IncompleteError: If its load or an update did not finish.
        StoreError: If a store fails, or what arrived is not what was sent. Then nothing changed on the server.
    """
    with use_store(store, wait_s=wait_s) as source, use_store(to, wait_s=wait_s) as target:
        return Transfer(name, source, target, "push", replace, placement, on_progress).run()


@dataclass(frozen=True, slots=True)
class Transfer:
    """One transfer.

    Attributes:
        name: The collection.
        source, target: The stores.
        made_by: What the version says of itself.
        replace: Whether a collection of that name in the target may be replaced.
        placement: How a cluster distributes it.
        on_progress: See `OnProgress`.
        make_shard: The way with the finished shard; None if there is none, or it is not wanted.
        must_be_shard: Whether no other way will do.
    """

    name: str
    source: Store
    target: Store
    made_by: Maker
    replace: bool
    placement: Placement | None
    on_progress: OnProgress
    make_shard: MakeShard | None = None
    must_be_shard: bool = False

    def run(self) -> TransferResult:
        """Do it.

        Raises:
            CollectionNotFoundError: If the source has no such collection.
            CollectionExistsError: If the target has one, and it may not be replaced.
            IncompleteError: If its load or an update did not finish.
            OptionError: If source and target are one store, or it must be a snapshot and cannot be one.
            StoreError: If a store fails, or what arrived is not what was sent. Then nothing changed in the target.
        """
        start = time.perf_counter()
        if self.source.location == self.target.location:
            raise OptionError(
                "store",
                f"Collection '{self.name}' is to move from {self.source.location} to the same place. Name another "
                f"store as its source or target.",
            )
        source = self.source.open(self.name, read_only=True)
        try:
            check_complete([source])
            replaced = self.name in self.target.collections()
            if replaced and not self.replace:
                raise CollectionExistsError(self.name, option="replace")
            way, reason, names, sent, checked = self._build(source)
        finally:
            source.close()
        seconds = time.perf_counter() - start
        places = self.source.location, self.target.location
        return TransferResult(self.name, *places, way, reason, names, sent, checked, replaced, seconds)

    def _build(self, source: Collection) -> tuple[Literal["snapshot", "stream"], str, int, int, int]:
        """Build a version, check it, and make it current: way, reason, names, and how many were sent and checked."""
        reason = ""
        if self.make_shard is not None:
            try:
                names, checked = self._move_shard(source, self.make_shard)
            except NoSnapshotError as error:
                reason = str(error)
            else:
                return "snapshot", "", names, names, checked
        if self.must_be_shard:
            why = reason or "it does not come from a server to an embedded store"
            raise OptionError("way", f"Collection '{self.name}' cannot move as a snapshot: {why}. Stream it.")
        begun = _begun(source.manifest).as_created()
        left = self._take_leftover(begun)
        version = left or new_version()
        with self._removed_unless_healing(version):
            versions, place = self.target.versions, self.placement
            if left is not None:
                opened = versions.open(self.name, left)
            else:
                opened = versions.create(begun, version=version, made_by=self.made_by, placement=place)
            with closing(opened) as target:
                sample = NameSample(random.Random(0))
                names, sent = stream_names(source, target, sample=sample, on_progress=self.on_progress)
                manifest = streamed_manifest(source, target.manifest)
                checked = self._finish(source, target, manifest, version, names, sample)
        return "stream", reason, names, sent, checked

    def _take_leftover(self, begun: Manifest) -> str | None:
        """Return the hidden version that the same transfer left when it ended early, and delete others of its kind."""
        found = None
        for version in self.target.versions.list(self.name):
            mark, manifest = version.mark, version.manifest
            if mark.is_complete or mark.is_damaged or mark.made_by not in ("push", "pull") or version.is_current:
                continue
            is_same = (mark.made_by, mark.placement) == (self.made_by, placement_of(self.placement))
            if found is None and is_same and manifest is not None and _begun(manifest) == begun:
                found = version.id
            else:
                self.target.versions.delete(self.name, version.id)
        return found

    def _move_shard(self, source: Collection, make_shard: MakeShard) -> tuple[int, int]:
        self._take_leftover(source.manifest)  # nothing goes on there
        version = new_version()
        total = source.count()
        self.on_progress(0, total)
        with self._removed_unless_healing(version), closing(make_shard(source, version)) as target:
            self.on_progress(total, total)
            sample = NameSample(random.Random(0))
            for rows in source.scroll_rows():
                sample.take(rows)
                if len(rows.points) and sample.is_full:
                    break
            manifest = source.manifest.model_copy(update={"has_plain_payloads": True, "checkpoints": ()})
            return total, self._finish(source, target, manifest, version, total, sample)

    def _finish(
        self, source: Collection, target: Collection, manifest: Manifest, version: str, names: int, sample: NameSample
    ) -> int:
        """Check a version, write its manifest and what was learned, and make it current."""
        there, now = target.count(), source.count()
        if not names == there == now:
            raise StoreError(
                f"Collection '{self.name}' was not moved: {names:,} names were read and {there:,} arrived, and the "
                f"source has {now:,} now. Nothing was changed in the target. Run the same command again while nobody "
                f"writes to the source."
            )
        target.write_manifest(manifest)
        if target.read_manifest() != manifest:
            raise StoreError(f"Collection '{self.name}' was not moved: the target does not store its manifest.")
        checked = sample.compare(source, target)
        known = set(target.read_ledger())
        if lines := [line for line in source.read_ledger() if line and line not in known]:
            target.append_ledger(lines)
        target.close()
        is_there = self.name in self.target.collections()
        moving = self.target.versions.moving(self.name, wait_s=MOVE_WAIT_S) if is_there else nullcontext()
        with moving:
            if is_there and not self.replace:
                raise CollectionExistsError(self.name, option="replace")
            self.target.versions.switch(self.name, version)
        return checked

    @contextmanager
    def _removed_unless_healing(self, version: str) -> Iterator[None]:
        """Delete a version if the block fails, unless the same call can go on there later."""
        try:
            yield
        except Exception as error:
            if not isinstance(error, _HEALING):
                with suppress(PearlQdrantError, ValueError):
                    self.target.versions.delete(self.name, version)
            raise


def stream_names(
    source: Collection, target: Collection, *, sample: NameSample, on_progress: OnProgress
) -> tuple[int, int]:
    """Write the names that a collection lacks, with their vectors, delete what it should not have, build its graph.

    Several requests are in flight to a server, and it builds its graph once, at the end. What an earlier call brought
    is not sent again.

    Args:
        source: Open for reading.
        target: Hidden from others, and of the same model; empty, or filled in part by a call that ended early.
        sample: Takes some of the names, to be compared afterwards.
        on_progress: See `OnProgress`.

    Returns:
        Names read, and names sent.
    """
    total, done, sent = source.count(), 0, 0
    known = Inventory.of(target)
    on_progress(0, total)
    with target.writer() as writer:
        for rows in source.scroll_rows():
            if not rows.points:
                continue
            lacking = np.array([not known.has(point) for point in rows.points])
            if lacking.any():
                left = rows if lacking.all() else rows.where(lacking)
                writer.write(left.points, left.vectors, left.encodable)
                sent += len(left.points)
            sample.take(rows)
            done += len(rows.points)
            on_progress(done, max(done, total))
    target.delete_points(known.retired())
    target.finalize()
    return done, sent


def streamed_manifest(source: Collection, target: Manifest) -> Manifest:
    """Return the manifest of a collection whose names were streamed: that of the source, in the target's layout."""
    changed: dict[str, object] = {
        "collection": target.collection,
        "has_plain_payloads": target.has_plain_payloads,
        "checkpoints": (),
    }
    return source.manifest.model_copy(update=changed)


def _begun(manifest: Manifest) -> Manifest:
    """The manifest of a version whose names are on their way."""
    return manifest.model_copy(update={"state": "loading", "checkpoints": (), "names": 0, "entities": 0})
