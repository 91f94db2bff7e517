"""A linker that learned: counts of a name, their probabilities with the model's, links at once and opened again."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from linker_base import ENTITIES, fill
from pair_table import other_outcomes

from pearl_qdrant import Entity, EntityLinker, Link, NilReason
from pearl_qdrant.errors import EntityNotFoundError, LearningError, LinkerClosedError
from pearl_qdrant.linking.learned.ledger import LearnedRow
from pearl_qdrant.linking.learned.names import PRIOR_WEIGHT, Counts, Observation, Outcome, posterior
from pearl_qdrant.linking.ranking import explain_link


def counts(*rows: tuple[str, str | None, int]) -> Counts:
    """Counts of these rows."""
    made = Counts()
    made.add(LearnedRow(*row) for row in rows)
    return made


def test_letter_case_decides_which_forms_count() -> None:
    """What was seen of a name in capitals says nothing of the word in small letters. Names without letters are learned
    as they are.
    """

    def outcome(seen: str, mention: str) -> str:
        return "counts" if counts((seen, "Q1", 1)).evidence(mention) else "says nothing"

    assert other_outcomes(__file__, "form", outcome) == []


A, B = ("kb", "a"), ("kb", "b")


def test_the_formula() -> None:
    """The model is worth K observations: (n(e) + K p(e)) / (n + K). What a rejected entity loses, the others share as
    they stood; if nothing else is left, it speaks for NIL.
    """
    prior, no_a = {A: 0.6, B: 0.3, None: 0.1}, Observation(1, excludes=frozenset((A,)).__contains__)
    after = posterior(prior, [Observation(2, B), Observation(1)])

    assert after[A] == pytest.approx(PRIOR_WEIGHT * 0.6 / (3 + PRIOR_WEIGHT))
    assert after[B] == pytest.approx((2 + PRIOR_WEIGHT * 0.3) / (3 + PRIOR_WEIGHT))
    assert after[None] == pytest.approx((1 + PRIOR_WEIGHT * 0.1) / (3 + PRIOR_WEIGHT))
    rejected = posterior(prior, [no_a])
    assert rejected[A] == pytest.approx(PRIOR_WEIGHT * 0.6 / (1 + PRIOR_WEIGHT))
    assert rejected[B] / rejected[None] == pytest.approx(3)
    assert posterior({A: 1.0, None: 0.0}, [no_a])[None] == pytest.approx(1 / (1 + PRIOR_WEIGHT))


outcomes = st.sampled_from([A, B, ("other", "c"), None])


@given(
    st.lists(st.floats(0, 1), min_size=4, max_size=4).filter(lambda values: sum(values) > 0.01),
    st.lists(st.tuples(st.integers(1, 1000), outcomes, st.booleans()), max_size=8),
)
def test_probabilities_stay_probabilities(weights: list[float], seen: list[tuple[int, Outcome, bool]]) -> None:
    """Whatever was seen, they are not negative and sum to 1."""
    prior = {key: w / sum(weights) for key, w in zip([A, B, ("other", "c"), None], weights, strict=True)}
    after = posterior(
        prior,
        [
            Observation(n, excludes=frozenset((outcome,)).__contains__)
            if rejects and outcome
            else Observation(n, outcome)
            for n, outcome, rejects in seen
        ],
    )

    assert all(p >= 0 for p in after.values())
    assert math.fsum(after.values()) == pytest.approx(1)


def probability(link: Link, entity_id: str) -> float:
    """The probability of a candidate; 0 if it is none."""
    return next((c.probability or 0.0 for c in link.candidates if c.entity_id == entity_id), 0.0)


def test_an_accepted_link_is_the_answer_from_then_on(linker: EntityLinker) -> None:
    """One accept makes an entity the answer that the search does not even find, with one candidate, too; its rule says
    so. Learning NIL for a name makes it NIL, with the reason.
    """
    batch = linker.accept("zzz qqq", "horse")
    link = linker.link("zzz qqq")

    assert (link.entity_id, link.rule, batch.number, batch.kind) == ("horse", "learned name", 1, "accept")
    assert [(one.entity_id, one.as_written) for one in link.learned] == [("horse", 1)]
    linker.add([Entity(f"c{i}", f"Company {i}") for i in range(30)])
    before = linker.link("Company 7")
    linker.accept("Company 7", "mi")
    link = linker.link("Company 7", limit=1)

    assert "mi" not in [c.entity_id for c in before.candidates]
    assert [c.entity_id for c in link.candidates] == ["mi"]
    assert link.canonical_name == "myocardial infarction"
    assert link.candidates[0].dense_score is None
    assert linker.link("Big Apple").entity_id == "nyc"
    linker.accept("Big Apple", None)
    link = linker.link("Big Apple")

    assert (link.entity_id, link.nil_reason) == (None, NilReason.BELOW_THRESHOLD)
    assert link.rule == "learned name"


def test_a_rejected_entity_gives_way_and_equal_counts_are_ambiguous(linker: EntityLinker) -> None:
    """After a reject, the next candidate of the name is the answer. If a name meant two entities equally often, nothing
    separates them but the order of `first`.
    """
    before = linker.link("New York")
    linker.reject("New York", "nyc")
    link = linker.link("New York")

    assert (before.entity_id, link.entity_id) == ("nyc", "nys")
    assert probability(link, "nyc") < probability(before, "nyc")
    assert link.learned[0].rejected == 1
    linker.learn([("the city paper", "nyt"), ("the city paper", "nyp")] * 20)

    link = linker.link("the city paper", threshold=0.6)
    assert link.nil_reason is NilReason.AMBIGUOUS
    assert {c.entity_id for c in link.candidates[:2]} == {"nyt", "nyp"}
    assert linker.link("the city paper", on_tie="first").entity_id in ("nyt", "nyp")


def test_a_learned_entity_counts_if_it_is_there_and_has_the_type(linker: EntityLinker) -> None:
    """Without the wanted type it does not count. If it is deleted, the model decides again, until it comes back."""
    linker.accept("zzz qqq", "nyt")

    assert linker.link("zzz qqq", types=["GPE"]).rule != "learned name"
    assert linker.link("zzz qqq", types=["newspaper"]).entity_id == "nyt"
    assert linker.link("zzz qqq", types=["GPE"], type_mode="off").entity_id == "nyt"
    linker.delete(["nyt"])
    assert linker.link("zzz qqq").rule != "learned name"
    linker.add([Entity("nyt", "The New York Times")])
    assert linker.link("zzz qqq").entity_id == "nyt"


def test_every_linker_knows_it(store_path: Path, linker: EntityLinker) -> None:
    """A second linker on the collection that is open already answers by what the first one learned, and undid. One that
    is opened later gives the same answers.
    """
    with EntityLinker.open("base", store=str(store_path)) as other:
        linker.accept("zzz qqq", "horse")
        assert other.link("zzz qqq").entity_id == "horse"
        assert other.accept("zzz qqq", "horse").number == 2
        assert len(linker.learned_batches()) == 2
        linker.undo_learned(1)
        other.undo_learned(2)
        assert linker.link("zzz qqq").learned == other.link("zzz qqq").learned == ()
    mentions = ["zzz www", "ZZZ WWW", "New York", "NYTimes"]
    linker.accept("zzz www", "horse")
    linker.reject("New York", "nyc")
    before = list(linker.link_batch(mentions))
    linker.close()
    with EntityLinker.open("base", store=str(store_path)) as again:
        assert list(again.link_batch(mentions)) == before


def test_explain_shows_the_counts_and_annotate_uses_them(linker: EntityLinker) -> None:
    """`--explain` says that the name was learned, and how often it meant what. It is found in running text, too."""
    linker.learn([("the paper", "nyt")] * 3 + [("The Paper", None), ("the paper", "nyp")])
    linker.reject("the paper", "nyp")
    lines = explain_link(linker.link("the paper"), linker.calibration)

    assert "what was learned of this name" in lines[0]
    assert lines[1:4] == [
        "learned: nyt: 3 as written",
        "learned: nyp: 1 as written, 1 rejected",
        "learned: NIL: 1 in other forms",
    ]
    linker.learn([("Gotham", "nyc")] * 5)
    found = linker.annotate("She left Gotham in May.")

    assert [(one.text, one.link.entity_id) for one in found] == [("Gotham", "nyc")]


def test_several_collections_learn_apart(tmp_path: Path, model: Path) -> None:
    """With several collections, the one that learns must be named; NIL in one leaves the other."""
    fill(tmp_path, "base", str(model), ENTITIES)
    fill(tmp_path, "other", str(model), [Entity("ny2", "New York", (), ("city",), ("GPE",))])
    with EntityLinker.open("base", "other", store=str(tmp_path)) as linker:
        with pytest.raises(ValueError, match="name the collection"):
            linker.accept("New York", "nyc")
        linker.accept("New York", None, collection="base")
        link = linker.link("New York")
        assert (link.kb, link.entity_id) == ("other", "ny2")
        assert linker.learned_batches("other") == ()
        assert len(linker.learned_batches("base")) == 1


def test_bad_arguments_are_errors(linker: EntityLinker) -> None:
    """Unknown ids and mentions that are no text are refused, and nothing is learned; so it is after close."""
    with pytest.raises(EntityNotFoundError, match="No entity 'nobody' in base"):
        linker.accept("NYC", "nobody")
    with pytest.raises(EntityNotFoundError, match="No entity 'nobody' in base"):
        linker.reject("NYC", "nobody")
    for mention in ("", " ", "\ud800", "x" * 20_000):
        with pytest.raises(LearningError, match="cannot be learned"):
            linker.accept(mention, "nyc")

    assert linker.learned_batches() == ()
    linker.close()
    for use in (lambda: linker.accept("a", "nyc"), lambda: linker.learn([("a", "nyc")]), linker.learned_batches):
        with pytest.raises(LinkerClosedError):
            use()
