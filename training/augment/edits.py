"""Variants that need no files: one edited character, or another spelling of the phrase as people use them.

Only letters are edited, and only in words of at least three letters: another digit is another number, and an edit of
"US" is another country. The first letter of a phrase is kept. All are seeded and never empty.

Source: PEARL (Chen et al. 2024), section 3.1; the kinds of edits are those of its published code.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from pearl_qdrant.linking.mention_kinds.slips import KEYBOARD

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_SHORTEST = 3  # letters of a word that may be edited
_TRIES = 6

_CONFUSED: dict[str, tuple[str, ...]] = {
    # Characters that optical character recognition confuses.
    "a": ("o", "e"), "b": ("h", "6", "8"), "c": ("e", "o"), "d": ("cl", "a"), "e": ("c", "o"), "f": ("t",),
    "g": ("q", "9"), "h": ("b", "li"), "i": ("l", "1", "j"), "j": ("i",), "k": ("lc",), "l": ("1", "i", "I"),
    "m": ("rn", "nn"), "n": ("ri", "u"), "o": ("0", "c"), "p": ("n",), "q": ("g", "9"), "r": ("n",), "s": ("5", "8"),
    "t": ("f", "l"), "u": ("v", "n"), "v": ("u", "y"), "w": ("vv",), "x": ("k",), "y": ("v",), "z": ("2",),
}  # fmt: skip

Edit = Callable[[str, int, random.Random], str]


def edit_letters(phrase: str, rng: random.Random) -> str | None:
    """Edit one letter of a phrase; the result is never equal to `phrase`. None if there is no word to edit."""
    at = _position(phrase, rng)
    if at is None:
        return None
    first = int(rng.random() * len(EDITS))
    for i in range(len(EDITS)):
        edited = EDITS[(first + i) % len(EDITS)](phrase, at, rng)
        if edited != phrase:
            return edited
    return None


def _position(phrase: str, rng: random.Random) -> int | None:
    """Draw the position of a letter in a word that is long enough, not the first letter of the phrase."""
    n = len(phrase)
    if n < _SHORTEST:
        return None
    for _ in range(_TRIES):
        at = 1 + int(rng.random() * (n - 1))
        if _is_inside(phrase, at):
            return at
    allowed = [at for at in range(1, n) if _is_inside(phrase, at)]
    return allowed[int(rng.random() * len(allowed))] if allowed else None


def _is_inside(phrase: str, at: int) -> bool:
    """Return whether the letter at a position is in a run of at least `_SHORTEST` (3) letters."""
    # At the ends the slice is shorter than three; then the windows before and after decide.
    window = phrase[at - 1 : at + 2]
    if window.isalpha() and len(window) == _SHORTEST:
        return True
    after = phrase[at : at + _SHORTEST]
    before = phrase[max(0, at - 2) : at + 1]
    return (len(after) == _SHORTEST and after.isalpha()) or (len(before) == _SHORTEST and before.isalpha())


def _swap(phrase: str, at: int, rng: random.Random) -> str:
    """Swap a letter with an adjacent one."""
    if at + 1 < len(phrase) and phrase[at + 1].isalpha():
        return phrase[:at] + phrase[at + 1] + phrase[at] + phrase[at + 2 :]
    if at > 1 and phrase[at - 1].isalpha():
        return phrase[: at - 1] + phrase[at] + phrase[at - 1] + phrase[at + 1 :]
    return phrase


def _delete(phrase: str, at: int, rng: random.Random) -> str:
    return phrase[:at] + phrase[at + 1 :]


def _insert(phrase: str, at: int, rng: random.Random) -> str:
    return phrase[:at] + _other(phrase, at, rng) + phrase[at:]


def _substitute(phrase: str, at: int, rng: random.Random) -> str:
    return phrase[:at] + _other(phrase, at, rng) + phrase[at + 1 :]


def _keyboard(phrase: str, at: int, rng: random.Random) -> str:
    """Replace a letter by an adjacent key of a QWERTY keyboard."""
    near = KEYBOARD.get(phrase[at].lower())
    if near is None:
        return phrase
    return phrase[:at] + _cased(near[int(rng.random() * len(near))], phrase[at]) + phrase[at + 1 :]


def _ocr(phrase: str, at: int, rng: random.Random) -> str:
    alike = _CONFUSED.get(phrase[at].lower())
    if alike is None:
        return phrase
    return phrase[:at] + _cased(alike[int(rng.random() * len(alike))], phrase[at]) + phrase[at + 1 :]


def _other(phrase: str, at: int, rng: random.Random) -> str:
    """Draw a letter of the same script: a to z, or for other scripts one of the phrase's letters."""
    if phrase[at].isascii():
        return _cased(_LETTERS[int(rng.random() * len(_LETTERS))], phrase[at])
    own = [c for c in phrase if c.isalpha() and not c.isascii()]
    return own[int(rng.random() * len(own))]


def _cased(letters: str, like: str) -> str:
    return letters.upper() if like.isupper() else letters


EDITS: tuple[Edit, ...] = (_swap, _delete, _insert, _substitute, _keyboard, _ocr)
"""The six kinds of edits; each returns the phrase unchanged if it cannot be applied."""


def edit_character(phrase: str, rng: random.Random) -> str:
    """Edit one character: swap, delete, insert or replace by a keyboard neighbour.

    A phrase of fewer than four characters comes back unchanged: an edit would turn it into another name.
    """
    if len(phrase) < 4:
        return phrase
    at = rng.randrange(1, len(phrase) - 1)
    letter = phrase[at].lower()
    kind = rng.randrange(4)
    if kind == 0:
        return phrase[:at] + phrase[at + 1] + phrase[at] + phrase[at + 2 :]
    if kind == 1:
        return phrase[:at] + phrase[at + 1 :]
    if kind == 2:
        return phrase[:at] + rng.choice(_LETTERS) + phrase[at:]
    return phrase[:at] + rng.choice(KEYBOARD.get(letter, _LETTERS)) + phrase[at + 1 :]


def swap_words(phrase: str, rng: random.Random) -> str:
    """Swap two adjacent words; a one-word phrase comes back unchanged."""
    words = phrase.split()
    if len(words) < 2:
        return phrase
    at = rng.randrange(len(words) - 1)
    words[at], words[at + 1] = words[at + 1], words[at]
    return " ".join(words)


def respell(phrase: str, rng: random.Random) -> str:
    """Respell a phrase as people do: joined words, hyphens, no punctuation, comma inversion, no article."""
    words = phrase.split()
    kind = rng.randrange(5)
    if kind == 0 and len(words) > 1:
        at = rng.randrange(len(words) - 1)
        return " ".join([*words[:at], words[at] + words[at + 1], *words[at + 2 :]])
    if kind == 1 and len(words) > 1:
        at = rng.randrange(len(words) - 1)
        return " ".join([*words[:at], f"{words[at]}-{words[at + 1]}", *words[at + 2 :]])
    if kind == 2:
        stripped = "".join(c for c in phrase if c.isalnum() or c.isspace())
        return stripped if stripped.strip() else phrase
    if kind == 3 and len(words) > 1:
        return f"{words[-1]}, {' '.join(words[:-1])}"
    if words and words[0].lower() in ("the", "a", "an") and len(words) > 1:
        return " ".join(words[1:])
    return phrase


def abbreviate(phrase: str, rng: random.Random) -> str:
    """Abbreviate a proper name as people do: "New York Times" gives NYTimes, NY Times, NYT or nytimes.com.

    A phrase without at least two capitalised words comes back unchanged.
    """
    words = [word for word in phrase.split() if word.lower() not in ("the", "of", "and", "&")]
    if len(words) < 2 or not all(word[0].isupper() for word in words):
        return phrase
    n_initials = rng.randrange(2, len(words) + 1) if len(words) > 2 else 1
    initials = "".join(word[0] for word in words[:n_initials])
    rest = words[n_initials:]
    joined = "".join([initials, *rest])
    if rest and rng.random() < 0.35:
        return " ".join([initials, *rest])
    if rng.random() < 0.3:
        site = joined if rng.random() < 0.6 else "".join(words)
        return f"{''.join(c for c in site if c.isalnum()).lower()}.{rng.choice(('com', 'com', 'org', 'net'))}"
    return joined


def augment_or_abbreviate(phrase: str, rng: random.Random) -> str:
    """Make a variant like `augment`; half of the variants are short forms of proper names."""
    return abbreviate(phrase, rng) if rng.random() < 0.5 else augment(phrase, rng)


def augment(phrase: str, rng: random.Random) -> str:
    """Make a variant of a phrase, or sometimes return the phrase itself. Never empty unless `phrase` is."""
    draw = rng.random()
    if draw < 0.45:
        return edit_character(phrase, rng)
    if draw < 0.55:
        return swap_words(phrase, rng)
    if draw < 0.90:
        return respell(phrase, rng)
    return phrase
