"""Reading Wikidata. The items are made up, in the form of the dumps."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.base.scan import scan
from ingest.base.type_map import TypeMap
from ingest.io.report import ReadReport
from ingest.readers.wikidata.classes import MAX_KB_TYPES
from ingest.readers.wikidata.reader import WikidataOptions, WikidataReader, is_wikidata
from pearl_qdrant.errors import FormatError, InputError, TooManyErrorsError
from pearl_qdrant.records import Entity

HUMAN, ORGANIZATION = 5, 43229


def statement(number: int | None, rank: str = "normal", snaktype: str = "value") -> dict[str, Any]:
    """A statement with an item as its value, or with none."""
    snak: dict[str, Any] = {"snaktype": snaktype, "property": "P31", "hash": "0a", "datatype": "wikibase-item"}
    if number is not None:
        value = {"entity-type": "item", "numeric-id": number, "id": f"Q{number}"}
        snak["datavalue"] = {"value": value, "type": "wikibase-entityid"}
    qualifiers = {"P580": [{"snaktype": "value", "property": "P580", "datavalue": {"value": {"time": "+1"}}}]}
    return {"mainsnak": snak, "type": "statement", "id": "Q1$a", "rank": rank, "qualifiers": qualifiers}


def item(
    number: int,
    labels: Mapping[str, str] | None = None,
    *,
    classes: Sequence[int | dict[str, Any]] = (),
    above: Sequence[int | dict[str, Any]] = (),
    aliases: Mapping[str, Sequence[str]] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """An item as the dump writes it."""
    claims = {}
    for prop, values in (("P31", classes), ("P279", above), ("P21", [6581097])):
        if values:
            claims[prop] = [value if isinstance(value, dict) else statement(value) for value in values]
    labels = {"en": f"name {number}"} if labels is None else labels
    return {
        "type": "item",
        "id": f"Q{number}",
        "labels": {key: {"language": key, "value": value} for key, value in labels.items()},
        "aliases": {key: [{"language": key, "value": v} for v in values] for key, values in (aliases or {}).items()},
        "descriptions": {},
        "claims": claims,
        "sitelinks": {},
        "lastrevid": 1,
        **more,
    }


def dump(*rows: dict[str, Any] | bytes) -> bytes:
    """A dump: an array with one row a line."""
    lines = [row if isinstance(row, bytes) else json.dumps(row, separators=(",", ":")).encode() for row in rows]
    return b"[\n" + b",\n".join(lines) + b"\n]\n"


def read(data: bytes, options: WikidataOptions | None = None, report: ReadReport | None = None) -> list[Entity]:
    """Entities of what comes through standard input."""
    with WikidataReader(["-"], options, stdin=io.BytesIO(data)) as reader:
        return list(reader.read(report if report is not None else ReadReport()))


ADA = item(
    7,
    {"en": "Ada Example", "fi": "Ada Esimerkki", "ru": "Ада"},
    classes=[HUMAN],
    aliases={"en": ["A. Example", "Ada Example"], "mul": ["Ada"], "ru": ["А."]},
    descriptions={"en": {"language": "en", "value": "made-up writer"}, "ru": {"language": "ru", "value": "x"}},
    sitelinks={"enwiki": {"site": "enwiki", "title": "Ada", "badges": []}, "fiwiki": {"site": "fiwiki", "title": "A"}},
)


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
    )


def test_a_class_is_an_entity_with_the_classes_above_it() -> None:
    """What a class is a subclass of is among its types, after what it is an instance of."""
    (entity,) = read(dump(item(8, {"en": "sore toe"}, classes=[900], above=[12136])))

    assert (entity.kb_types, entity.types) == (("Q900", "Q12136"), ("OTHER",))


def test_languages_fall_back_in_order() -> None:
    """The wanted languages in order, then mul, then English; the name's language is told where it is another."""
    rows = dump(
        ADA,
        item(1, {"de": "Eins", "mul": "Un", "en": "One"}),
        item(2, {"mul": "Un", "en": "One"}, aliases={"en": ["1"], "mul": ["I"]}),
        item(3, {"en": "One"}, aliases={"en": ["1"], "de": ["eins"], "ru": ["x"]}),
        item(4, {"ru": "Один"}),
        item(5, {"en": " \t "}),
    )
    report = ReadReport()
    entities = read(rows, WikidataOptions(languages=("fi", "DE")), report)

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

    assert read(dump(row)) == [Entity("Q1", "name 1", extra={"sitelinks": "0"})]
    assert read(dump(row, item(2) | {"labels": []}), report=(report := ReadReport()))
    assert report.filtered == {"no_label": 1}


def test_ancestors_come_nearest_first_and_cycles_end() -> None:
    """The closure of P279 comes from the dump itself, whatever the order of its items."""
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
    with WikidataReader(["-"], type_map=type_map, stdin=io.BytesIO(rows)) as reader:
        entities = {e.entity_id: e.types for e in reader.read(ReadReport())}

    assert entities["Q1"] == ("ORG", "LOC")


def test_a_long_chain_of_classes_is_cut() -> None:
    """Only the nearest native types are kept, but the coarse type is found beyond them."""
    chain = [item(900_000 + i, above=[900_001 + i]) for i in range(100)]
    rows = dump(item(1, classes=[900_000]), *chain, item(900_100, above=[HUMAN]))
    entity = read(rows)[0]

    assert entity.kb_types == tuple(f"Q{900_000 + i}" for i in range(MAX_KB_TYPES))
    assert entity.types == ("PERSON",)


def test_without_ancestors_only_own_classes_count() -> None:
    """The first pass can be left out."""
    rows = dump(item(1, classes=[10]), item(10, above=[HUMAN]))

    assert read(rows, WikidataOptions(ancestors=False))[0].kb_types == ("Q10",)


def test_pages_of_the_projects_are_left_out() -> None:
    """Disambiguation pages, categories and what is below them are counted, unless they are wanted."""
    rows = dump(item(1, classes=[4167410]), item(2, classes=[99]), item(99, above=[4167836]), item(3))
    report = ReadReport(max_errors=0)

    assert [e.entity_id for e in read(rows, report=report)] == ["Q99", "Q3"]
    assert report.filtered == {"wikimedia_internal": 2}
    assert len(read(rows, WikidataOptions(exclude_internal=False))) == 4


def test_only_wanted_classes_are_read() -> None:
    """Instances and subclasses of the wanted classes, whatever is between."""
    rows = dump(item(1, classes=[10]), item(10, above=[20]), item(2, classes=[30]), item(3))
    report = ReadReport()

    assert [e.entity_id for e in read(rows, WikidataOptions(include_types=("Q20",)), report)] == ["Q1", "Q10"]
    assert report.filtered == {"other_class": 2}


def test_a_sitelink_can_be_required() -> None:
    """Items without a page are left out, and counted, if that is wanted."""
    report = ReadReport()

    assert [e.entity_id for e in read(dump(item(1), ADA), WikidataOptions(require_sitelink=True), report)] == ["Q7"]
    assert report.filtered == {"no_sitelink": 1}


def test_properties_and_lexemes_are_left_out() -> None:
    """Only items are entities; the others are counted."""
    property_ = item(1) | {"type": "property", "id": "P1", "datatype": "string"}
    lexeme = {"type": "lexeme", "id": "L1", "lemmas": {"en": {"language": "en", "value": "first"}}, "senses": []}
    report = ReadReport(max_errors=0)

    assert len(read(dump(property_, item(1), lexeme), report=report)) == 1
    assert (report.rows, report.filtered) == (3, {"not_an_item": 2})


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
        assert bool(report.notes) == (form.count(b"]") == 0 and b"[\n" in form), form


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
    with WikidataReader([tmp_path / name for name in shards]) as reader:
        report = ReadReport()
        entities = list(reader.read(report))
        scanned = scan(reader)

    assert [e.kb_types for e in entities] == [("Q2", "Q3", "Q5"), ("Q3", "Q5"), ("Q5",), ("Q3", "Q5")]
    assert [e.types for e in entities] == [("PERSON",)] * 4
    assert (scanned.entities, scanned.names, report.rows) == (4, 4, 4)
    assert report.notes == [f"{tmp_path / 'a.json'}: its array is not closed: it is a part of a dump, or was cut off"]


def test_an_item_that_comes_twice_is_one_entity() -> None:
    """Two dumps that overlap do not double anything."""
    rows = dump(item(1, {"en": "a"}), item(2), item(1, {"en": "b"}))

    assert [(e.entity_id, e.aliases) for e in read(rows)] == [("Q2", ()), ("Q1", ("b",))]


def test_a_limit_stops_early() -> None:
    """Only so many items are read."""
    with WikidataReader(["-"], limit=2, stdin=io.BytesIO(dump(item(1), item(2), item(3)))) as reader:
        assert len(list(reader.read(ReadReport()))) == 2


@pytest.mark.parametrize(
    "options", [{"languages": ()}, {"languages": ("e n",)}, {"include_types": ("human",)}, {"include_types": ("Q0",)}]
)
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    """A language or class that can be none is a ValueError."""
    with pytest.raises(ValueError, match="Give"):
        WikidataOptions(**options)


DEEP = b"[" * 50_000 + b"]" * 50_000


@pytest.mark.parametrize(
    "row, reason",
    [
        (b'{"type":"item","id":"Q9","labels":{"en":{"val', "invalid_json"),
        (b"\x01\x02", "invalid_json"),
        (b"{\0}", "invalid_json"),
        (b"null", "not_an_entity"),
        (b"[{]", "invalid_json"),
        (b'"Q1"', "not_an_entity"),
        (b"{}", "no_id"),
        (json.dumps(item(9) | {"id": "Q09"}).encode(), "no_id"),
        (json.dumps(item(9) | {"id": "Q99999999999999999999"}).encode(), "no_id"),
        (json.dumps(item(9) | {"labels": [1]}).encode(), "not_an_entity"),
        (json.dumps(item(9) | {"labels": 5}).encode(), "not_an_entity"),
        (json.dumps(item(9) | {"labels": {"en": "x"}}).encode(), "not_an_entity"),
        (json.dumps(item(9) | {"labels": {"en": {"value": None}}}).encode(), "not_an_entity"),
        (json.dumps(item(9) | {"aliases": {"en": {"value": "x"}}}).encode(), "not_an_entity"),
        (json.dumps(item(9) | {"claims": {"P31": [{"mainsnak": "x"}]}}).encode(), "not_an_entity"),
        (json.dumps(item(9) | {"claims": {"P279": 3}}).encode(), "not_an_entity"),
        (json.dumps(item(9, {"en": "a\udc00b"})).encode(), "invalid_json"),
        (json.dumps(item(9, {"en": "a\0b"})).encode(), "nul_character"),
        (json.dumps(item(9, {"en": "xx"})).encode().replace(b"xx", b"\xff\xfe"), "invalid_utf8"),
        (json.dumps(item(9)).encode().replace(b'"lastrevid": 1', b'"x": ' + DEEP), "nested_too_deep"),
        (b'{"P279":' + b"x" * (100 << 20) + b"}", "line_too_long"),
    ],
    ids=lambda value: str(value[:24]),
)
def test_a_bad_line_costs_itself_alone(row: bytes, reason: str) -> None:
    """It is counted with its place, and what stands around it is read."""
    report = ReadReport()
    with WikidataReader(["-"], stdin=io.BytesIO(dump(item(1), row, item(2)))) as reader:
        entities = list(reader.read_runs(report))

    assert [e.entity_id for e in entities] == ["Q1", "Q2"]
    assert report.skipped == {reason: 1}
    assert (report.examples[0].path, report.examples[0].line, report.rows) == ("-", 3, 3)


def test_damage_in_what_is_not_wanted_harms_nothing() -> None:
    """Another language's broken text is passed over with the rest."""
    row = json.dumps(item(9, {"en": "good", "fi": "xx"})).encode().replace(b"xx", b"\xff")

    assert [e.canonical_name for e in read(dump(row), report=ReadReport(max_errors=0))] == ["good"]


def test_too_many_bad_lines_stop() -> None:
    """Past --max-errors reading ends with the line."""
    with pytest.raises(TooManyErrorsError, match="-:3: invalid_json"):
        read(dump(item(1), b"{"), report=ReadReport(max_errors=0))


MANY = dump(*(item(i, {"en": f"name {i * 7919 % 10007}"}, above=[i + 1]) for i in range(1, 3000)))


@pytest.mark.parametrize(
    "data, message",
    [
        (b"", "is empty"),
        (b"[\n]\n", "holds no entity"),
        (gzip.compress(MANY)[:-9], r"-:\d+: after this line, its gzip data ends early"),
        (bz2.compress(MANY)[:-9], "bzip2 data ends early"),
        (
            gzip.compress(MANY)[:20_000] + b"\0\xff" * 99 + gzip.compress(MANY)[20_198:],
            r"-:\d+: after this line, its gzip data is damaged",
        ),
        (b"PK\x03\x04", "zip archive"),
    ],
    ids=["empty", "no entity", "cut gzip", "cut bzip2", "damaged gzip", "zip"],
)
def test_what_is_no_dump_says_so(data: bytes, message: str) -> None:
    """Another kind of file, or a damaged one, is a typed error."""
    with pytest.raises(FormatError, match=message):
        read(data)


def wd(name: str) -> str:
    """The IRI of an entity."""
    return f"<http://www.wikidata.org/entity/{name}>"


P31, P279 = (f"<http://www.wikidata.org/prop/direct/{name}>" for name in ("P31", "P279"))
LABEL = "<http://www.w3.org/2000/01/rdf-schema#label>"
ALIAS = "<http://www.w3.org/2004/02/skos/core#altLabel>"
ABOUT = "<http://schema.org/description>"
TRUTHY = f"""\
<http://wikiba.se/ontology#Dump> <http://creativecommons.org/ns#license> <http://creativecommons.org/zero> .
<https://www.wikidata.org/wiki/Special:EntityData/Q7> <http://schema.org/about> {wd("Q7")} .
{wd("Q7")} <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <http://wikiba.se/ontology#Item> .
{wd("Q7")} {LABEL} "Ada \\"Example\\" \\u00C4"@en .
{wd("Q7")} <http://www.w3.org/2004/02/skos/core#prefLabel> "Ada"@en .
{wd("Q7")} {LABEL} "\\u0410"@ru .
{wd("Q7")} {ABOUT} "made-up writer"@en .
{wd("Q7")} {ALIAS} "A. Example"@en .
{wd("Q7")} {ALIAS} "Ada"@mul .
{wd("Q7")} {P31} {wd("Q5")} .
{wd("Q7")} {P31} _:genid1 .
{wd("Q7")} {P279} <http://example.org/Q6> .
{wd("P31")} {LABEL} "instance of"@en .
{wd("Q8")} {LABEL} "\\u0410"@ru .
{wd("Q8")} {P31} {wd("Q5")} .
{wd("Q9")} {LABEL} "page"@en .
{wd("Q9")} {P31} {wd("Q4167410")} .
{wd("Q5")} {LABEL} "human"@en .
{wd("Q5")} {P279} {wd("Q215627")} .
"""


@pytest.mark.parametrize("encode", [bytes, gzip.compress, bz2.compress])
def test_truthy_triples_give_the_same_entities(encode: Any) -> None:
    """The rows of an item become one entity, with ancestors and filters as from JSON."""
    report = ReadReport(max_errors=0)

    assert read(encode(TRUTHY.encode()), report=report) == [
        Entity("Q7", 'Ada "Example" Ä', ("A. Example", "Ada"), ("Q5", "Q215627"), ("PERSON",), "made-up writer"),
        Entity("Q5", "human", (), ("Q215627",), ("PERSON",)),
    ]
    assert {key: report.filtered[key] for key in ("not_an_item", "no_label", "wikimedia_internal")} == {
        "not_an_item": 1,
        "no_label": 1,
        "wikimedia_internal": 1,
    }


def test_truthy_triples_tell_no_sitelinks() -> None:
    """To require one is an error, not an empty base."""
    with pytest.raises(FormatError, match="JSON dump"):
        read(TRUTHY.encode(), WikidataOptions(require_sitelink=True))


def test_a_bad_triple_costs_itself_alone() -> None:
    """It is counted with its line."""
    report = ReadReport()
    data = TRUTHY.encode() + f'{wd("Q5")} {ALIAS} "open@en .\n{wd("Q5")} {ALIAS} "person"@en .\n'.encode()

    assert read(data, report=report)[1].aliases == ("person",)
    assert report.n_skipped == 1
    assert report.examples[0].line == TRUTHY.count("\n") + 1


def test_dumps_are_recognised(tmp_path: Path) -> None:
    """By what stands at the start, compressed or not; by nothing else."""
    contents = {
        "a": dump(ADA),
        "b.nt": TRUTHY.encode(),
        "c.gz": gzip.compress(dump(ADA)),
        "d": json.dumps(item(1), indent=1).encode(),
        "e": dump(item(1) | {"type": "property", "id": "P6"}),
        "n1.json": b'[{"id": "C1", "name": "flu", "type": "x"}]',
        "n2": b"",
        "n3": b"id\tname\nQ1\tParis\n",
        "n4.nt": f"<http://yago-knowledge.org/resource/A> <http://x/sameAs> {wd('Q1')} .\n".encode(),
        "n5.gz": gzip.compress(dump(ADA))[:20],
        "n6": b'"type":"item" "id":"Q1"',
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)

    assert [name for name in contents if is_wikidata(tmp_path / name)] == ["a", "b.nt", "c.gz", "d", "e"]
    assert not any(is_wikidata(path) for path in ("-", tmp_path, tmp_path / "nowhere", "a\0b"))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
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


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(ADA)), JSON, JSON)
def test_any_json_is_an_item_or_a_counted_row(key: str, value: Any, line: Any) -> None:
    """Whatever JSON stands in a line, or in a field of an item, nothing but a count comes of it."""
    rows = [json.dumps(ADA | {key: value}).encode(), json.dumps(line).encode().replace(b"\n", b" "), b"\n"]
    report = ReadReport(max_errors=None)
    entities = read(dump(*rows, item(1)), report=report)

    assert entities[-1].entity_id == "Q1" or report.merged_rows
    assert all(entity.canonical_name.strip() and entity.entity_id for entity in entities)
    kept = report.rows - report.n_skipped - sum(report.filtered.values()) - report.merged_rows
    assert len(entities) == kept


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=40) | st.sampled_from([*dump(ADA).splitlines(), *TRUTHY.encode().splitlines()])))
def test_any_bytes_give_a_typed_answer(lines: list[bytes]) -> None:
    """No bytes at all lead to another error than ours, and reading twice gives the same."""
    data = b"\n".join(lines)
    with contextlib.suppress(InputError):
        entities = read(data, report=ReadReport(max_errors=None))
        assert entities == read(data, report=ReadReport(max_errors=None))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_damage_gives_a_typed_answer(data: st.DataObject) -> None:
    """A dump with some bytes changed or cut off is read, counted or refused."""
    good = data.draw(
        st.sampled_from([dump(ADA, item(1, above=[2])), TRUTHY.encode(), gzip.compress(dump(ADA), mtime=0)])
    )
    at = data.draw(st.integers(0, len(good)))
    bad = good[:at] + data.draw(st.binary(max_size=4)) + good[at + data.draw(st.integers(0, 40)) :]
    with contextlib.suppress(InputError):
        read(bad, report=ReadReport(max_errors=None))
