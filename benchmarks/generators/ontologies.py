"""Generates one vocabulary as OBO, OBO Graph JSON, OWL in RDF/XML, and SKOS in N-Triples and Turtle, and as MeSH."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

from generators.tables import rows

SPACE = "http://purl.obolibrary.org/obo/"
_IN_OBO = "http://www.geneontology.org/formats/oboInOwl#"
_SKOS = "http://www.w3.org/2004/02/skos/core#"
_XML = (
    '<?xml version="1.0"?>\n<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" '
    'xmlns:rdfs="http://www.w3.org/2000/01/rdf-schema#" xmlns:owl="http://www.w3.org/2002/07/owl#" '
    f'xmlns:oboInOwl="{_IN_OBO}">\n<owl:Ontology rdf:about="{SPACE}made.owl"/>\n'
)


def terms(n_bytes: int) -> Iterator[tuple[str, str, list[str], str]]:
    """Local id, name, synonyms and parent; about as many as a file of this many bytes has."""
    chosen = random.Random(9)
    for i, (_, name, synonyms, _, _) in enumerate(rows(n_bytes // 4), start=1):
        yield f"MADE_{i:07}", name, synonyms, f"MADE_{chosen.randrange(1, i + 1):07}"


def make_obo(folder: Path, n_bytes: int) -> None:
    """Stanzas of OBO."""
    folder.mkdir()
    with (folder / "base.obo").open("w", encoding="utf-8") as file:
        file.write("format-version: 1.2\nontology: made\n")
        for local, name, synonyms, parent in terms(n_bytes):
            file.write(f"\n[Term]\nid: {local.replace('_', ':')}\nname: {name}\n")
            file.writelines(f'synonym: "{one}" EXACT []\n' for one in synonyms)
            file.write(f"is_a: {parent.replace('_', ':')} ! parent\n")


def make_obograph(folder: Path, n_bytes: int) -> None:
    """OBO Graph JSON."""
    nodes, edges = [], []
    for local, name, synonyms, parent in terms(n_bytes):
        written = [{"pred": "hasExactSynonym", "val": one} for one in synonyms]
        nodes.append({"id": SPACE + local, "lbl": name, "type": "CLASS", "meta": {"synonyms": written}})
        edges.append({"sub": SPACE + local, "pred": "is_a", "obj": SPACE + parent})
    folder.mkdir()
    (folder / "base.json").write_text(json.dumps({"graphs": [{"nodes": nodes, "edges": edges}]}, indent=1), "utf-8")


def make_owl(folder: Path, n_bytes: int) -> None:
    """OWL classes in RDF/XML."""
    folder.mkdir()
    with (folder / "base.owl").open("w", encoding="utf-8") as file:
        file.write(_XML)
        for local, name, synonyms, parent in terms(n_bytes):
            file.write(f'<owl:Class rdf:about="{SPACE}{local}">\n<rdfs:label>{name}</rdfs:label>\n')
            file.writelines(f"<oboInOwl:hasExactSynonym>{one}</oboInOwl:hasExactSynonym>\n" for one in synonyms)
            file.write(f'<rdfs:subClassOf rdf:resource="{SPACE}{parent}"/>\n</owl:Class>\n')
        file.write("</rdf:RDF>\n")


def make_skos(folder: Path, n_bytes: int) -> None:
    """SKOS concepts in N-Triples."""
    folder.mkdir()
    with (folder / "base.nt").open("w", encoding="utf-8") as file:
        for local, name, synonyms, parent in terms(n_bytes):
            file.write(f'<http://a/{local}> <{_SKOS}prefLabel> "{name}"@en .\n')
            file.writelines(f'<http://a/{local}> <{_SKOS}altLabel> "{one}"@en .\n' for one in synonyms)
            file.write(f"<http://a/{local}> <{_SKOS}broader> <http://a/{parent}> .\n")


def make_turtle(folder: Path, n_bytes: int) -> None:
    """SKOS concepts in Turtle."""
    folder.mkdir()
    with (folder / "base.ttl").open("w", encoding="utf-8") as file:
        file.write(f"@prefix skos: <{_SKOS}> .\n@prefix a: <http://a/> .\n")
        for local, name, synonyms, parent in terms(n_bytes):
            file.write(f'a:{local} skos:prefLabel "{name}"@en ;\n')
            file.writelines(f'  skos:altLabel "{one}"@en ;\n' for one in synonyms)
            file.write(f"  skos:broader a:{parent} .\n")


def make_mesh(folder: Path, n_bytes: int) -> None:
    """Descriptors of MeSH, of one concept each."""
    folder.mkdir()
    with (folder / "desc2026.xml").open("w", encoding="utf-8") as file:
        file.write('<?xml version="1.0"?>\n<DescriptorRecordSet LanguageCode="eng">\n')
        for i, (_, name, synonyms, _) in enumerate(terms(n_bytes // 3), start=1):
            written = "".join(
                f'<Term ConceptPreferredTermYN="{"N" if number else "Y"}" RecordPreferredTermYN='
                f'"{"N" if number else "Y"}"><TermUI>T{i:06}{number}</TermUI><String>{one}</String></Term>\n'
                for number, one in enumerate((name, *synonyms))
            )
            file.write(
                f'<DescriptorRecord DescriptorClass="1"><DescriptorUI>D{i:06}</DescriptorUI>\n<DescriptorName><String>'
                f"{name}</String></DescriptorName>\n<TreeNumberList><TreeNumber>C{i % 26:02}.{i}</TreeNumber>"
                f'</TreeNumberList>\n<ConceptList><Concept PreferredConceptYN="Y"><ConceptUI>M{i:07}</ConceptUI>\n'
                f"<ConceptName><String>{name}</String></ConceptName>\n<TermList>\n{written}</TermList></Concept>"
                "</ConceptList></DescriptorRecord>\n"
            )
        file.write("</DescriptorRecordSet>\n")
