"""Builds the index of the names of a collection."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import orjson

from pearl_qdrant.service.names.files import Keys, NameFiles, Numbers, Text
from pearl_qdrant.service.names.folding import key_of
from pearl_qdrant.store.schema import NamePoint

MAX_WORDS = 8
"""Only so many words of a name can be its start for the search."""

ALPHABET = 40
"""Characters that a slip may have put in: letters and digits of one script, and some more."""

KEY = 8
"""Bytes of a key."""

_NO_POPULARITY = -1.0


class _Entities:
    """Entities as they are met, in the order of their first name.

    Attributes:
        records: What is shown of each, as JSON, one after the other; a list of small ones takes four times as much.
        record_ends: Where each ends.
        popularity: Of each; `_NO_POPULARITY` if it is not known.
        typed: The entities of each type.
    """

    def __init__(self) -> None:
        self._number: dict[tuple[str, str], int] = {}
        self.records = bytearray()
        self.record_ends = array("q", [0])
        self.popularity = array("d")
        self.typed: dict[str, array[int]] = {}

    def number(self, point: NamePoint) -> int:
        key = point.kb, point.entity_id
        number = self._number.get(key)
        if number is None:
            number = self._number[key] = len(self.popularity)
            self.records += _record(point)
            self.record_ends.append(len(self.records))
            self.popularity.append(_NO_POPULARITY if point.popularity is None else point.popularity)
            for name in point.filter_types:
                self.typed.setdefault(name, array("I")).append(number)
        return number


def build_files(points: Iterable[NamePoint]) -> NameFiles:
    """Build the index of some names; in memory, about 500 bytes a name while it is built."""
    entities = _Entities()
    names: list[bytes] = []
    folded: list[bytes] = []
    of_entity = array("I")
    is_canonical = array("b")
    for point in points:
        text = key_of(point.name).encode()
        if not text:
            continue
        names.append(point.name.encode("utf-8", "replace"))
        folded.append(text)
        of_entity.append(entities.number(point))
        is_canonical.append(point.is_canonical)
    text = b"\0".join([*folded, b""])
    lengths = np.array([len(one) for one in folded], np.int64)
    name_starts = (np.cumsum(lengths + 1) - lengths - 1).astype(np.uint32)
    starts, owners, is_first = _word_starts(folded, name_starts)
    order = _sorted_by_text(text, starts, (name_starts + lengths)[owners])
    starts, owners, is_first = starts[order], owners[order], is_first[order]
    ranks = _ranks(
        owners,
        lengths=lengths,
        is_canonical=np.array(is_canonical, np.bool_),
        popularity=np.array(entities.popularity, np.float64)[np.array(of_entity, np.uint32)],
        is_first=is_first,
    )
    type_lists = list(entities.typed.values())
    return NameFiles(
        text=text,
        starts=starts,
        keys=keys_at(text, starts),
        ranks=ranks,
        owners=owners,
        entities=np.array(of_entity, np.uint32),
        names=b"".join(names),
        name_offsets=_offsets(names),
        records=bytes(entities.records),
        record_offsets=np.array(entities.record_ends, np.int64),
        types={name: i for i, name in enumerate(entities.typed)},
        type_offsets=_offsets(type_lists),
        typed=np.array([number for one in type_lists for number in one], np.uint32),
        alphabet=_alphabet(folded),
    )


def _word_starts(folded: Sequence[bytes], name_starts: Numbers) -> tuple[Numbers, Numbers, npt.NDArray[np.bool_]]:
    """Positions of the words, the name of each, and whether it is the first of its name."""
    starts, owners, firsts = array("I"), array("I"), array("b")
    for number, (one, start) in enumerate(zip(folded, name_starts.tolist(), strict=True)):
        at = 0
        for word in range(MAX_WORDS):
            starts.append(start + at)
            owners.append(number)
            firsts.append(word == 0)
            if (at := one.find(b" ", at) + 1) == 0:
                break
    return np.array(starts, np.uint32), np.array(owners, np.uint32), np.array(firsts, np.bool_)


def _sorted_by_text(text: bytes, starts: Numbers, ends: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The order of positions by the text from there to the end of the name."""
    parts = [text[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    return np.array(sorted(range(len(parts)), key=parts.__getitem__), np.int64)


def keys_at(text: Text, positions: Numbers, *, skip: int = 0) -> Keys:
    """Eight bytes of text from each position as numbers of the same order; zeros behind the end of a name.

    Args:
        text: Names that end with a zero byte.
        positions: (s,) where each starts.
        skip: Bytes to skip there; the caller knows that the name does not end within them.
    """
    keys = np.zeros(len(positions), np.uint64)
    read = np.frombuffer(text, np.uint8)
    is_within = np.ones(len(positions), np.bool_)
    at = positions.astype(np.int64) + skip
    for _ in range(KEY):
        taken = np.where(is_within, read[np.minimum(at, len(read) - 1)] if len(read) else 0, 0)
        is_within &= taken != 0
        keys = (keys << np.uint64(8)) | taken.astype(np.uint64)
        at += 1
    return keys


def _ranks(
    owners: Numbers,
    *,
    lengths: npt.NDArray[np.int64],
    is_canonical: npt.NDArray[np.bool_],
    popularity: npt.NDArray[np.float64],
    is_first: npt.NDArray[np.bool_],
) -> Numbers:
    """Which positions to show first: starts of names, then by popularity, canonical names, short ones."""
    ranks = np.empty(len(owners), np.uint32)
    by = (owners, lengths[owners], ~is_canonical[owners], -popularity[owners], ~is_first)
    ranks[np.lexsort(by)] = np.arange(len(owners), dtype=np.uint32)
    return ranks


def _record(point: NamePoint) -> bytes:
    """What is shown of an entity."""
    return orjson.dumps(
        {
            "entity_id": point.entity_id,
            "kb": point.kb,
            "canonical_name": point.canonical_name,
            "types": list(point.types),
            "kb_types": list(point.kb_types),
            "description": point.description,
            "popularity": point.popularity,
        }
    )


def _offsets(parts: Sequence[bytes | array[int]]) -> npt.NDArray[np.int64]:
    return np.cumsum([0, *map(len, parts)]).astype(np.int64)


def _alphabet(folded: Sequence[bytes]) -> list[str]:
    """The most frequent characters; of many names, a sample is counted."""
    step = max(1, len(folded) // 50_000)
    counts = Counter("".join(one.decode() for one in folded[::step]))
    counts[" "] += 1
    return [character for character, _ in counts.most_common(ALPHABET)]
