"""Rules before the ranking: exact names, namesakes, ids. Words that exclude each other. Mentions made from a base.
What a small base lacks is NIL, though no other name of it is near; slips of its names are linked.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from linker_base import linker_over
from pair_table import linked, other_outcomes
from scored_names import score_names

from pearl_qdrant import Entity, EntityLinker, NilReason
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.lexical.words import exclude_each_other
from pearl_qdrant.linking.mention_kinds import (
    KINDS,
    MadeMention,
    NamedEntity,
    NameOwners,
    make_mentions,
    slip,
    spelling_key,
)
from pearl_qdrant.linking.ranking import Calibration, RankingModel, explain_link
from pearl_qdrant.linking.ranking.model import LinkQuery, MatchedName, Scorer
from pearl_qdrant.linking.ranking.scoring import CANONICAL_SHARE, EXACT_CERTAINTY, ID_CERTAINTY, put_first, shares
from pearl_qdrant.store.schema import NamePoint

ENTITIES = [
    Entity("D1", "chicken pox", ("varicella",)),
    Entity("D2", "breast cancer"),
    Entity("D3", "breast carcinoma", ("breast cancer",)),
    Entity("DOID:5844", "heart attack"),
    Entity("P1", "Paris", ("City of Light",), popularity=900.0),
    Entity("P2", "Paris, Texas", ("Paris",), popularity=5.0),
    Entity("T1", "Turkey"),
    Entity("T2", "turkey"),
    Entity("S1", "Springfield"),
    Entity("S2", "Springfield"),
    Entity("C1", "C"),
    Entity("C2", "C++"),
    Entity("X1", "Q64", kb_types=("film",)),
    Entity("Q64", "Berlin", kb_types=("city",)),
    Entity("Q65", "Los Angeles", kb_types=("city",)),
]


linker = linker_over(ENTITIES, model="model")  # which is tiny, and knows nothing of meaning


@pytest.mark.parametrize(
    "mention", ["chicken pox", "CHICKEN POX", "chickenpox", "Chicken-Pox", "c.h.i.c.k.e.n pox", " chicken  pox "]
)
def test_a_name_of_one_entity_is_that_entity(linker: EntityLinker, mention: str) -> None:
    """Case, spaces and joints do not count, and the probability is the precision of the rule."""
    link = linker.link(mention)

    assert (link.entity_id, link.rule) == ("D1", "exact name")
    assert link.probability == pytest.approx(EXACT_CERTAINTY)


def test_a_canonical_name_goes_before_an_alias(linker: EntityLinker) -> None:
    """The other entity is the runner-up; with `null` the mention is ambiguous, with `first` it is linked too."""
    link = linker.link("Breast Cancer")

    assert (link.entity_id, link.rule) == ("D2", "canonical name")
    assert link.candidates[1].entity_id == "D3"
    assert linker.link("Breast Cancer", on_tie="null").nil_reason is NilReason.AMBIGUOUS
    assert linker.link("Breast Cancer", on_tie="first").entity_id == "D2"

    # Where all namesakes are as popular, the canonical name goes first, too.
    names = (("a", "Ox"), ("b", "cow"))
    points = [NamePoint("kb", key, "Ox", name, key == "a", popularity=1.0) for key, name in names]

    parts, rule = shares([MatchedName(point, None) for point in points], "ox")

    assert rule == "canonical name"
    assert parts == pytest.approx([CANONICAL_SHARE, 1 - CANONICAL_SHARE])


def test_popularity_decides_where_the_base_has_it(linker: EntityLinker) -> None:
    """The most popular namesake is linked, with its share of the probability."""
    link = linker.link("paris")

    assert (link.entity_id, link.rule) == ("P1", "popularity")
    assert 0.9 < (link.probability or 0) < EXACT_CERTAINTY
    assert link.candidates[1].entity_id == "P2"


@pytest.mark.parametrize("mention, entity_id", [("Turkey", "T1"), ("turkey", "T2"), ("C", "C1"), ("C++", "C2")])
def test_letter_case_and_symbols_separate_namesakes(linker: EntityLinker, mention: str, entity_id: str) -> None:
    """A name that is written as the mention goes before one that only folds to it."""
    assert linker.link(mention).entity_id == entity_id


def test_namesakes_that_nothing_separates_are_ambiguous(linker: EntityLinker) -> None:
    """Both are candidates with half of the probability each, and marked as a tie."""
    link = linker.link("Springfield")

    assert (link.entity_id, link.nil_reason) == (None, NilReason.AMBIGUOUS)
    assert [(c.entity_id, c.tie) for c in link.candidates[:2]] == [("S1", True), ("S2", True)]
    assert sum(c.probability or 0 for c in link.candidates[:2]) == pytest.approx(EXACT_CERTAINTY)
    assert linker.link("Springfield", on_tie="first").entity_id == "S1"


@pytest.mark.parametrize("mention", ["DOID:5844", "DOID_5844", "doid:5844", "http://purl.obolibrary.org/obo/DOID_5844"])
def test_an_id_is_looked_up_as_itself(linker: EntityLinker, mention: str) -> None:
    """With the usual prefixes and as an IRI."""
    link = linker.link(mention)

    assert (link.entity_id, link.rule) == ("DOID:5844", "entity id")
    assert link.probability == pytest.approx(ID_CERTAINTY)


@pytest.mark.parametrize("nil, lexical", [(40.0, 1.0), (0.0, 60.0)])
def test_no_coefficients_overrule_a_rule(nil: float, lexical: float) -> None:
    """However likely they make NIL or another name, an exact name and an id keep their precision."""
    points = [NamePoint("kb", key, name, name, True) for key, name in (("own", "ox"), ("other", "oxen"))]
    names = [MatchedName(points[0], None, 0.1, is_same_spelling=True), MatchedName(points[1], None, 0.9)]
    scorer = Scorer(RankingModel.from_names({"lexical": lexical}, {"lexical": lexical}, {"bias": nil}), 0.0, 0.0)

    by_name = score_names("ox", names, LinkQuery(5), scorer)
    by_id = put_first(score_names("kb:own", names[1:], LinkQuery(5), scorer), points[0])

    for found, certainty in ((by_name, EXACT_CERTAINTY), (by_id, ID_CERTAINTY)):
        assert found.found[0].point.entity_id == "own"
        given = Calibration().probabilities(found.logits, found.nil_logit, certainty=found.certainty)
        assert given[0] == pytest.approx(certainty)


def test_a_name_goes_before_an_id(linker: EntityLinker) -> None:
    """A film called Q64 is that film; the id is found where no name is, and under a filter that excludes the film. A
    caller who asks for a probability of 0.999 gets no exact names, with the reason.
    """
    assert linker.link("Q64").entity_id == "X1"
    assert linker.link("wd:Q64").entity_id == "Q64"
    assert linker.link("Q65").entity_id == "Q65"
    assert linker.link("Q65", types=("film",)).entity_id is None
    assert linker.link("chicken pox", threshold=0.999).nil_reason is NilReason.BELOW_THRESHOLD


@pytest.mark.parametrize(
    "mention, words",
    [
        ("chickenpox", "a name of this entity alone"),
        ("breast cancer", "the canonical name of this one alone"),
        ("Paris", "popularity 900; of Paris, Texas 5"),
        ("DOID:5844", "the id of this entity"),
    ],
)
def test_rules_are_explained(linker: EntityLinker, mention: str, words: str) -> None:
    """The explanation names the rule, and what namesakes lack. What is left of 1 is the probability of NIL."""
    assert words in " ".join(explain_link(linker.link(mention), linker.calibration, linker.model))
    assert 0 <= sum(c.probability or 0 for c in linker.link(mention, limit=50).candidates) <= 1


OTHERS = ["Kiruna Iron Mine", "Blue Danube Waltz", "Hoover Dam", "Sahara Desert", "Panama Canal", "Standard Oil"]


def test_prefixes_endings_and_negations_exclude() -> None:
    """Neither word is a slip of the other, whichever comes first; a letter that is missing, swapped or spelt otherwise
    makes no other word.
    """

    def outcome(word: str, other: str) -> str:
        assert exclude_each_other(word, other) is exclude_each_other(other, word)
        return "exclude each other" if exclude_each_other(word, other) else "may be slips"

    assert other_outcomes(__file__, "two words", outcome) == []


OPPOSITES = {
    "hypertension": "hypotension",
    "hyperglycemia": "hypoglycemia",
    "typical autism": "atypical autism",
    "stable angina": "unstable angina",
    "organic chemistry": "inorganic chemistry",
    "aerobic exercise": "anaerobic exercise",
    "hernia with obstruction": "hernia without obstruction",
    "small cell lung carcinoma": "non-small cell lung carcinoma",
    "HER2+ breast carcinoma": "HER2- breast carcinoma",
    "Hepatitis A": "Hepatitis B",
}


@pytest.mark.parametrize("stored, opposites", [(OPPOSITES.keys(), OPPOSITES.values()), (OPPOSITES.values(), OPPOSITES)])
def test_the_opposite_of_a_name_is_not_linked(
    shipped: Encoder, stored: Iterable[str], opposites: Iterable[str]
) -> None:
    """A base that has one of the two answers NIL for the other."""
    with EntityLinker.build([Entity(one, one) for one in (*stored, *OTHERS)], model=shipped) as linker:
        assert [link.entity_id for link in linker.link_batch(stored)] == list(stored)
        assert [link.entity_id for link in linker.link_batch(opposites)] == [None] * len(OPPOSITES)


STORED = {
    "Garbage": "ORG",
    "Jersey": "GPE",
    "Stripe": "ORG",
    "James Bowen": "PERSON",
    "Scary Movie": "WORK_OF_ART",
    "Bromley": "ORG",
    "spermatogenic failure": "OTHER",
    "Katherine Heigl": "PERSON",
    "Google": "ORG",
    "New England Journal of Medicine": "ORG",
}


stored_things = linker_over(Entity(name, name, (), (kind,), (kind,)) for name, kind in STORED.items())


def test_a_word_more_makes_another_thing_or_not(stored_things: EntityLinker) -> None:
    """A telling word, number or name beside a name is another thing; legal forms, articles and what it is are not."""
    assert other_outcomes(__file__, "a word more", linked(stored_things)) == []


ENTITIES_MENTION_KINDS = [
    NamedEntity("1", ("type 2 diabetes mellitus", "T2DM", "adult onset diabetes"), ("OTHER",)),
    NamedEntity("2", ("type 1 diabetes mellitus", "juvenile diabetes")),
    NamedEntity("3", ("left lung tumor", "neoplasm of the left lung")),
    NamedEntity("4", ("right lung tumor",)),
    NamedEntity("5", ("Albert Einstein", "Einstein"), ("PERSON",)),
    NamedEntity("6", ("The Coca-Cola Company", "Coca-Cola", "Coke"), ("ORG",)),
    NamedEntity("7", ("chronic anemia", "Coke")),  # shares a name with 6
    NamedEntity("8", ("New York City", "Big Apple"), ("GPE",)),
    NamedEntity("9", ("Libido (1974 film)",), ("WORK_OF_ART",)),
    NamedEntity("10", ("Marie Curie",), ("PERSON",)),
]
OWNERS = NameOwners((entity.entity_id, name) for entity in ENTITIES_MENTION_KINDS for name in entity.names)


@pytest.fixture(scope="module")
def made() -> dict[str, list[MadeMention]]:
    """Mentions of each kind."""
    found: dict[str, list[MadeMention]] = {kind.name: [] for kind in KINDS}
    for one in make_mentions(ENTITIES_MENTION_KINDS, OWNERS, per_kind=40, seed=3):
        found[one.kind].append(one)
    return found


def test_every_kind_is_made_and_its_right_answer_is_certain(made: dict[str, list[MadeMention]]) -> None:
    """Even a base of ten entities gives mentions of each. None is a name of another entity, and a NIL mention of none
    that is left in the base.
    """
    assert [kind for kind, mentions in made.items() if not mentions] == []
    for mention in (one for mentions in made.values() for one in mentions):
        owners = {
            entity.entity_id
            for entity in ENTITIES_MENTION_KINDS
            for name in entity.names
            if spelling_key(name) == spelling_key(mention.mention) and not mention.excludes(entity.entity_id, name)
        }
        assert owners <= {mention.entity_id}
    for kind in KINDS:
        assert all((one.entity_id is None) is kind.name.startswith("nil") for one in made[kind.name])


def test_an_alias_excludes_its_own_string_alone(made: dict[str, list[MadeMention]]) -> None:
    """The other names of its entity stay. A removed entity is excluded with all that share a name."""
    for one in made["alias"]:
        assert one.excludes(str(one.entity_id), one.mention)
        assert not one.excludes("other", one.mention)
        canonical = next(entity.names[0] for entity in ENTITIES_MENTION_KINDS if entity.entity_id == one.entity_id)
        assert not one.excludes(str(one.entity_id), canonical)
    for one in made["nil removed"]:
        if one.mention in ("The Coca-Cola Company", "Coca-Cola"):
            assert one.excludes("6", "Coke")
            assert one.excludes("7", "chronic anemia")


def test_mentions_are_seeded_and_a_slip_changes_one_longer_word() -> None:
    """The same seed gives the same mentions, another one others. Digits and short words stay."""
    first, again, other = (make_mentions(ENTITIES_MENTION_KINDS, OWNERS, per_kind=5, seed=seed) for seed in (1, 1, 2))

    assert first == again
    assert first != other
    rng = random.Random(0)
    for _ in range(300):
        changed = slip("type 2 diabetes of 12 men", rng)
        assert changed is not None
        assert changed.split()[1] == "2"
        assert "12 men" in changed

    assert slip("HIV 2", rng) is None


SQUARES = ("Kerkplein (Begijnendijk)", "Kerkplein (Betekom)", "Kerkplein (Aarschot)")
HARBOURS = ("Altmouth, Shale County", "Altmouth (Northshire)", "Altmouth, Port of")


PERSONS = ("Julian Ferrer", "Katherine Heigl", "Randy Jackson", "Wim Wenders")
THINGS = ("Scary Movie", "Rocky", "Louvre Museum", "Ohio", *SQUARES, *HARBOURS)
UNLIKE = [f"{word} {kind}" for word in ("Amber", "Cedar", "Falcon", "Linden") for kind in ("Records", "River", "Act")]
"""Names that are like nothing asked for."""

small = linker_over(
    [
        *(Entity(name, name, (), (), ("PERSON",)) for name in PERSONS),
        *(Entity(name, name) for name in (*THINGS, *UNLIKE)),
    ]
)


def test_another_family_name_number_or_word_is_another_thing(small: EntityLinker) -> None:
    """Kinds of names that were linked in bases of 300: another family or first name, a sequel, another first word. What
    is a spelling of a name is not taken for another one.
    """
    assert other_outcomes(__file__, "small base", linked(small)) == []


@pytest.mark.parametrize("mention, names", [("Kerkplein", SQUARES), ("Altmouth", HARBOURS)])
def test_names_alike_but_for_brackets_are_namesakes(small: EntityLinker, mention: str, names: tuple[str, ...]) -> None:
    """The mention does not say which; the vectors differ by what is in brackets, or behind a comma, alone."""
    link = small.link(mention)

    assert link.nil_reason is NilReason.AMBIGUOUS
    assert sorted(one.entity_id for one in link.candidates if one.tie) == sorted(names)


@pytest.mark.parametrize("name", ["Louvre Museum", "Scary Movie", "Wim Wenders", "Amber Records"])
def test_a_name_with_common_words_behind_it_is_another_thing(small: EntityLinker, name: str) -> None:
    """Where the judge takes both for two things."""
    for mention in (f"{name} lawsuit", f"{name} competitor"):
        assert small.link(mention).entity_id is None, mention


def test_what_is_in_brackets_tells_names_apart(small: EntityLinker) -> None:
    """Where the mention says it."""
    assert small.link("Kerkplein, Aarschot").candidates[0].entity_id == SQUARES[2]


def test_a_type_that_the_mention_states_tells_namesakes_apart(shipped: Encoder) -> None:
    """In brackets, before or behind the name; without it they are ambiguous."""
    kinds = {"Georgia": ("country", "state"), "Mercury": ("planet", "god"), "Java": ("island", "programming language")}
    entities = [Entity(f"{name} ({kind})", name, (), (kind,)) for name, some in kinds.items() for kind in some]
    with EntityLinker.build([*entities, *(Entity(name, name) for name in UNLIKE)], model=shipped) as small:
        for name, some in kinds.items():
            assert small.link(name).nil_reason is NilReason.AMBIGUOUS
            for kind in some:
                for mention in (f"{name} ({kind})", f"the {kind} {name}"):
                    assert small.link(mention).entity_id == f"{name} ({kind})", mention


def test_a_name_that_shares_nothing_with_the_mention_needs_the_judge(shipped: Encoder) -> None:
    """It was nearly linked where nothing else was there."""
    others = [Entity("mi", "myocardial infarction", ("heart attack", "MI"), ("disease",), ("OTHER",))]
    others += [Entity(name, name) for name in ("New York Post", "Heathrow Airport", "aspirin", "acetylsalicylic acid")]
    with EntityLinker.build(others, model=shipped) as small:
        for link in small.link_batch(["ACME", "Acme", "ZEBRA"]):
            assert link.candidates[0].probability < 0.3, link.mention  # 0.41 by a judge of four layers


def test_a_wanted_type_and_popularity_decide_between_names_alike_but_for_brackets(shipped: Encoder) -> None:
    """Those of other types do not share; popularity counts as between names that are equal."""
    types = {"Springfield (Ohio)": "GPE", "Springfield (Iowa)": "GPE", "Springfield (band)": "ORG", "Chicago": "GPE"}
    with EntityLinker.build(
        [Entity(name, name, (), (), (one,)) for name, one in types.items()], model=shipped
    ) as small:
        assert small.link("Springfield", types=["ORG"]).entity_id == "Springfield (band)"
        assert small.link("Springfield", types=["GPE"]).nil_reason is NilReason.AMBIGUOUS
        assert small.link("Springfield").nil_reason is NilReason.AMBIGUOUS
    entities = [Entity(name, name, popularity=10.0**i) for i, name in enumerate(SQUARES)]
    with EntityLinker.build([*entities, Entity("town", "Aarschot", popularity=5.0)], model=shipped) as small:
        link = small.link("Kerkplein")

    assert (link.candidates[0].entity_id, link.rule) == (SQUARES[2], "popularity")
