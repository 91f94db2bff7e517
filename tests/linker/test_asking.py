"""A judge of the caller's decides where linking is unsure."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from pearl_qdrant import EntityLinker, LinkOptions, NilReason
from pearl_qdrant.errors import JudgeError
from pearl_qdrant.linking.asking import BATCH, NIL, Asking, LinkQuestion, LinkVerdict, asking_of

ALL = (0.0, 1.0)  # ask about everything
UNSURE = "post of York"


class Judge:
    """Answers by mention, and remembers its questions."""

    def __init__(self, **answers: LinkVerdict) -> None:
        self.answers: dict[str, LinkVerdict] = {"post of York": "nyc", **answers}
        self.batches: list[list[LinkQuestion]] = []

    def __call__(self, questions: Sequence[LinkQuestion]) -> list[LinkVerdict]:
        self.batches.append(list(questions))
        return [self.answers.get(one.mention) for one in questions]

    @property
    def asked(self) -> list[str]:
        """Mentions that it was asked about."""
        return [one.mention for batch in self.batches for one in batch]


def always(answer: LinkVerdict) -> Asking:
    """Is asked about everything, and says one thing."""
    return Asking(lambda questions: [answer] * len(questions), between=ALL)


def test_a_judge_chooses_among_the_candidates(linker: EntityLinker) -> None:
    """The entity that it names is linked, comes first, and has its certainty; all probabilities stay below 1 in sum."""
    before = linker.link(UNSURE, limit=9)
    link = linker.link(UNSURE, limit=9, judge=always("nyc"))

    assert before.entity_id != "nyc"
    assert (link.entity_id, link.canonical_name, link.kb) == ("nyc", "New York", "base")
    assert link.probability == link.candidates[0].probability == pytest.approx(0.9)
    assert sum(one.probability or 0 for one in link.candidates) <= 1
    assert {one.entity_id for one in link.candidates} == {one.entity_id for one in before.candidates}
    assert link.rule is None


def test_nil_is_an_answer(linker: EntityLinker) -> None:
    """The mention has no entity, whatever the threshold, and the candidates share what is left."""
    link = linker.link(UNSURE, judge=always(NIL), threshold=0.0)

    assert (link.entity_id, link.probability, link.nil_reason) == (None, None, NilReason.BELOW_THRESHOLD)
    assert sum(one.probability or 0 for one in link.candidates) == pytest.approx(0.1)


def test_a_probability_is_an_answer(linker: EntityLinker) -> None:
    """It is that of the first candidate, and the threshold decides; None changes nothing."""
    before = linker.link(UNSURE, threshold=0.5)
    high, low = (linker.link(UNSURE, judge=always(p), threshold=0.5) for p in (0.75, 0.0))

    assert (high.entity_id, high.probability) == (before.candidates[0].entity_id, 0.75)
    assert low.candidates[-1].entity_id == high.entity_id
    assert low.candidates[-1].probability == 0
    assert linker.link(UNSURE, judge=always(None), threshold=0.5) == before


def test_only_what_is_unsure_is_asked_and_once(own: EntityLinker) -> None:
    """Names of the base and what is hopeless are not asked; an equal mention costs nothing, in another call neither."""
    judge = Judge()
    names = ["NYTimes", UNSURE, "heart attack", UNSURE, "zzzz qqqq"]
    first = own.link(UNSURE).candidates[0].probability or 0
    asking = Asking(judge, between=(first, first + 1e-6))
    links = list(own.link_batch(names, judge=asking))

    assert judge.asked == [UNSURE]
    assert [link.entity_id for link in links[:4]] == ["nyt", "nyc", "mi", "nyc"]
    assert (asking.unsure, asking.asked, asking.decided) == (2, 1, 2)
    assert own.link(UNSURE, judge=asking).entity_id == "nyc"
    assert [(question.mention, answer) for question, answer in asking.answers] == [(UNSURE, "base:nyc")]
    list(own.link_batch([UNSURE], context="a text", judge=Asking(judge, between=(0.0, 1.0))))
    assert judge.batches[-1][0].context == "a text", "another context is another question"


def test_entities_of_one_name_are_asked_about(linker: EntityLinker) -> None:
    """Where nothing separates them, the judge does, whatever their probability."""
    before = linker.link("New York", on_tie="null", threshold=0.5)
    link = linker.link("New York", on_tie="null", threshold=0.5, judge=Asking(lambda q: ["nys"], between=(0.0, 0.0)))

    assert before.nil_reason == NilReason.AMBIGUOUS
    assert link.entity_id == "nys"


def test_links_stay_in_order_and_questions_come_in_batches(linker: EntityLinker) -> None:
    """At most 32 questions at once, 1,000 in all; what is beyond stays as it was, and so does the order."""
    judge = Judge()
    names = [f"York {i}" for i in range(100)]
    asking = Asking(judge, between=ALL, budget=70)
    links = list(linker.link_batch(iter(names), judge=asking))

    assert [link.mention for link in links] == names
    assert [len(batch) for batch in judge.batches] == [BATCH, BATCH, 6]
    assert (asking.unsure, asking.asked, asking.decided) == (100, 70, 0)
    assert asking_of(judge).budget == 1000


def test_asyncio_asks_once_in_a_call(linker: EntityLinker) -> None:
    """One call of `alink_batch` is one call for the judge, too, however many batches it makes."""
    judge = Judge()

    async def links() -> list[str | None]:
        options = LinkOptions(judge=judge)
        return [link.entity_id async for link in linker.alink_batch(["New York"] * 600, options, on_tie="null")]

    asyncio.run(links())
    assert judge.asked == ["New York"]


def test_a_document_is_the_context(linker: EntityLinker) -> None:
    """The text around a mention of a document is what the judge reads."""
    text = "Yesterday the post of York wrote about it."
    judge = Judge()
    found = linker.link_document(text, [(14, 26)], judge=Asking(judge, between=ALL))

    assert found[0].link.entity_id == "nyc"
    assert judge.batches[0][0].context == text


@pytest.mark.parametrize(
    "answers, message",
    [
        ([], "1 questions, the first of them about 'post of York', returned 0 answers"),
        (["nyx"], r"returned 'nyx' for 'post of York': an answer is the id of a candidate \(.*nyc.*\), NIL"),
        ([1.5], r"a probability is in \[0, 1\]"),
        ([True], "returned True"),
        (["NIL"], "returned 'NIL'"),
    ],
)
def test_a_wrong_answer_is_named(linker: EntityLinker, answers: list[object], message: str) -> None:
    """The error has the answer, the mention, and what is an answer."""
    with pytest.raises(JudgeError, match=message):
        linker.link(UNSURE, judge=Asking(lambda questions: answers, between=ALL))  # type: ignore[arg-type, return-value]


def test_an_error_of_the_judge_is_named(linker: EntityLinker) -> None:
    """It says which questions, and keeps the error; the links before it have come."""

    def fails(questions: Sequence[LinkQuestion]) -> list[LinkVerdict]:
        raise KeyError("no model")

    links = linker.link_batch(["NYTimes", UNSURE], judge=Asking(fails, between=(0.0, 0.98)))
    assert next(links).entity_id == "nyt"
    with pytest.raises(JudgeError, match="about 'post of York', raised KeyError: 'no model'") as caught:
        next(links)
    assert isinstance(caught.value.__cause__, KeyError)


def test_an_id_of_two_bases_needs_its_base() -> None:
    """The id alone would say nothing; with the base it does."""
    from pearl_qdrant import Candidate, Link

    candidates = tuple(Candidate("1", kb, kb, kb, probability=0.4) for kb in ("a", "b"))
    link = Link("x", None, None, None, NilReason.AMBIGUOUS, candidates)
    with pytest.raises(JudgeError, match="return a:1 or b:1"):
        list(always("1").links([link], context=None, threshold=0.5))
    assert next(always("b:1").links([link], context=None, threshold=0.5)).kb == "b"


@pytest.mark.parametrize("wrong", [{"between": (0.9, 0.2)}, {"between": (0.1, 2)}, {"certainty": 1.0}, {"budget": -1}])
def test_a_setting_out_of_range_is_refused(wrong: dict[str, object]) -> None:
    """Before anything is asked."""
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Asking(lambda questions: [], **wrong)  # type: ignore[arg-type]
