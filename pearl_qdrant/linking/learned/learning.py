"""Learning: labelled mentions, accepted and rejected links become batches of a collection's ledger; an undo too.

Labelled mentions are tab-separated pairs, or JSON Lines with documents or pairs:

    NYC<TAB>Q60                                                    a mention and an entity id
    the University<TAB>NIL                                         NIL or nothing: the base has no entity for it
    {"text": "She left NYC.", "mentions": [{"start": 9, "end": 12, "id": "Q60"}]}
    {"mention": "NYC", "id": "Q60"}

The first line of tab-separated pairs may be a header. Further columns and keys are ignored; `entity_id` is another name
of `id`. Offsets count characters from 0.

Learned names can become names of the base: chosen by their counts, written, and removed by an undo. Each is a point
like any other name, and its extra payload says which batch added it. So an update of the base does not take it for a
retired name, a name that the base itself has later is not removed by an undo, and a collection that is made again gets
them again (`sync_aliases`).
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from hashlib import blake2b
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple, cast

from msgspec.structs import replace

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.errors import FormatError, LearningError, StoreError
from pearl_qdrant.linking.editing import encoded_points, names_by_entity, store_counts
from pearl_qdrant.linking.learned.ledger import LearnedBatch, LearnedRow, append_batch, read_ledger
from pearl_qdrant.linking.learned.names import Counts, counts_of, name_of, spelling_key
from pearl_qdrant.linking.mention_detection.blocks import read_spans
from pearl_qdrant.linking.mentions import read_text_lines
from pearl_qdrant.records import Entity
from pearl_qdrant.store.open import StoreLike, use_store
from pearl_qdrant.store.protocol import Collection
from pearl_qdrant.store.schema import NamePoint, entity_from_points, point_id

NIL = "NIL"
_SHOWN = 80  # characters of a value in an error


class LabelledMention(NamedTuple):
    """A mention as it is in a file, with its right entity, None for NIL, and the number of its line, from 1."""

    mention: str
    entity_id: str | None
    line: int


def read_labelled(path: Path) -> Iterator[LabelledMention]:
    """Yield the labelled mentions of a file, repeated ones too: JSON Lines if its name ends in .jsonl or .ndjson, else
    pairs. Raises FormatError if it cannot be read or is not UTF-8, or a line is too long or has another form.
    """
    is_json = path.name.lower().endswith((".jsonl", ".ndjson"))
    example = '{"text": "She left NYC.", "mentions": [{"start": 9, "end": 12, "id": "Q60"}]}' if is_json else "NYC\tQ60"
    try:
        with path.open("rb") as file:
            for number, line in read_text_lines(file, str(path)):
                try:
                    found = list(_of_json(line) if is_json else _of_pair(line, number)) if line.strip() else []
                except (ValueError, RecursionError) as error:
                    message = f"{error}. A line looks like this: {example}"
                    raise FormatError(str(path), number, message) from error
                yield from (LabelledMention(mention, entity_id, number) for mention, entity_id in found)
    except OSError as error:
        raise FormatError(str(path), None, f"cannot be read ({error.strerror or error}).") from error


def _of_pair(line: str, number: int) -> Iterator[tuple[str, str | None]]:
    fields = line.split("\t")
    if number == 1 and len(fields) > 1 and fields[1].strip().casefold() in ("entity_id", "id"):
        return
    if len(fields) < 2 or not fields[0].strip():
        raise ValueError("expected a mention, a tab and an entity id, or NIL for no entity")
    yield fields[0], as_id(fields[1])


def as_id(text: str) -> str | None:
    """An entity id as it is written in a file; None for nothing and for NIL."""
    key = text.strip()
    return None if key in ("", NIL) else key


def _of_json(line: str) -> Iterator[tuple[str, str | None]]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ValueError(f"not JSON ({error})") from error
    row = row if isinstance(row, dict) else {}
    text, mentions = row.get("text"), row.get("mentions")
    if isinstance(text, str) and isinstance(mentions, list):
        pairs = [(text[s.start : s.end], given) for s, given in zip(read_spans(text, mentions), mentions, strict=True)]
    elif isinstance(row.get("mention"), str) and row["mention"].strip():
        pairs = [(row["mention"], row)]
    else:
        raise ValueError("neither a text with mentions nor a mention")
    for mention, given in pairs:
        if not mention.strip():
            raise ValueError(f"the mention {mention!r} is white space")
        yield mention, _id_of(given)


def _id_of(row: object) -> str | None:
    """The entity id of a mention; a number is taken as text, since many bases have such ids."""
    for name in ("id", "entity_id"):
        if isinstance(row, dict) and name in row:
            value = row[name]
            if isinstance(value, str) or value is None:
                return as_id(value or "")
            if isinstance(value, int) and not isinstance(value, bool):
                return str(value)
            raise ValueError(f"the id is {json.dumps(value)[:_SHOWN]}. Give a string, or null for no entity")
    raise ValueError("a mention without id. Give null for no entity")


Labelled = str | os.PathLike[str] | Iterable[tuple[str, str | None]]
"""A file of labelled mentions (`learned.learning`), or pairs of a mention and an entity id, None for no entity."""


@dataclass(frozen=True, slots=True)
class Learned:
    """What `learn` did: the batch that was appended; how many mentions were skipped, because the collection does not
    have their entities; and the ids of these, sorted.
    """

    batch: LearnedBatch
    skipped: int = 0
    unknown_ids: tuple[str, ...] = ()


def learn(
    collection: Collection,
    encoder: Encoder,
    labelled: Labelled,
    *,
    source: str | None = None,
    add_aliases: int | None = None,
    skip_unknown: bool = False,
    again: bool = False,
) -> Learned:
    """Learn labelled mentions. See `EntityLinker.learn`, which calls this."""
    if add_aliases is not None and add_aliases < 1:
        raise ValueError(f"add_aliases is a number of mentions of at least 1, not {add_aliases}")
    if source is None:
        source = Path(labelled).name if isinstance(labelled, (str, os.PathLike)) else ""
    mentions = _read(labelled)
    ledger = read_ledger(collection)
    unknown = unknown_ids(collection, {one.entity_id for one in mentions if one.entity_id is not None})
    if unknown and not skip_unknown:
        bad = [one for one in mentions if one.entity_id in unknown]
        place = f"{source}:{bad[0].line}" if source else f"Labelled mention {bad[0].line}"
        raise LearningError(
            f"{place}: entity id '{str(bad[0].entity_id)[:_SHOWN]}' is not in collection '{collection.name}' "
            f"({len(unknown):,} unknown ids in {len(bad):,} of {len(mentions):,} mentions). Nothing was learned. Are "
            f"they ids of this base? Use NIL for a mention without an entity, or leave out the mentions with unknown "
            f"ids.",
            option="skip_unknown",
        )
    kept = [one for one in mentions if one.entity_id not in unknown]
    if not kept:
        raise LearningError(f"{source or 'The input'} has no labelled mention of an entity of '{collection.name}'.")
    counted = Counter((_name(one, source), one.entity_id) for one in kept)
    rows = [LearnedRow(name, entity_id, n) for (name, entity_id), n in counted.items()]
    digest = _digest(rows)
    learned = next((one for one in ledger.batches if one.is_effective and one.digest == digest), None)
    if learned is not None and not again:  # learned twice, they would outweigh others
        of_source = f" from {learned.source}" if learned.source else ""
        raise LearningError(
            f"Collection '{collection.name}' learned these very mentions already: batch {learned.number}{of_source}, "
            f"at {learned.time}. Nothing was learned. Undo that batch first, or learn them a second time.",
            option="again",
        )
    aliases = []
    if add_aliases is not None:
        counts = counts_of(ledger)
        counts.add(rows)
        aliases = choose_aliases(collection, counts, add_aliases)
    batch = append_batch(collection, ledger.next_number, "learn", rows, source=source, digest=digest, aliases=aliases)
    if aliases:
        try:
            sync_aliases(collection, encoder)
        except StoreError:  # so that they can be learned again
            append_batch(collection, batch.number + 1, "undo", source="its aliases could not be written", undoes=batch)
            raise
    return Learned(batch, len(mentions) - len(kept), tuple(sorted(unknown)))


def _read(labelled: Labelled) -> list[LabelledMention]:
    """All labelled mentions of a file or of pairs."""
    if isinstance(labelled, (str, os.PathLike)):
        return list(read_labelled(Path(labelled)))
    found = []
    for number, pair in enumerate(cast("Iterable[object]", labelled), 1):
        if isinstance(pair, (str, bytes)) or not isinstance(pair, Sequence) or len(pair) != 2:
            raise LearningError(
                f"Labelled mention {number} is {pair!r:.80}: give a pair of a mention and an entity id."
            )
        mention, entity_id = pair
        if not isinstance(entity_id, str) and entity_id is not None:
            raise LearningError(f"The entity id of labelled mention {number} is {entity_id!r:.80}: give text, or None.")
        found.append(LabelledMention(mention, as_id(entity_id or ""), number))
    return found


def _name(one: LabelledMention, source: str) -> str:
    """The name to learn. Raises FormatError if the mention is no text, or too long to be a name."""
    name = name_of(one.mention)
    if not name:
        raise FormatError(source or "labelled mention", one.line, "the mention is no valid text, empty or too long.")
    return name


def unknown_ids(collection: Collection, entity_ids: Iterable[str]) -> set[str]:
    """Those of some entity ids that a collection does not have."""
    wanted = set(entity_ids)
    return wanted - names_by_entity(collection, wanted).keys()


def _digest(rows: Iterable[LearnedRow]) -> str:
    """The same for the same counts, in any order."""
    total = 0
    for row in rows:
        key = f"{row.mention}\0{row.entity_id or ''}\0{row.count}".encode()
        total ^= int.from_bytes(blake2b(key, digest_size=8).digest(), "big")
    return f"{total:016x}"


def undo(collection: Collection, encoder: Encoder, batch: int | str) -> LearnedBatch:
    """Undo a batch. See `EntityLinker.undo_learned`, which calls this."""
    ledger = read_ledger(collection)
    found = ledger.find(batch, collection.name)
    for other in ledger.batches:
        if other.undoes_key == found.key and other.is_effective:
            raise LearningError(
                f"Batch {found.number} of collection '{collection.name}' is undone already, by batch {other.number}. "
                f"Undo batch {other.number} to make batch {found.number} count again."
            )
    undone = append_batch(collection, ledger.next_number, "undo", undoes=found)
    sync_aliases(collection, encoder)
    return undone


def learned_batches(collection: str, *, store: StoreLike = None) -> tuple[LearnedBatch, ...]:
    """The batches that a collection learned, by number, undone ones included; needs no model. The store is as in
    `EntityLinker.open`. Raises CollectionNotFoundError, or LearningError if a later version of this package wrote the
    ledger.
    """
    with use_store(store) as opened, closing(opened.open(collection, read_only=True)) as target:
        return read_ledger(target).batches


def learned_pairs(collection: Collection) -> list[tuple[str, str | None]]:
    """Distinct pairs of mention and entity id that a collection learned or accepted, for a calibration."""
    kept = (rows for batch, rows in read_ledger(collection).effective() if batch.kind != "reject")
    return list(dict.fromkeys((row.mention, row.entity_id) for rows in kept for row in rows))


MARK = "learned_in"  # extra payload field of a learned alias: the key of the batch that added it
_BATCH = 1024  # names encoded and written at once


def choose_aliases(collection: Collection, counts: Counts, at_least: int) -> list[tuple[str, str]]:
    """Pairs of name and entity id that deserve to be names of the base, sorted. That is the most frequent form of a
    name that meant the entity so often, and more often than anything else, unless the entity has a name of its spelling
    key.
    """
    chosen = [pair for rows in counts.rows() if (pair := _clear_winner(rows, at_least)) is not None]
    known = names_by_entity(collection, {entity_id for _, entity_id in chosen})
    return sorted(
        (name, entity_id)
        for name, entity_id in chosen
        if entity_id in known and spelling_key(name) not in {spelling_key(one.name) for one in known[entity_id]}
    )


def _clear_winner(rows: Sequence[LearnedRow], at_least: int) -> tuple[str, str] | None:
    """The most frequent form of a name, and the entity that it meant often enough; None if there is none."""
    by_entity: Counter[str | None] = Counter()
    for row in rows:
        by_entity[row.entity_id] += row.count
    (best, n), *others = by_entity.most_common(2)
    if best is None or n < at_least or (others and others[0][1] == n):
        return None
    forms: Counter[str] = Counter()
    for row in rows:
        if row.entity_id == best:
            forms[row.mention] += row.count
    return max(forms, key=lambda form: (forms[form], form)), best


def alias_point_ids(collection: Collection) -> frozenset[str]:
    """Ids of the points of all learned aliases; most collections have none."""
    return frozenset(_point_id(collection, pair) for pair in read_ledger(collection).aliases())


def sync_aliases(collection: Collection, encoder: Encoder) -> None:
    """Make the learned aliases in a collection those that its ledger has: add, refresh and remove points. It is called
    after each edit of the ledger, and after each load. Raises StoreError as the collection does.
    """
    ledger = read_ledger(collection)
    ever = {pair for batch in ledger.batches for pair in batch.aliases}
    if not ever:
        return
    wanted = ledger.aliases()
    entities = {
        entity_id: entity_from_points(own)
        for entity_id, points in names_by_entity(collection, {entity_id for _, entity_id in wanted}).items()
        if (own := [point for point in points if MARK not in point.extra])
    }
    stored = collection.get([_point_id(collection, pair) for pair in sorted(ever)])
    added: list[tuple[Entity, str]] = []
    retired: set[str] = set()
    for pair in sorted(ever):
        point = stored.get(_point_id(collection, pair))
        entity = entities.get(pair[1]) if pair in wanted else None
        if entity is None:
            if point is not None and MARK in point.extra:
                retired.add(point.id)
        elif point is None or (MARK in point.extra and _is_outdated(point, entity)):
            added.append((entity, pair[0]))
    for start in range(0, len(added), _BATCH):
        points, vectors, encodable = encoded_points(collection, encoder, added[start : start + _BATCH])
        marked = [replace(one, extra={**one.extra, MARK: wanted[one.name, one.entity_id]}) for one in points]
        collection.upsert(marked, vectors, encodable)
    collection.delete_points(retired)
    if added or retired:
        store_counts(collection)


def _point_id(collection: Collection, pair: tuple[str, str]) -> str:
    return point_id(collection.manifest.kb, pair[1], pair[0])


def _is_outdated(point: NamePoint, entity: Entity) -> bool:
    """Whether the entity of a learned alias has changed since it was written."""
    fields = attrgetter("canonical_name", "kb_types", "types", "description", "popularity")
    return bool(fields(point) != fields(entity))
