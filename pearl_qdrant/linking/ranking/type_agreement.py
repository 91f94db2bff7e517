"""Soft typing: what the head says of a mention's type, against the coarse types that the base gives an entity.

    confidence = max over real types t of p(t)                      OTHER is no real type
    agreement  = max over the entity's real types t of p(t) - confidence      in [-1, 0]

So it is 0 for an entity of the type that the head believes in, and for one whose type the base does not know or calls
OTHER; it falls with the head's confidence in another type, and is near 0 where the head believes in none.
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
        marginals: (19,), probability of each entity type of the mention; None without a head.
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
