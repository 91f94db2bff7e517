"""Soft typing: compares the predicted type of a mention with the coarse types of an entity in the base.

    confidence = max over real types t of p(t)                      OTHER is not a real type
    agreement  = max over the entity's real types t of p(t) - confidence      in [-1, 0]

The agreement is 0 for an entity of the predicted type, and for an entity without a real type. It falls with the
confidence in another type, and is near 0 if no type is probable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from pearl_qdrant.phrase_types import ENTITY_TYPES

_REAL = [name for name in ENTITY_TYPES if name != "OTHER"]
_ALL_REAL = np.array([i for i, name in enumerate(ENTITY_TYPES) if name != "OTHER"])


def type_gaps(marginals: npt.NDArray[np.float32] | None) -> dict[str, float] | None:
    """The agreement of one mention with each real type, in [-1, 0]; None without a type head.

    Args:
        marginals: (19,), probabilities of the mention's entity types.
    """
    if marginals is None:
        return None
    gaps = (marginals[_ALL_REAL] - marginals[_ALL_REAL].max()).tolist()
    return dict(zip(_REAL, gaps, strict=True))


def type_agreement(gaps: Mapping[str, float] | None, types: Sequence[str]) -> float:
    """Agreement of one mention and one entity, in [-1, 0].

    Args:
        gaps: Of the mention, by `type_gaps`; None if types do not count.
        types: Coarse types of the entity.
    """
    if not gaps:
        return 0.0
    return max([gaps[name] for name in types if name in gaps], default=0.0)
