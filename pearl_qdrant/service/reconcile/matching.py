"""From queries to candidates with scores: linked by their names, then by their properties."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pearl_qdrant.errors import UnknownTypeError
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.linking.options import LinkOptions
from pearl_qdrant.records import Candidate, Link
from pearl_qdrant.service.collections import CollectionHandle
from pearl_qdrant.service.queues import IsGone
from pearl_qdrant.service.reconcile.evidence import Condition, Level, chances, factor, updated
from pearl_qdrant.service.reconcile.properties import ALIASES, Catalogue, EntityColumns, of_candidates, with_names
from pearl_qdrant.service.reconcile.queries import BadQuery, Query
from pearl_qdrant.settings import DEFAULT_LIMIT

RERANKED = 50
"""Candidates of a name that has more namesakes than the limit: as many are told apart by their properties."""

CROWDED = 0.001
"""A name has more namesakes than were asked for if the last candidate is still this probable."""

_TIE = 1e-9


@dataclass(frozen=True, slots=True)
class Scored:
    """A candidate of a query.

    Attributes:
        candidate: As linked by the name.
        probability: With the evidence of the properties.
        is_match: Whether it is good enough to be chosen without a person.
        levels: How well the entity agrees with each property of the query, by its id.
    """

    candidate: Candidate
    probability: float
    is_match: bool
    levels: Sequence[tuple[str, Level]] = ()


Answer = Sequence[Scored] | BadQuery
"""The candidates of a query, best first; or why there are none."""


async def match(
    handle: CollectionHandle, queries: Sequence[Query | BadQuery], catalogue: Catalogue, *, is_gone: IsGone
) -> list[Answer]:
    """The answers of some queries, in their order.

    Queries of equal types are linked together; an error of theirs is the answer of each.
    """
    groups: dict[LinkOptions, list[Query]] = {}
    for query in queries:
        if isinstance(query, Query):
            groups.setdefault(_options(query), []).append(query)
    linked = await asyncio.gather(*(_link(handle, group, options, is_gone) for options, group in groups.items()))
    answers: dict[Query, Answer] = {}
    links: dict[Query, Link] = {}
    for group, of_group in zip(groups.values(), linked, strict=True):
        for one, found in zip(group, of_group, strict=True):
            if isinstance(found, BadQuery):
                answers[one] = found
            else:
                links[one] = found
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
    query: Query,
    link: Link,
    columns: Mapping[tuple[str, str], EntityColumns],
    catalogue: Catalogue,
    threshold: float,
) -> list[Scored]:
    candidates = _wanted(query, link)
    usual = [chances(one, catalogue.values.get(one.property_id, ())) for one in query.conditions]
    levels = [_levels(query.conditions, columns.get((one.kb, one.entity_id))) for one in candidates]
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


def _levels(conditions: Sequence[Condition], columns: EntityColumns | None) -> list[Level]:
    """How well an entity agrees with each condition."""
    return [one.level(columns.values(one.property_id)) if columns else Level.MISSING for one in conditions]
