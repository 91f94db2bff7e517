"""Folding, n-grams, IDF and lexical scores."""

from __future__ import annotations

import random

import numpy as np
import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_table import other_outcomes
from scored_names import ngram_rows

from pearl_qdrant.lexical.ngrams import (
    BUCKETS,
    IdfTable,
    fold_name,
    folded_rows,
    score_pairs,
)
from pearl_qdrant.linking.mentions import clean_mention
from pearl_qdrant.linking.ranking import Calibration, RankingModel
from pearl_qdrant.linking.ranking.model import SIGNS, shipped_model
from pearl_qdrant.linking.ranking.type_features import type_agreement, type_gaps
from pearl_qdrant.phrase_types import ENTITY_TYPES

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
