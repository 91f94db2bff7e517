"""Which entities of two bases are the same: a crosswalk, one to one where asked, with probabilities and NIL.

from pearl_qdrant.crosswalk import crosswalk

    found = crosswalk("doid", "mondo", one_to_one=True)
    found.write_sssom("doid-mondo.sssom.tsv")

Each name of an entity is linked. A logistic model adds up, for each candidate: the `best` probability that a name gives
it, the `mean` over the names, that of the `canonical` name, log(1 + names that are `agreeing` with at least `AGREES`),
the `margin` of its mean above the next one, and whether the entity has a `lone` name. Its coefficients are set by hand:
those that `runs/resolution/crosswalk.py` fits count names that agree against a match.

One to one are the matches of the highest sum of probabilities (Jonker and Volgenant 1987, as scipy has it). The SSSOM
TSV (https://w3id.org/sssom) has a `skos:exactMatch` where entities have a name in common and a probability of at least
`CERTAIN`, else a `skos:closeMatch` for review.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import numpy as np

from pearl_qdrant._version import __version__
from pearl_qdrant.cells import table_line
from pearl_qdrant.errors import OptionError
from pearl_qdrant.installing import install_command
from pearl_qdrant.lexical.keys import spelling_key
from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.linking.options import check_threshold
from pearl_qdrant.records import Candidate, Entity, Link
from pearl_qdrant.settings import DEFAULT_DEVICE
from pearl_qdrant.store.open import use_store
from pearl_qdrant.store.schema import NamePoint, entity_from_points
from pearl_qdrant.store.system import write_lines

A = TypeVar("A")
B = TypeVar("B")

_NOTHING = 1e-9  # The worth of no partner; a zero would be no edge


def assign(candidates: Mapping[A, Mapping[B, float]]) -> dict[A, B]:
    """The partner of each subject that has one, by the probabilities, > 0, of its possible ones. Raises OptionError if
    scipy is not installed.
    """
    try:
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import min_weight_full_bipartite_matching
    except ModuleNotFoundError as error:
        raise OptionError(
            "one_to_one", f"A one-to-one crosswalk needs scipy. Install it with: {install_command('crosswalk')}"
        ) from error
    subjects = list(candidates)
    objects = list(dict.fromkeys(one for of_subject in candidates.values() for one in of_subject))
    place = {one: i for i, one in enumerate(objects)}
    edges = [(row, place[one], p) for row, subject in enumerate(subjects) for one, p in candidates[subject].items()]
    edges += [(row, len(objects) + row, _NOTHING) for row in range(len(subjects))]  # each may stay alone
    if not subjects:
        return {}
    rows, columns, worth = zip(*edges, strict=True)
    shape = (len(subjects), len(objects) + len(subjects))
    matrix = csr_array((np.array(worth), (np.array(rows), np.array(columns))), shape=shape)
    chosen = zip(*min_weight_full_bipartite_matching(matrix, maximize=True), strict=True)
    return {subjects[row]: objects[column] for row, column in chosen if column < len(objects)}


FEATURES = ("best", "mean", "canonical", "agreeing", "margin", "lone")

WEIGHTS = {"best": 4.0, "mean": 2.0, "canonical": 0.5, "agreeing": 1.0, "margin": 1.5, "lone": 0.5}
BIAS = -4.0

AGREES = 0.9  # Probability from which a name agrees
MOST_NAMES = 30  # Names of an entity that are linked; more say the same again

_NO_TYPE = "OTHER"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What speaks for an entity of the other base: the name that fits best, features in the order of `FEATURES`, and
    whether a name is that of the other entity, up to case, accents and spaces.
    """

    candidate: Candidate
    name: str
    features: tuple[float, ...]
    probability: float
    is_exact: bool


def names_to_link(entity: Entity) -> list[str]:
    """The names of an entity that are linked, the canonical one first, equal spellings once."""
    first: dict[str, str] = {}
    for name in entity.names():
        first.setdefault(spelling_key(fold_name(name)) or name, name)
    return list(first.values())[:MOST_NAMES]


def evidence_of(entity: Entity, links: Sequence[Link]) -> list[Evidence]:
    """The entities of the other base that the links of `names_to_link(entity)` find, the most probable first; without
    those whose coarse types have nothing in common with the entity's.
    """
    found: dict[tuple[str, str], list[tuple[float, Candidate, Link]]] = {}
    for link in links:
        for candidate in link.candidates:
            if _types_agree(entity.types, candidate.types):
                key = (candidate.kb, candidate.entity_id)
                found.setdefault(key, []).append((candidate.probability or 0.0, candidate, link))
    means = {key: sum(one[0] for one in given) / len(links) for key, given in found.items()}
    evidence = []
    for key, given in found.items():
        others = max((mean for other, mean in means.items() if other != key), default=0.0)
        best, candidate, link = max(given, key=lambda one: one[0])
        features = (
            best,
            means[key],
            next((p for p, _, of_name in given if of_name is links[0]), 0.0),
            math.log1p(sum(p >= AGREES for p, _, _ in given)),
            means[key] - others,
            float(len(links) == 1),
        )
        is_exact = any(_same(of_name.mention, one.name) for _, one, of_name in given)
        evidence.append(Evidence(candidate, link.mention, features, probability_of(features), is_exact))
    return sorted(evidence, key=lambda one: (-one.probability, one.candidate.kb, one.candidate.entity_id))


def probability_of(features: Sequence[float]) -> float:
    """The probability that two entities are the same."""
    logit = BIAS + math.fsum(WEIGHTS[name] * value for name, value in zip(FEATURES, features, strict=True))
    return 1 / (1 + math.exp(-logit))


def _same(one: str, other: str) -> bool:
    key = spelling_key(fold_name(one))
    return bool(key) and key == spelling_key(fold_name(other))


def _types_agree(ours: Sequence[str], theirs: Sequence[str]) -> bool:
    one, other = set(ours) - {_NO_TYPE}, set(theirs) - {_NO_TYPE}
    return not one or not other or not one.isdisjoint(other)


DEFAULT_CROSSWALK_THRESHOLD = 0.9
"""Least probability of a match, set by hand; docs/crosswalk.md has the precision of several."""

CONSIDERED = 0.05  # Least probability of a candidate for the assignment

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
        """Write the matches that are not NIL as SSSOM TSV; `prefixes` of ids with their IRIs are added to the known
        ones.
        """
        sources = (self.subject_source, self.object_source)
        write_lines(Path(path), sssom_lines(self.found, *sources, prefixes=prefixes or {}, license_url=license_url))

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
    nothing in common forbid a match. Raises CollectionNotFoundError if a collection does not exist; OptionError if
    `one_to_one` is set, and scipy is not installed; ValueError if the threshold is not in [0, 1].

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
    """Short name of the base of a collection, and its entities, by id; all of them in memory. Raises
    CollectionNotFoundError if it does not exist.
    """
    with use_store(store) as opened_store:
        opened = opened_store.open(collection, read_only=True)
        points: dict[str, list[NamePoint]] = {}
        for point in opened.scroll():
            points.setdefault(point.entity_id, []).append(point)
        return opened.manifest.kb, [entity_from_points(points[entity_id]) for entity_id in sorted(points)]


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
        i: {(one.candidate.kb, one.candidate.entity_id): one for one in of_one}
        for i, (_, _, of_one) in enumerate(found)
        if of_one
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


CERTAIN = 0.9  # Probability from which a match with a name in common is an exact one

UNSPECIFIED_LICENSE = "https://w3id.org/sssom/license/unspecified"

PREFIXES = {
    "semapv": "https://w3id.org/semapv/vocab/",
    "skos": "http://www.w3.org/2004/02/skos/core#",
    "sssom": "https://w3id.org/sssom/",
}
"""Prefixes that every file has."""

KNOWN_PREFIXES = {
    "Orphanet": "http://www.orpha.net/ORDO/Orphanet_",
    "UMLS": "http://linkedlifedata.com/resource/umls/id/",
    "WIKIDATA": "http://www.wikidata.org/entity/",
}
"""IRIs of prefixes beyond OBO's."""

MAPPINGS = "https://w3id.org/sssom/mappings/pearl-qdrant/"  # Put before ids that have no IRI

OBO = "http://purl.obolibrary.org/obo/"

COLUMNS = (
    *("subject_id", "subject_label", "predicate_id", "object_id", "object_label"),
    *("mapping_justification", "confidence", "comment"),
)

_CURIE = re.compile(r"([A-Za-z][A-Za-z0-9_.-]*):(\S+)")
_NOT_IN_PREFIX = re.compile(r"[^A-Za-z0-9_.-]+")


def curie(entity_id: str, source: str) -> tuple[str, str]:
    """The prefix and the local part of an id; the short name of its base is the prefix where it has none."""
    if (found := _CURIE.fullmatch(entity_id)) and not found.group(2).startswith("//"):
        return found.group(1), quote(found.group(2), safe="()*,.-_~")
    prefix = _NOT_IN_PREFIX.sub("_", source).strip("_.-") or "base"
    prefix = prefix if prefix[0].isalpha() else f"base_{prefix}"
    return prefix, quote(entity_id, safe="()*,.-_~")


def sssom_lines(
    matches: Iterable[EntityMatch],
    subject_source: str,
    object_source: str,
    *,
    prefixes: Mapping[str, str],
    license_url: str | None,
) -> Iterator[str]:
    """The lines of the file for matches that are not NIL; prefixes that are not given are guessed (OBO's for ids such
    as MONDO:1).
    """
    rows, used = [], dict(PREFIXES)
    for one in matches:
        ids = []
        of_object = (one.object_id or "", one.object_kb or object_source)
        for entity_id, source in ((one.subject_id, subject_source), of_object):
            prefix, local = curie(entity_id, source)
            guessed = _iri_of(prefix, is_curie=entity_id.startswith(f"{prefix}:"))
            used.setdefault(prefix, prefixes.get(prefix) or guessed)
            ids.append(f"{prefix}:{local}")
        kind = "LexicalMatching" if one.is_exact else "SemanticSimilarityThresholdMatching"
        predicate = "exactMatch" if one.is_exact and one.probability >= CERTAIN else "closeMatch"
        said = (f"semapv:{kind}", f"{one.probability:.4f}", one.reason)
        rows.append((ids[0], one.subject_name, f"skos:{predicate}", ids[1], one.object_name or "", *said))
    yield "#curie_map:"
    for prefix, iri in sorted(used.items()):
        yield f"#  {prefix}: {_quoted(iri)}"
    yield f"#license: {_quoted(license_url or UNSPECIFIED_LICENSE)}"
    set_id = f"{quote(subject_source, safe='')}-{quote(object_source, safe='')}"
    yield f"#mapping_set_id: {_quoted(MAPPINGS + set_id)}"
    yield "#mapping_tool: pearl-qdrant"
    yield f"#mapping_tool_version: {_quoted(__version__)}"
    yield table_line(COLUMNS)
    yield from map(table_line, rows)


def _iri_of(prefix: str, *, is_curie: bool) -> str:
    if prefix in KNOWN_PREFIXES:
        return KNOWN_PREFIXES[prefix]
    return f"{OBO}{prefix}_" if is_curie else f"{MAPPINGS}{prefix}/"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
