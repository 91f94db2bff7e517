"""Shards for tests: the engine takes 40 ms to make the indexes of an empty one, and a copy takes 8."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from edge_cases import copy_files

from pearl_qdrant.store.edge import shard as edge_shard

Create = Callable[..., None]


def copies_of_first(create: Create, folder: Path) -> Create:
    """Make a `create_shard` that creates the first shard of a kind with `create`, in `folder`, and copies it."""
    made: dict[object, Path] = {}

    def copy(path: Path, dim: int, *, has_lexical: bool = True, has_descriptions: bool = False) -> None:
        kind = (dim, has_lexical, has_descriptions, edge_shard.INDEXING_THRESHOLD_KB)
        if kind not in made:
            first = folder / str(len(made))
            create(first, dim, has_lexical=has_lexical, has_descriptions=has_descriptions)
            made[kind] = first
        copy_files(made[kind], path)

    return copy
