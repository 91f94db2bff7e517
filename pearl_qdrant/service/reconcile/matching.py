"""From queries to candidates with scores: linked by their names, then by their properties."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pearl_qdrant.errors import UnknownTypeError
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.linking.options import LinkOptions
from pearl_qdrant.linking.ranking.rules import ID_CERTAINTY
from pearl_qdrant.records import Candidate, Link
from pearl_qdrant.service.collections import CollectionHandle
from pearl_qdrant.service.queues import IsGone
from pearl_qdrant.service.reconcile.evidence import Level, factor, updated
from pearl_qdrant.service.reconcile.properties import ALIASES, Catalogue, EntityColumns, of_candidates, with_names
from pearl_qdrant.service.reconcile.queries import BadQuery, Query
from pearl_qdrant.settings import DEFAULT_LIMIT

RERANKED = 50
"""Candidates of a name that has more namesakes than the limit: as many are told apart by their properties."""

CROWDED = 0.001
"""A name has more namesakes than were asked for if the last candidate is still this probable."""

_TIE = 1e-9


@dataclass(frozen=True, slots=True)
class Agreement:
    """What a property says of a candidate.

    Attributes:
        property_id: The property.
        level: How well the values agree.
        factor: What the odds are multiplied with; 0 if a required condition is not met.
    """

    property_id: str
    level: Level
    factor: float


@dataclass(frozen=True, slots=True)
class Scored:
    """A candidate of a query.

    Attributes:
        candidate: As linked by the name.
        probability: With the evidence of the properties.
        is_match: Whether it is good enough to be chosen without a person.
        agreements: What each property of the query says.
    """

    candidate: Candidate
    probability: float
    is_match: bool
    agreements: Sequence[Agreement] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """The candidates of a query, best first; or why there are none."""

    candidates: Sequence[Scored] = ()
    error: BadQuery | None = None


async def match(
    handle: CollectionHandle,
    queries: Sequence[Query | BadQuery],
    catalogue: Catalogue,
    *,
    is_gone: IsGone | None = None,
) -> list[Answer]:
    """The answers of some queries, in their order.

    Queries of equal types are linked together; an error of theirs is the answer of each.
    """
    groups: dict[LinkOptions, list[int]] = {}
    for i, query in enumerate(queries):
        if isinstance(query, Query):
            groups.setdefault(_options(query), []).append(i)
    answers: list[Answer] = [Answer(error=query) if isinstance(query, BadQuery) else Answer() for query in queries]
    linked = await asyncio.gather(
        *(_link(handle, [_query(queries, i) for i in rows], options, is_gone) for options, rows in groups.items())
    )
    found: list[tuple[int, Query, Link]] = []
    for rows, links in zip(groups.values(), linked, strict=True):
        for i, link in zip(rows, links, strict=True):
            if isinstance(link, BadQuery):
                answers[i] = Answer(error=link)
            else:
                found.append((i, _query(queries, i), link))
    if any(query.conditions or query.ids for _, query, _ in found):
        scored = await handle.call(lambda linker: _with_evidence(linker, [one[1:] for one in found], catalogue))
    else:
        scored = [_by_name(query, link, link.candidates) for _, query, link in found]
    for (i, _, _), candidates in zip(found, scored, strict=True):
        answers[i] = Answer(candidates)
    return answers


def _query(queries: Sequence[Query | BadQuery], i: int) -> Query:
    query = queries[i]
    assert isinstance(query, Query)
    return query


def _options(query: Query) -> LinkOptions:
    limit = max(query.limit, DEFAULT_LIMIT) if query.conditions else query.limit
    if query.type_strict == "all":
        limit = max(limit, RERANKED)
    return LinkOptions(query.types, "soft" if query.type_strict == "should" else "hard", limit)


async def _link(
    handle: CollectionHandle, queries: Sequence[Query], options: LinkOptions, is_gone: IsGone | None
) -> list[Link | BadQuery]:
    """The link of the best name of each query."""
    mentions = [name for query in queries for name in query.names]
    try:
        links = await handle.link(mentions, options, is_gone=is_gone)
    except UnknownTypeError as error:
        if options.type_mode == "soft":  # entities of the type would come first, and there are none
            return await _link(handle, queries, LinkOptions(limit=options.limit), is_gone)
        return [BadQuery("unknown_type", str(error))] * len(queries)
    taken, found = 0, list[Link]()
    for query in queries:
        of_query = links[taken : taken + len(query.names)]
        taken += len(query.names)
        nothing = Link("", None, None, None, None)
        found.append(max(of_query, key=_best_probability, default=nothing))
    crowded = [
        i for i, query in enumerate(queries) if query.conditions and _is_crowded(found[i], options.most_candidates)
    ]
    if crowded:
        wider = replace(options, limit=RERANKED)
        links = await handle.link([found[i].mention for i in crowded], wider, is_gone=is_gone)
        for i, link in zip(crowded, links, strict=True):
            found[i] = link
    return [*found]


def _best_probability(link: Link) -> float:
    return max((candidate.probability or 0.0 for candidate in link.candidates), default=0.0)


def _is_crowded(link: Link, limit: int) -> bool:
    """Whether there may be more entities of the name than the candidates."""
    last = link.candidates[-1].probability if link.candidates else 0.0
    return len(link.candidates) == limit < RERANKED and (last or 0.0) >= CROWDED


def _by_name(query: Query, link: Link, candidates: Sequence[Candidate]) -> list[Scored]:
    """Candidates as the linker decided."""
    chosen = link.kb, link.entity_id
    wanted = _of_all_types(query, candidates)
    return [Scored(one, one.probability or 0.0, (one.kb, one.entity_id) == chosen) for one in wanted[: query.limit]]


def _of_all_types(query: Query, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    if query.type_strict != "all":
        return candidates
    wanted = set(query.types)
    return [one for one in candidates if wanted <= {*one.kb_types, *one.types}]


def _with_evidence(
    linker: EntityLinker, found: Sequence[tuple[Query, Link]], catalogue: Catalogue
) -> list[list[Scored]]:
    """The candidates of each query with the evidence of its properties; for all of them, the store is asked twice."""
    asked = [candidate for query, link in found if query.conditions for candidate in link.candidates]
    columns = of_candidates(linker, asked) if asked else {}
    ids = [one for query, _ in found for one in query.ids]
    if any(condition.property_id == ALIASES for query, _ in found for condition in query.conditions):
        ids += [candidate.entity_id for candidate in asked]
    named = with_names(linker, ids)
    columns |= {(one.point.kb, one.point.entity_id): one for one in named.values()}
    threshold = linker.calibration.threshold
    return [_score(query, link, columns, named, catalogue, threshold) for query, link in found]


def _score(
    query: Query,
    link: Link,
    columns: Mapping[tuple[str, str], EntityColumns],
    named: Mapping[str, EntityColumns],
    catalogue: Catalogue,
    threshold: float,
) -> list[Scored]:
    given = [_of_id(named[one]) for one in dict.fromkeys(query.ids) if one in named]
    if given:  # an id is a candidate whatever its name
        share = ID_CERTAINTY / len(given)
        others = [one for one in link.candidates if one.entity_id not in query.ids]
        candidates = [replace(one, probability=share) for one in given]
        candidates += [replace(one, probability=0.0) for one in others]
        chosen = candidates[0].entity_id if len(given) == 1 else None
        link = replace(link, kb=candidates[0].kb, entity_id=chosen, candidates=tuple(candidates))
    candidates = list(_of_all_types(query, link.candidates))
    if not query.conditions:
        return _by_name(query, link, candidates)
    agreements = [_agreements(query, columns.get((one.kb, one.entity_id)), catalogue) for one in candidates]
    factors = [math.prod(one.factor for one in of_candidate) for of_candidate in agreements]
    probabilities = updated([one.probability or 0.0 for one in candidates], factors)
    is_informed = any(value != 1.0 for value in factors)
    order = sorted((i for i in range(len(candidates)) if factors[i]), key=lambda i: -probabilities[i])
    best = probabilities[order[0]] if order else 0.0
    is_tied = len(order) > 1 and best - probabilities[order[1]] <= _TIE
    scored = []
    for i in order[: query.limit]:
        by_name = (candidates[i].kb, candidates[i].entity_id) == (link.kb, link.entity_id)
        is_match = i == order[0] and not is_tied and best >= threshold if is_informed else by_name
        scored.append(Scored(candidates[i], probabilities[i], is_match, agreements[i]))
    return scored


def _agreements(query: Query, columns: EntityColumns | None, catalogue: Catalogue) -> list[Agreement]:
    """What each property says of a candidate."""
    found = []
    for condition in query.conditions:
        level = condition.level(columns.values(condition.property_id)) if columns else Level.MISSING
        met = (Level.MISSING,) if condition.quantifier == "none" else (Level.EQUAL, Level.NEAR)
        is_refused = condition.required and level not in met
        value = 0.0 if is_refused else factor(level, catalogue.chances(condition))
        found.append(Agreement(condition.property_id, level, value))
    return found


def _of_id(columns: EntityColumns) -> Candidate:
    """A candidate that the client named by its id."""
    point = columns.point
    return Candidate(
        point.entity_id,
        point.kb,
        point.canonical_name,
        point.canonical_name,
        kb_types=point.kb_types,
        types=point.types,
        description=point.description,
        popularity=point.popularity,
        probability=ID_CERTAINTY,
    )
