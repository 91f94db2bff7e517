"""From queries to candidates with scores: linked by their names, then by their properties."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from pearl_qdrant.errors import UnknownTypeError
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.linking.options import LinkOptions
from pearl_qdrant.linking.properties import CANDIDATES, MOST_CANDIDATES, Evidence, decided, is_crowded, weighed, wider
from pearl_qdrant.linking.ranking.scoring import EXCLUDED_SHARE
from pearl_qdrant.records import Candidate, Link, NilReason
from pearl_qdrant.service.collections import CollectionHandle
from pearl_qdrant.service.queues import IsGone
from pearl_qdrant.service.reconcile.queries import BadQuery, Query


@dataclass(frozen=True, slots=True)
class Scored:
    """A candidate, its probability by the name alone, and whether it is good enough to be chosen without a person."""

    candidate: Candidate
    by_name: float | None
    is_match: bool


Answer = Sequence[Scored] | BadQuery  # The candidates of a query, best first; or why there are none


async def match(handle: CollectionHandle, queries: Sequence[Query | BadQuery], *, is_gone: IsGone) -> list[Answer]:
    """The answers of some queries, in their order; those of equal types are linked together."""
    groups: dict[LinkOptions, list[Query]] = {}
    for query in queries:
        if isinstance(query, Query):
            groups.setdefault(_options(query), []).append(query)
    linked = await asyncio.gather(*(_link(handle, group, options, is_gone) for options, group in groups.items()))
    found = dict(zip(chain.from_iterable(groups.values()), chain.from_iterable(linked), strict=True))
    answers: dict[Query, Answer] = {query: one for query, one in found.items() if isinstance(one, BadQuery)}
    least = handle.linker.calibration.threshold
    links = {query: _of_all_types(query, one, least) for query, one in found.items() if isinstance(one, Link)}
    if any(query.conditions for query in links):
        answers |= await handle.call(lambda linker: _with_evidence(linker, links))
    else:
        answers |= {query: _scored(query, link, link) for query, link in links.items()}
    return [answers[query] if isinstance(query, Query) else query for query in queries]


def _options(query: Query) -> LinkOptions:
    limit = max(query.limit, CANDIDATES) if query.conditions else query.limit
    if query.type_strict == "all":
        limit = max(limit, MOST_CANDIDATES)
    return LinkOptions(types=query.types, type_mode="soft" if query.type_strict == "should" else "hard", limit=limit)


async def _link(
    handle: CollectionHandle, queries: Sequence[Query], options: LinkOptions, is_gone: IsGone
) -> list[Link | BadQuery]:
    """The link of the best name of each query."""
    mentions = [name for query in queries for name in query.names]
    try:
        links = iter(await handle.link(mentions, options, keep=list, is_gone=is_gone))
    except UnknownTypeError as error:
        if options.type_mode == "soft":  # entities of the type would come first, and there are none
            return await _link(handle, queries, LinkOptions(limit=options.limit), is_gone)
        return [BadQuery("unknown_type", str(error))] * len(queries)
    nothing = Link("", None, None, None, None)
    found = [max((next(links) for _ in query.names), key=_best_probability, default=nothing) for query in queries]
    crowded = [
        i for i, query in enumerate(queries) if query.conditions and is_crowded(found[i], options.most_candidates)
    ]
    if crowded:
        mentions, more = [found[i].mention for i in crowded], wider(options, MOST_CANDIDATES)
        again = await handle.link(mentions, more, keep=list, is_gone=is_gone)
        for i, link in zip(crowded, again, strict=True):
            found[i] = link
    return [*found]


def _best_probability(link: Link) -> float:
    return max((candidate.probability or 0.0 for candidate in link.candidates), default=0.0)


def _with_evidence(linker: EntityLinker, links: Mapping[Query, Link]) -> dict[Query, Answer]:
    """The candidates of each query with the evidence of its properties; for all of them, the store is asked twice."""
    rows = [{one.property_id: one.values for one in query.conditions} for query in links]
    known = linker.state.statistics.columns()
    evidence = Evidence({name: known[name] for name in dict.fromkeys(chain.from_iterable(rows)) if name in known})
    options = LinkOptions(limit=MOST_CANDIDATES, threshold=linker.calibration.threshold)
    found = weighed(linker.state, [*links.values()], rows, evidence, options, is_list=False)
    return {query: _scored(query, link, own) for (query, own), link in zip(links.items(), found, strict=True)}


def _of_all_types(query: Query, link: Link, least: float) -> Link:
    """The link to an entity of all types, where the query asks for that. Of the probability of those that lack a type
    NIL gets as much as under a filter, and none for another entity of the same name.
    """
    kept = [one for one in link.candidates if {*query.types} <= {*one.kb_types, *one.types}]
    if query.type_strict != "all" or len(kept) == len(link.candidates):
        return link
    if not kept:
        return replace(link, entity_id=None, nil_reason=NilReason.NO_CANDIDATES, candidates=())
    names = {one.name.casefold() for one in kept}
    lost = [
        (one.probability or 0.0) * (1.0 if one.name.casefold() in names else 1 - EXCLUDED_SHARE)
        for one in link.candidates
        if one not in kept
    ]
    rest = max(1 - math.fsum(lost), 1e-9)
    found = [replace(one, probability=min((one.probability or 0.0) / rest, 1.0)) for one in kept]
    return decided(link, found, LinkOptions(limit=MOST_CANDIDATES, threshold=least))


def _scored(query: Query, link: Link, by_name: Link) -> list[Scored]:
    """The candidates of a link, with their probabilities by the name alone."""
    own = {(one.kb, one.entity_id): one.probability for one in by_name.candidates}
    chosen = link.kb, link.entity_id
    keys = [(one.kb, one.entity_id) for one in link.candidates[: query.limit]]
    return [Scored(one, own[key], key == chosen) for key, one in zip(keys, link.candidates, strict=False)]
