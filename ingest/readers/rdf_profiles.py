"""The vocabularies of RDF that are known: which of its properties are names, types and parents of an entity.

A vocabulary is a table of properties, not code; which one a base has is found from what its statements use. A property
of an option (``--label-property``) comes before those of the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ingest.readers.ontology import SCOPES, short_id
from ingest.readers.rdf_syntax import BASE, PREFIXES

_RDFS, _OWL, _SKOS, _XL = PREFIXES["rdfs"], PREFIXES["owl"], PREFIXES["skos"], PREFIXES["skosxl"]
_DC, _TERMS, _FOAF, _DBO = PREFIXES["dc"], PREFIXES["dcterms"], PREFIXES["foaf"], PREFIXES["dbo"]
_OBO, _IN_OBO, _WDT = PREFIXES["obo"], PREFIXES["oboInOwl"], PREFIXES["wdt"]
_GEONAMES = "http://www.geonames.org/ontology#"
_ISO = "http://purl.org/iso25964/skos-thes#"
_ZTHES = "http://www.w3.org/2004/02/skos/extensions#"

WIKIDATA = PREFIXES["wd"]
YAGO = PREFIXES["yago"]

RDF_TYPE = PREFIXES["rdf"] + "type"
LABEL = _RDFS + "label"
LITERAL_FORM = _XL + "literalForm"
DEPRECATED = _OWL + "deprecated"
REPLACED_BY = frozenset({_OBO + "IAO_0100001", _TERMS + "isReplacedBy"})
SAME_AS = frozenset({_OWL + "sameAs", _SKOS + "exactMatch", "http://schema.org/sameAs", "https://schema.org/sameAs"})
ALT_ID, XREF, NAMESPACE = (_IN_OBO + name for name in ("hasAlternativeId", "hasDbXref", "hasOBONamespace"))
NOTATION = _SKOS + "notation"
SUBCLASS_OF = _RDFS + "subClassOf"
WIKIDATA_PARENT = _WDT + "P279"

CLASSES = frozenset({_OWL + "Class", _RDFS + "Class"})
CONCEPT = _SKOS + "Concept"
PROPERTIES = frozenset(
    {PREFIXES["rdf"] + "Property"}
    | {_OWL + name for name in ("ObjectProperty", "DatatypeProperty", "AnnotationProperty", "FunctionalProperty")}
    | {_OWL + name for name in ("TransitiveProperty", "SymmetricProperty", "InverseFunctionalProperty")}
)
NO_ENTITIES = frozenset(
    {_SKOS + name for name in ("ConceptScheme", "Collection", "OrderedCollection")}
    | {_OWL + "Ontology", _OWL + "Axiom", _OWL + "Restriction", _XL + "Label", _RDFS + "Datatype"}
    | {_ISO + "ThesaurusArray", _ISO + "ConceptGroup", "http://rdfs.org/ns/void#Dataset"}
    | {"http://www.w3.org/ns/shacl#NodeShape", "http://www.w3.org/ns/shacl#PropertyShape"}
)
"""Classes of what organises a vocabulary and is not in it."""

_VOCABULARIES = (_RDFS, _OWL, _SKOS, PREFIXES["rdf"], _XL, _ISO, "http://www.w3.org/ns/shacl#", _IN_OBO)

_EMPTY_TYPES = frozenset({"Thing", "Resource", "NamedIndividual", "Concept", "Class", "Item"})
_TYPE_SPACES = (
    *("http://schema.org/", "https://schema.org/", "http://bioschemas.org/", _FOAF, _DBO, *_VOCABULARIES),
    *("http://wikiba.se/ontology#", "http://www.w3.org/ns/org#", "http://www.w3.org/2003/01/geo/wgs84_pos#"),
)
_ID_SPACES = (WIKIDATA, YAGO, BASE)


@dataclass(frozen=True, slots=True)
class Profile:
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
        return replace(
            self,
            labels=tuple(dict.fromkeys((*labels, *self.labels))),
            aliases={**dict.fromkeys(aliases, ""), **self.aliases},
            types=tuple(dict.fromkeys((*types, *self.types))),
        )

    def properties(self) -> frozenset[str]:
        """All properties that are looked at."""
        found = {*self.labels, *self.aliases, *self.descriptions, *self.types, *self.parents, *self.children}
        return frozenset(found | {RDF_TYPE, DEPRECATED, ALT_ID, XREF, NAMESPACE, NOTATION} | SAME_AS | REPLACED_BY)


_SKOS_ALIASES = {_SKOS + "altLabel": "", _SKOS + "hiddenLabel": "", _XL + "altLabel": "", _XL + "hiddenLabel": ""}
_ABOUT = (_SKOS + "definition", _TERMS + "description", _DC + "description", _RDFS + "comment")
_SCHEMA = ("http://schema.org/", "https://schema.org/")

ONTOLOGY = Profile(
    "ontology (OWL)",
    (LABEL, _SKOS + "prefLabel"),
    {_IN_OBO + f"has{scope.title()}Synonym": scope for scope in SCOPES}
    | {_IN_OBO + "hasSynonym": "RELATED", _OBO + "IAO_0000118": "", _SKOS + "altLabel": ""},
    (_OBO + "IAO_0000115", *_ABOUT),
    parents=(SUBCLASS_OF,),
    is_ontology=True,
)
SKOS = Profile(
    "thesaurus (SKOS)",
    (_SKOS + "prefLabel", _XL + "prefLabel", LABEL),
    _SKOS_ALIASES,
    (*_ABOUT[:1], _SKOS + "scopeNote", *_ABOUT[1:]),
    parents=(
        *(_SKOS + name for name in ("broader", "broaderTransitive")),
        *(_ISO + name for name in ("broaderGeneric", "broaderInstantial", "broaderPartitive")),
        *(_ZTHES + name for name in ("broaderGeneric", "broaderInstantive", "broaderPartitive")),
        _SKOS + "topConceptOf",
    ),
    children=(_SKOS + "narrower", _SKOS + "hasTopConcept"),
)
YAGO_PROFILE = Profile(
    "YAGO",
    (LABEL,),
    {space + "alternateName": "" for space in _SCHEMA},
    (_RDFS + "comment", *(space + "description" for space in _SCHEMA)),
    types=(RDF_TYPE,),
    parents=(SUBCLASS_OF,),
    is_named_by_id=True,
    is_sorted=True,
    other_languages=False,
)
TRUTHY = Profile(
    "Wikidata",
    (LABEL,),
    {_SKOS + "altLabel": ""},
    ("http://schema.org/description",),
    types=(_WDT + "P31",),
    parents=(WIKIDATA_PARENT,),
    other_languages=False,
    is_items=True,
)
NAMES = Profile(
    "names",
    (
        *(*(space + "name" for space in _SCHEMA), _FOAF + "name", LABEL, _SKOS + "prefLabel", _XL + "prefLabel"),
        *(_DBO + "title", _TERMS + "title", _DC + "title", _FOAF + "title", "http://www.w3.org/2006/vcard/ns#fn"),
        *(_GEONAMES + "name", "http://www.loc.gov/mads/rdf/v1#authoritativeLabel"),
    ),
    {space + "alternateName": "" for space in _SCHEMA}
    | {space + "legalName": "" for space in _SCHEMA}
    | {_GEONAMES + "alternateName": "", _GEONAMES + "officialName": ""}
    | {_FOAF + "nick": "", _DBO + "alias": "", _TERMS + "alternative": ""}
    | _SKOS_ALIASES,
    (*(space + "description" for space in _SCHEMA), _DBO + "abstract", *_ABOUT),
    types=(RDF_TYPE,),
    parents=(SUBCLASS_OF,),
)
PROFILES = (TRUTHY, YAGO_PROFILE, ONTOLOGY, SKOS, NAMES)

SKOS_SIGNS = frozenset({*SKOS.parents, *SKOS.children, _SKOS + "prefLabel", _XL + "prefLabel"})


def is_vocabulary(iri: str) -> bool:
    """Whether an IRI is of RDF, RDFS, OWL or SKOS themselves."""
    return iri.startswith(_VOCABULARIES)


def expand(names: Sequence[str]) -> tuple[str, ...]:
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
