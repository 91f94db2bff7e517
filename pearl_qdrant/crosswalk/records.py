"""The record of a crosswalk: an entity with the entity that it is in the other base."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EntityMatch:
    """An entity of the one base, and the same entity of the other; or NIL.

    Attributes:
        subject_id: Id in the one base.
        subject_name: Its canonical name.
        object_id: Id in the other base; None for NIL.
        object_name: Its canonical name; None for NIL.
        object_kb: Short name of the other base; None for NIL.
        probability: That both are the same, in [0, 1]; for NIL that of the best candidate, 0 without one.
        reason: Which names say so; for NIL why there is none.
        is_exact: Whether the two have a name in common, up to case, accents and spaces.
    """

    subject_id: str
    subject_name: str
    object_id: str | None
    object_name: str | None
    object_kb: str | None
    probability: float
    reason: str
    is_exact: bool = False
