"""What a transfer returns, and how it reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

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
