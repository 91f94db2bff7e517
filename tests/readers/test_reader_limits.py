"""Limits in every format: names and rows beyond a limit are counted by reason.

Reading takes time in proportion to the input: expressions, loops and walks that would not are counted or tried.

Where work cannot be counted, the input is so large that more than proportional time would be hours.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from cli_runner import Run
from rdf_bases import read as read_base
from umls_release import RELEASE, atom, definition, sty
from umls_release import write as write_umls
from wikidata_items import dump, item
from yago_files import turtle

from ingest.base.format import ReadOptions
from ingest.base.reader import scan
from ingest.formats import open_reader
from ingest.io import limits, streams
from ingest.io.report import ReadReport
from ingest.io.streams import Source
from ingest.readers import umls
from ingest.readers.umls import UmlsReader
from pearl_qdrant.errors import FormatError, InputError, TooManyErrorsError
from pearl_qdrant.records import Entity

N = 10  # the small bound of these tests


def terms(*stanzas: str) -> str:
    """An ontology."""
    return "".join(f"[Term]\n{stanza}\n\n" for stanza in stanzas)


def labels(subject: str, n: int) -> str:
    """Rows of YAGO with names of one subject."""
    return "\n".join(f'yago:{subject} rdfs:label "name {i}"@en' for i in range(n))


def truthy(n: int) -> str:
    """Rows of Wikidata with names of one item: a label, and aliases."""
    rows = ['<http://www.wikidata.org/entity/Q1> <http://www.w3.org/2000/01/rdf-schema#label> "name"@en .\n']
    alias = "http://www.w3.org/2004/02/skos/core#altLabel"
    return "".join(rows + [f'<http://www.wikidata.org/entity/Q1> <{alias}> "name {i}"@en .\n' for i in range(n - 1)])


def aliases(n: int) -> bytes:
    """A dump with an item that has this many names, and another item."""
    return dump(item(1, {"en": "name"}, aliases={"en": [f"a{i}" for i in range(n - 1)]}), item(2))


def read(path: Path, kind: str, report: ReadReport) -> list[Entity]:
    """All entities, having looked that a scan finds the same."""
    with open_reader([path], kind) as reader:
        scanned = scan(reader, ReadReport(max_errors=report.max_errors))
        entities = list(reader.read(report, scattered=scanned.scattered))
    assert scanned.report == report
    assert (scanned.entities, scanned.names) == (len(entities), sum(1 + len(entity.aliases) for entity in entities))
    return entities


def make(folder: Path, name: str, content: str | bytes) -> Path:
    """A file."""
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


MANY_NAMES = {
    "a cell of TSV": ("base.tsv", "tsv", "Q1\tname\tPER\t" + "|".join(f"a{i}" for i in range(19)) + "\nQ2\tother\n", 1),
    "rows of TSV": ("base.tsv", "tsv", "".join(f"Q1\tname {i}\n" for i in range(20)) + "Q2\tother\n", N),
    "a stanza of OBO": ("base.obo", "obo", terms("\n".join(["id: A:1", *(f"name: n {i}" for i in range(20))])), 1),
    "atoms of UMLS": ("MRCONSO.RRF", "umls", "".join(atom("C0000001", f"n {i}") for i in range(20)), 1),
    "rows of YAGO": ("yago-facts.ttl", "rdf", turtle(labels("Paris", 20)), 1),
    "an item of Wikidata": ("dump.json", "wikidata", aliases(20), 1),
    "rows of an item of Wikidata": ("truthy.nt", "rdf", truthy(20), 1),
}


@pytest.mark.parametrize("case", MANY_NAMES)
def test_names_past_the_bound_are_left_out_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """An entity keeps its first names, and the rows that had more are bad rows with their place."""
    monkeypatch.setattr(limits, "MAX_NAMES", N)
    name, kind, content, n_rows = MANY_NAMES[case]
    path, report = make(tmp_path, name, content), ReadReport(max_errors=None)

    first, *others = read(path, kind, report)

    assert len(list(first.names())) == len(set(first.names())) == N
    assert all(len(list(other.names())) == 1 for other in others)
    assert report.skipped == {"too_many_names": n_rows}
    assert report.examples[0].path == str(path)
    assert report.examples[0].line > 0


MANY_ROWS = {
    "TSV": ("base.tsv", "tsv", "".join(f"Q1\tname {i % 3}\n" for i in range(20)) + "Q2\tother\n", N + 1),
    "OBO": ("base.obo", "obo", terms("id: A:1\nname: n" + '\nsynonym: "s" EXACT []' * 18), N + 2),
    "UMLS": (
        "MRCONSO.RRF",
        "umls",
        "\n" + "".join(atom("C0000001", f"n {i % 3}") for i in range(20)) + atom("C0000002", "other"),
        N + 2,
    ),
    "YAGO": ("yago-facts.ttl", "rdf", turtle(labels("Paris", 20) + '\nyago:Rome rdfs:label "other"@en'), N + 7),
    "Wikidata": ("truthy.nt", "rdf", truthy(20), N + 1),
}


@pytest.mark.parametrize("case", MANY_ROWS)
def test_rows_past_the_bound_are_skipped_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    """Rows of one id beyond the limit are bad rows, each with its line; the next id is read."""
    monkeypatch.setattr(limits, "MAX_ROWS", N)
    name, kind, content, line = MANY_ROWS[case]
    path, report = make(tmp_path, name, content), ReadReport(max_errors=None)

    entities = read(path, kind, report)

    assert report.skipped == {"too_many_rows": 10}
    assert report.examples[0].path == str(path)
    found = report.examples[0].line
    assert found == line or (case == "YAGO" and found > line), "a parser of Turtle reads on a little"
    assert [list(entity.names()) for entity in entities[1:]] in ([], [["other"]])
    with open_reader([path], kind) as reader, pytest.raises(TooManyErrorsError, match="too_many_rows"):
        scan(reader, ReadReport(max_errors=5))


@pytest.mark.parametrize("bound, reason", [("MAX_NAMES", "too_many_names"), ("MAX_ROWS", "too_many_rows")])
def test_scattered_rows_past_a_bound_are_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, reason: str
) -> None:
    """An id with too many scattered rows is an error of the scan, which names the id before anything is encoded."""
    monkeypatch.setattr(limits, bound, N // 2)
    rows = "".join(f"Q{i % 5}\tname {i}\n" for i in range(49))
    path = make(tmp_path, "base.tsv", f"id\tname\n{rows}Q3\tname\n")

    with open_reader([path], "tsv") as reader:
        with pytest.raises(InputError, match=rf"{reason}: the id 'Q[0-4]' .* Is this really the column of ids\?"):
            scan(reader)
        with pytest.raises(InputError, match=rf"{reason}: the id 'Q[0-4]'"):
            list(reader.read(ReadReport()))


def test_types_past_the_bound_are_left_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entity keeps its first own types and their nearest ancestors."""
    monkeypatch.setattr(limits, "MAX_KB_TYPES", 3)
    meta = make(tmp_path, "MRCONSO.RRF", atom("C0000001", "n")).parent
    make(tmp_path, "MRSTY.RRF", "".join(sty("C0000001", f"T{i}", "A", f"type {i}") for i in range(3)))
    chain = terms(*(f"id: A:{i}\nname: n\nis_a: A:{i + 1}" for i in range(1000)))
    files = {
        "base.tsv": ("tsv", "id\tname\ttype\nQ1\tname\ta|b|c|d\nQ1\tother\te\n"),
        "base.obo": ("obo", chain),
        "yago-facts.ttl": ("rdf", turtle("\n".join(f"yago:E rdf:type yago:C{i}" for i in range(9)))),
    }
    found = {kind: read(make(tmp_path, name, text), kind, ReadReport()) for name, (kind, text) in files.items()}
    found["umls"] = read(meta, "umls", ReadReport())

    assert {kind: entities[0].kb_types for kind, entities in found.items()} == {
        "tsv": ("a", "b", "c"),
        "obo": ("A:1", "A:2", "A:3"),
        "rdf": ("C0", "C1", "C2"),
        "umls": ("T0", "type 0", "A"),
    }
    assert (len(found["obo"][500].kb_types), found["obo"][-1].kb_types) == (3, ("A:1000",))


def test_a_table_of_very_many_columns_is_refused(tmp_path: Path) -> None:
    """A header with too many columns is refused, since each short row would take that many steps."""
    path = make(tmp_path, "base.tsv", "id\tname\t" + "\t".join(f"c{i}" for i in range(5000)) + "\nQ1\tname\n")

    with open_reader([path], "tsv") as reader, pytest.raises(FormatError, match=r":1: the header has 5,002 columns"):
        scan(reader)


def test_the_counts_name_what_was_too_much(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`ingest --json` counts dropped names and rows like any other bad row."""
    monkeypatch.setattr(limits, "MAX_NAMES", 3)
    monkeypatch.setattr(limits, "MAX_ROWS", 4)
    path = make(tmp_path, "base.tsv", "".join(f"Q1\tname {i}\n" for i in range(6)) + "Q2\tother\n")

    outcome = run("ingest", str(path), "--dry-run", "--json", "--max-errors", "9")

    assert json.loads(outcome.out)["skipped"] == {"too_many_names": 1, "too_many_rows": 2}
    assert f"skipped {path}:4: too_many_names: Q1 name 3" in outcome.err


LONG = 200_000


def name_in_obo(value: str) -> str:
    """The name that a line of OBO gives."""
    return read_base(f"[Term]\nid: A:1\nname: {value}\n", kind="obo")[0].canonical_name


@pytest.mark.parametrize(
    "value",
    [
        "a {" + "a=a" * 10_000 + '"}',
        "a {" + "a=b  " * 10_000 + '"}',
        "a {" + "a=b,, " * 10_000 + '"}',
        'a {a="' + '\\"' * 10_000 + "}",
        "a {" + " " * 10_000 + "a=}",
        "a" + " {" * LONG + "}",
        "a {" + "a=b, " * LONG + "c=d}",
    ],
    ids=["keys and values", "blanks", "commas", "quotes", "spaces", "braces", "too long"],
)
def test_what_is_nearly_a_modifier_is_read_at_once(value: str) -> None:
    """A value with text that only looks like modifiers is kept, and is recognised in linear time."""
    name = name_in_obo(value)

    assert name.startswith("a {")
    assert name.endswith("}")


def test_modifiers_are_still_cut_off() -> None:
    """Key and value with or without quotes, blanks and commas; braces that hold something else belong to the name."""
    cut = ["{}", "{ }", "{a=b}", '{a="b, {c}"}', '{a="b",c=d , e = "f\\"g" h=i,}', "{a=b=c}", '{a="b"c="d"}', "{a,b=c}"]
    kept = ["{a}", "{a=}", "{=b}", '{a="b}', "{a=b} c}", "{{a=b}}"]

    assert [name_in_obo(f"name {modifiers}") for modifiers in cut] == ["name"] * len(cut)
    assert [name_in_obo(f"name {braces}") for braces in kept] == [f"name {braces}" for braces in kept]


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_many_small_streams_are_not_copied_over_and_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: str
) -> None:
    """A file of ten thousand streams is passed to the decoders about once, not again for each stream."""
    compress: Callable[[bytes], bytes] = {"gzip": gzip.compress, "zstd": zstandard.ZstdCompressor().compress}[
        compression
    ]
    given: list[int] = []
    new_decoder = streams._new_decoder

    class Counting:
        def __init__(self, compression: str) -> None:
            self._inner = new_decoder(compression)

        def __getattr__(self, name: str) -> object:
            return getattr(self._inner, name)

        def decompress(self, data: bytes, *most: int) -> bytes:
            given.append(len(data))
            return self._inner.decompress(data, *most)

    monkeypatch.setattr(streams, "_new_decoder", Counting)
    member = compress(b"\n")
    path = tmp_path / "f"
    path.write_bytes(member * 10_000)

    assert b"".join(Source(path).chunks()) == b"\n" * 10_000
    assert sum(given) <= 10_000 * 2048, "each member is given little more than itself"


def test_definitions_of_a_concept_are_tried_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A concept whose definitions belong to other atoms is not searched through for each of its rows."""
    text = "".join(definition("C9000001", f"A{i}", f"X{i}", f"text {i}") for i in range(9)) + definition(
        "C9000001", "A10", "Z", "its own"
    )
    meta = write_umls(tmp_path, RELEASE | {"MRDEF.RRF": text.encode()})

    def first() -> str | None:
        with UmlsReader([meta], ReadOptions()) as reader:
            return next(reader.read(ReadReport())).description

    assert first() == "its own"
    monkeypatch.setattr(umls, "_MAX_DEFINITIONS", 3)
    assert first() is None
