"""What all tabular formats have in common: the same entities, columns, counts and limits."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest
import zstandard
from cli_runner import Run
from pyarrow import parquet
from tables import CSV, ENTITIES, JSONL, TSV, WRITERS, arrow_table

from ingest.base.scan import scan
from ingest.formats import ReadOptions, detect_format, open_reader
from ingest.io import limits
from ingest.io.report import ReadReport
from ingest.readers.columns import TableColumns
from ingest.readers.table import TableReader
from pearl_qdrant.errors import FormatError, InputError, OptionError, TooManyErrorsError
from pearl_qdrant.records import Entity

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


def read(path: Path, options: ReadOptions | None = None, report: ReadReport | None = None) -> list[Entity]:
    """All entities of a file, whose format is detected."""
    with open_reader([path], options=options) as reader:
        return list(reader.read(report or ReadReport()))


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_table_gives_the_same_entities(tmp_path: Path, form: str) -> None:
    """Whatever I export my table as, I get the same entities, and nothing is skipped."""
    report = ReadReport(max_errors=0)

    assert read(write(tmp_path, form), report=report) == ENTITIES
    assert (report.rows, report.entities, report.names) == (3, 3, 6)


@pytest.mark.parametrize("form", FORMS)
def test_column_options_work_in_every_form(tmp_path: Path, form: str) -> None:
    """I can name the columns in any format; the default columns then become further fields."""
    options = ReadOptions(columns=TableColumns(name="description", types=("rank",), aliases=("name",)))
    report = ReadReport()

    entities = read(write(tmp_path, form), options, report)

    assert [(e.entity_id, e.canonical_name, e.kb_types) for e in entities] == [
        ("Q90", "capital", ("1",)),
        ("Q585", "a city", ()),
    ]
    assert entities[0].extra["type"] == "city|GPE"
    assert report.skipped == {"no_name": 1}


@pytest.mark.parametrize("form", FORMS)
def test_an_unknown_column_lists_the_known_ones(tmp_path: Path, form: str) -> None:
    """If I name a column that does not exist, the error shows those that do."""
    options = ReadOptions(columns=TableColumns(name="label"))
    kind = {"tsv": "tsv", "csv": "csv", "jsonl": "jsonl"}.get(form, "parquet")

    with (
        pytest.raises(FormatError, match=r"no column 'label' for the name \(the columns are: id, name"),
        open_reader([write(tmp_path, form)], kind, options) as reader,
    ):
        list(reader.read(ReadReport()))


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
def test_a_limit_and_the_bounds_of_an_entity_hold(tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """--limit reads the first entities; an entity with too many names is cut and counted."""
    path = write(tmp_path, form)
    monkeypatch.setattr(limits, "MAX_NAMES", 2)
    report = ReadReport()

    assert [tuple(e.names()) for e in read(path, ReadOptions(limit=1), report)] == [("Paris, France", "Paname")]
    assert report.skipped == {"too_many_names": 1}


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

    assert [e.canonical_name for e in read(path, report=report)] == ["Paris", "Rome"]
    assert report.skipped == {"line_too_long": 1}
    assert report.examples[0].line == (2 if form in ("jsonl", *WRITERS) else 3)
    with pytest.raises(TooManyErrorsError):
        read(path, report=ReadReport(max_errors=0))


@pytest.mark.parametrize("kind, stored", [("csv", "auto"), ("jsonl", "jsonl")])
@pytest.mark.parametrize("compress", [bytes, gzip.compress, zstandard.compress])
def test_text_comes_compressed_and_through_standard_input(
    tmp_path: Path, kind: str, stored: str, compress: Callable[[bytes], bytes]
) -> None:
    """CSV and JSON Lines may be compressed, and may come through a pipe."""
    data = compress(b"\xef\xbb\xbf" + TEXTS[kind].replace("\n", "\r\n").encode())
    path = tmp_path / "base.gz"
    path.write_bytes(data)

    assert detect_format([path]) == kind
    assert read(path) == ENTITIES
    with TableReader(["-"], ReadOptions(), kind=stored, stdin=io.BytesIO(data)) as opened:
        assert list(opened.read(ReadReport())) == ENTITIES


@pytest.mark.parametrize("form", ["tsv", "jsonl", "parquet"])
def test_a_delimiter_is_for_csv_alone(run: Run, tmp_path: Path, form: str) -> None:
    """An option of another format is refused by its flag."""
    outcome = run("ingest", str(write(tmp_path, form)), "--dry-run", "--delimiter", ";")

    assert outcome.status == 2
    assert "--delimiter is for csv" in outcome.err.replace("\n", " ")


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


def test_parquet_within_text_formats_is_named(tmp_path: Path) -> None:
    """A Parquet file that is compressed again, or read as TSV, is called by its name."""
    table = pyarrow.table({"id": ["1"], "name": ["Paris"]})
    path = tmp_path / "base.parquet"
    parquet.write_table(table, path)
    packed = tmp_path / "base.parquet.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))

    with open_reader([path], "tsv") as reader, pytest.raises(FormatError, match="is not text but a Parquet file"):
        list(reader.read(ReadReport()))
    with open_reader([packed]) as reader, pytest.raises(FormatError, match="uncompressed file"):
        list(reader.read(ReadReport()))
