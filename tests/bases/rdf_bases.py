"""Small bases in RDF and OBO, made up for the tests, and how they are read."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from ingest.base.format import ReadOptions
from ingest.formats import open_reader
from ingest.io.report import ReadReport
from pearl_qdrant.records import Entity

PREFIXES = """@prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix xl: <http://www.w3.org/2008/05/skos-xl#> .
@prefix foaf: <http://xmlns.com/foaf/0.1/> .
@prefix schema: <http://schema.org/> .
@prefix dct: <http://purl.org/dc/terms/> .
@prefix obo: <http://purl.obolibrary.org/obo/> .
@prefix oio: <http://www.geneontology.org/formats/oboInOwl#> .
@prefix t: <http://toy.example/> .
"""

OWL = """<?xml version="1.0"?>
<!DOCTYPE rdf:RDF [ <!ENTITY obo "http://purl.obolibrary.org/obo/"> ]>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:owl="http://www.w3.org/2002/07/owl#"
         xmlns:rdfs="http://www.w3.org/2000/01/rdf-schema#" xmlns:obo="http://purl.obolibrary.org/obo/"
         xmlns:oboInOwl="http://www.geneontology.org/formats/oboInOwl#" xml:base="http://purl.obolibrary.org/obo/made">
  <owl:Ontology rdf:about=""><rdfs:label>Made up</rdfs:label></owl:Ontology>
  <owl:AnnotationProperty rdf:about="&obo;IAO_0000115"><rdfs:label>definition</rdfs:label></owl:AnnotationProperty>
  <owl:ObjectProperty rdf:about="&obo;BFO_0000050"><rdfs:label>part of</rdfs:label></owl:ObjectProperty>
  <!-- <a comment> -->
  <owl:Class rdf:about="&obo;MADE_0001">
    <rdfs:label>sore left toe</rdfs:label>
    <obo:IAO_0000115>A toe that hurts.</obo:IAO_0000115>
    <rdfs:comment>not of interest</rdfs:comment>
    <oboInOwl:hasExactSynonym>toe pain, left</oboInOwl:hasExactSynonym>
    <oboInOwl:hasBroadSynonym>hurting foot</oboInOwl:hasBroadSynonym>
    <oboInOwl:hasRelatedSynonym>toe ache</oboInOwl:hasRelatedSynonym>
    <oboInOwl:hasAlternativeId>MADE:0901</oboInOwl:hasAlternativeId>
    <oboInOwl:hasDbXref>OTHER:77</oboInOwl:hasDbXref>
    <oboInOwl:hasOBONamespace>made_up</oboInOwl:hasOBONamespace>
    <rdfs:subClassOf rdf:resource="&obo;MADE_0002"/>
    <rdfs:subClassOf><owl:Restriction><owl:onProperty rdf:resource="&obo;BFO_0000050"/>
      <owl:someValuesFrom rdf:resource="&obo;MADE_0003"/></owl:Restriction></rdfs:subClassOf>
  </owl:Class>
  <owl:Axiom><owl:annotatedSource rdf:resource="&obo;MADE_0001"/>
    <oboInOwl:hasDbXref>x:y</oboInOwl:hasDbXref></owl:Axiom>
  <owl:Class rdf:about="&obo;MADE_0002"><rdfs:label>sore toe</rdfs:label>
    <rdfs:subClassOf rdf:resource="&obo;MADE_0003"/></owl:Class>
  <owl:Class rdf:about="&obo;MADE_0003"><rdfs:label>sore thing</rdfs:label></owl:Class>
  <owl:Class rdf:about="&obo;MADE_0005"><rdfs:label>obsolete toe</rdfs:label>
    <owl:deprecated rdf:datatype="http://www.w3.org/2001/XMLSchema#boolean">true</owl:deprecated>
    <obo:IAO_0100001 rdf:resource="&obo;MADE_0002"/></owl:Class>
  <owl:Class rdf:about="&obo;OTHER_0001"/>
  <owl:NamedIndividual rdf:about="&obo;MADE_0009"><rdf:type rdf:resource="&obo;MADE_0002"/>
    <rdfs:label>the toe of Anna</rdfs:label></owl:NamedIndividual>
</rdf:RDF>
"""

TOES = r"""format-version: 1.2
default-namespace: made_up
! a comment of its own
ontology: toes

[Term]
id: MADE:0001 ! sore left toe
name: sore \"left\" toe {source="MADE:x", note="a \"b\", {c}"} ! the {left} one
alt_id: MADE:0901
def: "A toe\nthat hurts." [MADE:curator, "x" "y"] {source="z"}
comment: not of interest
synonym: "toe pain, left" EXACT []
synonym: "a \"toe\" ! that \\ hurts" EXACT layperson [MADE:a, MADE:b] {d="e"} ! why
synonym: "hurting foot" BROAD [MADE:curator]
synonym: "no scope" []
xref: OTHER:77 {source="MADE:curator"} ! other
xref: OTHER:78
is_a: MADE:0002 {source="q"} ! sore toe
is_a: MADE:0004

[Term]
id: MADE:0002
name: sore toe
namespace: complaint
is_a: MADE:0003 ! sore thing

[Term]
id: MADE:0003
name: sore thing! {really}
is_a: MADE:0002 ! a cycle

[Term]
id: MADE:0004
name: left thing

[Term]
id: MADE:0005
name: obsolete toe
is_a: MADE:0001
is_obsolete: true
replaced_by: MADE:0002

[Term]
id: OTHER:stub

[Typedef]
id: part_of
name: part of
"""

OBO = """format-version: 1.2
ontology: made

[Term]
id: MADE:0001
name: sore left toe
namespace: made_up
alt_id: MADE:0901
def: "A toe that hurts." []
comment: not of interest
synonym: "toe pain, left" EXACT []
synonym: "hurting foot" BROAD []
synonym: "toe ache" RELATED []
xref: OTHER:77
is_a: MADE:0002 ! sore toe
relationship: part_of MADE:0003

[Term]
id: MADE:0002
name: sore toe
is_a: MADE:0003

[Term]
id: MADE:0003
name: sore thing

[Term]
id: MADE:0005
name: obsolete toe
is_obsolete: true
replaced_by: MADE:0002

[Typedef]
id: part_of
name: part of
"""

SPACE = "http://purl.obolibrary.org/obo/"
IN_OBO = "http://www.geneontology.org/formats/oboInOwl#"


def node(local: str, name: str | None, kind: str | None = "CLASS", **meta: Any) -> dict[str, Any]:
    """A node of a graph."""
    found: dict[str, Any] = {"id": SPACE + local, "meta": meta}
    return found | ({"lbl": name} if name else {}) | ({"type": kind} if kind else {})


def edge(child: str, parent: str, pred: str = "is_a") -> dict[str, str]:
    """An edge of a graph."""
    return {"sub": SPACE + child, "pred": pred, "obj": SPACE + parent}


NODES = [
    node(
        "MADE_0001",
        "sore left toe",
        definition={"val": "A toe that hurts.", "xrefs": ["x:y"]},
        comments=["not of interest"],
        synonyms=[
            {"pred": "hasExactSynonym", "val": "toe pain, left", "xrefs": []},
            {"pred": "hasBroadSynonym", "val": "hurting foot"},
            {"pred": "hasRelatedSynonym", "val": "toe ache"},
        ],
        xrefs=[{"val": "OTHER:77"}],
        basicPropertyValues=[
            {"pred": IN_OBO + "hasAlternativeId", "val": "MADE:0901"},
            {"pred": IN_OBO + "hasOBONamespace", "val": "made_up"},
        ],
    ),
    node("MADE_0002", "sore toe"),
    node("MADE_0003", "sore thing"),
    node(
        "MADE_0005",
        "obsolete toe",
        deprecated=True,
        basicPropertyValues=[{"pred": SPACE + "IAO_0100001", "val": SPACE + "MADE_0002"}],
    ),
    node("OTHER_0001", None),
    node("BFO_0000050", "part of", "PROPERTY"),
    node("MADE_0009", "the toe of Anna", "INDIVIDUAL"),
]
EDGES = [
    edge("MADE_0001", "MADE_0002"),
    edge("MADE_0002", "MADE_0003"),
    edge("MADE_0001", "MADE_0003", SPACE + "BFO_0000050"),
]


def graph(nodes: Any = NODES, edges: Any = EDGES, **more: Any) -> str:
    """A document with one graph."""
    return json.dumps(
        {"meta": {}, "graphs": [{"id": SPACE + "made.json", "meta": {}, **more, "nodes": nodes, "edges": edges}]}
    )


TERMS = [
    Entity(
        "MADE:0001",
        "sore left toe",
        ("toe pain, left",),
        ("MADE:0002", "MADE:0003", "made_up"),
        (),
        "A toe that hurts.",
        {"alt_ids": "MADE:0901", "xrefs": "OTHER:77"},
    ),
    Entity("MADE:0002", "sore toe", (), ("MADE:0003",), (), None, {"alt_ids": "MADE:0005"}),
    Entity("MADE:0003", "sore thing"),
]


T = "http://toy.example/"
TRIPLES = [
    (T + "a", "http://xmlns.com/foaf/0.1/name", '"Anna Toy"'),
    (T + "a", "http://xmlns.com/foaf/0.1/nick", '"A \\"T\\" \\u00e4"@en'),
    (T + "a", "http://www.w3.org/1999/02/22-rdf-syntax-ns#type", "<http://xmlns.com/foaf/0.1/Person>"),
    (T + "b", "http://xmlns.com/foaf/0.1/name", '"Toy Works"@en'),
]
PEOPLE = [
    Entity(T + "a", "Anna Toy", ('A "T" ä',), ("Person",), ("PERSON",), languages={'A "T" ä': "en"}),
    Entity(T + "b", "Toy Works", languages={"Toy Works": "en"}),
]


def rows(end: str = " .") -> str:
    """The statements, one a line."""
    return "".join(f"<{s}> <{p}> {o}{end}\n" for s, p, o in TRIPLES)


SYNTAXES = {
    "N-Triples": "# people\n\n" + rows(),
    "N-Triples with tabs": rows().replace("> <", ">\t<").replace(" .", "\t."),
    "N-Triples with CRLF": rows().replace("\n", "\r\n"),
    "N-Quads": rows(" <u:graph> ."),
    "Turtle": "# toys\n" + PREFIXES + 't:a foaf:name """Anna Toy""" ;\n foaf:nick \'A "T" ä\'@en ;\n a foaf:Person .\n'
    't:b foaf:name "Toy Works"@en .',
    "Turtle without prefixes": "<http://toy.example/a> a <http://xmlns.com/foaf/0.1/Person> ; foaf:name 'Anna Toy' ;\n"
    ' foaf:nick "A \\"T\\" ä"@en . <http://toy.example/b> foaf:name "Toy Works"@EN .',
    "SPARQL prefixes": 'PREFIX f: <http://xmlns.com/foaf/0.1/>\nBASE <http://toy.example/>\n<a> f:name "Anna Toy" ;'
    'f:nick "A \\"T\\" ä"@en ; a f:Person . <b> f:name "Toy Works"@en .',
    "TriG": PREFIXES + 't:g { t:a foaf:name "Anna Toy" ; foaf:nick "A \\"T\\" ä"@en ; a foaf:Person } '
    '{ t:b foaf:name "Toy Works"@en }',
    "RDF/XML": '<?xml version="1.0" encoding="UTF-8"?>\n<!-- people -->\n<rdf:RDF '
    'xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:f="http://xmlns.com/foaf/0.1/" xml:base="http://toy.example/x">'
    '<f:Person rdf:about="a"><f:name>Anna Toy</f:name><f:nick xml:lang="en">A "T" &#228;</f:nick></f:Person>'
    '<rdf:Description rdf:about="b" xml:lang="en" f:name="Toy Works"/></rdf:RDF>\n<!-- end -->',
    "JSON-LD": json.dumps(
        {
            "@context": {"f": "http://xmlns.com/foaf/0.1/", "t": T},
            "@graph": [
                {"@id": "t:a", "@type": "f:Person", "f:name": "Anna Toy",
                 "f:nick": {"@value": 'A "T" ä', "@language": "en"}},
                {"@id": "t:b", "f:name": {"@value": "Toy Works", "@language": "en"}},
            ],
        }
    ),
    "JSON-LD list": json.dumps(
        [
            {"@id": T + "a", "http://xmlns.com/foaf/0.1/name": "Anna Toy",
             "http://xmlns.com/foaf/0.1/nick": {"@value": 'A "T" ä', "@language": "en"},
             "@type": "http://xmlns.com/foaf/0.1/Person"},
            {"@id": T + "b", "http://xmlns.com/foaf/0.1/name": {"@value": "Toy Works", "@language": "en"}},
        ]
    ),
}  # fmt: skip


def read(
    content: str | bytes, name: str = "base", report: ReadReport | None = None, kind: str = "auto", **options: Any
) -> list[Entity]:
    """Entities of a file with this content; options as of `ReadOptions`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with open_reader([path], kind, ReadOptions(**options)) as reader:
            return list(reader.read(report if report is not None else ReadReport(max_errors=0)))
