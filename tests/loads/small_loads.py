"""Small loads into a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pearl_qdrant import LoadResult, load_base
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.store import Store
from pearl_qdrant.store.schema import Manifest


def manifest_for(encoder: Encoder, name: str = "base") -> Manifest:
    """The manifest of a new collection."""
    return Manifest.for_model(encoder.info, collection=name, kb=name)


def write_base(path: Path, n: int) -> Path:
    """`n` entities; every tenth shares its second name with the one before it."""
    lines = ["id\tname\ttype\taliases"]
    for i in range(n):
        shared = i if i % 10 else max(0, i - 1)
        lines.append(f"E{i}\tw{i} times\tORG\tw{shared} post")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def load(
    path: Path, store: Store, encoder: Encoder, *, text: str | None = None, max_errors: int | None = 0, **options: Any
) -> LoadResult:
    """Load a file, with this text if there is one, into the collection `base`."""
    if text is not None:
        path.write_text(text, encoding="utf-8")
    return load_base(path, "base", store=store, model=encoder, max_errors=max_errors, **options)


def contents(store: Store) -> dict[str, object]:
    """All points of the collection `base`, by id."""
    collection = store.open("base")
    try:
        return {point.id: point for point in collection.scroll()}
    finally:
        collection.close()
