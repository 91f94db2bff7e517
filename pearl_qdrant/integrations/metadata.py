"""What connectors share: plain values to write beside a document, and values of columns that are linked once each."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict, TypeVar

from pearl_qdrant.cells import is_null, join_list, text_of
from pearl_qdrant.errors import OptionError
from pearl_qdrant.linking.asking import asking_of
from pearl_qdrant.linking.options import LinkOptions
from pearl_qdrant.linking.tables import find_names
from pearl_qdrant.records import Entity
from pearl_qdrant.settings import DEFAULT_DEVICE, DEFAULT_LIMIT, DEFAULT_MODEL, DEFAULT_THRESHOLD

if TYPE_CHECKING:
    from pearl_qdrant.linking.linker import EntityLinker
    from pearl_qdrant.records import Annotation, Candidate, Link

log = logging.getLogger(__name__)

ENTITY_IDS = "entity_ids"
"""The key with the ids of a document's entities, each once, in the order of their first mention."""

ENTITY_NAMES = "entity_names"  # The key with their canonical names, in the same order
MENTIONS = "entity_mentions"  # The key with every mention as a dictionary, as of `mention_metadata`


def document_metadata(
    annotations: Iterable[Annotation], *, mentions: bool = False, existing: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What to store with a document: `ENTITY_IDS` and `ENTITY_NAMES` of its annotations; with `mentions` also
    `MENTIONS`. What another tagger wrote into `existing` stays, before the found ones.
    """
    linked = [one for one in annotations if one.link.entity_id is not None]
    before = existing or {}
    names = dict(zip(before.get(ENTITY_IDS, ()), chain(before.get(ENTITY_NAMES, ()), repeat("")), strict=False))
    for one in linked:
        names.setdefault(str(one.link.entity_id), str(one.link.canonical_name))
    found: dict[str, Any] = {ENTITY_IDS: list(names), ENTITY_NAMES: list(names.values())}
    if mentions:
        earlier = list(before.get(MENTIONS, ()))
        found[MENTIONS] = [*earlier, *(one for one in map(mention_metadata, linked) if one not in earlier)]
    return found


def mention_metadata(annotation: Annotation) -> dict[str, Any]:
    """A mention of a text as plain values."""
    place = {name: getattr(annotation, name) for name in ("text", "start", "end")}
    of_link = {name: getattr(annotation.link, name) for name in ("entity_id", "kb", "canonical_name", "probability")}
    return {**place, **of_link, "assertion": annotation.assertion}


def candidate_metadata(candidate: Candidate) -> dict[str, Any]:
    """A candidate as plain values; what the base does not say is left out."""
    found = {name: types_of(candidate) if name == "types" else getattr(candidate, name) for name in _OF_CANDIDATE}
    return {key: value for key, value in found.items() if value is not None}


_OF_CANDIDATE = (
    *("entity_id", "kb", "canonical_name", "name", "types", "probability"),
    *("score", "dense_score", "lexical_score", "description", "popularity"),
)


def candidate_text(candidate: Candidate) -> str:
    """A candidate as a text to read: its canonical name, and its description where the base has one."""
    return ": ".join(part for part in (candidate.canonical_name, candidate.description) if part)


def types_of(candidate: Candidate) -> list[str]:
    """Coarse and native types, each once."""
    return list(dict.fromkeys([*candidate.types, *candidate.kb_types]))


S = TypeVar("S")
T = TypeVar("T")

Field = Literal["entity_id", "canonical_name", "probability", "nil_reason", "kb"]
How = Literal["left", "inner"]

DEFAULT_FIELDS: tuple[Field, ...] = ("entity_id", "canonical_name", "probability")
"""Columns that are added for a linked one."""

FIELDS: tuple[Field, ...] = (*DEFAULT_FIELDS, "nil_reason", "kb")  # Columns that can be added
MATCH = "match_probability"  # The column of `fuzzy_join` with the probability that the values of a row mean the same
MOST_KEPT = 200_000  # Values whose links are remembered between the batches of a table that is read piece by piece


@dataclass(slots=True)
class ColumnLinker:
    """Links values of a column, each distinct one once, with those of `properties` beside it; `known` has the links so
    far.
    """

    linker: EntityLinker
    options: LinkOptions
    properties: Sequence[str] = ()
    known: dict[tuple[str, ...], Link] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.options.judge is not None:
            self.options = self.options.updated(judge=asking_of(self.options.judge))  # one for all batches

    def links(self, values: Iterable[object], beside: Sequence[Iterable[object]] = ()) -> list[Link | None]:
        """The links of values, in order; None for null and blank ones. Numbers and dates are linked as their text.
        `beside` has a column for each of the properties.
        """
        cells = [[as_text(value) or "" for value in column] for column in beside]
        rows = [
            None if not text else (text, *others) for text, *others in zip(map(as_text, values), *cells, strict=True)
        ]
        missing = [row for row in dict.fromkeys(rows) if row is not None and row not in self.known]
        if len(self.known) + len(missing) > MOST_KEPT:
            self.known.clear()
            missing = [row for row in dict.fromkeys(rows) if row is not None]
        if missing:
            given = {name: [row[i] for row in missing] for i, name in enumerate(self.properties, 1)}
            found = self.linker.link_batch([row[0] for row in missing], self.options, properties=given)
            self.known.update(zip(missing, found, strict=True))
        return [None if row is None else self.known[row] for row in rows]

    def columns(
        self, values: Iterable[object], fields: Sequence[Field], beside: Sequence[Iterable[object]] = ()
    ) -> dict[Field, list[Any]]:
        """The fields of the links of values, None where there is no link."""
        links = self.links(values, beside)
        return {name: [None if link is None else value_of(link, name) for link in links] for name in fields}


def name_column(
    linker: EntityLinker, table: Mapping[str, Sequence[object]], options: LinkOptions
) -> tuple[str, LinkOptions]:
    """The column of a table with the names, and options that prefer the type of most; says so first. Raises as
    `linking.tables.find_names`.
    """
    found = find_names(linker.state, table)
    log.warning("%s", found)  # a guess, which people should see
    return found.name, found.preferring(options)


def as_text(value: object) -> str | None:
    """A cell as the string to link; None for null and blank ones."""
    return text if not is_null(value) and (text := text_of(value)).strip() else None


def value_of(link: Link, name: Field) -> Any:
    """A field of a link as a plain value; of a list that was split, those of its names, joined by bars, and the least
    probability.
    """
    if link.parts:
        values = [one for part in link.parts if (one := value_of(part, name)) is not None]
        joined = min if name == "probability" else lambda some: join_list(dict.fromkeys(some))
        return joined(values) if values else None
    value = getattr(link, name)
    return value.value if name == "nil_reason" and value is not None else value


def find_column(column: str, columns: Iterable[T], *, option: str = "column") -> T:
    """The label of a column, which pandas may have as a number. Raises OptionError if the table does not have it, with
    the columns that it has; or has several of the name.
    """
    there = list(columns)
    found = [one for one in there if str(one) == column]
    if not found:
        raise OptionError(option, f"The table has no column {column!r}; it has: {', '.join(map(str, there[:20]))}")
    if len(found) > 1:
        raise OptionError(option, f"The table has {len(found)} columns {column!r}: rename or drop all but one.")
    return found[0]


def check_fields(fields: Sequence[Field]) -> None:
    """Refuse an unknown field. Raises ValueError, which names the known ones."""
    unknown = [name for name in fields if name not in FIELDS]
    if unknown or isinstance(fields, str):
        raise ValueError(f"fields are some of {', '.join(FIELDS)}, not {unknown or fields!r}")


def new_names(column: str, fields: Sequence[Field], columns: Iterable[str], prefix: str | None) -> list[str]:
    """The names of the new columns. Raises OptionError if the table has one of them already."""
    check_fields(fields)
    names = [f"{f'{column}_' if prefix is None else prefix}{name}" for name in fields]
    if taken := sorted({str(one) for one in columns}.intersection(names)):
        raise OptionError("prefix", f"The table has the column {', '.join(taken)} already; choose another prefix.")
    return names


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
    from pearl_qdrant.linking.linker import EntityLinker

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
