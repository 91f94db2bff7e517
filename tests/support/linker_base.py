"""A small base for tests of the linker."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edge_cases import copy_files

from pearl_qdrant import Entity, EntityLinker
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.lexical.ngrams import IdfTable
from pearl_qdrant.store import open_store
from pearl_qdrant.store.schema import Manifest, name_points, names_of

ENTITIES = [
    Entity("nyt", "The New York Times", ("NYTimes", "nytimes.com"), ("ORG", "newspaper"), ("ORG",), "A newspaper"),
    Entity("nyp", "New York Post", ("nypost.com",), ("ORG", "newspaper"), ("ORG",)),
    Entity("nyc", "New York", ("Big Apple", "NYC"), ("GPE", "city"), ("GPE",), languages={"Big Apple": "en"}),
    Entity("nys", "New York State", ("New York",), ("GPE", "state"), ("GPE",)),
    Entity("mi", "myocardial infarction", ("heart attack",), ("disease",), ("OTHER",)),
    Entity("paper", "\U0001f5de", ("rolled paper",), ("symbol",)),
    Entity("horse", "unicorn", ("\U0001f984",), ("symbol",)),
]


_WRITTEN: dict[tuple[object, ...], Path] = {}
"""Copies of the collections that this process wrote, by what is in them."""


def fill(path: Path, name: str, model: str, entities: list[Entity], *, is_loaded: bool = False) -> None:
    """Write a small collection; one that is loaded has its counts and its table of rarities, as after an ingest.

    It is written once and copied afterwards, which takes a tenth of the time.
    """
    key = (name, model, repr(entities), is_loaded)
    if key in _WRITTEN and not (path / name).exists():
        copy_files(_WRITTEN[key], path / name)
        return
    encoder = load_encoder(model, device="cpu")
    made = Manifest.for_model(encoder.info, collection=name, kb=name)
    manifest = made.model_copy(update={"model": model, "state": "ready"})
    names = [n for e in entities for n in e.names()]
    if is_loaded:
        idf = IdfTable.from_names(names).to_text()
        counts = {"names": len(names), "entities": len(entities), "ngram_rarity": idf}
        manifest = manifest.model_copy(update=counts)
    store = open_store(path)
    collection = store.create(manifest)
    encoded = encoder.encode(names)
    collection.upsert(name_points(name, names_of(entities), encoded), encoded.vectors, encoded.encodable)
    store.close()
    if not _WRITTEN:
        atexit.register(shutil.rmtree, _copies(), ignore_errors=True)
    _WRITTEN[key] = copy_files(path / name, _copies() / str(len(_WRITTEN)))


@functools.cache
def _copies() -> Path:
    """The folder of the copies, beside the folders of the tests."""
    return Path(tempfile.mkdtemp(prefix="pearl-qdrant-written-"))


def fill_server(url: str, name: str, model: str, entities: list[Entity]) -> None:
    """Write a small collection to a server."""
    store = open_store(url)
    encoder = load_encoder(model, device="cpu")
    made = Manifest.for_model(encoder.info, collection=name, kb=name)
    collection = store.create(made.model_copy(update={"model": model, "state": "ready"}))
    encoded = encoder.encode([one for entity in entities for one in entity.names()])
    collection.upsert(name_points(name, names_of(entities), encoded), encoded.vectors, np.asarray(encoded.encodable))
    store.close()


def linker_over(entities: Iterable[Entity | Mapping[str, object]], *, model: str = "shipped", **options: Any) -> Any:
    """A fixture for a module: a linker over entities, with the model of the fixture of that name."""

    @pytest.fixture(scope="module")
    def linker(request: pytest.FixtureRequest) -> Iterator[EntityLinker]:
        with EntityLinker.build(list(entities), model=request.getfixturevalue(model), **options) as opened:
            yield opened

    return linker
