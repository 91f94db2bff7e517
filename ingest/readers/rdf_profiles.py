"""The vocabularies of RDF that are known: which of its properties are names, types and parents of an entity.

A vocabulary is an entry of `vocabularies.json` in this folder; which one a base has is found from what its statements
use. A property of an option (``--label-property``) comes before those of the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib import resources
from typing import Any

import msgspec

from ingest.readers.ontology import short_id
from ingest.readers.rdf_syntax import BASE
from ingest.readers.signs import PREFIXES


def expand(names: Iterable[str]) -> tuple[str, ...]:
    """Full IRIs of properties that an option names. Raises ValueError if one is neither an IRI nor has a well-known
    prefix.
    """
    found = []
    for name in names:
        bare = name.strip().removeprefix("<").removesuffix(">")
        prefix, colon, local = bare.partition(":")
        if not colon or (prefix not in PREFIXES and "/" not in local and prefix != "urn"):
            known = ", ".join(sorted(PREFIXES))
            raise ValueError(f"not a property: {name}. Give its IRI, or a name with one of the prefixes {known}")
        found.append(bare if local.startswith("//") or prefix not in PREFIXES else PREFIXES[prefix] + local)
    return tuple(found)


WIKIDATA, YAGO = PREFIXES["wd"], PREFIXES["yago"]
RDF_TYPE, LABEL, LITERAL_FORM, DEPRECATED, NOTATION = expand(
    "rdf:type rdfs:label skosxl:literalForm owl:deprecated skos:notation".split()
)
SUBCLASS_OF, CONCEPT, WIKIDATA_TYPE, WIKIDATA_PARENT = expand("rdfs:subClassOf skos:Concept wdt:P31 wdt:P279".split())
ALT_ID, XREF, NAMESPACE = expand(f"oboInOwl:{name}" for name in ("hasAlternativeId", "hasDbXref", "hasOBONamespace"))
REPLACED_BY = frozenset(expand(("obo:IAO_0100001", "dcterms:isReplacedBy")))
SAME_AS = frozenset(expand(("owl:sameAs", "skos:exactMatch", "schema:sameAs", "https://schema.org/sameAs")))
CLASSES = frozenset(expand(("owl:Class", "rdfs:Class")))
PROPERTIES = frozenset(
    expand(
        "rdf:Property owl:ObjectProperty owl:DatatypeProperty owl:AnnotationProperty owl:FunctionalProperty "
        "owl:TransitiveProperty owl:SymmetricProperty owl:InverseFunctionalProperty".split()
    )
)
_ISO = "http://purl.org/iso25964/skos-thes#"
NO_ENTITIES = frozenset(
    expand(
        "skos:ConceptScheme skos:Collection skos:OrderedCollection owl:Ontology owl:Axiom owl:Restriction skosxl:Label "
        f"rdfs:Datatype sh:NodeShape sh:PropertyShape {_ISO}ThesaurusArray {_ISO}ConceptGroup "
        "http://rdfs.org/ns/void#Dataset".split()
    )
)
"""Classes of what organises a vocabulary and is not in it."""

VOCABULARIES = (*(PREFIXES[name] for name in "rdfs owl skos rdf skosxl sh oboInOwl".split()), _ISO)
_EMPTY_TYPES = frozenset({"Thing", "Resource", "NamedIndividual", "Concept", "Class", "Item"})
_TYPE_SPACES = (
    *("http://schema.org/", "https://schema.org/", "http://bioschemas.org/", PREFIXES["foaf"], PREFIXES["dbo"]),
    *("http://wikiba.se/ontology#", "http://www.w3.org/ns/org#", "http://www.w3.org/2003/01/geo/wgs84_pos#"),
    *VOCABULARIES,
)
_ID_SPACES = (WIKIDATA, YAGO, BASE)


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the entities of a vocabulary are read.

    Attributes:
        title: For notes and errors.
        labels: Properties of the canonical name, the preferred one first.
        aliases: Properties of other names, each with a scope of `SCOPES`, or "".
        descriptions: Properties of the description, the preferred one first.
        types: Properties whose values are types.
        parents: Properties whose values are above the entity, and types of it, too.
        children: Properties whose values are below it.
        is_ontology: Its entities are classes, and are made as those of OBO.
        is_named_by_id: An entity with a type and without a name in the requested languages has its id as its name;
            else any other language will do.
        is_sorted: Of several labels in a language the first one in the alphabet is the canonical name.
        other_languages: Such names are taken where there is no other.
        is_items: Its entities are the items of Wikidata.
    """

    title: str
    labels: tuple[str, ...]
    aliases: Mapping[str, str]
    descriptions: tuple[str, ...]
    types: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    is_ontology: bool = False
    is_named_by_id: bool = False
    is_sorted: bool = False
    other_languages: bool = True
    is_items: bool = False

    def extend(self, labels: Iterable[str], aliases: Iterable[str], types: Iterable[str]) -> Profile:
        """The same with further properties before its own."""
        return msgspec.structs.replace(
            self,
            labels=tuple(dict.fromkeys((*labels, *self.labels))),
            aliases={**dict.fromkeys(aliases, ""), **self.aliases},
            types=tuple(dict.fromkeys((*types, *self.types))),
        )

    def properties(self) -> frozenset[str]:
        """All properties that are looked at."""
        found = {*self.labels, *self.aliases, *self.descriptions, *self.types, *self.parents, *self.children}
        return frozenset(found | {RDF_TYPE, DEPRECATED, ALT_ID, XREF, NAMESPACE, NOTATION} | SAME_AS | REPLACED_BY)


@lru_cache(maxsize=1)
def profiles() -> Mapping[str, Profile]:
    """The vocabularies of the table that ships, by name: wikidata, yago, ontology, skos, and names for all others."""
    content = resources.files("ingest.readers").joinpath("vocabularies.json").read_bytes()
    table = msgspec.json.decode(content, type=dict[str, dict[str, Any]])
    expanded = {
        name: {
            key: dict(zip(expand(value), value.values(), strict=True)) if isinstance(value, dict) else
            expand(value) if isinstance(value, list) else value
            for key, value in one.items()
        }
        for name, one in table.items()
    }  # fmt: skip
    return msgspec.convert(expanded, type=dict[str, Profile])


def entity_id(iri: str) -> str:
    """The id of an entity: as OBO writes it, the local name in Wikidata and YAGO, else the IRI."""
    for space in _ID_SPACES:
        if iri.startswith(space) and len(iri) > len(space):
            return iri[len(space) :]
    return short_id(iri)


def type_name(iri: str) -> str:
    """The name of a class: its local name in well-known vocabularies, else its id; empty for one that says nothing."""
    for space in _TYPE_SPACES:
        if iri.startswith(space):
            local = iri[len(space) :]
            return "" if local in _EMPTY_TYPES else local
    return entity_id(iri)


_MARKED = re.compile(r"_u([0-9A-Fa-f]{4,8})_")
_NUMBERED = re.compile(r"_Q[0-9]+$")


def name_of_id(local: str) -> str:
    """An id of YAGO as text: ``_u0028_`` and ``%28`` become a bracket, ``_`` a space; a Wikidata id at the end goes."""
    from urllib.parse import unquote

    text = _MARKED.sub(_decode, unquote(local) if "%" in local else local)
    return (_NUMBERED.sub("", text) or text).replace("_", " ").strip()


def _decode(match: re.Match[str]) -> str:
    code = int(match[1], 16)
    return chr(code) if 0x20 <= code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF else match[0]
