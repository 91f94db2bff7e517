"""What the types of a mention and of a candidate say: soft typing, and which names are of persons or organisations.

The predicted type of a mention is compared with the coarse types of an entity in the base:

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
from pearl_qdrant.store.schema import NamePoint

_REAL = [name for name in ENTITY_TYPES if name != "OTHER"]
_ALL_REAL = np.array([i for i, name in enumerate(ENTITY_TYPES) if name != "OTHER"])


def type_gaps(marginals: npt.NDArray[np.float32] | None) -> dict[str, float] | None:
    """The agreement of one mention with each real type, in [-1, 0], by the probabilities of its types, (19,); None
    without a type head.
    """
    if marginals is None:
        return None
    gaps = (marginals[_ALL_REAL] - marginals[_ALL_REAL].max()).tolist()
    return dict(zip(_REAL, gaps, strict=True))


def type_agreement(gaps: Mapping[str, float] | None, types: Sequence[str]) -> float:
    """Agreement of one mention, by its `type_gaps`, and the coarse types of one entity, in [-1, 0]."""
    return max([gaps[name] for name in types if name in gaps], default=0.0) if gaps else 0.0


def has_type(point: NamePoint, types: Sequence[str]) -> bool:
    """Whether a point has one of the types."""
    return not set(types).isdisjoint(point.filter_types)


def is_organisation(point: NamePoint) -> bool:
    """Whether a name is that of an organisation or a building, by the base, or by the type head where it has none."""
    return not {"ORG", "FAC"}.isdisjoint(point.types) or (not point.types and point.predicted_type in ("ORG", "FAC"))


def is_person(point: NamePoint) -> bool:
    """Whether a name is that of a person, by the base, or by the type head where it has none."""
    return "PERSON" in point.types or (not point.types and point.predicted_type == "PERSON")
