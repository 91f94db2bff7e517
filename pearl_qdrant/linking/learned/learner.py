"""The part of `EntityLinker` that learns names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.linking.learned.learning import Labelled, Learned
from pearl_qdrant.linking.learned.ledger import LearnedBatch
from pearl_qdrant.linking.learned.names import LearnedNames
from pearl_qdrant.linking.lifetime import Lifetime
from pearl_qdrant.store.protocol import Collection


class Learner(ABC):
    """Learns what mentions mean from labelled, accepted and rejected ones; effective at once.

    Every call appends one batch to the ledger of a collection, which survives updates and a rebuild of the base, and
    can be undone. Where several collections are open, `collection` names the one that learns.
    """

    _learned: LearnedNames
    _lifetime: Lifetime

    @property
    @abstractmethod
    def encoder(self) -> Encoder:
        """The model that encodes mentions."""

    @abstractmethod
    def _editing(self) -> AbstractContextManager[None]:
        """Guard one edit."""

    @abstractmethod
    def _target(self, collection: str | None) -> Collection:
        """The open collection of this name, or the only one."""

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
            labelled: A file (`linking.learned.labelled`), or pairs of a mention and an entity id, None for no entity.
            collection: The collection that learns; optional if only one is open.
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
            ValueError: If several collections are open and `collection` is missing, or `add_aliases` is below 1.
        """
        with self._editing():
            return self._learned.learn(
                self._target(collection),
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
            return self._learned.learn_one(self._target(collection), mention, entity_id, "accept")

    def reject(self, mention: str, entity_id: str, *, collection: str | None = None) -> LearnedBatch:
        """Learn that a mention did not mean an entity, once; errors as for `accept`.

        Its probability for this name falls; other candidates and NIL share what it loses, in proportion.
        """
        with self._lifetime.in_edit():
            return self._learned.learn_one(self._target(collection), mention, entity_id, "reject")

    def learned_batches(self, collection: str | None = None) -> tuple[LearnedBatch, ...]:
        """What a collection learned, by number; undone batches are not effective.

        Raises:
            ValueError: If several collections are open and `collection` is missing.
        """
        with self._lifetime.in_use():
            return self._learned.batches(self._target(collection))

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
            return self._learned.undo(self._target(collection), self.encoder, batch)
