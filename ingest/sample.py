"""The sample base: 1,227 well-known entities, which ship with the package for a first try."""

from __future__ import annotations

from pathlib import Path

from ingest.load_base import load_base
from pearl_qdrant.errors import StoreError
from pearl_qdrant.store.administration import CollectionSummary, summarize_collections
from pearl_qdrant.store.open import StoreLike

SAMPLE_BASE = Path(__file__).with_name("sample_base.tsv")
VERSION = "sample"
"""Release that a collection of it names; tells it from another one of that name."""


def load_sample(collection: str = "demo", *, store: StoreLike = None) -> CollectionSummary:
    """Load the sample base, or go on with a load of it; another collection of that name stays as it is.

    Args:
        collection: The collection.
        store: As in `load_base`.

    Returns:
        What the collection holds now.

    Raises:
        StoreError: If the store fails, or the collection is another one that cannot be used.
    """
    here = _find(collection, store)
    if here is not None and here.problem is not None and here.state != "no_graph" and here.kb_version != VERSION:
        raise StoreError(f"{here.problem}. Or load the sample base under another name.")
    if here is None or here.state == "unfinished":
        load_base(SAMPLE_BASE, collection, kb_version=VERSION, store=store)
        here = _find(collection, store)
        assert here is not None
    return here


def _find(collection: str, store: StoreLike) -> CollectionSummary | None:
    return next((one for one in summarize_collections(store) if one.name == collection), None)
