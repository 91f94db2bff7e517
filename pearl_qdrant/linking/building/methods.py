"""The part of `EntityLinker` that builds a collection and opens it, in one call."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeVar

from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.errors import InvalidEntityError
from pearl_qdrant.linking.building.build import MEMORY, TemporaryStore, build_collection
from pearl_qdrant.linking.building.entities import EntitySource, read_entities
from pearl_qdrant.linking.options import check_threshold
from pearl_qdrant.settings import DEFAULT_DEVICE, DEFAULT_MODEL
from pearl_qdrant.store.names import check_name
from pearl_qdrant.store.open import open_default_store

if TYPE_CHECKING:
    from collections.abc import Callable

L = TypeVar("L", bound="Builder")

DEFAULT_COLLECTION = "entities"


class Builder:
    """Builds a collection from entities that a program holds."""

    @classmethod
    def build(  # long: each of its arguments has its line, its default and its text
        cls: type[L],
        entities: EntitySource,
        *,
        path: str | os.PathLike[str] | None = None,
        store: str | None = None,
        collection: str = DEFAULT_COLLECTION,
        model: Encoder | str | os.PathLike[str] = DEFAULT_MODEL,
        device: str = DEFAULT_DEVICE,
        threshold: float | None = None,
        embed_descriptions: bool = False,
    ) -> L:
        """Make a collection from entities and open it; for bases in files, and millions of names, see
        `pearl_qdrant.load_base`.

        Args:
            entities: `Entity` objects; dictionaries with "id" and "name", and maybe "aliases", "types", "description"
                and "popularity"; or a frame of pandas or polars with these columns. Several aliases or types are a
                list, or text with bars between them. Rows of one id are names of one entity.
            path: Folder of an embedded store, where the collection stays.
            store: The same, or the URL of a server; ":memory:" for a collection that is gone when the linker is
                closed, which is the default where there is no `path` either.
            collection: Its name, which the store does not have yet.
            model: An encoder, a shipped name, a folder or a hub id.
            device: auto, cpu, cuda or cuda:N.
            threshold: As for `EntityLinker.open`.
            embed_descriptions: Whether to keep a vector of each description, which tells namesakes apart in a context.

        Raises:
            CollectionExistsError: If the store has a collection of that name; it is not changed.
            InvalidEntityError: If there is no entity, or one has no id or name; nothing is written.
            ValueError: If both `path` and `store` are given.
        """
        if path is not None and store is not None:
            raise ValueError(f"give path (a folder) or store, not both: {os.fspath(path)!r} and {store!r}")
        check_threshold(threshold)
        location = os.fspath(path) if path is not None else store or MEMORY
        check_name(collection)
        found = read_entities(entities)
        if not found:
            raise InvalidEntityError("there is no entity to build a collection from: entities is empty")
        encoder = load_encoder(os.fspath(model), device=device) if isinstance(model, (str, os.PathLike)) else model
        opened_store = TemporaryStore() if location == MEMORY else open_default_store(location)
        make: Callable[..., Any] = cls
        try:
            opened = build_collection(opened_store, collection, encoder, found, embed_descriptions=embed_descriptions)
            linker: L = make(opened_store, [opened], encoder, threshold=threshold)
        except BaseException:
            opened_store.close()
            raise
        return linker
