"""A new collection from what a program holds: `Entity` objects, dictionaries, or the rows of a pandas or polars frame.

Qdrant Edge keeps everything in files: "in memory" is a temporary folder, which is deleted when the store is closed, or
at the latest when the program ends. A small collection is written in this process, a larger one by the child process of
a bulk load (`store.protocol.Writer`).
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from pearl_qdrant.cells import is_null, split_list, text_of
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.errors import InvalidEntityError
from pearl_qdrant.lexical.idf import IdfTable
from pearl_qdrant.linking.editing import check_entity, encoded_points
from pearl_qdrant.phrase_types import ENTITY_TYPES
from pearl_qdrant.records import Entity
from pearl_qdrant.store.edge.store import EdgeStore
from pearl_qdrant.store.protocol import Collection, Store
from pearl_qdrant.store.schema import OWN_FIELDS, Manifest, names_of

if TYPE_CHECKING:
    from typing import TypeAlias

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


EntitySource: TypeAlias = "Iterable[Entity | Mapping[str, object]] | Frame"
"""What a collection can be built from."""


def read_entities(source: EntitySource) -> list[Entity]:
    """Read entities, in order; rows with the same id are names of one entity, the first one's name is canonical.

    Rows with the same id and different names are logged as a warning, the first few with their numbers.

    A dictionary or row has "id" (or "entity_id") and "name" (or "canonical_name"), and maybe "aliases", "types" (or
    "type", "kb_types"), "description" and "popularity". Several aliases or types are a list, or text with bars between
    them. Types that are coarse ones (`ORG`) become coarse types, too. Other keys are kept in `Entity.extra`;
    one that a payload has for itself, such as `language`, as `column_language`.

    Raises:
        InvalidEntityError: If an item is neither an entity nor a dictionary, or has no id or name, or a value of
            another kind; the message has its number.
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
        found[entity.entity_id] = _clean(entity if before is None else _merged(before, entity))
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
        extra={_extra_key(key): text_of(value) for key, value in given.items() if key not in _KNOWN},
        popularity=None if popularity is None else _number_of(popularity),
    )


def _extra_key(key: str) -> str:
    """The key of a further field, as the readers of tables choose it."""
    return f"column_{key}" if key in OWN_FIELDS else key


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


def _clean(entity: Entity) -> Entity:
    """The entity without repeated aliases."""
    aliases = tuple(one for one in dict.fromkeys(entity.aliases) if one != entity.canonical_name)
    return entity if aliases == tuple(entity.aliases) else replace(entity, aliases=aliases)


MEMORY = ":memory:"
"""The store of a collection that is gone when its linker is closed."""

_BATCH = 1024  # entities that are encoded and written at once

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
    """Create a collection and fill it; if this fails, it is deleted. Raises CollectionExistsError if the store has a
    collection of that name; StoreError if it cannot be written.

    Args:
        store: Where it is created.
        name: The name of the collection and of its base.
        encoder: Encodes the names.
        entities: At least one; with different ids.
    """
    collection = store.create(Manifest.for_model(encoder.info, collection=name, kb=name))
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
