"""The OBO reader. The terms are made up."""

from __future__ import annotations

import gzip
from functools import partial
from pathlib import Path

import pytest
from rdf_bases import TOES
from rdf_bases import read as read_base

from ingest.base.reader import scan
from ingest.formats import open_reader
from ingest.io.report import ReadReport
from pearl_qdrant.errors import OptionError
from pearl_qdrant.records import Entity

read = partial(read_base, name="base.obo", kind="obo")


def test_a_term_is_an_entity() -> None:
    """Name, exact synonyms, definition, ancestors, other ids: without comments, modifiers and escapes. Obsolete terms,
    stubs, other stanzas and synonyms of other scopes have counts; none of them is an error.
    """
    report = ReadReport(max_errors=0)

    assert read(TOES, report=report) == [
        Entity(
            "MADE:0001",
            'sore "left" toe',
            ("toe pain, left", 'a "toe" ! that \\ hurts'),
            ("MADE:0002", "MADE:0004", "MADE:0003", "made_up"),
            (),
            "A toe that hurts.",
            {"alt_ids": "MADE:0901", "xrefs": "OTHER:77|OTHER:78"},
        ),
        Entity("MADE:0002", "sore toe", (), ("MADE:0003", "complaint"), (), None, {"alt_ids": "MADE:0005"}),
        Entity("MADE:0003", "sore thing! {really}", (), ("MADE:0002", "made_up")),
        Entity("MADE:0004", "left thing", (), ("made_up",)),
    ]
    assert report.filtered == {"obsolete": 1, "no_name": 1, "not_a_term": 1, "broad_synonym": 1, "related_synonym": 1}
    assert (report.rows, report.entities, report.names, report.n_skipped) == (7, 4, 6, 0)
    with pytest.raises(OptionError, match="CLOSE"):
        read(TOES, scopes=("CLOSE",))


@pytest.mark.parametrize(
    "line", ["is_a: A:0! top", "is_a: A:0!", "is_a: A:0 ! top", 'is_a: A:0{source="x"} ! top', "is_a:A:0"]
)
def test_a_parent_is_an_id_alone(line: str) -> None:
    """A comment or modifiers behind an id need no space."""
    (term, _) = read(f"[Term]\nid: A:1\nname: a\n{line}\n\n[Term]\nid: A:0\nname: top\n")

    assert term.kb_types == ("A:0",)


@pytest.mark.parametrize(
    "value, text",
    [
        ('"3,3\',3"-ring acid" EXACT IUPAC_NAME [IUPAC:]', "3,3',3\"-ring acid"),
        ('"a 5" nail" EXACT []', 'a 5" nail'),
        ('"the "best" toe" EXACT [MADE:x "a [note]"]', 'the "best" toe'),
        ('"plain" EXACT [MADE:x "in "quotes""]', "plain"),
        ('"plain" EXACT', "plain"),
        ('"plain" EXACT {note="x \\"y\\""} ! why', "plain"),
        ('"well \\"quoted\\"" EXACT []', 'well "quoted"'),
    ],
)
def test_quotes_that_were_not_escaped_are_part_of_a_synonym(value: str, text: str) -> None:
    """The synonym ends at the quote that a scope or references follow."""
    (term,) = read(f"[Term]\nid: A:1\nname: a\nsynonym: {value}\n")

    assert term.aliases == (text,)


def test_a_line_goes_on_after_a_backslash() -> None:
    """A backslash at the end of a line joins it to the next one; an escaped one does not, nor one without an end."""
    (term,) = read('[Term]\r\nid: A:1\r\nname: left \\\r\n  toe\r\ndef: "It \\\r\nhurts." []\r\nnamespace: a\\\\\r\n')

    assert (term.canonical_name, term.description, term.kb_types) == ("left toe", "It hurts.", ("a\\",))
    assert read("[Term]\nid: A:1\nname: toe\\")[0].canonical_name == "toe"


def test_references_may_have_blanks() -> None:
    """A reference is all up to its description, modifiers or comment."""
    lines = 'xref: Some Book:page 12 "read it"\nxref: ICD: A 1 {source="x"}\nxref: http://a/#!b ! why\n'
    (term,) = read(f"[Term]\nid: A:1\nname: a\n{lines}")

    assert term.extra["xrefs"] == "Some Book:page 12|ICD: A 1|http://a/#!b"


def test_synonyms_of_obo_1_0_are_read() -> None:
    """In the oldest files the tag contains the scope."""
    text = '[Term]\nid: A:1\nname: a\nexact_synonym: "b" []\nnarrow_synonym: "c" []\nexact_synonym: "a" []\n'

    assert read(text)[0].aliases == ("b",)


def test_several_files_are_one_base(tmp_path: Path) -> None:
    """Ancestors go on in another file, and a term that two files have is one entity."""
    first, second = tmp_path / "a.obo", tmp_path / "b.obo.gz"
    first.write_text("[Term]\nid: A:1\nname: a\nis_a: B:1\n\n[Term]\nid: B:1\nname: b\n")
    second.write_bytes(gzip.compress(b"[Term]\nid: B:1\nname: bee\nis_a: B:2\n\n[Term]\r\nid: B:2\r\nname: top\r\n"))
    with open_reader([first, second]) as reader:
        entities = list(reader.read(ReadReport()))
        scanned = scan(reader)

    assert entities == [
        Entity("A:1", "a", (), ("B:1", "B:2")),
        Entity("B:1", "b", ("bee",), ("B:2",)),
        Entity("B:2", "top"),
    ]
    assert (scanned.entities, scanned.names) == (3, 4)


@pytest.mark.parametrize(
    "line, reason, number",
    [
        (b"no colon here", "malformed_line", 4),
        (b'synonym: "open', "bad_synonym", 4),
        (b"synonym: bare EXACT []", "bad_synonym", 4),
        (b"name: \xff", "invalid_utf8", 4),
        (b"def: " + b"x" * (1 << 21), "line_too_long", 4),
        (b"[Term]\nname: nobody", "no_id", 4),
    ],
    ids=lambda value: str(value)[:12],
)
def test_a_bad_line_costs_itself_alone(line: bytes, reason: str, number: int) -> None:
    """The line is counted with its place, and the terms around it are read."""
    report = ReadReport()
    terms = read(b"[Term]\nid: A:1\nname: a\n" + line + b"\n\n[Term]\nid: A:2\nname: b\n! \xc3\xa9\n", report=report)

    assert [term.canonical_name for term in terms] == ["a", "b"]
    assert report.skipped == {reason: 1}
    assert report.examples[0].path.endswith("base.obo")
    assert report.examples[0].line == number
