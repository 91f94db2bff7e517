"""Reading bases from comma-separated values."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import pytest
from cli_runner import Run
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.formats import ReadOptions, detect_format, open_reader
from ingest.io.report import ReadReport
from ingest.readers.columns import TableColumns
from ingest.readers.table import TableReader
from pearl_qdrant.errors import FormatError, OptionError
from pearl_qdrant.records import Entity


def read(
    content: str | bytes,
    columns: TableColumns | None = None,
    *,
    delimiter: str | None = None,
    report: ReadReport | None = None,
) -> list[Entity]:
    """Entities of a text that comes through standard input."""
    data = content if isinstance(content, bytes) else content.encode()
    with TableReader(
        ["-"], ReadOptions(columns=columns, delimiter=delimiter), kind="csv", stdin=io.BytesIO(data)
    ) as reader:
        return list(reader.read(ReadReport() if report is None else report))


def names(content: str | bytes, **options: str) -> list[str]:
    """The canonical names."""
    return [entity.canonical_name for entity in read(content, **options)]  # type: ignore[arg-type]


def test_quoted_cells_hold_delimiters_quotes_and_line_breaks() -> None:
    """RFC 4180: a quoted cell may hold anything; a line break in it becomes one space."""
    text = 'id,name,description\r\nQ1,"Paris, ""the"" city","on the\r\nSeine"\r\nQ2,Rome,\r\n'
    report = ReadReport(max_errors=0)

    assert read(text, report=report) == [
        Entity("Q1", 'Paris, "the" city', (), (), (), "on the Seine"),
        Entity("Q2", "Rome"),
    ]
    assert report.place == ("-", 4)


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_the_delimiter_is_found_in_the_header(mark: str) -> None:
    """Comma, semicolon, tab and bar are found, also if cells hold the others."""
    text = f'id{mark}name{mark}kind\nQ1{mark}"a,b;c|d\te"{mark}"1,5"\n'

    assert names(text) == ["a,b;c|d e"]


def test_the_delimiter_is_found_without_a_header() -> None:
    """Rows of equal length show the delimiter if only one character gives them."""
    assert names("Q1;Paris\nQ2;Rome, Italy\n") == ["Paris", "Rome, Italy"]


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
        read(text)

    assert raised.value.option == "delimiter"


def test_a_given_delimiter_is_taken() -> None:
    """Any character can be given, and tab by its name; a list of names needs none."""
    assert names("id:name\nQ1:Paris\n", delimiter=":") == ["Paris"]
    assert names("id\tname\nQ1\tParis\n", delimiter="tab") == ["Paris"]
    assert [e.entity_id for e in read('flu\n"cold, common"\n', TableColumns(id="1", name="1"))] == [
        "flu",
        "cold, common",
    ]


@pytest.mark.parametrize("given", ["", "::", '"', "\n"])
def test_a_senseless_delimiter_is_refused(tmp_path: Path, given: str) -> None:
    """A delimiter is one character."""
    (tmp_path / "a.csv").write_text("id,name\n1,a\n")

    with pytest.raises(OptionError, match="one character"):
        open_reader([tmp_path / "a.csv"], options=ReadOptions(delimiter=given), kind="csv")


@pytest.mark.parametrize(
    "text, expected",
    [
        ("id,name\n1,a\n", "csv"),
        ("CUI;Canonical_Name;type\n1;a;b\n", "csv"),
        ('\n"id","name"\n1,a\n', "csv"),
        ("Q1,Paris\nQ2,Rome\n", "csv"),
        ("id|name\n1|a\n", "csv"),
        ("sep=;\nid;name\n1;a\n", "csv"),
        ("id\tname\n1\ta,b\n", "tsv"),
        ("idname\n", "tsv"),
    ],
)
def test_csv_is_told_from_tsv_by_its_first_rows(tmp_path: Path, text: str, expected: str) -> None:
    """The sign that gives a header, or each row the same number of cells, decides; tabs go first."""
    (tmp_path / "base.csv").write_text(text)

    assert detect_format([tmp_path / "base.csv"]) == expected


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

    found = read("id,name,type\n" + "".join(rows) + 'Q3000,"last', report=report)

    assert len(found) == 2999
    assert report.skipped == {"bad_quoting": 2}
    assert [skip.line for skip in report.examples] == [7, 3002]
    assert [found[i].canonical_name for i in (8, 10)] == ['"closed" badly', '5" pipe']


@pytest.mark.slow
def test_a_file_full_of_stray_quotes_is_read_in_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are read again only within a budget, so the work stays proportional to the file."""
    from ingest.readers import delimited

    pulled = 0
    real = delimited._Feed.__next__

    def count(self: delimited._Feed) -> str:
        nonlocal pulled
        pulled += 1
        return real(self)

    monkeypatch.setattr(delimited._Feed, "__next__", count)
    n_lines = 400_000
    report = ReadReport(max_errors=None)

    read("id,name\n" + 'x","\n' * n_lines, report=report)

    assert report.n_skipped >= 1
    assert pulled < 2 * (2 * n_lines + 300_000)  # two passes


def test_bad_lines_and_short_rows_are_skipped() -> None:
    """Reasons are those of TSV: invalid text, NUL, missing id or name, wrong number of cells."""
    report = ReadReport()
    text = "id,name,x\n1,ä,\n".encode() + b"2,\xff,\n3,b\0,\n,c,\n4, ,\n5\n6,d,e,f\n7,g,h,\n\n,,\n"

    assert [entity.entity_id for entity in read(text, report=report)] == ["1", "7"]
    assert report.skipped == {
        "invalid_utf8": 1,
        "nul_character": 1,
        "no_id": 1,
        "no_name": 1,
        "too_few_columns": 1,
        "too_many_columns": 1,
    }
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
    found = read(buffer.getvalue().encode(), report=ReadReport(max_errors=0))

    def clean(text: str) -> str:
        for mark in ("\r\n", "\n", "\r", "\t"):
            text = text.replace(mark, " ")
        return " ".join(part for part in text.split(" ") if part)

    assert [clean(entity.canonical_name) for entity in found] == [clean(f"n{name}n") for name, _ in rows]
