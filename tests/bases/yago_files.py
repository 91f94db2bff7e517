"""Downloads in the form of YAGO; all facts in them are few and written for the tests."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

from ingest.base.format import ReadOptions
from ingest.formats import open_reader
from ingest.io.report import ReadReport
from pearl_qdrant.records import Entity

PREFIXES = """@prefix yago: <http://yago-knowledge.org/resource/> .
@prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix schema: <http://schema.org/> .
@prefix wd: <http://www.wikidata.org/entity/> .
"""
TAXONOMY = """schema:City rdfs:subClassOf schema:AdministrativeArea
schema:AdministrativeArea rdfs:subClassOf schema:Place
schema:Place rdfs:subClassOf schema:Thing
yago:Old_town_Q1 rdfs:subClassOf schema:City
yago:Old_town_Q1 rdfs:subClassOf yago:Sight_Q2
yago:Sight_Q2 rdfs:subClassOf yago:Old_town_Q1
schema:Person rdfs:subClassOf schema:Thing"""
FACTS = """yago:Paris rdf:type yago:Old_town_Q1
yago:Paris owl:sameAs wd:Q90
yago:Paris rdfs:label "Paris"@en
yago:Paris rdfs:label "París"@es
yago:Paris rdfs:comment "capital of France"@en
yago:Paris schema:alternateName "City of Light"@en
yago:Paris schema:alternateName "Paris"@en
yago:Paris schema:mayor yago:Someone
yago:Elvis_Presley rdf:type schema:Person
yago:Elvis_Presley rdfs:label "Elvis Presley"@en
yago:Paris_generic_instance rdf:type schema:City
yago:Caf_u00e9___u0028_bar_u0029_ rdf:type schema:Place"""
LABELS = """yago:Paris rdfs:label "Paris"@fr
yago:Paris schema:alternateName "Ville Lumière"@fr
yago:Elvis_Presley rdfs:label "Elvis"@de
yago:Nowhere rdfs:label "Nulle part"@fr"""
BEYOND = """yago:Tiny_Village_Q7 rdf:type schema:City
yago:Tiny_Village_Q7 rdfs:label "Tiny Village"
yago:Paris owl:sameAs wd:Q90"""

PARIS = Entity(
    "Paris",
    "Paris",
    ("City of Light",),
    ("Old_town_Q1", "City", "Sight_Q2", "AdministrativeArea", "Place"),
    ("GPE",),
    "capital of France",
    {"wikidata_id": "Q90"},
    languages={"Paris": "en", "City of Light": "en"},
)
ELVIS = Entity("Elvis_Presley", "Elvis Presley", (), ("Person",), ("PERSON",), languages={"Elvis Presley": "en"})
CAFE = Entity("Caf_u00e9___u0028_bar_u0029_", "Café (bar)", (), ("Place",), ("LOC",))
VILLAGE = Entity("Tiny_Village_Q7", "Tiny Village", (), ("City", "AdministrativeArea", "Place"), ("GPE",))


def turtle(rows: str) -> str:
    """Rows as YAGO 4.5 writes them: prefixes, tabs, a dot."""
    return PREFIXES + "".join("\t".join(row.split(" ", 2)) + "\t.\n" for row in rows.splitlines())


def n_triples(rows: str) -> str:
    """The same rows as YAGO 4 writes them: full IRIs, no prefixes."""
    spaces = dict(line.split()[1:3] for line in PREFIXES.splitlines())

    def full(term: str) -> str:
        prefix, _, local = term.partition(":")
        return term if term.startswith('"') else f"{spaces[prefix + ':'][:-1]}{local}>"

    return "".join("\t".join(map(full, row.split(" ", 2))) + "\t.\n" for row in rows.splitlines())


YAGO_45 = {
    "yago-facts.ttl": turtle(FACTS),
    "yago-taxonomy.ttl": turtle(TAXONOMY),
    "yago-labels.ttl": turtle(LABELS),
    "yago-beyond-wikipedia.ttl": turtle(BEYOND),
    "yago-schema.ttl": PREFIXES + "schema:City a sh:NodeShape ;\n\tsh:property [ ] .\n",
    "yago-meta.ttl": PREFIXES + '<< yago:Paris schema:mayor yago:Someone >>\tschema:startDate\t"2014"\t.\n',
    "notes.txt": "nothing to see",
}


def select(rows: str, *predicates: str) -> str:
    """Some of the rows."""
    return "\n".join(row for row in rows.splitlines() if row.split()[1] in predicates)


YAGO_4 = {
    "yago-wd-labels.nt.gz": n_triples(select(FACTS, "rdfs:label", "rdfs:comment", "schema:alternateName")),
    # Not in the order of the labels.
    "yago-wd-full-types.nt.gz": n_triples("\n".join(reversed(select(FACTS, "rdf:type").splitlines()))),
    "yago-wd-simple-types.nt.gz": n_triples(
        "yago:Paris rdf:type schema:City\nyago:Elvis_Presley rdf:type schema:Person"
    ),
    "yago-wd-class.nt.gz": n_triples(TAXONOMY),
    "yago-wd-sameAs.nt.gz": n_triples("yago:Elvis_Presley owl:sameAs wd:Q303\nyago:Paris owl:sameAs wd:Q90"),
    "yago-wd-facts.nt.gz": n_triples("yago:Paris schema:mayor yago:Someone"),
}


def write(folder: Path, files: dict[str, str], *, without: tuple[str, ...] = ()) -> Path:
    """A folder with these files, compressed according to their names."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        if name not in without:
            data = text.encode()
            (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return folder


def read(*paths: Path, report: ReadReport | None = None, kind: str = "rdf", **options: Any) -> list[Entity]:
    """The entities of a download; options as of `ReadOptions`."""
    with open_reader(paths, kind, ReadOptions(**options)) as reader:
        return list(reader.read(ReadReport() if report is None else report))
