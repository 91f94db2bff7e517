"""OBO Graph JSON, and that the three forms of an ontology are the same base. The terms are made up."""

from __future__ import annotations

import json
from typing import Any

import pytest
from rdf_bases import EDGES, IN_OBO, NODES, OBO, OWL, SPACE, TERMS, graph, node, read

from ingest.io import limits
from ingest.io.report import ReadReport
from pearl_qdrant.errors import FormatError
from pearl_qdrant.records import Entity


@pytest.mark.parametrize("form", ["obo", "owl", "json", "ttl"])
def test_an_ontology_is_the_same_base_in_each_form(form: str) -> None:
    """Ids, names, aliases, types, descriptions and further fields are the same, and what is left out is counted."""
    content = {"obo": OBO, "owl": OWL, "json": graph(), "ttl": as_turtle()}[form]
    report = ReadReport(max_errors=0)

    assert read(content, report=report) == TERMS
    assert report.filtered["obsolete"] == report.filtered["broad_synonym"] == report.filtered["related_synonym"] == 1
    assert report.filtered["not_a_term"] >= 1


def as_turtle() -> str:
    """The same terms in Turtle, by another author."""
    return f"""@prefix o: <{SPACE}> . @prefix i: <{IN_OBO}> .
    o:MADE_0001 a owl:Class ; rdfs:label "sore left toe"^^xsd:string ; rdfs:subClassOf o:MADE_0002,
      [ a owl:Restriction ; owl:onProperty o:BFO_0000050 ; owl:someValuesFrom o:MADE_0003 ] ;
      o:IAO_0000115 "A toe that hurts." ; i:hasExactSynonym "toe pain, left" ; i:hasBroadSynonym "hurting foot" ;
      i:hasRelatedSynonym "toe ache" ; i:hasDbXref "OTHER:77" ; i:hasAlternativeId "MADE:0901" ;
      i:hasOBONamespace "made_up" .
    o:MADE_0002 a owl:Class ; rdfs:label "sore toe" ; rdfs:subClassOf o:MADE_0003 .
    o:MADE_0003 rdfs:label "sore thing" ; a owl:Class .
    o:MADE_0005 a owl:Class ; rdfs:label "obsolete toe" ; owl:deprecated true ; o:IAO_0100001 o:MADE_0002 .
    o:BFO_0000050 a owl:ObjectProperty ; rdfs:label "part of" ."""


@pytest.mark.parametrize("form", ["obo", "owl", "json", "ttl"])
def test_scopes_and_links_are_chosen_in_each_form(form: str) -> None:
    """Other scopes are names on request, and parents are links on request."""
    content = {"obo": OBO, "owl": OWL, "json": graph(), "ttl": as_turtle()}[form]
    first, *_ = read(content, scopes=("BROAD", "RELATED"), links=True)

    assert set(first.aliases) == {"hurting foot", "toe ache"}
    assert first.extra["links_to"] == "MADE:0002"


def test_several_graphs_are_one_base() -> None:
    """Edges of one graph count in another; a document may have further parts of any size, in any order."""
    parts = [
        {"edges": EDGES, "logicalDefinitionAxioms": [{"a": [[[[[1]]]]]}] * 50, "id": "a"},
        {"nodes": NODES[:2], "meta": {"x": [1.5, None, {}]}},
        {"nodes": NODES[2:]},
    ]

    assert read(json.dumps({"graphs": parts}, indent=2)) == TERMS
    assert read(json.dumps({"nodes": NODES, "edges": EDGES})) == TERMS, "a graph without a document around it"


def test_a_file_without_kinds_of_nodes_has_terms() -> None:
    """Early files do not tell classes from properties; in others a node without a kind is no term."""
    bare = [node("MADE_0001", "a", None), node("MADE_0002", "b", None)]

    assert [entity.canonical_name for entity in read(graph(bare, []))] == ["a", "b"]
    assert [entity.canonical_name for entity in read(graph([*bare, node("MADE_0003", "c")], []))] == ["c"]


def test_odd_nodes_are_counted_or_left_out() -> None:
    """A node without an id, and values of wrong kinds, cost themselves alone."""
    odd: list[Any] = [7, {"lbl": "x"}, {"id": 5, "lbl": "y"}, node("MADE_0004", "a\0b"), {"id": "u:1", "lbl": ["n"]}]
    good = node("MADE_0006", " two\nlines ", synonyms=[7, {"pred": 4, "val": "v"}, {"val": None}], xrefs="no")
    report = ReadReport(max_errors=None)

    assert read(graph([*odd, good], []), report=report) == [Entity("MADE:0006", "two lines")]
    assert report.skipped == {"no_id": 3, "nul_character": 1}


def test_a_node_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node larger than any real one is not collected in memory."""
    monkeypatch.setattr(limits, "MAX_ITEM_BYTES", 1_000)

    with pytest.raises(FormatError, match="has an object of over 1,000 bytes"):
        read(graph([node("MADE_0001", "x" * 2_000_000)], []), kind="obograph")


def test_a_term_of_another_ontology_keeps_its_iri() -> None:
    """Only ids of the OBO Foundry, EFO and Orphanet are shortened."""
    iris = ["http://www.ebi.ac.uk/efo/EFO_0000001", "http://www.orpha.net/ORDO/Orphanet_9", "http://toy.example/T_1"]
    nodes = [node("MADE_1", "n") | {"id": iri} for iri in iris]

    assert [entity.entity_id for entity in read(graph(nodes, []))] == ["EFO:0000001", "Orphanet:9", iris[2]]
