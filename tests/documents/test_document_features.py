"""Features of the mentions of a document, on candidates made by hand."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from pair_table import other_outcomes

from pearl_qdrant.linking.documents import features
from pearl_qdrant.linking.documents.features import (
    Anchor,
    coherence,
    is_coherent,
    is_other_form,
    links_of,
    part_finder,
    part_of,
    set_learned_names,
    set_partial_names,
    set_popularity,
    unit_of_popularity,
)
from pearl_qdrant.linking.documents.linking import rescored, set_features
from pearl_qdrant.linking.documents.model import (
    COLUMN,
    FEATURES,
    NIL_COLUMN,
    DocumentMention,
    DocumentModel,
    check_parts,
    document_mention,
    shipped_document_model,
)
from pearl_qdrant.linking.learned.names import LearnedMention
from pearl_qdrant.linking.ranking.model import FEATURES as RANKING_FEATURES
from pearl_qdrant.linking.ranking.model import NIL_FEATURES, MatchedName, ScoredEntity, ScoredMention
from pearl_qdrant.records import LearnedCount
from pearl_qdrant.store.schema import NamePoint

MODEL = shipped_document_model()


def entity(
    key: str, name: str, logit: float = 0.0, *, kind: str = "PERSON", popularity: float | None = None, links: str = ""
) -> ScoredEntity:
    """A candidate."""
    extra = {"links_to": links} if links else {}
    point = NamePoint("kb", key, name, name, True, types=(kind,), popularity=popularity, extra=extra)
    return ScoredEntity(MatchedName(point, 0.5, folded=name.casefold()), np.zeros(len(RANKING_FEATURES)), logit)


def mention(text: str, *entities: ScoredEntity, nil_logit: float = 0.0, start: int = 0) -> DocumentMention:
    """A mention with its candidates, best first."""
    return document_mention(ScoredMention(text, list(entities), nil_logit, np.zeros(len(NIL_FEATURES))), start)


def value(of: DocumentMention, key: str, feature: str) -> float:
    """A feature of a candidate."""
    return float(of.values[of.row["kb", key], COLUMN[feature]])


def test_parts_of_longer_names() -> None:
    """Whole words in their order, or initials in capitals, are a part of a longer name."""

    def outcome(short: str, long: str) -> str:
        return part_of(mention(short).words, short, mention(long).words) or "none"

    assert other_outcomes(__file__, "part", outcome) == []


def nearest_in_turn(mentions: list[DocumentMention], number: int) -> int | None:
    """The longer mention that one is a part of, found by looking at all of them: the nearest before, else the first."""
    found = None
    for other, long in enumerate(mentions):
        of = mentions[number]
        if part_of(of.words, of.scored.mention, long.words) and (found is None or other < number):
            found = other
    return found


def test_the_nearest_longer_name_is_that_of_a_look_at_all() -> None:
    """Which longer mention gives its entity is the same as if each mention were compared with each."""
    rng = random.Random(7)
    names = ["Bill Clinton", "Clinton", "Hillary Clinton", "Bill", "Bill Hillary Clinton", "BC", "Hillary", "HC"]
    for _ in range(50):
        texts = rng.choices(names, k=12)
        mentions = [mention(text, start=i) for i, text in enumerate(texts)]
        wanted = [nearest_in_turn(mentions, number) for number in range(len(mentions))]

        found = map(part_finder(mentions), range(len(mentions)))

        assert [None if one is None else one[0] for one in found] == wanted


def test_names_that_come_again_are_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A document of 1,500 mentions of three names takes no million comparisons."""
    pairs = []
    for name in ("part_of", "is_other_form"):
        plain = getattr(features, name)
        monkeypatch.setattr(features, name, lambda *given, plain=plain: pairs.append(given) or plain(*given))
    mentions = [mention(text, start=i) for i, text in enumerate(["New York Times", "New York", "Timesman"] * 500)]

    set_partial_names(mentions, MODEL)

    assert len(pairs) < 50


def test_a_surname_takes_the_person_of_the_full_name() -> None:
    """The entity of the longer mention becomes the first candidate, even where no search had found it."""
    full = mention("Bill Clinton", entity("bill", "Bill Clinton", 20.0, popularity=900.0))
    short = mention("Clinton", entity("town", "Clinton, Iowa", 2.0, kind="GPE", popularity=900.0), start=30)

    set_features([full, short], MODEL)
    found = rescored(short, MODEL, limit=10)

    assert found.found[0].point.entity_id == "bill"
    assert value(short, "bill", "surname") > 0.3
    assert found.logits[0] > found.nil_logit


def test_a_mention_between_two_people_takes_the_nearer_one_before_it() -> None:
    """Of several full names the nearest one before the mention counts, not one after it."""
    first = mention("Hillary Clinton", entity("hillary", "Hillary Clinton", 20.0))
    second = mention("Bill Clinton", entity("bill", "Bill Clinton", 20.0), start=20)
    short = mention("Clinton", start=40)
    last = mention("Chelsea Clinton", entity("chelsea", "Chelsea Clinton", 20.0), start=60)

    set_partial_names([first, second, short, last], MODEL)

    assert list(short.row) == [("kb", "bill")]


def test_a_part_of_a_name_without_entity_gets_none() -> None:
    """A longer mention that is NIL makes its part more probably NIL, not less. Two words are forms of one if they begin
    with the same letters, most of both.
    """
    full = mention("Joe Nobody", entity("other", "Joe Nobel", -20.0), nil_logit=20.0)
    short = mention("Nobody", entity("none", "Nobody", 1.0), start=20)

    set_partial_names([full, short], MODEL)

    assert short.of_decision[NIL_COLUMN["part_of_nil"]] > 0.5
    assert all(is_other_form(*pair) for pair in (("israeli", "israel"), ("german", "germany")))
    assert not any(is_other_form(*pair) for pair in (("iran", "iraq"), ("york", "york")))


@pytest.mark.parametrize("unit", [1.0, 0.001, 1e6])
def test_popularity_is_logarithmic_and_unknown_is_least(unit: float) -> None:
    """It counts in units of the least popular candidate above 0 of a document. Entities without popularity count as the
    least popular candidate; a base without any has zeros.
    """
    known = [entity(key, key, popularity=unit * value) for key, value in (("a", 99.0), ("c", 9.0))]
    one, other = mention("X", known[0], entity("b", "B"), known[1]), mention("Y", entity("d", "D", popularity=unit))
    none = mention("Z", entity("a", "A"), entity("b", "B"), entity("zero", "Zero", popularity=0.0))
    least = unit_of_popularity([one, other, none])

    for each in (one, other, none):
        set_popularity(each, least)

    assert least == unit
    assert one.values[:, COLUMN["popularity"]].tolist() == pytest.approx([math.log(100), math.log(10), math.log(10)])
    assert not none.values[:, COLUMN["popularity"]].any()
    assert unit_of_popularity([none]) == 1.0


def test_counts_are_features() -> None:
    """Uses of the same string count whole, other forms less, and NIL in the decision alone."""
    counts = (LearnedCount("a", "kb", 2, 1), LearnedCount(None, "kb", 4), LearnedCount("gone", "kb", 9))
    scored = mention("Jordan", entity("a", "Jordan", popularity=1.0), entity("b", "Jordan", popularity=5.0)).scored
    one = document_mention(scored, 0, learned=LearnedMention(scored, counts))

    set_learned_names(one)

    assert one.values[:, COLUMN["learned"]].tolist() == pytest.approx([math.log1p(2.3 / 0.3), 0.0])
    assert one.of_decision[NIL_COLUMN["learned"]] == pytest.approx(math.log1p(2.3 / 0.3))
    assert one.of_decision[NIL_COLUMN["learned_nil"]] == pytest.approx(math.log1p(4 / 0.3))


def test_linked_entities_of_a_document_help_each_other() -> None:
    """Of two cities of one name the one with links to and from the rest of the document comes first."""
    texas = entity("texas", "Paris", kind="GPE", popularity=10.0, links="usa|dallas")
    france = entity("france", "Paris", kind="GPE", popularity=10.0, links="seine|louvre")
    others = [
        mention("Dallas", entity("dallas", "Dallas", 20.0, kind="GPE", popularity=10.0, links="usa|texas"), start=1),
        mention("USA", entity("usa", "USA", 20.0, kind="GPE", popularity=10.0, links="dallas|texas"), start=2),
    ]

    for pair in ((texas, france), (france, texas)):
        paris = mention("Paris", *pair)
        set_features([paris, *others], MODEL)
        assert rescored(paris, MODEL, limit=10).found[0].point.entity_id == "texas"


def test_coherence_of_an_entity() -> None:
    """Anchors of the mention's own words do not count; links count from both sides, in the same base only."""
    point = entity("a", "A", links="b|c| d ").point
    anchors = [
        Anchor(("x",), ("kb", "a"), 0.7, frozenset()),
        Anchor(("own",), ("kb", "b"), 1.0, frozenset("a")),
        Anchor(("y",), ("kb", "b"), 1.0, frozenset(("c", "d", "e"))),
        Anchor(("z",), ("other", "c"), 1.0, frozenset("a")),
    ]

    same, linked, shared = coherence(point, ("own",), anchors, {})

    assert same == 0.7
    assert linked == pytest.approx(math.sqrt(0.5 / (0.5 + 0.7 + 1.0 + 1.0)))
    assert shared == pytest.approx(math.sqrt(2 / 3 / (0.5 + 0.7 + 1.0 + 1.0)))
    assert links_of(entity("a", "A").point) == frozenset()


def test_without_other_mentions_and_popularity_the_order_stays() -> None:
    """A document of one mention changes nothing where the base has no popularity; it has no coherence, and a popular
    exact name is no NIL.
    """
    one = mention("X", entity("a", "A", 3.0), entity("b", "B", 1.0), entity("c", "C", -1.0))

    set_features([one], MODEL)

    assert [e.point.entity_id for e in rescored(one, MODEL, limit=2).found] == ["a", "b"]
    model = shipped_document_model("no_coherence")
    found = entity("a", "Gotham", 30.0, popularity=5000.0)
    found = replace(found, name=replace(found.name, is_same_spelling=True), offset=25.0)
    one = mention("Gotham", found)

    set_features([one], model, without=frozenset(("coherence",)))

    assert not is_coherent([one])
    assert model.probabilities(one.values, one.of_decision)[0] > 0.5


def test_popularity_that_is_off_leaves_the_rules_and_an_id_is_left_alone() -> None:
    """Without popularity a mention keeps what the ranking and its rules say; nothing changes one that is an id."""
    scored = mention("X", entity("a", "A", 3.0, popularity=9.0), entity("b", "B", 1.0, popularity=900.0)).scored
    one = document_mention(scored, 0, has_popularity=False)

    set_features([one], MODEL, without=frozenset(("popularity", "coherence")))

    again = rescored(one, MODEL, limit=2)
    assert [e.point.entity_id for e in again.found] == ["a", "b"]
    assert again.logits[0] - again.logits[1] == pytest.approx(2.0)
    scored = replace(mention("Q1", entity("Q1", "One", 5.0)).scored, rule="entity id")
    one = document_mention(scored, 0)

    set_features([one, mention("Q1 Two", entity("b", "Q1 Two", 9.0))], MODEL)

    assert rescored(one, MODEL, limit=1) is scored


def test_coefficients_have_the_sign_of_their_meaning_and_known_names() -> None:
    """No feature lowers a candidate. A misspelled part or coefficient names what there is."""
    assert (MODEL.features >= 0).all()
    assert MODEL.by_name()["features"]["surname"] > 0
    assert len(MODEL.features) == len(FEATURES)
    with pytest.raises(ValueError, match="'passages', 'coherence', not 'popular'"):
        check_parts(["popular"])
    with pytest.raises(ValueError, match="unknown feature 'x'"):
        DocumentModel.from_names({"x": 1.0}, {})
