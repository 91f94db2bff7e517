"""What two names say of each other, as numbers that do not depend on their order, beside what the judge says.

Features of strings are those of the linker's ranking (`linking.ranking`), taken in both directions.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from rapidfuzz.distance import OSA

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.lexical.keys import skeleton
from pearl_qdrant.lexical.ngrams import latin
from pearl_qdrant.lexical.words import LEGAL_FORMS, SMALL_WORDS
from pearl_qdrant.linking.ranking.string_features import (
    StringFeatures,
    edit_similarity,
    other_known_name,
    string_features,
    word_changes,
)
from pearl_qdrant.phrase_types import ENTITY_TYPES
from pearl_qdrant.resolution.pairs.name_differences import NO_DIFFERENCE, name_differences

_ENCODED = 16_384

HalfArray = npt.NDArray[np.float16]


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


FEATURES = tuple("dense edit skeleton only_more replaced replaced_rare length more_rare against".split())
"""Cosine above that of unrelated names; edit similarity, of letters and of consonants; whether only one has more words;
the share of words where each has another, and how rare these are; letters of the shorter name; how rare the words are
that only one has; `POSSIBLE` and the like.
"""
COLUMN: dict[str, int] = {name: i for i, name in enumerate(FEATURES)}

_LONGEST = 30  # Letters and digits beyond which a name counts as no longer


@dataclass(frozen=True, slots=True)
class Form:
    """A name prepared for comparisons: its features, its consonants by sound, and its letters in the Latin script
    without spaces, or "" where the name is in that script.
    """

    strings: StringFeatures
    skeleton: str
    letters: str


def form_of(name: str, folded: str) -> Form:
    """Prepare a name; `folded` is its folded form."""
    written = latin(folded)
    return Form(string_features(name, folded), skeleton(written), "" if written == folded else written.replace(" ", ""))


def string_pair(a: Form, b: Form, *, is_person: bool = False) -> tuple[float, ...]:
    """Features in the order of `FEATURES`, without the first; the same for (b, a)."""
    one, two = a.strings, b.strings
    is_other_script = bool(a.letters) != bool(b.letters)
    ours, theirs = (a.letters or one.joined, b.letters or two.joined) if is_other_script else (one.joined, two.joined)
    there, back = word_changes(one, two), word_changes(two, one)
    return (
        edit_similarity(ours, theirs),
        OSA.normalized_similarity(a.skeleton, b.skeleton) if a.skeleton and b.skeleton else 0.0,
        float(bool(there.only_added or back.only_added)),
        max(there.replaced, back.replaced),
        max(there.replaced_rare, back.replaced_rare) * there.any_replaced,
        min(len(one.joined), len(two.joined), _LONGEST) / _LONGEST,
        max(there.missing_rare, back.missing_rare),
        float(contradiction(one, two, is_person=is_person)),
    )


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
    is_other = found.first_name_differs or _has_other_code(one, two) or (is_person and other_known_name(one, two))
    return UNLESS_SAME if is_other else POSSIBLE
