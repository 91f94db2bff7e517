"""The column of popularity, from a table to the answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest
from cli_runner import Run
from pyarrow import parquet

from ingest.base.scan import scan
from ingest.formats import ReadOptions, open_reader
from ingest.io.report import ReadReport
from ingest.readers.columns import TableColumns
from pearl_qdrant import make_entity
from pearl_qdrant.errors import FormatError, InvalidEntityError
from pearl_qdrant.linking.editing import check_entity
from pearl_qdrant.records import Entity

ROWS = [
    {"id": "Q90", "name": "Paris", "popularity": 950.5},
    {"id": "Q830149", "name": "Paris, Texas", "popularity": None},
    {"id": "Q167646", "name": "Paris", "popularity": 0.0},
]


def as_text(mark: str) -> str:
    """The rows with a header, cells separated by a character; an unknown popularity is blank."""
    rows = [
        mark.join(f'"{value}"' if "," in str(value) else "" if value is None else str(value) for value in row.values())
        for row in ROWS
    ]
    return "\n".join((mark.join(ROWS[0]), *rows)) + "\n"


FORMS: dict[str, Callable[[Path], object]] = {
    "tsv": lambda path: path.write_text(as_text("\t").replace('"', "")),
    "csv": lambda path: path.write_text(as_text(",")),
    "jsonl": lambda path: path.write_text("".join(json.dumps(row) + "\n" for row in ROWS)),
    "parquet": lambda path: parquet.write_table(pyarrow.Table.from_pylist(ROWS), path),
}


def read(path: Path, columns: TableColumns | None = None, report: ReadReport | None = None) -> list[Entity]:
    """All entities of a file, scattered rows merged."""
    with open_reader([path], options=ReadOptions(columns=columns)) as reader:
        scattered = scan(reader, ReadReport(max_errors=None)).scattered
        return list(reader.read(report or ReadReport(), scattered=scattered))


def table(path: Path, *rows: str, header: str = "id\tname\tpopularity") -> Path:
    """The path, with a TSV file there."""
    path.write_text("\n".join((header, *rows)) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("form", FORMS)
def test_a_column_called_popularity_needs_no_option(tmp_path: Path, form: str) -> None:
    """In every form of a table the numbers are read; blank is unknown, and zero is a number."""
    FORMS[form](tmp_path / "base")

    entities = read(tmp_path / "base", report=ReadReport(max_errors=0))

    assert [(one.entity_id, one.popularity) for one in entities] == [
        ("Q90", 950.5),
        ("Q830149", None),
        ("Q167646", 0.0),
    ]
    assert all(not one.extra for one in entities)


@pytest.mark.parametrize("column", ["Views", "3"])
def test_an_option_names_the_column(tmp_path: Path, column: str) -> None:
    """Another column can be named, or numbered; a column called popularity is a further field then."""
    path = table(tmp_path / "base", "Q90\tParis\t12\thigh", header="id\tname\tviews\tpopularity")

    (entity,) = read(path, TableColumns(popularity=column))

    assert entity.popularity == 12.0
    assert entity.extra == {"column_popularity": "high"}


def test_a_numbered_column_of_a_table_without_header_is_not_the_type(tmp_path: Path) -> None:
    """Without a header, the third column gives types unless it is named as the popularity."""
    (tmp_path / "base").write_text("Q90\tParis\t12\n", encoding="utf-8")

    assert read(tmp_path / "base", TableColumns(popularity="3")) == [Entity("Q90", "Paris", popularity=12.0)]


def test_a_missing_column_is_an_error_with_its_option(tmp_path: Path) -> None:
    """The error shows the columns that exist."""
    with pytest.raises(FormatError, match="no column 'views' for the popularity") as raised:
        read(table(tmp_path / "base", "Q90\tParis\t1"), TableColumns(popularity="views"))

    assert raised.value.option == "popularity_column"


@pytest.mark.parametrize("cell", ["-1", "inf", "1e999", "many", "1_000x", "0x10"])
def test_what_is_no_number_is_left_out_and_said(tmp_path: Path, cell: str) -> None:
    """The entity stays; a warning says how many cells are no number, and where the first one is."""
    report = ReadReport()

    entities = read(table(tmp_path / "base", f"Q1\tA\t{cell}", "Q2\tB\t 2 "), report=report)

    assert [(one.entity_id, one.popularity) for one in entities] == [("Q1", None), ("Q2", 2.0)]
    (warning,) = report.warnings
    assert "1 rows have a popularity that is no number" in warning.message
    assert f":2: '{cell}'" in warning.message


@pytest.mark.parametrize("cell", ["1,234", "1 234", "1'234", "1_234", "1,234.0"])
def test_thousands_may_be_grouped(tmp_path: Path, cell: str) -> None:
    """Numbers as people write them are numbers; marks for nothing are nothing."""
    report = ReadReport()

    entities = read(table(tmp_path / "base", f"Q1\tA\t{cell}", "Q2\tB\tNaN", "Q3\tC\t-"), report=report)

    assert [one.popularity for one in entities] == [1234.0, None, None]
    assert report.warnings == []


@pytest.mark.parametrize("value", ["[1, 2]", "true", '{"views": 1}'])
def test_json_that_is_no_number_is_left_out_too(tmp_path: Path, value: str) -> None:
    """Lists, objects and booleans are no popularity."""
    path = tmp_path / "base"
    path.write_text(f'{{"id": "1", "name": "A", "popularity": {value}}}\n{{"id": "2", "name": "B"}}\n')
    report = ReadReport()

    assert [(one.entity_id, one.popularity) for one in read(path, report=report)] == [("1", None), ("2", None)]
    assert len(report.warnings) == 1


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [0, 3, 1, 2], [3, 2, 1, 0]])
def test_merged_rows_keep_the_largest(tmp_path: Path, order: list[int]) -> None:
    """Whether rows of an id are adjacent or scattered, and in any order."""
    rows = ["Q1\tA\t", "Q1\tB\t3", "Q1\tC\t2", "Q2\tD\t1"]

    entities = read(table(tmp_path / "base", *(rows[i] for i in order)))

    assert {one.entity_id: one.popularity for one in entities} == {"Q1": 3.0, "Q2": 1.0}


@pytest.mark.parametrize("popularity", [-1.0, float("nan"), float("inf")])
def test_an_entity_of_my_own_is_checked(popularity: float) -> None:
    """A popularity that cannot be compared is refused before it is stored."""
    with pytest.raises(InvalidEntityError, match="popularity"):
        make_entity("acme", "Acme", popularity=popularity)
    with pytest.raises(InvalidEntityError, match="popularity"):
        check_entity(Entity("acme", "Acme", popularity=popularity))


@pytest.mark.parametrize("popularity", ["7", True, 1j])
def test_a_popularity_that_is_no_number_is_refused(popularity: object) -> None:
    """Text, booleans and complex numbers are no popularity."""
    with pytest.raises(InvalidEntityError, match="popularity of entity 'acme' is no finite number"):
        check_entity(Entity("acme", "Acme", popularity=popularity))  # type: ignore[arg-type]


def test_popularity_is_stored_shown_and_updated(run: Run, model: Path, tmp_path: Path) -> None:
    """`link`, `entities show` and an update know it, and an entity can be added with one."""
    path = table(tmp_path / "base.tsv", "Q90\tParis\t950.5", "Q1\tRome\t")
    assert run("ingest", str(path), "--model", str(model)).status == 0

    (link,) = run("link", "Paris", "--json", "--threshold", "0", "--limit", "2").lines()
    shown = run("entities", "show", "Q90").out
    table(path, "Q90\tParis\t0", "Q1\tRome\t5")
    (updated,) = run("ingest", str(path), "--model", str(model), "--update", "--json").lines()
    added = run("entities", "add", "--id", "X", "--name", "Oslo", "--popularity", "3")
    popularity = {one: run("entities", "show", one, "--json").lines()[0]["popularity"] for one in ("Q90", "Q1", "X")}

    candidates = link["candidates"]
    assert isinstance(candidates, list)
    assert {one["entity_id"]: one["popularity"] for one in candidates} == {"Q90": 950.5, "Q1": None}
    assert "popularity  950.5" in shown
    assert "popularity  0.0" in run("entities", "show", "Q90").out
    assert (updated["changed"], updated["added"]) == (2, 0)
    assert added.status == 0, added.err
    assert popularity == {"Q90": 0.0, "Q1": 5.0, "X": 3.0}
