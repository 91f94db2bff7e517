"""A collection moves to another store: built hidden, checked, made current; `push_collection`, `pull_collection`.

A transfer that is killed, or whose server goes away, leaves a hidden version that nobody sees; the same call goes on
there. What is left of another collection of that name is removed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

from pearl_qdrant.errors import (
    CollectionExistsError,
    CollectionNotFoundError,
    NoCurrentVersionError,
    OptionError,
    PearlQdrantError,
    ShardUnavailableError,
    StoreError,
    StoreFullError,
    StoreRejectedError,
    StoreUnavailableError,
)
from pearl_qdrant.settings import is_url
from pearl_qdrant.store.administration import check_complete, check_ours
from pearl_qdrant.store.open import StoreLike, use_store
from pearl_qdrant.store.protocol import PLAIN, Collection, Maker, Placement, Store, Version, new_version, placement_of
from pearl_qdrant.store.schema import Manifest
from pearl_qdrant.transfer.names import OnProgress, catch_up, compare_sample, no_progress

if TYPE_CHECKING:
    from pearl_qdrant.store.edge.store import EdgeStore
    from pearl_qdrant.store.server.collection import ServerCollection

log = logging.getLogger(__name__)

MOVE_WAIT_S = 10.0  # how long a switch waits for a writer of an embedded collection

_HEALING = (StoreUnavailableError, ShardUnavailableError, StoreFullError)  # then the same call goes on

Way = Literal["auto", "snapshot", "stream"]
"""How a collection is pulled: as its finished shard, as points with their vectors, or the first where it can."""


@dataclass(frozen=True, slots=True)
class TransferResult:
    """What `push_collection` or `pull_collection` did.

    Attributes:
        source, target: Locations of the stores.
        way: "stream": points with their vectors; "snapshot" (of a pull): the finished shard, with its graph.
        reason: Why not as a snapshot; empty if it is one, or there never is one.
        names: Names of the collection; as many points are in the target, counted exactly.
        sent: Names that this call brought; an earlier one that ended early had brought the others.
        checked: Names whose points were compared, and that were searched in both stores with the same answer.
        replaced: Whether a collection of that name was there. It stays hidden in the target, until it is pruned.
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
        name, store: The collection, and the store that has it.
        to: URL of the server, or another store.
        placement: How a cluster distributes it.
        replace, wait_s, on_progress: As for `pull_collection`, which also says what is raised.
    """
    with use_store(store, wait_s=wait_s) as source, use_store(to, wait_s=wait_s) as target:
        return _Transfer(name, source, target, "push", replace, on_progress, placement).run()


def pull_collection(
    name: str,
    *,
    source: StoreLike,
    store: StoreLike = None,
    replace: bool = False,
    way: Way = "auto",
    wait_s: float | None = None,
    on_progress: OnProgress = no_progress,
) -> TransferResult:
    """Copy a collection from a server. No name is encoded again.

    A collection of one shard travels as the snapshot that the server makes of it, with its graph, which the embedded
    engine opens; otherwise names travel with their vectors. It is built hidden, checked, and then visible at once. If
    the call is killed while names travel, the same call goes on.

    Args:
        name: The collection.
        source: URL of the server, or another store; its key is read from the environment.
        store: Where to; None: from PEARL_QDRANT_STORE, else QDRANT_URL, else the user's data folder.
        replace: Whether to replace a collection of that name. The one before it stays hidden, until it is pruned.
        way: "auto", "snapshot" or "stream"; see `TransferResult.way`.
        wait_s: How long to wait for a server that does not answer, in seconds; None as in `open_store`.
        on_progress: Called from time to time with (names moved, all names).

    Raises:
        CollectionNotFoundError: If the server has no such collection.
        CollectionExistsError: If the store has one of that name, and `replace` is not set.
        IncompleteError: If its load or an update did not finish.
        OptionError: If it must be a snapshot, and cannot be one.
        StoreError: If a store fails, or what arrived is not what was sent. Then nothing changed in the store.
    """
    with use_store(source, wait_s=wait_s) as server, use_store(store, wait_s=wait_s) as target:
        return _Transfer(name, server, target, "pull", replace, on_progress, way=way).run()


@dataclass(frozen=True, slots=True)
class _Transfer:
    """One transfer; `made_by` is what the version says of itself, all else as for `pull_collection`."""

    name: str
    source: Store
    target: Store
    made_by: Maker
    replace: bool
    on_progress: OnProgress
    placement: Placement | None = None
    way: Way = "stream"

    def run(self) -> TransferResult:
        start = time.perf_counter()
        if self.source.location == self.target.location:
            raise OptionError(
                "store",
                f"Collection '{self.name}' is to move from {self.source.location} to the same place. Name another "
                f"store as its source or target.",
            )
        with closing(self.source.open(self.name, read_only=True)) as source:
            check_complete([source])
            check_ours(self.target, self.name)
            replaced = self.name in self.target.collections()
            if replaced and not self.replace:
                raise CollectionExistsError(self.name, option="replace")
            way, reason, names, sent, checked = self._build(source)
        facts = way, reason, names, sent, checked, replaced, time.perf_counter() - start
        return TransferResult(self.name, self.source.location, self.target.location, *facts)

    def _build(self, source: Collection) -> tuple[Literal["snapshot", "stream"], str, int, int, int]:
        """Build a version, check it, and make it current: way, reason, names, and how many were sent and checked."""
        reason = ""
        if self.way != "stream" and is_url(self.source.location) and not is_url(self.target.location):
            moved = self._move_shard(source)
            if not isinstance(moved, str):
                names, checked = moved
                return "snapshot", "", names, names, checked
            reason = moved
        if self.way == "snapshot":
            why = reason or "it does not come from a server to an embedded store"
            raise OptionError("way", f"Collection '{self.name}' cannot move as a snapshot: {why}. Stream it.")
        begun = _begun(source.manifest).as_created().kept_as(self.target.quantization)
        left = self._take_leftover(begun)
        version = left or new_version()
        with self._removed_unless_healing(version):
            if left is not None:
                opened = self.target.open(self.name, version=left)
            else:
                opened = self.target.create(begun, self.placement, version=version, made_by=self.made_by)
            with closing(opened) as target:
                found = catch_up(source, target, on_progress=self.on_progress)
                target.finalize()
                checked = self._finish(source, target, version, found.names)
        return "stream", reason, found.names, found.written, checked

    def _take_leftover(self, begun: Manifest) -> str | None:
        """Return the hidden version that the same transfer left when it ended early, and delete others of its kind."""
        found = None
        for version in self.target.versions(self.name):
            mark, manifest = version.mark, version.manifest
            if mark.is_complete or mark.is_damaged or mark.made_by not in ("push", "pull") or version.is_current:
                continue
            is_same = (mark.made_by, mark.placement) == (self.made_by, placement_of(self.placement))
            if found is None and is_same and manifest is not None and _begun(manifest) == begun:
                found = version.id
            else:
                self.target.delete(self.name, version=version.id)
        return found

    def _move_shard(self, opened: Collection) -> tuple[int, int] | str:
        """Take the finished shard of a server: names, and how many were checked; or why it cannot be taken."""
        from pearl_qdrant.store.edge.content import IndexState

        source, target, status = cast("ServerCollection", opened), cast("EdgeStore", self.target), opened.status()
        if not status.is_finalized:
            return "its graph is not built"
        version, total = new_version(), source.count()
        self.on_progress(0, total)
        changed = {"has_plain_payloads": True, "checkpoints": (), "state": "loading"}
        manifest = source.manifest.model_copy(update=changed)
        with self._removed_unless_healing(version):
            try:
                made = target.adopt(source, version, manifest, IndexState(status.vectors))
            except (StoreRejectedError, StoreUnavailableError) as error:  # one that fails at this may do all else
                return str(error)
            with closing(made):
                self.on_progress(total, total)
                checked = self._finish(source, made, version, total)
        self._take_leftover(manifest)  # nothing goes on there any more
        return total, checked

    def _finish(self, source: Collection, target: Collection, version: str, names: int) -> int:
        """Check a version, write its manifest and what was learned, and make it current."""
        there, now = target.count(), source.count()
        if not names == there == now:
            raise StoreError(
                f"Collection '{self.name}' was not moved: {names:,} names were read and {there:,} arrived, and the "
                f"source has {now:,} now. Nothing was changed in the target. Run the same command again while nobody "
                f"writes to the source."
            )
        kept = {field: getattr(target.manifest, field) for field in ("has_plain_payloads", "quantization")}
        manifest = source.manifest.model_copy(update={**kept, "checkpoints": ()})
        target.write_manifest(manifest)
        if target.read_manifest() != manifest:
            raise StoreError(f"Collection '{self.name}' was not moved: the target does not store its manifest.")
        checked = compare_sample(source, target)
        known = set(target.read_ledger())
        if lines := [line for line in source.read_ledger() if line and line not in known]:
            target.append_ledger(lines)
        target.close()
        is_there = self.name in self.target.collections()
        moving = self.target.moving(self.name, wait_s=MOVE_WAIT_S) if is_there else nullcontext()
        with moving:
            if is_there and not self.replace:
                raise CollectionExistsError(self.name, option="replace")
            self.target.switch(self.name, version)
        return checked

    @contextmanager
    def _removed_unless_healing(self, version: str) -> Iterator[None]:
        """Delete a version if the block fails, unless the same call can go on there later."""
        try:
            yield
        except Exception as error:
            if not isinstance(error, _HEALING):
                with suppress(PearlQdrantError, ValueError):
                    self.target.delete(self.name, version=version)
            raise


def _begun(manifest: Manifest) -> Manifest:
    """The manifest of a version whose names are on their way."""
    return manifest.model_copy(update={"state": "loading", "checkpoints": (), "names": 0, "entities": 0})


def prune_collection(name: str, *, store: StoreLike = None) -> int:
    """Delete the versions of a collection that another one took the place of; returns how many there were.

    A version that is newer than the current one, or whose mark is damaged, stays, with a warning in the log. Readers
    that still have an older version open on a server get errors: let them reload first. Leftovers of calls that died
    are deleted, too, and what a call builds at the moment. `store` is as for `pull_collection`.

    CollectionNotFoundError if there is none of that name, StoreLockedError if an older version is open for writing
    (embedded), StoreError if it is not known which one is current. Then nothing is deleted.
    """
    with use_store(store) as opened:
        versions = opened.versions(name)
        if not versions:
            raise CollectionNotFoundError(name, opened.collections())
        number = _current_number(name, opened, versions[0])
        others = [version for version in versions if not (version.is_current or _is_kept(version, name, number))]
        for version in sorted(others, key=lambda one: one.id == PLAIN):  # on a server, the last one frees the name
            opened.delete(name, version=version.id)
        return len(others)


def _current_number(name: str, store: Store, first: Version) -> int:
    """The number of the current version; 0 if there are only leftovers. StoreError if nobody knows which is current."""
    if not first.is_current:
        try:
            store.open(name, read_only=True).close()
        except NoCurrentVersionError:
            raise
        except CollectionNotFoundError:
            return 0
    return first.mark.number


def _is_kept(version: Version, name: str, number: int) -> bool:
    """Whether a version is newer than the current one, or nobody knows what it is; the log says so."""
    why = "its mark cannot be read" if version.mark.is_damaged else "it is newer than the current one"
    if version.mark.is_damaged or version.mark.number > number:
        log.warning("Version %s of collection '%s' is kept: %s", version.id or "''", name, why)
        return True
    return False
