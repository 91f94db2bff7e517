"""Look up variants of millions of phrases on disk: a JSON Lines file, with an index of 16 bytes per phrase in memory.

Reads `phrase_aug.jsonl` (paraphrases), `token_aug.jsonl` (variants by synonyms) and `entities.jsonl` (aliases), our own
or the published ones. Rows are read on demand from a memory map: 3 microseconds each.
"""

from __future__ import annotations

import mmap
import random
from array import array
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np

from pearl_qdrant.errors import FormatError
from training.corpus.files import EntityRow, parse_variants
from training.corpus.keys import phrase_key

Row = tuple[tuple[str, ...], tuple[str, ...]]
"""The phrases that a row belongs to, and their variants."""


class VariantTable:
    """Variants by phrase. Can be pickled: the index is stored, and the file opened again."""

    def __init__(self, path: Path) -> None:
        """Index a file of variants or of entities; the first row decides which.

        Raises:
            FormatError: If it does not exist, is compressed, or has another kind of row.
        """
        self._path = path
        self._map = _open(path)
        self._parse = _parser_of(path, self._map)
        keys, starts = array("Q"), array("Q")
        start, number = 0, 0
        while (end := self._end(start)) > start:
            number += 1
            line = self._map[start:end]
            if line.strip():
                row = self._parse(line)
                if row is None:
                    message = (
                        "is not a row of variants: expected 'phrase' and 'aug' or 'synonyms', or 'entity' and 'names'"
                    )
                    raise FormatError(str(path), number, message)
                if row[1]:
                    for name in row[0]:
                        keys.append(phrase_key(name))
                        starts.append(start)
            start = end
        unsorted = np.array(keys, np.uint64)
        order = np.argsort(unsorted, kind="stable")
        self._keys, self._starts = unsorted[order], np.array(starts, np.uint64)[order]

    def __len__(self) -> int:
        return len(self._keys)

    def of(self, phrase: str) -> tuple[str, ...]:
        """Return the variants of a phrase without itself; () if it is unknown. The first row of a phrase counts."""
        row = self._row(phrase)
        return tuple(name for name in row[1] if name != phrase) if row is not None else ()

    def replace(self, phrase: str, rng: random.Random) -> str | None:
        """Draw one of the variants; None if there is none."""
        row = self._row(phrase)
        if row is None:
            return None
        variant = row[1][int(rng.random() * len(row[1]))]
        if variant != phrase:
            return variant
        others = [other for other in row[1] if other != phrase]
        return others[int(rng.random() * len(others))] if others else None

    def close(self) -> None:
        """Unmap the file."""
        self._map.close()

    def _row(self, phrase: str) -> Row | None:
        key = np.uint64(phrase_key(phrase))
        place = int(self._keys.searchsorted(key))
        if place >= len(self._keys) or self._keys[place] != key:
            return None
        start = int(self._starts[place])
        return self._parse(self._map[start : self._end(start)])

    def _end(self, start: int) -> int:
        end = self._map.find(b"\n", start)
        return len(self._map) if end < 0 else end + 1

    def __getstate__(self) -> dict[str, object]:
        return {"path": self._path, "keys": self._keys, "starts": self._starts}

    def __setstate__(self, state: dict[str, object]) -> None:
        self._path, self._keys, self._starts = state["path"], state["keys"], state["starts"]  # type: ignore[assignment]
        self._map = _open(self._path)
        self._parse = _parser_of(self._path, self._map)


_ENTITY: msgspec.json.Decoder[EntityRow] = msgspec.json.Decoder(EntityRow)


def _open(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError as error:
        raise FormatError(str(path), None, f"does not exist (looked in {Path.cwd()})") from error
    except (OSError, ValueError) as error:
        raise FormatError(str(path), None, f"cannot be mapped into memory ({error}). Is it empty?") from error


def _parser_of(path: Path, mapped: mmap.mmap) -> Callable[[bytes], Row | None]:
    """Return the parser for the rows, by the first one."""
    if mapped[:1] != b"{":
        raise FormatError(str(path), 1, "is not plain JSON Lines. Decompress it first: rows are read in random order")
    head = mapped[: 1 + mapped.find(b"\n")] or mapped[:]
    return _entity if _entity(head) is not None else _variants


def _variants(line: bytes) -> Row | None:
    found = parse_variants(line)
    return None if found is None else ((found[0],), found[1])


def _entity(line: bytes) -> Row | None:
    """Parse an entity: each of its names has the others as variants."""
    try:
        names = _ENTITY.decode(line).names
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return (names, names) if len(names) > 1 else (names, ())
