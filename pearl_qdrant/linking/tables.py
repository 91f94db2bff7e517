"""A table as a whole: which column has names of the base, of which type most of them are, and how many it has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from pearl_qdrant.cells import is_null, text_of
from pearl_qdrant.errors import OptionError
from pearl_qdrant.linking.options import LinkOptions
from pearl_qdrant.linking.values import is_missing, kind_of
from pearl_qdrant.phrase_types import ENTITY_TYPES
from pearl_qdrant.store.schema import NamePoint

if TYPE_CHECKING:
    from pearl_qdrant.linking.state import LinkerState

ROWS = 500  # of a table that are read
_LONGEST = 100  # characters of a name
_OF_TYPE = 0.8  # share of the names that have the type of a column
_LEAST_NAMES = 5  # known names from which a column has a type


@dataclass(frozen=True, slots=True)
class NameColumn:
    """The column of a table that has names of the base.

    Attributes:
        name: Of the column.
        type: The rarest type of the base that most of its names have; None without one.
        known: Different values that are names of the base by their keys, as they stand.
        read: Different values that were read.
    """

    name: str
    type: str | None
    known: int
    read: int

    def __str__(self) -> str:
        of_type = f", most of type {self.type}" if self.type else ""
        return f"Names are in column {self.name!r}: {self.known:,} of {self.read:,} values are in the base{of_type}."

    def preferring(self, options: LinkOptions) -> LinkOptions:
        """Options that prefer entities of the type, unless types are asked for."""
        if self.type is None or options.types or options.type_mode == "off":
            return options
        return options.updated(types=(self.type,), type_mode="soft")


def find_names(state: LinkerState, table: Mapping[str, Iterable[object]]) -> NameColumn:
    """Guess which column of a table has the names, by its first `ROWS` cells: the one with the most different names of
    the base, without any the one with the most different texts. Columns of numbers, dates and codes have none. Raises
    OptionError if no column has text.
    """
    texts = {name: found for name, cells in table.items() if (found := _texts(cells))}
    if not texts:
        raise OptionError("column", f"No column of the table has names; it has: {', '.join(table)}")
    known = state.points_spelled(list(dict.fromkeys(one for found in texts.values() for one in found)), n_keys=3)
    counts = {name: (sum(one in known for one in found), len(found)) for name, found in texts.items()}
    best = max(counts, key=lambda name: counts[name])
    named = [known[one] for one in texts[best] if one in known]
    return NameColumn(best, _type_of(state, named), *counts[best])


def _texts(cells: Iterable[object]) -> list[str]:
    """The different texts of a column; none if it holds something else."""
    some = [text_of(cell).strip() for cell in islice(cells, ROWS) if not is_null(cell)]
    texts = list(dict.fromkeys(one for one in some if not is_missing(one) and len(one) <= _LONGEST))
    has_letters = sum(any(map(str.isalpha, one)) for one in texts) > len(texts) / 2
    return texts if has_letters and kind_of(texts) == "text" else []


def _type_of(state: LinkerState, named: Sequence[Sequence[NamePoint]]) -> str | None:
    """The type that most names have, each by one of its entities; of several the one that is rarest in the base."""
    if len(named) < _LEAST_NAMES:
        return None
    counts = Counter(one for points in named for one in {one for point in points for one in point.filter_types})
    common = [one for one, n in counts.items() if n >= _OF_TYPE * len(named)]
    in_base = state.statistics.type_counts()
    return min(common, key=lambda one: (in_base.get(one, 0), one in ENTITY_TYPES, one), default=None)
