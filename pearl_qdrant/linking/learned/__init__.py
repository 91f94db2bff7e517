"""Learned names: labelled, accepted and rejected mentions change the probabilities of the same names from then on.

ledger.py      what was learned, in batches that are only ever appended
counts.py      the ledger as counts of a name and its entities, and their probabilities
names.py       the decision of a linker with what its collections learned
learning.py    learning from files of labelled mentions and undoing, one batch a call
aliases.py     learned names that become names of the base
"""

from typing import TYPE_CHECKING

from pearl_qdrant._lazy import lazy_exports

if TYPE_CHECKING:
    from pearl_qdrant.linking.learned.learning import Learned, learned_batches
    from pearl_qdrant.linking.learned.ledger import LearnedBatch

__all__ = ["Learned", "LearnedBatch", "learned_batches"]

__getattr__, __dir__ = lazy_exports(__name__)
