"""`crosswalk`: the entities of one base that another one has, too."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from pearl_qdrant.cells import table_line
from pearl_qdrant.crosswalk.assignment import assign
from pearl_qdrant.crosswalk.evidence import Evidence, evidence_of, names_to_link
from pearl_qdrant.crosswalk.records import EntityMatch
from pearl_qdrant.crosswalk.sssom import sssom_lines
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.linking.options import check_threshold
from pearl_qdrant.records import Entity
from pearl_qdrant.settings import DEFAULT_DEVICE
from pearl_qdrant.store.atomic import write_lines
from pearl_qdrant.store.open import open_default_store
from pearl_qdrant.store.points import entity_from_points
from pearl_qdrant.store.schema import NamePoint

DEFAULT_CROSSWALK_THRESHOLD = 0.9
"""Least probability of a match, set by hand; docs/crosswalk.md has the precision of several."""

CONSIDERED = 0.05
"""Least probability of a candidate for the assignment."""

_COLUMNS = ("subject_id", "subject_name", "object_id", "object_name", "object_kb", "probability", "reason")

_BATCH = 2048
_CANDIDATES = 10


@dataclass(frozen=True)
class Crosswalk:
    """Matches, one for each entity of the one base, in its order.

    Attributes:
        matches: With those that are NIL.
        subject_source, object_source: Short names of the bases.
    """

    matches: tuple[EntityMatch, ...]
    subject_source: str
    object_source: str

    @property
    def found(self) -> Iterator[EntityMatch]:
        """The matches that are not NIL."""
        return (one for one in self.matches if one.object_id is not None)

    def write_sssom(
        self, path: str | os.PathLike[str], *, prefixes: Mapping[str, str] | None = None, license_url: str | None = None
    ) -> None:
        """Write the matches that are not NIL as SSSOM TSV.

        Args:
            path: The file.
            prefixes: Further prefixes of ids with their IRIs.
            license_url: Licence of the mappings; default is unspecified.
        """
        lines = sssom_lines(
            *(self.found, self.subject_source, self.object_source), prefixes=prefixes or {}, license_url=license_url
        )
        write_lines(Path(path), lines)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write all matches as a plain table (TSV, UTF-8), NIL with an empty id."""
        write_lines(Path(path), self.lines())

    def lines(self) -> Iterator[str]:
        """The lines that `write` writes, without their ends."""
        yield table_line(_COLUMNS)
        for one in self.matches:
            found = (one.object_id or "", one.object_name or "", one.object_kb or "")
            yield table_line((one.subject_id, one.subject_name, *found, f"{one.probability:.4f}", one.reason))


def crosswalk(
    a: str | Iterable[Entity],
    b: str | EntityLinker,
    *,
    store: str | None = None,
    one_to_one: bool = False,
    threshold: float = DEFAULT_CROSSWALK_THRESHOLD,
    model: str | None = None,
    device: str = DEFAULT_DEVICE,
    source: str | None = None,
) -> Crosswalk:
    """Find each entity of one base in another.

    All names of an entity are linked to the other base, and what their links say is added up. Coarse types that have
    nothing in common forbid a match.

    Args:
        a: Name of a collection, or entities, as `ingest.read_entities` reads them from a file.
        b: Name of a collection, or an open linker.
        store: Where the collections are; default as for `EntityLinker.open`.
        one_to_one: Whether an entity of `b` is the partner of one entity at most: the matches of the highest sum of
            probabilities are taken. Needs scipy.
        threshold: Least probability of a match, in [0, 1].
        model: The encoder, in place of the collection's own.
        device: Device of the encoder.
        source: Short name of the base `a`; default is that of the collection.

    Raises:
        CollectionNotFoundError: If a collection does not exist.
        OptionError: If `one_to_one` is set, and scipy is not installed.
        ValueError: If the threshold is not in [0, 1].
    """
    check_threshold(threshold)
    with ExitStack() as stack:
        if isinstance(b, str):
            b = stack.enter_context(EntityLinker.open(b, store=store, model=model, device=device, read_only=True))
        entities: Iterable[Entity]
        if isinstance(a, str):
            source, entities = entities_of(a, store)
        else:
            entities, source = a, source or "a"
        found = [(entity.entity_id, entity.canonical_name, evidence) for entity, evidence in _evidence(entities, b)]
        object_source = "+".join(dict.fromkeys(one.candidate.kb for _, _, of_one in found for one in of_one)) or "b"
    chosen = _chosen(found, one_to_one)
    matches = tuple(
        _match(key, name, evidence, chosen.get(i), threshold) for i, (key, name, evidence) in enumerate(found)
    )
    return Crosswalk(matches, source, object_source)


def entities_of(collection: str, store: str | None) -> tuple[str, list[Entity]]:
    """Short name of the base of a collection, and its entities, by id; all of them in memory.

    Raises:
        CollectionNotFoundError: If it does not exist.
    """
    opened_store = open_default_store(store)
    try:
        opened = opened_store.open(collection, read_only=True)
        points: dict[str, list[NamePoint]] = {}
        for point in opened.scroll():
            points.setdefault(point.entity_id, []).append(point)
        return opened.manifest.kb, [entity_from_points(points[entity_id]) for entity_id in sorted(points)]
    finally:
        opened_store.close()


def _evidence(entities: Iterable[Entity], linker: EntityLinker) -> Iterator[tuple[Entity, list[Evidence]]]:
    """Entities with the candidates that matter, batch by batch."""
    entities = iter(entities)
    while batch := list(islice(entities, _BATCH)):
        names = [names_to_link(entity) for entity in batch]
        links = iter(linker.link_batch([name for of_one in names for name in of_one], limit=_CANDIDATES))
        for entity, of_one in zip(batch, names, strict=True):
            evidence = evidence_of(entity, list(islice(links, len(of_one))))
            yield entity, [one for one in evidence if one.probability >= CONSIDERED]


def _chosen(found: Sequence[tuple[str, str, list[Evidence]]], one_to_one: bool) -> dict[int, Evidence]:
    """The candidate of each entity, by its place."""
    if not one_to_one:
        return {i: evidence[0] for i, (_, _, evidence) in enumerate(found) if evidence}
    by_key = {
        i: {(one.candidate.kb, one.candidate.entity_id): one for one in evidence}
        for i, (_, _, evidence) in enumerate(found)
        if evidence
    }
    partners = assign({i: {key: one.probability for key, one in of_one.items()} for i, of_one in by_key.items()})
    return {i: by_key[i][key] for i, key in partners.items()}


def _match(
    subject_id: str, name: str, evidence: Sequence[Evidence], chosen: Evidence | None, threshold: float
) -> EntityMatch:
    if chosen is None or chosen.probability < threshold:
        best = max((one.probability for one in evidence), default=0.0)
        reason = "no candidates" if not evidence else "below threshold"
        if evidence and best >= threshold:
            reason = "taken by another entity"
        return EntityMatch(subject_id, name, None, None, None, best, reason)
    candidate = chosen.candidate
    return EntityMatch(
        *(subject_id, name, candidate.entity_id, candidate.canonical_name, candidate.kb, chosen.probability),
        f"{chosen.name} = {candidate.name}" if chosen.is_exact else f"{chosen.name} ~ {candidate.name}",
        chosen.is_exact,
    )
