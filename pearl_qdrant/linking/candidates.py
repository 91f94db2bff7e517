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
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import numpy as np

from pearl_qdrant.encoder.protocol import Encoded, type_marginals
from pearl_qdrant.lexical.first_names import has_other_word
from pearl_qdrant.lexical.keys import fits_initials, initials, key_rows, name_keys, slip_features, spelling_key
from pearl_qdrant.lexical.ngrams import (
    IdfTable,
    SparseRows,
    fold_name,
    folded_rows,
    join_rows,
    latin,
    score_pairs,
    top_weighted_features,
)
from pearl_qdrant.linking.mentions import MAX_CHARACTERS
from pearl_qdrant.linking.ranking.model import LinkQuery, MatchedName, ScoredMention, Scorer
from pearl_qdrant.linking.ranking.scoring import ask_judge, compare_names, score_compared, score_own
from pearl_qdrant.linking.ranking.short_forms import best_way, shipped_short_forms, short_form
from pearl_qdrant.linking.ranking.string_features import (
    TWO_EDIT_LETTERS,
    edit_similarity,
    is_probably_slip,
    is_two_edits_away,
)
from pearl_qdrant.pieces import pausing
from pearl_qdrant.store.hybrid import KEY_LIMITS
from pearl_qdrant.store.protocol import Collection
from pearl_qdrant.store.schema import NamePoint
from pearl_qdrant.store.search import IsMatch, OwnNames, SlipQuery

QUERY_FEATURES = 8  # n-grams per search query: those with the largest weights. All would take three times as long.

MORE = 10
"""Entities beyond the limit that are ranked where none has the mention's own name, as it stands or but for a slip. The
preliminary score misjudges misspelt names: their vectors mean little."""

UNKNOWN = 0.12
"""How frequent a word is at most (`IdfTable.word_frequencies`) that probably no name has: at most one of the sample."""

SHORT_WORDS = 30
"""Words of a name that are compared with a short form."""

MAX_SAME_NAME = 10_000
"""Maximum number of names fetched if many entities share one name. The first entity by id is chosen among these."""


@dataclass(frozen=True, slots=True)
class SearchTarget:
    """A collection to search."""

    collection: Collection  # an open collection
    idf: IdfTable  # rarity of n-grams in it


@dataclass(frozen=True, slots=True)
class Queries:
    """The strings of m mentions, prepared for a search."""

    mentions: Sequence[str]  # m cleaned strings
    folded: Sequence[str]  # their folded forms
    spellings: Sequence[str]  # their keys of spelling (`lexical.keys`)
    words: Sequence[str]  # and of sorted words
    keys: SparseRows  # their keys, m rows

    @classmethod
    def of(cls, mentions: Sequence[str], keyless: Container[str] = ()) -> Queries:
        """Cleaned strings, prepared; those of `keyless` have empty rows of keys."""
        folded = [fold_name(mention) for mention in mentions]
        keys = [name_keys(one) for one in folded]
        searched = [("", "", "") if one in keyless else key for one, key in zip(mentions, keys, strict=True)]
        return cls(mentions, folded, [key[0] for key in keys], [key[2] for key in keys], key_rows(searched))

    def take(self, rows: Sequence[int]) -> Queries:
        """The mentions in these rows; at least one."""
        texts = (self.mentions, self.folded, self.spellings, self.words)
        mentions, folded, spellings, words = ([of[row] for row in rows] for of in texts)
        return Queries(mentions, folded, spellings, words, self.keys.take(rows))

    def ngrams(self, idf: IdfTable) -> SparseRows:
        """Their n-grams, in Latin letters, m weighted rows."""
        return idf.weighted(folded_rows([latin(one) for one in self.folded]))


class Folded(dict[str, tuple[str, str]]):
    """Folded forms and spelling keys of names, by name; each is made once."""

    def __missing__(self, name: str) -> tuple[str, str]:
        folded = fold_name(name)
        made = self[name] = folded, spelling_key(folded)
        return made


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
    keyless: Container[str] = (),
) -> list[ScoredMention]:
    """Entities for each of m cleaned mentions, best first. The encoder of the collections made their vectors and types.
    `keyless` are mentions of which no name has a key, as `find_by_name` says; they are not searched by keys again.
    """
    queries = Queries.of(mentions, keyless)
    folded, spellings, names_folded = queries.folded, queries.spellings, Folded()

    def is_match(number: int, point: NamePoint) -> bool:
        name, spelling = names_folded[point.name]
        is_same = spelling == spellings[number] or is_probably_slip(folded[number], name)
        if not is_same or (exclude is not None and exclude(number, point)):
            return False
        named.add(number)
        return True

    found: list[list[MatchedName]] = [[] for _ in mentions]
    named: set[int] = set()  # the mentions whose own name is found
    words = list({word for text in folded for word in text.split()})
    tables = [target.idf.word_frequencies(words) for target in targets]
    for target, table in zip(targets, tables, strict=True):
        matches = _search(target, queries, encoded, link_query, is_match, table, names_folded)
        for names, more in zip(found, matches, strict=True):
            names.extend(more)
    marginals = None if encoded.type_probabilities is None else type_marginals(encoded.type_probabilities)
    compared = []
    for i, (mention, names) in enumerate(pausing(zip(mentions, found, strict=True))):
        if exclude is not None:
            names = [name for name in names if not exclude(i, name.point)]
        names = [name for name in names if not _is_short_for_another(folded[i], spellings[i], name, names_folded)]
        types = marginals[i] if marginals is not None and link_query.is_typed and encoded.encodable[i] else None
        entities = _group_by_entity(names, link_query.limit, has_own=i in named)
        compared.append(compare_names(mention, entities, types, link_query, scorer))
    ask_judge(compared, scorer)
    return [score_compared(one, link_query, scorer) for one in compared]


def find_by_name(
    targets: Sequence[SearchTarget],
    mentions: Sequence[str],
    link_query: LinkQuery,
    scorer: Scorer,
    hits: Sequence[Sequence[Sequence[NamePoint]]] | None = None,
) -> tuple[dict[str, ScoredMention], set[str]]:
    """Those of some mentions that are names, with the entities of that name: no vector is made or searched. And those
    of which no name has a key. The rule for exact names decides as in `find_candidates`, where other candidates have no
    share. `hits` are the names with a key, by collection and mention, where the caller has looked them up.
    """
    queries = Queries.of(mentions)
    look_up = partial(
        names_sharing,
        rows=queries.keys,
        limit=n_by_key(link_query),
        types=link_query.filter,
        languages=link_query.languages,
    )
    found: list[list[MatchedName]] = [[] for _ in mentions]
    incomplete: set[int] = set()
    keyless = set(mentions)
    folded = Folded()
    for at, target in enumerate(targets):
        results = hits[at] if hits is not None else look_up(target.collection)
        own: dict[int, list[MatchedName]] = {}
        for i, points in enumerate(results):
            if same := [point for point in points if folded[point.name][1] == queries.spellings[i]]:
                own[i] = [MatchedName(point, None) for point in same]
            if points:
                keyless.discard(mentions[i])
        if own and link_query.names_first:
            of_own = queries.take([*own])
            set_string_scores(target.idf, of_own, of_own.ngrams(target.idf), [*own.values()], folded)
        for i, names in own.items():
            found[i] += names
            if len(names) >= link_query.limit:  # there may be more
                incomplete.add(i)
    scored: dict[str, ScoredMention] = {}
    if not link_query.names_first:
        return scored, keyless
    for i, (mention, spelling) in enumerate(zip(mentions, queries.spellings, strict=True)):
        if found[i] and spelling and i not in incomplete:
            grouped = _group_by_entity(found[i], link_query.limit, has_own=True)
            for name in grouped:
                name.dense = 1.0 if name.point.name == mention else None
            scored[mention] = score_own(mention, grouped, link_query, scorer)
    return scored, keyless


def n_by_key(link_query: LinkQuery) -> int:
    """Names with a key of a mention that are looked up: all of its own, or one where it is only asked whether there are
    any.
    """
    return KEY_LIMITS * link_query.limit if link_query.names_first else 1


def names_sharing(
    collection: Collection,
    rows: SparseRows,
    limit: int,
    *,
    types: Sequence[str] = (),
    languages: Sequence[str] = (),
) -> list[list[NamePoint]]:
    """Names of a collection that share features with each of n rows, at most so many, and as a query may request."""
    no_vectors = np.zeros((len(rows), collection.manifest.dim), np.float32)
    most = min(limit, collection.most_points or limit)
    found = collection.search_hybrid(no_vectors, rows, limit=1, lexical_limit=most, types=types, languages=languages)
    return [[one.point for one in names] for names in found]


def word_frequencies(targets: Sequence[SearchTarget], folded: Iterable[str]) -> dict[str, float]:
    """How frequent the words of folded mentions are in the collections, in [0, 1]; 0 for what no name has."""
    words = list({word for text in folded for word in text.split()})
    tables = [target.idf.word_frequencies(words) for target in targets]
    return {word: max(table[word] for table in tables) for word in words}


def _search(
    target: SearchTarget,
    queries: Queries,
    encoded: Encoded,
    link_query: LinkQuery,
    is_match: IsMatch,
    frequencies: Mapping[str, float],
    folded: Folded,
) -> list[list[MatchedName]]:
    """Names for each mention in one collection; enough for `limit` entities if the collection has them."""
    weighted = queries.ngrams(target.idf)
    ngrams = target.idf.weighted(top_weighted_features(_searched(queries, weighted, target.idf), QUERY_FEATURES))
    # A limit for each of the two searches. It is kept low because reading a payload costs more than finding its point.
    n_names = link_query.limit + link_query.limit // 2

    def search(rows: Sequence[int], n: int) -> list[list[MatchedName]]:
        results = target.collection.search_hybrid(
            encoded.vectors[rows],
            ngrams.take(rows),
            limit=n,
            lexical_limit=link_query.limit,
            types=link_query.filter,
            languages=link_query.languages,
            own=OwnNames(
                lambda number, point: is_match(rows[number], point),
                queries.keys.take(rows),
                lambda number: _slip_query(queries, frequencies, rows[number], folded),
            ),
        )
        return [[MatchedName(scored.point, scored.score) for scored in names] for names in results]

    found = search(range(len(queries.mentions)), n_names)
    # If many names belong to few entities, there are too few entities: search again for four times as many names.
    short = [i for i, names in enumerate(found) if len(names) >= n_names and _n_entities(names) < link_query.limit]
    for i, names in zip(short, search(short, 4 * n_names) if short else (), strict=True):
        found[i] = names
    for i, mention in enumerate(queries.mentions):
        if not found[i] and mention and not encoded.encodable[i]:
            points = target.collection.find(
                names=[mention], types=link_query.filter, languages=link_query.languages, limit=MAX_SAME_NAME
            )
            found[i] = [MatchedName(point, None, 1.0, 1.0) for point in points]
    set_string_scores(target.idf, queries, weighted, found, folded)
    for mention, names in zip(queries.mentions, found, strict=True):
        _set_short_forms(target.idf, mention, names)
    for i, names in enumerate(found):
        found[i] = [*names, *_others_of_best_name(target.collection, names, link_query)]
    return found


def _searched(queries: Queries, weighted: SparseRows, idf: IdfTable) -> SparseRows:
    """The n-grams that mentions are searched by, m weighted rows: of short forms with small letters those of parts."""
    short = {i: found for i, one in enumerate(queries.mentions) if (found := short_form(one)) and found.is_mixed}
    if not short:
        return weighted
    at = np.arange(len(weighted))
    at[[*short]] = len(weighted) + np.arange(len(short))
    return join_rows([weighted, idf.weighted(folded_rows([one.searched for one in short.values()]))]).take(at)


def _slip_query(queries: Queries, frequencies: Mapping[str, float], number: int, folded: Folded) -> SlipQuery | None:
    """What names have that one mention may be a slip of; a wide search if it has a word that hardly any name has."""
    spelling = queries.spellings[number]
    mention = queries.folded[number]
    indices, values = slip_features(mention, is_short=short_form(queries.mentions[number]) is not None)
    if not len(indices):
        return None
    is_wide = len(spelling) >= TWO_EDIT_LETTERS and min([frequencies[word] for word in mention.split()]) < UNKNOWN
    is_near = (lambda point: is_two_edits_away(mention, folded[point.name][0])) if is_wide else None
    return SlipQuery(indices, values, is_near)


def _n_entities(names: Iterable[MatchedName]) -> int:
    return len({(name.point.kb, name.point.entity_id) for name in names})


def set_string_scores(
    idf: IdfTable, queries: Queries, mentions: SparseRows, found: Sequence[Sequence[MatchedName]], names_folded: Folded
) -> None:
    """Set the scores of all found names that compare strings; the n-grams of equal names are computed once. A name in
    the mention's script is compared as both are written, another one with both in Latin letters.
    """
    not_latin = [i for i, one in enumerate(queries.folded) if not one.isascii()]
    others = {i: len(mentions) + at for at, i in enumerate(not_latin)}  # rows of their n-grams as they are written
    if others:
        mentions = join_rows([mentions, idf.weighted(folded_rows([queries.folded[i] for i in others]))])
    rows: dict[str, int] = {}
    pairs, spellings = [], []
    for i, names in enumerate(pausing(found)):
        mention, in_script, in_latin = queries.folded[i], others.get(i, i), None
        own, words = queries.spellings[i], queries.words[i]
        beginnings = [word[:3] for word in words.split()] if " " in words else []  # one word has no other order
        for name in names:
            # No mention is longer than MAX_CHARACTERS, so the end of a longer name cannot match anything.
            folded, spelling = names_folded[name.point.name[:MAX_CHARACTERS]]
            row, compared = in_script, own
            if mention.isascii() != folded.isascii() and mention and folded:
                name.is_other_script, folded = True, latin(folded)
                row, spelling = i, spelling_key(folded)
                compared = in_latin = in_latin or spelling_key(latin(mention))
            elif own and spelling == own:
                name.is_same_spelling = True
            else:
                has_words = bool(beginnings and spelling) and _has_words(folded, words, beginnings)
                name.is_other_form = has_words or fits_initials(folded, own) or fits_initials(mention, spelling)
            name.folded = folded
            pairs.append((row, rows.setdefault(folded, len(rows))))
            spellings.append((compared, spelling))
    columns = (one.tolist() for one in score_pairs(mentions, idf.weighted(folded_rows(list(rows))), pairs))
    for name, both, *of_pair in zip(chain.from_iterable(found), spellings, *columns, strict=True):
        if both[0] and both[1]:
            name.edit_similarity = edit_similarity(*both)
        if name.lexical < 1.0:  # 1.0 marks a name that was found by equality and may have no n-grams
            name.lexical, name.mention_coverage = of_pair


def _set_short_forms(idf: IdfTable, mention: str, names: Sequence[MatchedName]) -> None:
    """Set what the letters of found names add, if the mention may be short for them."""
    if (short := short_form(mention)) is None:
        return
    model = shipped_short_forms()
    words = [(name.folded or "").split()[:SHORT_WORDS] for name in names]
    frequencies = idf.word_frequencies(list({word for of_name in words for word in of_name}))
    for name, of_name in zip(names, words, strict=True):
        steps = best_way(short, of_name, [1.0 - frequencies[word] for word in of_name], model)
        name.short_form = None if steps is None else model.score(steps)


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


MOST_CODE = 3
"""Letters of a code, which is short for the canonical name of its entity and for nothing longer."""


def _is_short_for_another(mention: str, spelling: str, name: MatchedName, names: Folded) -> bool:
    """Whether a name is short for the canonical name of its entity and not for a folded mention with this spelling key,
    which is longer: `MS` is multiple sclerosis and not mass spectrometry, `CA` is Canada and not California, `J. Smith`
    is John and not James.
    """
    point = name.point
    if point.is_canonical or name.is_same_spelling:
        return False
    folded, short = names[point.name]
    canonical = names[point.canonical_name][0]
    if letters := {word for word in folded.split() if len(word) == 1}:
        others = [word for word in mention.split() if word not in short]  # `US` is `U.S.`
        if has_other_word(others, canonical.split(), letters):
            return True
    if len(spelling) < 2 * len(short) or len(canonical) <= len(folded) or canonical == mention:
        return False
    if not point.name.isalnum() or short in mention.split():
        return False
    if len(short) <= MOST_CODE:
        return short not in canonical.split()
    return short in initials(mention.split()) and short in initials(canonical.split())


def _group_by_entity(names: Iterable[MatchedName], limit: int, *, has_own: bool) -> list[MatchedName]:
    """The best name of each entity, best first, with a closer one if it has one; equal ones are sorted by base and id.
    `MORE` go beyond the limit unless one is the mention's own name, as it stands or but for a slip.
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
    return kept[: max(limit if has_own or kept[0].is_same_spelling else limit + MORE, n_tied)]
