"""Labelled mentions: pairs from a file, or aliases of a base, each held out of it."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pearl_qdrant.errors import CalibrationError, FormatError
from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.linking.calibration.held_out import HeldOut
from pearl_qdrant.linking.mentions import clean_mention
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
        is_own: Whether the mention is a name of the entity in the base. Then it is held out.
    """

    mention: str
    entity_id: str | None
    is_own: bool = False


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


class NameIndex:
    """The entities that share folded names, and a random sample of aliases, from one pass over a collection.

    Takes 16 bytes per name: names and ids are kept as 64-bit hashes.

    Args:
        collection: An open collection.
        n_aliases: Maximum number of aliases in the sample.
        rng: Draws the sample.
    """

    def __init__(self, collection: Collection, *, n_aliases: int, rng: np.random.Generator) -> None:
        entities, names = array("q"), array("q")
        sample: list[Label] = []
        n_seen = 0
        for point in collection.scroll():
            entities.append(hash(point.entity_id))
            names.append(hash(fold_name(point.name) or point.name))
            # An alias that cleaning changes could not be found by its own string.
            if not point.is_canonical and clean_mention(point.name) == point.name:
                # Reservoir sampling: alias number n replaces a random one with probability n_aliases / n.
                n_seen += 1
                place = len(sample) if len(sample) < n_aliases else int(rng.integers(n_seen))
                if place < n_aliases:
                    sample[place : place + 1] = [Label(point.name, point.entity_id, is_own=True)]
        self.aliases = tuple(sample)
        self._entities = np.frombuffer(entities, dtype=np.int64)
        self._names = np.frombuffer(names, dtype=np.int64)

    def same_name_ids(self, entity_ids: Sequence[str]) -> dict[str, frozenset[int]]:
        """For each entity the hashed ids of all entities that share a folded name with it, its own included."""
        keys = {entity_id: hash(entity_id) for entity_id in entity_ids}
        names_of: dict[int, set[int]] = {key: set() for key in keys.values()}
        asked = np.isin(self._entities, list(names_of))
        for entity, name in zip(self._entities[asked].tolist(), self._names[asked].tolist(), strict=True):
            names_of[entity].add(name)
        owners: dict[int, set[int]] = {name: set() for names in names_of.values() for name in names}
        shared = np.isin(self._names, list(owners))
        for entity, name in zip(self._entities[shared].tolist(), self._names[shared].tolist(), strict=True):
            owners[name].add(entity)
        return {
            entity_id: frozenset({key}.union(*(owners[name] for name in names_of[key])))
            for entity_id, key in keys.items()
        }


def as_known(label: Label) -> HeldOut:
    """The mention of a label whose entity stays in the base; if the mention is a name of it, that name is excluded."""
    if not label.is_own:
        return HeldOut(label.mention)

    def excludes(point: NamePoint) -> bool:
        return point.entity_id == label.entity_id and point.name == label.mention

    return HeldOut(label.mention, excludes)


def as_nil(label: Label, same_name_ids: frozenset[int]) -> HeldOut:
    """The mention of a label whose entity is excluded, with all entities that share a name with it."""

    def excludes(point: NamePoint) -> bool:
        return hash(point.entity_id) in same_name_ids

    return HeldOut(label.mention, excludes)
