"""Slips of one character, as people, scanners and ears make them; never in a number, which would be another one."""

from __future__ import annotations

import random
import re

_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"

KEYBOARD: dict[str, str] = {
    letter: "".join(sorted({c for row in _ROWS[max(0, y - 1) : y + 2] for c in row[max(0, x - 1) : x + 2]} - {letter}))
    for y, letters in enumerate(_ROWS)
    for x, letter in enumerate(letters)
}
"""Neighbours of each letter on a QWERTY keyboard."""

OCR: tuple[tuple[str, str], ...] = (
    ("m", "rn"), ("rn", "m"), ("l", "1"), ("i", "l"), ("o", "0"), ("e", "c"), ("c", "e"), ("h", "b"), ("cl", "d"),
    ("d", "cl"), ("u", "n"), ("n", "u"), ("f", "t"), ("t", "f"), ("w", "vv"), ("s", "5"), ("b", "6"), ("a", "o"),
)  # fmt: skip
"""Characters that optical recognition confuses."""

SOUNDS: tuple[tuple[str, str], ...] = (
    ("ph", "f"), ("f", "ph"), ("th", "t"), ("ie", "ei"), ("ei", "ie"), ("y", "i"), ("i", "y"), ("c", "k"), ("k", "c"),
    ("s", "c"), ("ck", "k"), ("sc", "s"), ("rh", "r"), ("ea", "ee"), ("ee", "ea"), ("er", "ar"), ("ance", "ence"),
    ("ence", "ance"), ("ll", "l"), ("l", "ll"), ("ss", "s"), ("s", "ss"), ("tt", "t"), ("t", "tt"), ("z", "s"),
)  # fmt: skip
"""Spellings of one sound, doubled letters among them."""

MIN_LETTERS = 4
"""Letters of a word that gets a slip: in `cat` one letter makes another word."""

_WORD = re.compile(rf"[^\W\d_]{{{MIN_LETTERS},}}")


def slip(name: str, rng: random.Random) -> str | None:
    """The name with one slip inside one of its longer words; None if it has none, or nothing changes."""
    words = list(_WORD.finditer(name))
    if not words:
        return None
    for _ in range(8):
        # A long word is mistyped more often.
        word = rng.choices(words, weights=[len(w.group()) for w in words])[0]
        changed = rng.choices(_MAKERS, weights=_WEIGHTS)[0](word.group(), rng)
        if changed is not None and changed.casefold() != word.group().casefold():
            return name[: word.start()] + changed + name[word.end() :]
    return None


def _typed(word: str, rng: random.Random) -> str | None:
    at = rng.randrange(len(word))
    near = KEYBOARD.get(word[at].lower())
    if near is None:
        return None
    letter = rng.choice(near)
    letter = letter.upper() if word[at].isupper() else letter
    return rng.choice((word[:at] + letter + word[at + 1 :], word[:at] + letter + word[at:]))


def _left_out(word: str, rng: random.Random) -> str:
    at = rng.randrange(len(word))
    return word[:at] + word[at + 1 :]


def _doubled(word: str, rng: random.Random) -> str:
    at = rng.randrange(len(word))
    return word[: at + 1] + word[at].lower() + word[at + 1 :]


def _swapped(word: str, rng: random.Random) -> str:
    at = rng.randrange(len(word) - 1)
    return word[:at] + word[at + 1] + word[at] + word[at + 2 :]


def _random_letter(word: str, rng: random.Random) -> str:
    at = rng.randrange(len(word))
    return word[:at] + rng.choice(_LETTERS) + word[at + 1 :]


def _replaced(pairs: tuple[tuple[str, str], ...], word: str, rng: random.Random) -> str | None:
    lowered = word.lower()
    places = [(m.start(), a, b) for a, b in pairs for m in re.finditer(re.escape(a), lowered)]
    if not places or len(lowered) != len(word):
        return None
    at, a, b = rng.choice(places)
    return word[:at] + b + word[at + len(a) :]


def _scanned(word: str, rng: random.Random) -> str | None:
    return _replaced(OCR, word, rng)


def _heard(word: str, rng: random.Random) -> str | None:
    return _replaced(SOUNDS, word, rng)


_MAKERS = (_typed, _left_out, _doubled, _swapped, _random_letter, _scanned, _heard)
_WEIGHTS = (3, 3, 1, 3, 1, 1, 2)
"""Typing makes most slips; by and large as in corpora of misspellings."""
