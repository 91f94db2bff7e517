"""The sample base: 1,227 well-known entities, which ship with the package for a first try."""

from __future__ import annotations

from pathlib import Path

from ingest.load_base import load_base
from pearl_qdrant.store.administration import CollectionSummary, summarize_collections
from pearl_qdrant.store.open import StoreLike

SAMPLE_BASE = Path(__file__).with_name("sample_base.tsv")


def load_sample(collection: str = "demo", *, store: StoreLike = None) -> CollectionSummary:
    """Load the sample base; a collection that is there already stays as it is, whatever base it holds.

    Args:
        collection: The collection.
        store: As in `load_base`.

    Returns:
        What the collection holds now.

    Raises:
        StoreError: If the store fails.
    """
    here = _find(collection, store)
    if here is None or here.state == "unfinished":
        load_base(SAMPLE_BASE, collection, store=store)
        here = _find(collection, store)
        assert here is not None
    return here


def _find(collection: str, store: StoreLike) -> CollectionSummary | None:
    return next((one for one in summarize_collections(store) if one.name == collection), None)
