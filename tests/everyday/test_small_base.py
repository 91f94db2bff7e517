"""What a small base lacks is NIL, though no other name of it is near; slips of its names are linked."""

from __future__ import annotations

import pytest
from linker_base import linker_over
from pair_table import linked, other_outcomes

from pearl_qdrant import Entity, EntityLinker, NilReason
from pearl_qdrant.encoder.protocol import Encoder

SQUARES = ("Kerkplein (Begijnendijk)", "Kerkplein (Betekom)", "Kerkplein (Aarschot)")
HARBOURS = ("Altmouth, Shale County", "Altmouth (Northshire)", "Altmouth, Port of")


PERSONS = ("Julian Ferrer", "Katherine Heigl", "Randy Jackson", "Wim Wenders")
THINGS = ("Scary Movie", "Rocky", "Louvre Museum", "Ohio", *SQUARES, *HARBOURS)
OTHERS = [f"{word} {kind}" for word in ("Amber", "Cedar", "Falcon", "Linden") for kind in ("Records", "River", "Act")]
"""Names that are like nothing asked for."""

linker = linker_over(
    [
        *(Entity(name, name, (), (), ("PERSON",)) for name in PERSONS),
        *(Entity(name, name) for name in (*THINGS, *OTHERS)),
    ]
)


def test_another_family_name_number_or_word_is_another_thing(linker: EntityLinker) -> None:
    """Kinds of names that were linked in bases of 300: another family or first name, a sequel, another first word. What
    is a spelling of a name is not taken for another one.
    """
    assert other_outcomes(__file__, "small base", linked(linker)) == []


@pytest.mark.parametrize("mention, names", [("Kerkplein", SQUARES), ("Altmouth", HARBOURS)])
def test_names_alike_but_for_brackets_are_namesakes(linker: EntityLinker, mention: str, names: tuple[str, ...]) -> None:
    """The mention does not say which; the vectors differ by what is in brackets, or behind a comma, alone."""
    link = linker.link(mention)

    assert link.nil_reason is NilReason.AMBIGUOUS
    assert sorted(one.entity_id for one in link.candidates if one.tie) == sorted(names)


@pytest.mark.parametrize("name", ["Louvre Museum", "Scary Movie", "Wim Wenders", "Amber Records"])
def test_a_name_with_common_words_behind_it_is_another_thing(linker: EntityLinker, name: str) -> None:
    """Where the judge takes both for two things."""
    for mention in (f"{name} lawsuit", f"{name} competitor"):
        assert linker.link(mention).entity_id is None, mention


def test_what_is_in_brackets_tells_names_apart(linker: EntityLinker) -> None:
    """Where the mention says it."""
    assert linker.link("Kerkplein, Aarschot").candidates[0].entity_id == SQUARES[2]


def test_a_type_that_the_mention_states_tells_namesakes_apart(shipped: Encoder) -> None:
    """In brackets, before or behind the name; without it they are ambiguous."""
    kinds = {"Georgia": ("country", "state"), "Mercury": ("planet", "god"), "Java": ("island", "programming language")}
    entities = [Entity(f"{name} ({kind})", name, (), (kind,)) for name, some in kinds.items() for kind in some]
    with EntityLinker.build([*entities, *(Entity(name, name) for name in OTHERS)], model=shipped) as linker:
        for name, some in kinds.items():
            assert linker.link(name).nil_reason is NilReason.AMBIGUOUS
            for kind in some:
                for mention in (f"{name} ({kind})", f"the {kind} {name}"):
                    assert linker.link(mention).entity_id == f"{name} ({kind})", mention


def test_a_name_that_shares_nothing_with_the_mention_needs_the_judge(shipped: Encoder) -> None:
    """It was nearly linked where nothing else was there."""
    others = [Entity("mi", "myocardial infarction", ("heart attack", "MI"), ("disease",), ("OTHER",))]
    others += [Entity(name, name) for name in ("New York Post", "Heathrow Airport", "aspirin", "acetylsalicylic acid")]
    with EntityLinker.build(others, model=shipped) as linker:
        for link in linker.link_batch(["ACME", "Acme", "ZEBRA"]):
            assert link.candidates[0].probability < 0.3, link.mention  # 0.41 by a judge of four layers


def test_a_wanted_type_and_popularity_decide_between_names_alike_but_for_brackets(shipped: Encoder) -> None:
    """Those of other types do not share; popularity counts as between names that are equal."""
    types = {"Springfield (Ohio)": "GPE", "Springfield (Iowa)": "GPE", "Springfield (band)": "ORG", "Chicago": "GPE"}
    with EntityLinker.build(
        [Entity(name, name, (), (), (one,)) for name, one in types.items()], model=shipped
    ) as linker:
        assert linker.link("Springfield", types=["ORG"]).entity_id == "Springfield (band)"
        assert linker.link("Springfield", types=["GPE"]).nil_reason is NilReason.AMBIGUOUS
        assert linker.link("Springfield").nil_reason is NilReason.AMBIGUOUS
    entities = [Entity(name, name, popularity=10.0**i) for i, name in enumerate(SQUARES)]
    with EntityLinker.build([*entities, Entity("town", "Aarschot", popularity=5.0)], model=shipped) as linker:
        link = linker.link("Kerkplein")

    assert (link.candidates[0].entity_id, link.rule) == (SQUARES[2], "popularity")
