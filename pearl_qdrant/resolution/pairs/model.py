"""The probability that two names mean the same: the judge of two names and a few features of the pair; and doubts.

Small trees add up what the judge says (`encoder.judge`) and `pairs.features.FEATURES`. It reads the pairs alone that a
quick look leaves open. `runs/resolution/model.py` fits all of it. However near two names are, a person is asked if
there is a doubt: the miller's cousin, Mrs. Berg, stairs and stars.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt
from rapidfuzz.distance import OSA

from pearl_qdrant.errors import OptionError
from pearl_qdrant.lexical.keys import skeleton
from pearl_qdrant.lexical.words import IGNORED, word_rarity
from pearl_qdrant.linking.ranking.forest import Forest
from pearl_qdrant.linking.ranking.name_parts import is_within
from pearl_qdrant.linking.ranking.string_features import ONE_EDIT_LETTERS, StringFeatures
from pearl_qdrant.resolution.names import is_acronym_like
from pearl_qdrant.resolution.pairs.features import COLUMN, FEATURES, Form
from pearl_qdrant.resolution.pairs.name_differences import OTHER_PLACE, TITLES, generation_of, name_differences
from pearl_qdrant.resolution.pairs.same_words import WOMEN

MODEL_FILE = "pairs.npz"
N_SPLIT = COLUMN["known_name"]
JUDGED_FEATURES = ("judge", *FEATURES[:N_SPLIT])
"""What the trees split on: the score of the judge of two names, and features of the pair."""

_ROUNDS = 100
_UNSEEN = 500  # Candidates with the prior that are added to those of a list, so that a short list changes little

_MOST_SHIFT = 2.0

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PairModel:
    """Trees, which pairs they are asked about, and the thresholds that were chosen with them.

    Attributes:
        forest: The logit that two names are of one thing, from `JUDGED_FEATURES`.
        gate, gate_bias: A quick logit without the judge, coefficients of `FEATURES`.
        known_name: What the feature of this name adds to the logit: too few pairs have it for trees.
        least: The quick logit from which the judge reads a pair; others are hardly ever right.
        thresholds: Least mean probability between two clusters, by the precision of merges; both in [0, 1], ascending.
        prior: Share of the candidates that were right where the model was fitted.
    """

    forest: Forest
    gate: FloatArray
    gate_bias: float
    known_name: float
    least: float
    thresholds: tuple[tuple[float, float], ...]
    prior: float

    @classmethod
    def from_arrays(cls, arrays: Any) -> PairModel:
        """A model from the arrays of `to_arrays`. Raises ValueError if this version does not know a feature."""
        forest = Forest.from_arrays(arrays)
        if forest.features != JUDGED_FEATURES or len(arrays["gate"]) != len(FEATURES):
            raise ValueError(f"the model has features that this version does not know: {', '.join(forest.features)}")
        thresholds = tuple((float(precision), float(least)) for precision, least in arrays["thresholds"])
        numbers = (float(arrays[name]) for name in ("gate_bias", "known_name", "least", "prior"))
        gate_bias, known_name, least, prior = numbers
        return cls(forest, arrays["gate"].astype(np.float64), gate_bias, known_name, least, thresholds, prior)

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The model as it is stored."""
        return {
            **self.forest.to_arrays(),
            "gate": self.gate,
            "thresholds": np.array(self.thresholds),
            **{name: np.array(getattr(self, name)) for name in ("gate_bias", "known_name", "least", "prior")},
        }

    def threshold(self, precision: float) -> float:
        """The least probability at which that share of the merges is right; between the measured ones, on a line.
        Raises OptionError if no threshold gives it.
        """
        precisions, thresholds = zip(*self.thresholds, strict=True)
        if not precisions[0] <= precision <= precisions[-1]:
            raise OptionError(
                "precision",
                f"A precision of {precision:g} is out of reach: names alone give {precisions[0]:g} to "
                f"{precisions[-1]:g}. Ask for one of these; the review has what is less certain.",
            )
        return float(np.interp(precision, precisions, thresholds))

    def precision_at(self, probability: float) -> float:
        """The share of right merges among all that are as probable as this one: what `threshold` was asked for."""
        precisions, thresholds = zip(*self.thresholds, strict=True)
        return float(np.interp(probability, (0.0, *thresholds, 1.0), (0.0, *precisions, 1.0)))

    def quick_logits(self, features: npt.NDArray[np.float32]) -> FloatArray:
        """Logits of p pairs without the judge, (p,), from (p, features)."""
        found: FloatArray = features @ self.gate + self.gate_bias
        return found

    def logits(self, features: npt.NDArray[np.float32], judged: FloatArray) -> FloatArray:
        """Logits of p pairs, (p,), from (p, features) and the judge's scores, (p,), in a list like those of the fit."""
        found = self.forest.logits(np.column_stack((judged, features[:, :N_SPLIT])))
        return found + self.known_name * features[:, N_SPLIT]

    def shift(self, logits: npt.NDArray[np.floating], n_candidates: int) -> float:
        """What to add to the logits, (p,), of the candidates that may be right in this list: less where most things
        have one name, more where they have several. The share of right ones is estimated from the probabilities
        themselves, again and again; the others of `n_candidates` count as wrong.

        Source: Saerens et al. 2002, "Adjusting the outputs of a classifier to new a priori probabilities".
        """
        start = np.log(self.prior / (1 - self.prior))
        shift = 0.0
        for _ in range(_ROUNDS):
            right = float(probability_of(logits + shift).sum())
            share = (right + _UNSEEN * self.prior) / (n_candidates + _UNSEEN)
            shift = float(np.clip(np.log(share / (1 - share)) - start, -_MOST_SHIFT, _MOST_SHIFT))
        return shift


def probability_of(logits: npt.NDArray[np.floating]) -> FloatArray:
    """Probabilities of logits."""
    found: FloatArray = 1 / (1 + np.exp(-np.clip(logits.astype(np.float64), -30, 30)))
    return found


@lru_cache(maxsize=1)
def shipped_model() -> PairModel:
    """The model that ships with the package."""
    with files(__package__).joinpath(MODEL_FILE).open("rb") as file, np.load(file) as arrays:
        return PairModel.from_arrays(arrays)


EQUAL = "equal spelling"
FOUNDED = "founded"
DECIDED = "decided"
INITIALS = "initials"
PART_OF = "part of the name"

_SAID = {"other_order": "other order of words", "slips": "one or two letters differ"}
"""What features of strings are called, the clearest first."""

_SAID_FROM = 0.1

DOUBTS = (
    "",
    "another type",
    "a company and a person",
    "acronym that no source has with its long form",
    "title of another person",
    "the same words but for a letter",
    "what belongs to it",
    "one has an abbreviation",
    "one has a number",
    "one has words in brackets",
    "short words that are spelt alike",
    "words that are spelt alike",
    "equal names of different types",
    "equal names of different contexts",
    "contexts about other things",
    "part of several names",
    "acronym of several names",
    "each has another acronym",
    "another generation",
    "each has another legal form",
    "no word in common",
    "another republic",
    "another place",
)
"""All reasons to ask, by their number; the first is none."""

ALWAYS_ASKED = frozenset(
    (
        *("what belongs to it", "one has a number", "one has words in brackets"),
        *("another generation", "another republic", "another place"),
    )
)
"""Reasons that are asked of two names that differ in a word, however improbable the pair is."""

_DIGIT = re.compile(r"\d")

_OWNER = re.compile(r"(?:['\u2019]s|s['\u2019])\s+\S", re.IGNORECASE)

_LEAST_LETTERS = 8  # Letters from which a single word may be another spelling of a word: fewer make other names


def doubt(a: Form, b: Form, *, is_same: bool, is_person: bool = True, are_unknown_places: bool = False) -> str:
    """Why a person should decide whether two names mean the same, or "".

    `is_same`: their words are the same (`same_words`). `are_unknown_places`: both are places, and one is not a known
    one: transliterations of one name are spelt alike, and so are `Austria` and `Australia`.
    """
    one, two = a.strings, b.strings
    if not is_same and (_may_be_acronym(one, two) or _may_be_acronym(two, one)):
        return "acronym that no source has with its long form"
    if is_person and _is_titled_woman(one, two):
        return "title of another person"
    ours = [word for word in one.content if word not in two.content_set]
    theirs = [word for word in two.content if word not in one.content_set]
    if generation_of(one) != generation_of(two):
        return "another generation"
    if is_same:
        return ""
    if not ours and not theirs:
        return "the same words but for a letter"
    if addition := _addition(one, two):
        return addition
    if not ours or not theirs:
        if "republic" in one.content_set & two.content_set:
            return "another republic"
        if not OTHER_PLACE.isdisjoint(ours or theirs):
            return "another place"
        if _are_letters(ours or theirs, one, two):
            return "one has an abbreviation"
        if bool(_DIGIT.search(one.core)) != bool(_DIGIT.search(two.core)):
            return "one has a number"
        return ""
    return _spelling(one, two, ours, theirs, are_unknown_places)


def _addition(one: StringFeatures, two: StringFeatures) -> str:
    """Why what one has beside the name may make another thing of it, or ""."""
    if name_differences(one, two, is_person=False).bracket_added:
        return "one has words in brackets"
    return "what belongs to it" if _OWNER.search(one.text) or _OWNER.search(two.text) else ""


def _may_be_acronym(short: StringFeatures, long: StringFeatures) -> bool:
    """Whether one is the initials of the other, or any acronym beside several words that have nothing of it."""
    is_other = is_acronym_like(short.text) and len(long.content) > 1 and short.content_set.isdisjoint(long.content_set)
    return short.joined in long.initials or is_other


def _are_letters(words: Sequence[str], one: StringFeatures, two: StringFeatures) -> bool:
    """Whether the words that only one has are abbreviations, which are no initials of the other's: `B2B`, `B2B PR`."""
    if min(len(one.text.split()), len(two.text.split())) > 1:
        return False
    return all(len(word) == 2 and word.isalpha() and word not in one.initials | two.initials for word in words)


def has_title(strings: StringFeatures, titles: frozenset[str]) -> bool:
    """Whether a name has one of the titles; no title is in capitals beside small letters: `MS Word`, `DR Congo`."""
    is_other = strings.text.startswith(("MS ", "DR ")) and not strings.text.isupper()
    return not titles.isdisjoint(strings.words) and not is_other


def _is_titled_woman(one: StringFeatures, two: StringFeatures) -> bool:
    """Whether one has the title of a woman before a family name, and the other is that name without such a title."""
    for titled, other in ((one, two), (two, one)):
        if has_title(titled, WOMEN) and not has_title(other, WOMEN):
            return len([word for word in titled.words if word not in TITLES | WOMEN | IGNORED]) < 2
    return False


def _spelling(
    one: StringFeatures, two: StringFeatures, ours: Sequence[str], theirs: Sequence[str], are_unknown_places: bool
) -> str:
    """Why a word that is spelt like another one may be another word, or ""."""
    if one.folded.isascii() != two.folded.isascii():  # in another script nothing is spelt alike
        return ""
    is_disjoint = one.content_set.isdisjoint(two.content_set)
    pairs = list(zip(ours, theirs, strict=True)) if len(ours) == len(theirs) else [("".join(ours), "".join(theirs))]
    is_spelling = are_unknown_places or all(_is_one_word(*pair, is_in_name=len(pairs) > 1) for pair in pairs)
    if is_disjoint and not is_spelling:
        return "no word in common"
    if len(ours) > 1 or len(theirs) > 1:
        return ""
    ((word, other),) = pairs
    short, long = sorted((word, other), key=len)
    least = ONE_EDIT_LETTERS if are_unknown_places else _LEAST_LETTERS
    is_compound = long.startswith(short) and len(long) - len(short) > 2  # church, churchyard
    if is_disjoint and (len(short) < least or is_compound):
        return "short words that are spelt alike"
    n_known = (word_rarity(word) < 1.0) + (word_rarity(other) < 1.0)
    if n_known == 0 and _are_taxa(one, two):
        return "words that are spelt alike"
    is_near = OSA.distance(word, other, score_cutoff=2) <= 2
    if (n_known == 2 and is_near) or (
        n_known == 0 and len(one.content) == 2 and not _is_one_word(word, other, is_in_name=True)
    ):
        return "words that are spelt alike"
    return ""


_TAXON = re.compile("[A-Z][a-z]+ [a-z]+")


def _are_taxa(one: StringFeatures, two: StringFeatures) -> bool:
    """Whether both are written as species, of another genus each: `Thunnus orientalis`."""
    is_written = all(_TAXON.fullmatch(name.text) for name in (one, two))
    return is_written and one.content[-1:] == two.content[-1:]


def _is_one_word(word: str, other: str, *, is_in_name: bool) -> bool:
    """Whether two words may be one in two spellings: a letter differs, vowels do, or one is cut short."""
    short, long = sorted((word, other), key=len)
    is_cut = is_in_name and (long.startswith(short) or (len(long) - len(short) > 2 and is_within(short, long)))
    return OSA.distance(word, other, score_cutoff=1) <= 1 or skeleton(word) == skeleton(other) or is_cut


def reason_of(features: Sequence[float], *, is_same: bool) -> str:
    """What speaks for a merge, from features as in `FEATURES`, and whether the words are the same."""
    values = dict(zip(FEATURES, features, strict=True))
    said = "equal words" if is_same else next((text for name, text in _SAID.items() if values[name] > _SAID_FROM), None)
    numbers = f"vectors {values['dense']:.2f}, letters {values['edit']:.2f}"
    return numbers if said is None else f"{said}; {numbers}"
