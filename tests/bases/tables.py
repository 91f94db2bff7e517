"""One small table in every tabular format, with the same entities in each, and a check for any input."""

from __future__ import annotations

import json
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow import feather, parquet
from standard_input import given_input

from ingest.base.format import ReadOptions
from ingest.base.reader import Reader, scan
from ingest.io.report import ReadReport
from ingest.readers.table import TableReader
from pearl_qdrant.errors import InputError
from pearl_qdrant.records import Entity

ENTITIES = [
    Entity("Q90", "Paris, France", ("Paname", "City of Light"), ("city", "GPE"), ("GPE",), "capital", {"rank": "1"}),
    Entity("Q220", 'Rome "the eternal"', (), ("GPE",), ("GPE",), None, {"rank": "2"}),
    Entity("Q585", "Oslo|Christiania", ("Kristiania|Oslo",), (), (), "a city", {}),
]

CSV = (
    "id,name,aliases,type,description,rank\n"
    'Q90,"Paris, France",Paname|City of Light,city|GPE,capital,1\n'
    'Q220,"Rome ""the eternal""",,GPE,,2\n'
    r"Q585,Oslo|Christiania,Kristiania\|Oslo,,a city," + "\n"
)
TSV = (
    "id\tname\taliases\ttype\tdescription\trank\n"
    "Q90\tParis, France\tPaname|City of Light\tcity|GPE\tcapital\t1\n"
    'Q220\tRome "the eternal"\t\tGPE\t\t2\n'
    "Q585\tOslo|Christiania\tKristiania\\|Oslo\t\ta city\t\n"
)
ROWS = [
    {
        "id": "Q90",
        "name": "Paris, France",
        "aliases": ["Paname", "City of Light"],
        "type": ["city", "GPE"],
        "description": "capital",
        "rank": 1,
    },
    {"id": "Q220", "name": 'Rome "the eternal"', "type": ["GPE"], "rank": 2},
    {"id": "Q585", "name": "Oslo|Christiania", "aliases": ["Kristiania|Oslo"], "description": "a city"},
]
JSONL = "".join(json.dumps(row) + "\n" for row in ROWS)


def arrow_table() -> pyarrow.Table:
    """The rows, with lists of text for aliases and types."""
    kinds = {"id": "string", "name": "string", "description": "string", "rank": "int64"}
    fields = [
        (name, pyarrow.type_for_alias(kinds[name]) if name in kinds else pyarrow.list_(pyarrow.string()))
        for name in ROWS[0]
    ]
    return pyarrow.Table.from_pylist(ROWS, schema=pyarrow.schema(fields))


def write_stream(table: pyarrow.Table, path: Path) -> None:
    """An Arrow stream."""
    with pyarrow.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table)


WRITERS: dict[str, Callable[[pyarrow.Table, Path], object]] = {
    "parquet": parquet.write_table,
    "feather": feather.write_feather,
    "plain arrow": lambda table, path: feather.write_feather(table, path, compression="uncompressed"),
    "stream": write_stream,
}
"""How an Arrow table is written."""


def written_tables() -> dict[str, bytes]:
    """The table as each of `WRITERS` writes it."""
    contents = {}
    with tempfile.TemporaryDirectory() as folder:
        for form, write in WRITERS.items():
            path = Path(folder) / "table"
            write(arrow_table(), path)
            contents[form] = path.read_bytes()
    return contents


def read_text(kind: str, content: str | bytes, report: ReadReport | None = None, **options: Any) -> list[Entity]:
    """Entities of a text that comes through standard input; options as of `ReadOptions`."""
    data = content if isinstance(content, bytes) else content.encode()
    with given_input(data, TableReader, ["-"], ReadOptions(**options), kind=kind) as reader:
        return list(reader.read(report or ReadReport()))


def check_reads_or_refuses(open_reader: Callable[[], Reader]) -> None:
    """An input ends in entities and counted skips, with scanning and reading agreed, or in an error about the input."""
    report = ReadReport(max_errors=None)
    try:
        with open_reader() as reader:
            entities = list(reader.read(report))
            result = scan(reader, ReadReport(max_errors=None))
    except InputError:
        return

    assert all(name == name.strip() and name for entity in entities for name in entity.names())
    assert report.rows == len(entities) + report.merged_rows + report.n_skipped
    assert result.report == report


def workbook(path: Path, sheets: dict[str, list[list[object]]]) -> Path:
    """A workbook with text and numbers in its cells, as few parts as its reader wants."""
    kind = "http://schemas.openxmlformats.org"
    links, package = f"{kind}/officeDocument/2006/relationships", f'xmlns="{kind}/package/2006/relationships"'
    parts = {"[Content_Types].xml": "<Types/>"}
    book = f'<Relationship Id="r" Type="{links}/officeDocument" Target="xl/workbook.xml"/>'
    parts["_rels/.rels"] = f"<Relationships {package}>{book}</Relationships>"
    named = "".join(f'<sheet name="{name}" sheetId="{i}" r:id="r{i}"/>' for i, name in enumerate(sheets))
    main = f'xmlns="{kind}/spreadsheetml/2006/main"'
    parts["xl/workbook.xml"] = f'<workbook {main} xmlns:r="{links}"><sheets>{named}</sheets></workbook>'
    targets = "".join(
        f'<Relationship Id="r{i}" Type="{links}/worksheet" Target="worksheets/{i}.xml"/>' for i, _ in enumerate(sheets)
    )
    parts["xl/_rels/workbook.xml.rels"] = f"<Relationships {package}>{targets}</Relationships>"
    for i, rows in enumerate(sheets.values()):
        cells = [[cell_of(cell) for cell in row] for row in rows]
        data = "".join(f"<row>{''.join(row)}</row>" for row in cells)
        parts[f"xl/worksheets/{i}.xml"] = f"<worksheet {main}><sheetData>{data}</sheetData></worksheet>"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return path


def cell_of(value: object) -> str:
    """A cell of a sheet."""
    is_number = isinstance(value, (int, float))
    return f"<c><v>{value}</v></c>" if is_number else f'<c t="inlineStr"><is><t>{value}</t></is></c>'
