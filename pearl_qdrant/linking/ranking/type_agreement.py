"""Soft typing: compares the predicted type of a mention with the coarse types of an entity in the base.

    confidence = max over real types t of p(t)                      OTHER is not a real type
    agreement  = max over the entity's real types t of p(t) - confidence      in [-1, 0]

The agreement is 0 for an entity of the predicted type, and for an entity without a real type. It falls with the
confidence in another type, and is near 0 if no type is probable.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pearl_qdrant.phrase_types import ENTITY_TYPES

_REAL = {name: i for i, name in enumerate(ENTITY_TYPES) if name != "OTHER"}
_ALL_REAL = np.array(sorted(_REAL.values()))


def type_agreement(marginals: npt.NDArray[np.float32] | None, types: Sequence[str]) -> float:
    """Agreement of one mention and one entity.

    Args:
        marginals: (19,), probabilities of the mention's entity types; None without a type head.
        types: Coarse types of the entity.

    Returns:
        A number in [-1, 0].
    """
    if marginals is None:
        return 0.0
    known = [_REAL[name] for name in types if name in _REAL]
    if not known:
        return 0.0
    return float(marginals[known].max() - marginals[_ALL_REAL].max())
