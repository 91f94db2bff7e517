"""Learned names: labelled, accepted and rejected mentions change the probabilities of the same names from then on."""

from typing import TYPE_CHECKING

from pearl_qdrant._lazy import lazy_exports

if TYPE_CHECKING:
    from pearl_qdrant.linking.learned.learning import Learned, learned_batches
    from pearl_qdrant.linking.learned.ledger import LearnedBatch

__all__ = ["Learned", "LearnedBatch", "learned_batches"]

__getattr__, __dir__ = lazy_exports(__name__)
