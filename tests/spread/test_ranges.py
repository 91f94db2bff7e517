"""A base that several processes read: ranges between ids, and the sums of what was counted."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from spread_cases import write_base

from ingest.base.reader import Reader
from ingest.base.scan import ScanResult
from ingest.base.type_map import TypeMap
from ingest.formats import ReadOptions, open_reader
from ingest.io.report import ReadReport
from ingest.readers.tables import ranges as table_ranges
from ingest.readers.tables.columns import TableColumns
from ingest.readers.tables.ranges import Range
from ingest.readers.tables.reader import LineTableReader
from ingest.spread import range_main, ranges
from ingest.spread.cutting import BucketReader, cut_and_scan, range_folders
from ingest.spread.ranges import Done, Job, RangeReader, cut_in_ranges
from pearl_qdrant.errors import FormatError, PearlQdrantError, TooManyErrorsError
from pearl_qdrant.records import Entity
from pearl_qdrant.store.partitions.rule import BUCKETS

LEAST = 60
"""Bytes of a range in these tests."""


def read_here(reader: RangeReader, found: Sequence[Range], report: ReadReport, folder: Path) -> list[Done] | None:
    """`ranges._run` without processes."""
    done = []
    for number, one in enumerate(found):
        path = str(folder / f"range-{number:04d}")
        columns, types = reader.columns, reader.type_map
        kind = ranges._FORMATS[type(reader)]
        job = Job(kind, reader.paths, columns, types.table(), types.version, "", one, path, report.max_errors)
        try:
            done.append(range_main._read(job))
        except PearlQdrantError:
            return None
    return done if ranges._is_plain(found, done, report) else None


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "LEAST_BYTES", LEAST)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges are read in this process."""
    monkeypatch.setattr(ranges, "_run", read_here)


def tsv(path: Path, rows: list[list[str]]) -> Path:
    """A table."""
    path.write_text("\n".join("\t".join(row) for row in rows) + "\n", encoding="utf-8")
    return path


def jsonl(path: Path, rows: list[list[str]]) -> Path:
    """The same as objects; a row of another width becomes a line that is no object."""
    header, *others = rows
    lines = [json.dumps(dict(zip(header, row, strict=True))) if len(row) == len(header) else "[]" for row in others]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def parquet(path: Path, rows: list[list[str]]) -> Path:
    """The same as a file of row groups of 7 rows; rows of another width are left out."""
    arrow, files = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    header, *others = rows
    columns = zip(*(row for row in others if len(row) == len(header)), strict=True)
    files.write_table(arrow.table(dict(zip(header, columns, strict=True))), path, row_group_size=7)
    return path


def random_rows(rng: random.Random, n: int = 60) -> list[list[str]]:
    """Rows of one id together and scattered, bad rows and blank ones."""
    rows = [["id", "name", "type"]]
    entity = 0
    while len(rows) < n:
        entity = rng.randrange(30) if rng.random() < 0.2 else entity + 1
        of_type = rng.choice(["ORG", "city", ""])
        rows += [[f"E{entity}", f"name {entity} {i} é", of_type] for i in range(rng.choice([1, 1, 1, 2, 5]))]
        if rng.random() < 0.2:
            rows.append(rng.choice([["", "no id", "ORG"], ["E1"], ["E2", "", "x"], ["a", "b", "c", "too", "many"]]))
    return rows


def check_same(
    paths: list[Path], folder: Path, options: ReadOptions | None = None, *, processes: int = 5
) -> list[Path]:
    """Ranges give what one pass gives: counts, digest, report and buckets; returns the folders of the ranges."""
    found: list[tuple[ScanResult, list[Entity]]] = []
    for name, cut in (("whole", cut_and_scan), ("ranges", in_ranges(processes))):
        with open_reader(paths, paths[0].suffix[1:], options) as reader:
            report = ReadReport(max_errors=None)
            scanned = cut(reader, report, folder / name)
        buckets = BucketReader(folder / name, range(BUCKETS))
        found.append((scanned, list(buckets.read(ReadReport(), scattered=scanned.scattered))))
    (one, its_entities), (other, entities) = found
    assert (one.digest, one.entities, one.names, one.distinct_names) == (
        other.digest,
        other.entities,
        other.names,
        other.distinct_names,
    )
    assert one.report == other.report
    assert one.report.conflicts == other.report.conflicts
    assert one.scattered.tolist() == other.scattered.tolist()
    assert one.repeated_name_hashes.tolist() == other.repeated_name_hashes.tolist()
    assert entities == its_entities
    return range_folders(folder / "ranges")


def in_ranges(processes: int) -> Callable[[Reader, ReadReport, Path], ScanResult]:
    """`cut_in_ranges` with so many processes."""
    return lambda reader, report, folder: cut_in_ranges(reader, report, folder, processes=processes)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("write", [tsv, jsonl, parquet])
@pytest.mark.parametrize(
    "seed", [0, 1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)]
)
def test_ranges_give_what_one_pass_gives(tmp_path: Path, write: Callable[..., Path], seed: int) -> None:
    """Entities, counts, digest and bad rows with their lines are those of one pass, wherever ranges begin."""
    rows = random_rows(random.Random(seed))
    base = write(tmp_path / f"base.{write.__name__}", rows)

    assert len(check_same([base], tmp_path / "cut")) > 2


@pytest.mark.usefixtures("here")
def test_several_files_and_columns_without_a_header(tmp_path: Path) -> None:
    """Files are cut each by itself, and columns are those that the options name."""
    files = [tsv(tmp_path / f"{i}.tsv", random_rows(random.Random(i), 20 + i)[1:]) for i in range(3)]
    options = ReadOptions(columns=TableColumns(id="1", name="2", types=("3",)))

    assert len(check_same(files, tmp_path / "cut", options)) > 3


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    "content",
    [
        pytest.param("id\tname\n" + "E1\tone name\n" * 40, id="one entity"),
        pytest.param("id\tname\n" + "".join(f'E{i}\t"a ""b"" {i}"\n' for i in range(40)), id="warnings"),
        pytest.param("\n\nid\tname\n" + "\n".join(f"E{i}\t{'x' * i}" for i in range(40)), id="blank lines"),
        pytest.param("id\tname\n" + "".join(f"E{i}\tx\r\n\n" for i in range(40)), id="line ends"),
        pytest.param("id\tname\n" + "".join(f"\ufeffE{i}\tx {i}\n" for i in range(40)), id="byte order marks"),
        pytest.param("\ufeffid\tname\n" + "".join(f"E{i}\tx\u2028y {i}\n" for i in range(40)), id="a mark"),
    ],
)
def test_odd_files_are_read_as_in_one_pass(tmp_path: Path, content: str) -> None:
    """Where ranges could differ, one process reads all."""
    base = tmp_path / "base.tsv"
    base.write_text(content, encoding="utf-8", newline="")

    check_same([base], tmp_path / "cut")


@pytest.mark.parametrize("write", [tsv, parquet])
@pytest.mark.parametrize("seed", range(5))
def test_a_range_begins_where_an_id_does(
    tmp_path: Path, write: Callable[..., Path], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of ranges are those of the files, and two ranges never share a run of rows."""
    monkeypatch.setattr(table_ranges, "_SEARCHED_BYTES", 200)
    base = write(tmp_path / "base", random_rows(random.Random(seed), 200))
    with open_reader([base], write.__name__) as reader:
        assert isinstance(reader, RangeReader)
        found = reader.find_ranges(20, LEAST) or []
        parts = [list(reader.join_runs(reader.read_range(one, quiet()), quiet())) for one in found]
        whole = list(reader.read_runs(quiet()))

    assert len(found) > 10
    assert [run for part in parts for run in part] == whole
    assert [one.start for one in found[1:]] == [one.end for one in found[:-1]]
    assert found[0].start == 0


def quiet() -> ReadReport:
    """A report that never stops."""
    return ReadReport(max_errors=None)


def test_what_has_no_ranges(tmp_path: Path) -> None:
    """Compressed files, small ones and a limit are read by one process."""
    base = write_base(tmp_path / "base.tsv")
    packed = tmp_path / "base.tsv.gz"
    packed.write_bytes(gzip.compress(base.read_bytes()))
    for path, options, n in ((packed, None, 4), (base, ReadOptions(limit=5), 4), (base, None, 1)):
        with open_reader([path], options=options) as reader:
            assert isinstance(reader, LineTableReader)
            assert reader.find_ranges(n, LEAST) is None
    table = parquet(tmp_path / "base.parquet", [["id", "name"], *([f"E{i}", f"n{i}"] for i in range(50))])
    none = parquet(tmp_path / "none.parquet", [["id", "name"], ["", ""]])
    for paths, n in (([table], 4), ([table, none], 4), ([none], 0)):
        with open_reader(paths) as reader:
            assert isinstance(reader, RangeReader)
            assert len(reader.find_ranges(4, LEAST) or []) == n
    with open_reader([base]) as reader:
        assert isinstance(reader, LineTableReader)
        assert reader.find_ranges(4, 1 << 20) is None
        assert len(reader.find_ranges(4, LEAST) or []) == 4


@pytest.mark.usefixtures("here")
def test_too_many_bad_rows_stop_at_the_same_row(tmp_path: Path) -> None:
    """The error names the row at which one pass stops, though each range has few bad rows."""
    rows = [["id", "name"], *([f"E{i}", f"n{i}" if i % 5 else ""] for i in range(60))]
    base = tsv(tmp_path / "base.tsv", rows)
    for cut in (cut_and_scan, in_ranges(4)):
        with open_reader([base]) as reader, pytest.raises(TooManyErrorsError, match=r"base\.tsv:42: no_name"):
            cut(reader, ReadReport(max_errors=8), tmp_path / "cut")
    assert range_folders(tmp_path / "cut") == []


@pytest.mark.usefixtures("here")
def test_a_damaged_file_gives_the_error_of_one_pass(tmp_path: Path) -> None:
    """Damage that shows while ranges are looked for, or in one of them, is told with the row of one pass."""
    base = parquet(tmp_path / "base.parquet", [["id", "name"], *([f"E{i // 2}", f"n{i}" * 9] for i in range(90))])
    content = bytearray(base.read_bytes())
    errors = []
    for at in (len(content) // 3, len(content) // 2, len(content) - 20):
        base.write_bytes(content[:at] + b"\xff" * 8 + content[at + 8 :])
        for cut in (cut_and_scan, in_ranges(4)):
            with open_reader([base], "parquet") as reader, pytest.raises(FormatError) as told:
                cut(reader, ReadReport(), tmp_path / "cut")
            errors.append(str(told.value))
    assert errors[::2] == errors[1::2]


@pytest.mark.slow
def test_processes_read_ranges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes do the same, from a relative path and with other types; if one fails, this one reads all."""
    write_base(tmp_path / "base.tsv")
    (tmp_path / "types.tsv").write_text("newspaper\tORG\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with open_reader(["base.tsv"], type_map=TypeMap.load(tmp_path / "types.tsv")) as reader:
        whole = cut_and_scan(reader, ReadReport(), tmp_path / "whole")
        parts = cut_in_ranges(reader, ReadReport(), tmp_path / "parts", processes=3)
        monkeypatch.setattr(ranges, "MODULE", "this.is.none")
        alone = cut_in_ranges(reader, ReadReport(), tmp_path / "alone", processes=3)

    assert len(range_folders(tmp_path / "parts")) == 3
    assert not range_folders(tmp_path / "alone")
    assert whole.digest == parts.digest == alone.digest
    assert whole.report == parts.report == alone.report
    assert max(path.name for path in (tmp_path / "parts" / "range-0000").iterdir()) == f"{BUCKETS - 1}.jsonl"
