"""Bases and comparisons of loads in parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from pearl_qdrant.store import Collection, open_store
from pearl_qdrant.store.schema import NamePoint

CLOSE = 1e-6
"""Vectors depend a little on what is encoded with them."""


def write_base(path: Path, n: int = 90) -> Path:
    """`n` entities; every seventh has a second row at the end, every tenth a name of the one before it."""
    lines = ["id\tname\ttype\taliases"]
    for i in range(n):
        shared = i if i % 10 else max(0, i - 1)
        lines.append(f"E{i}\tw{i} times\tORG\tw{shared} post|new york {i}")
    lines += [f"E{i}\tlate {i}\tGPE\tw{i} times|paper {i}" for i in range(0, n, 7)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def assert_equal(store: Path, one: str, other: str) -> None:
    """Two collections have the same ids, payloads and vectors."""
    opened = open_store(str(store))
    try:
        ours, theirs = opened.open(one), opened.open(other)
        points = list(ours.scroll())
        others = list(theirs.scroll())
        assert [replace(one, type_probability=None) for one in points] == [
            replace(one, type_probability=None) for one in others
        ]
        assert np.abs(probabilities_of(points) - probabilities_of(others)).max() < 10 * CLOSE
        assert np.abs(vectors_of(ours) - vectors_of(theirs)).max() < CLOSE
        assert ours.manifest.ngram_rarity == theirs.manifest.ngram_rarity
        assert (ours.manifest.entities, ours.manifest.names) == (theirs.manifest.entities, theirs.manifest.names)
        assert ours.manifest.state == theirs.manifest.state == "ready"
        assert not theirs.manifest.checkpoints
        assert [one.digest for one in ours.manifest.loaded] == [one.digest for one in theirs.manifest.loaded]
    finally:
        opened.close()


def probabilities_of(points: Sequence[NamePoint]) -> np.ndarray:
    """Probabilities of predicted types, (n,)."""
    return np.array([one.type_probability or 0.0 for one in points])


def vectors_of(collection: Collection) -> np.ndarray:
    """Dense vectors of all points, in the order of their ids; zeros without one."""
    return np.concatenate([rows.vectors for rows in collection.scroll_rows()])
