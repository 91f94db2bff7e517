"""Semantic types of UMLS (`umls_semantic_types.tsv`): names, tree numbers and groups, and those that a user names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

from pearl_qdrant.errors import SettingsError

SHIPPED = "umls_semantic_types.tsv"

_N_NEAR = 3


@dataclass(frozen=True, slots=True)
class SemanticType:
    """One semantic type.

    Attributes:
        tui: Such as ``T047``.
        name: Such as ``Disease or Syndrome``.
        tree_number: Such as ``B2.2.1.2.1``; empty if unknown.
        group: Such as ``DISO``; empty if unknown.
        group_name: Such as ``Disorders``.
    """

    tui: str
    name: str = ""
    tree_number: str = ""
    group: str = ""
    group_name: str = ""

    def kb_types(self) -> Iterator[str]:
        """Native types of an entity of this type: TUI, name, tree number and those above it, group."""
        yield self.tui
        if self.name:
            yield self.name
        yield from tree_prefixes(self.tree_number)
        if self.group:
            yield self.group


def tree_prefixes(number: str) -> Iterator[str]:
    """A tree number and all those above it, lowest first: ``B2.2`` gives B2.2, B2, B."""
    while number:
        yield number
        head, dot, _ = number.rpartition(".")
        number = head if dot else number[:1] if len(number) > 1 else ""


class SemanticTypes:
    """The table of semantic types, by TUI."""

    def __init__(self, types: Iterable[SemanticType]) -> None:
        self._types = {found.tui: found for found in types}

    @classmethod
    @lru_cache(maxsize=1)
    def load(cls) -> SemanticTypes:
        """The table that ships."""
        text = resources.files("ingest.readers").joinpath(SHIPPED).read_text(encoding="utf-8")
        return cls(SemanticType(*line.split("\t")) for line in text.splitlines() if not line.startswith("#"))

    def get(self, tui: str, *, name: str = "", tree_number: str = "") -> SemanticType:
        """A type by its TUI; one that is not in the table is made from the arguments."""
        return self._types.get(tui) or SemanticType(tui, name, tree_number)

    def resolve(self, wanted: Iterable[str]) -> frozenset[str]:
        """The requested types, as values of `SemanticType.kb_types`.

        Args:
            wanted: TUIs, type names, tree numbers, groups or their names; case does not matter.

        Raises:
            SettingsError: If one of them is unknown; lists similar ones.
        """
        known: dict[str, str] = {}
        for found in self._types.values():
            # Points have the abbreviation of a group as a type, not its name.
            for spelling in (*found.kb_types(), found.group):
                known.setdefault(spelling.casefold(), spelling)
        for found in self._types.values():
            known.setdefault(found.group_name.casefold(), found.group)
        known.pop("", None)
        return frozenset(known[_check(text.strip().casefold(), text, known)] for text in wanted)


def _check(folded: str, text: str, known: dict[str, str]) -> str:
    """The folded spelling, after a check that it is known."""
    if folded in known:
        return folded
    near = difflib.get_close_matches(folded, known, n=_N_NEAR, cutoff=0.5)
    near += [spelling for spelling in known if folded and folded in spelling and spelling not in near][:_N_NEAR]
    advice = f"Similar ones: {', '.join(known[spelling] for spelling in near)}. " if near else ""
    raise SettingsError(
        f"'{text}' is not a semantic type of UMLS. {advice}"
        "Give a TUI (T047), a type's name (Disease or Syndrome), a tree number (B2.2.1.2) or a group (DISO, Disorders)"
    )
