"""Which entities own which names, by hash: 16 bytes a name, so that a base of ten million names fits into memory."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

import numpy as np

from pearl_qdrant.lexical.keys import name_keys
from pearl_qdrant.lexical.ngrams import fold_name


def spelling_key(name: str) -> str:
    """The folded name without spaces; the name itself if it has no letters and digits."""
    return name_keys(fold_name(name))[0] or name


class NameOwners:
    """Maps names to the entities that have them, and entities to names. Hashes differ from process to process.

    Args:
        pairs: Entity id and name of every name of the base.
    """

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        entities, names = array("q"), array("q")
        for entity_id, name in pairs:
            entities.append(hash(entity_id))
            names.append(hash(spelling_key(name)))
        owner_of, name_of = np.frombuffer(entities, dtype=np.int64), np.frombuffer(names, dtype=np.int64)
        by_name, by_entity = np.argsort(name_of, kind="stable"), np.argsort(owner_of, kind="stable")
        self._names, self._owners = name_of[by_name], owner_of[by_name]
        self._entities, self._names_of = owner_of[by_entity], name_of[by_entity]

    def __len__(self) -> int:
        return len(self._names)

    def of_name(self, name: str) -> frozenset[int]:
        """Hashed ids of the entities with a name of this spelling key."""
        return self._of_hash(hash(spelling_key(name)))

    def sharing_names_with(self, entity_id: str) -> frozenset[int]:
        """Hashed ids of all entities that share a name with this one, its own included."""
        key = hash(entity_id)
        names = self._names_of[slice(*np.searchsorted(self._entities, [key, key + 1]))]
        return frozenset({key}.union(*(self._of_hash(int(name)) for name in names)))

    def _of_hash(self, key: int) -> frozenset[int]:
        first, last = np.searchsorted(self._names, key, "left"), np.searchsorted(self._names, key, "right")
        return frozenset(self._owners[first:last].tolist())
