"""Reading bases from JSON Lines."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import check_reads_or_refuses
from wikidata_items import item

from ingest.formats import ReadOptions, detect_format
from ingest.io.report import ReadReport
from ingest.readers.columns import TableColumns
from ingest.readers.table import TableReader
from pearl_qdrant.errors import FormatError
from pearl_qdrant.records import Entity


def read(
    *rows: dict[str, Any] | str, columns: TableColumns | None = None, report: ReadReport | None = None
) -> list[Entity]:
    """Entities of objects or lines that come through standard input."""
    text = "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
    with TableReader(["-"], ReadOptions(columns=columns), kind="jsonl", stdin=io.BytesIO(text.encode())) as reader:
        return list(reader.read(ReadReport() if report is None else report))


def test_objects_may_have_different_keys() -> None:
    """Each object is understood by itself: keys may be missing, or come later in the file."""
    rows = [{"id": "1", "name": "Paris"}, {"name": "Rome", "canonical_name": "Roma", "id": "2", "kind": "x"}]
    rows += [{"aliases": ["B", "c"], "id": "3", "NAME": "b", "types": "PER|LOC"}, {"id": "4", "name": "d"}]

    assert read(*rows) == [
        Entity("1", "Paris"),
        Entity("2", "Roma", ("Rome",), (), (), None, {"kind": "x"}),
        Entity("3", "b", ("B", "c"), ("PER", "LOC"), ("PERSON", "LOC")),
        Entity("4", "d"),
    ]


def test_lists_are_taken_item_by_item() -> None:
    """Bars and backslashes in an item of a list are part of it; in a text they join several, as in TSV."""
    listed, joined = read(
        {"id": "1", "name": "x", "aliases": ["a|b", " c ", "", None, 7, "c", "x", "d\\e"]},
        {"id": "2", "name": "x", "aliases": "a\\|b|c"},
    )

    assert listed.aliases == ("a|b", "c", "7", "d\\e")
    assert joined.aliases == ("a|b", "c")


def test_numbers_and_objects_become_text() -> None:
    """Ids may be numbers, as long as they are; further fields keep lists and objects as text."""
    line = '{"id": 12345678901234567890123, "name": 1.10, "a": [1, "x|y"], "b": {"c": [true]}, "d": false, "e": null}'

    assert read(line) == [
        Entity("12345678901234567890123", "1.10", (), (), (), None, {"a": "1|x\\|y", "b": '{"c":[true]}', "d": "false"})
    ]


def test_a_line_break_becomes_a_space() -> None:
    """Names are on one line, whatever the JSON holds."""
    (entity,) = read({"id": "1", "name": "a\nb", "aliases": ["c\t\r\nd", "\n"], "description": "e\nf"})

    assert entity == Entity("1", "a b", ("c d",), (), (), "e f")


def test_options_name_keys_and_never_numbers() -> None:
    """A key may be digits; an object without a named key has an empty cell there."""
    columns = TableColumns(id="1", name="2", aliases=("syn",))
    found = read({"1": "Q1", "2": "Paris", "syn": ["P"], "id": "x"}, {"1": "Q2", "2": "Rome"}, columns=columns)

    assert found == [Entity("Q1", "Paris", ("P",), (), (), None, {"column_id": "x"}), Entity("Q2", "Rome")]


@pytest.mark.parametrize(
    "line, reason",
    [
        ("nonsense", "invalid_json"),
        ('{"id": 1, "name": "x"} {}', "invalid_json"),
        ('{"id": 1, "name": "\\ud800"}', "invalid_json"),
        ("[1, 2]", "not_an_object"),
        ("null", "not_an_object"),
        ('{"name": "x"}', "no_id"),
        ('{"id": " ", "name": "x"}', "no_id"),
        ('{"id": 1}', "no_name"),
        ('{"id": 1, "name": null}', "no_name"),
        ('{"id": 1, "name": ["x", "y"]}', "not_text"),
        ('{"id": {"a": 1}, "name": "x"}', "not_text"),
        ('{"id": 1, "name": "x", "aliases": [["y"]]}', "not_text"),
        ('{"id": 1, "name": "x", "types": {"a": 1}}', "not_text"),
        ('{"id": 1, "name": "a\\u0000b"}', "nul_character"),
        ('{"id": 1, "name": "x", "aliases": ["a\\u0000"]}', "nul_character"),
        ('{"id": 1, "name": "x", "a\\u0000": 1}', "nul_character"),
        ('{"id": 1, "name": "x", "y": ' + "[" * 5000 + "]" * 5000 + "}", "nested_too_deep"),
        ('{"id": 1, "name": ' + "9" * 5000 + "}", "invalid_json"),
        ('{"id": 1, "name": "x",' + ",".join(f'"{i}":1' for i in range(5000)) + "}", "too_many_columns"),
    ],
)
def test_a_bad_line_costs_itself_alone(line: str, reason: str) -> None:
    """What is no entity is skipped, counted by reason and shown with its line."""
    report = ReadReport()

    assert [e.entity_id for e in read({"id": "a", "name": "b"}, line, {"id": "c", "name": "d"}, report=report)] == [
        "a",
        "c",
    ]
    assert report.skipped == {reason: 1}
    assert report.examples[0].line == 2


@pytest.mark.parametrize(
    "text, message",
    [
        ('{"key": 1, "name": "x"}', r"known to be the id. Name it \(the columns are: key, name\)"),
        ('{"id": 1, "etikett": "x"}', "known to be the name"),
        ('[{"id": 1, "name": "x"', "ends early"),
    ],
)
def test_a_file_of_another_form_is_an_error(text: str, message: str) -> None:
    """Unknown keys, and an array that ends early, are errors that say what is wrong."""
    with pytest.raises(FormatError, match=message):
        read(text)


@pytest.mark.parametrize(
    "text",
    [
        '[{"id": 1, "name": "x"}, {"id": 2, "name": "y"}]',
        '[\n {"id": 1,\n  "name": "x"},\n {"id": 2, "name": "y"}\n]\n',
        '{\n "id": 1,\n "name": "x"\n}\n{\n "id": 2,\n "name": "y"\n}',
        '{"meta": {"count": 2}, "results": [{"id": 1, "name": "x"}, {"id": 2, "name": "y"}]}',
        '{"1": {"name": "x"}, "2": {"name": "y"}}',
    ],
)
def test_objects_come_in_arrays_and_wrappers(text: str) -> None:
    """An array, objects over several lines, a list inside an object, and objects by id are read as well as lines."""
    assert read(text) == [Entity("1", "x"), Entity("2", "y")]


def test_a_path_names_a_field_inside_another() -> None:
    """Positions, all items, and items with a value are steps of a path."""
    columns = TableColumns(id="meta.id", name="names[kind=main].text", aliases=("names.*.text", "tags.0"))
    row = {
        "meta": {"id": "1"},
        "names": [{"kind": "old", "text": "y"}, {"kind": "main", "text": "x"}],
        "tags": ["t", "u"],
    }

    (entity,) = read(row, columns=columns)

    assert (entity.entity_id, list(entity.names())) == ("1", ["x", "y", "t"])


@pytest.mark.parametrize(
    "text, expected",
    [
        ('{"id": 1, "name": "x"}\n', "jsonl"),
        ('\n {"label": "x"}\n{}\n', "jsonl"),
        (json.dumps({"id": "1", "name": "x" * 100_000}) + "\n", "jsonl"),
        (json.dumps(item(1)) + "\n" + json.dumps(item(2)) + "\n", "wikidata"),
        ('{"id": 1}\nParis\n', "jsonl"),
        ('{"id"\t"Paris"\n', "tsv"),
        ("{1}\tParis\n", "tsv"),
    ],
)
def test_json_lines_are_detected(tmp_path: Path, text: str, expected: str) -> None:
    """Objects one a line are JSON Lines, unless they are items of Wikidata."""
    (tmp_path / "x").write_text(text)

    assert detect_format([tmp_path / "x"]) == expected


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
keys = st.sampled_from(["id", "name", "canonical_name", "aliases", "types", "type", "description", "x", "ID", ""])


@settings(max_examples=examples(150), deadline=None)
@given(rows=st.lists(st.dictionaries(keys, values, max_size=6), max_size=6), noise=st.binary(max_size=20))
def test_any_objects_are_entities_or_counted(rows: list[dict[str, Any]], noise: bytes) -> None:
    """Whatever the values are, each line is an entity or a counted skip, and scanning agrees with reading."""
    lines = ['{"id": 1, "name": "x"}', *map(json.dumps, rows)]
    data = "\n".join(lines).encode() + b"\n" + noise
    check_reads_or_refuses(lambda: TableReader(["-"], ReadOptions(), kind="jsonl", stdin=io.BytesIO(data)))
