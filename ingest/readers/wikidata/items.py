"""Items of Wikidata, as its dump gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

INSTANCE_OF = "P31"
SUBCLASS_OF = "P279"

MULTILINGUAL = "mul"
"""The language code of names that are the same in all languages; many items have no other label."""
FALLBACK = "en"

NOT_AN_ITEM = "not_an_item"

MAX_LINKS = 64
"""Links kept of an item, those of its first properties."""


@dataclass(slots=True)
class Item:
    """An item of a dump, in the needed languages.

    Attributes:
        id: Such as Q42.
        line: Number of its (first) line.
        labels: By language.
        aliases: By language.
        descriptions: By language.
        classes: Numbers of its classes (P31), from statements of the best rank.
        superclasses: Numbers of its parent classes (P279), in the same way.
        sitelinks: Pages about it in the Wikimedia projects; None if the dump does not have them.
        links: Items that its statements name, of the best rank of each property; empty unless requested.
    """

    id: str
    line: int
    labels: Mapping[str, str] = field(default_factory=dict)
    aliases: Mapping[str, Sequence[str]] = field(default_factory=dict)
    descriptions: Mapping[str, str] = field(default_factory=dict)
    classes: tuple[int, ...] = ()
    superclasses: tuple[int, ...] = ()
    sitelinks: int | None = None
    links: tuple[int, ...] = ()


def languages_in_order(wanted: Sequence[str]) -> tuple[str, ...]:
    """The requested languages, then the fallbacks; labels are taken in this order."""
    return tuple(dict.fromkeys((*wanted, MULTILINGUAL, FALLBACK)))
