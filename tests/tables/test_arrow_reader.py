"""Reading bases from Parquet and Arrow files."""

from __future__ import annotations

import datetime
import struct
import sys
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from cli_runner import Run
from pyarrow import parquet
from tables import WRITERS, arrow_table

from ingest.formats import ReadOptions, detect_format, open_reader
from ingest.io.report import ReadReport
from ingest.readers import arrow_rows
from ingest.readers.columns import TableColumns
from pearl_qdrant.errors import FormatError
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
    table = pyarrow.table({"s": [{"x": 1}], "kode": ["Q1"], "label": ["Paris"], "many": [["a", "b"]]})

    assert [e.canonical_name for e in read(tmp_path / "x", table, TableColumns(id="2", name="3"))] == ["Paris"]
    for name in ("1", "many"):
        with pytest.raises(FormatError, match="are not text"):
            read(tmp_path / "x", table, TableColumns(id="kode", name=name))
    with pytest.raises(FormatError, match=r"to be the id. Name it \(the columns are: s, kode, label, many\)"):
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


def test_an_old_feather_file_is_named(tmp_path: Path) -> None:
    """Feather of version 1 is not read; the error says what to write instead."""
    (tmp_path / "x").write_bytes(b"FEA1" + bytes(100) + b"FEA1")

    with open_reader([tmp_path / "x"]) as reader, pytest.raises(FormatError, match="Feather file of version 1"):
        list(reader.read(ReadReport()))


@pytest.mark.slow
def test_a_bomb_is_stopped(tmp_path: Path) -> None:
    """A small file that promises gigabytes in one row group is refused before it is read."""
    path = tmp_path / "x"
    text = "a" * (1 << 20)
    table = pyarrow.table({"id": ["1"] * 128, "name": [text + str(i) for i in range(128)]})
    parquet.write_table(table, path, compression="zstd", use_dictionary=False)

    with pytest.raises(FormatError, match="its Parquet data expands from"):
        read(path)


def test_a_wrong_offset_inside_a_column_is_damage(tmp_path: Path) -> None:
    """An offset between two sound ones that points elsewhere ends in an error that names the file, not in a crash."""
    offsets = pyarrow.py_buffer(struct.pack("<4i", 0, 1, -(1 << 30), 3))
    names = pyarrow.Array.from_buffers(pyarrow.string(), 3, [None, offsets, pyarrow.py_buffer(b"abc")])
    table = pyarrow.table({"id": ["1", "2", "3"], "name": names})
    path = tmp_path / "x"
    with pyarrow.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)

    with pytest.raises(FormatError, match="the Arrow data is damaged"):
        read(path)
