"""Binary tables that are made to do harm: a typed error, soon and in little memory; and the process that reads them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet
from tables import WRITERS, arrow_table, workbook

from ingest.formats import open_reader
from ingest.io.report import ReadReport
from ingest.readers.workbook import sheet_names, zero_padding
from pearl_qdrant.binary_tables import open_table
from pearl_qdrant.errors import FormatError, InputError

ROOT = Path(__file__).resolve().parents[2]
MAIN = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
MOST_BYTES = 1_000_000_000
MOST_CPU_S = 20.0

READ = """
import json, resource, sys
from ingest.formats import open_reader
from ingest.io.report import ReadReport
from pearl_qdrant.errors import InputError
from pearl_qdrant.resolution.graphs.folders import read_graphrag
from pathlib import Path

said = []
for path in sys.argv[1:]:
    try:
        if Path(path).is_dir():
            read_graphrag(Path(path))
        else:
            with open_reader([path], "auto") as reader:
                print(sum(1 for _ in reader.read(ReadReport(max_errors=None))))
        said.append("")
    except InputError as error:
        said.append(f"{type(error).__name__}: {error}")
try:
    from pearl_qdrant.binary_tables import end_children
    end_children()
except ImportError:
    pass
own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
[peak] = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]  # `ru_maxrss` is inherited
n_bytes = int(peak.split()[1]) + children.ru_maxrss << 10
print(json.dumps([said, n_bytes, sum(one.ru_utime + one.ru_stime for one in (own, children))]))
"""


def rewrite(path: Path, sheet: str, strings: Iterable[str] | None = None) -> Path:
    """A workbook whose only sheet is this, with shared strings."""
    workbook(path, {"a": []})
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name).decode() for name in archive.namelist()}
    parts["xl/worksheets/0.xml"] = f"<worksheet {MAIN}><sheetData>{sheet}</sheetData></worksheet>"
    if strings is not None:
        kind = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/sharedStrings"
        link = f'<Relationship Id="s" Type="{kind}" Target="sharedStrings.xml"/></Relationships>'
        name = "xl/_rels/workbook.xml.rels"
        parts[name] = parts[name].replace("</Relationships>", link)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
        if strings is not None:
            with archive.open("xl/sharedStrings.xml", "w") as shared:
                shared.writelines(part.encode() for part in strings)
    return path


def corners(path: Path, last: str) -> Path:
    """Two cells of a sheet, the first one and another."""
    row = "".join(filter(str.isdecimal, last))
    cell = '<row r="{}"><c r="{}" t="inlineStr"><is><t>x</t></is></c></row>'
    return rewrite(path, cell.format(1, "A1") + cell.format(row, last))


def count(path: Path) -> Path:
    """A workbook that says to have four thousand million shared strings."""
    return rewrite(path, "", [f'<sst {MAIN} count="4000000000" uniqueCount="4000000000"><si><t>x</t></si></sst>'])


def many_strings(path: Path) -> Path:
    """A workbook with ten million shared strings that compress well."""
    return rewrite(path, "", [f"<sst {MAIN}>", *(["<si><t>x</t></si>" * 100_000] * 100), "</sst>"])


def one_long_text(path: Path, form: str = "parquet") -> Path:
    """A thousand rows that share one text of 1 MB."""
    names = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 1000, pyarrow.int32()), ["x" * 1_000_000])
    table = pyarrow.table({"id": [str(i) for i in range(1000)], "name": names, "title": names})
    if form == "parquet":
        parquet.write_table(table, path, compression="zstd")
    else:
        packed = pyarrow.ipc.IpcWriteOptions(compression="zstd")
        with pyarrow.ipc.new_file(path, table.schema, options=packed) as writer:
            writer.write_table(table)
    return path


def repeated_text(path: Path) -> Path:
    """The same without a dictionary in its schema: the reader makes a thousand texts of it."""
    part = pyarrow.table({"id": [str(i) for i in range(100)], "name": ["x" * 1_000_000] * 100})
    with parquet.ParquetWriter(path, part.schema, compression="zstd") as writer:
        for _ in range(10):
            writer.write_table(part)
    return path


def empty_rows(path: Path) -> Path:
    """Two thousand million rows without a cell, after a thousand sound ones."""
    runs = pyarrow.array(range(1, 1001), pyarrow.int32())
    sound = pyarrow.RunEndEncodedArray.from_arrays(runs, [f"name {i}" for i in range(1000)])
    ends = pyarrow.array([2_000_000_000], pyarrow.int32())
    empty = pyarrow.RunEndEncodedArray.from_arrays(ends, pyarrow.array([None], pyarrow.string()))
    column = pyarrow.chunked_array([sound, empty])
    table = pyarrow.table({"id": column, "name": column})
    with pyarrow.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    return path


def graph(path: Path) -> Path:
    """The output of GraphRAG, with such a text."""
    path.mkdir()
    one_long_text(path / "entities.parquet")
    parquet.write_table(pyarrow.table({"source": ["a"], "target": ["b"]}), path / "relationships.parquet")
    return path


ATTACKS: dict[str, Callable[[Path], Path]] = {
    "two corners.xlsx": lambda path: corners(path, "XFD1048576"),
    "a hundred columns.xlsx": lambda path: corners(path, "CV1048576"),
    "count.xlsx": count,
    "many strings.xlsx": many_strings,
    "dictionary.parquet": one_long_text,
    "repeated.parquet": repeated_text,
    "dictionary.arrow": lambda path: one_long_text(path, "arrow"),
    "empty rows.arrow": empty_rows,
    "graph": graph,
}
SLOW = ("many strings.xlsx", "repeated.parquet")


@pytest.mark.skipif(sys.platform != "linux", reason="the limits are Linux's")
@pytest.mark.parametrize(
    "names", [ATTACKS.keys() - {*SLOW}, *(pytest.param({one}, marks=pytest.mark.slow) for one in SLOW)]
)
def test_files_that_are_made_to_do_harm_end_in_errors(tmp_path: Path, names: set[str]) -> None:
    """Whatever such a file claims to hold, reading it ends with an error about it. One process reads them all, in a
    gigabyte and 20 seconds, with its children.
    """
    paths = [ATTACKS[name](tmp_path / name) for name in sorted(names)]
    command = [sys.executable, "-c", READ, *map(str, paths)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-500:]
    errors, n_bytes, seconds = json.loads(done.stdout.splitlines()[-1])

    for path, error in zip(paths, errors, strict=True):
        assert error.startswith("FormatError: ")
        assert str(path) in error
        assert "no sound file" in error or "expands" in error
    assert n_bytes < MOST_BYTES
    assert seconds < MOST_CPU_S


@pytest.mark.parametrize(
    "start, again",
    [
        ('<sheet name="a" r:id="1"', "<sheet "),
        ("<sheet ", 'name="'),
        ("<Relationship ", "<Relationship "),
        ("<Relationship ", 'Id="'),
        ("", "<numFmt "),
        ("<numFmt ", 'numFmtId="1"'),
        ("", "<cellXfs>"),
        ("<cellXfs>", "<xf "),
        ("", "<c "),
        ("<c ", 'r="A1"'),
    ],
)
def test_parts_of_a_workbook_take_little_time(tmp_path: Path, start: str, again: str) -> None:
    """What is looked at beside the cells is looked at once, however often an element begins and does not end."""
    path = tmp_path / "a.xlsx"
    known = {
        "xl/_rels/workbook.xml.rels": '<Relationship Id="1" Target="a.xml"/>',
        "xl/workbook.xml": '<sheet name="a" r:id="1"/>',
        "xl/styles.xml": '<numFmt numFmtId="9" formatCode="000"/><cellXfs><xf numFmtId="9"/></cellXfs>',
        "xl/a.xml": '<c r="B1" s="0"/>',
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in known.items():
            archive.writestr(name, text + start + again * ((1 << 17) // len(again)))
    before = time.process_time()

    names, padding = sheet_names(str(path)), zero_padding(str(path), "a")

    assert names[:1] == ["a"]
    assert padding == {1: 3}
    assert time.process_time() - before < 2.0


@pytest.mark.parametrize(
    "styles, kind",
    [
        (f'<numFmt numFmtId="{"9" * 5000}" formatCode="000"/>', zipfile.ZIP_DEFLATED),
        (f'<numFmt numFmtId="9" formatCode="{"0" * 1_000_000}"/>', zipfile.ZIP_DEFLATED),
        ("<cellXfs>" * 100, zipfile.ZIP_LZMA),
    ],
    ids=["a number without end", "a width without end", "damaged LZMA"],
)
def test_a_workbook_has_no_leading_zeros_where_its_styles_are_wrong(tmp_path: Path, styles: str, kind: int) -> None:
    """What no program writes is passed over, and no error."""
    path = tmp_path / "a.xlsx"
    with zipfile.ZipFile(path, "w", kind) as archive:
        archive.writestr("xl/_rels/workbook.xml.rels", '<Relationship Id="1" Target="a.xml"/>', zipfile.ZIP_DEFLATED)
        archive.writestr("xl/workbook.xml", '<sheet name="a" r:id="1"/>', zipfile.ZIP_DEFLATED)
        archive.writestr("xl/a.xml", '<c r="A1" s="0"/>', zipfile.ZIP_DEFLATED)
        archive.writestr("xl/styles.xml", styles + '<cellXfs><xf numFmtId="9"/></cellXfs>')
        start = archive.getinfo("xl/styles.xml").header_offset
    if kind == zipfile.ZIP_LZMA:
        data = bytearray(path.read_bytes())
        data[start + 55 : start + 75] = b"\xff" * 20
        path.write_bytes(data)

    assert zero_padding(str(path), "a") == {}


def test_blank_rows_cost_little_and_keep_the_numbers(tmp_path: Path) -> None:
    """Two cells with thousands of blank rows between them: the second has the number of its row."""
    with open_table(str(corners(tmp_path / "a.xlsx", "B20000")), "workbook") as table:
        rows = [(number, cells) for number, cells in table.rows if any(cells)]
        n_rows = rows[-1][0]

    assert rows == [(1, ["x", ""]), (20_000, ["", "x"])]
    assert n_rows == 20_000


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The processes that are started to read files, in order."""
    from pearl_qdrant import binary_tables, child

    pids: list[int] = []

    class Recorded(child.ChildProcess):
        def __init__(self, *arguments: str, environment: dict[str, str]) -> None:
            super().__init__(*arguments, environment=environment)
            pids.append(self.pid)

    binary_tables.end_children()
    monkeypatch.setattr(child, "ChildProcess", Recorded)
    return pids


def big(path: Path, n: int = 50_000) -> str:
    """A file whose rows do not fit into a pipe."""
    parquet.write_table(pyarrow.table({"id": list(range(n)), "name": [f"name {i}" for i in range(n)]}), path)
    return str(path)


def ids(path: Path) -> list[str]:
    """The ids of a base."""
    with open_reader([path], "auto") as reader:
        return [entity.entity_id for entity in reader.read(ReadReport())]


def test_one_process_reads_file_after_file(tmp_path: Path, started: list[int]) -> None:
    """Also after one that was left in the middle, is damaged or has no such sheet."""
    path = big(tmp_path / "big.parquet")
    (tmp_path / "torn.parquet").write_bytes(b"PAR1" + b"x" * 100 + b"PAR1")
    book = workbook(tmp_path / "a.xlsx", {"Toys": [["id", "name"], [1, "Foo"]]})

    with open_table(path, "Parquet") as table:
        assert [row for _, row in islice(table.rows, 2)] == [[0, "name 0"], [1, "name 1"]]
    with pytest.raises(FormatError, match="damaged"):
        ids(tmp_path / "torn.parquet")
    with pytest.raises(FormatError, match="no sheet 'Dolls'"), open_table(str(book), "workbook", sheet="Dolls"):
        pass
    assert ids(book) == ["1"]
    assert len(ids(Path(path))) == 50_000
    assert len(started) == 1


def test_two_files_are_read_at_once(tmp_path: Path, started: list[int]) -> None:
    """Each has a process of its own while both are open."""
    path = big(tmp_path / "big.parquet")

    with open_table(path, "Parquet") as one, open_table(path, "Parquet") as other:
        pairs = list(zip(one.rows, other.rows, strict=True))

    assert all(left == right for left, right in pairs)
    assert len(pairs) == 50_000
    assert len(started) == 2


def test_a_process_that_ended_while_it_waited_is_replaced(tmp_path: Path, started: list[int]) -> None:
    """The next file is read all the same."""
    path = tmp_path / "x.parquet"
    WRITERS["parquet"](arrow_table(), path)

    first = ids(path)
    os.kill(started[0], signal.SIGKILL)

    assert ids(path) == first
    assert len(started) == 2


@pytest.mark.parametrize(
    "number, kind, said",
    [
        (signal.SIGKILL, InputError, "was killed by SIGKILL, perhaps because memory ran out"),
        (signal.SIGSEGV, FormatError, "data is damaged or cut off .what reads it was killed by SIGSEGV"),
        (signal.SIGXCPU, FormatError, "takes more of the processor's time, as no sound file"),
    ],
)
def test_the_error_names_how_the_process_ended(
    tmp_path: Path, started: list[int], number: int, kind: type[InputError], said: str
) -> None:
    """A crash of the library that reads a file is an error about it, with the row that was reached."""
    path = big(tmp_path / "big.parquet")

    def read() -> int:
        with open_table(path, "Parquet") as table:
            for n, _ in table.rows:
                if n == 100:
                    os.kill(started[0], number)
        return n

    with pytest.raises(kind, match=said) as raised:
        read()
    assert type(raised.value) is kind
    assert raised.value.path == path
    assert raised.value.line is not None
    assert raised.value.line >= 100
