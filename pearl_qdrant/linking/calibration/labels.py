"""Mentions whose entity is known: pairs from a file, or a base's own aliases, held out of it."""

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
    """A mention with the entity that is meant.

    Attributes:
        mention: The string.
        entity_id: The entity, or None where the base has none.
        is_own: Whether the mention is a name that the base has for it, and that must not be found.
    """

    mention: str
    entity_id: str | None
    is_own: bool = False


def read_pairs(path: Path) -> list[Label]:
    """Pairs of a TSV: mention, entity id; an empty id or NIL means that there is none. A header may come first.

    Further columns are passed over; a pair that comes again counts once.

    Raises:
        FormatError: If it cannot be read, is no UTF-8, a line is too long, or a row has no mention or no second column.
    """
    labels: dict[Label, None] = {}
    for number, line in _lines(path):
        fields = line.split("\t")
        if fields == [""] or (number == 1 and len(fields) > 1 and fields[1].strip().casefold() in _HEADERS):
            continue
        if len(fields) < 2 or not fields[0].strip():
            raise FormatError(
                str(path), number, "expected a mention, a tab and an entity id, or NIL where there is no entity."
            )
        key = fields[1].strip()
        labels[Label(fields[0], None if key in ("", NIL) else key)] = None
    return list(labels)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines of a file."""
    try:
        with path.open("rb") as file:
            yield from read_text_lines(file, str(path))
    except OSError as error:
        raise FormatError(str(path), None, f"cannot be read ({error.strerror or error}).") from error


def check_ids(collection: Collection, labels: Iterable[Label]) -> None:
    """Refuse ids that the collection does not have.

    Raises:
        CalibrationError: If there is one.
    """
    wanted = sorted({label.entity_id for label in labels if label.entity_id is not None})
    unknown: list[str] = []
    for start in range(0, len(wanted), _CHUNK):
        chunk = wanted[start : start + _CHUNK]
        found = {p.entity_id for p in collection.find(entity_ids=chunk, limit=_CHUNK * _NAMES_AN_ENTITY)}
        # Where some have very many names, others did not come.
        unknown += [key for key in chunk if key not in found and not collection.find(entity_ids=[key], limit=1)]
    if unknown:
        shown = ", ".join(key[:_SHOWN] for key in unknown[:3])
        raise CalibrationError(
            f"{len(unknown):,} of {len(wanted):,} entity ids are not in collection '{collection.name}', as {shown}. "
            f"Are they ids of this base? Give NIL for a mention without an entity."
        )


class NameIndex:
    """Which entities share folded names, and a sample of the aliases: one pass over a collection.

    Costs 16 bytes a name.

    Args:
        collection: Open.
        n_aliases: Aliases to sample, at most.
        rng: Draws them.
    """

    def __init__(self, collection: Collection, *, n_aliases: int, rng: np.random.Generator) -> None:
        entities, names = array("q"), array("q")
        sample: list[Label] = []
        n_seen = 0
        for point in collection.scroll():
            entities.append(hash(point.entity_id))
            names.append(hash(fold_name(point.name) or point.name))
            # White space or misread letters around it would make another string of it.
            if not point.is_canonical and clean_mention(point.name) == point.name:
                n_seen += 1
                place = len(sample) if len(sample) < n_aliases else int(rng.integers(n_seen))
                if place < n_aliases:
                    sample[place : place + 1] = [Label(point.name, point.entity_id, is_own=True)]
        self.aliases = tuple(sample)
        self._entities = np.frombuffer(entities, dtype=np.int64)
        self._names = np.frombuffer(names, dtype=np.int64)

    def namesakes(self, entity_ids: Sequence[str]) -> dict[str, frozenset[int]]:
        """For each entity the hashes of the ids that share a folded name with it, its own included."""
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
    """The question of a label whose entity is there; a name of its own is not found."""
    if not label.is_own:
        return HeldOut(label.mention)

    def leaves_out(point: NamePoint) -> bool:
        return point.entity_id == label.entity_id and point.name == label.mention

    return HeldOut(label.mention, leaves_out)


def as_nil(label: Label, namesakes: frozenset[int]) -> HeldOut:
    """The question of a label whose entity is taken away, with all namesakes."""

    def leaves_out(point: NamePoint) -> bool:
        return hash(point.entity_id) in namesakes

    return HeldOut(label.mention, leaves_out)
