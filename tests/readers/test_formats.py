"""Formats are detected by structure, work on the command line, and refuse options of other formats.
The pass before anything is encoded: counts, repeated names, scattered ids.
From a base's own types to coarse types.
"""

from __future__ import annotations

import bz2
import gc
import gzip
import json
import zipfile
from collections import Counter
from pathlib import Path

import pyarrow
import pytest
from cli_runner import Run
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from rdf_bases import NODES, TOES, graph, read
from standard_input import given_input
from tables import workbook
from umls_release import CONSO
from wikidata_items import ADA, TRUTHY, dump, item, wd

from ingest.base import type_map
from ingest.base.format import ReadOptions, TableColumns
from ingest.base.reader import ScanResult, name_hash, scan
from ingest.base.type_map import TypeMap
from ingest.formats import FORMAT_NAMES, FORMATS, detect_format, open_reader
from ingest.io.report import ReadReport
from ingest.readers.table import TableReader
from pearl_qdrant.cli.ingest import ingest
from pearl_qdrant.cli.setting import flag_of
from pearl_qdrant.errors import FormatError
from pearl_qdrant.phrase_types import ENTITY_TYPES
from pearl_qdrant.records import Entity

TTL = (
    "@prefix yago: <http://yago-knowledge.org/resource/> .\n"
    "@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .\n"
    'yago:Paris\trdfs:label\t"Paris"@en\t.\n'
    'yago:Rome\trdfs:label\t"Rome"@en\t.\n'
)
MESH = (
    "<?xml version='1.0'?>\n<DescriptorRecordSet><DescriptorRecord><DescriptorUI>D1</DescriptorUI><DescriptorName>"
    "<String>Toe</String></DescriptorName><ConceptList><Concept><TermList><Term><String>Toes</String></Term></TermList></Concept>"
    "</ConceptList></DescriptorRecord></DescriptorRecordSet>\n"
)
OBO = 'format-version: 1.2\n\n[Term]\nid: MADE:1\nname: sore toe\nsynonym: "toe pain" EXACT []\n'
GRAPH = json.dumps(
    {"graphs": [{"nodes": [{"id": f"u:{i}", "lbl": f"toe {i}", "type": "CLASS"} for i in range(2)], "edges": []}]}
)


def write(folder: Path, kind: str) -> Path:
    """A base of two names, or a few more, in a format."""
    if kind == "umls":
        path = folder / "2024AB" / "META"
        path.mkdir(parents=True)
        (path / "MRCONSO.RRF").write_text(CONSO, encoding="utf-8")
        return path.parent
    if kind == "rdf":
        path = folder / "yago.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("yago-facts.ttl", TTL)
        return path
    if kind == "parquet":
        path = folder / "base.parquet.txt"
        parquet.write_table(pyarrow.table({"id": ["1", "2"], "name": ["Paris", "Rome"]}), path)
        return path
    if kind == "xlsx":
        return workbook(folder / "base.bin", {"Toys": [["id", "name"], [1, "Paris"], [2, "Rome"]]})
    text = {
        "mesh": MESH,
        "tsv": "id\tname\n1\tParis\n2\tRome\n",
        "csv": "id,name\n1,Paris\n2,Rome\n",
        "jsonl": '{"id": 1, "name": "Paris"}\n{"id": 2, "name": "Rome"}\n',
        "wikidata": f"[\n{json.dumps(item(1))},\n{json.dumps(item(2))}\n]\n",
        "obo": OBO,
        "obograph": GRAPH,
        "xml": "<toys><toy id='1'><name>Paris</name></toy><toy id='2'><name>Rome</name></toy></toys>\n",
        "yaml": "- id: 1\n  name: Paris\n- id: 2\n  name: Rome\n",
    }[kind]
    path = folder / f"base.{kind}.txt"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("kind", FORMAT_NAMES)
def test_each_format_is_known_by_its_structure(run: Run, tmp_path: Path, kind: str) -> None:
    """`ingest PATH` needs no option for any of them: content decides, whatever the name of a file."""
    path = write(tmp_path, kind)

    outcome = run("ingest", str(path), "--dry-run", "--json")

    assert detect_format([path]) == kind
    assert outcome.status == 0, outcome.err
    assert int(str(outcome.lines()[0]["names"])) >= 2


BEGINNINGS: list[tuple[str, bool, list[str | bytes]]] = [
    ("obo", True, [TOES, gzip.compress(TOES.encode()), "[Term]\r\nid: A:1\r\n",
                   "ontology: toes\n" + "".join(f'subsetdef: s{n} "a subset"\n' for n in range(9_000))]),
    ("obo", False, ["id\tname\nformat-version\tx\n", "", gzip.compress(TOES.encode())[:20],
                    "ontology: toes\nhow to read it\nand more\nand more\n"]),
    ("wikidata", True, [dump(ADA), gzip.compress(dump(ADA)), json.dumps(item(1), indent=1),
                        dump(item(1) | {"type": "property", "id": "P6"}),
                        f"{json.dumps(item(1))}\n{json.dumps(item(2))}\n"]),
    ("wikidata", False, [TRUTHY, '[{"id": "C1", "name": "flu", "type": "x"}]', "", "id\tname\nQ1\tParis\n",
                         f"<http://yago-knowledge.org/resource/A> <http://x/sameAs> {wd('Q1')} .\n",
                         gzip.compress(dump(ADA))[:20], '"type":"item" "id":"Q1"']),
    ("obograph", True, [graph(), json.dumps({"graphs": [{"nodes": NODES}]}, indent=3)]),
    ("obograph", False, ['{"nodes": [{"id": 1}], "links": []}']),
    ("rdf", True, ['{"@context": {}, "@graph": [{"@id": "u:a"}]}']),
    ("rdf", False, ['<?xml version="1.0"?>\n<DescriptorRecordSet L="eng"><DescriptorRecord/></DescriptorRecordSet>',
                    "<html><body>not found</body></html>", "<http://a/b>\tname\tperson\n<http://a/c>\tname\tplace\n",
                    "http://a/b\tname\n", "name,id\n<a>,b\n", "@type\tname\n@id\ttoy\n", "prefix\tname\nbase\ttoy\n",
                    "", TOES, '{"id": "1", "name": "context"}\n{"id": "2", "name": "@id"}\n']),
    ("csv", True, ["id,name\n1,a\n", "CUI;Canonical_Name;type\n1;a;b\n", '\n"id","name"\n1,a\n', "Q1,Paris\nQ2,Rome\n",
                   "id|name\n1|a\n", "sep=;\nid;name\n1;a\n"]),
    ("tsv", True, ["id\tname\n1\ta,b\n", "idname\n", '{"id"\t"Paris"\n', "{1}\tParis\n"]),
    ("jsonl", True, ['{"id": 1, "name": "x"}\n', '\n {"label": "x"}\n{}\n', '{"id": 1}\nParis\n',
                     json.dumps({"id": "1", "name": "x" * 100_000}) + "\n", '{"nodes": [{"id": 1}], "links": []}',
                     '{"id": "1", "name": "graphs"}\n{"id": "2", "name": "nodes"}\n']),
]  # fmt: skip


@pytest.mark.parametrize("kind, is_it, contents", BEGINNINGS)
def test_the_first_bytes_show_the_format(tmp_path: Path, kind: str, is_it: bool, contents: list[str | bytes]) -> None:
    """Compressed or not, whatever the name of the file; what cannot be read is taken for TSV."""
    path = tmp_path / "base.ttl"
    for content in contents:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        assert (detect_format([path]) == kind) == is_it, content[:60]
    assert all(detect_format([path]) == "tsv" for path in ("-", tmp_path / "nowhere", "a\0b"))


MANY = dump(*(item(i, {"en": f"name {i * 7919 % 10007}"}, above=[i + 1]) for i in range(1, 3000)))
WRONG: list[tuple[str, str | bytes, str]] = [
    *((kind, b"", "is empty") for kind in ("obo", "wikidata")),
    *((kind, b"PK\x03\x04zip", "zip archive") for kind in ("obo", "wikidata")),
    ("obo", b"\n\n", r"no \[Term\] stanza"),
    ("obo", b"format-version: 1.2\n\n[Typedef]\nid: x\n", r"no \[Term\] stanza"),
    ("obo", b"C1\tflu\n", ":1: is neither .* Is this an OBO file"),
    ("obo", gzip.compress(TOES.encode() * 50, mtime=0)[:-9], "ends early"),
    ("obo", bz2.compress(TOES.encode())[:-9], "ends early"),
    ("wikidata", b"[\n]\n", "has no entity"),
    ("wikidata", gzip.compress(MANY, mtime=0)[:-9], r":\d+: after this line, its gzip data ends early"),
    ("wikidata", bz2.compress(MANY)[:-9], "bzip2 data ends early"),
    ("wikidata", gzip.compress(MANY, mtime=0)[:20_000] + b"\0\xff" * 99 + gzip.compress(MANY, mtime=0)[20_198:],
     r":\d+: after this line, its gzip data is damaged"),
    ("obograph", graph()[:-30], "is not valid JSON, or ends early"),
    ("obograph", graph() + " x", "is not valid JSON"),
    ("obograph", '{"graphs": [{"nodes": [], "edges": []}]}', "has no nodes"),
    ("obograph", '{"graphs": [{"nodes": [' + "[" * 100_000, "nested too deep"),
    ("obograph", '{"graphs": [{"nodes": [{"id": ' + "1" * 9_000 + "}]}]}", "is not valid JSON"),
    ("obograph", '{"graphs": [{"nodes": [{"id": "' + "x" * 9_000, "is not valid JSON, or ends early"),
    ("obograph", graph().replace("sore toe", "tôe œ").encode().replace(b"t\xc3", b"t\xff\xc3"), "is not valid UTF-8"),
    ("obograph", "", "has no nodes"),
    ("rdf", "id\tname\n1\ttoy\n", "is not RDF. RDF is read as"),
    ("rdf", '<?xml version="1.0"?><!DOCTYPE DescriptorRecordSet SYSTEM "x.dtd"><DescriptorRecordSet/>',
     "is not RDF but MeSH as XML. Read it with format mesh"),
    ("rdf", " \n", "is empty"),
    ("rdf", bytes(range(256)) * 40, "is not text"),
    ("rdf", TOES, "is not RDF"),
]  # fmt: skip


@pytest.mark.parametrize("kind, content, message", WRONG, ids=[f"{kind}-{i}" for i, (kind, *_) in enumerate(WRONG)])
def test_what_is_no_base_of_a_format_says_so(kind: str, content: str | bytes, message: str) -> None:
    """Another kind of file, or a damaged one, is an error that names the file, the line and what is wrong."""
    with pytest.raises(FormatError, match=message):
        read(content, kind=kind)


@pytest.mark.parametrize(
    "words, expected",
    [
        (("--sab", "MSH"), "--set sabs is for umls, but the input is read as tsv"),
        (("--language", "fi"), "--language is for umls, wikidata, rdf"),
        (("--class", "Q5"), "--set classes is for wikidata"),
        (("--format", "wikidata", "--class", "person"), "not the id of a class: person"),
        (("--format", "umls", "--semantic-type", "DISX"), "DISO"),
    ],
)
def test_a_senseless_option_is_refused(run: Run, tmp_path: Path, words: tuple[str, ...], expected: str) -> None:
    """It is not ignored: the message names the formats that take it, or the valid values."""
    path = write(tmp_path, "umls" if "umls" in words else "tsv")

    outcome = run("ingest", str(path), "--dry-run", *words)

    assert outcome.status == 2
    assert expected in outcome.err.replace("\n", " ")


def test_a_folder_of_nothing_known_is_an_error(tmp_path: Path) -> None:
    """The message names the files that were searched for."""
    with pytest.raises(FormatError, match="MRCONSO"):
        detect_format([tmp_path])


def test_the_command_line_offers_every_format(run: Run) -> None:
    """Each format is listed by `--format help`, and each of its options is one of the command, or a setting."""
    listed = {line.split()[0] for line in run("ingest", "--format", "help").out.splitlines()}

    assert set(FORMAT_NAMES) <= listed
    assert [name for one in FORMATS for name in {*one.options} - {"columns"} if flag_of(ingest, name) is None] == []


def test_two_formats_at_once_are_refused(tmp_path: Path) -> None:
    """The message names the format of each path."""
    with pytest.raises(FormatError, match=r"is obo.*is wikidata|is wikidata.*is obo"):
        detect_format([write(tmp_path, "obo"), write(tmp_path, "wikidata")])


def test_a_base_of_which_nothing_is_left_is_an_error(run: Run, tmp_path: Path) -> None:
    """A source that is not there makes no empty collection; what options leave out is counted, apart from bad rows."""
    base = str(write(tmp_path, "umls"))
    (report,) = run("ingest", base, "--dry-run", "--language", "fi", "--json").lines()
    assert (report["names"], report["left_out"]) == (1, {"other_language": 6})
    outcome = run("ingest", base, "--sab", "NOPE")

    assert outcome.status == 1
    assert "other_source" in outcome.err
    assert run("collections", "list").out == ""


@pytest.mark.parametrize("kind", ["umls", "rdf"])
@pytest.mark.parametrize("other", ["obo", "wikidata"])
def test_a_folder_of_several_bases_is_refused(run: Run, tmp_path: Path, kind: str, other: str) -> None:
    """The message lists the bases; with --format, only that base is read."""
    folder = write(tmp_path, kind)
    if kind == "rdf":
        folder = tmp_path / "yago"
        folder.mkdir()
        (folder / "yago-facts.ttl").write_text(TTL, encoding="utf-8")
    beside = write(folder, other)

    refused = run("ingest", str(folder), "--dry-run", "--collection", "c")
    named = run("ingest", str(folder), "--dry-run", "--collection", "c", "--format", kind)

    assert (refused.status, named.status) == (1, 0), refused.err + named.err
    assert f"holds several bases: {kind} (" in refused.err
    assert f"{other} ({beside})" in refused.err.replace("\n", "")
    assert f"choose format {kind}. Option: --format" in refused.err.replace("\n", " ")


def test_other_files_beside_a_base_do_not_matter(tmp_path: Path) -> None:
    """A readme, a checksum or a folder of notes does not count as a base."""
    folder = write(tmp_path, "umls")
    (folder / "README.txt").write_text("how to read this\n", encoding="utf-8")
    (folder / "META" / "MRREL.RRF").write_text("C1|A1|AUI|PAR|C2|A2|AUI|isa|R1||S|S||Y|N||\n", encoding="utf-8")
    (folder / "notes").mkdir()

    assert detect_format([folder]) == "umls"


def scan_text(text: str, report: ReadReport | None = None) -> tuple[ScanResult, list[Entity], ReadReport]:
    """A scan, and the reading after it."""
    with given_input(text.encode(), TableReader, ["-"], ReadOptions(), kind="tsv") as reader:
        result = scan(reader, report)
        read_report = ReadReport()
        return result, list(reader.read(read_report, scattered=result.scattered)), read_report


def test_the_digest_is_that_of_what_is_read(tmp_path: Path) -> None:
    """A resumed run notices any change of what is read; the same rows packed otherwise are the same input."""

    def digest(text: str, *, limit: int | None = None, types: str | None = None, name: str = "a.tsv") -> str:
        path = tmp_path / name
        data = text.encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        columns = TableColumns(id="1", name="2", types=(types,)) if types else None
        with open_reader([path], "tsv", ReadOptions(columns=columns, limit=limit)) as reader:
            return scan(reader).digest

    text = "".join(f"Q{i}\tname {i}\tORG\n" for i in range(1000))
    changed = {
        text.replace("name 999", "name 998"),
        text.replace("name 0\tORG", "name 0\tGPE"),
        text + "Q1000\tname\n",
        "".join(reversed(text.splitlines(keepends=True))),
    }
    digests = {digest(one) for one in changed} | {digest(text, limit=10), digest(text, types="2")}

    assert len(digests) == 6
    assert digest(text) not in digests
    assert digest(text) == digest(text, name="b.tsv.gz")


small_ids = st.sampled_from(["a", "b", "c", "d"])
small_names = st.sampled_from(["x", "y", "z", "w", "v"])


@settings(max_examples=examples(80), deadline=None)
@given(rows=st.lists(st.tuples(small_ids, small_names, st.lists(small_names, max_size=3)), min_size=1, max_size=12))
def test_scanning_agrees_with_reading(rows: list[tuple[str, str, list[str]]]) -> None:
    """The counts of a scan equal those of reading, for any scattering of rows."""
    text = "id\tname\ttype\taliases\n"
    text += "".join(f"{id_}\t{name}\tT\t{'|'.join(aliases)}\n" for id_, name, aliases in rows)
    result, entities, report = scan_text(text)
    counts = Counter(name for entity in entities for name in entity.names())

    assert (result.entities, result.names, result.distinct_names) == (len(entities), counts.total(), len(counts))
    repeated = sorted(name_hash(name) for name, count in counts.items() if count > 1)
    assert result.repeated_name_hashes.tolist() == repeated
    assert result.report == report
    assert {entity.entity_id for entity in entities} == {id_ for id_, _, _ in rows}
    for entity in entities:
        mine = [(name, aliases) for id_, name, aliases in rows if id_ == entity.entity_id]
        everything = dict.fromkeys(n for name, aliases in mine for n in (name, *aliases))
        assert list(entity.names()) == list(everything)


def test_scattered_rows_do_not_wait_in_memory() -> None:
    """A base whose ids are all scattered is merged on disk, in batches."""
    text = "".join(f"Q{i % 10_000}\tname {i}\n" for i in range(20_000))
    n_others = sum(type(thing) is Entity for thing in gc.get_objects())  # of other tests of this process
    with given_input(text.encode(), TableReader, ["-"], ReadOptions(), kind="tsv") as reader:
        entities = reader.read(ReadReport())
        next(entities)
        n_alive = sum(type(thing) is Entity for thing in gc.get_objects()) - n_others
        assert sum(1 for _ in entities) == 9_999

    assert n_alive < 3_000


@pytest.mark.parametrize(
    "native, coarse",
    [
        *((name, name) for name in ENTITY_TYPES),
        *(("person", "PERSON"), ("Work of Art", "WORK_OF_ART"), ("work-of-art", "WORK_OF_ART"), ("PER", "PERSON")),
        *(("Location", "LOC"), ("organisation", "ORG"), ("City", "GPE"), ("country", "GPE"), ("zorgon", None)),
        *(("CreativeWork", "WORK_OF_ART"), ("AdministrativeArea", "GPE"), ("BodyOfWater", "LOC"), ("Airport", "FAC")),
        *(("SportsTeam", "ORG"), ("Award", "OTHER"), ("Intangible", None)),
    ],
)
def test_types_have_the_coarse_types_that_one_expects(native: str, coarse: str | None) -> None:
    """Coarse types themselves in any spelling, common ones, and classes of schema.org; an unknown type has none."""
    assert TypeMap.load().map_types([native]) == ((coarse,) if coarse else ())


def test_own_rows_win_over_the_shipped_ones(tmp_path: Path) -> None:
    """A table of one's own adds types, changes and removes them, and changes the version."""
    path = tmp_path / "map.tsv"
    path.write_text("# version: mine\nzorgon\tPRODUCT\nCITY\tloc\nCountry\t\n")
    type_map = TypeMap.load(path)

    assert type_map.map_types(["Zorgon", "city", "COUNTRY", "town"]) == ("PRODUCT", "LOC", "GPE")
    assert type_map.version.startswith(f"{TypeMap.load().version}+mine-")
    path.write_text(path.read_text() + "x\tORG\n")
    assert TypeMap.load(path).version != type_map.version


@pytest.mark.parametrize(
    "content, message",
    [
        (b"A\tB\n", "map.tsv:1: 'B' is not a coarse type"),
        (b"# x\nA\n", "map.tsv:2: expected"),
        (b"a\tORG\nA\tGPE\n", "map.tsv:2: 'A' is mapped to both"),
        (b"\xff", "UTF-8"),
    ],
)
def test_a_faulty_table_says_where(tmp_path: Path, content: bytes, message: str) -> None:
    """A row that makes no sense is an error with its line."""
    (tmp_path / "map.tsv").write_bytes(content)

    with pytest.raises(FormatError, match=message):
        TypeMap.load(tmp_path / "map.tsv")


def test_what_is_no_table_is_not_read_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device is refused, and of a file that is too large only so much is read as a table may have."""
    with pytest.raises(FormatError, match="/dev/zero: is a device"):
        TypeMap.load("/dev/zero")
    monkeypatch.setattr(type_map, "MAX_BYTES", 1000)
    path = tmp_path / "map.tsv"
    path.write_text("x\tORG\n" * 160)
    assert TypeMap.load(path).map_types(["x"]) == ("ORG",)
    path.write_text("x\tORG\n" * 170)

    with pytest.raises(FormatError, match=r"map\.tsv: has over 1,000 bytes"):
        TypeMap.load(path)
