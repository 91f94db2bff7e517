"""All that `load_base` can be told, what it tells meanwhile, and what a load or an update did, in counts that add up.

rows     skipped ones by reason, and those that the options leave out, are of all rows that were read
points   = names + other_names = with_vector + without_vector
seconds  = load_seconds + graph_seconds
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

from ingest.io.report import ReadReport
from pearl_qdrant.settings import DEFAULT_DEVICE, DEFAULT_MAX_ERRORS, DEFAULT_MODEL, DEFAULT_WAIT_S

if TYPE_CHECKING:
    from ingest.base.format import ReadOptions
    from ingest.base.reader import ScanResult
    from ingest.base.type_map import TypeMap
    from pearl_qdrant.encoder.protocol import Encoder
    from pearl_qdrant.store.open import StoreLike
    from pearl_qdrant.store.protocol import Placement
    from pearl_qdrant.store.schema import Quantization


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
        return self.load_seconds + self.graph_seconds

    def to_json(self) -> dict[str, Any]:
        return {
            "collection": self.collection,
            **reading_counts(self.report),
            **{name: getattr(self, name) for name in ("points", "other_names", "with_vector", "without_vector")},
            **{name: round(getattr(self, name), 3) for name in _SECONDS},
            **{name: getattr(self, name) for name in _COUNTS},
            "unfinished": list(self.unfinished),
        }


_SECONDS = ("seconds", "load_seconds", "encode_seconds", "graph_seconds")
_COUNTS = (
    "model device distinct_names is_update added changed unchanged removed kept resumed_at rewritten is_unchanged"
).split()


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

    def names_stored(self, names: int) -> None:
        """This many more names were stored before; they count as done."""
        self.names_done(names)

    def names_done(self, names: int) -> None:
        """This many more names are done."""

    def entities_stored(self, entities: int) -> None:
        """This many entities of the input are stored durably."""

    def graph_built(self, done: int, total: int) -> None:
        """`done` of `total` vectors are in the graph; called a few times a second while it is built."""


StrPath = str | os.PathLike[str]

MayUpdate = Callable[[], bool]
"""Called where a base is a newer release of what is stored; returns whether to update the collection to it."""

MayRemove = Callable[[int, int], bool]
"""Called with the number of names that would be deleted and that of all names; returns whether to delete them."""


def allow(*_: object) -> bool:
    """Ask nobody."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """How a base is loaded.

    Attributes:
        store: A store, a folder or a URL; by default PEARL_QDRANT_STORE, else QDRANT_URL, else the user's data folder.
            Key and certificates of a server come from the environment (`ServerAccess.from_environment`).
        model: An encoder, a shipped name, a folder or a hub id.
        device: auto, cpu, cuda or cuda:N.
        pooling: For a plain encoder: mean or cls, instead of its own.
        prefix: For a plain encoder: text put before each name.
        kind: One of `formats.FORMAT_NAMES`, the name of a known base, or "auto".
        options: What to read.
        type_map: From native types to coarse ones: a table, or a file with rows to add to the shipped one.
        max_errors: Bad rows to skip before giving up; None: any number. With the default, more than 1 % of the rows are
            too many, too.
        kb: Short name of the base, part of every point's id. Default: the collection's name.
        kb_version: Release of the base, for the record.
        quantization: How a new collection keeps vectors (`store.schema`). Default: as `Store.quantization` says.
        placement: Shards and replicas of a new collection on a server.
        restart: Delete an existing collection first, its calibration included, and start over. What it learned stays
            (`learn`).
        update: True makes an existing collection equal to the base, the whole of a newer release of what it holds: it
            loses the names that the base lacks. False adds the base. None updates if the base shows to be a newer
            release (`pipeline.MOSTLY`) and no `options.limit` is given.
        may_update: Called before an update that None decided for, with no argument; False adds the base instead.
        may_remove: Called with the number of names that the new release lacks and that of all names, before any is
            deleted; False keeps them.
        ray: Encode and write by the workers of a Ray cluster, to a Qdrant server: auto starts one on this machine,
            HOST:PORT is one that runs. They load the model by its name.
        wait_s: How long to wait for a server that does not answer, in seconds.
        events: Receives progress.
    """

    store: StoreLike = None
    model: Encoder | StrPath = DEFAULT_MODEL
    device: str = DEFAULT_DEVICE
    pooling: str | None = None
    prefix: str | None = None
    kind: str = "auto"
    options: ReadOptions | None = None
    type_map: TypeMap | StrPath | None = None
    max_errors: int | None = DEFAULT_MAX_ERRORS
    kb: str | None = None
    kb_version: str | None = None
    quantization: Quantization | None = None
    placement: Placement | None = None
    restart: bool = False
    update: bool | None = False
    may_update: MayUpdate = allow
    may_remove: MayRemove = allow
    ray: str | None = None
    wait_s: float = DEFAULT_WAIT_S
    events: LoadEvents = field(default_factory=LoadEvents)

    @property
    def is_limited(self) -> bool:
        return self.options is not None and self.options.limit is not None


class LoadKeywords(TypedDict, total=False):
    """The fields of `LoadRequest` as keyword arguments."""

    store: StoreLike
    model: Encoder | StrPath
    device: str
    pooling: str | None
    prefix: str | None
    kind: str
    options: ReadOptions | None
    type_map: TypeMap | StrPath | None
    max_errors: int | None
    kb: str | None
    kb_version: str | None
    quantization: Quantization | None
    placement: Placement | None
    restart: bool
    update: bool | None
    may_update: MayUpdate
    may_remove: MayRemove
    ray: str | None
    wait_s: float
    events: LoadEvents
