"""`link_document`, `link` with a context and `annotate` of a document, from Python and on the command line. What the
words around a mention, learned names and popularity say of its candidates.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_runner import Run
from linker_base import fill, linker_over

from pearl_qdrant import Entity, EntityLinker
from pearl_qdrant.encoder.protocol import Encoder
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


HOMONYMS = [
    Entity("person", "Jordan", ("Michael Jordan",), ("basketball player",), ("PERSON",)),
    Entity("country", "Jordan", ("Hashemite Kingdom",), ("country",), ("GPE",)),
    Entity("forest", "random forest", ("RF",)),
    Entity("radio", "radio frequency", ("RF",)),
]


homonyms = linker_over(HOMONYMS, threshold=0.0)


@pytest.mark.parametrize(
    "mention, context, entity_id",
    [
        ("RF", "We grow an RF of a hundred trees, each on its own sample.", "forest"),
        ("RF", "The antenna sends an RF signal to the receiver.", "radio"),
        ("Jordan", "He was born in Amman, the capital of Jordan.", "country"),
    ],
)
def test_a_context_chooses_between_homonyms(homonyms: EntityLinker, mention: str, context: str, entity_id: str) -> None:
    """The passage and the words around a mention say which of two entities of one name it is."""
    assert homonyms.link(mention, context=context).candidates[0].entity_id == entity_id


def test_a_description_chooses_between_namesakes(shipped: Encoder) -> None:
    """Of entities that only their stored descriptions tell apart, the one that fits the context comes first."""
    rows = [
        {"id": "planet", "name": "Mercury", "description": "the planet nearest to the Sun"},
        {"id": "metal", "name": "Mercury", "description": "a chemical element, a metal that is liquid"},
    ]
    with EntityLinker.build(rows, model=shipped) as homonyms:
        orbit = homonyms.link("Mercury", context="The orbit of Mercury around the Sun takes 88 days.")
        thermometer = homonyms.link("Mercury", context="A thermometer with liquid metal: Mercury, a chemical element.")

    assert [one.candidates[0].entity_id for one in (orbit, thermometer)] == ["planet", "metal"]
    assert orbit.candidates[0].probability > orbit.candidates[1].probability


def test_a_rule_names_its_own_candidate_and_parts_can_be_switched_off(homonyms: EntityLinker) -> None:
    """A rule that chose another entity than the context is not given as the reason. Without types and passages,
    homonyms stay tied in a document.
    """
    alone = homonyms.link("Jordan")
    country = homonyms.link("Jordan", context="He was born in Amman, the capital of Jordan.")
    person = homonyms.link("Jordan", context="Jordan (born 17 February 1963) is a retired player and coach.")

    assert country.candidates[0].entity_id != person.candidates[0].entity_id
    for link in (country, person):
        is_other = link.candidates[0].entity_id != alone.candidates[0].entity_id
        assert link.rule == (None if is_other else alone.rule)
    text = "The antenna sends an RF signal."
    off = homonyms.link_document(text, [(21, 23)], without=["types", "passages"])[0].link
    on = homonyms.link_document(text, [(21, 23)])[0].link

    assert off.candidates[0].probability == pytest.approx(off.candidates[1].probability)
    assert on.candidates[0].entity_id == "radio"


def test_learned_names_count_in_a_document(homonyms: EntityLinker) -> None:
    """A learned name goes before what the document says alone, is shown, and counts no more after its undo."""
    text = "We tuned the RF."
    accepted = homonyms.accept("RF", "radio")
    learned = homonyms.link_document(text, [(13, 15)])[0].link
    off = homonyms.link_document(text, [(13, 15)], without=["learned names"])[0].link
    homonyms.undo_learned(accepted.number)
    after = homonyms.link_document(text, [(13, 15)])[0].link

    assert learned.entity_id == "radio"
    assert learned.learned[0].as_written == 1
    assert off == after
    assert not after.learned


@pytest.mark.parametrize(
    "text, entity_id",
    [
        ("We tuned the RF.", "forest"),
        ("An RF antenna, tuned to the frequency of the transmitter, sends a radio signal to the receiver.", None),
    ],
)
def test_a_rejection_counts_in_a_document_and_a_context(
    homonyms: EntityLinker, text: str, entity_id: str | None
) -> None:
    """A rejected entity is no longer linked; another one is, if the text does not contradict it."""
    place = text.index("RF"), text.index("RF") + 2
    before = homonyms.link_document(text, [place], threshold=0.5)[0].link
    rejected = homonyms.reject("RF", "radio")
    in_document = homonyms.link_document(text, [place], threshold=0.5)[0].link
    in_context = homonyms.link("RF", context=text, threshold=0.5)
    homonyms.undo_learned(rejected.number)

    assert before.entity_id == "radio"
    assert in_document.entity_id == in_context.entity_id == entity_id
    assert in_document.learned[0].rejected == 1


PEOPLE = {
    "China": 1_402_112_000, "India": 1_380_004_385, "United States": 329_484_123, "Brazil": 212_559_417,
    "Japan": 125_836_021, "London": 8_961_989, "Hong Kong": 7_481_800, "Singapore": 5_685_807, "Oslo": 580_000,
    "Norwich": 195_761, "London, Ontario": 346_765, "New London": 27_179,
}  # fmt: skip
"""Twelve places, and how many people live there."""

PLACES = "An outbreak in China was followed by cases in Hong Kong and London. Norwich and Oslo had none."
NAMES = ("China", "Hong Kong", "London", "Norwich", "Oslo")
PLACE_SPANS = [(PLACES.index(name), PLACES.index(name) + len(name)) for name in NAMES]

UNITS = (1.0, 0.001, 1e6, None)
"""How many people make one; None: the base has no popularity."""


@pytest.fixture(scope="module", params=UNITS, ids=str)
def places(request: pytest.FixtureRequest, shipped: Encoder) -> Iterator[EntityLinker]:
    """A linker over the places and a person, with what makes them popular counted in one unit."""
    rows = [(name, name, "GPE", people) for name, people in PEOPLE.items()]
    rows += [("perth-australia", "Perth", "GPE", 2_141_834), ("perth-scotland", "Perth", "GPE", 47_350)]
    rows += [("clinton", "Clinton", "GPE", 24_469), ("bill", "Bill Clinton", "PERSON", 1_000_000)]
    unit = request.param
    entities = [
        Entity(key, name, (), (), (kind,), popularity=None if unit is None else unit * people)
        for key, name, kind, people in rows
    ]
    with EntityLinker.build(entities, model=shipped) as opened:
        yield opened


def test_a_name_of_one_place_is_as_sure_in_a_document_as_alone(places: EntityLinker) -> None:
    """However many people live there, each place is found and linked, and no less sure than the name alone."""
    alone = [places.link(name) for name in NAMES]
    together = [one.link for one in places.link_document(PLACES, PLACE_SPANS)]
    single = [places.link_document(name, [(0, len(name))])[0].link for name in NAMES]

    assert [link.entity_id for link in together] == [link.entity_id for link in alone] == [*NAMES]
    for found in (together, single):
        for link, of_alone in zip(found, alone, strict=True):
            assert link.probability is not None
            assert of_alone.probability is not None
            assert link.probability >= of_alone.probability - 1e-6, link.mention
    for is_document in (False, True):
        annotated = places.annotate(PLACES, document=is_document)
        assert [(one.text, one.link.entity_id) for one in annotated] == [(name, name) for name in NAMES]


def test_of_two_places_of_one_name_the_larger_one_is_meant(places: EntityLinker) -> None:
    """The ratio of their people says so, and it is the same in any unit; without popularity they are ambiguous."""
    found = places.link_document("She moved from Perth to Oslo.", [(15, 20), (24, 28)])[0].link
    first, second = found.candidates[:2]

    assert {first.entity_id, second.entity_id} == {"perth-australia", "perth-scotland"}
    assert found.entity_id == (None if first.popularity is None else "perth-australia")
    if first.popularity is not None:
        assert first.probability / second.probability == pytest.approx(15.26, rel=0.01)


def test_words_around_still_speak_against_a_name(places: EntityLinker) -> None:
    """`Clinton` after `Bill Clinton` is the person, though a place alone has that very name."""
    text = "Bill Clinton met reporters. Later Clinton left."
    person, surname = places.link_document(text, [(0, 12), (34, 41)])

    assert places.link("Clinton").entity_id == "clinton"
    assert person.link.entity_id == "bill"
    first = surname.link.candidates[0]
    assert first.entity_id == ("clinton" if first.popularity is None else "bill")
