"""What two names say of each other, as numbers that do not depend on their order.

Features of strings are those of the linker's ranking (`linking.ranking`), taken in both directions. Beyond them:

    skeleton         edit similarity of the consonants by sound: Tshikapa, qi ka pa
    crowd            cosine to the names further away, which is high where many names are alike
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
    other_known_name,
    slips,
    sorted_similarity,
    string_features,
    word_changes,
)
from pearl_qdrant.phrase_types import ENTITY_TYPES
from pearl_qdrant.resolution.pairs.name_differences import NO_DIFFERENCE, name_differences

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


FROM_SCORES = tuple("dense crowd fillers other replaced_dense".split())
"""Features of vectors and predicted types; each says of p pairs, (p,):

dense, crowd     cosine above that of unrelated names, 1 for equal vectors; for the names further away
fillers          how many other names have something else where the two differ (`same_words.Slots`)
other            that both are of no special type
replaced_dense   cosine of the words that only one and that only the other has, as `dense`
"""

FROM_STRINGS = tuple(
    "edit skeleton replaced replaced_common replaced_rare more_rare length other_order slips known_name only_more "
    "against".split()
)
"""Features of two strings: edit similarity, as letters and as consonants; the share of words where each has another,
how frequent and how rare these are; how rare those that only one has; letters of the shorter name; equal words in
another order; one or two letters that differ; whether two persons have known names each that are near each other
(`string_features.other_known_name`); whether only one has more words. `against`: `POSSIBLE` and the like.
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
    """Features in the order of `FROM_STRINGS`; the same for (b, a)."""
    one, two = a.strings, b.strings
    is_other_script = bool(a.letters) != bool(b.letters)
    ours, theirs = (a.letters or one.joined, b.letters or two.joined) if is_other_script else (one.joined, two.joined)
    similarity = edit_similarity(ours, theirs)
    there, back = word_changes(one, two), word_changes(two, one)
    replaced = there.any_replaced
    return (
        similarity,
        OSA.normalized_similarity(a.skeleton, b.skeleton) if a.skeleton and b.skeleton else 0.0,
        max(there.replaced, back.replaced),
        (1 - min(there.replaced_rare, back.replaced_rare)) * replaced,
        max(there.replaced_rare, back.replaced_rare) * replaced,
        max(there.missing_rare, back.missing_rare),
        min(len(one.joined), len(two.joined), _LONGEST) / _LONGEST,
        sorted_similarity(one, two, similarity),
        float(slips(one, two, similarity) > 0),
        float(is_person and other_known_name(one, two)),
        float(bool(there.only_added or back.only_added)),
        float(contradiction(one, two, is_person=is_person)),
    )


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


POSSIBLE, UNLESS_SAME, CONTRADICTED = range(3)
"""What contradicts a pair: nothing; what does not count for the same words (titles look like first names); or more."""


def contradiction(one: StringFeatures, two: StringFeatures, *, is_person: bool) -> int:
    """`CONTRADICTED` if two names have what no two names of one thing have, else `UNLESS_SAME` or `POSSIBLE`."""
    found = name_differences(one, two, is_person=is_person)
    if found._replace(first_name_differs=False, bracket_added=False) != NO_DIFFERENCE:
        return CONTRADICTED
    return UNLESS_SAME if found.first_name_differs or _has_other_code(one, two) else POSSIBLE
