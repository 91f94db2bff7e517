"""`link_document`, `link` with a context and `annotate` of a document, from Python and on the command line."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_runner import Run
from linker_base import fill

from pearl_qdrant import Entity, EntityLinker
from pearl_qdrant.errors import FormatError, UnknownTypeError
from pearl_qdrant.linking.documents.linking import read_document_lines

TEXT = "Bill Clinton met the mayor of Gotham. Later Clinton left the National Security Agency (NSA)."
SPANS = [(0, 12), (30, 36), (44, 51), (87, 90)]

ENTITIES = [
    Entity("bill", "Bill Clinton", (), ("person",), ("PERSON",), popularity=900.0),
    Entity("iowa", "Clinton, Iowa", (), ("city",), ("GPE",), popularity=90.0),
    Entity("gotham", "Gotham", (), ("city",), ("GPE",), popularity=50.0),
    Entity("nsa", "National Security Agency", (), ("agency",), ("ORG",), popularity=80.0),
]


@pytest.fixture(scope="module")
def store_path(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A store with the collection `people`."""
    path = tmp_path_factory.mktemp("store")
    fill(path, "people", str(model), ENTITIES)
    return path


@pytest.fixture(scope="module")
def linker(store_path: Path) -> Iterator[EntityLinker]:
    """A linker over the collection `people`."""
    with EntityLinker.open("people", store=str(store_path), threshold=0.0) as opened:
        yield opened


def test_one_link_for_each_span_in_its_order(linker: EntityLinker) -> None:
    """Spans in any order get their links in that order; a surname the person, an abbreviation its long form. Without
    partial names and coherence the surname is linked as a mention alone.
    """
    found = linker.link_document(TEXT, reversed(SPANS))

    assert [one.text for one in found] == ["NSA", "Clinton", "Gotham", "Bill Clinton"]
    assert [one.link.candidates[0].entity_id for one in found] == ["nsa", "bill", "gotham", "bill"]
    assert found[0].long_form == "National Security Agency"
    alone = linker.link_document(TEXT, SPANS[2:3])
    switched = linker.link_document(TEXT, SPANS, without=["partial names", "coherence"])
    assert switched[2].link.candidates[0].entity_id == alone[0].link.candidates[0].entity_id
    for text in ("\U0001f600 Gotham \u200b", "约旦 Gotham"):
        nothing, gotham = linker.link_document(text, [(0, 1), (text.index("G"), text.index("m") + 1)])
        assert nothing.link.candidates == ()
        assert gotham.link.candidates[0].entity_id == "gotham"
    assert linker.link_document("", []) == []
    assert linker.link_document(TEXT, []) == []


def test_a_short_form_is_linked_as_written_where_the_base_lacks_its_long_form(model: Path, tmp_path: Path) -> None:
    """A code says what its long form is. A few letters do so if the long form is near, and it tells namesakes apart."""
    text = (
        "Quartz relay lattice assembly 7 (QRLA7) and QRLA7; mass spectrometry (MS) and MS; human growth hormones (HGH) "
        "and HGH."
    )
    entities = [
        Entity("code", "lattice component", ("QRLA7",), (), ()),
        Entity("ms", "multiple sclerosis", ("MS",), (), ()),
        Entity("hormone", "growth hormone of humans", ("HGH",), (), ()),
        Entity("hospital", "Hillcrest General", ("HGH",), (), ()),
    ]
    fill(tmp_path, "forms", str(model), entities)
    spans = [m.span() for m in re.finditer(r"Quartz[^(]*7|QRLA7|mass \w+|MS|human \w+ \w+|HGH", text)]
    with EntityLinker.open("forms", store=str(tmp_path)) as linker:
        found = [one.link.entity_id for one in linker.link_document(text, spans)]

    assert found[:6] == ["code", "code", "code", None, None, None]
    assert "hospital" not in found[6:]


def test_mistakes_are_named(linker: EntityLinker) -> None:
    """Missing spans, spans outside the text, unknown parts and unknown types are errors, the last in a context too."""
    with pytest.raises(ValueError, match="pass spans, as"):
        linker.link_document(TEXT)
    with pytest.raises(ValueError, match="span 0 is from 0 to 900"):
        linker.link_document(TEXT, [(0, 900)])
    with pytest.raises(ValueError, match="without is one or several of"):
        linker.link_document(TEXT, SPANS, without=["names"])
    with pytest.raises(UnknownTypeError):
        linker.link_document(TEXT, SPANS, types=["planet"])
    with pytest.raises(TypeError, match="a passage is a str"):
        linker.link_document(7, SPANS)  # type: ignore[arg-type]
    with pytest.raises(UnknownTypeError):
        linker.link_batch(["Gotham"], context="x", types=["planet"])
    with pytest.raises(TypeError):
        linker.link_batch("Gotham", context="x")


def test_a_context_resolves_a_surname(linker: EntityLinker) -> None:
    """A mention takes the entity of a longer name in its context; each mention of a batch by itself. A context without
    it, or a longer name of it, leaves the probabilities as they are.
    """
    mentions: list[Any] = ["Clinton", "Gotham", "", None, 3]
    links = list(linker.link_batch(mentions, context="President Bill Clinton went home."))

    assert [link.candidates[0].entity_id for link in links[:2]] == ["bill", "gotham"]
    assert [link.entity_id for link in links[2:]] == [None] * 3
    assert linker.link("Clinton", context="Bill Clinton").candidates[0].entity_id == "bill"
    for mention, context in (("Gotham", "Nothing here."), ("Clinton", "")):
        alone, in_context = linker.link(mention, limit=10), linker.link(mention, context=context)
        assert in_context.entity_id == alone.entity_id
        assert in_context.nil_reason == alone.nil_reason
        of_alone = [candidate.probability for candidate in alone.candidates]
        assert [candidate.probability for candidate in in_context.candidates] == pytest.approx(of_alone, abs=1e-6)


def test_a_later_bare_mention_keeps_the_longer_name(linker: EntityLinker) -> None:
    """A common word at the start of a sentence makes no longer name of a mention, and of several longer ones those
    count that the base has.
    """
    before = linker.link("Clinton", context="Bill Clinton met the mayor.")
    for context in (
        "Bill Clinton met the mayor. Later Clinton left.",
        "Bill Clinton met the mayor. Secretary Clinton left.",
        "Friends of Clinton came. Bill Clinton met the mayor. Nobody Clinton knew left.",
    ):
        link = linker.link("Clinton", context=context)
        assert link.candidates[0].entity_id == "bill", context
        assert link.probability == pytest.approx(before.probability, abs=0.1), context


def test_annotate_links_a_document_together(linker: EntityLinker) -> None:
    """With `document` the surname is found and linked as its full name is; batches as single texts."""
    alone = linker.annotate(TEXT, document=True, threshold=0.0)
    batch = list(linker.annotate_batch([TEXT, ""], document=True, threshold=0.0))

    assert {one.text: one.link.entity_id for one in alone}["Clinton"] == "bill"
    assert batch == [alone, []]


def test_documents_on_the_command_line(run: Run, store_path: Path, tmp_path: Path) -> None:
    """A file of documents gives one record a mention, with the id or line of its document and its place. Options for
    documents without documents are usage errors.
    """
    path = tmp_path / "documents.jsonl"
    mentions = [{"start": start, "end": end} for start, end in SPANS]
    rows = [{"id": "a", "text": TEXT, "mentions": mentions}, {"text": "Gotham", "mentions": [{"start": 0, "end": 6}]}]
    path.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    common = ("link", "--store", str(store_path), "--threshold", "0", "--file")

    as_json = run(*common, str(path), "--json")
    as_text = run(*common, str(path))

    records = [json.loads(line) for line in as_json.out.splitlines()]
    assert as_json.status == 0
    assert [(r.get("id"), r.get("line"), r["start"], r["entity_id"]) for r in records] == [
        ("a", None, 0, "bill"),
        ("a", None, 30, "gotham"),
        ("a", None, 44, "bill"),
        ("a", None, 87, "nsa"),
        (None, 2, 0, "gotham"),
    ]
    assert as_text.out.startswith("a:0:Bill Clinton  ->  Bill Clinton")
    for words, message in (
        (("Gotham", "--format", "jsonl"), "--set format is for --file"),
        (("--file", "-", "--format", "jsonl", "--context", "x"), "a document is the context"),
    ):
        outcome = run("link", *words)
        assert (outcome.status, message in outcome.err) == (2, True)


@pytest.mark.parametrize(
    "line, message",
    [
        ("{", "not JSON"),
        ('{"text": "x"}', "not an object with a text and mentions"),
        ('{"text": "x", "mentions": [{"start": 0, "end": 9}]}', "span 0 is from 0 to 9"),
        ('{"text": "x", "mentions": [[0]]}', "span 0 is"),
        ('{"text": "x", "mentions": [], "id": []}', r"the id is \[\]"),
    ],
)
def test_bad_documents_name_their_line(line: str, message: str) -> None:
    """An error names the file and the line, and says what is wrong."""
    with pytest.raises(FormatError, match=rf"d\.jsonl:2: .*{message}"):
        list(read_document_lines(io.BytesIO(b"\n" + line.encode()), "d.jsonl"))
