"""Keys of names: what an exact lookup compares, from strict to loose.

    spelling   the folded name without spaces                "Chicken Pox", "chickenpox", "chicken-pox" -> chickenpox
    variant    words in their normal spelling, no spaces     "tumours of the spine", "Tumor of Spine"   -> tumorofspine
    words      the same words, sorted, without small ones    "diabetes mellitus, type 2", "Type 2 Diabetes Mellitus"

`skeleton` is looser still, and no key: what transliterations of a word have in common.

A key is stored as one more feature of the sparse vector of n-grams, so that a search for it reads one short posting
list and finds every name that has it, in both stores. Stricter keys weigh more, so that their names come first.

Misspelt mentions are searched by the parts of names (`lexical.parts`) and by keys of strings one edit away
(`slip_features`): parts miss a swap in the middle of a word, which changes both halves, and those of short names are
too frequent. So all mentions are searched by the keys of their swaps, and short ones by those of all edits.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from hashlib import blake2b
from string import ascii_lowercase

import numpy as np

from pearl_qdrant.lexical.ngrams import FloatArray, SparseRows, UInt32Array, fold_name, folded_rows, with_latin
from pearl_qdrant.lexical.parts import MAX_LETTERS, WEIGHT, mention_parts, part_rows
from pearl_qdrant.lexical.words import variant_words

_TWO_NUMBERS = re.compile("[0-9] [0-9]")

WEIGHTS = (4.0, 2.0, 1.0)
"""Stored values of the keys: spelling, variant, words."""

SMALL_WORDS = frozenset(
    "of in for to on at by with from de la le el du des der die das von van und et y "
    "inc incorporated corp corporation co company ltd limited llc plc gmbh ag sa nv "
    "mr mrs ms dr prof sir lady dame jr sr".split()
)
"""Words that the sorted words omit: prepositions, legal forms, titles."""


def joined(words: Sequence[str]) -> str:
    """Words without spaces, but for one between two numbers: "1 23" is not "12 3"."""
    parts: list[str] = []
    for word in words:
        if parts and word[0].isdigit() and parts[-1][-1].isdigit():
            parts.append(" ")
        parts.append(word)
    return "".join(parts)


def spelling_key(folded: str) -> str:
    """The key of spelling alone of a folded name; `joined` of its words."""
    # Two numbers side by side are rare; digits of other scripts are left to `joined`.
    if folded.isascii() and _TWO_NUMBERS.search(folded) is None:
        return folded.replace(" ", "")
    return joined(folded.split())


def name_keys(folded: str) -> tuple[str, str, str]:
    """The three keys of a name that `fold_name` folded; empty for a name without letters and digits."""
    words = folded.split()
    variants = variant_words(words)
    sorted_words = sorted(word for word in variants if word not in SMALL_WORDS) or sorted(variants)
    return spelling_key(folded), joined(variants), " ".join(sorted_words)


def key_rows(keys: Sequence[tuple[str, str, str]], weights: Sequence[float] = (1.0, 1.0, 1.0)) -> SparseRows:
    """Sparse vectors of the keys alone, for a search.

    Args:
        keys: Of n names, by `name_keys`.
        weights: Values of the three keys.

    Returns:
        n rows of at most three features; empty rows for names without letters and digits.
    """
    indices, values, offsets = [], [], [0]
    for of_name in keys:
        if of_name[0]:
            found = {_hash(i, key): weights[i] for i, key in reversed(list(enumerate(of_name)))}
            for index in sorted(found):
                indices.append(index)
                values.append(found[index])
        offsets.append(len(indices))
    return SparseRows(np.array(indices, np.uint32), np.array(values, np.float32), np.array(offsets, np.int64))


def stored_rows(names: Sequence[str]) -> SparseRows:
    """What a store keeps of names: n-grams, also in Latin letters (`latin`), keys and parts (`parts.part_rows`).

    Args:
        names: n strings of any Unicode.

    Returns:
        n rows; the values of n-grams have unit length, keys and parts come on top.
    """
    folded = [fold_name(name) for name in names]
    keys = [name_keys(name) for name in folded]
    # Keys come first: where the hash of a key is that of an n-gram of the same name, the key's value stays.
    ngrams = folded_rows([with_latin(name) for name in folded])
    tables = (key_rows(keys, WEIGHTS), ngrams, part_rows([spelling for spelling, _, _ in keys]))
    owners = [np.repeat(np.arange(len(rows)), np.diff(rows.offsets)) for rows in tables]
    packed = [owner << 32 | rows.indices.astype(np.int64) for owner, rows in zip(owners, tables, strict=True)]
    unique, first = np.unique(np.concatenate(packed), return_index=True)
    values = np.concatenate([rows.values for rows in tables])[first]
    counts = np.bincount(unique >> 32, minlength=len(names))
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
    return SparseRows((unique & 0xFFFFFFFF).astype(np.uint32), values.astype(np.float32), offsets)


def spelling_features(spellings: Collection[str]) -> UInt32Array:
    """The features of n spelling keys, as names have them, (n,)."""
    return np.frombuffer(b"".join([_digest(0, spelling) for spelling in spellings]), "<u4").astype(np.uint32)


_HASHES = tuple(blake2b(digest_size=4, person=b"key%d" % kind) for kind in range(len(WEIGHTS)))


def _hash(kind: int, key: str) -> int:
    """32 bits of a key; the same in every process and release."""
    return int.from_bytes(_digest(kind, key), "little")


def _digest(kind: int, key: str) -> bytes:
    digest = _HASHES[kind].copy()  # half the time of making it
    digest.update(key.encode("utf-8", "surrogatepass"))
    return digest.digest()


_SOUNDS = str.maketrans(
    {
        **dict.fromkeys("aeiouyhw", ""),
        **dict.fromkeys("cqgkx", "k"),
        **dict.fromkeys("sz", "s"),
        **dict.fromkeys("td", "t"),
        **dict.fromkeys("bpfv", "p"),
        **dict.fromkeys("mn", "n"),
        **dict.fromkeys("lr", "l"),
        "j": "s",
        " ": "",
    }
)
_SOFT = re.compile("t?sch|tsh?|tch|ch|sh|zh|dzh|dj|dz|c(?=[eiy])")
_TWICE = re.compile(r"(.)\1+")


def skeleton(folded: str) -> str:
    """The consonants of a folded name by classes of sound; those that transliterations of one name have in common."""
    return _TWICE.sub(r"\1", _SOFT.sub("s", folded).translate(_SOUNDS))


LEAST_LETTERS = 3
"""Letters from which a mention is searched by edits."""

SHORT_LETTERS = 8
"""Letters up to which all edits are searched; they have about 54 for each letter."""

KEY_WEIGHT = 1.0
"""A name that is one edit away comes before those that only share parts."""


def slip_features(spelling: str) -> tuple[UInt32Array, FloatArray]:
    """Indices, ascending, and values of the features of names that are one or two edits away; both empty for long ones.

    Args:
        spelling: Spelling key of the mention (`keys.spelling_key`).
    """
    is_cut = LEAST_LETTERS <= len(spelling) <= MAX_LETTERS
    keys = spelling_features(_one_edit_away(spelling) if is_cut else ())
    # Keys come first: where one is also the feature of a part, its value counts.
    indices, first = np.unique(np.append(keys, np.array([*mention_parts(spelling)], np.uint32)), return_index=True)
    return indices, np.where(first < len(keys), KEY_WEIGHT, WEIGHT).astype(np.float32)


def _one_edit_away(spelling: str) -> set[str]:
    """The strings with two neighbours swapped; of a short one also those with a letter less, more or replaced."""
    n = len(spelling)
    found = {spelling[:i] + spelling[i + 1] + spelling[i] + spelling[i + 2 :] for i in range(n - 1)}
    if n <= SHORT_LETTERS:
        cuts = [(spelling[:i], spelling[i:]) for i in range(n + 1)]
        found.update(start + end[1:] for start, end in cuts[:-1])
        found.update(start + letter + end[1:] for start, end in cuts[:-1] for letter in ascii_lowercase)
        found.update(start + letter + end for start, end in cuts for letter in ascii_lowercase)
    found.discard(spelling)
    return found
