"""What two names say of each other, as numbers that do not depend on their order.

Features of strings are those of the linker's ranking (`linking.ranking`), taken in both directions. Beyond them:

    skeleton         edit similarity of the consonants by sound: Tshikapa, qi ka pa
    inner            a name without words inside the other: John Todd, John Blair Smith Todd
    initials         equal words, but for initials of the other's: J. B. Todd, John Blair Todd
    crowd            cosine to the names further away, which is high where many names are alike
    rank             how near each is among the other's neighbours
    fillers          how many names have another word where the two differ: Berg's face, Berg's voice, Berg's hand
    replaced_dense   cosine of the words in which they differ: carcinoma is near cancer, submandibular not sublingual
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from rapidfuzz.distance import OSA

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.lexical.keys import skeleton
from pearl_qdrant.lexical.ngrams import latin
from pearl_qdrant.lexical.words import LEGAL_FORMS, SMALL_WORDS, variant_word
from pearl_qdrant.linking.ranking.string_features import (
    StringFeatures,
    edit_similarity,
    equal_core,
    equal_first_word,
    equal_numbers,
    is_acronym,
    slips,
    sorted_similarity,
    string_features,
    word_changes,
)
from pearl_qdrant.phrase_types import ENTITY_TYPES
from pearl_qdrant.resolution.pairs.name_differences import NameDifferences, name_differences

MOST_WORDS = 300_000  # Words that are encoded, the most frequent; they take two minutes on two cores

_ENCODED = 16_384

HalfArray = npt.NDArray[np.float16]


class WordVectors:
    """Compares groups of words of folded names; `baseline` is the cosine of unrelated names."""

    def __init__(self, folded: Iterable[str], encoder: Encoder, baseline: float) -> None:
        counts = Counter(word for name in folded for word in name.split() if not word.isdigit())
        normal: dict[str, int] = {}
        words: list[str] = []
        for word, _ in counts.most_common(MOST_WORDS):
            key = variant_word(word)
            if key not in normal:
                normal[key] = len(words)
                words.append(word)
        self._number = normal
        self._baseline = baseline
        self._vectors, _ = encode_mapped(words, encoder)

    def cosines(self, pairs: Sequence[tuple[Sequence[str], Sequence[str]]]) -> npt.NDArray[np.float32]:
        """Cosine of the sums of the words' vectors above that of unrelated names, (p,); 0 where a side has none."""
        found = np.zeros(len(pairs), np.float32)
        rows = [i for i, (ours, theirs) in enumerate(pairs) if ours and theirs]
        sides = [self._sums([pairs[i][side] for i in rows]) for side in (0, 1)]
        if rows:
            cosines = np.einsum("ij,ij->i", *sides)
            norms = np.linalg.norm(sides[0], axis=1) * np.linalg.norm(sides[1], axis=1)
            raw = np.divide(cosines, norms, out=np.zeros_like(cosines), where=norms > 0)
            found[rows] = (raw - self._baseline) / (1 - self._baseline)
        return found

    def _sums(self, groups: Sequence[Sequence[str]]) -> npt.NDArray[np.float32]:
        """Sum of the vectors of each group of words, (g, dim)."""
        sums = np.zeros((len(groups), self._vectors.shape[1]), np.float32)
        known = [
            (row, self._number[word]) for row, words in enumerate(groups) for word in words if word in self._number
        ]
        if known:
            rows, numbers = np.array(known).T
            np.add.at(sums, rows, np.asarray(self._vectors[numbers], np.float32))
        return sums


def encode_mapped(names: Sequence[str], encoder: Encoder) -> tuple[HalfArray, HalfArray | None]:
    """Vectors, (n, dim), in a mapped file without a name, so that they take no memory of the process; and probabilities
    of entity types, (n, 19), or None.
    """
    with tempfile.TemporaryFile() as file:
        vectors = np.memmap(file, np.float16, "w+", shape=(max(len(names), 1), encoder.info.dim))[: len(names)]
    types = np.zeros((len(names), len(ENTITY_TYPES)), np.float16) if encoder.info.has_head else None
    for start in range(0, len(names), _ENCODED):
        part = slice(start, start + _ENCODED)
        encoded = encoder.encode([name.encode("utf-8", "replace").decode() for name in names[part]])
        vectors[part] = encoded.vectors
        if types is not None and encoded.type_probabilities is not None:
            types[part] = encoded.type_probabilities.reshape(len(encoded.vectors), -1, len(ENTITY_TYPES)).sum(axis=1)
    return vectors, types


CAPITALS, LEAST_NAMES, SHORT_WORD = 0.95, 20, 3
"""Share and number of the names in capitals from which capitals say nothing; letters of words that keep them."""


def as_words(names: Sequence[str]) -> Sequence[str]:
    """Names as they are encoded: those of a list in capitals as any other list writes them, `BANK OF ALDER` as `Bank of
    Alder`. Short words may be acronyms, and stay.
    """
    n_capitals = sum(name.isupper() for name in names)
    n_letters = sum(name.lower() != name.upper() for name in names)
    if n_capitals < max(LEAST_NAMES, CAPITALS * n_letters):
        return names
    return [" ".join(map(_as_word, name.split())) for name in names]


def _as_word(word: str) -> str:
    lowered = word.lower()
    return lowered if lowered in SMALL_WORDS else word if len(word) <= SHORT_WORD else word.capitalize()


FloatArray = npt.NDArray[np.float64]

DIFFERENCES = NameDifferences._fields

FROM_STRINGS = (
    *"same_words same_core edit other_order slips skeleton skeleton_short replaced any_replaced".split(),
    *"replaced_common replaced_rare only_more more_rare more_words inner initials number_more equal_numbers".split(),
    *"code other_code acronym first_word last_word one_word length length_gap other_script".split(),
    *DIFFERENCES,
)
"""Features of two strings alone; the last ones are those of the link decision (`resolution.pairs.name_differences`)."""

FROM_SCORES = tuple(
    "dense lexical less_covered more_covered crowd rank rank_of_one types person other replaced_dense fillers".split()
)
"""Features of vectors, n-grams and predicted types; each says of p pairs, (p,):

dense, crowd                 cosine above that of unrelated names, 1 for equal vectors; for the names further away
lexical                      cosine of the weighted n-grams, in [0, 1]
less_covered, more_covered   share of the weights of each name that the other has; the smaller, the larger one
rank, rank_of_one            1 / (1 + neighbours of each that are nearer than the other); the smaller, the larger one
types, person, other         agreement of the predicted types; that both are persons, or of no special type
replaced_dense               cosine of the words that only one and that only the other has, as `dense`
fillers                      how many other names have something else where the two differ (`same_words.Slots`)
"""

FEATURES = (*FROM_SCORES, *FROM_STRINGS)
COLUMN: dict[str, int] = {name: i for i, name in enumerate(FEATURES)}

_LONGEST = 30  # Letters and digits beyond which a name counts as no longer


@dataclass(frozen=True, slots=True)
class Form:
    """A name prepared for comparisons: its features, its consonants in Latin letters, and its letters in the Latin
    script without spaces, or "" where the name is in that script.
    """

    strings: StringFeatures
    skeleton: str
    letters: str


def form_of(name: str, folded: str) -> Form:
    """Prepare a name; `folded` is its folded form."""
    written = latin(folded)
    return Form(string_features(name, folded), skeleton(written), "" if written == folded else written.replace(" ", ""))


def string_pair(a: Form, b: Form, *, is_person: bool = False) -> tuple[float, ...]:
    """Features in the order of `FROM_STRINGS`, last what the names do not share; the same for (b, a)."""
    one, two = a.strings, b.strings
    is_other_script = bool(a.letters) != bool(b.letters)
    ours, theirs = (a.letters or one.joined, b.letters or two.joined) if is_other_script else (one.joined, two.joined)
    similarity = edit_similarity(ours, theirs)
    there, back = word_changes(one, two), word_changes(two, one)
    sounds = OSA.normalized_similarity(a.skeleton, b.skeleton) if a.skeleton and b.skeleton else 0.0
    short = min(len(a.skeleton), len(b.skeleton))
    n_one, n_two = len(one.content), len(two.content)
    more = there.only_added or back.only_added
    words_one, words_two = one.folded.split(), two.folded.split()
    lacking = (name_differences(*pair, is_person=is_person) for pair in ((one, two), (two, one)))
    n_slips = slips(one, two, similarity)
    replaced = there.any_replaced
    return (
        float(one.words_key == two.words_key and bool(one.words_key)),
        equal_core(one, two),
        similarity,
        sorted_similarity(one, two, similarity),
        float(n_slips > 0),
        sounds,
        sounds / (1 + short),
        max(there.replaced, back.replaced),
        replaced,
        (1 - min(there.replaced_rare, back.replaced_rare)) * replaced,
        max(there.replaced_rare, back.replaced_rare) * replaced,
        float(bool(more)),
        max(there.missing_rare, back.missing_rare),
        min(abs(n_one - n_two), 4) / 4 if more else 0.0,
        float(_is_inner(words_one, words_two) or _is_inner(words_two, words_one)),
        float(_has_initials(words_one, words_two) or _has_initials(words_two, words_one)),
        float(one.numbers != two.numbers),
        equal_numbers(one, two),
        float(there.is_code or back.is_code),
        float(_has_other_code(one, two)),
        max(is_acronym(one, two), is_acronym(two, one)),
        equal_first_word(one, two),
        float(bool(words_one) and bool(words_two) and words_one[-1] == words_two[-1]),
        float(n_one == 1 and n_two == 1),
        min(len(one.joined), len(two.joined), _LONGEST) / _LONGEST,
        abs(len(one.joined) - len(two.joined)) / max(len(one.joined), len(two.joined), 1),
        float(is_other_script),
        *map(max, *lacking),
    )


def _is_inner(short: Sequence[str], long: Sequence[str]) -> bool:
    """Whether a name of at least two words is the longer one without words inside it."""
    if not 1 < len(short) < len(long) or short[0] != long[0] or short[-1] != long[-1]:
        return False
    left = iter(long)
    return all(word in left for word in short)


def _has_initials(short: Sequence[str], long: Sequence[str]) -> bool:
    """Whether all words are equal but for initials, at least one, in the place of a word."""
    if len(short) != len(long) or len(short) < 2:
        return False
    n_initials = 0
    for word, other in zip(short, long, strict=True):
        if word == other:
            continue
        if len(word) != 1 or not other.startswith(word):
            return False
        n_initials += 1
    return 0 < n_initials < len(short)


def replaced_words(one: StringFeatures, two: StringFeatures) -> tuple[list[str], list[str]]:
    """The words that only one name has, and those that only the other has; both empty unless both have some."""
    ours = [word for word in one.content if word not in two.content_set]
    theirs = [word for word in two.content if word not in one.content_set]
    return (ours, theirs) if ours and theirs else ([], [])


def _has_other_code(one: StringFeatures, two: StringFeatures) -> bool:
    """Whether each has a code that the other lacks, or they are equal but for a letter: `hepatitis B`, `... C`."""
    if is_plural_of_letters(one.text, two.text):
        return False
    ours, theirs = one.codes - two.content_set - LEGAL_FORMS, two.codes - one.content_set - LEGAL_FORMS
    if ours and theirs:
        return True
    if len(one.content) != len(two.content) or len(one.content) < 2:
        return False
    changed = [(x, y) for x, y in zip(one.content, two.content, strict=True) if x != y]
    return len(changed) == 1 and len(changed[0][0]) == len(changed[0][1]) == 1


def is_plural_of_letters(a: str, b: str) -> bool:
    """Whether one name is the plural of the other, an abbreviation: `LLM`, `LLMs`; but not `HTTPS`."""
    short, long = (a, b) if len(a) < len(b) else (b, a)
    return short.isupper() and long == f"{short}s"


CONTRADICTIONS: dict[str, str] = {
    "number_differs": "another number",
    "bracket_number": "another number",
    "code_differs": "another code",
    "other_code": "another code",
    "opposite": "words that exclude each other",
    "generation_differs": "another generation",
    "first_name_differs": "another first name",
    "bracket_differs": "other words in brackets",
}
"""Features that no two names of one thing have, and their words."""

POSSIBLE, UNLESS_SAME, CONTRADICTED = range(3)
"""What contradicts a pair: nothing; what does not count for the same words (titles look like first names); or more."""

_TITLES_AND_CODES = [COLUMN[name] for name in ("first_name_differs", "other_code")]
_HARD = [COLUMN[name] for name in CONTRADICTIONS if COLUMN[name] not in _TITLES_AND_CODES]


def contradictions(features: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """What contradicts p pairs, (p,), from (p, len(FEATURES))."""
    found = np.where(np.any(features[:, _TITLES_AND_CODES] > 0, axis=1), UNLESS_SAME, POSSIBLE)
    found[np.any(features[:, _HARD] > 0, axis=1)] = CONTRADICTED
    return found.astype(np.uint8)
