"""Respell phrases as people do, and mix the spellings as for the shipped model. Seeded, never empty."""

from __future__ import annotations

import random

from pearl_qdrant.linking.mention_kinds.slips import KEYBOARD

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


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
