"""The ledger: what a collection learned, in batches that are only ever appended.

A batch is a head, rows and an end, one JSON value a line:

    {"batch": "1f0c9a2b", "format": 1, "number": 3, "kind": "learn", "time": "...", "kb": "...", "source": "...", ...}
    ["US", "Q30", 12]                  the mention, the entity id or null for NIL, how often
    {"end": "1f0c9a2b", "rows": 1, "aliases": [["US", "Q30"]]}

A batch without its end, or with fewer rows than its end says, has no effect: its writer died, or its disk was full.
An undo is a batch without rows that names the batch it undoes; undoing it makes that batch effective again.
Of two processes that append at once on a server, both are kept. They may then have the same number, and are told apart
by their keys.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Literal, get_args

import msgspec

from pearl_qdrant.errors import LearningError, StoreError
from pearl_qdrant.store.protocol import Collection
from pearl_qdrant.store.system import resource_error

FORMAT = 1  # version of the lines. A program refuses those of a later one.

BatchKind = Literal["learn", "accept", "reject", "undo"]
"""What made a batch: labelled mentions, `accept`, `reject`, or an undo of another batch."""


class LearnedRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How often, at least once, a cleaned mention meant an entity, or None; in a batch of kind "reject" it did not."""

    mention: str
    entity_id: str | None
    count: int


@dataclass(frozen=True, slots=True)
class LearnedBatch:
    """What one call taught a collection.

    Attributes:
        number: Its number, from 1, in the order of the calls.
        time: When, in UTC, as in "2025-01-31T12:00:00Z".
        source: The file, or what the caller said; may be empty.
        mentions, names: Mentions in it, repeated ones included, and distinct pairs of mention and entity.
        aliases: Pairs of name and entity id that were added as names of the base.
        undoes: Number of the batch that it undoes; None for other kinds.
        is_effective: Whether it counts: it was not undone, and its base is the one of the collection.
        key, digest: Of the batch, which tells apart batches of one number, and of its rows.
    """

    number: int
    kind: BatchKind
    time: str
    source: str
    mentions: int
    names: int
    nil_mentions: int
    aliases: tuple[tuple[str, str], ...]
    undoes: int | None
    is_effective: bool
    kb: str
    key: str
    digest: str
    undoes_key: str | None = None


class _Head(msgspec.Struct, frozen=True, omit_defaults=True):
    """The first line of a batch."""

    batch: str
    format: int
    number: int
    kind: str
    time: str
    kb: str
    source: str = ""
    digest: str = ""
    undoes: int | None = None
    undoes_key: str | None = None


class _End(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The last line of a batch."""

    end: str
    rows: int
    aliases: tuple[tuple[str, str], ...] = ()


class _Format(msgspec.Struct):
    format: int


_read_row, _read_end = msgspec.json.Decoder(LearnedRow).decode, msgspec.json.Decoder(_End).decode


@dataclass(frozen=True, slots=True)
class Ledger:
    """All complete batches of a ledger, in its order, with the rows of those that are effective."""

    batches: tuple[LearnedBatch, ...] = ()
    # rows of effective batches by the key of their batch
    rows: dict[str, list[LearnedRow]] = field(default_factory=dict)
    n_unreadable: int = 0  # lines that belong to no complete batch
    # number of the first line that is damaged, from 1; None if all that is unreadable are batches whose writer died:
    # they stop, with a torn last line at most, where the next batch or nothing begins.
    first_damaged: int | None = None

    @property
    def next_number(self) -> int:
        """The number of the next batch."""
        return max((batch.number for batch in self.batches), default=0) + 1

    def effective(self) -> Iterator[tuple[LearnedBatch, list[LearnedRow]]]:
        """Yield the effective batches that have rows."""
        for batch in self.batches:
            if batch.is_effective and batch.kind != "undo":
                yield batch, self.rows[batch.key]

    def aliases(self) -> dict[tuple[str, str], str]:
        """The pairs of name and entity id that effective batches added, with the key of the first such batch."""
        found: dict[tuple[str, str], str] = {}
        for batch, _ in self.effective():
            for pair in batch.aliases:
                found.setdefault(pair, batch.key)
        return found

    def find(self, wanted: int | str, collection: str) -> LearnedBatch:
        """The batch of this number or key. Raises LearningError if there is none, or several processes made one of the
        number at once.
        """
        found = [batch for batch in self.batches if wanted in (batch.number, batch.key)]
        if len(found) == 1:
            return found[0]
        if found:
            keys = ", ".join(batch.key for batch in found)
            raise LearningError(
                f"Collection '{collection}' has several batches with the number {wanted}, which were learned at the "
                f"same time. Name one of them by its key: {keys}."
            )
        if isinstance(wanted, str):
            raise LearningError(f"Collection '{collection}' has no batch with the key {wanted}.")
        known = f"1 to {self.next_number - 1}" if self.batches else "none, nothing was learned yet"
        raise LearningError(f"Collection '{collection}' has no batch {wanted} (there are: {known}).")


def read_ledger(collection: Collection) -> Ledger:
    """The ledger of a collection; an empty one if nothing was learned. Raises LearningError if a later version of this
    package wrote it; StoreError if it cannot be read, or memory runs out.
    """
    try:
        return parse_ledger(collection.read_ledger(), collection.name, collection.manifest.kb)
    except MemoryError as error:
        lack = resource_error(error, f"What collection '{collection.name}' learned cannot be read")
        raise lack or StoreError(str(error)) from error


def parse_ledger(lines: Iterable[bytes], collection: str, kb: str) -> Ledger:
    """The ledger of some lines, as `read_ledger`; batches of another base than `kb` have no effect."""
    complete: list[tuple[_Head, list[LearnedRow], _End]] = []
    head: _Head | None = None
    rows: list[LearnedRow] = []
    n_unreadable = 0
    damaged: list[int] = []
    torn: int | None = None  # a line that may be the last of a writer that died; only the head of a batch may follow
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        if torn is not None and not line.startswith(b'{"batch"'):
            damaged.append(torn)
        torn = None
        try:
            if line.startswith(b"["):
                rows.append(_read_row(line))
                continue
            if line.startswith(b'{"end"'):
                end = _read_end(line)
                if head is not None and end.end == head.batch and end.rows == len(rows):
                    complete.append((head, rows, end))
                else:
                    n_unreadable += len(rows) + 1 + (head is not None)
                    damaged.append(number)
                head, rows = None, []
                continue
            version = msgspec.json.decode(line, type=_Format).format
            if version > FORMAT:
                raise LearningError(
                    f"Collection '{collection}' learned names with a later version of pearl-qdrant (format {version}, "
                    f"this program knows {FORMAT}). Update pearl-qdrant: pip install --upgrade pearl-qdrant"
                )
            started = msgspec.json.decode(line, type=_Head)
        except msgspec.MsgspecError:
            n_unreadable += 1
            torn = number
            continue
        n_unreadable += len(rows) + (head is not None)
        head, rows = started, []
    n_unreadable += len(rows) + (head is not None)
    return replace(_with_effects(complete, kb), n_unreadable=n_unreadable, first_damaged=min(damaged, default=None))


def _with_effects(complete: Sequence[tuple[_Head, list[LearnedRow], _End]], kb: str) -> Ledger:
    """The ledger of these batches by number, with what undos leave of them."""
    # A server's clocks may differ. An undo has seen the batch that it names, so its number is higher.
    complete = sorted(complete, key=lambda one: one[0].number)
    undone_by: dict[str, list[str]] = {}
    for head, _, _ in complete:
        if head.undoes_key is not None:
            undone_by.setdefault(head.undoes_key, []).append(head.batch)
    undone: dict[str, bool] = {}
    for head, _, _ in reversed(complete):
        undone[head.batch] = any(not undone.get(key, False) for key in undone_by.get(head.batch, ()))
    batches = []
    kept = {}
    for head, rows, end in complete:
        is_effective = head.kb == kb and not undone[head.batch]
        batches.append(_batch_of(head, rows, end, is_effective))
        if is_effective:
            kept[head.batch] = rows
    return Ledger(tuple(batches), kept)


def _batch_of(head: _Head, rows: Sequence[LearnedRow], end: _End, is_effective: bool) -> LearnedBatch:
    same = ("number", "time", "source", "undoes", "kb", "digest", "undoes_key")
    kinds: dict[str, BatchKind] = {kind: kind for kind in get_args(BatchKind)}
    return LearnedBatch(
        kind=kinds.get(head.kind, "learn"),
        mentions=sum(row.count for row in rows),
        names=len(rows),
        nil_mentions=sum(row.count for row in rows if row.entity_id is None),
        aliases=end.aliases,
        is_effective=is_effective,
        key=head.batch,
        **{name: getattr(head, name) for name in same},
    )


def append_batch(
    collection: Collection,
    number: int,
    kind: BatchKind,
    rows: Sequence[LearnedRow] = (),
    *,
    source: str = "",
    digest: str = "",
    aliases: Sequence[tuple[str, str]] = (),
    undoes: LearnedBatch | None = None,
) -> LearnedBatch:
    """Append a batch to the ledger of a collection; it is stored durably, and effective, on return. Raises
    StoreFullError if there is no space for it; nothing of it is effective then; StoreError if it cannot be written.
    """
    head = _Head(
        batch=secrets.token_hex(4),
        format=FORMAT,
        number=number,
        kind=kind,
        time=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        kb=collection.manifest.kb,
        source=source,
        digest=digest,
        undoes=None if undoes is None else undoes.number,
        undoes_key=None if undoes is None else undoes.key,
    )
    end = _End(head.batch, len(rows), tuple(aliases))
    encode = msgspec.json.Encoder().encode
    collection.append_ledger([encode(head), *map(encode, rows), encode(end)])
    return _batch_of(head, rows, end, True)
