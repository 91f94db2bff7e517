"""A crosswalk as SSSOM TSV, the format in which ontologies exchange mappings (https://w3id.org/sssom).

The header is YAML in comments: the prefixes of ids with their IRIs, an id and the licence of the set, and the tool. A
match of entities with a name in common and a probability of at least `CERTAIN` is a `skos:exactMatch`; another one is a
`skos:closeMatch` for review. The justification is `semapv:LexicalMatching` where they have a name in common, else
`semapv:SemanticSimilarityThresholdMatching`; the probability is the confidence. NIL is not written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import quote

from pearl_qdrant._version import __version__
from pearl_qdrant.cells import table_line


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


CERTAIN = 0.9
"""Probability from which a match with a name in common is an exact one."""

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

MAPPINGS = "https://w3id.org/sssom/mappings/pearl-qdrant/"
"""Put before ids that have no IRI."""

OBO = "http://purl.obolibrary.org/obo/"

COLUMNS = (
    "subject_id",
    "subject_label",
    "predicate_id",
    "object_id",
    "object_label",
    "mapping_justification",
    "confidence",
    "comment",
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
    """The lines of the file, without their ends.

    Args:
        matches: Matches that are not NIL.
        subject_source, object_source: Short names of the bases.
        prefixes: Prefixes of ids with their IRIs; others are guessed (OBO's for ids such as MONDO:1).
        license_url: Licence of the mappings; None for unspecified.
    """
    rows, used = [], dict(PREFIXES)
    for one in matches:
        ids = []
        for entity_id, source in (
            (one.subject_id, subject_source),
            (one.object_id or "", one.object_kb or object_source),
        ):
            prefix, local = curie(entity_id, source)
            used.setdefault(
                prefix, prefixes.get(prefix) or _iri_of(prefix, is_curie=entity_id.startswith(f"{prefix}:"))
            )
            ids.append(f"{prefix}:{local}")
        kind = "LexicalMatching" if one.is_exact else "SemanticSimilarityThresholdMatching"
        predicate = "exactMatch" if one.is_exact and one.probability >= CERTAIN else "closeMatch"
        rows.append(
            (
                *(ids[0], one.subject_name, f"skos:{predicate}", ids[1], one.object_name or "", f"semapv:{kind}"),
                *(f"{one.probability:.4f}", one.reason),
            )
        )
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
