"""Tables with habits of their own are read as their owners mean them, or the report says what was made of them.
Warnings about tables that can be read, but probably not as they are meant.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import pyarrow
import pytest
from cli_runner import Run
from pyarrow import parquet
from tables import workbook

from ingest.base.format import ReadOptions, TableColumns
from ingest.base.reader import scan
from ingest.formats import detect_format, open_reader
from ingest.io import streams
from ingest.io.report import ReadReport
from ingest.load_base import scan_base
from pearl_qdrant.errors import FormatError, OptionError, TooManyErrorsError

Names = dict[str, list[str]]


def read(table: Path | str, report: ReadReport | None = None, **options: object) -> Names:
    """The names in a table, a file or a text, by id."""
    with tempfile.TemporaryDirectory() as folder:
        if isinstance(table, str):
            (Path(folder) / "base").write_text(table, encoding="utf-8")
            table = Path(folder) / "base"
        with open_reader([table], options=ReadOptions(**options)) as reader:  # type: ignore[arg-type]
            return {entity.entity_id: list(entity.names()) for entity in reader.read(report or ReadReport())}


ONE: Names = {"1": ["Foo"], "2": ["Bar"]}
LISTED: Names = {"1": ["Foo", "a", "b c"], "2": ["Bar"]}


@pytest.mark.parametrize(
    "text, expected",
    [
        # separators of lists
        ("id,name,aliases\n1,Foo,a|b c\n2,Bar,\n", LISTED),
        ("id,name,aliases\n1,Foo,a; b c\n2,Bar,\n", LISTED),
        ("id\tname\taliases\n1\tFoo\ta;b c\n2\tBar\t\n", LISTED),
        ('id,name,aliases\n1,Foo,"[\'a\', \'b c\']"\n2,Bar,[]\n', LISTED),
        ('id,name,aliases\n1,Foo,"[""a"", ""b c""]"\n2,Bar,[]\n', LISTED),
        ("id,name,aliases\n1,Foo,\"('a', 'b c')\"\n2,Bar,()\n", LISTED),
        ('id,name,aliases\n1,Foo,"{a,""b c""}"\n2,Bar,{}\n', LISTED),
        ("id\tname\talternatenames\n1\tFoo\ta,b c\n2\tBar\t\n", LISTED),
        ('id\tname\tsynonyms\n1\tFoo\t"a|b c"\n2\tBar\t\n', LISTED),
        ("id,name,alias,aliases\n1,Foo,b c,a\n2,Bar,,\n", {"1": ["Foo", "a", "b c"], "2": ["Bar"]}),
        ('id,name,aliases\n1,Foo,"Smith, J."\n2,Bar,"2,4-D"\n', {"1": ["Foo", "Smith, J."], "2": ["Bar", "2,4-D"]}),
        ("id\tname\taliases\n1\tFoo\tN,N-dimethyl\n2\tBar\tO,O-diethyl\n", {"1": ["Foo", "N,N-dimethyl"],
                                                                         "2": ["Bar", "O,O-diethyl"]}),
        # missing values
        *[(f"id\tname\taliases\ttype\tpopularity\n1\tFoo\t{mark}\t{mark}\t{mark}\n2\tBar\t\t\t\n", ONE)
          for mark in ("\\N", "NULL", "null", "NaN", "NA", "N/A", "n/a", "#N/A", "<NA>", "None", "none", "-")],
        ("id\tname\taliases\n1\tFoo\tNA|\\N|b\n2\tBar\t\n", {"1": ["Foo", "NA", "b"], "2": ["Bar"]}),
        ("id\tname\nNA\tNA\nSE\tnone\n", {"NA": ["NA"], "SE": ["none"]}),
        # headers
        ("# made by toys\n# 2026\nid\tname\n1\tFoo\n2\tBar\n", ONE),
        ("#id\tname\n1\tFoo\n2\tBar\n", ONE),
        ("#id\tname\n1\tFoo\n# a note\n2\tBar\n", ONE),
        ("sep=;\nid;name\n1;Foo\n2;Bar\n", ONE),
        ('"sep=,"\nid,name\n1,Foo\n2,Bar\n', ONE),
        ("Register of toys\n\nid,name\n1,Foo\n2,Bar\n", ONE),
        ("Register of toys;;\nof 2026;;\nid;name;type\n1;Foo;x\n2;Bar;y\n", ONE),
        ("\ufeffID,Name\r\n1,Foo\r\n2,Bar\r\n", ONE),
        ("code,label\n1,Foo\n2,Bar\n", ONE),
        ("uri\tprefLabel\n1\tFoo\n2\tBar\n", ONE),
        ("Concept ID,Preferred Label\n1,Foo\n2,Bar\n", ONE),
        # quoting
        ('id, name, aliases\n1, "Foo", "a|b c"\n2, Bar, \n', LISTED),
        ('"id"\t"name"\n"1"\t"Foo"\n"2"\t"Bar"\n', ONE),
        ('id,name\n1,"Foo"\n2,"Bar"\n', ONE),
        ('id,name\n1,"Foo\nbar"\n2,Bar\n', {"1": ["Foo bar"], "2": ["Bar"]}),
        ('id,name\n1,"Weird Al" Yankovic\n2,5" nail\n', {"1": ['"Weird Al" Yankovic'], "2": ['5" nail']}),
        ("id\tname\n1\t\"Weird Al\" Yankovic\n2\t'Round\n", {"1": ['"Weird Al" Yankovic'], "2": ["'Round"]}),
        ('id,name\n="1","Foo"\n="2","Bar"\n', ONE),
        ("id,name,\n1,Foo,\n2,Bar,\n", ONE),
        # separators of columns
        ("1;Foo, Inc.\n2;Bar\n", {"1": ["Foo, Inc."], "2": ["Bar"]}),
        ("1,Foo\n2,Bar\n", ONE),
        ("id|name\n1|Foo\n2|Bar\n", ONE),
        ("1\t|\tFoo\t|\n2\t|\tBar\t|\n", ONE),
        # lists as numpy prints them, and typed into spreadsheets; quotes within quotes
        ("id,name,aliases\n1,Foo,\"['a' 'b c']\"\n2,Bar,\"['C'\n 'D']\"\n", {**LISTED, "2": ["Bar", "C", "D"]}),
        ('id,name,aliases\n1,Foo,"a\nb c\n"\n2,"Two\nlines",x|y\n', {**LISTED, "2": ["Two lines", "x", "y"]}),
        ("conceptType,conceptUri,preferredLabel,altLabels\n"
         + "".join(f'Skill,http://a/{i},label {i},"one {i}\nother {i}"\n' for i in range(8)),
         {f"http://a/{i}": [f"label {i}", f"one {i}", f"other {i}"] for i in range(8)}),
        *[(f'"id","name","aliases"\n"7","Foo","Bar"\n{row}\n', {"7": ["Foo", "Bar"], "1": names}) for row, names in (
            ('"1","morphine \\"forte\\"","xm"', ['morphine "forte"', "xm"]),
            ('"1","Weird "Al" Yankovic","Al"', ['Weird "Al" Yankovic', "Al"]),
            ('1,"Weird Al" Yankovic,Al', ['"Weird Al" Yankovic', "Al"]))],
        # quotes of CSV between tabs: a doubled quote or a bar within them, a column all in quotes
        *[(f"id\tname\ttype\taliases\n{row}\n{row}\n", {"D7": names}) for row, names in (
            ('D7\t"5"" floppy disk"', ['5" floppy disk']), ('D7\tdisk\t\t"a ""b"" c|x"', ["disk", 'a "b" c', "x"]),
            ('"D7"\t"flu"', ["flu"]), ('D7\t"""Heroes"""', ['"Heroes"']), ('D7\tdisk\t\t"a|b"', ["disk", "a", "b"]))],
        # JSON
        ('{"id": 1, "name": "Foo", "aliases": [{"value": "a"}, {"label": "b c"}]}\n{"id": 2, "name": "Bar"}\n', LISTED),
        (json.dumps([{"id": 1, "name": "Foo"}, {"id": 2, "name": "Bar"}], indent=2), ONE),
        (json.dumps({"data": [{"id": 1, "name": "Foo"}, {"id": 2, "name": "Bar"}]}), ONE),
        (json.dumps({"1": {"label": "Foo"}, "2": {"label": "Bar"}}), ONE),
        ('{"ID": 1, "Name": "Foo"}\n{"id": "2", "name": "Bar", "aliases": null}\n', ONE),
    ],
)  # fmt: skip
def test_a_habit_is_understood(text: str, expected: Names) -> None:
    """Nothing need be said: the first rows show it."""
    assert read(text, ReadReport(max_errors=0)) == expected


@pytest.mark.parametrize(
    "text, options, expected",
    [
        ("1\tFoo\ta,b c\tx\n2\tBar\t\ty\n", {"columns": TableColumns(id="1", name="2")}, ONE),
        ("1\tFoo\ta,b c\n2\tBar\t\n", {"columns": TableColumns(id="1", name="2", aliases=("3",)),
                                       "list_separators": (",",)}, LISTED),
        ("id,name,aka,old\n1,Foo,a,b c\n2,Bar,,\n", {"columns": TableColumns(aliases=("aka", "old"))}, LISTED),
        ("id,name,aka,old\n1,Foo,a/x,b c\n2,Bar,,\n", {"columns": TableColumns(aliases=("aka", "old")),
         "list_separators": ("aka=/",)}, {"1": ["Foo", "a", "x", "b c"], "2": ["Bar"]}),
        ("id,name,aliases\n1,Foo,a;b c\n2,Bar,\n", {"list_separators": ("none",)},
         {"1": ["Foo", "a;b c"], "2": ["Bar"]}),
        ("title\nmore, text\nid,name\n1,Foo\n2,Bar\n", {"skip_lines": 2}, ONE),
        ("kode;navn\n1;Foo\n2;Bar\n", {"columns": TableColumns(id="kode", name="navn")}, ONE),
    ],
)  # fmt: skip
def test_options_say_what_a_table_does_not_show(text: str, options: dict[str, object], expected: Names) -> None:
    """Separators for all lists or one column, several columns of aliases, lines to skip; others stay unused."""
    assert read(text, **options) == expected


def test_what_was_chosen_is_said() -> None:
    """A note names the separator that was found, so that a wrong guess is seen."""
    text, report = "id,name,aliases,types\n1,Foo,a;b,\"['x', 'y']\"\n2,Bar,,\n", ReadReport()

    read(text, report)

    assert "aliases split at ';'" in report.notes[0]
    assert "types are lists" in report.notes[0]
    with pytest.raises(FormatError, match="there is no column 'aka'"):
        read(text, list_separators=("aka=;",))
    with pytest.raises(OptionError, match="separator of lists"):
        read(text, list_separators=("",))


@pytest.mark.parametrize(
    "content, said",
    [
        ("<!DOCTYPE html><html><body>404</body></html>", "a web page"),
        ("\n--\n-- a dump\nSET x = 0;\nCOPY toys (id, name) FROM stdin;\n1\tFoo\n", "an SQL dump"),
        ("version https://git-lfs.github.com/spec/v1\noid sha256:01\nsize 12\n", "Git LFS"),
        ("From: a@b\nSubject: toys\nMIME-Version: 1.0\n\nToys\tof wood\n", "an e-mail"),
        ("{'id': 1, 'name': 'Foo'}\n", "Python's own notation"),
        ("@book{toys,\n title = {Toys}\n}\n", "BibTeX"),
        ("CREATE TABLE x (id int);\nINSERT INTO x VALUES (1);\n", "an SQL dump"),
        ("Ontology(<http://toy.example>)\n", "functional syntax"),
        ("<?xml version='1.0'?>\n<rows>\n<row>1</row>\n</rows>\n", "XML that is no known base"),
    ],
)
def test_what_is_no_table_is_named(content: str, said: str) -> None:
    """The error says what the file is, and not that columns are missing."""
    with pytest.raises(FormatError, match=said):
        read(content)


def test_a_workbook_is_read(tmp_path: Path) -> None:
    """Numbers are ids without a point, titles above the header are passed over, and a sheet can be named."""
    rows: list[list[object]] = [["Register of toys"], ["id", "name", "aliases"], [1, "Foo", "a; b c"], [2.0, "Bar", ""]]
    other: list[list[object]] = [["id", "name"], ["X", "Other"]]
    path, report = workbook(tmp_path / "base.xlsx", {"Empty": [], "Toys": rows, "More": other}), ReadReport()

    assert detect_format([path]) == "xlsx"
    assert read(path, report) == LISTED
    assert "sheet 'Toys' of 3 (Empty, Toys, More)" in report.notes[0]
    assert read(path, records="More") == {"X": ["Other"]}
    with pytest.raises(FormatError, match="has no sheet 'Dolls'"):
        read(path, records="Dolls")


def test_without_its_library_a_workbook_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A workbook is recognised without the extra, and the error says what to install."""
    path = workbook(tmp_path / "base.xlsx", {"Toys": [["id", "name"], [1, "Foo"]]})
    monkeypatch.setitem(sys.modules, "python_calamine", None)

    assert detect_format([path]) == "xlsx"
    with pytest.raises(FormatError, match=r"need python_calamine, which is not installed.*\[workbooks\]"):
        read(path)


def test_a_damaged_workbook_and_a_bomb_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each ends in an error that names the file."""
    path = workbook(tmp_path / "base.xlsx", {"Toys": [["id", "name"], *([[1, "Foo" * 1000]] * 500)]})
    (tmp_path / "cut.xlsx").write_bytes(path.read_bytes()[:-200])
    with pytest.raises(FormatError, match=r"cut\.xlsx"):
        read(tmp_path / "cut.xlsx")
    monkeypatch.setattr(streams, "RATIO_GRACE", 1 << 16)
    monkeypatch.setattr(streams, "MAX_RATIO", 20)
    with pytest.raises(FormatError, match="workbook data expands"):
        read(path)


@pytest.mark.parametrize("form", ["file", "stream", "parquet"])
def test_a_compressed_arrow_file_that_is_a_bomb_is_refused(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sizes that buffers declare are held against the file before any is decompressed."""
    monkeypatch.setattr(streams, "RATIO_GRACE", 1 << 20)
    table = pyarrow.table({"id": ["1"] * 4000, "name": ["x" * 4000] * 4000})
    path, options = tmp_path / "base", pyarrow.ipc.IpcWriteOptions(compression="zstd")
    if form == "parquet":
        parquet.write_table(table, path, compression="zstd", use_dictionary=False, write_statistics=False)
    else:
        write = pyarrow.ipc.new_file if form == "file" else pyarrow.ipc.new_stream
        with write(path, table.schema, options=options) as writer:
            writer.write_table(table)

    before = pyarrow.total_allocated_bytes()
    with pytest.raises(FormatError, match="data expands from"):
        read(path)
    assert pyarrow.total_allocated_bytes() - before < 1 << 20
    if form == "file":  # the end of a stream where the first message was: the index at the end still has the batches
        data = path.read_bytes()
        path.write_bytes(data[:8] + b"\xff\xff\xff\xff\0\0\0\0" + data[16:])
        with pytest.raises(FormatError, match="data expands from"):
            read(path)
        assert pyarrow.total_allocated_bytes() - before < 1 << 20


def test_a_base_that_lacks_rows_is_not_loaded_in_silence(run: Run, tmp_path: Path) -> None:
    """More than 1 % of bad rows is an error with the reason and the first place; a number allows them."""
    path = tmp_path / "base.tsv"
    rows = [f"{i}\tname {i}\n" for i in range(200)]
    path.write_text("id\tname\n" + "".join(rows) + "x\n" * 2)
    assert scan_base(path).entities == 200
    path.write_text("id\tname\n" + "".join(rows) + "x\n" * 3)

    with pytest.raises(TooManyErrorsError, match=r"base\.tsv:202: too_few_columns(?s:.*)3 of 203 rows cannot be read"):
        scan_base(path)
    refused = run("ingest", str(path), "--dry-run")
    assert refused.status == 1
    assert "--set max_errors" in refused.err
    assert scan_base(path, max_errors=3).entities == 200


def test_the_command_lists_what_it_reads(run: Run) -> None:
    """`ingest --format help` names every format and known base with its files."""
    listed = run("ingest", "--format", "help")

    assert listed.status == 0
    for word in ("umls", "rdf", "xlsx", "geonames", "snomed", "SKOS", "hgnc_complete_set.txt"):
        assert word in listed.out


@pytest.mark.parametrize(
    "rows, expected",
    [
        (["drug_id,drug_name,synonyms", *(f"0000{i},drug {i},a{i}|b{i}" for i in range(1, 9))], "drug 3"),
        (["Nummer;Firma;Alias", *(f"000{i};Firma {i};x{i},y{i}" for i in range(1, 9))], "Firma 3"),
    ],
)
def test_a_sign_within_a_column_is_not_taken_for_the_delimiter(rows: list[str], expected: str) -> None:
    """The first row has the delimiter, and lists only where there are names."""
    assert any(names[0] == expected for names in read("\n".join(rows)).values())


def test_broken_json_is_no_table() -> None:
    """The error says where it breaks; its commas make no columns."""
    with pytest.raises(FormatError, match=r"base:1: is not valid JSON.*NaN"):
        read("[" + ",".join(f'{{"id": {i}, "name": "n{i}", "aliases": NaN}}' for i in range(300)) + "]")


@pytest.mark.parametrize("index", ["", "Unnamed: 0"])
def test_the_index_of_pandas_is_no_id(index: str) -> None:
    """A header without an id is no entity, and its aliases are no types."""
    with pytest.raises(FormatError, match=r"looks like a header .'name'., but no column is known to be the id"):
        read(f"{index},name,aliases\n" + "".join(f"{i},n{i},a{i}\n" for i in range(16)))


def test_cells_that_may_be_lists_are_said() -> None:
    """A comma with a blank is part of many names, so it is not taken for a separator."""
    text, report = "id,name,aliases\n" + "".join(f'{i},n{i},"a{i}, b{i}"\n' for i in range(8)), ReadReport()

    assert read(text, report)["3"] == ["n3", "a3, b3"]
    assert any("read as one alias each" in str(warning) for warning in report.warnings)
    report = ReadReport()
    assert read(text, report, list_separators=(", ",))["3"] == ["n3", "a3", "b3"]
    assert report.warnings == []


def test_the_list_of_a_wrapping_object_is_said() -> None:
    """There may be others, so the line about the file names the one that is read."""
    text, report = '{"facets": [{"id": "f1", "name": "Facet"}], "docs": [{"id": "1", "name": "Foo"}]}', ReadReport()

    assert read(text, report) == {"f1": ["Facet"]}
    assert "JSON, the list 'facets'" in report.notes[0]


def test_long_whole_numbers_stay_whole(tmp_path: Path) -> None:
    """Ids of 17 digits in a workbook are floats."""
    path = workbook(tmp_path / "base.xlsx", {"a": [["id", "name"], [12345678901234568, "Foo"]]})

    assert read(path) == {"12345678901234568": ["Foo"]}


ROWS = "D1\tflu\nD2\tcold\nD3\tgout\nD4\tmumps\nD5\trabies\nD6\tplague\n"
LETTERS = "paris\tParis\nrome\tRome\nroute-66\tRoute 66\noslo\tOslo\nbern\tBern\nkyiv\tKyiv\n"
QUOTED = "".join(f'D{i}\t"song {i}"\n' for i in range(9)) + "D9\tsong\nD10\tother\nD11\tthird\n"
LISTED_NAMES, NUMBERED = TableColumns(id="1", name="1"), TableColumns(id="1", name="2")


@pytest.mark.parametrize(
    "text, columns, said",
    [
        ("id,name\n" + "".join(f"{i},https://x.example/{i}\n" for i in range(9)), None, "look like ids or addresses"),
        ("id,name\n" + "".join(f"Foo {i},T{i:04}\n" for i in range(9)), None, "names look like ids or addresses"),
        ("id,name,type\n" + "".join(f"{i},Foo {i},t{i}\n" for i in range(30)), None, "has another value in each row"),
        ("id\tname\taliases\n" + "".join(f"{i}\tFoo {i}\t*\n" for i in range(9)), None, "is '*' in all of the first"),
        ("id,name\n" + "".join(f"{i},CafÃ© {i}\n" for i in range(9)), None, "converted wrongly"),
        ("id,name\n" + "".join(f"{i},Foo &amp; {i}\n" for i in range(9)), None, "converted wrongly"),
        *[(f"{header}\n{ROWS}", None, "") for header in ("Nummer\tlabel\tlang", "clave\tnombre")],
        (f"clave\tnombre\n{ROWS}D7\tflu, mild\n", None, ""),  # tabs in what is read as CSV
        (f"clave\tnombre\n{ROWS}", NUMBERED, ""),  # whoever numbers the columns knows the file
        *[(f"{first}\n{ROWS}", None, "") for first in ("D0\tcode", "id\tname", "D0\tlabel\ttype", "a\ta", "1\tlabel")],
        (f"code\n{ROWS}", LISTED_NAMES, ""),
        ("paris\tParis\nD1\tflu\nD2\tcold\nD3\tgout\n", None, ""),  # three rows are too few
        (LETTERS, None, ""),  # where ids are words, the first one looks like the others
        # names in quotes
        (f"id\tname\n{QUOTED}", NUMBERED, "cells are in quotes"),
        (f"id\tname\n{QUOTED}", NUMBERED, "name the format csv"),
        *[(f"id\tname\nD6\tcold\nD7\t{name}\n", None, "")
          for name in ('"Heroes"', '5"" disk', '"a" and "b"', '""', '"a ""', "flu")],
        ('"Heroes"\nflu\n', LISTED_NAMES, ""),
    ],
)  # fmt: skip
def test_what_may_be_meant_otherwise_is_said(
    tmp_path: Path, text: str, columns: TableColumns | None, said: str
) -> None:
    """The table is read, and one warning names what to look at; what is usual has none. A scan says the same."""
    path, report = tmp_path / "base", ReadReport()
    path.write_text(text, encoding="utf-8")
    with open_reader([path], "csv" if "," in text else "tsv", ReadOptions(columns=columns)) as reader:
        assert list(reader.read(report))
        assert scan(reader).report == report

    assert [said in one.message for one in report.warnings] == [True] * bool(said)


@pytest.mark.parametrize("header", ["Concept\tPreferred Designation\tlang", "ref\tsurface\tlanguage"])
def test_a_header_of_other_words_is_no_entity(run: Run, tmp_path: Path, header: str) -> None:
    """The error lists the columns and the option, and what it says works."""
    path = tmp_path / "base.tsv"
    path.write_text(f"{header}\n{ROWS}", encoding="utf-8")
    id_, name, _ = header.split("\t")

    refused = run("ingest", str(path), "--dry-run")
    right = run("ingest", str(path), "--dry-run", "--json", "--id-column", id_, "--name-column", name)

    assert refused.status == 1
    assert f"columns are: {', '.join(header.split(chr(9)))}" in refused.err
    assert "--id-column" in refused.err
    assert (right.lines()[0]["entities"], "warning" in right.err) == (6, False)
