"""Files of Wikidata: JSON in every form, truthy triples, and damage. The items are made up.
The Wikidata reader: names, classes and filters. The items are made up, in the form of the dumps.
"""

from __future__ import annotations

import bz2
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import zstandard
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from standard_input import given_input
from wikidata_items import ADA, HUMAN, TRUTHY, dump, item, read, read_truthy, statement

from ingest.base.format import ReadOptions
from ingest.base.reader import scan
from ingest.base.type_map import TypeMap
from ingest.formats import detect_format
from ingest.io.report import ReadReport
from ingest.readers.wikidata import MAX_KB_TYPES, MAX_LINKS, WikidataReader
from pearl_qdrant.records import Entity


def test_all_line_forms_are_read() -> None:
    """An array, JSON Lines, CRLF, brackets that share a line, a comma at the end, a byte order mark, blank lines."""
    one, two = (json.dumps(item(i), separators=(", ", " : ")).encode() for i in (1, 2))
    forms = [
        b"[\n%s,\n%s\n]\n",
        b"[\r\n%s,\r\n%s\r\n]",
        b"%s\n%s",
        b"[%s,\n%s]",
        b"\xef\xbb\xbf[\n\n%s,\n,\n%s,\n",
        b"%s,\n%s,\n]\n",
        b"[\n%s,\n%s]",
    ]
    for form in forms:
        report = ReadReport(max_errors=1)
        assert [e.entity_id for e in read(form % (one, two), report=report)] == ["Q1", "Q2"], form


def test_shards_of_any_compression_are_one_dump(tmp_path: Path) -> None:
    """Classes go from shard to shard; the streams of one file are read to the last."""
    data = dump(item(1, classes=[2]), item(2, above=[3]), item(3, above=[HUMAN]), item(4, classes=[3]))
    lines = data.splitlines(keepends=True)
    shards = {
        "a.json": lines[0] + lines[1],
        "b.json.gz": gzip.compress(lines[2][:20]) + gzip.compress(lines[2][20:]),
        "c.bz2": bz2.compress(lines[3]) + bz2.compress(b""),
        "d": zstandard.compress(b"".join(lines[4:])),
    }
    for name, content in shards.items():
        (tmp_path / name).write_bytes(content)
    with WikidataReader([tmp_path / name for name in shards], ReadOptions()) as reader:
        report = ReadReport()
        entities = list(reader.read(report))
        scanned = scan(reader)

    assert [e.kb_types for e in entities] == [("Q2", "Q3", "Q5"), ("Q3", "Q5"), ("Q5",), ("Q3", "Q5")]
    assert [e.types for e in entities] == [("PERSON",)] * 4
    assert (scanned.entities, scanned.names, report.rows) == (4, 4, 4)


DEEP = b"[" * 50_000 + b"]" * 50_000


@pytest.mark.parametrize(
    "row, reason",
    [
        (b'{"type":"item","id":"Q9","labels":{"en":{"val', "invalid_json"),
        (b"\x01\x02", "invalid_json"),
        (b"{\0}", "nul_character"),
        (b"null", "not_an_object"),
        (b"{}", "no_id"),
        (json.dumps(item(9) | {"id": "Q09"}).encode(), "no_id"),
        (json.dumps(item(9) | {"id": "Q99999999999999999999"}).encode(), "no_id"),
        (json.dumps(item(9) | {"labels": [1]}).encode(), "not_an_entity"),
        (json.dumps(item(9) | {"labels": {"en": {"value": None}}}).encode(), "not_an_entity"),
        (json.dumps(item(9) | {"claims": {"P31": [{"mainsnak": "x"}]}}).encode(), "not_an_entity"),
        (json.dumps(item(9, {"en": "a\udc00b"})).encode(), "invalid_json"),
        (json.dumps(item(9, {"en": "a\0b"})).encode(), "nul_character"),
        (json.dumps(item(9, {"en": "xx"})).encode().replace(b"xx", b"\xff\xfe"), "invalid_utf8"),
        (json.dumps(item(9)).encode().replace(b'"lastrevid": 1', b'"x": ' + DEEP), "nested_too_deep"),
        (b'{"P279":' + b"x" * (13 << 20) + b"}", "line_too_long"),
    ],
    ids=lambda value: str(value[:24]),
)
def test_a_bad_line_costs_itself_alone(row: bytes, reason: str) -> None:
    """It is counted with its line, and the lines around it are read."""
    report = ReadReport()
    other = json.dumps(item(2, {"en": "é"}), ensure_ascii=False).encode()  # so that the text is UTF-8
    with given_input(dump(item(1), row, other), WikidataReader, ["-"], ReadOptions()) as reader:
        entities = list(reader.read_runs(report))

    assert [e.entity_id for e in entities] == ["Q1", "Q2"]
    assert report.skipped == {reason: 1}
    assert (report.examples[0].path, report.examples[0].line, report.rows) == ("-", 3, 3)


@pytest.mark.parametrize("encode", [bytes, gzip.compress, bz2.compress])
def test_truthy_triples_give_the_same_entities(encode: Any) -> None:
    """The rows of an item become one entity, with ancestors and filters as from JSON."""
    report = ReadReport(max_errors=0)

    assert read_truthy(encode(TRUTHY.encode()), report) == [
        Entity(
            "Q7",
            'Ada "Example" Ä',
            ("A. Example", "Ada"),
            ("Q5", "Q215627"),
            ("PERSON",),
            "made-up writer",
            languages={'Ada "Example" Ä': "en", "A. Example": "en", "Ada": "mul"},
        ),
        Entity("Q5", "human", (), ("Q215627",), ("PERSON",), languages={"human": "en"}),
    ]
    assert [report.filtered[key] for key in ("not_an_item", "no_label", "wikimedia_internal")] == [1, 1, 1]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from(["Q1", "Q5", "item"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                "type id labels aliases descriptions claims sitelinks en mul value P31 P279 mainsnak".split()
            )
            | st.sampled_from(["datavalue", "snaktype", "rank"]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=examples(100), deadline=None)
@given(st.sampled_from(sorted(ADA)), JSON, JSON)
def test_any_json_is_an_item_or_a_counted_row(key: str, value: Any, line: Any) -> None:
    """Any JSON in a line, or in a field of an item, is an item or a counted row."""
    rows = [json.dumps(ADA | {key: value}).encode(), json.dumps(line).encode().replace(b"\n", b" "), b"\n"]
    report = ReadReport(max_errors=None)
    entities = read(dump(*rows, item(1)), report=report)

    assert entities[-1].entity_id == "Q1" or report.merged_rows
    assert all(entity.canonical_name.strip() and entity.entity_id for entity in entities)
    kept = report.rows - report.n_skipped - sum(report.filtered.values()) - report.merged_rows
    assert len(entities) == kept


OLD = {"mainsnak": {"snaktype": "value", "datavalue": {"value": {"entity-type": "item", "numeric-id": 5}}}}
FULL = item(7, {"en": "Anna", "fi": "Lelu-Anna"}, classes=[5])
FORMS = {
    "one printed item": json.dumps(FULL, indent=2),
    "an array over lines": json.dumps([FULL, item(8)], indent=1),
    "an array in one line": json.dumps([FULL, item(8)]),
    "an answer of the API": json.dumps({"entities": {"Q7": FULL}, "success": 1}),
    "a printed answer of the API": json.dumps({"entities": {"Q7": FULL}}, indent=2),
    "a dump of 2015": "[\n" + json.dumps(FULL | {"claims": {"P31": [OLD]}}) + "\n]\n",
    "simplified items": json.dumps(
        {"type": "item", "id": "Q7", "labels": {"en": "Anna"}, "aliases": {"en": ["Annie"]}, "claims": {"P31": ["Q5"]}}
    ),
    "simplified items with values": json.dumps(
        {"type": "item", "id": "Q7", "labels": {"en": "Anna"}, "claims": {"P31": [{"value": "Q5", "rank": "normal"}]}}
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_an_item_is_read(tmp_path: Path, form: str) -> None:
    """Dumps of any year, what the API answers, and what tools make of it give the same name and types."""
    path = tmp_path / "base"
    path.write_text(FORMS[form], encoding="utf-8")

    with WikidataReader([path], ReadOptions()) as reader:
        entity = next(reader.read(ReadReport()))

    assert detect_format([path]) == "wikidata"
    assert (entity.entity_id, entity.canonical_name, entity.kb_types) == ("Q7", "Anna", ("Q5",))
    assert entity.types == ("PERSON",)


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
        {"Ada Example": "en", "A. Example": "en", "Ada": "mul"},
    )


def test_languages_fall_back_in_order() -> None:
    """The requested languages in order, then mul, then English; each name has its own."""
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

    assert [list(e.languages.items()) for e in entities] == [
        [("Ada Esimerkki", "fi"), ("Ada", "mul")],
        [("Eins", "de"), ("Un", "mul")],
        [("Un", "mul"), ("I", "mul")],
        [("One", "en"), ("1", "en"), ("eins", "de")],
    ]
    assert [list(e.names()) for e in entities] == [list(e.languages) for e in entities]
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

    assert read(dump(row)) == [Entity("Q1", "name 1", (), (), (), None, {"sitelinks": "0"}, 0.0, {"name 1": "en"})]
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
    with given_input(rows, WikidataReader, ["-"], ReadOptions(), type_map) as reader:
        entities = {e.entity_id: e.types for e in reader.read(ReadReport())}

    assert entities["Q1"] == ("ORG", "LOC")


def test_a_long_chain_of_classes_is_cut() -> None:
    """Only the nearest native types are kept, but the coarse type is found beyond them."""
    chain = [item(900_000 + i, above=[900_001 + i]) for i in range(100)]
    rows = dump(item(1, classes=[900_000]), *chain, item(900_100, above=[HUMAN]))
    entity = read(rows)[0]

    assert entity.kb_types == tuple(f"Q{900_000 + i}" for i in range(MAX_KB_TYPES))
    assert entity.types == ("PERSON",)


LEXEME = {"type": "lexeme", "id": "L1", "lemmas": {"en": {"language": "en", "value": "first"}}, "senses": []}
LEFT_OUT: dict[str, tuple[list[dict[str, Any]], dict[str, Any], list[str]]] = {
    "wikimedia_internal": (
        [item(1, classes=[4167410]), item(2, classes=[99]), item(99, above=[4167836]), item(3)], {}, ["Q99", "Q3"]),
    "other_class": ([item(1, classes=[10]), item(10, above=[20]), item(2, classes=[30]), item(3)],
                    {"classes": ("Q20",)}, ["Q1", "Q10"]),
    "no_sitelink": ([item(1), item(2), ADA], {"require_sitelink": True}, ["Q7"]),
    "not_an_item": ([item(1) | {"type": "property", "id": "P1", "datatype": "string"}, item(1), LEXEME], {}, ["Q1"]),
}  # fmt: skip


@pytest.mark.parametrize("reason", LEFT_OUT)
def test_what_is_left_out_is_counted(reason: str) -> None:
    """Internal pages and what is below them, other classes at any depth, items without a page on request, no items."""
    rows, options, ids = LEFT_OUT[reason]
    report = ReadReport(max_errors=0)

    assert [entity.entity_id for entity in read(dump(*rows), ReadOptions(**options), report)] == ids
    assert (report.rows, report.filtered) == (len(rows), {reason: 2})


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
