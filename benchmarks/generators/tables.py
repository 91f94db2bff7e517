"""Generates one table of names as TSV, CSV, JSON, JSON Lines, Parquet and xlsx, with the same rows in each."""

from __future__ import annotations

import json
import random
import zipfile
from collections.abc import Iterable, Iterator
from itertools import chain, islice
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


def joined(n_bytes: int) -> Iterator[list[str]]:
    """The rows with their lists in one cell, after the header."""
    yield list(HEADER)
    for row in rows(n_bytes):
        yield [cell if isinstance(cell, str) else "|".join(cell) for cell in row]


def make_tsv(folder: Path, n_bytes: int) -> None:
    """The table as TSV."""
    _write(folder / "base.tsv", ("\t".join(row) + "\n" for row in joined(n_bytes)))


def make_csv(folder: Path, n_bytes: int) -> None:
    """The table as CSV; no cell has a comma without a quote around it."""
    cells = ((f'"{cell}"' if "," in cell else cell for cell in row) for row in joined(n_bytes))
    _write(folder / "base.csv", (",".join(row) + "\r\n" for row in cells))


def make_jsonl(folder: Path, n_bytes: int) -> None:
    """The table as JSON Lines."""
    _write(folder / "base.jsonl", (json.dumps(dict(zip(HEADER, row, strict=True))) + "\n" for row in rows(n_bytes)))


def make_json(folder: Path, n_bytes: int) -> None:
    """The table as one JSON array."""
    cells = (json.dumps(dict(zip(HEADER, row, strict=True)), indent=1) for row in rows(n_bytes))
    _write(
        folder / "base.json", chain(("[\n",), ((",\n" if i else "") + cell for i, cell in enumerate(cells)), "\n]\n")
    )


def _write(path: Path, parts: Iterable[str]) -> None:
    path.parent.mkdir()
    with path.open("w", encoding="utf-8", newline="") as file:
        file.writelines(parts)


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
            for row in islice(joined(n_bytes), 1_000_000):
                written = "".join(f'<c t="inlineStr"><is><t>{cell}</t></is></c>' for cell in row)
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
