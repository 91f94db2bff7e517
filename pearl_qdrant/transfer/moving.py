"""A collection moves from one store to another: built hidden, checked, made current.

A transfer that dies leaves a hidden version that nobody sees; the next transfer of that name removes it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Literal

from pearl_qdrant.errors import CollectionExistsError, OptionError, PearlQdrantError, StoreError
from pearl_qdrant.store.protocol import Collection, Placement, Store
from pearl_qdrant.store.schema import Manifest
from pearl_qdrant.store.verify import check_complete
from pearl_qdrant.store.versions.protocol import Maker, new_version
from pearl_qdrant.transfer.packing import CannotPackError, Packer
from pearl_qdrant.transfer.records import OnProgress, TransferResult, Way
from pearl_qdrant.transfer.sample import NameSample
from pearl_qdrant.transfer.streaming import stream_names, streamed_manifest

MOVE_WAIT_S = 10.0
"""How long a switch waits for a writer of an embedded collection, in seconds."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """One transfer.

    Attributes:
        name: The collection.
        source, target: The stores.
        made_by: What the version says of itself.
        replace: Whether a collection of that name in the target may be replaced.
        way: See `Way`.
        placement: How a cluster distributes it.
        on_progress: See `OnProgress`.
        packer: The fast way between these kinds of store; None if there is none.
        no_packer: Why there is none.
        unkeyed: Why its shards get no keys, where they might have some.
    """

    name: str
    source: Store
    target: Store
    made_by: Maker
    replace: bool
    way: Way
    placement: Placement | None
    on_progress: OnProgress
    packer: Packer | None
    no_packer: str = ""
    unkeyed: str = ""

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
        if self.source.location == self.target.location and self.source.location != ":memory:":
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
            self._remove_leftovers()
            way, reason, names, checked = self._build(source)
        finally:
            source.close()
        return TransferResult(
            self.name,
            self.source.location,
            self.target.location,
            way,
            ", ".join(filter(None, (reason, self.unkeyed))),
            names,
            checked,
            replaced,
            time.perf_counter() - start,
            self._keys,
        )

    @property
    def _keys(self) -> int:
        """How many shards get a key."""
        placement = self.placement
        return placement.shards if placement is not None and placement.by_key and placement.shards else 0

    def _remove_leftovers(self) -> None:
        """Delete hidden versions of transfers that died."""
        for version in self.target.versions.list(self.name):
            if not version.mark.is_complete and version.mark.made_by in ("push", "pull") and not version.is_current:
                self.target.versions.delete(self.name, version.id)

    def _build(self, source: Collection) -> tuple[Literal["snapshot", "stream"], str, int, int]:
        """Build a version, check it, and make it current; returns way, reason, names and how many were checked."""
        reason = "asked for" if self.way == "stream" else self.no_packer
        if self.way != "stream" and self.packer is not None:
            try:
                names, checked = self._pack(source, self.packer)
            except CannotPackError as error:
                reason = str(error)
            else:
                fits = f"{self._keys} parts are shards of their own" if self._keys else "the shard fits as it is"
                return "snapshot", fits, names, checked
        if self.way == "snapshot":
            raise OptionError("way", f"Collection '{self.name}' cannot move as a snapshot: {reason}. Stream it.")
        manifest = source.manifest.model_copy(update={"state": "loading", "checkpoints": (), "names": 0, "entities": 0})
        with self._hidden(manifest) as (version, target):
            sample = NameSample(random.Random(0))
            names = stream_names(source, target, sample=sample, on_progress=self.on_progress)
            manifest = streamed_manifest(source, target.manifest)
            checked = self._finish(source, target, manifest, version, names, sample)
        return "stream", reason, names, checked

    def _pack(self, source: Collection, packer: Packer) -> tuple[int, int]:
        version = new_version()
        with self._removed_if_broken(version):
            target = packer.move(source, self.target, version, on_progress=self.on_progress)
            try:
                sample = NameSample(random.Random(0))
                names = source.count()
                for rows in source.scroll_rows():
                    sample.take(rows)
                    if len(rows.points) and sample.is_full:
                        break
                checked = self._finish(source, target, packer.manifest(source), version, names, sample)
            finally:
                target.close()
        return names, checked

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
    def _hidden(self, manifest: Manifest) -> Iterator[tuple[str, Collection]]:
        """Create a hidden version for the block; it is deleted if the block fails."""
        version = new_version()
        with self._removed_if_broken(version):
            target = self.target.versions.create(
                manifest, version=version, made_by=self.made_by, placement=self.placement
            )
            try:
                yield version, target
            finally:
                target.close()

    @contextmanager
    def _removed_if_broken(self, version: str) -> Iterator[None]:
        try:
            yield
        except BaseException:
            with suppress(PearlQdrantError, ValueError):
                self.target.versions.delete(self.name, version)
            raise
