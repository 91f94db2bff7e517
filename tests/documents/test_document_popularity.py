"""Popularity in documents: what it says within its own base, in whatever unit it is counted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pearl_qdrant import Entity, EntityLinker
from pearl_qdrant.encoder.protocol import Encoder

PEOPLE = {
    "China": 1_402_112_000, "India": 1_380_004_385, "United States": 329_484_123, "Brazil": 212_559_417,
    "Japan": 125_836_021, "London": 8_961_989, "Hong Kong": 7_481_800, "Singapore": 5_685_807, "Oslo": 580_000,
    "Norwich": 195_761, "London, Ontario": 346_765, "New London": 27_179,
}  # fmt: skip
"""Twelve places, and how many people live there."""

TEXT = "An outbreak in China was followed by cases in Hong Kong and London. Norwich and Oslo had none."
NAMES = ("China", "Hong Kong", "London", "Norwich", "Oslo")
SPANS = [(TEXT.index(name), TEXT.index(name) + len(name)) for name in NAMES]

UNITS = (1.0, 0.001, 1e6, None)
"""How many people make one; None: the base has no popularity."""


@pytest.fixture(scope="module", params=UNITS, ids=str)
def linker(request: pytest.FixtureRequest, shipped: Encoder) -> Iterator[EntityLinker]:
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


def test_a_name_of_one_place_is_as_sure_in_a_document_as_alone(linker: EntityLinker) -> None:
    """However many people live there, each place is found and linked, and no less sure than the name alone."""
    alone = [linker.link(name) for name in NAMES]
    together = [one.link for one in linker.link_document(TEXT, SPANS)]
    single = [linker.link_document(name, [(0, len(name))])[0].link for name in NAMES]

    assert [link.entity_id for link in together] == [link.entity_id for link in alone] == [*NAMES]
    for found in (together, single):
        for link, of_alone in zip(found, alone, strict=True):
            assert link.probability is not None
            assert of_alone.probability is not None
            assert link.probability >= of_alone.probability - 1e-6, link.mention
    for is_document in (False, True):
        annotated = linker.annotate(TEXT, document=is_document)
        assert [(one.text, one.link.entity_id) for one in annotated] == [(name, name) for name in NAMES]


def test_of_two_places_of_one_name_the_larger_one_is_meant(linker: EntityLinker) -> None:
    """The ratio of their people says so, and it is the same in any unit; without popularity they are ambiguous."""
    found = linker.link_document("She moved from Perth to Oslo.", [(15, 20), (24, 28)])[0].link
    first, second = found.candidates[:2]

    assert {first.entity_id, second.entity_id} == {"perth-australia", "perth-scotland"}
    assert found.entity_id == (None if first.popularity is None else "perth-australia")
    if first.popularity is not None:
        assert first.probability / second.probability == pytest.approx(15.26, rel=0.01)


def test_words_around_still_speak_against_a_name(linker: EntityLinker) -> None:
    """`Clinton` after `Bill Clinton` is the person, though a place alone has that very name."""
    text = "Bill Clinton met reporters. Later Clinton left."
    person, surname = linker.link_document(text, [(0, 12), (34, 41)])

    assert linker.link("Clinton").entity_id == "clinton"
    assert person.link.entity_id == "bill"
    first = surname.link.candidates[0]
    assert first.entity_id == ("clinton" if first.popularity is None else "bill")
