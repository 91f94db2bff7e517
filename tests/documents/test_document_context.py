"""What the words around a mention and learned names say of its candidates in a document."""

from __future__ import annotations

import pytest
from linker_base import linker_over

from pearl_qdrant import Entity, EntityLinker
from pearl_qdrant.encoder.protocol import Encoder

ENTITIES = [
    Entity("person", "Jordan", ("Michael Jordan",), ("basketball player",), ("PERSON",)),
    Entity("country", "Jordan", ("Hashemite Kingdom",), ("country",), ("GPE",)),
    Entity("forest", "random forest", ("RF",)),
    Entity("radio", "radio frequency", ("RF",)),
]


linker = linker_over(ENTITIES, threshold=0.0)


@pytest.mark.parametrize(
    "mention, context, entity_id",
    [
        ("RF", "We grow an RF of a hundred trees, each on its own sample.", "forest"),
        ("RF", "The antenna sends an RF signal to the receiver.", "radio"),
        ("Jordan", "He was born in Amman, the capital of Jordan.", "country"),
    ],
)
def test_a_context_chooses_between_homonyms(linker: EntityLinker, mention: str, context: str, entity_id: str) -> None:
    """The passage and the words around a mention say which of two entities of one name it is."""
    assert linker.link(mention, context=context).candidates[0].entity_id == entity_id


def test_a_description_chooses_between_namesakes(shipped: Encoder) -> None:
    """Of entities that only their stored descriptions tell apart, the one that fits the context comes first."""
    rows = [
        {"id": "planet", "name": "Mercury", "description": "the planet nearest to the Sun"},
        {"id": "metal", "name": "Mercury", "description": "a chemical element, a metal that is liquid"},
    ]
    with EntityLinker.build(rows, model=shipped) as linker:
        orbit = linker.link("Mercury", context="The orbit of Mercury around the Sun takes 88 days.")
        thermometer = linker.link("Mercury", context="A thermometer with liquid metal: Mercury, a chemical element.")

    assert [one.candidates[0].entity_id for one in (orbit, thermometer)] == ["planet", "metal"]
    assert orbit.candidates[0].probability > orbit.candidates[1].probability


def test_a_rule_names_its_own_candidate_and_parts_can_be_switched_off(linker: EntityLinker) -> None:
    """A rule that chose another entity than the context is not given as the reason. Without types and passages,
    homonyms stay tied in a document.
    """
    alone = linker.link("Jordan")
    country = linker.link("Jordan", context="He was born in Amman, the capital of Jordan.")
    person = linker.link("Jordan", context="Jordan (born 17 February 1963) is a retired player and coach.")

    assert country.candidates[0].entity_id != person.candidates[0].entity_id
    for link in (country, person):
        is_other = link.candidates[0].entity_id != alone.candidates[0].entity_id
        assert link.rule == (None if is_other else alone.rule)
    text = "The antenna sends an RF signal."
    off = linker.link_document(text, [(21, 23)], without=["types", "passages"])[0].link
    on = linker.link_document(text, [(21, 23)])[0].link

    assert off.candidates[0].probability == pytest.approx(off.candidates[1].probability)
    assert on.candidates[0].entity_id == "radio"


def test_learned_names_count_in_a_document(linker: EntityLinker) -> None:
    """A learned name goes before what the document says alone, is shown, and counts no more after its undo."""
    text = "We tuned the RF."
    accepted = linker.accept("RF", "radio")
    learned = linker.link_document(text, [(13, 15)])[0].link
    off = linker.link_document(text, [(13, 15)], without=["learned names"])[0].link
    linker.undo_learned(accepted.number)
    after = linker.link_document(text, [(13, 15)])[0].link

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
def test_a_rejection_counts_in_a_document_and_a_context(linker: EntityLinker, text: str, entity_id: str | None) -> None:
    """A rejected entity is no longer linked; another one is, if the text does not contradict it."""
    place = text.index("RF"), text.index("RF") + 2
    before = linker.link_document(text, [place], threshold=0.5)[0].link
    rejected = linker.reject("RF", "radio")
    in_document = linker.link_document(text, [place], threshold=0.5)[0].link
    in_context = linker.link("RF", context=text, threshold=0.5)
    linker.undo_learned(rejected.number)

    assert before.entity_id == "radio"
    assert in_document.entity_id == in_context.entity_id == entity_id
    assert in_document.learned[0].rejected == 1
