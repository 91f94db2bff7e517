"""Values of the features of candidates and of NIL, and the threshold between an entity and NIL."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from pearl_qdrant.lexical.keys import spelling_key
from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.lexical.words import word_rarity
from pearl_qdrant.linking.ranking import Calibration, RankingModel
from pearl_qdrant.linking.ranking.model import (
    FEATURES,
    MARGINS,
    MOST_MARGIN,
    NIL_FEATURES,
    LinkQuery,
    MatchedName,
    ScoredEntity,
    ScoredMention,
    Scorer,
    with_margins,
)
from pearl_qdrant.linking.ranking.scoring import decide, score_names
from pearl_qdrant.linking.ranking.string_features import edit_similarity
from pearl_qdrant.records import NilReason
from pearl_qdrant.store.schema import NamePoint

NOTHING = RankingModel.from_names({}, {}, {})


def name(
    number: int, *, dense: float | None = 0.5, lexical: float = 0.0, called: str = "", type_: str = ""
) -> MatchedName:
    """A name of an entity of its own."""
    called, types = called or f"n{number}", (type_,) if type_ else ()
    return MatchedName(NamePoint("kb", f"E{number:02}", called, called, True, types=types), dense, lexical)


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
        **dict.fromkeys(("margin", "coverage_margin", "judge_margin"), 0.0),
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


def of_pair(
    mention: str, called: str, known: dict[str, float] | None = None, *others: str, type_: str = ""
) -> dict[str, float]:
    """The features of a name that are not 0, with names of other entities beside it; their cosines are 0.2."""
    key = spelling_key(fold_name(mention))
    names = [
        replace(one, edit_similarity=edit_similarity(key, spelling_key(fold_name(one.point.name))))
        for one in (name(i, dense=0.2, called=each, type_=type_) for i, each in enumerate((called, *others)))
    ]
    one = score_names(mention, names, None, LinkQuery(len(names)), Scorer(NOTHING, 0.0, 0.0), known or {})
    found = next(entity for entity in one.found if entity.point.entity_id == "E00")
    return {feature: value for feature, value in features(found).items() if value}


ONE_SLIP, TWO_SLIPS, NO_SLIP = {"slip_gap", "slip_length", "unknown_slip"}, {"slip_gap", "unknown_slip"}, set[str]()


@pytest.mark.parametrize(
    "mention, called, expected",
    [
        *(("meazles", "measles", ONE_SLIP), ("myocardial infraction", "Myocardial Infarction", ONE_SLIP)),
        *(("myocardail infraction", "myocardial infarction", TWO_SLIPS), ("measles", "Measles", NO_SLIP)),
        *(("gut", "gout", {"unknown_slip"}), ("dxta", "data", {"unknown_slip"})),  # three or four letters
        *(("ab", "abc", NO_SLIP), ("dxty", "data", NO_SLIP), ("ab1", "ab2", NO_SLIP)),
        *(("type 2 diabetes", "type 3 diabetes", NO_SLIP), ("hepatitis Z", "hepatitis B", NO_SLIP)),
        *(("Sard0al", "Sardoal", ONE_SLIP), ("Las Vegas 1imited", "Las Vegas Limited", ONE_SLIP)),  # misread letters
        *(("Sardoal", "Sard0al", NO_SLIP), ("type 5 lesion", "type 8 lesion", NO_SLIP), ("IL1", "ILL", NO_SLIP)),
        ("C0LD", "cold", NO_SLIP),
    ],
)
def test_slips_count_where_a_name_is_long_enough(mention: str, called: str, expected: set[str]) -> None:
    """One or two edits, a swap of neighbours is one of them; not of numbers, but of letters that look like digits."""
    assert of_pair(mention, called).keys() & ONE_SLIP == expected


def test_a_misspelt_word_that_the_base_does_not_have_counts_as_one() -> None:
    """The vector of such a word means little. A swap has the same letters; a word that the base has is another name.
    Only the nearest name has a margin, its lead over those of other entities.
    """
    gap = pytest.approx(0.8)
    assert of_pair("Kilkenjy", "Kilkenny").items() >= {"unknown_slip": 1.0, "unknown_gap": gap}.items()
    assert "unknown_slip" not in of_pair("Kilkenjy", "Kilkenny", {"kilkenjy": 0.4})
    assert "unknown_slip" in of_pair("left lumg", "left lung", {"left": 0.9})
    assert ["swap" in of_pair(one, "Mexico") for one in ("Mexioc", "Mexicoo", "Mexiko")] == [True, False, False]
    assert of_pair("Mexiko", "Mexico", {}, "Mexiz")["edit_margin"] > 0.0
    assert "edit_margin" not in of_pair("Mexiko", "Mexiz", {}, "Mexico")


WORDS = {"replaced_words", "replaced_rare", "only_added", "added_plain", "only_missing", "missing_rare"}


@pytest.mark.parametrize(
    "mention, called, expected",
    [
        *(("measles", "Measles", {}), ("meazles", "measles", {}), ("tumours of the lung", "tumor of lung", {})),
        *(("chicken pox", "chickenpox", {}), ("chicken poks", "chickenpox", {}), ("DFNA13", "DFNB13", {})),
        ("left lung", "right lung", {"replaced_words": 0.5, "replaced_rare": word_rarity("left")}),
        ("hepatitis Z", "hepatitis B", {"replaced_words": 0.5, "replaced_rare": 1.0}),
        ("lung cancer", "cancer", {"only_added": 1.0, "added_plain": 1 - word_rarity("lung")}),
        ("cancer cases", "cancer", {"only_added": 1.0, "added_plain": 1 - word_rarity("case")}),
        ("familial measles", "measles", {"only_added": 1.0}),  # a rare word is no plain one
        ("neuropeptide Y", "neuropeptides", {"only_added": 1.0}),
        ("cancer", "lung cancer", {"only_missing": 1.0, "missing_rare": word_rarity("lung")}),
    ],
)
def test_words_without_a_counterpart(mention: str, called: str, expected: dict[str, float]) -> None:
    """Replaced, added and missing words are told apart; slips and spellings are none."""
    assert {key: value for key, value in of_pair(mention, called).items() if key in WORDS} == expected


def test_another_order_of_words_is_near_when_sorted() -> None:
    """Sorting brings the words together; a single word gains if the other side has a legal form more. A word that names
    of the base have is probably part of another name.
    """
    of_base = of_pair("lung measles", "measles", {"lung": 0.6, "measle": 0.2})
    assert of_base["added_plain"] == pytest.approx(0.4 * (1 - word_rarity("lung")))
    assert of_pair("mellitus diabetis, type 2", "type 2 diabetes mellitus")["sorted_similarity"] > 0.3
    assert of_pair("ibm corp", "IBM")["sorted_similarity"] > 0.5
    for mention, called in (("measles", "measles"), ("ibm chip", "IBM"), ("heart attack", "myocardial infarction")):
        assert "sorted_similarity" not in of_pair(mention, called)


@pytest.mark.parametrize(
    "mention, called, feature, is_set",
    [
        *(("NYT", "The New York Times", "acronym", True), ("The New York Times", "NYT", "acronym", True)),
        *(("NY", "The New York Times", "acronym", False), ("t", "The Times", "acronym", False)),
        *(("Paris (Texas)", "paris", "equal_core", True), ("Lan Na", "Lanna", "equal_core", True)),
        *(("\U0001f984", "?", "equal_core", False), ("2008 Games", "2012 Games", "missing_numbers", True)),
        *(("2008 Games", "2012 Games", "extra_numbers", True), ("2008 Games", "Games 2008", "equal_numbers", True)),
        *(("2008 Games", "2012 Games", "equal_numbers", False), ("2008 and 2012", "In 2008", "equal_numbers", False)),
        *(("2008 Olympics", "2008 Games", "first_word", True), ("Winter Games", "Summer Games", "first_word", False)),
    ],
)
def test_strings_say_more_than_ngrams(mention: str, called: str, feature: str, is_set: bool) -> None:
    """Brackets, numbers, acronyms and first words are recognised; one letter stands for too much."""
    assert of_pair(mention, called).get(feature, 0.0) == is_set


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
    found = of_pair(mention, called, type_=type_)

    assert (found.get("added_apart") == 1.0) == is_apart
    assert ("added_plain" in found) <= (not is_apart)
