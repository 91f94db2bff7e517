"""Labelled mentions: pairs of a mention and an entity id from a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pearl_qdrant.errors import CalibrationError, FormatError
from pearl_qdrant.linking.calibration.held_out import HeldOut
from pearl_qdrant.linking.text_lines import read_text_lines
from pearl_qdrant.store.protocol import Collection
from pearl_qdrant.store.schema import NamePoint

NIL = "NIL"

_HEADERS = ("entity_id", "id")
_CHUNK = 256
_SHOWN = 80  # characters of an id in an error
_NAMES_AN_ENTITY = 40


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
    """Read pairs of mention and entity id from a TSV; an empty id or NIL means no entity.

    The first line may be a header. Further columns are ignored; repeated pairs count once.

    Raises:
        FormatError: If the file cannot be read or is not UTF-8, a line is too long, or a row has no mention or no
            second column.
    """
    labels: dict[Label, None] = {}
    for number, line in _read_lines(path):
        fields = line.split("\t")
        if fields == [""] or (number == 1 and len(fields) > 1 and fields[1].strip().casefold() in _HEADERS):
            continue
        if len(fields) < 2 or not fields[0].strip():
            raise FormatError(str(path), number, "expected a mention, a tab and an entity id, or NIL for no entity.")
        key = fields[1].strip()
        labels[Label(fields[0], None if key in ("", NIL) else key)] = None
    return list(labels)


def _read_lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with path.open("rb") as file:
            yield from read_text_lines(file, str(path))
    except OSError as error:
        raise FormatError(str(path), None, f"cannot be read ({error.strerror or error}).") from error


def check_ids(collection: Collection, labels: Iterable[Label]) -> None:
    """Check that the collection has every entity id.

    Raises:
        CalibrationError: If it does not; with the number of unknown ids and three of them.
    """
    wanted = sorted({label.entity_id for label in labels if label.entity_id is not None})
    unknown: list[str] = []
    for start in range(0, len(wanted), _CHUNK):
        chunk = wanted[start : start + _CHUNK]
        found = {p.entity_id for p in collection.find(entity_ids=chunk, limit=_CHUNK * _NAMES_AN_ENTITY)}
        # Entities with very many names can fill the answer and push others out: ask for each missing one.
        unknown += [key for key in chunk if key not in found and not collection.find(entity_ids=[key], limit=1)]
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
