"""Second opinions: a judge of the caller's where linking is unsure, and rerankers, which score the best candidates. The
order of candidates and their ties: one rule for every place that sorts them.
"""

from __future__ import annotations

import asyncio
import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from effort import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from linker_base import fill
from msgspec.structs import replace
from scored_names import score_names
from tiny_models import make_pearl

from pearl_qdrant import Entity, EntityLinker, LinkOptions, NilReason
from pearl_qdrant.errors import JudgeError, ModelError
from pearl_qdrant.linking.asking import BATCH, NIL, Asking, LinkQuestion, LinkVerdict, asking_of
from pearl_qdrant.linking.ranking import Calibration, CrossEncoder, RankingModel
from pearl_qdrant.linking.ranking.model import LinkQuery, MatchedName, ScoredMention, Scorer
from pearl_qdrant.linking.ranking.reranker import rerank
from pearl_qdrant.linking.ranking.scoring import SAME_LOGIT, decide
from pearl_qdrant.store.schema import NamePoint

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


class Contrary:
    """A reranker that prefers the candidate with the longest name."""

    def score(self, mention: str, candidates: Sequence[NamePoint]) -> list[float]:
        assert mention
        return [50.0 * len(point.name) for point in candidates]


def test_a_reranker_changes_the_order(store_path: Path) -> None:
    """My own model can score the best candidates again, and its scores count."""
    with EntityLinker.open("base", store=str(store_path), threshold=0.0, reranker=Contrary()) as linker:
        link = linker.link("Nwe Yrok Tims")

    assert link.candidates[0].name == max((c.name for c in link.candidates), key=len)
    assert link.entity_id == link.candidates[0].entity_id


def test_a_reranker_does_not_overrule_an_exact_name(store_path: Path) -> None:
    """A name that a rule decides keeps its entity and its probability."""
    answers = []
    for reranker in (None, Contrary()):
        with EntityLinker.open("base", store=str(store_path), threshold=0.0, reranker=reranker) as linker:
            answers.append([linker.link(mention, limit=10) for mention in ("New York", "heart attack")])

    assert [link.entity_id for link in answers[1]] == ["nyc", "mi"]
    assert answers[0] == answers[1]


def test_a_reranker_chooses_among_namesakes_that_nothing_separates(tmp_path: Path, model: Path) -> None:
    """Two entities of one name are tied without it; with it, one of them is first."""
    fill(tmp_path, "twins", str(model), [Entity("a", "Springfield"), Entity("b", "Springfield")])

    class Second:
        def score(self, mention: str, candidates: Sequence[NamePoint]) -> list[float]:
            return [9.0 * (point.entity_id == "b") for point in candidates]

    with EntityLinker.open("twins", store=str(tmp_path)) as linker:
        assert linker.link("Springfield").nil_reason is NilReason.AMBIGUOUS
    with EntityLinker.open("twins", store=str(tmp_path), reranker=Second()) as linker:
        assert linker.link("Springfield").entity_id == "b"


def test_a_cross_encoder_is_loaded_from_a_folder(store_path: Path, tmp_path: Path) -> None:
    """Any sequence classifier of transformers works; anything else is refused with a hint."""
    folder = make_classifier(tmp_path / "classifier")
    encoder = CrossEncoder(str(folder))
    point = NamePoint("kb", "x", "New York", "New York", True, description="a city")

    alone = encoder.score("Big Apple", [point])
    together = encoder.score("Big Apple", [point, replace(point, name="New York Post", description=None)])

    assert together[0] == pytest.approx(alone[0], abs=1e-5)
    with EntityLinker.open("base", store=str(store_path), threshold=0.0, reranker=encoder) as linker:
        assert linker.link("heart attack").candidates
    with pytest.raises(ModelError, match=r"Cross-encoder .* cannot be loaded .*Pass a folder or a hub id"):
        CrossEncoder(str(tmp_path / "nothing"))


def make_classifier(folder: Path) -> Path:
    """A tiny random sequence classifier with the tokenizer of the tiny models."""
    from transformers import BertConfig, BertForSequenceClassification

    made = make_pearl(folder / "pearl").folder
    vocabulary = len(json.loads((made / "tokenizer.json").read_text("utf-8"))["model"]["vocab"])
    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        num_labels=1,
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        shutil.copy(made / name, folder / name)
    return folder


BY_SPELLING = Scorer(RankingModel.from_names({"lexical": 1.0}, {}, {}), 0.0, 0.0)

STRADDLING = [0.50006, 0.50014, 0.50003, 0.49997]
"""The best two are closer than what counts as equal. In four decimals the first and the last pair are equal, and the
last of all is as near to the first as the second is."""

STEP = 3e-5  # neither what counts as equal nor what is rounded is a multiple of it, so that no test hangs on a last bit
logit_lists = st.lists(st.integers(0, 15).map(lambda n: 0.500002 + n * STEP), min_size=1, max_size=12)


def scored(logits: Sequence[float], *, limit: int = 20) -> ScoredMention:
    """Candidates a, b, c and so on whose logits are given."""
    names = [MatchedName(NamePoint("kb", chr(97 + i), "x", "x", True), None, logit) for i, logit in enumerate(logits)]
    return score_names("y", names, LinkQuery(limit), BY_SPELLING)


class Scores:
    """A reranker that gives scores by id, 0 for others; remembers what it was shown."""

    def __init__(self, **scores: float) -> None:
        self.scores = scores
        self.seen: list[str] = []

    def score(self, mention: str, candidates: Sequence[NamePoint]) -> list[float]:
        self.seen = [point.entity_id for point in candidates]
        return [self.scores.get(key, 0.0) for key in self.seen]


def check_order(found: ScoredMention) -> None:
    """Candidates tied with the best come first by id; the others follow by logit."""
    logits = found.logits
    close = [max(logits) - logit <= SAME_LOGIT for logit in logits]
    n_close = sum(close)
    assert close == [True] * n_close + [False] * (len(logits) - n_close)
    assert [entity.tie for entity in found.found] == [n_close > 1 and one for one in close]
    assert [entity.key for entity in found.found[:n_close]] == sorted(e.key for e in found.found[:n_close])
    behind = [round(logit, 4) for logit in logits[n_close:]]
    assert behind == sorted(behind, reverse=True)


@settings(max_examples=examples(300), deadline=None, derandomize=True)
@given(logit_lists, st.lists(st.integers(-7, 7).map(lambda n: 10 * n * STEP), min_size=10, max_size=10))
@example(STRADDLING, [0.0] * 10)
@example([0.5] * 12, [3.0] * 10)
@example([0.5] * 12, [0.0] * 9 + [-0.1])
def test_tied_candidates_come_first(logits: list[float], scores: list[float]) -> None:
    """No worse candidate comes between tied ones, before and after a reranking of the first ten."""
    reranker = Scores(**{chr(97 + i): score for i, score in enumerate(scores)})

    check_order(scored(logits))
    check_order(rerank(scored(logits), reranker, "y"))


def test_a_candidate_with_a_low_rerank_score_falls_behind_others() -> None:
    """The order follows the probabilities, beyond the tenth candidate too."""
    before = scored([1 - i / 100 for i in range(15)])
    reranker = Scores(a=9.0, b=-9.0, c=-9.0)

    after = rerank(before, reranker, "y")
    link = decide(after, Calibration(), 15, 0.0, "null")

    assert reranker.seen == list("abcdefghij")
    assert [entity.point.entity_id for entity in after.found] == list("adefghijklmnobc")
    probabilities = [candidate.probability or 0.0 for candidate in link.candidates]
    assert probabilities == sorted(probabilities, reverse=True)
    assert math.fsum(after.logits) == pytest.approx(math.fsum(before.logits)), "the odds against NIL stay"


@pytest.mark.parametrize("scores", [[1.0], [1.0, float("nan")]])
def test_invalid_rerank_scores_are_refused(scores: list[float]) -> None:
    """A missing or non-finite score is an error that shows the scores."""

    class Broken:
        def score(self, mention: str, candidates: Sequence[NamePoint]) -> list[float]:
            return scores

    with pytest.raises(ModelError, match=r"read 2 candidates and returned the scores \["):
        rerank(scored([0.5, 0.4]), Broken(), "y")
