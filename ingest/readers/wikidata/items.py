"""What both forms of a Wikidata dump, JSON and truthy triples, are turned into: items and class edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

INSTANCE_OF = "P31"
SUBCLASS_OF = "P279"

MULTILINGUAL = "mul"
"""The language of names that are the same everywhere; many items have no other label."""
FALLBACK = "en"

NOT_AN_ITEM = "not_an_item"

_MAX_NUMBER = (1 << 31) - 1
_MAX_ID = len(f"Q{_MAX_NUMBER}")


@dataclass(slots=True)
class Item:
    """An item as a dump has it, in the languages that matter.

    Attributes:
        id: As in Q42.
        line: Number of its (first) line.
        labels: By language.
        aliases: By language.
        descriptions: By language.
        classes: Numbers of the classes it is an instance of (P31), by the best rank.
        superclasses: Numbers of the classes above it (P279), likewise.
        sitelinks: Pages about it in the Wikimedia projects; None if the dump does not say.
    """

    id: str
    line: int
    labels: Mapping[str, str] = field(default_factory=dict)
    aliases: Mapping[str, Sequence[str]] = field(default_factory=dict)
    descriptions: Mapping[str, str] = field(default_factory=dict)
    classes: tuple[int, ...] = ()
    superclasses: tuple[int, ...] = ()
    sitelinks: int | None = None


def languages_in_order(wanted: Sequence[str]) -> tuple[str, ...]:
    """The wanted languages, then the fallbacks: where a label is taken from, best first."""
    return tuple(dict.fromkeys((*wanted, MULTILINGUAL, FALLBACK)))


def item_number(text: object) -> int:
    """The number of an item's id ("Q42" is 42), or 0 if it is none."""
    if not isinstance(text, str) or text[:1] != "Q" or not 2 <= len(text) <= _MAX_ID:
        return 0
    digits = text[1:]
    if not (digits.isascii() and digits.isdecimal()) or digits[0] == "0":
        return 0
    number = int(digits)
    return number if number <= _MAX_NUMBER else 0
