"""Mentions with a joint: lists of names, names that have a joint themselves, and names with their place."""

from __future__ import annotations

import pytest
from linker_base import linker_over
from pair_table import other_outcomes

from pearl_qdrant import Entity, EntityLinker, NilReason
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.linking.ranking import explain_link

JOINTS = ("; ", " and ", ", ", " & ", " und ", "|", "\n", " / ", "/", " or ", " vs. ", " vs ", " – ", " - ")

CITIES = "Munich,London,Paris,Oslo,Lyon,Porto,Delft,Leipzig,Bristol,Graz,Trinidad,Tobago".split(",")
OTHERS = [
    Entity("dc", "Washington, D.C.", (), ("city",), ("GPE",)),
    Entity("tt", "Republic of Trinidad and Tobago", (), ("country",), ("GPE",)),
    Entity("de", "Germany", (), ("country",), ("GPE",)),
    Entity("tx", "Texas", (), ("state",), ("GPE",)),
    Entity("jj", "Johnson & Johnson", (), ("company",), ("ORG",)),
    Entity("acdc", "AC/DC", (), ("band",), ("ORG",)),
    Entity("ac", "AC", (), ("unit",)),
    Entity("dcu", "DC", (), ("unit",)),
    Entity("w", "Washington", (), ("person",), ("PERSON",)),
    Entity("mdc", "MDC", (), ("unit",)),
    Entity("uk", "United Kingdom", ("UK",), ("country",), ("GPE",)),
    Entity("fi", "Finland", ("Suomi",), ("country",), ("GPE",)),
    Entity("si", "Siemens AG", (), ("company",), ("ORG",)),
    Entity("ba", "Bayer AG", (), ("company",), ("ORG",)),
    Entity("js", "John Smith", (), ("person",), ("PERSON",)),
    Entity("mj", "Mary Johnson", (), ("person",), ("PERSON",)),
]


linker = linker_over([*(Entity(one, one, (), ("city",), ("GPE",)) for one in CITIES), *OTHERS])


@pytest.mark.parametrize("joint", JOINTS)
def test_a_list_of_names_is_nil_and_says_so(linker: EntityLinker, joint: str) -> None:
    """Two names in a cell are not one of the two, however they are joined."""
    link = linker.link(f"Munich{joint}London")

    assert (link.entity_id, link.nil_reason, link.parts) == (None, NilReason.SEVERAL_NAMES, ())
    assert "several names" in explain_link(link, linker.calibration)[0]
    assert "the option `split` links each" in explain_link(link, linker.calibration)[0]


def test_two_names_of_one_entity_are_that_entity(linker: EntityLinker) -> None:
    """As sure as one of them, whatever joins them."""

    def outcome(mention: str) -> str:
        link = linker.link(mention)
        assert (link.mention, link.rule) == (mention, "exact name")
        assert link.probability == linker.link("Suomi").probability
        return str(link.entity_id)

    assert other_outcomes(__file__, "two names", outcome) == []


@pytest.mark.parametrize("mention", ["Oslo (Suomi)", "Oslo (sold)", "(Oslo) (Suomi)", "Finland (12)"])
def test_a_bracket_with_another_thing_says_nothing_of_it(linker: EntityLinker, mention: str) -> None:
    """A name of another entity or no name in brackets leaves the whole to be linked as it is."""
    link = linker.link(mention)

    assert (link.rule, link.nil_reason is NilReason.SEVERAL_NAMES) == (None, False)


def test_a_list_is_split_when_asked(linker: EntityLinker) -> None:
    """`split` links each name of a list; names that have a joint themselves, and places behind a name, stay whole.
    Parts that the base lacks, a region, one name twice, numbers and signs alone make no list.
    """

    def outcome(mention: str) -> str:
        link = linker.link(mention, split=True)
        if link.nil_reason is not NilReason.SEVERAL_NAMES:
            return "no list"
        assert all(one.mention in mention for one in link.parts)
        assert f"each of the {len(link.parts)} is linked" in explain_link(link, linker.calibration)[0]
        return " ".join(str(one.entity_id) for one in link.parts)

    assert other_outcomes(__file__, "joint", outcome) == []


def test_a_name_with_a_joint_is_no_list(linker: EntityLinker) -> None:
    """A whole that is a name goes before its parts, and so does a name with its country."""

    def outcome(mention: str) -> str:
        assert linker.link(mention).nil_reason is not NilReason.SEVERAL_NAMES
        return str(linker.link(mention, limit=1, threshold=0.1).entity_id)

    assert other_outcomes(__file__, "whole", outcome) == []


def test_names_of_one_type_are_a_list_whatever_the_model_takes_them_for(shipped: Encoder) -> None:
    """A dish behind a comma is no place; places without types are two things with a dash between; and a name that has
    the words of two, but not as often, is neither.
    """
    dishes = "Green Curry,Tiramisu,Beef Bourguignon,Panna Cotta,Minestrone,Hummus".split(",")
    with EntityLinker.build([Entity(one, one, (), ("recipe",)) for one in dishes], model=shipped) as linker:
        assert linker.link("Green Curry, Tiramisu").nil_reason is NilReason.SEVERAL_NAMES
        assert linker.link("Beef Bourguignon, Panna Cotta").nil_reason is NilReason.SEVERAL_NAMES
    others = "Tel Aviv,Reykjavik,Halifax,Beirut,The Matrix,The Matrix Revolutions".split(",")
    with EntityLinker.build([Entity(one, one) for one in others], model=shipped) as linker:
        assert linker.link("Tel Aviv – Reykjavik").nil_reason is NilReason.SEVERAL_NAMES
        assert linker.link("The Matrix Revolutions and The Matrix").nil_reason is NilReason.SEVERAL_NAMES


def test_a_slash_between_ordinary_words_is_no_list(shipped: Encoder) -> None:
    """Two words for one idea, and the sign of a unit, stay whole; names, and words with spaces between, are a list."""
    names = "warm,hot,spirit,soul,bit,s,valsartan,Munich".split(",")
    with EntityLinker.build([Entity(one, one) for one in names], model=shipped) as linker:
        for mention in ("warm/hot", "Spirit/Soul", "bit/s"):
            assert linker.link(mention).nil_reason is not NilReason.SEVERAL_NAMES
        for mention in ("warm / hot", "warm; hot", "valsartan/soul", "Munich/warm"):
            assert linker.link(mention).nil_reason is NilReason.SEVERAL_NAMES


def test_a_territory_and_its_state_are_no_list(shipped: Encoder) -> None:
    """Where all entities are of one type, it does not tell places from the places around them."""
    names = "Hong Kong,China,Martinique,France,Belgium,Norway,Luxembourg,Peru,Chile,Kenya".split(",")
    with EntityLinker.build([Entity(one, one, (), ("country",)) for one in names], model=shipped) as linker:
        assert linker.link("Hong Kong, China", threshold=0.1).entity_id == "Hong Kong"
        assert linker.link("Belgium and Luxembourg").nil_reason is NilReason.SEVERAL_NAMES


def test_a_batch_keeps_its_order(linker: EntityLinker) -> None:
    """Lists among names, in one process and in workers' packets, do not move the other links."""
    mentions = ["Oslo", "Munich; London", "Paris", None, "AC/DC", "Lyon and Porto"] * 60
    links = list(linker.link_batch(mentions))  # type: ignore[arg-type]

    assert [one.mention for one in links] == mentions
    assert [one.entity_id for one in links[:6]] == ["Oslo", None, "Paris", None, "acdc", None]


def test_the_place_behind_a_name_is_a_value_of_the_base(shipped: Encoder) -> None:
    """Where entities have a field with the part behind a comma, it says which entity of the name is meant; another
    value of that field speaks against it, and a part that no field has changes nothing.
    """
    places = [("Springfield", "Illinois"), ("Springfield", "Ohio"), ("Paris", "Texas"), ("Paris", "France")]
    places += [(f"{one} Works", "United Kingdom") for one in ("Avery", "Robertet", "Harlow", "Corby", "Lindsay")]
    entities = [Entity(f"{one}/{where}", one, (), ("place",), (), None, {"place": where}) for one, where in places]
    kingdom = Entity("uk", "United Kingdom", ("UK",), ("country",), ("GPE",))
    with EntityLinker.build([*entities, kingdom], model=shipped) as linker:

        def id_of(mention: str) -> str | None:
            return linker.link(mention).entity_id

        assert id_of("Springfield") is None
        assert id_of("Springfield, Ohio") == "Springfield/Ohio"
        assert id_of("Paris, Texas") == "Paris/Texas"
        assert id_of("Robertet Works, UK") == "Robertet Works/United Kingdom"
        assert id_of("Springfield, Nevada") is None
        assert linker.link("Springfield, Ohio").mention == "Springfield, Ohio"
        near, far = (linker.link(f"Robertet Works, {one}").candidates[0] for one in ("United Kingdom", "France"))
        assert near.properties == {"place": 1.0}
        assert (near.probability or 0.0) > (far.probability or 0.0)
