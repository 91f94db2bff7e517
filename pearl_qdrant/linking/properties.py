"""The other columns of a row as evidence: which of the candidates of its name they fit.

    row  ->  levels of agreement of each candidate's values (`values`)  ->  logits  ->  added to the candidate's odds

A level counts by how much more often the right entity agrees so well than another one does:

    column = weight(kind) * log(right(level) / other(level))    times `against` where it speaks against
    logit = log((1 - astray) * exp(sum of columns) + astray)    `astray`: rows whose columns are of others

`right` starts as what labelled lists say (`properties.json`, fitted by `runs/properties.py`), and follows the rows of
the list itself, without labels: each candidate counts by its probability by the name and the other columns. So a
column of another thing, or a shuffled one, adds nothing. `other` is how often two entities of the base agree, how
many have this very value, and how well the other candidates of the row agree; the nearer a candidate is by its name,
the more it is how often candidates of one name agree with each other, since what follows from the name says nothing
more. What is missing on either side says nothing; a row without evidence keeps its link as it is.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from itertools import combinations, islice, zip_longest
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from pearl_qdrant.cells import is_null, split_list, text_of
from pearl_qdrant.errors import OptionError
from pearl_qdrant.linking.columns import ALIASES, of_candidates, with_names
from pearl_qdrant.linking.options import LinkOptions
from pearl_qdrant.linking.outcomes import as_nil, linked_to
from pearl_qdrant.linking.values import DIFFERENT, EQUAL, LEVELS, MOST_CHARACTERS, SAMPLED, BaseColumn, Kind
from pearl_qdrant.pieces import pausing
from pearl_qdrant.records import NO_SINGLE_NAME, Candidate, Link, NilReason

if TYPE_CHECKING:
    from pearl_qdrant.linking.state import LinkerState

FloatArray = npt.NDArray[np.float64]
Row = Mapping[str, Sequence[str]]
"""The values of a row, by the property of the base; without one where nothing is known."""

CANDIDATES, MOST_CANDIDATES = 20, 50
"""Candidates of a name that are compared; the second of one with so many namesakes that there may be more."""

CROWDED = 0.001  # A name has more namesakes than were asked for if the last candidate is still this probable
ROWS = 1000  # of a list that are read before the first is answered; what earlier ones said of a column counts, too

COUNTED_AS = 10.0  # How often labelled lists saw entities agree counts as much as so many pairs of the base
LEAST_CHANCE = 1e-3
NEAREST, LEAST_PAIR = 6, 1e-4  # candidates of a row that are compared with each other, and the least weight of a pair
HIGHEST = math.log(1000)  # logits of all columns together, since they may say the same thing twice
ROUNDS = 5  # in which candidates and columns are weighed by turns
_TIE = 1e-9


@dataclass(frozen=True, slots=True)
class Weights:
    """What was fitted.

    Attributes:
        right, other: How often the right entity, and another one, agrees at each level, by kind of value.
        weight: Of the logits of a kind.
        against: Of logits below 0.
        astray: Share of rows whose columns are of another entity.
        rows: Labelled rows that `right` counts as, beside those of the list.
        local: As how many candidates the base counts, beside those of the row.
        near: Power of its probability by the name to which a candidate is another entity of a near name.
        least: Least probability of a candidate by its name.
        least_nil: The same of NIL.
    """

    right: Mapping[Kind, Sequence[float]]
    other: Mapping[Kind, Sequence[float]]
    weight: Mapping[Kind, float]
    against: float
    astray: float
    rows: float
    local: float
    near: float
    least: float
    least_nil: float


@lru_cache(maxsize=1)
def shipped_weights() -> Weights:
    """The weights that come with this package."""
    return Weights(**json.loads(files("pearl_qdrant.linking").joinpath("properties.json").read_text("utf-8")))


@dataclass(frozen=True, slots=True)
class ComparedRows:
    """Rows beside their candidates.

    Attributes:
        probabilities: By the name, (n, k); 0 where there is no candidate.
        levels: Of each column, (n, k, c); -1 where nothing is known.
        chances: How often another entity of the base agrees at each level, (n, c, `LEVELS`).
        near: Pairs of candidates of a row that agree at each level, by the product of their probabilities,
            (c, `LEVELS`).
    """

    probabilities: FloatArray
    levels: npt.NDArray[np.int64]
    chances: FloatArray
    near: FloatArray

    def other(self, local: float) -> FloatArray:
        """How often another entity agrees, (n, c, `LEVELS`), by the base and, beside it, by the row's candidates."""
        wrong = np.maximum(0.0, 1 - self.probabilities)
        of_row = np.stack([np.einsum("nkc,nk->nc", self.levels == level, wrong) for level in range(LEVELS)], axis=2)
        found: FloatArray = (self.chances * local + of_row) / (local + of_row.sum(axis=2, keepdims=True))
        return np.maximum(found, LEAST_CHANCE)


def compare_rows(
    rows: Sequence[Row],
    probabilities: Sequence[Sequence[float]],
    has: Sequence[Sequence[Row]],
    columns: Mapping[str, BaseColumn],
    weights: Weights,
) -> ComparedRows:
    """Compare the values of rows with those of their candidates, each by property."""
    shape = len(rows), max(1, *map(len, probabilities)) if probabilities else 1
    by_name, levels = np.zeros(shape), np.full((*shape, len(columns)), -1)
    chances, near = np.full((len(rows), len(columns), LEVELS), 1 / LEVELS), np.zeros((len(columns), LEVELS))
    for i, row in enumerate(pausing(rows)):
        by_name[i, : len(probabilities[i])] = probabilities[i]
        some = sorted(zip(probabilities[i], has[i], strict=False), key=lambda one: -one[0])[:NEAREST]
        pairs = [(p * q, one, two) for (p, one), (q, two) in combinations(some, 2) if p * q >= LEAST_PAIR]
        for c, (name, column) in enumerate(columns.items()):
            if given := row.get(name, ()):
                found = [column.level(given, one.get(name, ())) for one in has[i]]
                levels[i, : len(found), c] = [-1 if level is None else level for level in found]
                chances[i, c] = _chances(column, given, weights)
            for weight, one, two in pairs:
                if (level := column.level(one.get(name, ()), two.get(name, ()))) is not None:
                    near[c, level] += weight
    return ComparedRows(by_name, levels, chances, near)


def _chances(column: BaseColumn, given: Sequence[str], weights: Weights) -> FloatArray:
    """How often an entity of the base agrees with some values at each level, (`LEVELS`,)."""
    sampled = min(column.n, SAMPLED)
    pairs = sampled * (sampled - 1) / 2
    usual = (np.array(column.other) * pairs + COUNTED_AS * np.array(weights.other[column.kind])) / (pairs + COUNTED_AS)
    equal = (column.how_many(given) + COUNTED_AS * usual[EQUAL]) / (column.n + COUNTED_AS)
    chances: FloatArray = usual * (1 - equal) / (1 - usual[EQUAL])
    chances[EQUAL] = equal
    return chances


class Evidence:
    """Weighs columns by how the right entities of a list agree with them. It knows more with each `learn`."""

    def __init__(self, columns: Mapping[str, BaseColumn], weights: Weights | None = None) -> None:
        self.columns = dict(columns)
        self.weights = weights or shipped_weights()
        kinds = [column.kind for column in columns.values()]
        self._weight = np.array([self.weights.weight[kind] for kind in kinds])
        self._counts = np.array([self.weights.right[kind] for kind in kinds]).reshape(-1, LEVELS) * self.weights.rows
        self._near = np.zeros_like(self._counts)

    @property
    def right(self) -> FloatArray:
        """How often the right entity agrees at each level, (c, `LEVELS`)."""
        return _shares(self._counts)

    def learn(self, rows: ComparedRows) -> None:
        """Estimate from rows without labels how often the right entity agrees."""
        self._near = self._near + rows.near
        other, counts, astray = self._other(rows), self._counts, self.weights.astray
        for _ in range(ROUNDS):
            logits = self._logits(rows, _shares(counts), other)
            others = np.moveaxis(logits.sum(axis=2, keepdims=True) - logits, 2, 0)  # a column does not confirm itself
            own = [self.updated(rows.probabilities, _mixed(one, astray)) * _own(one, astray) for one in others]
            found = [
                np.where(rows.levels == level, np.stack(own, axis=2), 0.0).sum(axis=(0, 1)) for level in range(LEVELS)
            ]
            counts = self._counts + np.stack(found, axis=1)
        self._counts = counts

    def logits(self, rows: ComparedRows) -> FloatArray:
        """What the columns add to the logit of each candidate, (n, k)."""
        found = self._logits(rows, self.right, self._other(rows))
        return np.where((rows.levels >= 0).any(axis=2), _mixed(found.sum(axis=2), self.weights.astray), 0.0)

    def _other(self, rows: ComparedRows) -> FloatArray:
        """How often another entity that is as near by its name agrees as each candidate does, (n, k, c)."""
        near = _shares(rows.chances * COUNTED_AS + self._near)
        far, near = (_at_levels(rows, one[:, None]) for one in (rows.other(self.weights.local), near))
        found: FloatArray = far + (near - far) * rows.probabilities[..., None] ** self.weights.near
        return np.maximum(found, LEAST_CHANCE)

    def _logits(self, rows: ComparedRows, right: FloatArray, other: FloatArray) -> FloatArray:
        """What each column adds, (n, k, c)."""
        found = np.log(_at_levels(rows, np.maximum(right, LEAST_CHANCE)) / other)
        is_equal = rows.levels == EQUAL
        found = np.where(is_equal, np.maximum(found, 0.0), found)  # a value that most have is no contradiction
        weight = np.where(is_equal, np.maximum(self._weight, 1.0), self._weight)  # no weaker for what is only alike
        found = np.where(found > 0, found, found * self.weights.against) * weight
        return np.where(rows.levels >= 0, found, 0.0)

    def updated(self, probabilities: FloatArray, logits: FloatArray) -> FloatArray:
        """Probabilities by the names, (n, k), with logits added to the odds; what is missing to 1 is that of NIL. Rows
        without evidence stay as they are.
        """
        nil = np.maximum(1 - probabilities.sum(axis=1, keepdims=True), self.weights.least_nil)
        is_there = probabilities > 0
        odds = np.where(is_there, np.maximum(probabilities, self.weights.least) * np.exp(logits), 0.0)
        updated = odds / (nil + odds.sum(axis=1, keepdims=True))
        return np.where(logits.any(axis=1, keepdims=True), updated, probabilities)


def _at_levels(rows: ComparedRows, of_levels: FloatArray) -> FloatArray:
    """What belongs to the level of each candidate's columns, (n, k, c)."""
    at = np.maximum(rows.levels, 0)[..., None]
    found: FloatArray = np.take_along_axis(np.broadcast_to(of_levels, (*at.shape[:3], LEVELS)), at, axis=3)[..., 0]
    return found


def _shares(counts: FloatArray) -> FloatArray:
    shares: FloatArray = counts / counts.sum(axis=-1, keepdims=True)
    return shares


def _mixed(logits: FloatArray, astray: float) -> FloatArray:
    """The logits of the columns of rows, some of which are astray."""
    mixed: FloatArray = np.log((1 - astray) * np.exp(np.minimum(logits, HIGHEST)) + astray)
    return mixed


def _own(logits: FloatArray, astray: float) -> FloatArray:
    """The probability that the columns are of the candidate, if it is the right one."""
    odds = (1 - astray) * np.exp(np.minimum(logits, HIGHEST))
    own: FloatArray = odds / (odds + astray)
    return own


def values_of(cell: Any) -> tuple[str, ...]:
    """The values of a cell: none, one, or several, in a list or joined by bars."""
    if isinstance(cell, str):
        return split_list(cell[:MOST_CHARACTERS])
    if isinstance(cell, (list, tuple, set, frozenset)) or getattr(cell, "ndim", 0) == 1:
        return tuple(value for one in cell for value in values_of(one))
    return () if is_null(cell) else (text_of(cell),)


def read_rows(mentions: Iterable[str], properties: Mapping[str, Iterable[object]]) -> Iterator[tuple[str, Row]]:
    """Mentions with the values beside them. Raises OptionError if a column has fewer or more cells than mentions."""
    names, end = list(properties), object()
    for place, (mention, *cells) in enumerate(zip_longest(mentions, *properties.values(), fillvalue=end)):
        if short := [name for name, cell in zip(names, cells, strict=True) if cell is end]:
            raise OptionError("properties", f"The column {short[0]!r} has {place:,} values, fewer than mentions.")
        if mention is end:
            raise OptionError("properties", f"There are {place:,} mentions, fewer than values of a column.")
        row = {name: values_of(cell) for name, cell in zip(names, cells, strict=True)}
        yield cast("str", mention), {name: values for name, values in row.items() if values}


def check_columns(state: LinkerState, names: Iterable[str]) -> dict[str, BaseColumn]:
    """The columns of the base with some names. Raises OptionError if it has none of a name."""
    known = state.statistics.columns()
    for name in names:
        if name not in known:
            there = f"it has: {', '.join(sorted(known))}" if known else "it has none"
            raise OptionError("properties", f"The base has no property {name!r}; {there}")
    return {name: known[name] for name in names}


def wider(options: LinkOptions, limit: int = CANDIDATES) -> LinkOptions:
    """The options with as many candidates as are compared."""
    return options.updated(limit=max(options.most_candidates, limit))


def is_crowded(link: Link, limit: int) -> bool:
    """Whether there may be more entities of the name than the candidates."""
    last = link.candidates[-1].probability if link.candidates else 0.0
    return len(link.candidates) == limit < MOST_CANDIDATES and (last or 0.0) >= CROWDED


def link_rows(
    state: LinkerState,
    rows: Iterable[tuple[str, Row]],
    names: Sequence[str],
    options: LinkOptions,
    link: Callable[[Sequence[str], LinkOptions], Iterable[Link]],
) -> Iterator[Link]:
    """The links of mentions with the properties of each. `link` links mentions alone. Raises as `check_columns`."""
    return _link_rows(state, iter(rows), Evidence(check_columns(state, names)), options, link)


def linked_rows(
    state: LinkerState, links: Sequence[Link], rows: Sequence[Row], names: Sequence[str], options: LinkOptions
) -> Iterator[Link]:
    """`link_rows` of mentions that are linked alone already."""
    return weighed(state, links, rows, Evidence(check_columns(state, names)), options)


def _link_rows(
    state: LinkerState,
    rows: Iterator[tuple[str, Row]],
    evidence: Evidence,
    options: LinkOptions,
    link: Callable[[Sequence[str], LinkOptions], Iterable[Link]],
) -> Iterator[Link]:
    while window := list(islice(rows, ROWS)):
        links = _widely(window, options, link)
        yield from weighed(state, links, [row for _, row in window], evidence, options)


def _widely(
    rows: Sequence[tuple[str, Row]], options: LinkOptions, link: Callable[[Sequence[str], LinkOptions], Iterable[Link]]
) -> list[Link]:
    """The links of names alone, with as many candidates as are compared."""
    asked = wider(options)
    links = list(link([mention for mention, _ in rows], asked))
    crowded = [i for i, one in enumerate(links) if any(rows[i][1].values()) and is_crowded(one, asked.limit or 0)]
    again = link([rows[i][0] for i in crowded], wider(options, MOST_CANDIDATES)) if crowded else ()
    for i, one in zip(crowded, again, strict=True):
        links[i] = one
    return links


def link_rows_once(state: LinkerState, rows: Sequence[tuple[str, Row]], options: LinkOptions) -> list[Link]:
    """The links of rows that are no list, each of which has its own columns: no row says how well a column agrees."""
    columns = check_columns(state, dict.fromkeys(name for _, row in rows for name in row))
    links = _widely(rows, options, state.links)
    return list(weighed(state, links, [row for _, row in rows], Evidence(columns), options, is_list=False))


def weighed(
    state: LinkerState,
    links: Sequence[Link],
    rows: Sequence[Row],
    evidence: Evidence,
    options: LinkOptions,
    *,
    is_list: bool = True,
) -> Iterator[Link]:
    """The links of names with the evidence of each row. Of a list, the evidence learns how well its columns agree."""
    options = options.updated(threshold=state.threshold_of(options))
    near = [one for link, row in zip(links, rows, strict=True) if row for one in link.candidates]
    columns = of_candidates(state.collections, near) if near else {}
    if ALIASES in evidence.columns:
        ids = [
            one.entity_id for link, row in zip(links, rows, strict=True) if row.get(ALIASES) for one in link.candidates
        ]
        named = with_names(state.collections, ids)
        columns |= {(one.point.kb, one.point.entity_id): one for one in named.values()}
    values = {key: {name: one.values(name) for name in evidence.columns} for key, one in columns.items()}
    has = [
        [values.get((one.kb, one.entity_id), {}) for one in link.candidates if row]
        for link, row in zip(links, rows, strict=True)
    ]
    probabilities = [[one.probability or 0.0 for one in link.candidates] for link in links]
    compared = compare_rows(rows, probabilities, has, evidence.columns, evidence.weights)
    if is_list and len(links) > 1:
        evidence.learn(compared)
    logits = evidence.logits(compared)
    updated = evidence.updated(compared.probabilities, logits)
    for i, link in enumerate(links):
        if (compared.levels[i] < 0).all() or link.nil_reason in NO_SINGLE_NAME:
            yield _cut(link, options.most_candidates)
            continue
        found = []
        for candidate, probability, logit, levels in zip(
            link.candidates, updated[i].tolist(), logits[i].tolist(), compared.levels[i].tolist(), strict=False
        ):
            agreement = {
                name: 1 - level / DIFFERENT for name, level in zip(evidence.columns, levels, strict=True) if level >= 0
            }
            score = candidate.score + logit
            found.append(replace(candidate, probability=probability, score=score, properties=agreement))
        yield decided(link, found, options)


def _cut(link: Link, limit: int) -> Link:
    return replace(link, candidates=link.candidates[:limit], parts=tuple(_cut(one, limit) for one in link.parts))


def decided(link: Link, candidates: Sequence[Candidate], options: LinkOptions) -> Link:
    """The link to the most probable candidate, or NIL; as `ranking.scoring.decide` decides. What a row says of
    namesakes separates them.
    """
    threshold = options.threshold or 0.0
    most = max(one.probability or 0.0 for one in candidates)
    ties = [most - (one.probability or 0.0) <= _TIE for one in candidates]
    found = [replace(one, tie=tie and sum(ties) > 1) for one, tie in zip(candidates, ties, strict=True)]
    found.sort(key=lambda one: (not one.tie, -(one.probability or 0.0)))
    first = found[0]
    same = [one.probability or 0.0 for one in found if one.name.casefold() == first.name.casefold()]
    reason: NilReason | None = None
    if math.fsum(same) < threshold:
        reason = NilReason.BELOW_THRESHOLD
    elif options.on_tie != "first" and (first.tie or most < threshold):
        reason = NilReason.AMBIGUOUS
    changed = as_nil(link, reason) if reason else linked_to(link, first)
    is_same = (changed.kb, changed.entity_id) == (link.kb, link.entity_id)
    rule = link.rule if is_same else "properties"
    return replace(changed, candidates=tuple(found[: options.most_candidates]), rule=rule)
