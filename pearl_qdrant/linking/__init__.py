"""Linking: mentions to entities of a collection, with probabilities and NIL; also annotation of running text.

`linker.py` is the entry point: `reading_linker.py` has its part that reads, over the open collections of `state.py`.
`ranking` scores candidates, `calibration` fits probabilities to a collection, and `mention_detection` finds mentions in
passages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pearl_qdrant._lazy import lazy_exports

if TYPE_CHECKING:
    from pearl_qdrant.linking.linker import EntityLinker
    from pearl_qdrant.linking.options import AnnotateOptions, LinkOptions
    from pearl_qdrant.linking.state import Overrides

__all__ = ["AnnotateOptions", "EntityLinker", "LinkOptions", "Overrides"]

__getattr__, __dir__ = lazy_exports(__name__)
