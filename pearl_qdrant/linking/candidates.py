"""Finds candidates for mentions: dense and n-gram search in every collection, grouped by entity.

    search      names with the mention's keys, then names that it may be a slip of, then, unless one of these is its own
                name, those near its vector and those with the same rare n-grams; all under the filters
    score       lexical scores of every name; preliminary score = dense + lexical / 2 sorts them
    group       one name for each entity, the best
    rank        features, logits, order (`ranking/scoring.py`)

A mention whose tokens are all unknown to the tokenizer has no meaningful vector. Then only n-grams find names, and
their score replaces the dense one. A mention without n-grams, such as an emoji, matches names that equal it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from pearl_qdrant.encoder.protocol import Encoded
from pearl_qdrant.encoder.type_head import type_marginals
from pearl_qdrant.lexical.idf import IdfTable, score_pairs, top_weighted_features
from pearl_qdrant.lexical.keys import key_rows, name_keys, spelling_key
from pearl_qdrant.lexical.latin import latin
from pearl_qdrant.lexical.ngrams import SparseRows, fold_name, folded_rows, join_rows
from pearl_qdrant.lexical.slips import slip_features
from pearl_qdrant.lexical.spelling_variants import variant_word
from pearl_qdrant.linking.mentions import MAX_CHARACTERS
from pearl_qdrant.linking.ranking.edit_features import TWO_EDIT_LETTERS, edit_similarity, is_probably_slip
from pearl_qdrant.linking.ranking.scored import LinkQuery, MatchedName, ScoredMention, Scorer
from pearl_qdrant.linking.ranking.scoring import score_names
from pearl_qdrant.store.hybrid import KEY_LIMITS
from pearl_qdrant.store.protocol import Collection
from pearl_qdrant.store.schema import NamePoint
from pearl_qdrant.store.search import IsMatch, SlipQuery

QUERY_FEATURES = 8
"""N-grams per search query: those with the largest weights. All would take three times as long."""

MORE = 10
"""Entities beyond the limit that are ranked where none has the mention's own name. The preliminary score misjudges
misspelt names: their vectors mean little."""

UNKNOWN = 0.12
"""How frequent a word is at most (`IdfTable.word_frequencies`) that probably no name has: at most one of the sample."""

MAX_SAME_NAME = 10_000
"""Maximum number of names fetched if many entities share one name. The first entity by id is chosen among these."""


@dataclass(frozen=True, slots=True)
class SearchTarget:
    """A collection to search.

    Attributes:
        collection: An open collection.
        idf: Rarity of n-grams in it.
    """

    collection: Collection
    idf: IdfTable


@dataclass(frozen=True, slots=True)
class Queries:
    """The strings of m mentions, prepared for a search.

    Attributes:
        mentions, folded: m cleaned strings, and their folded forms.
        spellings, words: Their keys of spelling and of sorted words (`lexical.keys`).
        ngrams: Their n-grams, in Latin letters, m rows.
        keys: Their keys, m rows.
    """

    mentions: Sequence[str]
    folded: Sequence[str]
    spellings: Sequence[str]
    words: Sequence[str]
    ngrams: SparseRows
    keys: SparseRows

    @classmethod
    def of(cls, mentions: Sequence[str]) -> Queries:
        """Cleaned strings, prepared."""
        folded = [fold_name(mention) for mention in mentions]
        keys = [name_keys(one) for one in folded]
        return cls(
            mentions,
            folded,
            [key[0] for key in keys],
            [key[2] for key in keys],
            folded_rows([latin(one) for one in folded]),
            key_rows(keys),
        )

    def take(self, rows: Sequence[int]) -> Queries:
        """The mentions in these rows; at least one."""
        texts = (self.mentions, self.folded, self.spellings, self.words)
        mentions, folded, spellings, words = ([of[row] for row in rows] for of in texts)
        tables = (table.take(rows) for table in (self.ngrams, self.keys))
        return Queries(mentions, folded, spellings, words, *tables)


Exclude = Callable[[int, NamePoint], bool]
"""Returns whether to exclude a name for the mention with this number. Evaluations hold out names of a base with it."""


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
        targets: The collections to search.
        mentions: m cleaned strings.
        encoded: Their vectors and types, m rows, by the model that encoded the collections.
        link_query: Types and limits of the search.
        scorer: Scores the candidates.
        exclude: Names to exclude, by the number of the mention.
    """
    queries = Queries.of(mentions)
    folded, spellings = queries.folded, queries.spellings

    def is_match(number: int, point: NamePoint) -> bool:
        name = fold_name(point.name)
        is_same = spelling_key(name) == spellings[number] or is_probably_slip(folded[number], name)
        return is_same and not (exclude is not None and exclude(number, point))

    found: list[list[MatchedName]] = [[] for _ in mentions]
    for target in targets:
        matches = _search(target, queries, encoded, link_query, is_match)
        for names, more in zip(found, matches, strict=True):
            names.extend(more)
    marginals = None if encoded.type_probabilities is None else type_marginals(encoded.type_probabilities)
    frequencies = word_frequencies(targets, folded)
    scored = []
    for i, (mention, names) in enumerate(zip(mentions, found, strict=True)):
        if exclude is not None:
            names = [name for name in names if not exclude(i, name.point)]
        types = marginals[i] if marginals is not None and link_query.is_typed and encoded.encodable[i] else None
        known = _known_words(frequencies, folded[i])
        scored.append(score_names(mention, _group_by_entity(names, link_query.limit), types, link_query, scorer, known))
    return scored


def find_by_name(
    targets: Sequence[SearchTarget], mentions: Sequence[str], dim: int, link_query: LinkQuery, scorer: Scorer
) -> dict[str, ScoredMention]:
    """Those of some mentions that are names, with the entities of that name: no vector is made or searched.

    The rule for exact names decides as it does in `find_candidates`, where other candidates have no share.

    Args:
        targets: The collections to search.
        mentions: Cleaned strings.
        dim: Width of the collections' vectors.
        link_query, scorer: As for `find_candidates`.
    """
    queries = Queries.of(mentions)
    most = KEY_LIMITS * link_query.limit
    found: list[list[MatchedName]] = [[] for _ in mentions]
    incomplete: set[int] = set()
    for target in targets:
        results = target.collection.search_hybrid(
            np.zeros((len(mentions), dim), np.float32),
            queries.keys,
            limit=1,
            lexical_limit=most,
            types=link_query.filter,
            languages=link_query.languages,
        )
        own = [
            [MatchedName(one.point, None) for one in names if spelling_key(fold_name(one.point.name)) == spelling]
            for spelling, names in zip(queries.spellings, results, strict=True)
        ]
        _set_string_scores(target.idf, queries, target.idf.weighted(queries.ngrams), own)
        for i, names in enumerate(own):
            found[i] += names
            if len(names) >= link_query.limit:  # there may be more
                incomplete.add(i)
    scored = {}
    for i, (mention, spelling) in enumerate(zip(mentions, queries.spellings, strict=True)):
        if found[i] and spelling and i not in incomplete:
            grouped = _group_by_entity(found[i], link_query.limit)
            for name in grouped:
                name.dense = 1.0 if name.point.name == mention else None
            scored[mention] = score_names(mention, grouped, None, link_query, scorer)
    return scored


def word_frequencies(targets: Sequence[SearchTarget], folded: Iterable[str]) -> dict[str, float]:
    """How frequent the words of folded mentions are in the collections, in [0, 1]; 0 for what no name has."""
    words = list({word for text in folded for word in text.split()})
    tables = [target.idf.word_frequencies(words) for target in targets]
    return {word: max(table[word] for table in tables) for word in words}


def _known_words(frequencies: Mapping[str, float], folded: str) -> dict[str, float]:
    """How frequent the words of one mention are, by their normal spelling; the highest of words that share one."""
    known: dict[str, float] = {}
    for word in folded.split():
        variant = variant_word(word)
        known[variant] = max(known.get(variant, 0.0), frequencies[word])
    return known


def _search(
    target: SearchTarget,
    queries: Queries,
    encoded: Encoded,
    link_query: LinkQuery,
    is_match: IsMatch,
) -> list[list[MatchedName]]:
    """Names for each mention in one collection; enough for `limit` entities if the collection has them."""
    weighted = target.idf.weighted(queries.ngrams)
    ngrams = target.idf.weighted(top_weighted_features(weighted, QUERY_FEATURES))
    shortened = replace(queries, ngrams=ngrams)
    # A limit for each of the two searches. It is kept low because reading a payload costs more than finding its point.
    n_names = link_query.limit + link_query.limit // 2
    found = _search_names(target, encoded, shortened, n_names, link_query, is_match)
    # If many names belong to few entities, there are too few entities: search again for four times as many names.
    short = [i for i, names in enumerate(found) if len(names) >= n_names and _n_entities(names) < link_query.limit]
    if short:
        is_match_of_short = partial(_renumbered, is_match, short)
        again = _search_names(
            target,
            encoded.take(short),
            shortened.take(short),
            4 * n_names,
            link_query,
            is_match_of_short,
        )
        for i, names in zip(short, again, strict=True):
            found[i] = names
    for i, mention in enumerate(queries.mentions):
        if not found[i] and mention and not encoded.encodable[i]:
            points = target.collection.find(
                names=[mention], types=link_query.filter, languages=link_query.languages, limit=MAX_SAME_NAME
            )
            found[i] = [MatchedName(point, None, 1.0, 1.0, 1.0) for point in points]
    _set_string_scores(target.idf, queries, weighted, found)
    for i, names in enumerate(found):
        found[i] = [*names, *_others_of_best_name(target.collection, names, link_query)]
    return found


def _renumbered(is_match: IsMatch, numbers: Sequence[int], number: int, point: NamePoint) -> bool:
    """`is_match` for a search that covers only the mentions with these numbers."""
    return is_match(numbers[number], point)


def _search_names(
    target: SearchTarget,
    encoded: Encoded,
    queries: Queries,
    n_names: int,
    link_query: LinkQuery,
    is_match: IsMatch,
) -> list[list[MatchedName]]:
    """Run one hybrid search for all mentions."""
    results = target.collection.search_hybrid(
        encoded.vectors,
        queries.ngrams,
        limit=n_names,
        lexical_limit=link_query.limit,
        types=link_query.filter,
        languages=link_query.languages,
        is_match=is_match,
        keys=queries.keys,
        slips=partial(_slip_query, target.idf, queries),
    )
    return [[MatchedName(scored.point, scored.score) for scored in names] for names in results]


def _slip_query(idf: IdfTable, queries: Queries, number: int) -> SlipQuery | None:
    """What names have that one mention may be a slip of; a wide search if it has a word that hardly any name has."""
    spelling = queries.spellings[number]
    indices, values = slip_features(spelling)
    if not len(indices):
        return None
    words = queries.folded[number].split()
    is_wide = len(spelling) >= TWO_EDIT_LETTERS and min(idf.word_frequencies(words).values()) < UNKNOWN
    return SlipQuery(indices, values, is_wide)


def _n_entities(names: Iterable[MatchedName]) -> int:
    return len({(name.point.kb, name.point.entity_id) for name in names})


def _set_string_scores(
    idf: IdfTable, queries: Queries, mentions: SparseRows, found: Sequence[Sequence[MatchedName]]
) -> None:
    """Set the scores of all found names that compare strings; the n-grams of equal names are computed once.

    A name in the mention's script is compared as both are written, another one with both in Latin letters.
    """
    not_latin = [i for i, one in enumerate(queries.folded) if not one.isascii()]
    others = {i: len(mentions) + at for at, i in enumerate(not_latin)}  # rows of their n-grams as they are written
    if others:
        mentions = join_rows([mentions, idf.weighted(folded_rows([queries.folded[i] for i in others]))])
    rows: dict[str, int] = {}
    folds: dict[str, str] = {}
    pairs = []
    for i, names in enumerate(found):
        mention = queries.folded[i]
        for name in names:
            # No mention is longer than MAX_CHARACTERS, so the end of a longer name cannot match anything.
            text = name.point.name[:MAX_CHARACTERS]
            name.folded = folds.get(text) or folds.setdefault(text, fold_name(text))
            name.is_other_script = mention.isascii() != name.folded.isascii() and bool(mention and name.folded)
            if name.is_other_script:
                name.folded = latin(name.folded)
            row = i if name.is_other_script else others.get(i, i)
            pairs.append((row, rows.setdefault(name.folded, len(rows))))
    scores = score_pairs(mentions, idf.weighted(folded_rows(list(rows))), pairs)
    triples = zip(scores.cosine.tolist(), scores.mention_coverage.tolist(), scores.name_coverage.tolist(), strict=True)
    for i, names in enumerate(found):
        beginnings = _beginnings(queries.words[i])
        own, in_latin = queries.spellings[i], None
        for name, (cosine, of_mention, of_name) in zip(names, triples, strict=False):
            assert name.folded is not None
            spelling = spelling_key(name.folded)
            if name.is_other_script:
                in_latin = in_latin or spelling_key(latin(queries.folded[i]))
                name.edit_similarity = edit_similarity(in_latin, spelling)
            elif own and spelling:
                name.is_same_spelling = spelling == own
                name.edit_similarity = edit_similarity(own, spelling)
                if beginnings and not name.is_same_spelling:
                    name.has_same_words = _has_words(name.folded, queries.words[i], beginnings)
            if name.lexical < 1.0:  # 1.0 marks a name that was found by equality and may have no n-grams
                name.lexical, name.mention_coverage, name.name_coverage = cosine, of_mention, of_name


def _beginnings(words: str) -> list[str]:
    """The first letters of each word of a key of sorted words; empty for one word, which has no other order."""
    return [word[:3] for word in words.split()] if " " in words else []


def _has_words(folded: str, words: str, beginnings: Sequence[str]) -> bool:
    """Whether a folded name has this key of sorted words; the first letters of each word save most keys."""
    for one in beginnings:
        if one not in folded:
            return False
    return name_keys(folded)[2] == words


def _others_of_best_name(
    collection: Collection, names: Sequence[MatchedName], link_query: LinkQuery
) -> list[MatchedName]:
    """The other entities with the best name, if the search found so many of them that there may be more."""
    if not names or max(Counter([name.point.name for name in names]).values()) < link_query.limit:
        return []
    best = max(names, key=lambda name: name.preliminary_score)
    known = {name.point.id for name in names if name.point.name == best.point.name}
    if len(known) < link_query.limit:
        return []
    points = collection.find(
        names=[best.point.name], types=link_query.filter, languages=link_query.languages, limit=MAX_SAME_NAME
    )
    return [replace(best, point=p) for p in points if p.id not in known]


def _group_by_entity(names: Iterable[MatchedName], limit: int) -> list[MatchedName]:
    """The best name of each entity, best first, with a closer one if it has one; equal ones are sorted by base and id.
    `MORE` go beyond the limit.
    """
    best: dict[tuple[str, str], MatchedName] = {}
    # Rounded, so that rounding errors of the cosine do not decide between equal names.
    ordered = [(-round(name.preliminary_score, 6), name.point, name) for name in names]
    ordered.sort(key=lambda one: (one[0], one[1].kb, one[1].entity_id, not one[1].is_canonical))
    for _, point, name in ordered:
        first = best.setdefault((point.kb, point.entity_id), name)
        if name.edit_similarity > (first.closer or first).edit_similarity and not first.is_same_spelling:
            first.closer = name
    kept = list(best.values())
    if not kept:
        return []
    # All entities with the best name are kept, because they are tied.
    n_tied = [name.point.name for name in kept].count(kept[0].point.name)
    return kept[: max(limit if kept[0].is_same_spelling else limit + MORE, n_tied)]
