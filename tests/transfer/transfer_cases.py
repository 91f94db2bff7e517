"""Shared by the tests of transfers: an embedded collection, and stores that do not wait long."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from store_cases import HALF, manifest_of, many

from pearl_qdrant.lexical.ngrams import IdfTable
from pearl_qdrant.settings import DEFAULT_QUANTIZATION
from pearl_qdrant.store import Collection, Store, open_store
from pearl_qdrant.store.schema import Quantization

NAME = "toy"


def ready(collection: Collection) -> None:
    """Write the manifest of a complete load."""
    names = [point.name for point in collection.scroll()]
    changed = {
        "state": "ready",
        "names": len(names),
        "entities": collection.count_entities(),
        "ngram_rarity": IdfTable.from_names(names).to_text(),
    }
    collection.write_manifest(collection.manifest.model_copy(update=changed))


def fill(store: Store, n: int = 60, *, start: int = 0, quantization: Quantization = DEFAULT_QUANTIZATION) -> None:
    """Make a complete collection of n names, two for each entity."""
    collection = store.create(manifest_of(NAME, quantization=quantization))
    points, vectors, encodable = many(n, start=start)
    encodable[0] = False
    collection.upsert(points, vectors, encodable)
    ready(collection)


def embedded(path: Path, n: int = 60) -> Store:
    """An embedded store with one complete collection, closed."""
    store = open_store(path)
    fill(store, n)
    store.close()
    return open_store(path)


def check_same(first: Collection, second: Collection) -> None:
    """Two collections have the same points, with the same vectors but for the last digits."""
    assert list(first.scroll()) == list(second.scroll())
    ours, theirs = list(first.scroll_rows()), list(second.scroll_rows())
    for field, tolerance in (("vectors", HALF), ("encodable", 0)):
        a, b = ([getattr(rows, field) for rows in pages if rows.points] for pages in (ours, theirs))
        if a:
            np.testing.assert_allclose(np.concatenate(a), np.concatenate(b), rtol=0, atol=tolerance)
