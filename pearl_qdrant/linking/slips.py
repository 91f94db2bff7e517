"""Settles slips: a mention that one name alone is near by spelling is that name, without a vector, features or judge.

    keys        no name of the base has a key of the mention (`candidates.find_by_name`)
    parts       names that share a part of it (`lexical.keys`): the nearest are one edit away
    rivals      none of the others is of another entity and within two edits
    the word    that differs is none: no English text has it, and no name of the base; so `causal`, `Type 2`, `hornbill`
                in a base of birds are left to the search

Of 24,239 mentions of fifty sets that others made 382 are settled, all rightly (the rules were chosen with these), and
of slips made of 20,000 general names three in four; exact names are right for 98.6 %. Names of up to six letters,
codes, numbers, two edits and other scripts are left: of them fewer are right (docs/experiments/linking-speed.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from rapidfuzz.distance import OSA

from pearl_qdrant.lexical.keys import MAX_LETTERS, key_rows, name_keys, near_rows, spelling_key
from pearl_qdrant.lexical.ngrams import SparseRows, equal_rows, fold_name, join_rows, word_indices
from pearl_qdrant.lexical.words import exclude_each_other, is_odd
from pearl_qdrant.linking.candidates import Folded, Queries, SearchTarget, set_string_scores
from pearl_qdrant.linking.ranking.model import COLUMN, FEATURES, NIL_FEATURES, MatchedName, ScoredEntity, ScoredMention
from pearl_qdrant.linking.ranking.scoring import BONUS, EXACT_CERTAINTY, MOST_UNJUDGED
from pearl_qdrant.linking.ranking.string_features import FAR, is_probably_slip, unshared
from pearl_qdrant.store.schema import NamePoint

LEAST_LETTERS = 7
"""Letters of mention and name from which a slip is settled. Of those of five and six letters that no name of another
entity is within two edits of, 92 % are right: `vester` is none of `Lester`."""

LEAST_SHORT = 9  # letters from which the word that differs may have three or four: `Castle Rcok`
FIRST_LETTER = MOST_UNJUDGED
"""Probability of a slip in the first letter of a word. Of 382 slips 13 are such, and right as all others are; but of 56
settled names of places and persons that a base lacks 19 were: `Wallendorf`, `Allendorf`."""

REACH = 2  # edits within which another entity has no name
_GROUPS = ("methyl", "amin", "imin", "amid", "imid")
"""Chemical groups that one letter makes another of: methyl and ethyl, amine and imine."""

N_NAMES = 16  # that are compared, of those that share parts; the first are the nearest


def find_slips(
    targets: Sequence[SearchTarget], mentions: Iterable[str], languages: Sequence[str] = ()
) -> dict[str, NamePoint]:
    """Those of some mentions, of which no name has a key, that are slips of one name alone, with that name."""
    folded = {mention: fold_name(mention) for mention in mentions}
    asked = [mention for mention, one in folded.items() if _may_be_slip(one)]
    if not asked:
        return {}
    keys, names = [spelling_key(folded[mention]) for mention in asked], Folded()
    near = _search(targets, near_rows(keys), [N_NAMES] * len(asked), languages)
    slips: dict[str, tuple[NamePoint, list[str]]] = {}
    for mention, key, points in zip(asked, keys, near, strict=True):
        point = _only_near(key, points, names)
        if point is not None and (words := _slipped(mention, folded[mention], names[point.name][0])):
            slips[mention] = point, words
    changed = sorted({word for _, words in slips.values() for word in words})
    found = _search(targets, _rows_of_words(changed), [1] * len(changed))
    known = {word for word, points in zip(changed, found, strict=True) if points}
    return {mention: point for mention, (point, words) in slips.items() if known.isdisjoint(words)}


def look_up_alone(
    targets: Sequence[SearchTarget], mention: str, *, n_by_key: int, languages: Sequence[str] = ()
) -> tuple[list[list[NamePoint]], NamePoint | None]:
    """Names with a key of one mention, for each collection, and the name that it is a slip of, if no name has a key, in
    one request to each collection.
    """
    folded, names = fold_name(mention), Folded()
    by_key, key = key_rows([name_keys(folded)]), spelling_key(folded)
    if not key:
        return [[] for _ in targets], None
    words = [word for word in dict.fromkeys(folded.split()) if is_odd(word)] if _may_be_slip(folded) else []
    table = join_rows([by_key, near_rows([key]), _rows_of_words(words)] if words else [by_key])
    limits = [n_by_key, N_NAMES, *[1] * len(words)][: len(table)]
    found = [target.collection.search_lexical(table, limits, languages=languages) for target in targets]
    own = [of_target[0] for of_target in found]
    if not words or any(own):
        return own, None
    point = _only_near(key, [point for of_target in found for point in of_target[1]], names)
    changed = [] if point is None else _slipped(mention, folded, names[point.name][0])
    known = {word for of_target in found for word, points in zip(words, of_target[2:], strict=True) if points}
    return own, point if changed and known.isdisjoint(changed) else None


def _search(
    targets: Sequence[SearchTarget],
    rows: SparseRows,
    limits: Sequence[int],
    languages: Sequence[str] = (),
) -> list[list[NamePoint]]:
    """Names of all collections for each row of features."""
    found = [list[NamePoint]() for _ in limits]
    for target in targets if limits else ():
        for names, more in zip(found, target.collection.search_lexical(rows, limits, languages=languages), strict=True):
            names += more
    return found


def _rows_of_words(words: Sequence[str]) -> SparseRows:
    return equal_rows([*word_indices(words)[:, None]] if words else [])


def _may_be_slip(folded: str) -> bool:
    """Whether a folded mention is long enough, in Latin letters, and has a word that may be one with a slip."""
    n = len(folded)
    if not LEAST_LETTERS - 1 <= n <= MAX_LETTERS or not folded.isascii():
        return False
    return any(len(word) > 2 and is_odd(word) for word in folded.split())


def _only_near(key: str, points: Sequence[NamePoint], names: Folded) -> NamePoint | None:
    """The name that is one edit from a spelling key, if no other entity has one within `REACH`."""
    best: NamePoint | None = None
    entities = set()
    for point in points:
        other = names[point.name][1]
        edits = OSA.distance(key, other, score_cutoff=REACH)
        if edits > REACH:
            continue
        if edits == 0:  # under a type filter, a name of another type
            return None
        entities.add((point.kb, point.entity_id))
        if edits == 1 and len(other) >= LEAST_LETTERS and (best is None or _order(point) < _order(best)):
            best = point
    return best if len(entities) == 1 and len(key) >= LEAST_LETTERS else None


def _order(point: NamePoint) -> tuple[bool, str]:
    return not point.is_canonical, point.name


def _slipped(mention: str, folded: str, name: str) -> list[str]:
    """The words of a mention that are not those of a name because of a slip; none where it is no slip."""
    ours, theirs = unshared(folded.split(), name.split())
    if not ours or not all(map(is_odd, ours)):
        return []
    if is_probably_slip(folded, name):
        return [] if _is_other_group(spelling_key(folded), spelling_key(name)) else ours
    if len(ours) != 1 or not theirs or len(name) < LEAST_SHORT:
        return []
    one, other = ours[0], "".join(theirs)
    if len(theirs) > 1 and not _is_joined(one, *theirs):
        return []
    if min(len(one), len(other)) < 3 or not other.isalpha() or exclude_each_other(one, other):
        return []
    return [] if _is_code(one, mention) else ours


def _is_code(word: str, mention: str) -> bool:
    """Whether a folded word has several capitals in a mention that has small letters, too: `type IIb fibre`."""
    written = (text for text in mention.split() if word in fold_name(text).split())
    return not mention.isupper() and any(sum(map(str.isupper, text)) > 1 for text in written)


def _is_joined(word: str, first: str, *others: str) -> bool:
    """Whether a word is two, with a letter in place of the space."""
    last = "".join(others)
    return (
        len(others) == 1 and len(word) == len(first) + 1 + len(last) and word.startswith(first) and word.endswith(last)
    )


def _is_other_group(mention: str, name: str) -> bool:
    """Whether one of two spelling keys names a chemical group that the other lacks."""
    return any((group in mention) != (group in name) for group in _GROUPS)


def settled(targets: Sequence[SearchTarget], slips: Mapping[str, NamePoint]) -> dict[str, ScoredMention]:
    """Slips as scored mentions, whose only candidate is the name that each is a slip of."""
    found = {mention: [MatchedName(point, None)] for mention, point in slips.items()}
    for target in targets:
        kb = target.collection.manifest.kb
        own = [mention for mention, point in slips.items() if point.kb == kb]
        if own:
            queries = Queries.of(own, slips)
            names = [found[mention] for mention in own]
            set_string_scores(target.idf, queries, queries.ngrams(target.idf), names, Folded())
    return {mention: _scored(mention, name) for mention, (name,) in found.items()}


def _scored(mention: str, name: MatchedName) -> ScoredMention:
    features = np.zeros(len(FEATURES))
    features[COLUMN["lexical"]], features[COLUMN["mention_coverage"]] = name.lexical, name.mention_coverage
    features[COLUMN["edit_similarity"]] = max(0.0, name.edit_similarity - FAR) / (1 - FAR)
    features[COLUMN["canonical"]] = float(name.point.is_canonical)
    entity = ScoredEntity(name, features, BONUS, offset=BONUS)
    return ScoredMention(
        mention, [entity], BONUS - _slip_logit(mention, name.point), np.zeros(len(NIL_FEATURES)), "slip"
    )


def _slip_logit(mention: str, point: NamePoint) -> float:
    """Logit of a slip above NIL: more of them are right than of exact names, and no name is more certain than these."""
    ours, theirs = unshared(fold_name(mention).split(), fold_name(point.name).split())
    one, other = ours[0][:2], theirs[0][:2]
    is_first = one[0] != other[0] and one != other[::-1]  # not where two letters are swapped
    probability = FIRST_LETTER if is_first else EXACT_CERTAINTY
    return math.log(probability / (1 - probability))


def put_slip_first(scored: ScoredMention, point: NamePoint) -> ScoredMention:
    """A mention that was searched, too, with the entity whose name it is a slip of as the first candidate."""
    key = point.kb, point.entity_id
    known = [entity for entity in scored.found if entity.key == key and entity.point.name == point.name]
    others = [replace(entity, is_namesake=False, tie=False) for entity in scored.found if entity.key != key]
    logit = BONUS + max([0.0, *(entity.logit for entity in others)])
    if known:
        first = replace(known[0], logit=logit, offset=logit - known[0].logit, is_namesake=False, tie=False)
    else:
        first = ScoredEntity(MatchedName(point, None), np.zeros(len(FEATURES)), logit, offset=logit)
    return replace(
        scored, found=[first, *others], nil_logit=logit - _slip_logit(scored.mention, point), rule="slip", certainty=1.0
    )
