"""Searching by dense vector and by n-grams at once: what both stores share of it.

The first call of the engine finds points by dense vector, the second by n-grams, the third scores by dense vector what
n-grams alone have found. A mention whose own name is near needs the first alone. Measured on 571,000 names with 15
to 17 points each, us a mention of a warm loop: dense 330 (900 under a filter that passes 8 %), n-grams 690 (1,240), the
third call 220 (300); reading a payload takes 8 of it. Finding by n-grams and scoring by vector in one request (a
prefetch) takes the same, and loses names without a dense vector.

Of a single mention over a network the way there and back is what takes the time, so that n-grams go with the first
request and the thorough search with the last: two requests rather than three, and one where a near name is_exact_match
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, takewhile
from typing import Any
from uuid import UUID

import numpy as np

from pearl_qdrant.encoder.protocol import FloatArray
from pearl_qdrant.lexical.ngrams import SparseRows, UInt32Array
from pearl_qdrant.store.protocol import IsExactMatch, ScoredName
from pearl_qdrant.store.schema import NamePoint
from pearl_qdrant.store.search import FoundPoint, NameQuery, RunQueries, best, check_vectors, cosine, in_order

SETTLING_COSINE = 0.99
"""Least cosine of a name that may settle a query: that of a name and its own mention."""

BATCH_MENTIONS = 8
"""Mentions at a time in the embedded engine: under a filter it holds the interpreter lock for up to 4 ms each, and
nobody is to wait for 50. 16 link no more a second."""


SearchPart = Callable[[range], "list[list[ScoredName]]"]
RunParts = Callable[[SearchPart, Sequence[range]], "Iterable[list[list[ScoredName]]]"]
"""What `map` does."""


@dataclass(slots=True)
class _Mention:
    """One mention of a batch, and what has been found for it.

    Attributes:
        number: Of the query.
        vector: (dim,), or None.
        row: Indices and values, or None.
        near: Points by dense vector.
        shared: Points by n-grams; without payloads if there is a vector.
        scored: Those of them that were not near, with dense scores.
        unscored: The others, which have no dense vector.
    """

    number: int
    vector: FloatArray | None
    row: tuple[UInt32Array, FloatArray] | None
    near: Sequence[FoundPoint] = ()
    shared: Sequence[FoundPoint] = ()
    scored: Sequence[FoundPoint] = ()
    unscored: Sequence[FoundPoint] = ()

    def unseen(self) -> frozenset[str | int | UUID]:
        """Ids that n-grams alone have found."""
        if not self.shared:
            return frozenset()
        return frozenset(point.id for point in self.shared).difference(point.id for point in self.near)


def search_hybrid(
    run: RunQueries,
    vectors: FloatArray,
    lexical: SparseRows | None,
    *,
    dim: int,
    limit: int,
    lexical_limit: int,
    is_exact_match: IsExactMatch | None,
    read: Callable[[Any], NamePoint],
    most: int | None = None,
    together: int = BATCH_MENTIONS,
    run_parts: RunParts = map,
    is_far: bool = False,
) -> list[list[ScoredName]]:
    """Names near by dense vector or by n-grams; see `protocol.Collection.search_hybrid`.

    Args:
        run: One call of the engine.
        vectors: (q, dim); a row of zeros finds nothing by dense vector.
        lexical: q rows; None searches by dense vector alone.
        dim: Width of the collection's vectors.
        limit, lexical_limit: Names a query at most.
        is_exact_match: As in `protocol.Collection.search_hybrid`.
        read: From a payload to the point.
        most: Points that one query may ask for; None: any number.
        together: Mentions of one call of the engine.
        run_parts: Does the parts of the mentions, in order; several at once where the engine is far away.
        is_far: Whether a call of the engine is a request over a network.

    Returns:
        q lists.

    Raises:
        ValueError: If vectors and rows do not pair up, are of another width or not finite, or a limit is not positive.
    """
    check_vectors(vectors, dim, limit)
    if lexical_limit < 1:
        raise ValueError(f"lexical_limit must be positive, it is {lexical_limit}")
    if lexical is not None and (len(lexical) != len(vectors) or not np.isfinite(lexical.values).all()):
        raise ValueError(f"n-gram rows must be finite and one a vector: {len(lexical)} rows, {len(vectors)} vectors")

    def search_part(part: range) -> list[list[ScoredName]]:
        mentions = [_mention(vectors, lexical, i) for i in part]
        if is_far and is_exact_match is not None and len(mentions) == 1 and mentions[0].row is not None:
            _find_soon(
                run, mentions[0], limit, lexical_limit, most, lambda m: _has_exact_match(m, is_exact_match, read)
            )
            return [list(_names(mentions[0], read))]
        unsettled = mentions
        if is_exact_match is not None:
            _find_near(run, mentions, limit, most)
            unsettled = [mention for mention in mentions if not _has_exact_match(mention, is_exact_match, read)]
        _find_both(run, unsettled, limit, lexical_limit, most)
        _score(run, unsettled)
        return [list(_names(mention, read)) for mention in mentions]

    parts = [range(start, min(start + together, len(vectors))) for start in range(0, len(vectors), together)]
    return list(chain.from_iterable(run_parts(search_part, parts)))


def _mention(vectors: FloatArray, lexical: SparseRows | None, i: int) -> _Mention:
    vector = vectors[i] if vectors[i].any() else None
    if lexical is None or lexical.offsets[i] == lexical.offsets[i + 1]:
        return _Mention(i, vector, None)
    return _Mention(i, vector, lexical.row(i))


def _find_near(run: RunQueries, mentions: Sequence[_Mention], limit: int, most: int | None) -> None:
    """Points by dense vector, in a quick search that finds the mention's own name if there is one."""
    asked = [(mention, mention.vector) for mention in mentions if mention.vector is not None]
    found = best(run, [NameQuery(limit, vector=vector) for _, vector in asked], most)
    for (mention, _), near in zip(asked, found, strict=True):
        mention.near = near


def _has_exact_match(mention: _Mention, is_exact_match: IsExactMatch, read: Callable[[Any], NamePoint]) -> bool:
    """Whether a near name answers it."""
    same = takewhile(lambda point: point.score >= SETTLING_COSINE, mention.near)
    return any(is_exact_match(mention.number, read(point.payload)) for point in same)


def _find_both(run: RunQueries, mentions: Sequence[_Mention], limit: int, lexical_limit: int, most: int | None) -> None:
    """Points by dense vector, in a thorough search, and points by n-grams."""
    by_vector = [(mention, mention.vector) for mention in mentions if mention.vector is not None]
    by_ngrams = [mention for mention in mentions if mention.row is not None]
    queries = [NameQuery(limit, vector=vector, is_thorough=True) for _, vector in by_vector]
    queries += [NameQuery(lexical_limit, lexical=m.row, has_payload=m.vector is None) for m in by_ngrams]
    found = best(run, queries, most)
    for (mention, _), near in zip(by_vector, found, strict=False):
        mention.near = near
    for mention, shared in zip(by_ngrams, found[len(by_vector) :], strict=True):
        mention.shared = shared


def _find_soon(
    run: RunQueries,
    mention: _Mention,
    limit: int,
    lexical_limit: int,
    most: int | None,
    is_settled: Callable[[_Mention], bool],
) -> None:
    """All points of one mention that has n-grams, in as few requests as can be: what the functions around it find."""
    vector, row = mention.vector, mention.row
    if vector is None:
        _find_both(run, [mention], limit, lexical_limit, most)
        mention.unscored = mention.shared
        return
    by_ngrams = NameQuery(lexical_limit, lexical=row, has_payload=False)
    mention.near, shared = best(run, [NameQuery(limit, vector=vector), by_ngrams], most)
    if is_settled(mention):
        return
    quick, mention.shared = mention.near, shared
    unseen = mention.unseen()
    queries = [NameQuery(limit, vector=vector, is_thorough=True)]
    if unseen:
        queries.append(NameQuery(len(unseen), vector=vector, ids=unseen))
    mention.near, *scored = best(run, queries, most)
    wanted = mention.unseen()
    mention.scored = [point for point in chain(quick, *scored) if point.id in wanted]
    if left := unseen.difference(point.id for point in chain(mention.near, *scored)):
        mention.unscored = run([NameQuery(len(left), lexical=row, ids=left)])[0]


def _score(run: RunQueries, mentions: Sequence[_Mention]) -> None:
    """Dense scores and payloads of what n-grams alone have found; then payloads of what has no vector to score."""
    scoring, queries = [], []
    for mention in mentions:
        if mention.vector is None:
            mention.unscored = mention.shared
        elif ids := mention.unseen():
            scoring.append((mention, ids))
            queries.append(NameQuery(len(ids), vector=mention.vector, ids=ids))
    if not queries:
        return
    vectorless, queries_left = [], []
    for (mention, ids), found in zip(scoring, run(queries), strict=True):
        mention.scored = found
        if len(found) < len(ids):
            left = ids.difference(point.id for point in found)
            vectorless.append(mention)
            queries_left.append(NameQuery(len(left), lexical=mention.row, ids=left))
    if vectorless:
        for mention, found in zip(vectorless, run(queries_left), strict=True):
            mention.unscored = found


def _names(mention: _Mention, read: Callable[[Any], NamePoint]) -> Iterator[ScoredName]:
    """By dense score, best first; those without one last, by id."""
    scored = in_order([*mention.near, *mention.scored])[0] if mention.scored else mention.near
    for point in scored:
        yield ScoredName(read(point.payload), cosine(point.score))
    for point in sorted(mention.unscored, key=lambda point: str(point.id)):
        yield ScoredName(read(point.payload), None)
