"""The kinds of everyday mentions, and the share of each in the mixture that the ranking and calibration are fitted on.

The shares are an estimate of what programs send: most mentions are names of the base as they stand or nearly so, a
fifth has no entity. No public log of queries gives these shares; figures are therefore reported by kind, and a kind
with a small share is not sacrificed to a large one, since the fit weighs kinds within a factor of a few. Slips and
names in a few words have more than they probably have in use, because there the answer depends on the fit most.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of mention.

    Attributes:
        name: Short name, as in reports.
        share: Share in the mixture, in (0, 1).
        meaning: What it is, with an example.
        is_nil: Whether the base has no entity for these mentions.
    """

    name: str
    share: float
    meaning: str
    is_nil: bool = False


KINDS: tuple[Kind, ...] = (
    Kind("exact", 0.10, "a name as it stands; the most frequent kind in tables and in what programs send"),
    Kind("case", 0.04, "other letter case: `aids`, `NEW YORK`"),
    Kind("punctuation", 0.04, "accents, hyphens and full stops: `Malmo`, `IL 2`, `N.A.S.A.`"),
    Kind("no spaces", 0.03, "spaces left out: `chickenpox`, `newyork`; domains and hashtags"),
    Kind("one slip", 0.12, "one wrong character: a neighbour on the keyboard, a swap, OCR, a sound; 1 in 10 queries"),
    Kind("two slips", 0.04, "two of them"),
    Kind("plural", 0.04, "plural or possessive: `lung cancers`, `Apple's`"),
    Kind("order", 0.04, "inverted words: `diabetes mellitus, type 2`, `Einstein, Albert`"),
    Kind("affix", 0.04, "articles, legal forms and titles: `the Beatles`, `Apple Inc.`, `Dr. Einstein`"),
    Kind("spelling", 0.04, "British or American, Greek letters, numerals: `anaemia`, `IL-1β`, `type II`"),
    Kind("initials", 0.03, "abbreviated words: `A. Einstein`, `COPD`; short forms fit many names"),
    Kind("in words", 0.11, "inside a few more words: `a case of measles`, `patients with asthma`"),
    Kind("alias", 0.11, "a real alias that the base does not have: the hardest kind, and the least frequent in tables"),
    Kind("nil removed", 0.08, "a name whose entity is not in the base", is_nil=True),
    Kind(
        "nil sibling", 0.04, "like an entity of the base but another one: `hepatitis Z`, `type 9 diabetes`", is_nil=True
    ),
    Kind("nil brackets", 0.01, "something else in brackets: `Ian Clark (river)`, `Libido (1974 film)`", is_nil=True),
    Kind("nil number", 0.01, "another number: `Route 67`", is_nil=True),
    Kind("nil first name", 0.01, "another person of the same family name: `B. Mathur`", is_nil=True),
    Kind("nil word more", 0.01, "a name with one word more, which is another thing: `Stripe Press`", is_nil=True),
    Kind("nil other field", 0.03, "a name of another field", is_nil=True),
    Kind("nil common word", 0.03, "a word of everyday language that is no name of the base", is_nil=True),
)
"""All kinds; the shares sum to 1."""

NIL_KINDS = frozenset(kind.name for kind in KINDS if kind.is_nil)
