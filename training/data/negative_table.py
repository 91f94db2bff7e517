"""Hard negatives as a table in memory, from which training draws, and as a file.

Memory: 4 bytes per negative and about 200 per phrase, besides the phrases themselves.
"""

from __future__ import annotations

import json
import os
import random
from array import array
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from training.examples.example import Example


class NegativeTable:
    """The hard negatives of phrases.

    Args:
        rows: Phrases with their hard negatives; a repeated phrase keeps its first row.
        known: Examples by name, for the entity and the type of a negative.
    """

    def __init__(
        self, rows: Iterable[tuple[str, Iterable[str]]], *, known: Mapping[str, Example] | None = None
    ) -> None:
        self._known = known or {}
        self._names: list[str] = []
        self._row: dict[str, int] = {}
        self._starts = array("q", [0])
        self._negatives = array("i")
        ids: dict[str, int] = {}
        for phrase, negatives in rows:
            if phrase in self._row:
                continue
            self._row[phrase] = len(self._starts) - 1
            for negative in negatives:
                place = ids.setdefault(negative, len(ids))
                if place == len(self._names):
                    self._names.append(negative)
                self._negatives.append(place)
            self._starts.append(len(self._negatives))

    def __len__(self) -> int:
        return len(self._row)

    def draw(self, phrase: str, n: int, rng: random.Random) -> list[Example]:
        """Draw up to `n` different hard negatives of a phrase."""
        row = self._row.get(phrase)
        if row is None:
            return []
        start, stop = self._starts[row], self._starts[row + 1]
        places = rng.sample(range(start, stop), min(n, stop - start))
        return [self._example(self._names[self._negatives[place]]) for place in places]

    def _example(self, name: str) -> Example:
        """Return a negative with its entity and type, if these are known."""
        known = self._known.get(name)
        return Example(name, (), "") if known is None else Example(name, (), known.entity, known.allowed)


def write_hard_negatives(path: Path, rows: Iterable[tuple[str, list[str]]]) -> int:
    """Write hard_negative.txt (`phrase<TAB>negative...`), or JSON Lines if the name ends in .jsonl.

    The file appears when it is complete; until then it has another name. In the first form, tabs and line breaks within
    a phrase become spaces.

    Returns:
        Number of rows.
    """
    part = path.with_name(path.name + ".part")
    n_rows = 0
    with part.open("w", encoding="utf-8", errors="surrogatepass", newline="\n") as file:
        for phrase, negatives in rows:
            if path.suffix == ".jsonl":
                file.write(json.dumps({"phrase": phrase, "negatives": negatives}, ensure_ascii=False) + "\n")
            else:
                file.write("\t".join(" ".join(name.split()) for name in (phrase, *negatives)) + "\n")
            n_rows += 1
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    return n_rows


def parse_negatives(line: str) -> tuple[str, list[str]] | None:
    """Parse a row of either form into phrase and negatives; None if it is neither."""
    if not line.startswith("{"):
        phrase, *negatives = line.rstrip("\r\n").split("\t")
        return (phrase, negatives) if phrase.strip() and negatives else None
    try:
        row: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict) or not isinstance(row.get("phrase"), str):
        return None
    named: Any = row.get("negatives", row.get("hard_negatives"))
    if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
        return None
    return row["phrase"], list(named)
