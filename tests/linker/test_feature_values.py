"""Folding, n-grams, IDF and lexical scores; values of the features of candidates and of NIL, and the threshold between
an entity and NIL.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_table import other_outcomes
from scored_names import ngram_rows, score_names

from pearl_qdrant.lexical.keys import spelling_key
from pearl_qdrant.lexical.ngrams import BUCKETS, IdfTable, fold_name, folded_rows, score_pairs
from pearl_qdrant.lexical.words import word_rarity
from pearl_qdrant.linking.mentions import clean_mention
from pearl_qdrant.linking.ranking import Calibration, RankingModel
from pearl_qdrant.linking.ranking.model import (
    FEATURES,
    MARGINS,
    MOST_MARGIN,
    NIL_FEATURES,
    SIGNS,
    LinkQuery,
    MatchedName,
    ScoredEntity,
    ScoredMention,
    Scorer,
    shipped_model,
    with_margins,
)
from pearl_qdrant.linking.ranking.scoring import decide, judged_name
from pearl_qdrant.linking.ranking.string_features import edit_similarity, string_features
from pearl_qdrant.linking.ranking.type_features import type_agreement, type_gaps
from pearl_qdrant.phrase_types import ENTITY_TYPES
from pearl_qdrant.records import NilReason
from pearl_qdrant.store.schema import NamePoint

NAMES = ["The New York Times", "New York Post", "New York", "Los Angeles Times", "heart attack", "heart failure"]


def test_spellings_of_one_name_fold_to_the_same() -> None:
    """Case, accents, ligatures, Greek letters, punctuation and number formats do not distinguish names; vowels of Indic
    scripts and Thai, voiced Kana, and signs at the end of a word do.
    """

    def outcome(one: str, other: str) -> str:
        return "same" if fold_name(one) == fold_name(other) != "" else "other"

    assert other_outcomes(__file__, "folded", outcome) == []
    assert " " not in "".join(map(fold_name, "कि कु パリ ハリ กี่ กู่ மின் முன் バス ハス".split()))


def test_signs_and_single_letters() -> None:
    """A single Roman digit is a letter, unless the word before announces a number. Most signs are punctuation; a plus,
    sharp, star or minus at the end of a word is a word of its own.
    """
    folded = {"Malcolm X": "malcolm x", "I, Robot": "i robot", "Paris*": "paris", "COVID-19": "covid 19", "A+B": "a b"}
    assert {name: fold_name(name) for name in folded} == folded


def test_a_long_run_of_marks_is_folded_in_linear_time() -> None:
    """Half a million accents on one letter do not block a load, and a long name folds like its parts."""
    assert fold_name("a" + "\u0301\u0316" * 250_000 + "b \U0001d16d\U0001d165c") == "ab c"
    parts = ["Ångström", "naïveté", "Νέος", "ﬁn", "Zu\u0308rich", "a\u302eb", "मुंबई"] * 60
    assert fold_name(" ".join(parts)) == " ".join(map(fold_name, parts))


@settings(max_examples=examples(100))
@given(st.lists(st.text(st.characters(), max_size=40), max_size=8))
def test_a_row_depends_on_its_name_alone(names: list[str]) -> None:
    """Other names do not change the n-grams of a name; rows are sorted, positive and of unit length."""
    together = ngram_rows(names)

    assert len(together) == len(names)
    for i, name in enumerate(names):
        indices, values = together.row(i)
        alone = ngram_rows([name])
        assert np.array_equal(indices, alone.indices)
        assert np.all(np.diff(indices.astype(np.int64)) > 0)
        if len(values):
            assert np.all(values > 0)
            assert float(np.linalg.norm(values)) == pytest.approx(1.0, abs=1e-5)


def test_hashes_are_those_of_every_release() -> None:
    """Stored vectors must match those of later mentions: the hash never changes without a new version."""
    indices, values = folded_rows(["il 2"]).row(0)

    assert indices.tolist() == GOLDEN
    assert np.allclose(values, 1 / np.sqrt(len(GOLDEN)))


GOLDEN = [22785137, 1321970317, 2461053240, 2483543878, 2564657153, 2897686960]


def test_rare_words_weigh_more() -> None:
    """A word that half of the names have is weak evidence; a word of one name is strong evidence."""
    idf = IdfTable.from_names(["common " + word for word in ("alpha", "beta", "gamma", "rho")] * 5)
    rows = idf.weighted(ngram_rows(["common alpha"]))
    common = set(ngram_rows(["common"]).indices.tolist())

    _, values = rows.row(0)
    shares = [float((values[[i in common for i in rows.indices.tolist()]] ** 2).sum()), float((values**2).sum())]
    assert shares[0] < 0.2
    assert shares[1] == pytest.approx(1.0, abs=1e-5)


def test_an_idf_table_survives_being_written() -> None:
    """The stored table equals the computed one; a damaged one, or one of another length, is refused."""
    idf = IdfTable.from_names(NAMES)
    rows = ngram_rows(NAMES)

    assert np.array_equal(IdfTable.from_text(idf.to_text()).weighted(rows).values, idf.weighted(rows).values)
    for damaged in ("", "AAAA", idf.to_text()[:-400]):
        with pytest.raises(ValueError, match=r"IDF table|base64|Incorrect padding|Invalid"):
            IdfTable.from_text(damaged)
    with pytest.raises(ValueError, match=f"has {BUCKETS} bytes"):
        IdfTable(np.zeros(3, np.uint8))


def test_scores_equal_a_plain_loop() -> None:
    """Cosine and coverage of pairs equal those of a loop over shared features."""
    rng = random.Random(3)
    mentions = ["".join(rng.choices("abcde ", k=rng.randrange(0, 14))) for _ in range(12)]
    idf = IdfTable.from_names(NAMES + mentions)
    left, right = idf.weighted(ngram_rows(mentions)), idf.weighted(ngram_rows(NAMES + mentions))
    pairs = [(i, j) for i in range(len(left)) for j in range(len(right))]

    for (i, j), cosine, covered in zip(pairs, *score_pairs(left, right, pairs), strict=True):
        a = dict(zip(*(part.tolist() for part in left.row(i)), strict=True))
        b = dict(zip(*(part.tolist() for part in right.row(j)), strict=True))
        shared = a.keys() & b.keys()
        assert cosine == pytest.approx(sum(a[f] * b[f] for f in shared), abs=1e-5)
        assert covered == pytest.approx(sum(a[f] ** 2 for f in shared), abs=1e-5)


@pytest.mark.parametrize(
    "broken, whole",
    [
        *(("Ry\u00c5\u00abky\u00c5\u00ab", "Ry\u016bky\u016b"), ("2005\u00e2\u0080\u009306", "2005\u201306")),
        *(("2005\u00e2\u20ac\u201c06", "2005\u201306"), ("caf\u00e9", "caf\u00e9"), ("\u00c3cole", "\u00c3cole")),
        *(("  New York ", "New York"), ("\u00c5ngstr\u00f6m", "\u00c5ngstr\u00f6m")),
    ],
)
def test_text_in_the_wrong_encoding_is_repaired(broken: str, whole: str) -> None:
    """UTF-8 that was decoded as Windows-1252 or Latin-1 is repaired; all other text stays."""
    assert clean_mention(broken) == whole


def test_type_agreement_fades_with_confidence() -> None:
    """An entity of another type loses as much as the prediction is confident, one of unknown type nothing."""
    sure, unsure = np.full(19, 0.001, np.float32), np.full(19, 0.001, np.float32)
    sure[ENTITY_TYPES.index("ORG")] = 0.98
    unsure[ENTITY_TYPES.index("OTHER")], unsure[ENTITY_TYPES.index("ORG")] = 0.9, 0.05

    assert type_agreement(type_gaps(sure), ["ORG"]) == type_agreement(type_gaps(sure), ["GPE", "ORG"]) == 0.0
    assert type_agreement(type_gaps(sure), ["GPE"]) == pytest.approx(-0.979, abs=1e-3)
    assert type_agreement(type_gaps(unsure), ["GPE"]) == pytest.approx(-0.049, abs=1e-3)
    assert (
        type_agreement(type_gaps(sure), ["OTHER"])
        == type_agreement(type_gaps(sure), [])
        == type_agreement(type_gaps(None), ["GPE"])
        == 0.0
    )


def test_probabilities_of_candidates_and_nil_sum_to_one() -> None:
    """A higher logit never has the lower probability, and huge logits do not overflow."""
    calibration = Calibration(2.0, 1.0)
    found = calibration.probabilities([3.0, 1.0, 3.0], 2.0)

    assert found[0] == found[2] > found[1]
    assert sum(found) == pytest.approx(1 - 1 / (1 + sum(np.exp(2 * np.array([3.0, 1.0, 3.0]) - 5.0))))
    assert Calibration().probabilities([1e4, -1e4], 0.0) == pytest.approx([1.0, 0.0])
    assert Calibration().probabilities([], 1.0) == []
    with pytest.raises(ValueError, match="slope must be positive"):
        Calibration(slope=0.0)


def test_the_coefficients_that_ship_have_the_signs_of_their_meaning() -> None:
    """Similarity never lowers a score; a wrong number or word never raises it."""
    assert all(SIGNS[name] < 0 for name in ("number_differs", "replaced_words", "judge_doubts"))
    by_name = shipped_model().by_name()
    assert all(value * SIGNS[name] >= 0 for part in ("features", "decision") for name, value in by_name[part].items())
    model = by_name["features"]
    assert model["dense"] > 0
    assert model["lexical"] + model["mention_coverage"] + model["edit_margin"] > 0
    assert model["judge"] > 0
    with pytest.raises(ValueError, match="unknown feature 'dens'"):
        RankingModel.from_names({"dens": 1.0}, {}, {})


NOTHING = RankingModel.from_names({}, {}, {})


def name(
    number: int, *, dense: float | None = 0.5, lexical: float = 0.0, called: str = "", type_: str = ""
) -> MatchedName:
    """A name of an entity of its own."""
    called, types = called or f"n{number}", (type_,) if type_ else ()
    return MatchedName(NamePoint("kb", f"E{number:02}", called, called, True, types=types), dense, lexical)


def scored(mention: str, names: list[MatchedName], *, baseline: float = 0.0, log_size: float = 0.0) -> ScoredMention:
    """With no coefficients, so that the features alone are looked at."""
    return score_names(mention, names, LinkQuery(len(names) or 1), Scorer(NOTHING, baseline, log_size))


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
    assert below["dense"] == -0.25, "what is less alike than unrelated names is as unlike as they are, a little more"
    without = features(scored("x", [name(0, dense=None, lexical=0.7)], baseline=0.8).found[0])
    assert (without["dense"], without["lexical"]) == (0.7, 0.7)


def test_the_background_is_the_mean_of_candidates_6_to_10() -> None:
    """It measures how crowded the base is around a mention, and is 0 without such candidates."""
    names = [name(i, dense=1 - i / 100, lexical=i / 100) for i in range(12)]
    crowded, lonely = nil_features(scored("x", names)), nil_features(scored("x", names[:5]))

    assert crowded["background_dense"] == pytest.approx(np.mean([1 - i / 100 for i in range(5, 10)]))
    assert lonely["background_dense"] == 0.0


@pytest.mark.parametrize("mention, length", [("abc", 0.1), ("ab c-d e", 5 / 30), ("a" * 30, 1.0), ("a" * 90, 1.0)])
def test_the_length_of_a_mention_counts_up_to_thirty_letters(mention: str, length: float) -> None:
    """The feature is letters and digits divided by 30, at most 1."""
    assert nil_features(scored(mention, [])) == {
        "bias": 1.0,
        "background_dense": 0.0,
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


def of_pair(mention: str, called: str, *others: str, type_: str = "") -> dict[str, float]:
    """The features of a name that are not 0, with names of other entities beside it; their cosines are 0.2."""
    key = spelling_key(fold_name(mention))
    names = [
        replace(one, edit_similarity=edit_similarity(key, spelling_key(fold_name(one.point.name))))
        for one in (name(i, dense=0.2, called=each, type_=type_) for i, each in enumerate((called, *others)))
    ]
    one = score_names(mention, names, LinkQuery(len(names)), Scorer(NOTHING, 0.0, 0.0))
    found = next(entity for entity in one.found if entity.point.entity_id == "E00")
    return {feature: value for feature, value in features(found).items() if value}


def test_few_edits_count_where_no_word_is_another_one() -> None:
    """Not of numbers and single letters, but of digits that look like letters."""

    def outcome(mention: str, called: str) -> str:
        found = of_pair(mention, called)
        assert found["edit_similarity"] > 0.5
        return "set" if "edit_margin" in found else "not set"

    assert other_outcomes(__file__, "edit_margin", outcome) == []


def test_only_the_nearest_name_has_a_margin() -> None:
    """Its lead over those of other entities."""
    assert of_pair("Mexiko", "Mexico", "Mexiz")["edit_margin"] > 0.0
    assert "edit_margin" not in of_pair("Mexiko", "Mexiz", "Mexico")


@pytest.mark.parametrize(
    "mention, called, expected",
    [
        *(("measles", "Measles", {}), ("meazles", "measles", {}), ("tumours of the lung", "tumor of lung", {})),
        *(("chicken pox", "chickenpox", {}), ("chicken poks", "chickenpox", {}), ("lung cancer", "cancer", {})),
        *(
            ("left lung", "right lung", {"replaced_words": 0.5}),
            ("hepatitis Z", "hepatitis B", {"replaced_words": 0.5}),
        ),
        ("cancer", "lung cancer", {"missing_rare": word_rarity("lung")}),
    ],
)
def test_words_without_a_counterpart(mention: str, called: str, expected: dict[str, float]) -> None:
    """Replaced and missing words are told apart; slips and spellings are none."""
    found = of_pair(mention, called)
    assert {key: found[key] for key in ("replaced_words", "missing_rare") if key in found} == expected


def test_another_order_of_words_is_near_when_sorted() -> None:
    """Sorting brings the words together; a single word gains if the other side has a legal form more."""
    assert of_pair("mellitus diabetis, type 2", "type 2 diabetes mellitus")["sorted_similarity"] > 0.3
    assert of_pair("ibm corp", "IBM")["sorted_similarity"] > 0.5
    for mention, called in (("measles", "measles"), ("ibm chip", "IBM"), ("heart attack", "myocardial infarction")):
        assert "sorted_similarity" not in of_pair(mention, called)


@pytest.mark.parametrize("feature", ["acronym", "number_differs", "cut_words"])
def test_strings_say_more_than_ngrams(feature: str) -> None:
    """Numbers, acronyms and words cut short are recognised; one letter stands for too much."""

    def outcome(mention: str, called: str) -> str:
        return {1.0: "set", 0.0: "not set"}[of_pair(mention, called).get(feature, 0.0)]

    assert other_outcomes(__file__, feature, outcome) == []


@pytest.mark.parametrize("type_, is_set", [("ORG", True), ("GPE", False)])
def test_a_part_of_an_address_is_an_organisation(type_: str, is_set: bool) -> None:
    """A part between commas is a name that stands for the whole, but not of a place, which says where it is."""
    found = of_pair("School of Law, Lugones University", "Lugones University", type_=type_)

    assert ("equal_part" in found) == is_set


@pytest.mark.parametrize(
    "mention, called, kinds, read",
    [
        ("the river Wharfe", "Wharfe", ("river",), "Wharfe (river)"),
        ("Wharfe (River)", "Wharfe", ("place", "wikicat_Rivers_of_England|river"), "Wharfe (river)"),
        ("Leeds football club", "Leeds", ("football_club",), "Leeds (football club)"),
        ("the Wharfe", "Wharfe", ("river",), "Wharfe"),
        ("Wharfe bridge", "Wharfe", ("river",), "Wharfe"),
        ("river Wharfe", "Wharfe river", ("river",), "Wharfe river"),
        ("river Wharfe", "Wharfe", ("", "|", ":"), "Wharfe"),
    ],
)
def test_the_judge_reads_a_type_that_the_mention_states(
    mention: str, called: str, kinds: tuple[str, ...], read: str
) -> None:
    """What the base says of an entity and the mention too, the name need not have."""
    point = msgspec.structs.replace(name(0, called=called).point, kb_types=kinds)
    assert judged_name(string_features(mention), point) == read


def test_another_known_name_is_no_slip_of_a_persons_name() -> None:
    """Paula is not Paul, though a letter lies between; Jon is John, and what no text has is a slip. So it is of persons
    alone, and of names in one script.
    """

    def outcome(mention: str, person: str) -> str:
        found = features(scored(mention, [name(0, called=person, type_="PERSON")]).found[0])
        of_thing = features(scored(mention, [name(0, called=person, type_="PRODUCT")]).found[0])
        assert of_thing["known_word"] == 0.0
        if not found["known_word"]:
            return "not set"
        assert found["edit_margin"] == found["cut_words"] == 0.0 < found["replaced_words"]
        return {1.0: "set"}[found["known_word"]]

    assert other_outcomes(__file__, "known_word", outcome) == []
