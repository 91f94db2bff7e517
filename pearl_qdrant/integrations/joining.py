"""Joins two tables by names: which rows belong together, whatever library the tables are of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Literal, NamedTuple, TypedDict, TypeVar

from pearl_qdrant.integrations.metadata import as_text, find_column
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.records import Entity
from pearl_qdrant.settings import DEFAULT_DEVICE, DEFAULT_LIMIT, DEFAULT_MODEL, DEFAULT_THRESHOLD

S = TypeVar("S")
T = TypeVar("T")

How = Literal["left", "inner"]

MATCH = "match_probability"  # The column of `fuzzy_join` with the probability that the values of a row mean the same


@dataclass(frozen=True, slots=True)
class JoinOptions:
    """How `fuzzy_join` joins two tables.

    Attributes:
        on: The column of both tables with the keys; or `left_on` and `right_on`, one of each.
        properties: Columns of the left table that say which row is meant, by those of the right one: {"city": "town"}.
        one_to_one: Whether no row of either table is in two matches; the most probable ones go first.
        how: "left" or "inner".
        threshold: Least probability of a match; default is the linker's.
        model, device: The encoder.

    Raises:
        ValueError: If the columns are not named, or `how` is something else.
    """

    on: str | None = None
    left_on: str | None = None
    right_on: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    one_to_one: bool = False
    how: How = "left"
    threshold: float | None = None
    model: str | None = None
    device: str = DEFAULT_DEVICE

    def __post_init__(self) -> None:
        if self.how not in ("left", "inner"):
            raise ValueError(f"how is 'left' or 'inner', not {self.how!r}")
        if not (self.left_on or self.on) or not (self.right_on or self.on):
            raise ValueError("name the columns to join: on, or left_on and right_on")

    def columns(self, left: Iterable[S], right: Iterable[T]) -> tuple[list[S], list[T]]:
        """The labels of the columns with the keys, and of those beside them. Raises OptionError as `find_column`."""
        ours, theirs = list(left), list(right)
        keys = (
            find_column(self.left_on or self.on or "", ours, option="left_on"),
            find_column(self.right_on or self.on or "", theirs, option="right_on"),
        )
        beside = [find_column(one, ours, option="properties") for one in self.properties.values()]
        return [keys[0], *beside], [
            keys[1],
            *(find_column(one, theirs, option="properties") for one in self.properties),
        ]


class JoinKeywords(TypedDict, total=False):
    """The fields of `JoinOptions` as keyword arguments."""

    on: str | None
    left_on: str | None
    right_on: str | None
    properties: Mapping[str, str]
    one_to_one: bool
    how: How
    threshold: float | None
    model: str | None
    device: str


class Matches(NamedTuple):
    """Which rows of two tables belong together: those of one key. A row without a key matches none."""

    left: list[int | None]
    probabilities: list[float | None]
    right: list[int | None]


_Row = tuple[str, ...]  # The text of a key, and of the cells beside it


def match_rows(left: Sequence[Sequence[object]], right: Sequence[Sequence[object]], options: JoinOptions) -> Matches:
    """The matches of the rows of two tables, by columns of cells: those of the keys first, then those beside them. The
    distinct rows of the right side become a collection in memory.
    """
    ours, theirs = _rows(left), _rows(right)
    known = {row: number for number, row in enumerate(dict.fromkeys(row for row in theirs if row))}
    found = _candidates(list(dict.fromkeys(row for row in ours if row)), list(known), options)
    numbers = [None if row is None else known[row] for row in theirs]
    if options.one_to_one:
        least = DEFAULT_THRESHOLD if options.threshold is None else options.threshold
        return match_once([found.get(row, []) if row else [] for row in ours], numbers, least=least)
    best = [found[row][0] if row and found.get(row) else (None, None) for row in ours]
    return Matches([key for key, _ in best], [one for _, one in best], numbers)


def _rows(columns: Sequence[Sequence[object]]) -> list[_Row | None]:
    """The rows of a table; None where the key is null or blank."""
    texts = zip(*([as_text(cell) or "" for cell in cells] for cells in columns), strict=True)
    return [row if row[0] else None for row in texts]


_Candidates = list[tuple[int, float]]  # Numbers of rows of the right side, with their probabilities, best first


def _candidates(wanted: Sequence[_Row], known: Sequence[_Row], options: JoinOptions) -> dict[_Row, _Candidates]:
    """The rows of the right side that those of the left one may be, where the best one is probable enough."""
    same = {} if options.properties else {row: number for number, row in enumerate(known)}
    found: dict[_Row, _Candidates] = {row: [(same[row], 1.0)] for row in wanted if row in same}
    missing = [row for row in wanted if row not in same]
    if not known or not missing:
        return found
    names = [f"column_{i}" for i in range(len(options.properties))]
    entities = [
        Entity(f"{i}", name, extra={one: cell for one, cell in zip(names, cells, strict=True) if cell})
        for i, (name, *cells) in enumerate(known)
    ]
    with EntityLinker.build(entities, model=options.model or DEFAULT_MODEL, device=options.device) as linker:
        held = linker.state.statistics.columns()  # a column without a value in the right table says nothing
        given = {one: [row[i] for row in missing] for i, one in enumerate(names, 1) if one in held}
        mentions, limit = [row[0] for row in missing], DEFAULT_LIMIT if options.one_to_one else None
        links = linker.link_batch(mentions, threshold=options.threshold, properties=given, limit=limit)
        for row, link in zip(missing, links, strict=True):
            if link.entity_id is not None:
                found[row] = [(int(one.entity_id), one.probability or 0.0) for one in link.candidates]
    return found


def match_once(ours: Sequence[_Candidates], theirs: Sequence[int | None], *, least: float) -> Matches:
    """Matches in which no row is twice, the most probable ones first. A candidate that a row loses to another one makes
    its next one more probable, which then has at least the probability `least`.
    """
    free: dict[int, list[int]] = {}
    for place, number in enumerate(theirs):
        if number is not None:
            free.setdefault(number, []).append(place)
    left: list[int | None] = [None] * len(ours)
    probabilities: list[float | None] = [None] * len(ours)
    waiting = [(-found[0][1], place, found) for place, found in enumerate(ours) if found]
    heapify(waiting)
    while waiting:
        negative, place, ((number, _), *others) = heappop(waiting)
        if free[number]:
            left[place], probabilities[place] = free[number].pop(0), -negative
        elif others and (rest := 1 + negative) > 0 and others[0][1] / rest >= least:
            heappush(waiting, (-others[0][1] / rest, place, [(one, p / rest) for one, p in others]))
    return Matches(left, probabilities, [None if number is None else place for place, number in enumerate(theirs)])
