"""Linking mentions, on a tiny random model: equal names have cosine 1, others less, though not by much.

So the threshold is 0 here, unless a test is about it. Options: as an object, as keyword arguments, and both.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest
from store_cases import HALF

from ingest.load.request import LoadKeywords, LoadRequest
from pearl_qdrant import Entity, EntityLinker, Link, LinkOptions, NilReason
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.errors import UnknownTypeError
from pearl_qdrant.linking.options import AnnotateKeywords, AnnotateOptions, LinkKeywords, OnTie, TypeMode
from pearl_qdrant.linking.ranking import explain_link
from pearl_qdrant.linking.ranking.model import FEATURES


def test_a_name_of_the_base_is_linked_to_its_entity(linker: EntityLinker) -> None:
    """A mention that is a name of an entity gets that entity, its canonical name, a probability and every score."""
    link = linker.link("nytimes.com")

    assert (link.entity_id, link.canonical_name, link.nil_reason) == ("nyt", "The New York Times", None)
    assert link.probability == link.candidates[0].probability
    best = link.candidates[0]
    assert best.name == "nytimes.com"
    assert best.dense_score == pytest.approx(1.0, abs=HALF)
    assert best.description == "A newspaper"
    assert best.phrase_type is not None
    assert best.type_probability is not None
    assert best.lexical_score == pytest.approx(1.0, abs=1e-5)
    assert set(best.features) == set(FEATURES)
    assert best.features["edit_similarity"] == 1.0


def test_an_entity_is_a_candidate_once(linker: EntityLinker) -> None:
    """Aliases of one entity do not crowd the candidates: each appears once, with its best name. Only shared n-grams can
    find a misspelt name with a random model.
    """
    link = linker.link("The New York Times", limit=5)

    ids = [c.entity_id for c in link.candidates]
    assert len(ids) == len(set(ids)) == 5
    scores = [c.score for c in link.candidates]
    assert scores == sorted(scores, reverse=True)
    misspelt = linker.link("myocardial infarctoin", limit=3).candidates
    assert max(misspelt, key=lambda c: c.lexical_score or 0).entity_id == "mi"


def test_the_limit_changes_what_is_shown_and_nothing_else(linker: EntityLinker) -> None:
    """One candidate has the same probability as ten, and a tie stays a tie."""
    one, ten = linker.link("heart attack", limit=1), linker.link("heart attack", limit=10)

    assert 1 == len(one.candidates) < len(ten.candidates)
    assert one.probability == ten.probability
    assert 0 < sum(c.probability or 0 for c in ten.candidates) <= 1 + 1e-9, "the rest is that of NIL"
    assert linker.link("New York", limit=1, on_tie="null").nil_reason == NilReason.AMBIGUOUS


def test_emoji_link_to_themselves_only(linker: EntityLinker) -> None:
    """A name without a vector is found by its exact string, and two such names never match."""
    assert linker.link("\U0001f984").entity_id == "horse"
    assert linker.link("\U0001f5de").entity_id == "paper"
    assert linker.link("\U0001f984").candidates[0].dense_score is None
    assert linker.link("\U0001f480").nil_reason == NilReason.NO_CANDIDATES
    assert "paper" not in [c.entity_id for c in linker.link("\U0001f984", threshold=0.0).candidates]


def test_the_first_of_many_entities_with_one_name_is_the_first_by_id(own: EntityLinker) -> None:
    """If many entities share a name, the first by id is linked, not the first that was found."""
    own.add([Entity(f"s{i:03}", "John Smith") for i in reversed(range(60))])
    link = own.link("John Smith", on_tie="first", limit=5)

    assert link.entity_id == "s000"
    assert [candidate.entity_id for candidate in link.candidates] == [f"s{i:03}" for i in range(5)]


def test_an_entity_with_many_names_does_not_push_out_the_others(shipped: Encoder) -> None:
    """If the nearest names belong to few entities, more names are fetched."""
    many = Entity("aspirin", "aspirin", tuple(f"aspirin {i}" for i in range(40)))
    others = [Entity(f"E{i}", f"ibuprofen {i}") for i in range(30)]
    with EntityLinker.build([many, *others], model=shipped) as linker:
        assert len(linker.link("aspirin tablets", limit=10).candidates) == 10


def test_a_type_filter_changes_the_answer(linker: EntityLinker) -> None:
    """Only entities of the requested types are candidates, for native and coarse types. A typo in a type is an error
    that shows what I may have meant, not an empty answer.
    """
    native = linker.link("New York Post", types=["city"])
    coarse = linker.link("New York Post", types=["GPE"])

    assert {c.entity_id for c in native.candidates} == {"nyc"}
    assert {c.entity_id for c in coarse.candidates} == {"nyc", "nys"}
    with pytest.raises(
        UnknownTypeError, match=r"No entity of type 'newspapr' in base\. Similar: newspaper\."
    ) as caught:
        linker.link("New York", types=["ORG", "newspapr"])

    assert caught.value.near == ("newspaper",)


def test_a_name_of_another_type_is_nil_under_a_type_filter(shipped: Encoder) -> None:
    """Where a type filter leaves out the entity of a name, what is only like the name is not linked in its place; an
    entity of that very name is, and so is a slip.
    """
    places = ["Manchester", "Boston", "Paris", "Leipzig", "Bristol", "Oslo", "Delft", "York", "Lyon", "Porto"]
    cities = [Entity(one, one, (), ("city",)) for one in places]
    clubs = [Entity("club", "Manchester City", (), ("club",)), Entity("team", "Boston", (), ("club",))]
    with EntityLinker.build([*cities, *clubs], model=shipped) as linker:
        found = linker.link_batch(["Manchester City", "Manchster Cty", "Boston", "Manchestr"], types=["city"])

        assert [one.entity_id for one in found] == [None, None, "Boston", "Manchester"]
        assert linker.link("Manchester City", types=["city"]).candidates[0].entity_id == "Manchester"


def test_soft_types_prefer_and_do_not_filter(linker: EntityLinker) -> None:
    """In soft mode a type breaks a tie, and entities of other types stay candidates."""
    link = linker.link("New York", types=["state"], type_mode="soft", threshold=0.0, limit=10)

    assert link.entity_id == "nys"
    assert {"nyc", "nyp"} < {c.entity_id for c in link.candidates}
    assert link.candidates[0].features["wanted_type"] == 1.0
    assert linker.link("New York", types=["state"], type_mode="off").entity_id == "nyc"

    def agreements(type_mode: TypeMode) -> list[float]:
        return [c.features["type_agreement"] for c in linker.link("New York", type_mode=type_mode, limit=10).candidates]

    assert min(agreements("hard")) < 0
    assert set(agreements("off")) == {0.0}


@pytest.mark.parametrize(
    "mention, options, reason, has_candidates",
    [
        ("aspirin", LinkOptions(threshold=1.0), NilReason.BELOW_THRESHOLD, True),
        ("New York", LinkOptions(types=["PERSON"]), NilReason.NO_CANDIDATES, False),
        *((blank, LinkOptions(), NilReason.NO_CANDIDATES, False) for blank in ("", "   ", "\n")),
    ],
)
def test_nil_has_a_reason(
    linker: EntityLinker, mention: str, options: LinkOptions, reason: NilReason, has_candidates: bool
) -> None:
    """An improbable mention still lists its candidates; a filter may exclude all, and an empty mention has none."""
    link = linker.link(mention, options)

    assert (link.entity_id, link.nil_reason, bool(link.candidates)) == (None, reason, has_candidates)


def test_an_invalid_mention_does_not_stop_the_batch(linker: EntityLinker) -> None:
    """Bad cells of a column are NIL, and the other mentions are linked."""
    bad = [None, 3.5, float("nan"), b"New York", "\ud800"]
    links = list(linker.link_batch(cast("list[str]", ["NYC", *bad, "nytimes.com"])))

    assert [link.entity_id for link in links] == ["nyc", *[None] * len(bad), "nyt"]
    assert {link.nil_reason for link in links[1:-1]} == {NilReason.NO_CANDIDATES}


def test_the_linker_explains_itself(linker: EntityLinker) -> None:
    """Of a rule the explanation has its words, of the model the parts for the best candidate and against the next."""
    by_rule = linker.link("NYTimes", threshold=0.0, limit=10)
    by_model = linker.link("the nytimes paper", threshold=0.0, limit=10)

    assert explain_link(by_rule, linker.calibration) == [
        "linked: at least the threshold (0), by rule: the mention is a name of this entity alone"
    ]
    lines = explain_link(by_model, linker.calibration)
    assert by_model.rule is None
    assert lines[0] == "linked: at least the threshold (0)"
    best, other = (one.canonical_name for one in by_model.candidates[:2])
    assert lines[1].startswith(f"for and against {best}; its lead over {other}, ")
    assert explain_link(linker.link("New York", on_tie="null", limit=10), linker.calibration)[0].startswith(
        "NIL: 2 entities"
    )
    assert len(explain_link(linker.link(""), linker.calibration)) == 1


@pytest.mark.parametrize("mention", ["NYTimes", "heart atack", "New York", "the nytimes paper", "Brass Band"])
def test_an_explanation_says_nothing_twice(linker: EntityLinker, mention: str) -> None:
    """No words stand in two lines, and probabilities, ids and types are left to the link and its candidates."""
    link = linker.link(mention, limit=10)
    lines = explain_link(link, linker.calibration)
    words = [line.lstrip(" +-.0123456789") for line in lines]

    assert len(set(words)) == len(words)
    for candidate in link.candidates[:2]:
        assert not any(f"[{candidate.entity_id}]" in line for line in lines)
        assert not any(f"{candidate.probability:.2f}" in line for line in lines[:2])


@pytest.mark.parametrize(
    "options, keywords", [(LinkOptions, LinkKeywords), (AnnotateOptions, AnnotateKeywords), (LoadRequest, LoadKeywords)]
)
def test_every_option_is_a_keyword_argument(options: type, keywords: type) -> None:
    """The methods, and `load_base`, accept every field of the object by name, with the same types."""
    assert options.__annotations__ == {name: hint.__forward_arg__ for name, hint in keywords.__annotations__.items()}


def test_an_object_links_as_keyword_arguments_do(linker: EntityLinker) -> None:
    """I may keep my options in one object, and replace one of them for a call; asyncio gives the same links, from any
    kind of iterable. So it is with passages.
    """
    options = LinkOptions(types=["state"], type_mode="soft", limit=2)
    by_keywords = linker.link("New York", types=["state"], type_mode="soft", limit=2)

    assert linker.link("New York", options) == by_keywords
    assert list(linker.link_batch(["New York"], options)) == [by_keywords]
    assert asyncio.run(linker.alink("New York", options)) == by_keywords
    assert len(linker.link("New York", options, limit=1).candidates) == 1

    async def stream() -> AsyncIterator[str]:
        for mention in ("New York", "NYC", "zzz"):
            yield mention

    async def batches() -> list[list[Link]]:
        of_list = [link async for link in linker.alink_batch(["New York", "NYC", "zzz"], options)]
        return [of_list, [link async for link in linker.alink_batch(stream(), options)]]

    assert asyncio.run(batches()) == [[by_keywords, linker.link("NYC", options), linker.link("zzz", options)]] * 2
    of_text = AnnotateOptions(on_tie="first", include_nil=True)
    annotated = linker.annotate("We saw New York.", on_tie="first", include_nil=True)
    assert annotated
    assert linker.annotate("We saw New York.", of_text) == annotated
    assert list(linker.annotate_batch(["We saw New York."], of_text)) == [annotated]


def test_options_are_checked_when_they_are_made(linker: EntityLinker) -> None:
    """A wrong option is an error where I write it, which names the value; so is a misspelt keyword."""
    with pytest.raises(ValueError, match="'limit' is 0, but must be greater than or equal to 1"):
        LinkOptions(limit=0)
    with pytest.raises(ValueError, match="'type_mode' is 'firm', but must be 'hard', 'soft' or 'off'"):
        LinkOptions(type_mode=cast("TypeMode", "firm"))
    with pytest.raises(ValueError, match=r"'threshold' is 1\.5, but must be less than or equal to 1"):
        AnnotateOptions(threshold=1.5)
    with pytest.raises(ValueError, match="'on_tie' is 'last', but must be 'canonical', 'null' or 'first'"):
        LinkOptions(on_tie=cast("OnTie", "last"))
    assert LinkOptions(types="GPE") == LinkOptions(types=["GPE"])
    with pytest.raises(TypeError, match="treshold"):
        linker.link("x", treshold=0.5)  # type: ignore[call-arg]
