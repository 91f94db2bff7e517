"""Which types of names separate: `UNKNOWN` and coarser ones do not, types that differ do.

any       no type, or one that says that there is none: `UNKNOWN`
coarse    `concept`, `object`: says little, but names that are not equal stay apart by it
general   `location` beside `city`, `organization` beside `company`
special   all others: `planet`, `element`
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

ANY = frozenset(
    ("", "unknown", "none", "null", "nil", "n/a", "na", "undefined", "unspecified", "<entity_type>", "type")
)
"""Types that say that there is none; LightRAG writes UNKNOWN for names that only a relation has."""

COARSE = frozenset(
    "concept object thing other misc miscellaneous entity category term topic item node keyword content".split()
)

_GENERAL: tuple[tuple[str, str], ...] = (
    ("person people human per character individual", "man woman politician author scientist actor athlete employee"),
    (
        "location place loc geo gpe",
        "city town village country state region county province continent island river lake mountain street building",
    ),
    ("organization organisation org", "company business institution agency university government team corporation"),
    ("product technology", "software tool framework library platform device system app application website"),
    ("event", "war battle conference meeting holiday competition festival"),
)
"""Types by what they are kinds of; the general ones are synonyms."""

_FAMILY = {word: i for i, words in enumerate(_GENERAL, 1) for group in words for word in group.split()}
_IS_GENERAL = frozenset(word for general, _ in _GENERAL for word in general.split())
PERSON, PLACE = 1, 2
"""The families of persons and places."""

_SPECIAL, _IN_GENERAL, _COARSE, _ANY = range(4)


class Types:
    """The types of n names.

    Args:
        types: Without case.
    """

    def __init__(self, types: Sequence[str]) -> None:
        distinct, codes = np.unique(
            np.array(types, dtype=object) if types else np.empty(0, object), return_inverse=True
        )
        levels = [
            _ANY if one in ANY else _COARSE if one in COARSE else _IN_GENERAL if one in _IS_GENERAL else _SPECIAL
            for one in distinct
        ]
        family = [_FAMILY.get(one, -1 - i) for i, one in enumerate(distinct)]
        self._code = np.array(codes, np.int32)
        self._level = np.array(levels, np.int8)[codes]
        self._family = np.array(family, np.int32)[codes]

    def agree(self, a: npt.NDArray[np.integer], b: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
        """Which of p pairs of names may mean the same by their types, (p,)."""
        level_a, level_b = self._level[a], self._level[b]
        is_same = (self._code[a] == self._code[b]) | (np.maximum(level_a, level_b) >= _COARSE)
        of_family = self._family[a] == self._family[b]
        found: npt.NDArray[np.bool_] = is_same | (of_family & (np.maximum(level_a, level_b) == _IN_GENERAL))
        return found

    def agree_pair(self, a: int, b: int) -> bool:
        """`agree` of one pair."""
        return bool(self.agree(np.array([a]), np.array([b]))[0])

    def is_loose(self, a: int, b: int) -> bool:
        """Whether two types agree only because one is coarse."""
        return bool(self._code[a] != self._code[b] and max(self._level[a], self._level[b]) == _COARSE)

    def is_person(self, one: int) -> bool | None:
        """Whether a name is that of a person; None where its type does not say."""
        return None if self._level[one] >= _COARSE else bool(self._family[one] == PERSON)

    def is_place(self, one: int) -> bool:
        """Whether a name is that of a place, by its type."""
        return bool(self._level[one] < _COARSE and self._family[one] == PLACE)
