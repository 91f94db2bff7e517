"""From queries to candidates with scores: linked by their names, then by their properties."""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from itertools import chain

from rapidfuzz import fuzz

from pearl_qdrant.errors import UnknownTypeError
from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.lexical.words import SMALL_WORDS
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.linking.options import LinkOptions
from pearl_qdrant.pieces import pause
from pearl_qdrant.records import Candidate, Link
from pearl_qdrant.service.collections import CollectionHandle
from pearl_qdrant.service.queues import IsGone
from pearl_qdrant.service.reconcile.properties import ALIASES, Catalogue, EntityColumns, of_candidates, with_names
from pearl_qdrant.service.reconcile.queries import BadQuery, Condition, Query
from pearl_qdrant.settings import DEFAULT_LIMIT

RERANKED = 50  # Candidates of a name that has more namesakes than the limit: as many are told apart by their properties
CROWDED = 0.001  # A name has more namesakes than were asked for if the last candidate is still this probable

_TIE = 1e-9


@dataclass(frozen=True, slots=True)
class Scored:
    """A candidate as linked by the name, its probability with the evidence of the properties, whether it is good enough
    to be chosen without a person, and how well it agrees with each property.
    """

    candidate: Candidate
    probability: float
    is_match: bool
    levels: Sequence[tuple[str, Level]] = ()


Answer = Sequence[Scored] | BadQuery  # The candidates of a query, best first; or why there are none


async def match(
    handle: CollectionHandle, queries: Sequence[Query | BadQuery], catalogue: Catalogue, *, is_gone: IsGone
) -> list[Answer]:
    """The answers of some queries, in their order; those of equal types are linked together."""
    groups: dict[LinkOptions, list[Query]] = {}
    for query in queries:
        if isinstance(query, Query):
            groups.setdefault(_options(query), []).append(query)
    linked = await asyncio.gather(*(_link(handle, group, options, is_gone) for options, group in groups.items()))
    found = dict(zip(chain.from_iterable(groups.values()), chain.from_iterable(linked), strict=True))
    answers: dict[Query, Answer] = {query: one for query, one in found.items() if isinstance(one, BadQuery)}
    links = {query: one for query, one in found.items() if isinstance(one, Link)}
    if any(query.conditions for query in links):
        answers |= await handle.call(lambda linker: _with_evidence(linker, links, catalogue))
    else:
        answers |= {query: _by_name(query, link) for query, link in links.items()}
    return [answers[query] if isinstance(query, Query) else query for query in queries]


def _options(query: Query) -> LinkOptions:
    limit = max(query.limit, DEFAULT_LIMIT) if query.conditions else query.limit
    if query.type_strict == "all":
        limit = max(limit, RERANKED)
    return LinkOptions(query.types, "soft" if query.type_strict == "should" else "hard", limit)


async def _link(
    handle: CollectionHandle, queries: Sequence[Query], options: LinkOptions, is_gone: IsGone
) -> list[Link | BadQuery]:
    """The link of the best name of each query."""
    mentions = [name for query in queries for name in query.names]
    try:
        links = iter(await handle.link(mentions, options, is_gone=is_gone))
    except UnknownTypeError as error:
        if options.type_mode == "soft":  # entities of the type would come first, and there are none
            return await _link(handle, queries, LinkOptions(limit=options.limit), is_gone)
        return [BadQuery("unknown_type", str(error))] * len(queries)
    nothing = Link("", None, None, None, None)
    found = [max((next(links) for _ in query.names), key=_best_probability, default=nothing) for query in queries]
    crowded = [
        i for i, query in enumerate(queries) if query.conditions and _is_crowded(found[i], options.most_candidates)
    ]
    if crowded:
        wider = replace(options, limit=RERANKED)
        for i, link in zip(
            crowded, await handle.link([found[i].mention for i in crowded], wider, is_gone=is_gone), strict=True
        ):
            found[i] = link
    return [*found]


def _best_probability(link: Link) -> float:
    return max((candidate.probability or 0.0 for candidate in link.candidates), default=0.0)


def _is_crowded(link: Link, limit: int) -> bool:
    """Whether there may be more entities of the name than the candidates."""
    last = link.candidates[-1].probability if link.candidates else 0.0
    return len(link.candidates) == limit < RERANKED and (last or 0.0) >= CROWDED


def _by_name(query: Query, link: Link) -> list[Scored]:
    """Candidates as the linker decided."""
    return [Scored(one, one.probability or 0.0, _is_link(one, link)) for one in _wanted(query, link)[: query.limit]]


def _is_link(candidate: Candidate, link: Link) -> bool:
    return (candidate.kb, candidate.entity_id) == (link.kb, link.entity_id)


def _wanted(query: Query, link: Link) -> Sequence[Candidate]:
    """The candidates that have all types, where the query asks for that."""
    if query.type_strict != "all":
        return link.candidates
    return [one for one in link.candidates if {*query.types} <= {*one.kb_types, *one.types}]


def _with_evidence(linker: EntityLinker, links: Mapping[Query, Link], catalogue: Catalogue) -> dict[Query, Answer]:
    """The candidates of each query with the evidence of its properties; for all of them, the store is asked twice."""
    asked = [candidate for query, link in links.items() if query.conditions for candidate in link.candidates]
    columns = of_candidates(linker, asked) if asked else {}
    if any(condition.property_id == ALIASES for query in links for condition in query.conditions):
        named = with_names(linker, [candidate.entity_id for candidate in asked])
        columns |= {(one.point.kb, one.point.entity_id): one for one in named.values()}
    threshold = linker.calibration.threshold
    return {
        query: _score(query, link, columns, catalogue, threshold) if query.conditions else _by_name(query, link)
        for query, link in links.items()
    }


def _score(
    query: Query, link: Link, columns: Mapping[tuple[str, str], EntityColumns], catalogue: Catalogue, threshold: float
) -> list[Scored]:
    candidates = _wanted(query, link)
    usual = [chances(one, catalogue.values.get(one.property_id, ())) for one in query.conditions]
    found = [columns.get((one.kb, one.entity_id)) for one in candidates]
    levels = [
        [level_of(one, of.values(one.property_id)) if of else Level.MISSING for one in query.conditions] for of in found
    ]
    factors = [math.prod(map(factor, of_candidate, usual)) for of_candidate in levels]
    probabilities = updated([one.probability or 0.0 for one in candidates], factors)
    is_informed = any(value != 1.0 for value in factors)
    order = sorted(range(len(candidates)), key=lambda i: -probabilities[i])
    best = probabilities[order[0]] if order else 0.0
    is_tied = len(order) > 1 and best - probabilities[order[1]] <= _TIE
    scored = []
    for i in order[: query.limit]:
        is_match = i == order[0] and not is_tied and best >= threshold if is_informed else _is_link(candidates[i], link)
        named = [(one.property_id, level) for one, level in zip(query.conditions, levels[i], strict=True)]
        scored.append(Scored(candidates[i], probabilities[i], is_match, named))
    return scored


NEAR_RATIO = 85.0  # Edit similarity in percent from which two texts are near
NEAR_SHARE = 0.01  # Two numbers are near if they differ by so much of the larger one

_TEXT_WORDS = 5
"""From so many words on, a value is a text: texts that share half of the words of the shorter one are near."""

_COMPARED_VALUES = 50
"""Of an entity with more values for a property, such as its links, others count only if they are equal as written."""

_DATE = re.compile(r"(-?[0-9]{4})(?:-([0-9]{2})(?:-([0-9]{2})(?:[T ][0-9:.]+(?:Z|[+-][0-9:]+)?)?)?)?")
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})(?:[eE][+-]?[0-9]{1,2})?")


class Level(Enum):
    """How well two values agree. The number is the value of the feature that clients see."""

    EQUAL = 1.0
    NEAR = 0.5
    DIFFERENT = 0.0
    MISSING = -1.0


@lru_cache(maxsize=8192)
def compare(given: str, has: str) -> Level:
    """How well two values agree: as dates, as numbers, or as texts.

    Equal are texts of the same letters and digits, numbers of the same value, and dates of the same day. Near are
    texts with a slip or with more words, numbers within 1 %, and dates where one says more than the other.
    """
    if given == has:
        return Level.EQUAL
    return _compare_dates(given, has) or _compare_numbers(given, has) or _compare_texts(given, has)


def _best(given: str, has: Sequence[str]) -> Level:
    if given in has:
        return Level.EQUAL
    best = Level.DIFFERENT
    for other in has[:_COMPARED_VALUES]:
        level = compare(given, other)
        if level is Level.EQUAL:
            return level
        if level is Level.NEAR:
            best = level
    return best


def _compare_dates(given: str, has: str) -> Level | None:
    """None if one of them is no date, or both are years alone."""
    first, second = _DATE.fullmatch(given.strip()), _DATE.fullmatch(has.strip())
    if not first or not second or not (first[2] or second[2]):
        return None
    parts = [(one, other) for one, other in zip(first.groups(), second.groups(), strict=True) if one and other]
    if any(one != other for one, other in parts):
        return Level.DIFFERENT
    n_known = [sum(part is not None for part in found.groups()) for found in (first, second)]
    return Level.EQUAL if n_known[0] == n_known[1] else Level.NEAR


def _compare_numbers(given: str, has: str) -> Level | None:
    """None if one of them is no number."""
    if not _NUMBER.fullmatch(given.strip()) or not _NUMBER.fullmatch(has.strip()):
        return None
    first, second = float(given), float(has)
    if first == second:
        return Level.EQUAL
    is_near = abs(first - second) <= NEAR_SHARE * max(abs(first), abs(second))
    return Level.NEAR if is_near else Level.DIFFERENT


def _compare_texts(given: str, has: str) -> Level:
    first, second = _fold(given), _fold(has)
    if not first or not second:  # signs alone
        return Level.EQUAL if given.strip().casefold() == has.strip().casefold() else Level.DIFFERENT
    if first.replace(" ", "") == second.replace(" ", ""):
        return Level.EQUAL
    numbers = [{word for word in one.split() if word.isdigit()} for one in (first, second)]
    if not (numbers[0] <= numbers[1] or numbers[1] <= numbers[0]):  # codes, not slips
        return Level.DIFFERENT
    if fuzz.ratio(first, second, score_cutoff=NEAR_RATIO):
        return Level.NEAR
    words = [set(one.split()) - SMALL_WORDS or set(one.split()) for one in (first, second)]
    shorter, longer = sorted(words, key=len)
    common = len(shorter & longer)
    if common == len(shorter) or (len(shorter) >= _TEXT_WORDS and 2 * common >= len(shorter)):
        return Level.NEAR
    return Level.DIFFERENT


@lru_cache(maxsize=4096)
def _fold(text: str) -> str:
    return fold_name(text)


RIGHT: Mapping[Level, float] = {Level.EQUAL: 0.85, Level.NEAR: 0.06, Level.DIFFERENT: 0.09}
"""How well the right entity's values agree with those of a client's table, where both have one."""

OTHER: Mapping[Level, float] = {Level.EQUAL: 0.02, Level.NEAR: 0.03, Level.DIFFERENT: 0.95}
"""The same of another entity, before any is counted."""

COUNTED_AS = 50  # `OTHER` counts as much as so many entities of the sample

LOWEST_CHANCE = 0.01
"""No value is taken to be rarer than this: entities of one name share values more often than others do."""

HIGHEST_FACTOR = 1000.0
"""All properties together multiply or divide the odds by at most this, since they may say the same thing twice."""


def level_of(condition: Condition, has: Sequence[str]) -> Level:
    """How well the values of an entity agree with those of a client, of which one must; if it has none, nothing is
    known.
    """
    pause()
    return max((_best(one, has) for one in condition.values), key=lambda level: level.value) if has else Level.MISSING


def chances(condition: Condition, sample: Sequence[Sequence[str]]) -> dict[Level, float]:
    """How often an entity that is not the right one agrees so well; `sample` has the values of entities that have the
    property.
    """
    counts = Counter(level_of(condition, has) for has in sample)
    n = len(sample) - counts[Level.MISSING]
    found = {level: (counts[level] + COUNTED_AS * OTHER[level]) / (n + COUNTED_AS) for level in OTHER}
    return {level: max(chance, LOWEST_CHANCE) for level, chance in found.items()}


def factor(level: Level, chance: Mapping[Level, float]) -> float:
    """What a property multiplies the odds of a candidate with."""
    return 1.0 if level is Level.MISSING else RIGHT[level] / chance[level]


def updated(probabilities: Sequence[float], factors: Sequence[float]) -> list[float]:
    """The probabilities after the evidence; `probabilities` are those by the names, where what is missing to 1 is that
    of NIL.
    """
    nil = max(0.0, 1.0 - math.fsum(probabilities))
    bounded = [min(max(one, 1 / HIGHEST_FACTOR), HIGHEST_FACTOR) for one in factors]
    weights = [probability * one for probability, one in zip(probabilities, bounded, strict=True)]
    total = nil + math.fsum(weights)
    return [weight / total for weight in weights]
