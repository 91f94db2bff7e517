"""Which entities of two bases are the same: a crosswalk, one to one where asked, with probabilities and NIL.

    from pearl_qdrant.crosswalk import crosswalk

    found = crosswalk("doid", "mondo", one_to_one=True)
    found.write_sssom("doid-mondo.sssom.tsv")

`matching.py` adds up what the links of an entity's names say, and chooses (`resolution.assignment`); `sssom.py` writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pearl_qdrant._lazy import lazy_exports

if TYPE_CHECKING:
    from pearl_qdrant.crosswalk.matching import Crosswalk, crosswalk
    from pearl_qdrant.crosswalk.sssom import EntityMatch

__all__ = ["Crosswalk", "EntityMatch", "crosswalk"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "Crosswalk": "pearl_qdrant.crosswalk.matching",
        "EntityMatch": "pearl_qdrant.crosswalk.sssom",
        "crosswalk": "pearl_qdrant.crosswalk.matching",
    },
)
