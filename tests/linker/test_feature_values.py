"""Values of the features of candidates and of NIL, and the threshold between an entity and NIL."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from pearl_qdrant.linking.ranking.model import (
    FEATURES,
    MARGINS,
    MOST_MARGIN,
    NIL_FEATURES,
    Calibration,
    RankingModel,
    with_margins,
)
from pearl_qdrant.linking.ranking.scored import LinkQuery, MatchedName, ScoredEntity, ScoredMention, Scorer
from pearl_qdrant.linking.ranking.scoring import decide, score_names
from pearl_qdrant.linking.ranking.string_features import edit_similarity, string_features
from pearl_qdrant.records import NilReason
from pearl_qdrant.store.schema import NamePoint

NOTHING = RankingModel.from_names({}, {}, {})


def name(number: int, *, dense: float | None = 0.5, lexical: float = 0.0, called: str | None = None) -> MatchedName:
    """A name of an entity of its own."""
    called = f"n{number}" if called is None else called
    return MatchedName(NamePoint("kb", f"E{number:02}", called, called, True), dense, lexical)


def scored(mention: str, names: list[MatchedName], *, baseline: float = 0.0, log_size: float = 0.0) -> ScoredMention:
    """With no coefficients, so that the features alone are looked at."""
    return score_names(mention, names, None, LinkQuery(len(names) or 1), Scorer(NOTHING, baseline, log_size))


def features(found: ScoredEntity) -> dict[str, float]:
    """By name."""
    return dict(zip(FEATURES, found.features.tolist(), strict=True))


def nil_features(one: ScoredMention) -> dict[str, float]:
    """By name."""
    return dict(zip(NIL_FEATURES, one.nil_features.tolist(), strict=True))


def test_a_cosine_is_relative_to_unrelated_names() -> None:
    """If unrelated names have a cosine of 0.8, 0.9 counts as 0.5. Without a cosine the lexical score replaces it."""
    found = features(scored("x", [name(0, dense=0.9)], baseline=0.8).found[0])
    below = features(scored("x", [name(0, dense=0.6)], baseline=0.8).found[0])

    assert found["dense"] == pytest.approx(0.5)
    assert found["dense_squared"] == pytest.approx(0.25)
    assert (below["dense"], below["dense_squared"]) == (pytest.approx(-1.0), 0.0)
    without = features(scored("x", [name(0, dense=None, lexical=0.7)], baseline=0.8).found[0])
    assert (without["dense"], without["lexical"], without["some_lexical"]) == (0.7, 0.7, 0.5), "above 0.5 it adds less"


def test_the_background_is_the_mean_of_candidates_6_to_10() -> None:
    """It measures how crowded the base is around a mention, and is 0 without such candidates."""
    names = [name(i, dense=1 - i / 100, lexical=i / 100) for i in range(12)]
    crowded, lonely = nil_features(scored("x", names)), nil_features(scored("x", names[:5]))

    assert crowded["background_dense"] == pytest.approx(np.mean([1 - i / 100 for i in range(5, 10)]))
    assert crowded["background_lexical"] == pytest.approx(np.mean([i / 100 for i in range(5, 10)]))
    assert (lonely["background_dense"], lonely["background_lexical"]) == (0.0, 0.0)


@pytest.mark.parametrize("mention, length", [("abc", 0.1), ("ab c-d e", 5 / 30), ("a" * 30, 1.0), ("a" * 90, 1.0)])
def test_the_length_of_a_mention_counts_up_to_thirty_letters(mention: str, length: float) -> None:
    """The feature is letters and digits divided by 30, at most 1."""
    assert nil_features(scored(mention, [])) == {
        "bias": 1.0,
        "rarity": 1.0,
        "background_dense": 0.0,
        "background_lexical": 0.0,
        "length": pytest.approx(length),
        "log_size": pytest.approx(math.log(300) / 10),
        **dict.fromkeys(("margin", "coverage_margin"), 0.0),
        "few_names": 1.0,
    }
    assert nil_features(scored("x", [], log_size=12.5))["log_size"] == 1.25, "a tenth of the logarithm"


def test_margins_say_less_among_few_names() -> None:
    """From 300 names on a margin counts whole; of two names there is seldom another one that is near."""
    margins = []
    for n in (2, 30, 300, 3000):
        found = scored("x", [name(0, dense=0.9), name(1, dense=0.1)], log_size=math.log(n))
        margins.append(with_margins(found.nil_features, np.array([6.0, 1.0]), np.eye(2, len(FEATURES)))[MARGINS][0])

    assert margins[2:] == pytest.approx([5 / MOST_MARGIN] * 2)
    assert margins[0] < margins[1] < margins[2]


def link(probabilities: list[float], *, threshold: float, names: list[str]) -> NilReason | str | None:
    """Why a mention is NIL, or its entity, where candidates have these probabilities."""
    nil = 1 - sum(probabilities)
    found = [
        ScoredEntity(name(i, called=called), np.zeros(len(FEATURES)), float(np.log(p)))
        for i, (p, called) in enumerate(zip(probabilities, names, strict=True))
    ]
    one = ScoredMention("x", found, float(np.log(nil)), np.zeros(len(NIL_FEATURES)))
    answer = decide(one, Calibration(), 10, threshold, "canonical")
    return answer.nil_reason or answer.entity_id


@pytest.mark.parametrize(
    "threshold, names, expected",
    [
        (0.59, ["a", "b"], "E00"),
        (0.61, ["a", "b"], NilReason.BELOW_THRESHOLD),
        (0.59, ["a", "a"], "E00"),
        (0.61, ["a", "a"], NilReason.AMBIGUOUS),
        (0.79, ["a", "a"], NilReason.AMBIGUOUS),
        (0.81, ["a", "a"], NilReason.BELOW_THRESHOLD),
    ],
)
def test_the_threshold_decides(threshold: float, names: list[str], expected: object) -> None:
    """An entity at or over the threshold is linked; namesakes that reach it only together are ambiguous."""
    assert link([0.6, 0.2], threshold=threshold, names=names) == expected


def test_a_misspelt_word_that_the_base_does_not_have_counts_as_one() -> None:
    """A slip in an unknown word, in a short one, by a swap; the vector of such a word means little."""

    def of(mention: str, called: str, known: dict[str, float] | None = None) -> dict[str, float]:
        similarity = edit_similarity(string_features(mention).joined, string_features(called).joined)
        names = [replace(name(0, dense=0.2, called=called), edit_similarity=similarity)]
        one = score_names(mention, names, None, LinkQuery(1), Scorer(NOTHING, 0.0, 0.0), known or {})
        found = features(one.found[0])
        return {key: found[key] for key in ("unknown_slip", "unknown_gap", "swap") if found[key]}

    gap = pytest.approx(0.8)
    assert of("Kilkenjy", "Kilkenny") == {"unknown_slip": 1.0, "unknown_gap": gap}
    assert of("Mexioc", "Mexico") == {"unknown_slip": 1.0, "unknown_gap": gap, "swap": 1.0}
    assert of("dxta", "data") == {"unknown_slip": 1.0, "unknown_gap": gap}
    assert of("Kilkenjy", "Kilkenny", {"kilkenjy": 0.4}) == {}
    assert of("hepatitis Z", "hepatitis B") == {}
    assert of("Mexico", "Mexico") == {}


@pytest.mark.parametrize(
    "mention, called, type_, is_apart",
    [
        ("garbage collection", "Garbage", "ORG", True),
        ("Mobile phone", "Mobile", "GPE", True),
        ("trips to reading", "Reading", "GPE", False),
        ("the Garbage tour", "Garbage", "ORG", False),
        ("google search", "Google", "ORG", False),
        ("severe depression", "Depression", "OTHER", False),
        ("apple pie", "apple", "ORG", False),
    ],
)
def test_a_word_that_is_also_a_name_is_no_name_in_a_phrase(
    mention: str, called: str, type_: str, is_apart: bool
) -> None:
    """In small letters beside other words, and after no preposition; names that are no words stay names."""
    (found,) = scored(
        mention, [MatchedName(NamePoint("kb", "E1", called, called, True, types=(type_,)), 0.5, 0.0)]
    ).found

    assert (features(found)["added_apart"] == 1.0) == is_apart
    assert (features(found)["added_plain"] > 0.0) <= (not is_apart)
