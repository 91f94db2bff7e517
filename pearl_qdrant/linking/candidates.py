"""Candidates for mentions: dense and lexical search in every collection, folded to entities by their best name.

    search      names near by vector and, unless the mention's own name is among them, names that share rare n-grams;
                under the type filter
    score       lexical cosine of every name; before = dense + lexical / 2 orders them
    fold        one for each entity, by its best name
    score       features, logits, order (`scoring.py`)

A mention that the tokenizer cannot see has no meaningful vector: its n-grams find names, and a mention without any
n-gram (an emoji) finds the entities that bear exactly its name. Its lexical score stands in for the dense one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

from pearl_qdrant.encoder.protocol import Encoded
from pearl_qdrant.encoder.type_head import type_marginals
from pearl_qdrant.lexical.idf import IdfTable, LexicalScores, compare, top_weighted_features
from pearl_qdrant.lexical.ngrams import SparseRows, fold_name, folded_rows, ngram_rows
from pearl_qdrant.linking.mentions import MAX_CHARACTERS
from pearl_qdrant.linking.ranking.scoring import LinkQuery, Name, ScoredMention, Scorer, score_names
from pearl_qdrant.store.protocol import Collection, IsExactMatch
from pearl_qdrant.store.schema import NamePoint

QUERY_FEATURES = 8
"""N-grams a mention is searched by, the most telling ones: a third of the time of all of them, see
docs/experiments.md."""

MAX_NAMESAKES = 10_000
"""Of entities with one name, those that are put in order; which of them is the first by id is decided among these."""


@dataclass(frozen=True, slots=True)
class SearchTarget:
    """A collection to look in.

    Attributes:
        collection: Open.
        idf: Of n-grams in it.
    """

    collection: Collection
    idf: IdfTable


Exclude = Callable[[int, NamePoint], bool]
"""Whether a name must not be found for the mention of that number: how a measurement holds names back from a base."""


def find_candidates(
    targets: Sequence[SearchTarget],
    mentions: Sequence[str],
    encoded: Encoded,
    link_query: LinkQuery,
    scorer: Scorer,
    *,
    exclude: Exclude | None = None,
) -> list[ScoredMention]:
    """Entities for each mention, best first.

    Args:
        targets: Where to look.
        mentions: m strings, cleaned.
        encoded: Of the mentions, by the model that made the collections.
        link_query: What is asked.
        scorer: What candidates are scored by.
        exclude: Names that must not be found, by the number of the mention.
    """
    folded = [fold_name(mention) for mention in mentions]
    rows = folded_rows(folded)

    def is_own_name(number: int, point: NamePoint) -> bool:
        return fold_name(point.name) == folded[number] and not (exclude is not None and exclude(number, point))

    found: list[list[Name]] = [[] for _ in mentions]
    for target in targets:
        for names, more in zip(found, _search(target, mentions, rows, encoded, link_query, is_own_name), strict=True):
            names.extend(more)
    marginals = None if encoded.type_probabilities is None else type_marginals(encoded.type_probabilities)
    scored = []
    for i, (mention, names) in enumerate(zip(mentions, found, strict=True)):
        if exclude is not None:
            names = [name for name in names if not exclude(i, name.point)]
        types = marginals[i] if marginals is not None and link_query.is_typed and encoded.encodable[i] else None
        scored.append(score_names(mention, _fold(names, link_query.limit), types, link_query, scorer))
    return scored


def _search(
    target: SearchTarget,
    mentions: Sequence[str],
    rows: SparseRows,
    encoded: Encoded,
    link_query: LinkQuery,
    is_exact_match: IsExactMatch,
) -> list[list[Name]]:
    """Names for each mention in one collection, enough of them for `limit` entities if there are so many."""
    weighed = target.idf.weigh(rows)
    query = target.idf.weigh(top_weighted_features(weighed, QUERY_FEATURES))
    # By each of the two searches. Reading a payload costs Qdrant more than finding the point.
    n_names = link_query.limit + link_query.limit // 2
    found = _find(target.collection, encoded, query, n_names, link_query, is_exact_match)
    short = [i for i, names in enumerate(found) if len(names) >= n_names and _n_entities(names) < link_query.limit]
    if short:
        of_short = encoded.take(short), query.take(short)
        is_exact_match_of_short = partial(_renumbered, is_exact_match, short)
        for i, names in zip(
            short, _find(target.collection, *of_short, 4 * n_names, link_query, is_exact_match_of_short), strict=True
        ):
            found[i] = names
    for i, mention in enumerate(mentions):
        if not found[i] and mention and not encoded.encodable[i]:
            points = target.collection.find(names=[mention], types=link_query.filter, limit=MAX_NAMESAKES)
            found[i] = [Name(point, None, 1.0, 1.0, 1.0) for point in points]
    _score(target.idf, weighed, found)
    for i, names in enumerate(found):
        found[i] = [*names, *_namesakes(target.collection, names, link_query)]
    return found


def _renumbered(is_exact_match: IsExactMatch, numbers: Sequence[int], number: int, point: NamePoint) -> bool:
    """`is_exact_match` for a search of some of the mentions only."""
    return is_exact_match(numbers[number], point)


def _find(
    collection: Collection,
    encoded: Encoded,
    query: SparseRows,
    n_names: int,
    link_query: LinkQuery,
    is_exact_match: IsExactMatch,
) -> list[list[Name]]:
    """One search."""
    answers = collection.search_hybrid(
        encoded.vectors,
        query,
        limit=n_names,
        lexical_limit=link_query.limit,
        types=link_query.filter,
        is_exact_match=is_exact_match,
    )
    return [[Name(scored.point, scored.score) for scored in names] for names in answers]


def _n_entities(names: Iterable[Name]) -> int:
    return len({(name.point.kb, name.point.entity_id) for name in names})


def _score(idf: IdfTable, mentions: SparseRows, found: Sequence[Sequence[Name]]) -> None:
    """Fill in the lexical scores of all names that were found, those of one string once."""
    distinct: dict[str, int] = {}
    # A mention is no longer than that, and a name that is has no more to say.
    pairs = [
        (i, distinct.setdefault(name.point.name[:MAX_CHARACTERS], len(distinct)))
        for i, names in enumerate(found)
        for name in names
    ]
    scores: LexicalScores = compare(mentions, idf.weigh(ngram_rows(list(distinct))), pairs)
    every = zip(scores.cosine.tolist(), scores.mention_coverage.tolist(), scores.name_coverage.tolist(), strict=True)
    for name, (cosine, ours, theirs) in zip(chain.from_iterable(found), every, strict=True):
        if name.lexical < 1.0:  # found by its very name, which may have no n-gram
            name.lexical, name.mention_coverage, name.name_coverage = cosine, ours, theirs


def _namesakes(collection: Collection, names: Sequence[Name], link_query: LinkQuery) -> list[Name]:
    """The other entities that bear the best name, where so many were found that there may be more."""
    best = max(names, key=lambda name: name.before, default=None)
    if best is None:
        return []
    known = {name.point.id for name in names if name.point.name == best.point.name}
    if len(known) < link_query.limit:
        return []
    points = collection.find(names=[best.point.name], types=link_query.filter, limit=MAX_NAMESAKES)
    return [
        Name(p, best.dense, best.lexical, best.mention_coverage, best.name_coverage)
        for p in points
        if p.id not in known
    ]


def _fold(names: Iterable[Name], limit: int) -> list[Name]:
    """One name for each entity, its best; equal ones in the order of base and id."""
    best: dict[tuple[str, str], Name] = {}
    for name in sorted(names, key=_rank):
        best.setdefault((name.point.kb, name.point.entity_id), name)
    kept = list(best.values())
    # Namesakes of the best one stay together: all of them are tied.
    n_tied = sum(name.point.name == kept[0].point.name for name in kept) if kept else 0
    return kept[: max(limit, n_tied)]


def _rank(name: Name) -> tuple[float, str, str, bool]:
    point = name.point
    return -round(name.before, 6), point.kb, point.entity_id, not point.is_canonical
