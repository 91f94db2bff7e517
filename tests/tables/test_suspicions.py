"""Warnings about tables that can be read, but probably not as they are meant."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_runner import Run

from ingest.base.scan import scan
from ingest.formats import ReadOptions, open_reader
from ingest.io.report import ReadReport
from ingest.readers.columns import TableColumns
from ingest.readers.table import looks_like_header

ROWS = "D1\tflu\nD2\tcold\nD3\tgout\nD4\tmumps\nD5\trabies\nD6\tplague\n"


def warnings(tmp_path: Path, text: str, kind: str = "tsv", columns: TableColumns | None = None) -> list[str]:
    """The warnings about a table; scanning and reading it give the same."""
    path = tmp_path / "base"
    path.write_text(text, encoding="utf-8")
    with open_reader([path], kind, ReadOptions(columns=columns)) as reader:
        report = ReadReport()
        list(reader.read(report))
        assert scan(reader).report == report
    return [one.message for one in report.warnings]


@pytest.mark.parametrize(
    "header, kind",
    [
        ("Nummer\tlabel\tlang", "tsv"),
        ("Concept\tPreferred Designation\tlang", "tsv"),
        ("clave\tnombre", "tsv"),
        ("clave\tnombre", "csv"),
        ("ref\tsurface\tlanguage", "tsv"),
    ],
)
def test_a_header_that_is_not_known_gets_a_warning(tmp_path: Path, header: str, kind: str) -> None:
    """Two words of headers, or words above ids with digits, are read as an entity, and a warning says so."""
    (warning,) = warnings(tmp_path, f"{header}\n{ROWS}", kind)

    assert f":1: the first row ({header.replace(chr(9), ', ')}) looks like a header" in warning


@pytest.mark.parametrize(
    "first",
    ["D0\tcode", "id\tname", "D0\tlabel\ttype", "a\ta", "code", "1\tlabel"],
)
def test_rows_that_are_no_header_get_no_warning(tmp_path: Path, first: str) -> None:
    """A known header, an id with digits, empty and repeated cells, and one column are no unknown header."""
    columns = TableColumns(id="1", name="1") if "\t" not in first else None

    assert warnings(tmp_path, f"{first}\n{ROWS}", columns=columns) == []


def test_bases_with_ids_of_letters_get_no_warning(tmp_path: Path) -> None:
    """Where ids are words, the first one looks like the others."""
    assert (
        warnings(tmp_path, "paris\tParis\nrome\tRome\nroute-66\tRoute 66\noslo\tOslo\nbern\tBern\nkyiv\tKyiv\n") == []
    )
    assert not looks_like_header(["paris", "Paris"], [["D1", "x"]] * 3), "three rows are too few"


def test_named_columns_need_no_warning(tmp_path: Path) -> None:
    """Whoever numbers the columns knows the file."""
    assert warnings(tmp_path, f"clave\tnombre\n{ROWS}", columns=TableColumns(id="1", name="2")) == []


@pytest.mark.parametrize(
    "row, name",
    [
        ('D7\t"5"" floppy disk"', '5" floppy disk'),
        ('D7\tdisk\t\t"a ""b"" c|x"', "disk"),
        ('"D7"\t"flu"', "flu"),
        ('D7\t"""Heroes"""', '"Heroes"'),
        ('D7\tdisk\t\t"a|b"', "disk"),
    ],
)
def test_cells_quoted_as_in_csv_are_read_so(tmp_path: Path, row: str, name: str) -> None:
    """A doubled quote or a bar within quotes, and a column all in quotes, show quoting between tabs too."""
    path = tmp_path / "base.tsv"
    path.write_text(f"id\tname\ttype\taliases\n{row}\n{row}\n", encoding="utf-8")

    with open_reader([path]) as reader:
        (entity,) = reader.read(ReadReport())

    assert (entity.entity_id, entity.canonical_name) == ("D7", name)
    assert not any(alias.startswith('"') for alias in entity.aliases)


def test_cells_that_stay_in_quotes_get_a_warning(tmp_path: Path) -> None:
    """Several names in quotes, where others are not, stay as they are; a warning names the format that would help."""
    rows = "".join(f'D{i}\t"song {i}"\n' for i in range(9)) + "D9\tsong\nD10\tother\nD11\tthird\n"

    (warning,) = warnings(tmp_path, f"id\tname\n{rows}", columns=TableColumns(id="1", name="2"))

    assert "cells are in quotes" in warning
    assert "name the format csv" in warning


@pytest.mark.parametrize("row", ['D7\t"Heroes"', 'D7\t5"" disk', 'D7\t"a" and "b"', 'D7\t""', 'D7\t"a ""', "D7\tflu"])
def test_names_with_quotes_get_no_warning(tmp_path: Path, row: str) -> None:
    """A name may begin and end with a quote."""
    assert warnings(tmp_path, f"id\tname\nD6\tcold\n{row}\n") == []
    assert warnings(tmp_path, '"Heroes"\nflu\n', columns=TableColumns(id="1", name="1")) == []


def test_the_command_names_the_options(run: Run, tmp_path: Path) -> None:
    """The warning says what to add, and what it says works."""
    path = tmp_path / "base.tsv"
    path.write_text(f"clave\tnombre\n{ROWS}", encoding="utf-8")

    outcome = run("ingest", str(path), "--dry-run", "--json")
    right = run("ingest", str(path), "--dry-run", "--json", "--id-column", "clave", "--name-column=nombre")

    assert "name the columns of ids and names with --id-column and --name-column" in outcome.err
    assert outcome.lines()[0]["entities"] == 7
    assert (right.lines()[0]["entities"], "warning" in right.err) == (6, False)
