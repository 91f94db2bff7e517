"""Turn bases into training data: typed names, and aliases that are positives of each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path

from pearl_qdrant.phrase_types import ENTITY_TYPES
from pearl_qdrant.records import Entity
from training.corpus.files import EntityRow
from training.examples.example import Example, one_class

_KNOWN = frozenset(ENTITY_TYPES)


def base_key(path: Path) -> str:
    """Return the prefix of the keys of a base's entities: its name, and a digest of its path.

    The name alone is not enough: `a/names.tsv` and `b/names.tsv` may both have an entity 1.
    """
    place = str(path.resolve()).encode("utf-8", "surrogateescape")
    return f"{path.name.partition('.')[0]}-{blake2b(place, digest_size=4).hexdigest()}"


def entity_row(entity: Entity, *, kb: str) -> EntityRow | None:
    """Convert an entity to a row of entities.jsonl; None if it has neither a type nor a second name."""
    types = tuple(kind for kind in entity.types if kind in _KNOWN)
    names = tuple(dict.fromkeys(name for name in entity.names() if name.strip()))
    if not names or (len(names) < 2 and not types):
        return None
    return EntityRow(f"{kb}:{entity.entity_id}", names, types)


def typed_names(rows: Iterable[EntityRow]) -> Iterator[tuple[str, str]]:
    """Yield each name of an entity with each of its types."""
    for row in rows:
        for kind in row.types:
            for name in row.names:
                yield name, kind


def entity_examples(rows: Iterable[EntityRow]) -> Iterator[Example]:
    """Yield an example per entity: its other names are positives, its types the target of the type head."""
    for row in rows:
        yield Example(row.names[0], row.names[1:], row.entity, one_class("NP", row.types))
