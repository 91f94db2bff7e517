"""Generates one table of names as TSV, CSV, JSON, JSON Lines, Parquet and xlsx, with the same rows in each."""

from __future__ import annotations

import csv
import json
import random
import zipfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

HEADER = ("id", "name", "aliases", "type", "description")
BYTES_A_ROW = 68
"""Of the TSV file, on average."""

_BATCH = 65_536
_TYPES = ("PER", "GPE|city", "ORG", "")
_WORDS = "north river saint old valley company new museum of the lake john maria university football club".split()


def rows(n_bytes: int) -> Iterator[tuple[str, str, list[str], list[str], str]]:
    """Rows of a table that has about this many bytes as TSV."""
    chosen = random.Random(7)
    for i in range(n_bytes // BYTES_A_ROW):
        words = [" ".join(chosen.choices(_WORDS, k=3)).title() for _ in range(1 + chosen.randrange(3))]
        name, *aliases = (f"{word} {i % 9973}" for word in words)
        kinds = chosen.choice(_TYPES)
        description = "one of the places, or persons" if not i % 4 else ""
        yield f"Q{i}", name, aliases, kinds.split("|") if kinds else [], description


def make_tsv(folder: Path, n_bytes: int) -> None:
    """The table as TSV."""
    folder.mkdir()
    with (folder / "base.tsv").open("w", encoding="utf-8") as file:
        file.write("\t".join(HEADER) + "\n")
        for row in rows(n_bytes):
            file.write("\t".join(cell if isinstance(cell, str) else "|".join(cell) for cell in row) + "\n")


def make_csv(folder: Path, n_bytes: int) -> None:
    """The table as CSV."""
    folder.mkdir()
    with (folder / "base.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(HEADER)
        for row in rows(n_bytes):
            writer.writerow(cell if isinstance(cell, str) else "|".join(cell) for cell in row)


def make_jsonl(folder: Path, n_bytes: int) -> None:
    """The table as JSON Lines."""
    folder.mkdir()
    with (folder / "base.jsonl").open("w", encoding="utf-8") as file:
        for row in rows(n_bytes):
            file.write(json.dumps(dict(zip(HEADER, row, strict=True))) + "\n")


def make_json(folder: Path, n_bytes: int) -> None:
    """The table as one JSON array."""
    folder.mkdir()
    with (folder / "base.json").open("w", encoding="utf-8") as file:
        file.write("[\n")
        for i, row in enumerate(rows(n_bytes)):
            file.write((",\n" if i else "") + json.dumps(dict(zip(HEADER, row, strict=True)), indent=1))
        file.write("\n]\n")


def make_xlsx(folder: Path, n_bytes: int) -> None:
    """The table as a workbook of one sheet, at most the million rows that a sheet has."""
    folder.mkdir()
    main = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006"
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{package}/content-types"/>',
        "_rels/.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="a" '
        f'Type="{office}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook {main} xmlns:r="{office}"><sheets><sheet name="names" sheetId="1" r:id="a"/>'
        "</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="a" '
        f'Type="{office}/worksheet" Target="worksheets/sheet1.xml"/></Relationships>',
    }
    with zipfile.ZipFile(folder / "base.xlsx", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
        with archive.open("xl/worksheets/sheet1.xml", "w") as sheet:
            sheet.write(f"<worksheet {main}><sheetData>".encode())
            for row in (HEADER, *islice(rows(n_bytes), 1_000_000)):
                cells = (cell if isinstance(cell, str) else "|".join(cell) for cell in row)
                written = "".join(f'<c t="inlineStr"><is><t>{cell}</t></is></c>' for cell in cells)
                sheet.write(f"<row>{written}</row>".encode())
            sheet.write(b"</sheetData></worksheet>")


def make_parquet(folder: Path, n_bytes: int) -> None:
    """The table as Parquet, with lists of text."""
    import pyarrow as pa
    from pyarrow import parquet

    folder.mkdir()
    text, texts = pa.string(), pa.list_(pa.string())
    schema = pa.schema(list(zip(HEADER, (text, text, texts, texts, text), strict=True)))
    iterator = rows(n_bytes)
    with parquet.ParquetWriter(folder / "base.parquet", schema) as writer:
        while batch := list(islice(iterator, _BATCH)):
            columns = dict(zip(HEADER, zip(*batch, strict=True), strict=True))
            writer.write_table(pa.table({name: list(values) for name, values in columns.items()}, schema=schema))
