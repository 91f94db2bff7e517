"""Reading bases from Parquet and Arrow files.
Reading bases from comma-separated values.
"""

from __future__ import annotations

import csv
import datetime
import io
import sys
from collections.abc import Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from cli_runner import Run
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from tables import WRITERS, arrow_table, read_text

from ingest.base.format import ReadOptions, TableColumns
from ingest.formats import detect_format, open_reader
from ingest.io.report import ReadReport
from ingest.readers import table as arrow_rows
from pearl_qdrant.errors import FormatError, OptionError
from pearl_qdrant.records import Entity


def read(
    path: Path,
    table: pyarrow.Table | None = None,
    columns: TableColumns | None = None,
    report: ReadReport | None = None,
) -> list[Entity]:
    """Entities of a Parquet file, which is written first if there is a table."""
    if table is not None:
        parquet.write_table(table, path)
    with open_reader([path], "parquet", ReadOptions(columns=columns)) as reader:
        return list(reader.read(report or ReadReport()))


def test_values_of_many_types_become_text(tmp_path: Path) -> None:
    """Numbers, booleans, dates, categories, lists, structs and bytes of text are read."""
    table = pyarrow.table(
        {
            "id": pyarrow.array([1, 2], pyarrow.uint8()),
            "name": pyarrow.array(["a", "a"]).dictionary_encode(),
            "types": pyarrow.array([["PER", None, " x "], None], pyarrow.large_list(pyarrow.large_string())),
            "aliases": pyarrow.array(["b|c", ""]),
            "day": [datetime.date(2020, 1, 2), None],
            "price": [Decimal("1.10"), None],
            "share": [0.5, None],
            "flag": [True, None],
            "numbers": [[1, 2], []],
            "raw": [b"x", None],
            "pair": [{"x": 1}, None],
        }
    )
    report = ReadReport()

    first, second = read(tmp_path / "x", table, report=report)

    extra = {"day": "2020-01-02", "price": "1.10", "share": "0.5", "flag": "true", "numbers": "1|2"}
    extra |= {"raw": "x", "pair": '{"x":1}'}
    assert first == Entity("1", "a", ("b", "c"), ("PER", "x"), ("PERSON",), None, extra)
    assert second == Entity("2", "a")


def test_columns_may_be_numbered_and_must_be_text(tmp_path: Path) -> None:
    """Numbers count all columns of the schema; a struct or a list is no name."""
    table = pyarrow.table({"s": [{"x": 1}], "noegle": ["Q1"], "label": ["Paris"], "many": [["a", "b"]]})

    assert [e.canonical_name for e in read(tmp_path / "x", table, TableColumns(id="2", name="3"))] == ["Paris"]
    for name in ("1", "many"):
        with pytest.raises(FormatError, match="are not text"):
            read(tmp_path / "x", table, TableColumns(id="noegle", name=name))
    with pytest.raises(
        FormatError, match=r"to be the id. Name it \(the columns are: s \(in it: s.x\), noegle, label, many\)"
    ):
        read(tmp_path / "x", table)


@pytest.mark.parametrize("form", WRITERS)
def test_bad_text_costs_its_row_alone(tmp_path: Path, form: str) -> None:
    """Invalid UTF-8 and NUL are skipped and counted with the number of the row; a line break becomes a space."""
    raw = pyarrow.array([b"a", b"\xff\xfe", b"b\0", b"c\nd", b"", b"e"])
    (_, data) = raw.buffers()[1:]
    names = pyarrow.StringArray.from_buffers(len(raw), raw.buffers()[1], data)
    table = pyarrow.table({"id": ["1", "2", "3", "4", "5", "6"], "name": names})
    path = tmp_path / "x"
    WRITERS[form](table, path)
    report = ReadReport()

    assert [(e.entity_id, e.canonical_name) for e in read(path, report=report)] == [
        ("1", "a"),
        ("4", "c d"),
        ("6", "e"),
    ]
    assert report.skipped == {"invalid_utf8": 1, "nul_character": 1, "no_name": 1}
    assert [skip.line for skip in report.examples] == [2, 3, 5]


@pytest.mark.parametrize("kind", [pyarrow.string(), pyarrow.large_string()])
@pytest.mark.parametrize("text", [b"Paris", b"\xff\xfe"])
def test_offsets_that_lead_out_of_the_text_are_damage(tmp_path: Path, kind: pyarrow.DataType, text: bytes) -> None:
    """They are checked before a value is read, also where some text is no UTF-8."""
    width = "<i4" if kind == pyarrow.string() else "<i8"
    offsets = np.array([0, 1_055, len(text)], width)
    names = pyarrow.Array.from_buffers(kind, 2, [None, pyarrow.py_buffer(offsets.tobytes()), pyarrow.py_buffer(text)])
    path = tmp_path / "base.arrow"
    table = pyarrow.table({"id": ["1", "2"], "name": names})
    with pyarrow.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)

    with pytest.raises(FormatError, match="the Arrow data is damaged or cut off"):
        read(path)


@pytest.mark.parametrize("form", WRITERS)
def test_rows_are_read_in_small_batches(tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several row groups or record batches are one table, and row numbers go on."""
    monkeypatch.setattr(arrow_rows, "BATCH_ROWS", 7)
    n = 100
    table = pyarrow.table({"id": list(range(n)), "name": [f"n{i}" if i != 50 else "" for i in range(n)]})
    table = pyarrow.concat_tables([table.slice(0, 30), table.slice(30, 1), table.slice(31)])
    path = tmp_path / "x"
    if form == "parquet":
        parquet.write_table(table, path, row_group_size=11)
    else:
        WRITERS[form](table, path)
    report = ReadReport()

    assert [e.entity_id for e in read(path, report=report)] == [str(i) for i in range(n) if i != 50]
    assert [skip.line for skip in report.examples] == [51]


def test_without_pyarrow_the_error_says_what_to_install(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The extra is named in a command that works; other formats need nothing."""
    parquet.write_table(arrow_table(), tmp_path / "x.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    outcome = run("ingest", str(tmp_path / "x.parquet"), "--dry-run")

    assert outcome.status == 1
    assert "need pyarrow, which is not installed" in outcome.err
    assert "[arrow]" in outcome.err


@pytest.mark.parametrize(
    "content, message",
    [
        (b"PAR1", "Parquet data is damaged or cut off"),
        (b"PAR1" + b"x" * 100 + b"PAR1", "Parquet data is damaged"),
        (b"ARROW1\0\0" + b"x" * 100, "Arrow data is damaged"),
        (b"\xff\xff\xff\xff\x10\0\0\0" + b"x" * 100, "Arrow stream data is damaged"),
    ],
)
def test_a_damaged_file_is_an_error(tmp_path: Path, content: bytes, message: str) -> None:
    """Damage is named with the file."""
    path = tmp_path / "x"
    path.write_bytes(content)

    assert detect_format([path]) == "parquet"
    with pytest.raises(FormatError, match=f"{path}.*{message}"):
        read(path)


def test_what_is_no_such_file_is_refused(tmp_path: Path) -> None:
    """Standard input, a folder, a missing file and a text are each an error in words."""
    (tmp_path / "text").write_text("id\tname\n")
    for path, message in (
        ("-", "not from standard input"),
        (tmp_path, "is a directory"),
        (tmp_path / "absent", "does not exist"),
        (tmp_path / "text", "is no Parquet file"),
    ):
        with pytest.raises(FormatError, match=message):
            open_reader([path], "parquet")


read_csv = partial(read_text, "csv")


def names(content: str | bytes, **options: str) -> list[str]:
    """The canonical names."""
    return [entity.canonical_name for entity in read_csv(content, **options)]


def test_quoted_cells_hold_delimiters_quotes_and_line_breaks() -> None:
    """RFC 4180: a quoted cell may hold anything; a line break in it becomes one space."""
    text = 'id,name,description\r\nQ1,"Paris, ""the"" city","on the\r\nSeine"\r\nQ2,Rome,\r\n'
    report = ReadReport(max_errors=0)

    assert read_csv(text, report=report) == [
        Entity("Q1", 'Paris, "the" city', (), (), (), "on the Seine"),
        Entity("Q2", "Rome"),
    ]
    assert report.place == ("-", 4)


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_the_delimiter_is_found_in_the_header(mark: str) -> None:
    """Comma, semicolon, tab and bar are found, also if cells hold the others."""
    text = f'id{mark}name{mark}kind\nQ1{mark}"a,b;c|d\te"{mark}"1,5"\n'

    assert names(text) == ["a,b;c|d e"]


@pytest.mark.parametrize(
    "text, reason",
    [
        ("Q1,a;b\nQ2,c;d\n", "comma and semicolon would all do"),
        ("Paris\nRome\n", "no tab, comma, semicolon or bar separates"),
        ("a,b\nc\nd\n", "no tab, comma, semicolon or bar separates"),
    ],
)
def test_an_unclear_delimiter_is_asked_for(text: str, reason: str) -> None:
    """If rows do not show one delimiter, the error asks for it."""
    with pytest.raises(FormatError, match=f"{reason}.*Name (?:it|the delimiter)") as raised:
        read_csv(text)

    assert raised.value.option == "delimiter"


def test_a_given_delimiter_is_taken() -> None:
    """Any character can be given, and tab by its name; a list of names needs none."""
    assert names("id:name\nQ1:Paris\n", delimiter=":") == ["Paris"]
    assert names("id\tname\nQ1\tParis\n", delimiter="tab") == ["Paris"]
    assert [e.entity_id for e in read_csv('flu\n"cold, common"\n', columns=TableColumns(id="1", name="1"))] == [
        "flu",
        "cold, common",
    ]


@pytest.mark.parametrize("given", ["", "::", '"', "\n"])
def test_a_senseless_delimiter_is_refused(tmp_path: Path, given: str) -> None:
    """A delimiter is one character."""
    (tmp_path / "a.csv").write_text("id,name\n1,a\n")

    with pytest.raises(OptionError, match="one character"):
        open_reader([tmp_path / "a.csv"], options=ReadOptions(delimiter=given), kind="csv")


def test_options_that_name_columns_need_no_format(run: Run, tmp_path: Path) -> None:
    """If I name the columns of a CSV file, I need not name its format; a wrong name is told by its option."""
    path = tmp_path / "a.csv"
    path.write_text("code,Bezeichnung,Kind\nQ1,Paris,GPE\n")

    named = run("ingest", str(path), "--dry-run", "--name-column", "bezeichnung", "--type-column", "Kind", "--json")
    wrong = run("ingest", str(path), "--dry-run", "--id-column", "code", "--name-column", "labl")

    assert named.status == 0, named.err
    assert named.lines()[0]["names"] == 1
    assert wrong.status == 1
    assert "the file has no column 'labl' for the name" in wrong.err
    assert "--name-column" in wrong.err


def test_a_stray_quote_costs_its_row_alone() -> None:
    """A quote that is never closed does not swallow the rows after it."""
    rows = [f"Q{i},name {i},x\n" for i in range(3000)]
    rows[5] = 'Q5,"open,x\n'
    rows[9] = 'Q9,"closed" badly,x\n'
    rows[11] = 'Q11,5" pipe,x\n'
    report = ReadReport()

    found = read_csv("id,name,type\n" + "".join(rows) + 'Q3000,"last', report=report)

    assert len(found) == 2999
    assert report.skipped == {"bad_quoting": 2}
    assert [skip.line for skip in report.examples] == [7, 3002]
    assert [found[i].canonical_name for i in (8, 10)] == ['"closed" badly', '5" pipe']


@pytest.mark.slow
def test_a_file_full_of_stray_quotes_is_read_in_bounded_time() -> None:
    """Lines are read again only within a budget, so that the work stays proportional to the file."""
    report = ReadReport(max_errors=None)

    read_csv("id,name\n" + 'x","\n' * 400_000, report=report)

    assert report.n_skipped >= 1


def test_bad_lines_and_short_rows_are_skipped() -> None:
    """Reasons are those of TSV: invalid text, NUL, missing id or name, wrong number of cells."""
    report = ReadReport()
    text = "id,name,x\n1,ä,\n".encode() + b"2,\xff,\n3,b\0,\n,c,\n4, ,\n5\n6,d,e,f\n7,g,h,\n\n,,\n"

    assert [entity.entity_id for entity in read_csv(text, report=report)] == ["1", "7"]
    reasons = "invalid_utf8 nul_character no_id no_name too_few_columns too_many_columns".split()
    assert report.skipped == dict.fromkeys(reasons, 1)
    assert [skip.line for skip in report.examples] == [3, 4, 5, 6, 7]


cells = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)


@settings(max_examples=examples(60), deadline=None)
@given(rows=st.lists(st.tuples(cells, cells), min_size=1, max_size=6), quoting=st.sampled_from([0, 1]))
def test_what_the_csv_module_writes_is_read_back(rows: Sequence[tuple[str, str]], quoting: int) -> None:
    """Whatever is in my cells, the writer of the standard library and this reader agree."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, quoting=csv.QUOTE_ALL if quoting else csv.QUOTE_MINIMAL)
    writer.writerow(["id", "name", "x"])
    for i, (name, more) in enumerate(rows):
        writer.writerow([f"Q{i}", f"n{name}n", more])
    found = read_csv(buffer.getvalue().encode(), report=ReadReport(max_errors=0))

    def clean(text: str) -> str:
        for mark in ("\r\n", "\n", "\r", "\t"):
            text = text.replace(mark, " ")
        return " ".join(part for part in text.split(" ") if part)

    assert [clean(entity.canonical_name) for entity in found] == [clean(f"n{name}n") for name, _ in rows]
