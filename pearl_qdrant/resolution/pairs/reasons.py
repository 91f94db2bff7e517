"""Why two names are one entity, in words."""

from __future__ import annotations

from collections.abc import Sequence

from pearl_qdrant.resolution.pairs.features import FEATURES, FROM_STRINGS

EQUAL = "equal spelling"
FOUNDED = "founded"
DECIDED = "decided"
INITIALS = "initials"
PART_OF = "part of the name"

_SAID = {
    "same_words": "equal words",
    "same_core": "equal but for brackets",
    "slips": "one or two letters differ",
    "other_order": "other order of words",
    "inner": "words left out",
    "initials": "initials",
}
"""What features of strings are called, the clearest first."""


def reason_of(features: Sequence[float]) -> str:
    """What speaks for a merge: the clearest feature of the strings, cosine and n-grams.

    Args:
        features: In the order of `FEATURES`.
    """
    values = dict(zip(FEATURES, features, strict=True))
    said = next((text for name, text in _SAID.items() if name in FROM_STRINGS and values[name] > 0), None)
    numbers = f"vectors {values['dense']:.2f}, n-grams {values['lexical']:.2f}"
    return numbers if said is None else f"{said}; {numbers}"
