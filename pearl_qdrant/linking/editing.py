"""Entities that a program holds: a new collection of them, and a few added to or deleted from one, effective at once.

They are `Entity` objects, dictionaries, or the rows of a pandas or polars frame. Qdrant Edge keeps everything in files:
"in memory" is a temporary folder, which is deleted when the store is closed, or at the latest when the program ends. A
small collection is written in this process, a larger one by the child process of a bulk load (`store.protocol.Writer`).
"""

from __future__ import annotations

import logging
import math
import os
import shutil
import tempfile
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from reprlib import repr as short_repr
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from pearl_qdrant.cells import is_null, split_list, text_of
from pearl_qdrant.encoder.protocol import BoolArray, Encoder, FloatArray
from pearl_qdrant.errors import InvalidEntityError, StoreError
from pearl_qdrant.lexical.ngrams import IdfTable
from pearl_qdrant.phrase_types import ENTITY_TYPES
from pearl_qdrant.records import Entity
from pearl_qdrant.store.edge.store import EdgeStore
from pearl_qdrant.store.protocol import Collection, Store
from pearl_qdrant.store.schema import MAX_NAMES, OWN_FIELDS, Manifest, NamePoint, name_points, names_of

if TYPE_CHECKING:
    from typing import TypeAlias


_BATCH = 1024  # entities that are encoded and written at once
_CHUNK = 256  # entities read at once


class EntityBatches:
    """Checked entities in batches of 1,024, read once; an iteration begins with the batch that was not written. Within
    a batch, the last entity of an id replaces earlier ones. `written` counts names.
    """

    def __init__(self, entities: Iterable[Entity]) -> None:
        if isinstance(entities, (str, bytes, Entity)) or not isinstance(entities, Iterable):
            raise InvalidEntityError(
                f"add takes a list of entities, not {_shown(entities)}: pass [Entity('id', 'name')]"
            )
        self._remaining = iter(entities)
        self._unwritten: list[Entity] = []
        self.written = 0

    def __iter__(self) -> Iterator[list[Entity]]:
        """Yield batches; asking for the next one says that the last one is written."""
        while batch := self._unwritten or self._read():
            self._unwritten = batch
            yield batch
            self._unwritten = []

    def _read(self) -> list[Entity]:
        batch = list(islice(self._remaining, _BATCH))
        for entity in batch:
            check_entity(entity)
        return list({entity.entity_id: entity for entity in batch}.values())


def add_entities(collection: Collection, encoder: Encoder, batches: EntityBatches) -> int:
    """Write entities, replacing those with the same id; returns the number of names written.

    If the collection was moved, another call goes on in the new version with the batch that was not written. Raises
    CollectionMovedError if another version took the collection's place; InvalidEntityError if an item is not an entity,
    or has an empty id or name. The batches before it are written by then.
    """
    try:
        for batch in batches:
            points, vectors, encodable = encoded_points(collection, encoder, names_of(batch))
            old = points_of(collection, [e.entity_id for e in batch])
            collection.upsert(points, vectors, encodable)
            collection.delete_points({p.id for p in old} - {p.id for p in points})
            batches.written += len(points)
    except StoreError:
        raise  # the store would not accept the counts either
    except BaseException:
        if batches.written:
            store_counts(collection, edited=True)
        raise
    if batches.written:
        store_counts(collection, edited=True)
    return batches.written


def check_entity(entity: object) -> None:
    """Check the types and texts of an entity that a caller made. Raises InvalidEntityError if it is not an `Entity`, a
    field has the wrong type or is not valid Unicode, or the id or a name is empty.
    """
    if not isinstance(entity, Entity):
        raise InvalidEntityError(f"add takes entities, not {_shown(entity)}: pass Entity('id', 'name')")
    owner = f"of entity {short_repr(entity.entity_id)}"
    for label, texts in (("aliases", entity.aliases), ("kb_types", entity.kb_types), ("types", entity.types)):
        if isinstance(texts, (str, bytes)):
            raise InvalidEntityError(f"{label} {owner} is a tuple of strings, not the string {short_repr(texts)}")
        if not isinstance(texts, Sequence):
            raise InvalidEntityError(f"{label} {owner} is a tuple of strings, not {_shown(texts)}")
    if not isinstance(entity.extra, Mapping):
        raise InvalidEntityError(f"extra {owner} is a mapping of strings, not {_shown(entity.extra)}")
    for label, text in (("id", entity.entity_id), *(("name", name) for name in entity.names())):
        _check_text(text, label, owner)
        if not text.strip():
            raise InvalidEntityError(f"entity {entity.entity_id!r} has an empty {label}: {text!r}")
    for text in (*entity.kb_types, *entity.types):
        _check_text(text, "type", owner)
    if entity.description is not None:
        _check_text(entity.description, "description", owner)
    popularity: object = entity.popularity
    if popularity is not None:
        is_number = isinstance(popularity, (int, float)) and not isinstance(popularity, bool)
        if not is_number or not 0 <= popularity < math.inf:  # type: ignore[operator]
            raise InvalidEntityError(f"the popularity {owner} is no finite number of at least 0: {_shown(popularity)}")


def _check_text(text: object, label: str, owner: str) -> None:
    """Refuse anything that is not a string of valid Unicode, which cannot be stored."""
    if not isinstance(text, str):
        raise InvalidEntityError(f"a {label} {owner} is not text but {_shown(text)}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidEntityError(
            f"a {label} {owner} has a lone surrogate at character {error.start}, which is not valid text: "
            f"{text[:40]!a}. Decode its source with errors='replace'"
        ) from error


def _shown(value: object) -> str:
    return f"{type(value).__name__} {short_repr(value)}"


def encoded_points(
    collection: Collection, encoder: Encoder, names: Iterable[tuple[Entity, str]]
) -> tuple[list[NamePoint], FloatArray, BoolArray]:
    """The points of names of entities, their vectors, and which of them have one: what a collection is given."""
    pairs = list(names)
    encoded = encoder.encode([name for _, name in pairs])
    points = name_points(collection.manifest.kb, pairs, encoded)
    return points, encoded.vectors, np.asarray(encoded.encodable)


def names_by_entity(collection: Collection, entity_ids: Iterable[str]) -> dict[str, list[NamePoint]]:
    """The names of some entities; entities that do not exist are left out."""
    found: dict[str, list[NamePoint]] = {}
    ids = sorted(entity_ids)
    for start in range(0, len(ids), _CHUNK):
        for point in points_of(collection, ids[start : start + _CHUNK]):
            found.setdefault(point.entity_id, []).append(point)
    return found


def points_of(collection: Collection, entity_ids: Sequence[str]) -> list[NamePoint]:
    """All names of some entities."""
    limit = MAX_NAMES
    # A full answer may be cut off: ask again with a larger limit.
    while len(found := collection.find(entity_ids=entity_ids, limit=limit)) == limit:
        limit *= 4
    return found


def delete_entities(collection: Collection, entity_ids: Sequence[str]) -> int:
    """Delete entities with all their names; returns the number of deleted names."""
    n_deleted = collection.delete_entities(entity_ids)
    if n_deleted:
        store_counts(collection, edited=True)
    return n_deleted


def store_counts(collection: Collection, **changes: object) -> None:
    """Store the counts, and changes of other fields; not while a load is incomplete, since it counts at its end."""
    manifest = collection.read_manifest()
    if manifest.state == "ready":
        counts = {"names": collection.count(), "entities": collection.count_entities()}
        collection.write_manifest(manifest.model_copy(update={**changes, **counts}))


ID_KEYS = ("id", "entity_id")
NAME_KEYS = ("name", "canonical_name")
TYPE_KEYS = ("types", "type", "kb_types")
_SHOWN = 5  # conflicts in a message
log = logging.getLogger(__name__)

_KNOWN = (*ID_KEYS, *NAME_KEYS, *TYPE_KEYS, "aliases", "description", "popularity")


class Frame(Protocol):
    """A frame of pandas (with `itertuples`) or polars (with `iter_rows`)."""

    @property
    def columns(self) -> Any: ...


EntitySource: TypeAlias = "Iterable[Entity | Mapping[str, object]] | Frame"  # what a collection can be built from


def read_entities(source: EntitySource) -> list[Entity]:
    """Read entities, in order; rows with the same id are names of one entity, the first one's name is canonical. Those
    with different names are logged as a warning, the first few with their numbers.

    A dictionary or row has "id" (or "entity_id") and "name" (or "canonical_name"), and maybe "aliases", "types" (or
    "type", "kb_types"), "description" and "popularity". Several aliases or types are a list, or text with bars between
    them. Types that are coarse ones (`ORG`) become coarse types, too. Other keys are kept in `Entity.extra`;
    one that a payload has for itself, such as `language`, as `column_language`. Raises InvalidEntityError, with its
    number, if an item is neither an entity nor a dictionary, or has no id or name, or a value of another kind.
    """
    found: dict[str, Entity] = {}
    conflicts: list[str] = []
    for number, row in enumerate(_rows(source)):
        try:
            entity = row if isinstance(row, Entity) else _entity_of(row)
            check_entity(entity)
        except InvalidEntityError as error:
            raise InvalidEntityError(f"item {number}: {error}") from error
        before = found.get(entity.entity_id)
        if before is not None and before.canonical_name != entity.canonical_name:
            conflicts.append(
                f"item {number}: id {entity.entity_id!r} is {before.canonical_name!r} in an earlier item, "
                f"{entity.canonical_name!r} here"
            )
        merged = entity if before is None else _merged(before, entity)
        aliases = tuple(one for one in dict.fromkeys(merged.aliases) if one != merged.canonical_name)
        found[entity.entity_id] = merged if aliases == tuple(merged.aliases) else replace(merged, aliases=aliases)
    if conflicts:
        log.warning(
            "%d items have the id of an earlier item and another name, which becomes one more name of that entity. "
            "This is right for synonyms, and wrong if an id was used twice: %s",
            len(conflicts),
            "; ".join(conflicts[:_SHOWN]),
        )
    return list(found.values())


def _rows(source: EntitySource) -> Iterable[object]:
    """The rows of a frame as dictionaries, or the items of any other iterable."""
    if callable(rows := getattr(source, "iter_rows", None)):  # polars
        return cast("Iterable[object]", rows(named=True))
    if callable(tuples := getattr(source, "itertuples", None)):  # pandas
        columns = [str(name) for name in cast("Frame", source).columns]
        if twice := [name for name, n in Counter(columns).items() if n > 1]:
            raise InvalidEntityError(f"the frame has several columns {twice[0]!r}: rename or drop all but one")
        return (dict(zip(columns, row, strict=True)) for row in tuples(index=False, name=None))
    if isinstance(source, (str, bytes, Mapping, Entity)) or not isinstance(source, Iterable):
        raise InvalidEntityError(
            f"entities is a list of entities or dictionaries, or a frame of pandas or polars, not "
            f"{type(source).__name__}. Files are loaded with pearl_qdrant.load_base."
        )
    return source


def _entity_of(row: object) -> Entity:
    if not isinstance(row, Mapping):
        raise InvalidEntityError(f"it is a {type(row).__name__}, not an Entity or a dictionary with id and name")
    given = {str(key): value for key, value in row.items() if not is_null(value)}
    entity_id, name = (text_of(_first(given, keys, given)) for keys in (ID_KEYS, NAME_KEYS))
    types = tuple(dict.fromkeys(kind for key in TYPE_KEYS for kind in _list_of(given.get(key), key)))
    popularity = given.get("popularity")
    return Entity(
        entity_id,
        name,
        aliases=tuple(_list_of(given.get("aliases"), "aliases")),
        kb_types=types,
        types=tuple(kind for kind in types if kind in ENTITY_TYPES),
        description=None if "description" not in given else text_of(given["description"]),
        # Keys of further fields are those that the readers of tables choose.
        extra={
            f"column_{key}" if key in OWN_FIELDS else key: text_of(value)
            for key, value in given.items()
            if key not in _KNOWN
        },
        popularity=None if popularity is None else _number_of(popularity),
    )


def _first(given: Mapping[str, object], keys: Sequence[str], row: Mapping[str, object]) -> object:
    for key in keys:
        if key in given:
            return given[key]
    raise InvalidEntityError(f"it has no {keys[0]!r} (or {keys[1]!r}); it has {', '.join(map(repr, row)) or 'nothing'}")


def _number_of(value: object) -> float:
    try:
        return float(cast("Any", value))
    except (TypeError, ValueError) as error:
        raise InvalidEntityError(f"its popularity is no number: {value!r}") from error


def _list_of(value: object, key: str) -> Iterator[str]:
    """The items of a cell: of a list, or of text with bars between them."""
    if is_null(value):
        return
    items: Iterable[object]
    if isinstance(value, str):
        items = split_list(value)
    elif isinstance(value, Iterable) and not isinstance(value, (bytes, Mapping)):
        items = value
    else:
        raise InvalidEntityError(f"its {key} is a list or text with bars, not {type(value).__name__}")
    for item in items:
        if not is_null(item) and (text := text_of(item).strip()):
            yield text


def _merged(first: Entity, more: Entity) -> Entity:
    def joined(of: Callable[[Entity], Iterable[str]]) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*of(first), *of(more))))

    return replace(
        first,
        aliases=joined(Entity.names),
        kb_types=joined(lambda entity: entity.kb_types),
        types=joined(lambda entity: entity.types),
        description=first.description or more.description,
        extra={**more.extra, **first.extra},
        popularity=more.popularity if first.popularity is None else first.popularity,
        languages={**more.languages, **first.languages},
    )


MEMORY = ":memory:"  # the store of a collection that is gone when its linker is closed
_BULK_NAMES = 20_000  # from here on the child process of a bulk load pays: it starts in about a second


class TemporaryStore(EdgeStore):
    """An embedded store in a temporary folder, which is deleted with it."""

    def __init__(self) -> None:
        path = Path(tempfile.mkdtemp(prefix="pearl-qdrant-"))
        super().__init__(path)
        self._delete = weakref.finalize(self, _delete_folder, path, os.getpid())

    def close(self) -> None:
        """Close the collections and delete the folder."""
        super().close()
        self._delete()


def _delete_folder(path: Path, pid: int) -> None:
    """Delete a folder, but not in a process that was forked from its owner."""
    if os.getpid() == pid:
        shutil.rmtree(path, ignore_errors=True)


def build_collection(store: Store, name: str, encoder: Encoder, entities: Sequence[Entity]) -> Collection:
    """Create a collection of at least one entity, with different ids; if this fails, it is deleted. Its base has its
    name. Raises CollectionExistsError if the store has a collection of that name; StoreError if it cannot be written.
    """
    manifest = Manifest.for_model(encoder.info, collection=name, kb=name, quantization=store.quantization)
    collection = store.create(manifest)
    try:
        _fill(collection, encoder, entities)
        collection.finalize()
        idf = IdfTable.from_names(point.name for point in collection.scroll()).to_text()
        counts = {"names": collection.count(), "entities": collection.count_entities()}
        ready = {"state": "ready", "ngram_rarity": idf, **counts}
        collection.write_manifest(collection.read_manifest().model_copy(update=ready))
    except BaseException:
        collection.close()
        store.delete(name)
        raise
    return collection


def _fill(collection: Collection, encoder: Encoder, entities: Sequence[Entity]) -> None:
    starts = range(0, len(entities), _BATCH)
    batches = (encoded_points(collection, encoder, names_of(entities[start : start + _BATCH])) for start in starts)
    if sum(1 + len(entity.aliases) for entity in entities) < _BULK_NAMES:
        for batch in batches:
            collection.upsert(*batch)
        return
    with collection.writer() as writer:
        for batch in batches:
            writer.write(*batch)
        writer.flush()
