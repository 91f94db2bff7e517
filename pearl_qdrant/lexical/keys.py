"""Keys and parts of names: what an exact lookup compares, from strict to loose, and what a slip leaves as it was.

    spelling   the folded name without spaces                "Chicken Pox", "chickenpox", "chicken-pox" -> chickenpox
    variant    words in their normal spelling, no spaces     "tumours of the spine", "Tumor of Spine"   -> tumorofspine
    words      the same words, sorted, without small ones    "diabetes mellitus, type 2", "Type 2 Diabetes Mellitus"

`skeleton` is looser still, and no key: what transliterations of a word have in common. A key is stored as one more
feature of the sparse vector of n-grams, so that a search for it reads one short posting list and finds every name that
has it, in both stores. Stricter keys weigh more, so that their names come first.

Misspelt mentions are searched by the parts of names that one or two wrong characters leave as they were:

    winchester     10 winch|     10 |ester     10 win|ter     10 win||     10 |ches|     10 ||ter

A name is cut into halves, into its outer thirds, and, if it is long, into thirds; each part goes with the length of the
name. One edit leaves a half or the outer thirds as they were, two edits leave one of three thirds. A mention is cut as
names of its own length and of one or two more or fewer characters would be. So the parts of a misspelt name are few and
rare: of 75,704 names of a general base, 40 share one with a mention, and the right one is among the first 20 for 98 %
of mentions with one slip and 90 % with two (63,596 names of diseases: 150, 98 % and 94 %). The parts share
`PART_BUCKETS` features of the sparse vector, beside n-grams and keys: an engine keeps a table of features.

The initials of a name of several words, and the same without its first word, are stored beside its parts, and are
searched by a short word; those of a longer mention are searched as a spelling (`initials`).

Parts miss a swap in the middle of a word, which changes both halves, and those of short names are too frequent. So all
mentions are searched by the keys of their swaps, too, and short ones by those of all strings one edit away
(`slip_features`).

Source of the idea: Li, Deng, Wang and Feng 2011, "PASS-JOIN: a partition-based method for similarity joins".
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from hashlib import blake2b
from string import ascii_lowercase
from zlib import crc32

import numpy as np

from pearl_qdrant.lexical.ngrams import (
    FloatArray,
    SparseRows,
    UInt32Array,
    equal_rows,
    fold_name,
    folded_rows,
    merge_rows,
    with_latin,
)
from pearl_qdrant.lexical.words import SMALL_WORDS, variant_words

PART_BUCKETS = 1 << 20  # different features of parts
FIRST_PART = (1 << 32) - PART_BUCKETS  # the first of them: the highest numbers of 32 bits
PART_WEIGHT = 0.25  # stored value: a part counts for less than an n-gram in any other search
MAX_LETTERS = 64  # letters of a spelling key that are cut; what a longer one has in common is found by n-grams
LEAST_LETTERS, OUTER_LETTERS, THIRDS_LETTERS = 4, 6, 9  # letters from which a name has halves, outer thirds, and thirds


ACRONYM = range(2, 9)  # possible lengths of an acronym
_SEARCHED = range(3, 9)  # lengths by which names are searched: shorter ones are those of too many
SKIPPED_WORDS = frozenset("the of and in de a an for la le el at on to di du des der von und et y".split())
"""Words that an acronym may skip."""


def initials(words: Sequence[str]) -> frozenset[str]:
    """First letters of folded words and whole numbers, with all, no small words, or none but `and`, where they are as
    long as an acronym; none for a single word.
    """
    if len(words) < 2:
        return frozenset()
    letters = [word if word[0].isdigit() else word[0] for word in words]
    found = {"".join(letters)}
    if not SKIPPED_WORDS.isdisjoint(words):
        pairs = list(zip(letters, words, strict=True))
        found.add("".join([one for one, word in pairs if word not in SKIPPED_WORDS]))
        found.add("".join([one for one, word in pairs if word == "and" or word not in SKIPPED_WORDS]))
    return frozenset([one for one in found if len(one) in ACRONYM])


def fits_initials(folded: str, spelling: str) -> bool:
    """Whether a spelling key is the initials of a folded name, or of all but its first word, as both are searched."""
    if len(spelling) not in _SEARCHED or " " not in folded:
        return False
    words = folded.split()
    return spelling in initials(words) or spelling in initials(words[1:])


def part_rows(names: Sequence[str], spellings: Sequence[str]) -> SparseRows:
    """Sparse vectors of the parts and initials of folded names, as they are stored; `spellings` are their keys. Short
    and very long names have no parts.
    """
    found = [sorted(_of_name(of) | _of_initials(name)) for name, of in zip(names, spellings, strict=True)]
    return equal_rows(found, PART_WEIGHT)


def _of_name(key: str) -> set[int]:
    n = len(key)
    if not LEAST_LETTERS <= n <= MAX_LETTERS:
        return set()
    found = {_feature(f"{n} {key[: n // 2]}|"), _feature(f"{n} |{key[n // 2 :]}")}
    third = n // 3
    if n >= OUTER_LETTERS:
        found.add(_feature(f"{n} {key[:third]}|{key[-third:]}"))
    if n >= THIRDS_LETTERS:
        found.add(_feature(f"{n} {key[:third]}||"))
        found.add(_feature(f"{n} |{key[third:-third]}|"))
        found.add(_feature(f"{n} ||{key[-third:]}"))
    return found


def _of_initials(folded: str) -> set[int]:
    """Features of the initials of a name of several words, also without the first one: `IEEE Conference on ...`."""
    words = folded.split()
    if len(words) < 2:
        return set()
    return {_feature(f"={one}") for one in initials(words) | initials(words[1:]) if len(one) in _SEARCHED}


def mention_parts(key: str, edits: int | None = None) -> set[int]:
    """Features of the parts that names have which differ from the spelling key of a mention by one or two edits; by
    default by two in a long one.
    """
    found: set[int] = set()
    edits = edits or (2 if len(key) >= THIRDS_LETTERS else 1)
    if not LEAST_LETTERS - 1 <= len(key) <= MAX_LETTERS + edits:
        return found
    for n in range(max(LEAST_LETTERS, len(key) - edits), min(MAX_LETTERS, len(key) + edits) + 1):
        third, last = n // 3, n - n // 2
        found.add(_feature(f"{n} {key[: n // 2]}|"))
        found.add(_feature(f"{n} |{key[-last:]}"))
        if n >= OUTER_LETTERS:
            found.add(_feature(f"{n} {key[:third]}|{key[-third:]}"))
        if n >= THIRDS_LETTERS:
            found.add(_feature(f"{n} {key[:third]}||"))
            found.add(_feature(f"{n} ||{key[-third:]}"))
            for shift in range(-edits, edits + 1):
                start, end = third + shift, n - third + shift
                if start >= 0:
                    found.add(_feature(f"{n} |{key[start:end]}|"))
    return found


def _feature(part: str) -> int:
    """The number of a part; the same in every process and release."""
    return FIRST_PART | (crc32(part.encode("utf-8", "surrogatepass")) & (PART_BUCKETS - 1))


_TWO_NUMBERS = re.compile("[0-9] [0-9]")
WEIGHTS = (4.0, 2.0, 1.0)  # stored values of the keys: spelling, variant, words


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
    """Sparse vectors of the keys of names alone, for a search; empty rows for names without letters and digits."""
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
    """What a store keeps of names: n-grams, also in Latin letters (`latin`), keys and parts (`part_rows`). The values
    of n-grams have unit length, keys and parts come on top.
    """
    folded = [fold_name(name) for name in names]
    keys = [name_keys(name) for name in folded]
    # Keys come first: where the hash of a key is that of an n-gram of the same name, the key's value stays.
    ngrams = folded_rows([with_latin(name) for name in folded])
    return merge_rows((key_rows(keys, WEIGHTS), ngrams, part_rows(folded, [spelling for spelling, _, _ in keys])))


def spelling_features(spellings: Collection[str]) -> UInt32Array:
    """The features of n spelling keys, as names have them, (n,)."""
    return np.frombuffer(b"".join(_digests(0, spellings)), "<u4").astype(np.uint32)


_HASHES = tuple(blake2b(digest_size=4, person=b"key%d" % kind) for kind in range(len(WEIGHTS)))


def _hash(kind: int, key: str) -> int:
    """32 bits of a key; the same in every process and release."""
    return int.from_bytes(_digests(kind, [key])[0], "little")


def _digests(kind: int, keys: Iterable[str]) -> list[bytes]:
    new, found = _HASHES[kind].copy, []  # copied in half the time of making it
    for key in keys:  # hundreds, where a mention is short
        digest = new()
        digest.update(key.encode("utf-8", "surrogatepass"))
        found.append(digest.digest())
    return found


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


LEAST_EDIT_LETTERS = 3  # letters from which a mention is searched by edits
SHORT_LETTERS = 8  # letters up to which all edits are searched; they have about 54 for each letter
KEY_WEIGHT = 1.0  # a name that is one edit away comes before those that only share parts


def slip_features(folded: str, *, is_short: bool = False) -> tuple[UInt32Array, FloatArray]:
    """Indices, ascending, and values of the features of names that are one or two edits away from a folded mention, or
    whose initials it is, or that are its initials; both empty for a long one. Of a short form also those of names whose
    initials have one letter more, or lack one behind the first.
    """
    spelling = spelling_key(folded)
    is_cut = LEAST_EDIT_LETTERS <= len(spelling) <= MAX_LETTERS
    words = folded.split()
    near = _one_edit_away(spelling) if is_cut else set()
    keys = spelling_features(near | {one for one in initials(words) if len(one) in _SEARCHED})
    if len(spelling) in _SEARCHED:
        keys = np.append(keys, np.uint32(_feature(f"={spelling}")))
    if is_short and len(spelling) in _SEARCHED:
        n = len(spelling)
        others = {spelling[:i] + spelling[i + 1 :] for i in range(1, n)} if n > _SEARCHED.start else set()
        others |= {spelling[:i] + c + spelling[i:] for i in range(n + 1) for c in ascii_lowercase}
        keys = np.append(keys, np.array([_feature(f"={one}") for one in others], np.uint32))
    # Where a key is also the feature of a part, its value counts.
    indices, first = np.unique(np.append(keys, np.array([*mention_parts(spelling)], np.uint32)), return_index=True)
    return indices, np.where(first < len(keys), KEY_WEIGHT, PART_WEIGHT).astype(np.float32)


def near_rows(spellings: Sequence[str]) -> SparseRows:
    """Features of the names that are one edit from each spelling key, which are not short; `slip_features` has more."""
    swaps, parts = [_swaps(one) for one in spellings], [[*mention_parts(one, 1)] for one in spellings]
    indices = spelling_features([one for of_key in swaps for one in of_key])
    keys = SparseRows(indices, np.full(len(indices), KEY_WEIGHT, np.float32), np.cumsum([0, *map(len, swaps)]))
    return merge_rows((keys, equal_rows(parts, PART_WEIGHT)))


def _swaps(spelling: str) -> set[str]:
    """The other strings with two neighbours swapped."""
    found = {spelling[:i] + spelling[i + 1] + spelling[i] + spelling[i + 2 :] for i in range(len(spelling) - 1)}
    found.discard(spelling)
    return found


def _one_edit_away(spelling: str) -> set[str]:
    """The strings with two neighbours swapped; of a short one also those with a letter less, more or replaced."""
    n = len(spelling)
    found = _swaps(spelling)
    if n <= SHORT_LETTERS:
        cuts = [(spelling[:i], spelling[i:]) for i in range(n + 1)]
        found.update(start + end[1:] for start, end in cuts[:-1])
        found.update(start + letter + end[1:] for start, end in cuts[:-1] for letter in ascii_lowercase)
        found.update(start + letter + end for start, end in cuts for letter in ascii_lowercase)
    found.discard(spelling)
    return found
