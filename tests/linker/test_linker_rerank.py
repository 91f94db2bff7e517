"""Rerankers: a second model that scores the best candidates. The order of candidates and their ties: one rule for every
place that sorts them.
"""

from __future__ import annotations

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

from pearl_qdrant import Entity, EntityLinker, NilReason
from pearl_qdrant.errors import ModelError
from pearl_qdrant.linking.ranking import Calibration, CrossEncoder, RankingModel
from pearl_qdrant.linking.ranking.model import LinkQuery, MatchedName, ScoredMention, Scorer
from pearl_qdrant.linking.ranking.reranker import rerank
from pearl_qdrant.linking.ranking.scoring import SAME_LOGIT, decide
from pearl_qdrant.store.schema import NamePoint


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
