"""Reading bases from JSON Lines.
What all tabular formats have in common: the same entities, columns, counts and limits.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from standard_input import given_input
from tables import CSV, ENTITIES, JSONL, TSV, WRITERS, arrow_table, check_reads_or_refuses, read_text

from ingest.base.format import ReadOptions, TableColumns
from ingest.base.reader import scan
from ingest.formats import open_reader
from ingest.io import limits
from ingest.io.report import ReadReport
from ingest.readers.table import TableReader
from pearl_qdrant.errors import FormatError, InputError, OptionError, TooManyErrorsError
from pearl_qdrant.records import Entity


def read(*rows: dict[str, Any] | str, **options: Any) -> list[Entity]:
    """Entities of objects or lines that come through standard input."""
    text = "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
    return read_text("jsonl", text, **options)


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
    """Bars and backslashes in an item of a list are part of it; in a text they join several, as in TSV. A line break
    becomes a space.
    """
    listed, joined = read(
        {"id": "1", "name": "x", "aliases": ["a|b", " c ", "", None, 7, "c", "x", "d\\e"]},
        {"id": "2", "name": "x", "aliases": "a\\|b|c"},
    )

    assert listed.aliases == ("a|b", "c", "7", "d\\e")
    assert joined.aliases == ("a|b", "c")
    (entity,) = read({"id": "1", "name": "a\nb", "aliases": ["c\t\r\nd", "\n"], "description": "e\nf"})
    assert entity == Entity("1", "a b", ("c d",), (), (), "e f")


def test_numbers_and_objects_become_text() -> None:
    """Ids may be numbers, as long as they are; further fields keep lists and objects as text."""
    line = '{"id": 12345678901234567890123, "name": 1.10, "a": [1, "x|y"], "b": {"c": [true]}, "d": false, "e": null}'

    assert read(line) == [
        Entity("12345678901234567890123", "1.10", (), (), (), None, {"a": "1|x\\|y", "b": '{"c":[true]}', "d": "false"})
    ]


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
    check_reads_or_refuses(lambda: given_input(data, TableReader, ["-"], ReadOptions(), kind="jsonl"))


TEXTS = {"tsv": TSV, "csv": CSV, "jsonl": JSONL}
FORMS = [*TEXTS, *WRITERS]


def write(folder: Path, form: str) -> Path:
    """The table in one form, in a file whose name says nothing."""
    path = folder / "base"
    if form in TEXTS:
        path.write_text(TEXTS[form], encoding="utf-8")
    else:
        WRITERS[form](arrow_table(), path)
    return path


def read_form(path: Path, options: ReadOptions | None = None, report: ReadReport | None = None) -> list[Entity]:
    """All entities of a file, whose format is detected."""
    with open_reader([path], options=options) as reader:
        return list(reader.read(report or ReadReport()))


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_table_gives_the_same_entities(tmp_path: Path, form: str) -> None:
    """Whatever I export my table as, I get the same entities, and nothing is skipped."""
    report = ReadReport(max_errors=0)

    assert read_form(write(tmp_path, form), report=report) == ENTITIES
    assert (report.rows, report.entities, report.names) == (3, 3, 6)


@pytest.mark.parametrize("form", FORMS)
def test_column_options_work_in_every_form(tmp_path: Path, form: str) -> None:
    """I can name the columns in any format; the default ones become further fields. An unknown one lists the known."""
    options = ReadOptions(columns=TableColumns(name="description", types=("rank",), aliases=("name",)))
    report = ReadReport()

    entities = read_form(write(tmp_path, form), options, report)

    assert [(e.entity_id, e.canonical_name, e.kb_types) for e in entities] == [
        ("Q90", "capital", ("1",)),
        ("Q585", "a city", ()),
    ]
    assert entities[0].extra["type"] == "city|GPE"
    assert report.skipped == {"no_name": 1}
    with pytest.raises(FormatError, match=r"no column 'label' for the name \(the columns are: id, name"):
        read_form(tmp_path / "base", ReadOptions(columns=TableColumns(name="label")))


@pytest.mark.parametrize("form", FORMS)
def test_scan_and_reading_agree_on_scattered_ids(tmp_path: Path, form: str) -> None:
    """Rows of one id are one entity, wherever they are in several files."""
    first, second = tmp_path / "a", tmp_path / "b"
    for folder in (first, second):
        folder.mkdir()
    paths = [write(first, form), write(second, form)]

    with open_reader(paths) as reader:
        result = scan(reader)
        report = ReadReport()
        entities = list(reader.read(report, scattered=result.scattered))

    assert sorted(entities, key=lambda e: e.entity_id) == sorted(ENTITIES, key=lambda e: e.entity_id)
    assert (result.entities, result.names, result.report.merged_rows) == (3, 6, 3)
    assert report == result.report


@pytest.mark.parametrize("form", FORMS)
def test_a_row_that_is_too_long_is_skipped(tmp_path: Path, form: str) -> None:
    """A row over the limit costs itself; the report says why, and --max-errors 0 stops there."""
    path = tmp_path / "base"
    ids, names = ["1", "2", "3"], ["Paris", "x" * limits.MAX_LINE_BYTES, "Rome"]
    rows = list(zip(ids, names, strict=True))
    if form == "jsonl":
        path.write_text("".join(f'{{"id": "{i}", "name": "{name}"}}\n' for i, name in rows))
    elif form in TEXTS:
        mark = "\t" if form == "tsv" else ","
        path.write_text(f"id{mark}name\n" + "".join(f"{i}{mark}{name}\n" for i, name in rows))
    else:
        WRITERS[form](pyarrow.table({"id": ids, "name": names}), path)
    report = ReadReport()

    assert [e.canonical_name for e in read_form(path, report=report)] == ["Paris", "Rome"]
    assert report.skipped == {"line_too_long": 1}
    assert report.examples[0].line == (2 if form in ("jsonl", *WRITERS) else 3)
    with pytest.raises(TooManyErrorsError):
        read_form(path, report=ReadReport(max_errors=0))


def test_an_unknown_format_lists_the_known_ones(tmp_path: Path) -> None:
    """A wrong name in Python is an error with the names."""
    with pytest.raises(OptionError, match=r"'docx' is not a format.*parquet"):
        open_reader([write(tmp_path, "csv")], "docx")


@pytest.mark.parametrize("form", FORMS)
def test_a_table_without_rows_is_an_error(tmp_path: Path, form: str) -> None:
    """A header alone is told from a base."""
    path = tmp_path / "base"
    if form == "jsonl":
        path.write_text("\n\n")
    elif form in TEXTS:
        path.write_text(TEXTS[form].splitlines(keepends=True)[0])
    else:
        WRITERS[form](arrow_table().slice(0, 0), path)
    kind = {"tsv": "tsv", "csv": "csv", "jsonl": "jsonl"}.get(form, "parquet")

    with open_reader([path], kind) as reader, pytest.raises(InputError, match=r"no rows|no JSON object"):
        list(reader.read(ReadReport()))
