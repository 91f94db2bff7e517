"""`EntityLinker` links mentions to the entities of one or several collections; the entry point of this package."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, TypeVar

from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.errors import CollectionMovedError, InvalidEntityError
from pearl_qdrant.linking import editing
from pearl_qdrant.linking.learned import learning
from pearl_qdrant.linking.learned.learning import Labelled, Learned
from pearl_qdrant.linking.learned.ledger import LearnedBatch
from pearl_qdrant.linking.reading_linker import ReadingLinker
from pearl_qdrant.linking.state import Overrides
from pearl_qdrant.records import Entity
from pearl_qdrant.settings import DEFAULT_DEVICE, DEFAULT_MODEL
from pearl_qdrant.store.open import open_default_store
from pearl_qdrant.store.protocol import Collection
from pearl_qdrant.store.schema import check_name

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")

DEFAULT_COLLECTION = "entities"
MOST_MOVES = 3  # how often an edit is repeated because the collection was moved


class EntityLinker(ReadingLinker):
    """Links mentions to the entities of one or several collections. Safe to use from several threads.

    Open one with `open`, or make a collection and open it with `build`. Use it as a context manager, or call `close`.

    It learns what mentions mean from labelled, accepted and rejected ones; effective at once. Every such call appends
    one batch to the ledger of a collection, which survives updates and a rebuild of the base, and can be undone. Where
    several collections are open, `collection` names the one that learns or is written to; else a ValueError is raised.
    """

    @classmethod
    def build(  # long: each of its arguments has its line, its default and its text
        cls,
        entities: editing.EntitySource,
        *,
        path: str | os.PathLike[str] | None = None,
        store: str | None = None,
        collection: str = DEFAULT_COLLECTION,
        model: Encoder | str | os.PathLike[str] = DEFAULT_MODEL,
        device: str = DEFAULT_DEVICE,
        threshold: float | None = None,
    ) -> Self:
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

        Raises:
            CollectionExistsError: If the store has a collection of that name; it is not changed.
            InvalidEntityError: If there is no entity, or one has no id or name; nothing is written.
            ValueError: If both `path` and `store` are given.
        """
        if path is not None and store is not None:
            raise ValueError(f"give path (a folder) or store, not both: {os.fspath(path)!r} and {store!r}")
        overrides = Overrides(threshold=threshold)
        location = os.fspath(path) if path is not None else store or editing.MEMORY
        check_name(collection)
        found = editing.read_entities(entities)
        if not found:
            raise InvalidEntityError("there is no entity to build a collection from: entities is empty")
        encoder = load_encoder(os.fspath(model), device=device) if isinstance(model, (str, os.PathLike)) else model
        opened_store = editing.TemporaryStore() if location == editing.MEMORY else open_default_store(location)
        try:
            opened = editing.build_collection(opened_store, collection, encoder, found)
            return cls(opened_store, [opened], encoder, overrides)
        except BaseException:
            opened_store.close()
            raise

    def add(self, entities: Iterable[Entity], *, collection: str | None = None) -> int:
        """Add or replace a few entities, effective at once; returns the number of names written.

        An entity that exists already is replaced with all its names. Load whole bases with `pearl_qdrant.load_base`.

        Args:
            entities: The entities; if an id repeats, the last one counts.
            collection: Name of the collection to write to; optional if only one is open.

        Raises:
            InvalidEntityError: If an item is not an entity, or has an empty id or name; also a ValueError and
                TypeError.
            ValueError: If several collections are open and `collection` is missing.
        """
        batches = editing.EntityBatches(entities)

        def add() -> int:
            with self._editing():
                return editing.add_entities(self._target(collection), self.encoder, batches)

        return self._repeat_if_moved(add)

    def delete(self, entity_ids: Iterable[str]) -> int:
        """Delete entities with all their names from every open collection; returns the number of deleted names."""
        if isinstance(entity_ids, (str, bytes)):
            raise TypeError(f"entity_ids is a list of ids, not one: write [{entity_ids!r}]")
        wanted = list(entity_ids)

        def delete() -> int:
            with self._editing():
                return sum(editing.delete_entities(collection, wanted) for collection in self.state.collections)

        return self._repeat_if_moved(delete)

    def learn(
        self,
        labelled: Labelled,
        *,
        collection: str | None = None,
        source: str | None = None,
        add_aliases: int | None = None,
        skip_unknown: bool = False,
        again: bool = False,
    ) -> Learned:
        """Learn labelled mentions.

        Args:
            labelled: A file (`linking.learned.learning`), or pairs of a mention and an entity id, None for no entity.
            source: Where the mentions are from, for the list of batches. Default: the name of the file.
            add_aliases: Add a name to an entity if it meant it at least this often in all that was learned, and more
                often than anything else. Default: add none.
            skip_unknown: Leave out mentions whose entity id the collection lacks; else they are an error.
            again: Learn mentions that were learned already, too.

        Returns:
            The batch, and what was left out.

        Raises:
            FormatError: If the file cannot be read, or a line or mention is not valid. Nothing is learned then.
            LearningError: If an entity id is unknown, nothing is left to learn, or it was learned already.
            StoreError: If it cannot be stored; nothing of it is effective then.
            ValueError: If `add_aliases` is below 1.
        """
        with self._editing():
            target = self._target(collection)
            with self.state.learned.changing(target):
                return learning.learn(
                    target,
                    self.encoder,
                    labelled,
                    source=source,
                    add_aliases=add_aliases,
                    skip_unknown=skip_unknown,
                    again=again,
                )

    def accept(self, mention: str, entity_id: str | None, *, collection: str | None = None) -> LearnedBatch:
        """Learn that a mention meant an entity, once; None for no entity.

        Raises:
            EntityNotFoundError: If the collection has no entity of that id.
            LearningError: If the mention is not valid text.
            StoreError: If it cannot be stored.
            ValueError: If several collections are open and `collection` is missing.
        """
        with self._lifetime.in_edit():
            return self.state.learned.learn_one(self._target(collection), mention, entity_id, "accept")

    def reject(self, mention: str, entity_id: str, *, collection: str | None = None) -> LearnedBatch:
        """Learn that a mention did not mean an entity, once; errors as for `accept`.

        Its probability for this name falls; other candidates and NIL share what it loses, in proportion.
        """
        with self._lifetime.in_edit():
            return self.state.learned.learn_one(self._target(collection), mention, entity_id, "reject")

    def learned_batches(self, collection: str | None = None) -> tuple[LearnedBatch, ...]:
        """What a collection learned, by number; undone batches are not effective.

        Raises:
            ValueError: If several collections are open and `collection` is missing.
        """
        with self._lifetime.in_use():
            return self.state.learned.batches(self._target(collection))

    def undo_learned(self, batch: int | str, *, collection: str | None = None) -> LearnedBatch:
        """Undo a batch by its number, or by its key where two have one number. Returns the undo, a batch itself.

        The names that it added are removed, unless the base has them itself by now. Undoing an undo makes the batch
        count again.

        Raises:
            LearningError: If there is no such batch, or it is undone already.
            StoreError: If it cannot be stored.
            ValueError: If several collections are open and `collection` is missing.
        """
        with self._editing():
            target = self._target(collection)
            with self.state.learned.changing(target):
                return learning.undo(target, self.encoder, batch)

    def _repeat_if_moved(self, edit: Callable[[], T]) -> T:
        """Do an edit; once more in the new version if another one took the collection's place meanwhile."""
        for _ in range(MOST_MOVES):
            try:
                return edit()
            except CollectionMovedError:
                self.reload()
        return edit()

    @contextmanager
    def _editing(self) -> Iterator[None]:
        """Guard one edit: the statistics are computed again afterwards, whether or not the edit succeeded."""
        with self._lifetime.in_edit(), ExitStack() as stack:
            for collection in self.state.collections:  # readers see the whole edit, or nothing of it
                stack.enter_context(collection.editing())
            try:
                yield
            finally:
                self.state.edited()

    def _target(self, collection: str | None) -> Collection:
        """The open collection of this name, or the only one."""
        if collection is None and len(self.state.collections) == 1:
            return self.state.collections[0]
        for opened in self.state.collections:
            if opened.name == collection:
                return opened
        names = ", ".join(c.name for c in self.state.collections)
        raise ValueError(f"name the collection to add to, one of: {names} (got {collection!r})")
