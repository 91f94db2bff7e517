"""The order of candidates and their ties: one rule for every place that sorts them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from effort import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pearl_qdrant.errors import ModelError
from pearl_qdrant.linking.calibration.metrics import Samples
from pearl_qdrant.linking.candidates import MORE, _group_by_entity
from pearl_qdrant.linking.ranking import Calibration, RankingModel
from pearl_qdrant.linking.ranking.model import FEATURES, NIL_FEATURES, LinkQuery, MatchedName, ScoredMention, Scorer
from pearl_qdrant.linking.ranking.scoring import SAME_LOGIT, decide, rerank, score_names
from pearl_qdrant.store.schema import NamePoint

BY_SPELLING = Scorer(RankingModel.from_names({"lexical": 1.0}, {}, {}), 0.0, 0.0)

STRADDLING = [0.50006, 0.50014, 0.50003, 0.49997]
"""The best two are closer than what counts as equal. In four decimals the first and the last pair are equal, and the
last of all is as near to the first as the second is."""

STEP = 3e-5  # neither what counts as equal nor what is rounded is a multiple of it, so that no test hangs on a last bit
logit_lists = st.lists(st.integers(0, 15).map(lambda n: 0.500002 + n * STEP), min_size=1, max_size=12)


def scored(logits: Sequence[float], *, limit: int = 20) -> ScoredMention:
    """Candidates a, b, c and so on whose logits are given."""
    names = [MatchedName(NamePoint("kb", chr(97 + i), "x", "x", True), None, logit) for i, logit in enumerate(logits)]
    return score_names("y", names, None, LinkQuery(limit), BY_SPELLING)


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
@given(logit_lists)
@example(STRADDLING)
def test_tied_candidates_come_first(logits: list[float]) -> None:
    """No worse candidate comes between tied ones."""
    check_order(scored(logits))


@settings(max_examples=examples(300), deadline=None, derandomize=True)
@given(logit_lists, st.lists(st.integers(-7, 7).map(lambda n: 10 * n * STEP), min_size=10, max_size=10))
@example(STRADDLING, [0.0] * 10)
@example([0.5] * 12, [3.0] * 10)
@example([0.5] * 12, [0.0] * 9 + [-0.1])
def test_the_same_holds_after_reranking(logits: list[float], scores: list[float]) -> None:
    """The order is right for all candidates, including those that were not reranked."""
    reranker = Scores(**{chr(97 + i): score for i, score in enumerate(scores)})

    check_order(rerank(scored(logits), reranker, "y"))


@settings(max_examples=examples(300), deadline=None, derandomize=True)
@given(logit_lists)
@example(STRADDLING)
def test_coefficients_are_fitted_on_the_same_order(logits: list[float]) -> None:
    """A fit that scores again sorts and ties candidates as the linker does."""
    found = scored(logits)
    features = np.zeros((1, len(logits), len(FEATURES)), dtype=np.float32)
    features[0, :, FEATURES.index("lexical")] = logits
    one, right = np.ones(1), np.zeros((1, len(logits)), dtype=np.bool_)
    nil_features, offsets = np.zeros((1, len(NIL_FEATURES))), np.zeros((1, len(logits)))
    made = Samples(np.array([logits]), one, right, one.astype(int), one == 0, one, features, nil_features, offsets, one)

    again = made.scored_by(BY_SPELLING.model)

    assert again.logits[0] == pytest.approx(found.logits, abs=1e-6)


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


@pytest.mark.parametrize("scores", [[1.0], [1.0, float("nan")], [1.0, 2.0, 3.0], [float("inf"), 0.0]])
def test_invalid_rerank_scores_are_refused(scores: list[float]) -> None:
    """A missing or non-finite score is an error that shows the scores."""

    class Broken:
        def score(self, mention: str, candidates: Sequence[NamePoint]) -> list[float]:
            return scores

    with pytest.raises(ModelError, match=r"read 2 candidates and returned the scores \["):
        rerank(scored([0.5, 0.4]), Broken(), "y")


@pytest.mark.parametrize("is_same, has_own, n", [(True, False, 3), (False, True, 3), (False, False, 3 + MORE)])
def test_more_entities_are_ranked_where_no_name_is_the_mention_itself(is_same: bool, has_own: bool, n: int) -> None:
    """The right name of a slip may come late by its vector; where the mention's own name is found, others need not."""
    names = [MatchedName(NamePoint("kb", f"E{i:02}", f"n{i}", f"n{i}", True), 0.9 - i / 100) for i in range(20)]
    names[4].is_same_spelling = is_same

    assert len(_group_by_entity(names, 3, has_own=has_own)) == n
    assert _group_by_entity([], 3, has_own=False) == []
