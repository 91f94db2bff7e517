"""Hostile and damaged RDF is read in bounded memory and time, or refused in words."""

from __future__ import annotations

import time
import tracemalloc
from pathlib import Path

import pytest
from rdf_bases import PREFIXES, read

from ingest.base.format import ReadOptions
from ingest.formats import open_reader
from ingest.io import limits
from ingest.io.report import ReadReport
from ingest.readers.signs import TURTLE, find_syntax
from pearl_qdrant.errors import FormatError

XML = '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:x="http://x/">'
START = f'{XML}<rdf:Description rdf:about="u:a">'
LAUGHS = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 10))

HOSTILE = {
    "billion laughs": (f'<!DOCTYPE r [<!ENTITY l0 "ha">{LAUGHS}]>{START}&l9;', "entity 'l2'"),
    "an outer entity": (f'<!DOCTYPE r [<!ENTITY x SYSTEM "/etc/passwd">]>{XML}&x;', "entity 'x' that is of "),
    "an entity after the root": (f'{XML}<!DOCTYPE r [<!ENTITY l0 "ha">]>&l0;', "or after its root"),
    "deep XML": (XML + "<rdf:Description>" + "<x:a><rdf:Description>" * 30_000, "is nested more than 10,000 deep"),
    "an endless literal in XML": (f"{START}<x:l>" + "a" * 5_000_000, "no statement ends within"),
    "an endless comment in XML": (f"{XML}<!-- " + "a> <b " * 900_000, "no statement ends within|nested"),
    "an endless literal": (PREFIXES + 't:a rdfs:label "' + "a" * 5_000_000, "no statement ends within"),
    "an endless IRI": (PREFIXES + "<u:" + "a" * 5_000_000, "no statement ends within"),
    "deep blank nodes": (PREFIXES + "t:a t:b " + "[ t:b " * 30_000, "cannot be read"),
    "deep lists": (PREFIXES + "t:a t:b " + "(" * 30_000, "cannot be read"),
    "deep JSON-LD": ('{"@id": "u:a", "u:b": ' + "[" * 30_000, "cannot be read"),
    "many remote contexts": ('{"@context": [' + '"http://a/",' * 1_000, "a context on the web|cannot be read"),
    "a word of 1 MB": (PREFIXES + "t:a rdfs:label " + "x" * 1_000_000, "cannot be read: x+ [.]{3} x+"),
    "an endless prefix": (PREFIXES + "@prefix " + "a" * 5_000_000, "no statement ends within"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_what_would_fill_the_memory_is_refused(case: str) -> None:
    """Each kind of it is an error that says what is wrong."""
    content, message = HOSTILE[case]

    with pytest.raises(FormatError, match=message) as caught:
        read(content, kind="rdf")
    assert len(str(caught.value)) < 3_000


def test_what_real_files_have_is_not_refused() -> None:
    """Entities for namespaces, comments with tags, brackets in names, and long headers of prefixes are usual."""
    entities = '<!DOCTYPE rdf:RDF [ <!ENTITY a "http://a/"> <!-- "it\'s" --> <!ENTITY b "&a;b"> ]>'
    comments = "<!-- <x:a> -->" * 9_000
    concept = '<skos:Concept rdf:about="&b;"><rdfs:label>a</rdfs:label></skos:Concept>'
    xml = f'<?xml version="1.0"?>{entities}{XML}{comments}{concept}</rdf:RDF>'
    smiles = "".join(f't:{i} rdfs:label "sad :(" ; t:b ( "[" "(" ) .\n' for i in range(9_000))
    prefixes = "".join(f"@prefix p{i}: <http://a/{i}/> .\n" for i in range(5_000))

    assert [entity.entity_id for entity in read(xml)] == ["http://a/b"]
    assert len(read(PREFIXES + prefixes + smiles)) == 9_000


def test_cycles_of_classes_end() -> None:
    """Classes above themselves, alone or in a ring, are listed once and never their own types."""
    ring = " ".join(
        f't:{i} a owl:Class ; rdfs:label "{i}" ; rdfs:subClassOf t:{(i + 1) % 5}, t:{i} .' for i in range(5)
    )
    entities = read(PREFIXES + ring)

    assert [len(entity.kb_types) for entity in entities] == [4] * 5
    assert all(entity.entity_id not in entity.kb_types for entity in entities)


def test_a_chain_of_classes_is_walked_to_a_bound() -> None:
    """In a chain each class has its nearest ancestors."""
    n = 500
    chain = "".join(f't:{i} rdfs:subClassOf t:{i + 1} ; rdfs:label "c" ; a owl:Class .\n' for i in range(n))
    entities = read(PREFIXES + chain)

    assert {len(entity.kb_types) for entity in entities[: n - limits.MAX_KB_TYPES]} == {limits.MAX_KB_TYPES}
    assert entities[0].kb_types[0] == "http://toy.example/1"


def test_subjects_in_turn_are_joined_within_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two subjects in many places keep as many statements as an entity may have; the others are counted."""
    text = PREFIXES + "".join(f't:{i % 2} rdfs:label "name {i}"@en .\n' for i in range(600))
    report = ReadReport(max_errors=None)

    assert [len(list(entity.names())) for entity in read(text)] == [300, 300]
    monkeypatch.setattr(limits, "MAX_ROWS", 50)
    assert [len(list(entity.names())) for entity in read(text, report=report)] == [50, 50]
    assert report.skipped == {"too_many_rows": 500}


def test_files_are_recognised_at_once() -> None:
    """Blank lines, quotes, comments and brackets without end cost no more than their length."""
    for start in (
        b"\n",
        b"# \n",
        b"<",
        b"<!--",
        b"<!DOCTYPE r [<",
        b"<a> <b> ",
        b'"',
        b"[",
        b"{",
        b"[ ] ",
        b"@prefix",
        b"<!-- -- ",
    ):
        assert find_syntax(start * (65_536 // len(start))) in (None, TURTLE)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["N-Triples", "bad N-Triples", "Turtle", "RDF/XML", "named RDF/XML", "scattered"])
def test_time_grows_with_the_input(name: str) -> None:
    """Eight times the input takes no more than some sixteen times as long."""

    def content(n: int) -> str:
        label = "http://www.w3.org/2000/01/rdf-schema#label"
        if name == "RDF/XML":
            body = "".join(
                f'<skos:Concept rdf:about="u:{i}"><rdfs:label>n {i}</rdfs:label></skos:Concept>' for i in range(n)
            )
            return f"{XML}{body}</rdf:RDF>"
        if name == "named RDF/XML":
            depth = min(n, 3_000)
            inner = "".join(f'<rdf:Description rdf:about="u:{i}"><rdfs:label>n</rdfs:label><x:a>' for i in range(depth))
            one = inner + "</x:a></rdf:Description>" * depth
            return f"{XML}{one * (n // depth)}</rdf:RDF>"
        rows_ = [f'<u:{i % (n // 2) if name == "scattered" else i}> <{label}> "name {i}" .\n' for i in range(n)]
        bad = 'junk "\n' if name == "bad N-Triples" else ""
        return (PREFIXES if name == "Turtle" else "") + "".join(row + bad for row in rows_)

    def seconds(n: int) -> float:
        text = content(n)
        start = time.process_time()
        read(text, report=ReadReport(max_errors=None), kind="rdf")
        return time.process_time() - start

    seconds(100)
    assert seconds(24_000) < 16 * seconds(3_000) + 0.5


@pytest.mark.slow
def test_memory_does_not_grow_with_the_input(tmp_path: Path) -> None:
    """Eight times as many entities, adjacent or scattered, take little more memory: some bytes for each."""

    def peak(n: int, *, is_scattered: bool) -> int:
        path = tmp_path / "base.nt"
        with path.open("w") as file:
            for part in range(2):
                for i in range(n):
                    if is_scattered or not part:
                        file.write(f'<u:{i}> <http://www.w3.org/2000/01/rdf-schema#label> "name {i} {part}" .\n')
        with open_reader([path], "rdf", ReadOptions()) as reader:
            tracemalloc.start()
            assert sum(1 for _ in reader.read(ReadReport())) == n
            found = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        return found

    for is_scattered in (False, True):
        assert peak(20_000, is_scattered=is_scattered) < peak(2_500, is_scattered=is_scattered) + 17_500 * 100
