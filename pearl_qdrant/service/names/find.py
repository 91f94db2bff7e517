"""Finds names by prefix, and by prefix with a slip."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import msgspec
import numpy as np
import numpy.typing as npt

from pearl_qdrant.service.names.build import KEY, keys_at
from pearl_qdrant.service.names.files import NameFiles, Numbers
from pearl_qdrant.service.names.folding import key_of

MIN_SLIP_CHARACTERS = 4
"""A shorter query is a prefix of so many names that a slip says nothing."""

ENOUGH = 3
"""Entities without a slip from which on none with a slip are looked for: that takes most of the time."""

MIN_TWO_SLIPS_CHARACTERS = 12
"""From this length on, a query without any answer may have two slips, at least some letters apart."""

MAX_SLIP_BYTES = 48
"""A longer query is pasted, not typed: no spelling of it is tried, since their number and length grow with it."""

_BLOCK = 64
"""Positions whose best rank is kept, so that the best of a long range are found without looking at all of it."""

_LONG_RANGE = 4096
_MAX_GATHERED = 100_000
_MAX_SLIP_RANGE = 50_000
_CACHED_MASKS = 16

_MAX_HALVES = 4
"""Strings with the first of two slips that are followed."""

_SPACE = ord(" ")

Range = tuple[int, int]
Mask = npt.NDArray[np.bool_]


class FoundName(msgspec.Struct, frozen=True):
    """An entity that has a name like the query.

    Attributes:
        entity_id, kb, canonical_name, types, kb_types, description, popularity: As in `records.Candidate`.
        name: The name that was found.
        match: "name": it is the query; "prefix": it, or one of its words, starts with the query; "slip": it does with
            one letter changed, missing, added, or two swapped.
    """

    entity_id: str
    kb: str
    canonical_name: str
    types: tuple[str, ...]
    kb_types: tuple[str, ...]
    description: str | None
    popularity: float | None
    name: str = ""
    match: str = ""


_read_record = msgspec.json.Decoder(FoundName).decode


@dataclass(frozen=True, eq=False)
class NameIndex:
    """Finds names in the files of an index. Safe to use from several threads.

    A search takes some tenths of a millisecond; with types, or with slips of a long query, some milliseconds.
    """

    files: NameFiles

    def __post_init__(self) -> None:
        ranks = self.files.ranks
        whole = len(ranks) // _BLOCK * _BLOCK
        blocks = ranks[:whole].reshape(-1, _BLOCK).min(axis=1) if whole else ranks[:0]
        object.__setattr__(self, "_blocks", blocks)
        object.__setattr__(self, "_mask", lru_cache(_CACHED_MASKS)(self._entities_of))

    @property
    def names(self) -> int:
        """Number of names."""
        return len(self.files.entities)

    def find(self, query: str, *, types: Sequence[str] = (), limit: int = 10) -> list[FoundName]:
        """Entities with a name like the query, each once, best first.

        Args:
            query: What was typed so far.
            types: Only entities of one of these types; empty: all. A type that no entity has finds nothing.
            limit: Most entities.

        Returns:
            First those whose name, or the rest of it from a word on, is the query; then those where it starts with the
            query; if there are fewer than `ENOUGH`, and none is the query, those where it does with one slip, which is
            not in the last letter unless there are no others. Of a query over `MAX_BYTES` the start is looked for,
            and one over `MAX_SLIP_BYTES` has no slips.
        """
        folded = key_of(query)
        if not folded:
            return []
        wanted = folded.encode()
        mask = self._mask(tuple(sorted(set(types)))) if types else None  # type: ignore[attr-defined]
        found: dict[int, tuple[int, str]] = {}
        low, high = self._range(wanted, 0, len(self.files.starts))
        complete = self._complete(wanted, low, high)
        self._add(found, low, complete, mask, limit, "name")
        is_name = bool(found)  # what is a name as it stands has no slip
        if len(found) < limit:
            self._add(found, complete, high, mask, limit, "prefix")
        is_short = len(wanted) <= MAX_SLIP_BYTES
        if is_short and not is_name and len(found) < min(limit, ENOUGH) and len(folded) >= MIN_SLIP_CHARACTERS:
            self._add_slips(found, folded, mask, limit, edits=1)
        if is_short and not found and len(folded) >= MIN_TWO_SLIPS_CHARACTERS:
            self._add_slips(found, folded, mask, limit, edits=2)
        return [self._record(entity, name, match) for entity, (name, match) in found.items()]

    def _range(self, wanted: bytes, low: int, high: int) -> Range:
        """The positions between two where the text starts with this."""
        files = self.files
        if high - low > _BLOCK:
            first, last = _key_bounds(wanted[:KEY])
            part = files.keys[low:high]
            low, high = low + int(np.searchsorted(part, first)), low + int(np.searchsorted(part, last, "right"))
        if len(wanted) <= KEY and high - low > _BLOCK:
            return low, high
        return self._exact_range(wanted, low, high)

    def _exact_range(self, wanted: bytes, low: int, high: int) -> Range:
        text, starts, n = self.files.text, self.files.starts, len(wanted)

        def at(position: int) -> bytes:
            start = int(starts[position])
            return text[start : start + n]

        low = bisect_left(range(high), wanted, low, high, key=at)
        return low, bisect_right(range(high), wanted, low, high, key=at)

    def _complete(self, wanted: bytes, low: int, high: int) -> int:
        """The end of those positions where the text is this, and nothing more; they come first."""
        text, starts, n = self.files.text, self.files.starts, len(wanted)
        return bisect_left(range(high), True, low, high, key=lambda i: text[int(starts[i]) + n] != 0)

    def _add(
        self, found: dict[int, tuple[int, str]], low: int, high: int, mask: Mask | None, limit: int, match: str
    ) -> None:
        """Add the best entities of a range, until there are `limit`."""
        ranks = self.files.ranks
        if mask is None and high - low > max(_LONG_RANGE, (n := 16 * limit) * _BLOCK):
            positions = self._candidates(low, high, n)
            self._take(found, positions, ranks[positions], limit, match)
        if len(found) < limit:
            positions = np.arange(low, high)
            if mask is not None:
                positions = positions[mask[self.files.entities[self.files.owners[positions]]]]
            self._take(found, positions, ranks[positions], limit, match)

    def _add_slips(
        self, found: dict[int, tuple[int, str]], folded: str, mask: Mask | None, limit: int, *, edits: int
    ) -> None:
        """Add the best entities whose text starts with the query with slips: whole words first."""
        parts, lengths, room = [], [], _MAX_GATHERED
        everything = 0, len(self.files.starts)
        if found:  # another last letter would only undo what was typed last
            slips = self._slips(folded, 0, everything, edits, until=len(folded) - 1)
        else:
            slips = self._slips(folded, 0, everything, edits, until=len(folded))
        for low, high, n in sorted(slips, key=lambda one: one[1] - one[0]):
            if (room := room - (high - low)) < 0:
                break
            parts.append(np.arange(low, high))
            lengths.append(np.full(high - low, n))
        if not parts:
            return
        positions, after = np.concatenate(parts), np.concatenate(lengths)
        following = np.frombuffer(self.files.text, np.uint8)[self.files.starts[positions] + after]
        ends = np.where(following == 0, 0, np.where(following == _SPACE, 1, 2)).astype(np.uint64)
        keys = (ends << np.uint64(32)) | self.files.ranks[positions]
        if mask is not None:
            is_typed = mask[self.files.entities[self.files.owners[positions]]]
            positions, keys = positions[is_typed], keys[is_typed]
        self._take(found, positions, keys, limit, "slip")

    def _take(
        self,
        found: dict[int, tuple[int, str]],
        positions: npt.NDArray[np.int64],
        order: npt.NDArray[np.unsignedinteger],
        limit: int,
        match: str,
    ) -> None:
        """Add the entities of positions by their order, until there are `limit`."""
        best = np.arange(len(positions))
        for n in (16 * limit, len(positions)):  # several names of one entity may be among the best
            if len(positions) > n:
                best = np.argpartition(order, n)[:n]
            elif len(best) < len(positions):
                best = np.arange(len(positions))
            names = self.files.owners[positions[best[np.argsort(order[best])]]]
            for name, entity in zip(names.tolist(), self.files.entities[names].tolist(), strict=True):
                if entity not in found:
                    found[entity] = name, match
                    if len(found) == limit:
                        return
            if len(best) == len(positions):
                return

    def _candidates(self, low: int, high: int, n: int) -> npt.NDArray[np.int64]:
        """Positions of a long range among which are its `n` best: those of the `n` best blocks, and both ends."""
        first, last = -(-low // _BLOCK), high // _BLOCK
        blocks: Numbers = self._blocks[first:last]  # type: ignore[attr-defined]
        best = np.argpartition(blocks, n)[:n] if len(blocks) > n else np.arange(len(blocks))
        inner = ((best + first) * _BLOCK)[:, None] + np.arange(_BLOCK)
        ends = np.arange(low, first * _BLOCK), np.arange(last * _BLOCK, high)
        return np.concatenate([ends[0], inner.ravel(), ends[1]])

    def _entities_of(self, types: tuple[str, ...]) -> Mask:
        """Which entities have one of some types."""
        files = self.files
        mask = np.zeros(len(files.record_offsets) - 1, np.bool_)
        for name in types:
            if (number := files.types.get(name)) is not None:
                mask[files.typed[files.type_offsets[number] : files.type_offsets[number + 1]]] = True
        return mask

    def _slips(
        self, folded: str, first_window: int, within: Range, edits: int, until: int
    ) -> Iterator[tuple[int, int, int]]:
        """The ranges whose text starts with a string that is some edits from the query, and the bytes of that string.

        The query is cut into windows of the width of a key. An edit is looked for in each window, among the positions
        that have all windows before it without one; a second edit is in a later window.
        """
        files, wanted = self.files, folded.encode()
        low, high = within
        for skip in range(first_window, len(wanted), KEY):
            whole = skip == 0 and high - low == len(files.keys)
            keys = files.keys if whole else keys_at(files.text, files.starts[low:high], skip=skip)
            variants = _edited(folded[:until], folded[until:], skip, files.alphabet)
            first, last = _bounds([variant[skip : skip + KEY] for variant in variants])
            lows = low + np.searchsorted(keys, first)
            highs = low + np.searchsorted(keys, last, "right")
            near = np.flatnonzero(highs > lows)
            if edits > 1:  # those that few names have: a query of two slips is rarely the start of many
                near = near[np.argsort(highs[near] - lows[near])][:_MAX_HALVES]
            for i in near.tolist():
                variant, part = variants[i], (int(lows[i]), int(highs[i]))
                if edits > 1 and len(variant) > skip + KEY:
                    if _is_text(variant[: skip + KEY]):
                        yield from self._slips(text := variant.decode(), skip + KEY, part, edits - 1, len(text))
                    continue
                if len(variant) > skip + KEY:
                    part = self._exact_range(variant, *part)
                if part[1] > part[0]:
                    yield *part, len(variant)
            low, high = self._exact_range(wanted[: skip + KEY], low, high)
            if low == high or high - low > _MAX_SLIP_RANGE:
                return

    def _record(self, entity: int, name: int, match: str) -> FoundName:
        files = self.files
        record = _read_record(files.records[files.record_offsets[entity] : files.record_offsets[entity + 1]])
        written = files.names[files.name_offsets[name] : files.name_offsets[name + 1]].decode()
        return msgspec.structs.replace(record, name=written, match=match)


def _is_text(prefix: bytes) -> bool:
    """Whether bytes do not end within a character."""
    try:
        prefix.decode()
    except UnicodeDecodeError:
        return False
    return True


def _key_bounds(prefix: bytes) -> tuple[np.uint64, np.uint64]:
    """The lowest and the highest key of a text with this prefix."""
    return (
        np.uint64(int.from_bytes(prefix.ljust(KEY, b"\0"), "big")),
        np.uint64(int.from_bytes(prefix.ljust(KEY, b"\xff"), "big")),
    )


def _bounds(prefixes: Sequence[bytes]) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """`_key_bounds` of many prefixes."""
    low = b"".join([one.ljust(KEY, b"\0") for one in prefixes])
    high = b"".join([one.ljust(KEY, b"\xff") for one in prefixes])
    return np.frombuffer(low, ">u8").astype(np.uint64), np.frombuffer(high, ">u8").astype(np.uint64)


def _edited(folded: str, kept: str, skip: int, alphabet: Sequence[str]) -> list[bytes]:
    """The strings that are one edit from a query, where the edit is in the window from byte `skip` on.

    Args:
        folded: The query, or its part that may be edited.
        kept: The rest of it.
        skip: Where the window starts.
        alphabet: Characters that an edit puts in.
    """
    found: dict[str, None] = {}
    at = 0
    for i, character in enumerate(folded):
        if skip <= at < skip + KEY:
            before, after = folded[:i], folded[i + 1 :]
            found[before + after] = None
            if after:
                found[before + after[0] + character + after[1:]] = None
            with_it = character + after
            found.update(dict.fromkeys([before + other + after for other in alphabet]))
            found.update(dict.fromkeys([before + other + with_it for other in alphabet]))
        at += len(character.encode())
    found.pop(folded, None)
    least = MIN_SLIP_CHARACTERS - 1 - len(kept)
    strings = [one + kept for one in found if len(one) >= least]
    return "\0".join(strings).encode().split(b"\0") if strings else []  # a hundred times fewer calls than one by one
