"""RDF in every syntax and vocabulary: names, languages, types, and what is no entity. The bases are made up."""

from __future__ import annotations

import bz2
import gzip
import sys
from pathlib import Path
from typing import Any

import pytest
import zstandard
from rdf_bases import PEOPLE, PREFIXES, SYNTAXES, T, read, rows

from ingest.base.format import ReadOptions
from ingest.base.reader import scan
from ingest.formats import open_reader
from ingest.io.report import ReadReport
from pearl_qdrant.errors import FormatError, InputError, OptionError
from pearl_qdrant.records import Entity

SKOS = (
    PREFIXES
    + """
t:scheme a skos:ConceptScheme ; skos:prefLabel "Toys"@en ; skos:hasTopConcept t:c0 .
t:c1 a skos:Concept ;
    skos:prefLabel "wooden toy"@en, "puulelu"@fi ;
    skos:altLabel "toy of wood"@en, "timber toy"@en-GB, "Holzspielzeug"@de ;
    skos:hiddenLabel "woodn toy"@en ;
    skos:definition "A toy made of wood."@en ;
    skos:notation "T1" ;
    skos:exactMatch <http://www.wikidata.org/entity/Q7> ;
    skos:topConceptOf t:second ;
    skos:broader t:c0 .
t:c0 a skos:Concept ; skos:prefLabel "toy"@en ; skos:narrower t:c2 .
t:c2 a skos:Concept ; skos:prefLabel "kite"@en-GB .
t:c3 a skos:Concept ; skos:prefLabel "nukke"@fi, "Puppe"@de ; skos:altLabel "nukki"@fi .
t:c4 a skos:Concept ; owl:deprecated true ; skos:prefLabel "old toy"@en ; dct:isReplacedBy t:c0 .
t:group a skos:Collection ; skos:prefLabel "Groups"@en .
[] a skos:Concept ; rdfs:label "nobody"@en .
"""
)
WOOD = Entity(
    T + "c1",
    "wooden toy",
    ("toy of wood", "woodn toy", "timber toy"),
    (T + "c0", T + "second", T + "scheme"),
    (),
    "A toy made of wood.",
    {"wikidata_id": "Q7", "notation": "T1"},
    languages={"wooden toy": "en", "toy of wood": "en", "woodn toy": "en", "timber toy": "en-gb"},
)


def test_a_thesaurus_is_read() -> None:
    """Labels, types from above and below, notations; schemes, collections, blank nodes and old concepts are none."""
    report = ReadReport(max_errors=0)
    wood, toy, kite, doll = read(SKOS, report=report)

    assert wood == WOOD
    assert toy == Entity(T + "c0", "toy", (), (T + "scheme",), (), None, {"alt_ids": T + "c4"}, languages={"toy": "en"})
    assert (kite.canonical_name, kite.kb_types) == ("kite", (T + "c0", T + "scheme"))
    assert doll == Entity(T + "c3", "nukke", ("nukki",), languages={"nukke": "fi", "nukki": "fi"})
    assert report.filtered == {"not_a_term": 2, "obsolete": 1, "other_language": 3, "blank_node": 1}
    assert report.notes[0].endswith("base: Turtle, thesaurus (SKOS)")
    assert report.notes[1] == "1 entities have no name in these languages; they keep one in another language"


@pytest.mark.parametrize(
    "languages, names, language",
    [
        ((), ["wooden toy", "toy of wood", "woodn toy", "timber toy"], "en"),
        (("fi",), ["puulelu"], "fi"),
        (("fi", "en"), ["puulelu", "wooden toy", "toy of wood", "woodn toy", "timber toy"], "fi"),
        (("sv", "EN"), ["wooden toy", "toy of wood", "woodn toy", "timber toy"], "en"),
        (("en-GB",), ["timber toy"], "en-gb"),
        (("fi", "all"), ["puulelu", "wooden toy", "toy of wood", "timber toy", "Holzspielzeug", "woodn toy"], "fi"),
        (("*",), ["wooden toy", "toy of wood", "woodn toy", "timber toy", "puulelu", "Holzspielzeug"], "en"),
    ],
)
def test_languages_decide_the_names(languages: tuple[str, ...], names: list[str], language: str) -> None:
    """The first language gives the canonical name, others are aliases, and those not asked for are left out."""
    wood = read(SKOS, languages=languages)[0]

    assert sorted(wood.names()) == sorted(names)
    assert wood.canonical_name == names[0]
    assert wood.languages[wood.canonical_name] == language
    assert set(wood.languages) == set(wood.names())


def test_a_name_of_several_languages_has_the_first_requested_one() -> None:
    """Else the first that the base states; without a tag it has none, and comes after the requested ones."""
    text = PREFIXES + 't:a rdfs:label "Anna"@fr, "Anna"@fi, "Anna", "Ännchen"@DE, "Anja" .'
    plain = PREFIXES + 't:a foaf:name "plain", "Anna"@en, "Anne"@fr . t:b foaf:name "plain", "Anne"@fr .'

    assert read(text, languages=("fi", "fr", "de"))[0].languages == {"Anna": "fi", "Ännchen": "de"}
    assert read(text, languages=("de", "all"))[0].languages == {"Anna": "fr", "Ännchen": "de"}
    assert [list(entity.names()) for entity in read(plain)] == [["Anna", "plain"], ["plain"]]


def test_codes_of_languages_are_checked() -> None:
    """What is no code is refused by name."""
    with pytest.raises(OptionError, match="english please"):
        read(SKOS, languages=("english please",))


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_each_syntax_gives_the_same_entities(tmp_path: Path, syntax: str) -> None:
    """Told by its content, whatever the name and the compression of the file."""
    content = SYNTAXES[syntax].encode()

    assert read(content, "people.txt") == PEOPLE
    assert read(b"\xef\xbb\xbf" + content) == PEOPLE
    for compress in (gzip.compress, bz2.compress, zstandard.ZstdCompressor().compress):
        assert read(compress(content), "people.owl") == PEOPLE


def test_xml_in_another_encoding_is_read() -> None:
    """The encoding that XML declares is used."""
    text = SYNTAXES["RDF/XML"].replace("&#228;", "ä").replace("UTF-8", "ISO-8859-1")

    assert read(text.encode("latin-1")) == PEOPLE
    with pytest.raises(FormatError, match="encoding MADE-UP, which is not known here"):
        read(text.replace("ISO-8859-1", "MADE-UP").encode("latin-1"))


def test_relative_ids_stay_relative() -> None:
    """Without a base, ids are as written and do not depend on the name of the file."""
    assert read('<#c1> rdfs:label "toy" . <c2> rdfs:label "kite" .', kind="rdf")[0].entity_id == "#c1"


def test_well_known_prefixes_need_no_declaration() -> None:
    """In RDF/XML and Turtle a file that forgot them is read; its own declarations win."""
    xml = '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"><skos:Concept rdf:about="u:a">'
    xml += "<skos:prefLabel>toy</skos:prefLabel></skos:Concept></rdf:RDF>"
    other = '@prefix foaf: <http://toy.example/> . <u:a> foaf:name "x" ; rdfs:label "toy" .'

    assert read(xml) == [Entity("u:a", "toy")]
    assert read(other) == [Entity("u:a", "toy")]


def test_general_vocabularies_are_known() -> None:
    """schema.org, FOAF, Dublin Core, DBpedia and rdfs:label give names; types come with those above them."""
    text = (
        PREFIXES
        + """
    t:1 a schema:Person ; schema:name "Anna"@en ; schema:alternateName "Annie"@en ; rdfs:label "Anna T."@en .
    t:2 a t:Maker ; dct:title "Toy Book" ; dct:description "About toys." .
    t:Maker rdfs:subClassOf t:Company . t:Company rdfs:subClassOf schema:Organization , owl:Thing .
    t:3 a owl:Thing , dbo:City ; rdfs:label "Toyville"@en , "Toystadt"@de ; schema:sameAs wd:Q3 .
    t:4 a owl:ObjectProperty ; rdfs:label "made by"@en .
    t:5 a t:Maker .
    """
    )
    report = ReadReport(max_errors=0)
    anna, book, town = read(text, report=report)

    english = dict.fromkeys(("Anna", "Anna T.", "Annie"), "en")
    assert anna == Entity(T + "1", "Anna", ("Anna T.", "Annie"), ("Person",), ("PERSON",), languages=english)
    assert book == Entity(
        T + "2", "Toy Book", (), (T + "Maker", T + "Company", "Organization"), ("ORG",), "About toys."
    )
    assert (town.canonical_name, town.extra) == ("Toyville", {"wikidata_id": "Q3"})
    assert (town.kb_types, town.types) == (("City",), ("GPE",))
    assert report.filtered == {"not_a_term": 1, "no_name": 1, "other_language": 1}


def test_properties_can_be_named() -> None:
    """Other properties are names and types, by IRI or with a well-known prefix, before the known ones."""
    text = (
        PREFIXES + 't:1 t:called "Anna" ; rdfs:label "toy maker" ; t:alias "Annie" ; t:kind "person" ; dbo:alias "A" .'
    )
    options = {"label_properties": (T + "called",), "alias_properties": (f"<{T}alias>", "dbo:alias")}

    assert read(text, **options, type_properties=(T + "kind",)) == [
        Entity(T + "1", "Anna", ("toy maker", "Annie", "A"), ("person",), ("PERSON",))
    ]
    with pytest.raises(FormatError, match=r"It has: http://toy\.example/called"):
        read(PREFIXES + 't:1 t:called "Anna" .')
    assert read(PREFIXES + 't:1 t:called "Anna" .', label_properties=(T + "called",)) == [Entity(T + "1", "Anna")]
    with pytest.raises(OptionError, match="not a property: called"):
        read(text, label_properties=("called",))
    with pytest.raises(OptionError, match="not a property: toy:called"):
        read(text, label_properties=("toy:called",))


def test_a_file_of_properties_alone_has_terms() -> None:
    """Properties and individuals are left out only where there are classes."""
    text = PREFIXES + 't:p a owl:ObjectProperty ; rdfs:label "part of" .'

    assert read(text) == [Entity(T + "p", "part of")]
    assert [entity.entity_id for entity in read(text + ' t:c a owl:Class ; rdfs:label "class" .')] == [T + "c"]


def test_instances_with_their_own_classes_are_the_entities() -> None:
    """A few classes beside many instances make no ontology."""
    text = (
        PREFIXES
        + 't:C a owl:Class ; rdfs:label "toy" . '
        + " ".join(f't:{i} a t:C ; rdfs:label "n{i}" .' for i in range(9))
    )

    assert [entity.canonical_name for entity in read(text)] == [f"n{i}" for i in range(9)]


def test_labels_that_are_nodes_are_followed() -> None:
    """SKOS-XL keeps the text of a label in a node of its own."""
    text = (
        PREFIXES
        + """
    t:c a skos:Concept ; xl:prefLabel t:l1 ; xl:altLabel t:l2, t:l3 .
    t:l1 a xl:Label ; xl:literalForm "toy"@en . t:l2 a xl:Label ; xl:literalForm "plaything"@en .
    t:l3 a xl:Label ; xl:literalForm "lelu"@fi .
    """
    )

    assert read(text) == [Entity(T + "c", "toy", ("plaything",), languages={"toy": "en", "plaything": "en"})]


def test_classes_can_be_chosen() -> None:
    """Only what is below a requested class is read."""
    assert [entity.entity_id for entity in read(SKOS, classes=(T + "c0",))] == [T + "c1", T + "c0", T + "c2"]


def test_statements_about_a_subject_are_joined_wherever_they_are(tmp_path: Path) -> None:
    """Over a file, several files and a folder; entities come in the order of their first statements."""
    lines = SYNTAXES["N-Triples with tabs"].splitlines(keepends=True)
    third = f'<{T}c> <http://xmlns.com/foaf/0.1/name> "Third" .\n'
    scattered = "".join([lines[3], lines[0], third, lines[2], lines[3], lines[1]])
    entities = [Entity(T + "c", "Third"), PEOPLE[1], PEOPLE[0]]
    folder = tmp_path / "people"
    folder.mkdir()
    (folder / "a.nt").write_text(lines[3] + lines[0])
    (folder / "b.ttl.gz").write_bytes(
        gzip.compress((PREFIXES + 't:a a foaf:Person . t:c foaf:name "Third" .').encode())
    )
    (folder / "c.nq").write_text(lines[1])
    (folder / "notes.md").write_text("# how to read this\n")

    assert read(scattered) == entities
    with open_reader([folder]) as reader:
        result = scan(reader)
        report = ReadReport()
        assert list(reader.read(report, scattered=result.scattered)) == [PEOPLE[1], entities[0], PEOPLE[0]]
        assert report == result.report
        assert result.entities == 3


@pytest.mark.parametrize(
    "line, reason",
    [
        ('<u:a> <u:b> "open .', "bad_triple"),
        ("<u:a> <u:b> .", "bad_triple"),
        ("junk", "bad_triple"),
        ('<u:a> <http://xmlns.com/foaf/0.1/name> "x\\u0000y" .', "nul_character"),
        ('<u:a> <http://xmlns.com/foaf/0.1/name> "\\uD800" .', "bad_triple"),
        ('<u:a> <u:b> "\0" .', "nul_character"),
    ],
    ids=lambda value: str(value)[:14],
)
@pytest.mark.parametrize("place", [0, 2, 5])
def test_a_bad_line_of_triples_costs_itself_alone(line: str, reason: str, place: int) -> None:
    """It is counted with its line, and all others are read, wherever it is."""
    lines = ["# people", "", *rows().splitlines()]
    report = ReadReport()
    lines.insert(place, line)

    assert read("\n".join(lines) + "\n", report=report, kind="rdf") == PEOPLE
    assert report.skipped == {reason: 1}
    assert report.examples[0].line == place + 1


@pytest.mark.parametrize(
    "more, skipped, filtered",
    [
        # beyond the limit: not held in memory
        ('<u:a> <u:b> "' + "x" * (1 << 21) + '" .\n', {"line_too_long": 1}, {}),
        # a quote that is open ends with its line, even where the next line closes it
        (
            '<u:c> <http://xmlns.com/foaf/0.1/name> "open .\n<u:d> <http://xmlns.com/foaf/0.1/name> " .\n',
            {"bad_triple": 2},
            {},
        ),
        # N-Triples-star
        ('<< <u:a> <u:b> <u:c> >> <u:d> "2014" .\n', {}, {"row_about_a_row": 1}),
    ],
    ids=["long", "open quote", "about a row"],
)
def test_odd_rows_swallow_no_others(more: str, skipped: dict[str, int], filtered: dict[str, int]) -> None:
    """Each is counted by itself."""
    report = ReadReport()

    assert read(rows() + more, report=report) == PEOPLE
    assert (report.skipped, report.filtered) == (skipped, filtered)


FOREIGN = {
    "OWL/XML": (
        '<?xml version="1.0"?><Ontology xmlns="http://www.w3.org/2002/07/owl#"/>',
        "OWL in XML .OWL/XML. syntax, not RDF. Convert it",
    ),
    "functional": ("Prefix(:=<http://a/>)\nOntology(<http://a/>\n)", "OWL in functional syntax"),
    "Manchester": ("Prefix: : <http://a/>\nOntology: <http://a/>\n", "OWL in Manchester syntax"),
    "remote context": ('{"@context": "https://schema.org", "@id": "u:a", "name": "x"}', "a context on the web"),
    "no names": (PREFIXES + "t:a t:b t:c .", "is Turtle in which nothing has a name by a known property. It has: "),
    "undeclared": (PREFIXES + 't:a u:b "c" .', r":12: column 5: this Turtle cannot be read: The prefix u:"),
    "cut Turtle": (PREFIXES + 't:a rdfs:label "c', ":12: .*this Turtle cannot be read"),
    "cut XML": (SYNTAXES["RDF/XML"][:-30], "cannot be read|is not closed"),
    "no end": (SYNTAXES["RDF/XML"].split("</rdf:RDF>")[0], "its root is not closed"),
    "wrong end": (SYNTAXES["RDF/XML"].replace("</f:nick>", "</f:nack>"), r":\d: this RDF/XML cannot be read: "),
    "cut JSON": (SYNTAXES["JSON-LD"][:-9], "this JSON-LD cannot be read"),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_an_error_names_what_the_file_is(case: str) -> None:
    """The kind of the file, the place, and what to do."""
    content, message = FOREIGN[case]

    with pytest.raises(FormatError, match=message):
        read(content)


def test_wikidata_is_read_as_from_json(tmp_path: Path) -> None:
    """Only sound options are taken for the truthy dump."""
    text = '<http://www.wikidata.org/entity/Q5> <http://www.w3.org/2000/01/rdf-schema#label> "human"@en .\n'
    options: list[tuple[dict[str, Any], str]] = [
        ({"links": True}, "read the JSON dump"),
        ({"classes": ("person",)}, "not the id of a class: person"),
    ]

    assert read(text) == [Entity("Q5", "human", languages={"human": "en"})]
    for option, message in options:
        with pytest.raises((InputError, OptionError), match=message):
            read(text, **option)
    with pytest.raises(OptionError, match="'require_sitelink' is for wikidata"):
        read(text, kind="rdf", require_sitelink=True)
    assert ReadOptions().label_properties == ()


def test_without_its_library_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A base in RDF is recognised without the extra, and the error says what to install."""
    path = tmp_path / "base.ttl"
    path.write_text("@prefix a: <http://a/> .\na:b a:c a:d .\n", encoding="utf-8")
    for name in ("ingest.readers.rdf", "ingest.readers.rdf_entities"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "pyoxigraph", None)

    with pytest.raises(FormatError, match=r"needs pyoxigraph, which is not installed.*\[rdf\]"):
        open_reader([path])
