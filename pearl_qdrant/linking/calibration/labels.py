"""Labelled mentions: pairs of a mention and an entity id from a file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pearl_qdrant.errors import CalibrationError
from pearl_qdrant.linking.calibration.held_out import HeldOut
from pearl_qdrant.linking.learned.labelled import NIL, read_labelled
from pearl_qdrant.linking.learned.learning import learned_pairs, unknown_ids
from pearl_qdrant.store.protocol import Collection
from pearl_qdrant.store.schema import NamePoint

__all__ = ["NIL", "Label", "as_nil", "check_ids", "read_pairs", "with_learned"]

_SHOWN = 80  # characters of an id in an error


@dataclass(frozen=True, slots=True)
class Label:
    """A mention with its right entity.

    Attributes:
        mention: The string.
        entity_id: The entity, or None if the base does not have it.
    """

    mention: str
    entity_id: str | None


def read_pairs(path: Path) -> list[Label]:
    """Read pairs of mention and entity id from a file, as `learned.labelled` describes; repeated pairs count once.

    Raises:
        FormatError: If the file cannot be read or is not UTF-8, or a line is too long or has another form.
    """
    return list(dict.fromkeys(Label(one.mention, one.entity_id) for one in read_labelled(path)))


def with_learned(collection: Collection, labels: Sequence[Label]) -> list[Label]:
    """Labels, and the mentions that a collection learned or accepted and whose entity it still has; each once."""
    pairs = learned_pairs(collection)
    unknown = unknown_ids(collection, {entity_id for _, entity_id in pairs if entity_id is not None})
    learned = [Label(mention, entity_id) for mention, entity_id in pairs if entity_id not in unknown]
    return list(dict.fromkeys([*labels, *learned]))


def check_ids(collection: Collection, labels: Iterable[Label]) -> None:
    """Check that the collection has every entity id.

    Raises:
        CalibrationError: If it does not; with the number of unknown ids and three of them.
    """
    wanted = {label.entity_id for label in labels if label.entity_id is not None}
    unknown = sorted(unknown_ids(collection, wanted))
    if unknown:
        shown = ", ".join(key[:_SHOWN] for key in unknown[:3])
        raise CalibrationError(
            f"{len(unknown):,} of {len(wanted):,} entity ids are not in collection '{collection.name}', e.g. {shown}. "
            f"Are they ids of this base? Use NIL for a mention without an entity."
        )


def as_nil(label: Label, same_name_ids: frozenset[int]) -> HeldOut:
    """The mention of a label whose entity is excluded, with all entities that share a name with it (hashed ids)."""

    def excludes(point: NamePoint) -> bool:
        return hash(point.entity_id) in same_name_ids

    return HeldOut(label.mention, excludes)
