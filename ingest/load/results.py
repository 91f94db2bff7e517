"""What a load or an update did, in counts that add up.

rows     skipped ones by reason, and those that the options leave out, are of all rows that were read
points   = names + other_names = with_vector + without_vector
seconds  = load_seconds + graph_seconds
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ingest.io.report import ReadReport

if TYPE_CHECKING:
    from ingest.base.scan import ScanResult
    from pearl_qdrant.encoder.protocol import Encoder


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """What a load or an update did; `names` = `added` + `changed` + `unchanged`.

    Attributes:
        collection: Its name.
        report: Of reading: rows, entities and names of the input, rows that were skipped or left out, and ids that
            rows with different names share.
        points: Points in the collection afterwards, counted exactly; each is a name.
        without_vector: Those whose characters the model does not know. They have no vector and are found by their
            spelling only.
        load_seconds: Time of reading, comparing, encoding and writing.
        encode_seconds: Time in the encoder, within `load_seconds`.
        graph_seconds: Time of building the graph.
        model, device: The encoder and where it ran.
        distinct_names: Different names of the input.
        is_update: Names that the input lacks were to be deleted.
        added: Names that were encoded and written.
        changed: Names whose payload was replaced.
        unchanged: Names that were stored as they are.
        removed: Deleted names, which the new release lacks.
        kept: Names that the new release lacks too, but that were kept: rows could not be read, or the caller refused.
        resumed_at: Entities that were stored as they are.
        rewritten: Names that were stored and had disappeared (deleted since, or lost by a server), and were written
            again.
        unfinished: Other inputs whose load is not finished; the last of them builds the graph.
    """

    collection: str
    report: ReadReport
    points: int
    without_vector: int
    load_seconds: float = 0.0
    encode_seconds: float = 0.0
    graph_seconds: float = 0.0
    model: str
    device: str
    distinct_names: int
    is_update: bool = False
    added: int = 0
    changed: int = 0
    unchanged: int = 0
    removed: int = 0
    kept: int = 0
    resumed_at: int = 0
    rewritten: int = 0
    unfinished: tuple[str, ...] = ()

    @property
    def entities(self) -> int:
        """Entities of the input."""
        return self.report.entities

    @property
    def names(self) -> int:
        """Their names, all of which are stored."""
        return self.report.names

    @property
    def other_names(self) -> int:
        """Names of the collection that this input lacks."""
        return self.points - self.names

    @property
    def with_vector(self) -> int:
        """Names of the collection that have a vector."""
        return self.points - self.without_vector

    @property
    def is_unchanged(self) -> bool:
        """Whether the collection held this input already, so that nothing was encoded or written."""
        return not (self.added or self.changed or self.removed or self.kept)

    @property
    def seconds(self) -> float:
        """Time of all."""
        return self.load_seconds + self.graph_seconds

    def to_json(self) -> dict[str, Any]:
        """The report of the command line."""
        return {
            "collection": self.collection,
            **reading_counts(self.report),
            "points": self.points,
            "other_names": self.other_names,
            "with_vector": self.with_vector,
            "without_vector": self.without_vector,
            "seconds": round(self.seconds, 3),
            "load_seconds": round(self.load_seconds, 3),
            "encode_seconds": round(self.encode_seconds, 3),
            "graph_seconds": round(self.graph_seconds, 3),
            **{name: getattr(self, name) for name in _COUNTS},
            "unfinished": list(self.unfinished),
        }


_COUNTS = (
    *("model", "device", "distinct_names", "is_update", "added", "changed", "unchanged", "removed", "kept"),
    *("resumed_at", "rewritten", "is_unchanged"),
)


def reading_counts(report: ReadReport) -> dict[str, Any]:
    """The counts of a reading, as JSON."""
    return {
        "rows": report.rows,
        "skipped": report.skipped,
        "left_out": report.filtered,
        "entities": report.entities,
        "names": report.names,
        "merged_rows": report.merged_rows,
        "conflicting_names": report.conflicting_names,
        "conflicts": [str(one) for one in report.conflicts],
    }


class LoadEvents:
    """Callbacks of a load, which do nothing: override those of interest. Calls never overlap."""

    def scanned(self, result: ScanResult) -> None:
        """The input was counted; the report lists skipped rows."""

    def model_loaded(self, encoder: Encoder) -> None:
        """The encoder is ready."""

    def unchanged(self, edited: bool) -> None:
        """The collection holds this input already, so there is nothing to do; it may have been edited since."""

    def newer_release(self) -> None:
        """The input is a newer release of what the collection holds, which is updated."""

    def resumed(self, entities: int) -> None:
        """An interrupted load goes on; this many entities of the input are stored."""

    def started(self, names: int) -> None:
        """Encoding and storing, or comparing, starts; there are this many names."""

    def names_done(self, names: int) -> None:
        """This many more names are done."""

    def entities_stored(self, entities: int) -> None:
        """This many entities of the input are stored durably."""

    def graph_built(self, done: int, total: int) -> None:
        """`done` of `total` vectors are in the graph; called a few times a second while it is built."""
