"""The Wikidata reader: names, classes and filters. The items are made up, in the form of the dumps."""

from __future__ import annotations

import io
from typing import Any

import pytest
from wikidata_items import ADA, HUMAN, dump, item, read, statement

from ingest.base.type_map import TypeMap
from ingest.formats import ReadOptions
from ingest.io.report import ReadReport
from ingest.readers.wikidata import MAX_LINKS, WikidataReader
from ingest.readers.wikidata_classes import MAX_KB_TYPES
from pearl_qdrant.records import Entity


def test_an_item_is_an_entity() -> None:
    """Label, aliases of the language and of mul, description, classes with ancestors, sitelinks, a coarse type."""
    assert read(dump(item(HUMAN, {"en": "human"}, above=[215627]), ADA))[1] == Entity(
        "Q7",
        "Ada Example",
        ("A. Example", "Ada"),
        ("Q5", "Q215627"),
        ("PERSON",),
        "made-up writer",
        {"sitelinks": "2"},
        2.0,
    )


def test_a_class_is_an_entity_with_the_classes_above_it() -> None:
    """What a class is a subclass of is among its types, after what it is an instance of."""
    (entity,) = read(dump(item(8, {"en": "sore toe"}, classes=[900], above=[12136])))

    assert (entity.kb_types, entity.types) == (("Q900", "Q12136"), ("OTHER",))


def test_languages_fall_back_in_order() -> None:
    """The requested languages in order, then mul, then English; another language of the name is noted."""
    rows = dump(
        ADA,
        item(1, {"de": "Eins", "mul": "Un", "en": "One"}),
        item(2, {"mul": "Un", "en": "One"}, aliases={"en": ["1"], "mul": ["I"]}),
        item(3, {"en": "One"}, aliases={"en": ["1"], "de": ["eins"], "ru": ["x"]}),
        item(4, {"ru": "Один"}),
        item(5, {"en": " \t "}),
    )
    report = ReadReport()
    entities = read(rows, ReadOptions(languages=("fi", "DE")), report)

    assert [(list(e.names()), e.extra.get("language")) for e in entities] == [
        (["Ada Esimerkki", "Ada"], None),
        (["Eins", "Un"], "de"),
        (["Un", "I"], "mul"),
        (["One", "1", "eins"], "en"),
    ]
    assert report.filtered == {"no_label": 2}
    assert entities[0].description == "made-up writer"


def test_ranks_decide_which_statements_count() -> None:
    """Deprecated ones never; normal ones only without a preferred one; an unknown value gives no class."""
    rows = dump(
        item(1, classes=[statement(11, "deprecated"), statement(12), statement(12), statement(13)]),
        item(2, classes=[statement(11), statement(12, "preferred"), statement(13, "deprecated")]),
        item(3, classes=[statement(None, "normal", "somevalue"), statement(None, "normal", "novalue"), 14]),
        item(4, classes=[statement(None, "preferred", "somevalue"), 15]),
        item(5, classes=[statement(16, "deprecated")]),
    )

    assert [e.kb_types for e in read(rows)] == [("Q12", "Q13"), ("Q12",), ("Q14",), (), ()]


def test_empty_maps_may_be_lists() -> None:
    """A dump may write an empty map as []."""
    row = item(1, aliases={}, claims=[], sitelinks=[], descriptions=[]) | {"aliases": []}

    assert read(dump(row)) == [Entity("Q1", "name 1", extra={"sitelinks": "0"}, popularity=0.0)]
    assert read(dump(row, item(2) | {"labels": []}), report=(report := ReadReport()))
    assert report.filtered == {"no_label": 1}


def test_ancestors_come_nearest_first_and_cycles_end() -> None:
    """Ancestors by P279 come from the dump itself, for any order of its items."""
    rows = dump(
        item(1, classes=[11, 12]),
        item(12, above=[15, 13]),
        item(11, above=[13]),
        item(13, above=[14]),
        item(14, above=[11, 14]),
    )

    assert read(rows)[0].kb_types == ("Q11", "Q12", "Q13", "Q15", "Q14")


def test_the_nearest_classes_decide_the_coarse_type() -> None:
    """A class further up does not add its own type; two classes of an item each give theirs."""
    type_map = TypeMap({"Q20": "ORG", "Q30": "FAC", "Q40": "LOC"}, version="x")
    rows = dump(item(1, classes=[10, 40]), item(10, above=[20]), item(20, above=[30]), item(30, above=[40]))
    with WikidataReader(["-"], ReadOptions(), type_map, stdin=io.BytesIO(rows)) as reader:
        entities = {e.entity_id: e.types for e in reader.read(ReadReport())}

    assert entities["Q1"] == ("ORG", "LOC")


def test_a_long_chain_of_classes_is_cut() -> None:
    """Only the nearest native types are kept, but the coarse type is found beyond them."""
    chain = [item(900_000 + i, above=[900_001 + i]) for i in range(100)]
    rows = dump(item(1, classes=[900_000]), *chain, item(900_100, above=[HUMAN]))
    entity = read(rows)[0]

    assert entity.kb_types == tuple(f"Q{900_000 + i}" for i in range(MAX_KB_TYPES))
    assert entity.types == ("PERSON",)


def test_pages_of_the_projects_are_left_out() -> None:
    """Disambiguation pages, categories and what is below them are counted."""
    rows = dump(item(1, classes=[4167410]), item(2, classes=[99]), item(99, above=[4167836]), item(3))
    report = ReadReport(max_errors=0)

    assert [e.entity_id for e in read(rows, report=report)] == ["Q99", "Q3"]
    assert report.filtered == {"wikimedia_internal": 2}


def test_only_wanted_classes_are_read() -> None:
    """Instances and subclasses of the requested classes are read, at any depth."""
    rows = dump(item(1, classes=[10]), item(10, above=[20]), item(2, classes=[30]), item(3))
    report = ReadReport()

    assert [e.entity_id for e in read(rows, ReadOptions(classes=("Q20",)), report)] == ["Q1", "Q10"]
    assert report.filtered == {"other_class": 2}


def test_a_sitelink_can_be_required() -> None:
    """With this option, items without a page are excluded and counted."""
    report = ReadReport()

    assert [e.entity_id for e in read(dump(item(1), ADA), ReadOptions(require_sitelink=True), report)] == ["Q7"]
    assert report.filtered == {"no_sitelink": 1}


def test_links_are_the_items_of_all_statements() -> None:
    """On request: of the best rank of each property, each once; texts, times, properties and broken values are none."""
    text = {"mainsnak": {"snaktype": "value", "datavalue": {"value": "Q99", "type": "string"}}, "rank": "normal"}
    prop = statement(3)
    prop["mainsnak"]["datavalue"]["value"] = {"entity-type": "property", "id": "P31"}
    broken = statement(3)
    broken["mainsnak"]["datavalue"]["value"] = ["Q98"]
    row = item(1, classes=[5], above=[statement(8, "deprecated"), 9])
    row["claims"] |= {"P50": [statement(5), statement(70), text, prop, broken, statement(None, snaktype="novalue")]}
    row["claims"] |= {"P60": [statement(71), statement(72, "preferred")]}

    (entity,) = read(dump(row), ReadOptions(links=True))
    assert entity.extra["links_to"] == "Q5|Q9|Q6581097|Q70|Q72"
    assert "links_to" not in read(dump(row))[0].extra
    (many,) = read(dump(item(1, classes=list(range(1, 200)))), ReadOptions(links=True))
    assert many.extra["links_to"].count("|") == MAX_LINKS - 1


def test_properties_and_lexemes_are_left_out() -> None:
    """Only items are entities; the others are counted."""
    property_ = item(1) | {"type": "property", "id": "P1", "datatype": "string"}
    lexeme = {"type": "lexeme", "id": "L1", "lemmas": {"en": {"language": "en", "value": "first"}}, "senses": []}
    report = ReadReport(max_errors=0)

    assert len(read(dump(property_, item(1), lexeme), report=report)) == 1
    assert (report.rows, report.filtered) == (3, {"not_an_item": 2})


def test_an_item_that_comes_twice_is_one_entity() -> None:
    """Two dumps that overlap do not double anything."""
    rows = dump(item(1, {"en": "a"}), item(2), item(1, {"en": "b"}))

    assert [(e.entity_id, e.aliases) for e in read(rows)] == [("Q2", ()), ("Q1", ("b",))]


def test_a_limit_stops_early() -> None:
    """At most this many items are read."""
    with WikidataReader(["-"], ReadOptions(limit=2), stdin=io.BytesIO(dump(item(1), item(2), item(3)))) as reader:
        assert len(list(reader.read(ReadReport()))) == 2


@pytest.mark.parametrize("options", [{"languages": ("e n",)}, {"classes": ("human",)}, {"classes": ("Q0",)}])
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    """A language or class that can be none is a ValueError."""
    with pytest.raises(ValueError, match="Give"):
        WikidataReader(["x"], ReadOptions(**options))
