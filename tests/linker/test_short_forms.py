"""A short form is the name that its letters fit: initials, beginnings of words, and parts of compounds. A short name
of an entity stands for its canonical name, and for no other thing that has its letters.
"""

from __future__ import annotations

import pytest
from linker_base import linker_over
from pair_table import linked, other_outcomes

from pearl_qdrant import Entity, EntityLinker
from pearl_qdrant.linking.ranking.explain import explain_link
from pearl_qdrant.linking.ranking.model import Calibration
from pearl_qdrant.linking.ranking.short_forms import best_way, shipped_short_forms, short_form

NAMES = (
    "Annual Symposium on River Engineering and Dams",
    "International Workshop on Glacier Modelling",
    "Northern Congress of Harbour Pilots",
    "Verordnung über die Berufsausbildung zum Orgelbauer und zur Orgelbauerin",
    "Gesetz zur Förderung des Küstenschutzes",
    "Gesetz über den Verkehr mit Saatgut",
    "Tulip streak mosaic virus",
    "Heron pox virus 2",
    "Regional Savings Bank of the Lower Valley",
    "Market Street Gallery",
)
linker = linker_over([Entity(name, name) for name in NAMES])


def test_letters_find_their_name(linker: EntityLinker) -> None:
    """Whatever the vector of such a word is like: a small word may have a letter, parts may be in another order. Other
    letters, a word in capitals and two letters find nothing.
    """
    assert other_outcomes(__file__, "letters", linked(linker)) == []


@pytest.mark.parametrize("mention", ["Iwgm", "glacier", "IW GM modelling", "A" * 40, "12345", "?!", ""])
def test_other_mentions_are_no_short_forms(mention: str) -> None:
    """One word with two capitals, of three letters at least, and a number or country behind it at most."""
    assert short_form(mention) is None


def test_short_forms_are_read() -> None:
    """Letters are folded, numbers are whole, parts begin with a capital."""
    short = short_form("KüstSchG 007")

    assert short is not None
    assert "".join(short.symbols) == "kustschg7"
    assert short.parts == ("kust", "sch", "g", "7")
    assert short.is_mixed


@pytest.mark.parametrize(
    "mention, words, steps",
    [
        ("IWGM", "international workshop on glacier modelling", {"first": 1, "start": 3, "skip_small": 1}),
        ("IGM", "international workshop on glacier modelling", {"first": 1, "start": 2, "skip_small": 1, "skip": 1}),
        ("GLAMO", "glacier modelling", {"first": 1, "next": 3, "start": 1}),
        ("HPV2", "heron pox virus 2", {"first": 1, "start": 2, "number": 1}),
        ("HPV9", "heron pox virus 2", {"first": 1, "start": 2, "miss_number": 1}),
        ("KüG", "gesetz kustenschutz", {"lead": 1, "first": 1, "next": 1, "head": 1}),
    ],
)
def test_ways(mention: str, words: str, steps: dict[str, int]) -> None:
    """The steps of the best way, but for how rare the words are that it leaves out."""
    short, of_name = short_form(mention), words.split()

    assert short is not None
    found = best_way(short, of_name, [0.5] * len(of_name), shipped_short_forms())
    assert found is not None
    assert {step: n for step, n in found.items() if "rare" not in step} == steps


@pytest.mark.parametrize("words", ["", "iwgm", "iwgm conference of all", "glaciers", "one two three four five six"])
def test_names_that_do_not_fit(words: str) -> None:
    """Names that are too short, have the mention as a word, or lack its letters."""
    short, of_name = short_form("IWGM"), words.split()

    assert short is not None
    assert best_way(short, of_name, [0.5] * len(of_name), shipped_short_forms()) is None


def test_an_explanation_has_the_letters(linker: EntityLinker) -> None:
    """What they add is a part of the score and of the decision, and contributions still sum to both."""
    link = linker.link("IWGM")

    best = link.candidates[0]
    assert best.features["short_form"] > 1.0
    assert "short_form" in best.decision
    assert any("letters of a short form" in line for line in explain_link(link, Calibration()))


SHORT_NAMES = {
    "multiple sclerosis": ("MS", "disseminated sclerosis"),
    "rheumatoid arthritis": ("RA",),
    "chronic kidney disease": ("CKD",),
    "asthma": (),
    "Canada": ("CA", "CAN"),
    "Israel": ("IL", "ISR"),
    "Seychelles": ("SC",),
    "Germany": ("DE", "DEU"),
    "Hewlett-Packard": ("HP",),
    "Procter & Gamble": ("P&G",),
    "World Wildlife Fund": ("WWF",),
    "United Nations": ("UN", "ONU"),
    "aspirin": ("ASA", "acetylsalicylic acid"),
    "Eastern Snow Removal Office": ("ESRO",),
    "United States Steel": ("U.S. Steel",),
    "Escherichia coli": ("E. coli",),
    "John Smith": ("J. Smith",),
    "William Taylor": ("W. Taylor",),
}
ENTITIES = [Entity(name, name, aliases) for name, aliases in SHORT_NAMES.items()]

short_names = linker_over(ENTITIES)


def test_a_short_name_stands_for_one_thing(short_names: EntityLinker) -> None:
    """What the canonical name says otherwise is another thing, whatever the letters of its short name. It is found as
    it stands, within a mention, of a slip or nickname, and by initials that the canonical name does not have.
    """

    def outcome(mention: str, name: str) -> str:
        found = linked(short_names)(mention, name)
        assert found == "linked" or name not in [one.name for one in short_names.link(mention).candidates]
        return found

    assert other_outcomes(__file__, "a short name", outcome) == []
    found = short_names.link("Organización de las Naciones Unidas")
    assert found.candidates[0].entity_id == "United Nations"
