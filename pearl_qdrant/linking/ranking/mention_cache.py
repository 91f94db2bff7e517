"""Remembers scored mentions, so that a mention that comes again is not searched again.

A mention is kept as bytes, so that the garbage collector, for which an event loop waits, has nothing to visit. 10
candidates take 4 to 5 KB, 30 take 12 to 14. Packing takes 0.06 to 0.2 ms, unpacking 0.15 to 0.5, a search 4 to 10.
"""

from __future__ import annotations

import pickle
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import fields
from operator import attrgetter, is_
from typing import Any

import numpy as np

from pearl_qdrant.linking.ranking.model import FEATURES
from pearl_qdrant.linking.ranking.scored import LinkQuery, MatchedName, ScoredEntity, ScoredMention
from pearl_qdrant.store.schema import NamePoint

CACHE_BYTES = 32 << 20
"""Packed mentions that are kept: about 6,500 with 10 candidates each, 2,400 with 30."""

ENTRY_BYTES = 250
"""What an entry takes beside its key and its mention: objects, and the dictionary."""


class MentionCache:
    """Packed mentions, the last ones used, up to a number of bytes. Safe to use from several threads.

    They are valid for one state of the collections: those of another state are forgotten with the first use of the
    new one.

    Args:
        max_bytes: Bytes to keep at most; 0 keeps none.
    """

    def __init__(self, max_bytes: int = CACHE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._packed: OrderedDict[str, bytes] = OrderedDict()
        self._state: Sequence[object] = ()
        self._n_bytes = 0

    @property
    def n_bytes(self) -> int:
        """Bytes that are kept."""
        return self._n_bytes

    def __len__(self) -> int:
        return len(self._packed)

    def get(self, texts: Iterable[str], link_query: LinkQuery, state: Sequence[object]) -> dict[str, bytes]:
        """The packed mentions that are known, by their text.

        Args:
            texts: Cleaned mentions.
            state: Of the collections now; states are equal if their items are the same objects.
        """
        query = repr(link_query)
        with self._lock:
            if not is_same_state(state, self._state):
                self._packed.clear()
                self._state, self._n_bytes = tuple(state), 0
            found = {text: packed for text in texts if (packed := self._packed.get(query + text)) is not None}
            for text in found:
                self._packed.move_to_end(query + text)
        return found

    def put(self, text: str, link_query: LinkQuery, packed: bytes, state: Sequence[object]) -> None:
        """Keep a packed mention, unless the collections have changed since.

        Args:
            text, link_query: As in `get`.
            packed: By `pack`.
            state: Of the collections before they were searched.
        """
        key = repr(link_query) + text
        with self._lock:
            if not is_same_state(state, self._state) or key in self._packed:
                return
            self._packed[key] = packed
            self._n_bytes += len(packed) + len(key) + ENTRY_BYTES
            while self._n_bytes > self._max_bytes:
                oldest, dropped = self._packed.popitem(last=False)
                self._n_bytes -= len(dropped) + len(oldest) + ENTRY_BYTES

    def clear(self) -> None:
        """Forget all mentions."""
        with self._lock:
            self._packed.clear()
            self._n_bytes = 0


def is_same_state(state: Sequence[object], other: Sequence[object]) -> bool:
    """Whether two states have the same objects as items."""
    return len(state) == len(other) and all(map(is_, state, other))


def pack(scored: ScoredMention) -> bytes:
    """A scored mention as bytes, but for its text."""
    found = scored.found
    points = [_point_fields(entity.name.point) for entity in found]
    names = [_name_fields(entity.name) for entity in found]
    entities = [_entity_fields(entity) for entity in found]
    features = np.array([entity.features for entity in found], dtype=np.float64).ravel()
    at = np.flatnonzero(features)  # two thirds are 0
    of_mention = (scored.nil_logit, scored.nil_features.tobytes(), scored.rule, scored.certainty)
    packed = of_mention, at.astype(np.uint32).tobytes(), features[at].tobytes(), points, names, entities
    return pickle.dumps(packed, pickle.HIGHEST_PROTOCOL)


def unpack(packed: bytes, mention: str) -> ScoredMention:
    """The scored mention that `pack` packed; all of it is new, so that a caller may change it."""
    of_mention, at, values, points, names, entities = pickle.loads(packed)  # noqa: S301 - packed by this process
    features = np.zeros((len(points), len(FEATURES)))
    features.ravel()[np.frombuffer(at, dtype=np.uint32)] = np.frombuffer(values)
    found = [
        ScoredEntity(MatchedName(NamePoint(*of_point), *of_name), row, *of_entity)
        for of_point, of_name, of_entity, row in zip(points, names, entities, features, strict=True)
    ]
    nil_logit, nil_features, rule, certainty = of_mention
    return ScoredMention(mention, found, nil_logit, np.frombuffer(nil_features).copy(), rule, certainty)


def _fields_after(record: type, n: int) -> attrgetter[tuple[Any, ...]]:
    """Reads the fields of a record as a tuple, in their order, without the first `n`."""
    return attrgetter(*[one.name for one in fields(record)[n:]])


_point_fields = _fields_after(NamePoint, 0)
_name_fields = _fields_after(MatchedName, 1)  # the point is packed by itself
_entity_fields = _fields_after(ScoredEntity, 2)  # the name and the features are
