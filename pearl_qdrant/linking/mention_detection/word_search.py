"""Which strings of a text names may have, by their words: what a text is searched for before anything is encoded.

Most runs of words of a text are in no name. So each distinct word is looked up once, in any language: names that are
spelled like it, and names that have it, or a word like it. A string is possible if it may mention one of these
(`name_policy.may_mention`): one word a name of one word, several words a name that has all of them, or, if they are
capitalised, one of them. Names with a frequent word are not listed: a string of frequent words alone is looked up as a
whole. A word costs a tenth of what a string costs that is linked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

import numpy as np

from pearl_qdrant.lexical.ngrams import equal_rows, fold_name, folded_rows, latin, top_weighted_features, word_indices
from pearl_qdrant.lexical.words import other_spellings, without_legal_forms
from pearl_qdrant.linking.candidates import QUERY_FEATURES, SearchTarget, names_sharing, word_frequencies
from pearl_qdrant.linking.mention_detection.name_policy import LOOSE, NO_MATTER, has_words, is_like
from pearl_qdrant.linking.mention_detection.spans import Span
from pearl_qdrant.pieces import pausing
from pearl_qdrant.store.schema import NamePoint

_NEAR = 12  # names that are spelled most like a word
_LISTED = 64  # names with a word; one that so many have is frequent, and of a string's words the rarest counts
_TOGETHER = 20  # names looked at for a string of frequent words
_NO_WORDS = np.empty(0, np.uint32)


MayMention = Callable[[str, Sequence[Span], NamePoint, bool], bool]
"""Whether one of the spans of a string may mention a name, by its point and whether it is that name, folded."""


class _Name(NamedTuple):
    """A name that was found, and its folded words."""

    point: NamePoint
    words: list[str]


class WordSearch:
    """Looks up strings in some collections by their words; `types` as in `Collection.search_hybrid`. Whether the words
    of all names are counted: the tables of large bases have seen a sample.
    """

    def __init__(self, targets: Sequence[SearchTarget], *, types: Sequence[str] = (), is_counted: bool) -> None:
        self._targets, self._types, self._is_counted = targets, types, is_counted

    def possible(self, spans: Mapping[str, Sequence[Span]], may: MayMention) -> set[str]:
        """Those of some strings, each with its spans, that may mention a name, by their words."""
        words_of = {text: fold_name(text).split() for text in spans}
        single = {words[0] for words in words_of.values() if len(words) == 1}
        several = {word for words in words_of.values() if len(words) > 1 for word in words} - NO_MATTER
        words = sorted(single | several)
        near = dict(zip(words, self._search([[latin(word)] for word in words], _NEAR, by_ngrams=True), strict=True))
        spellings = {word: other_spellings(word) for word in several}
        known = self._known({one for some in spellings.values() for one in some})
        forms = {word: (some & known) | _like(word, near[word]) for word, some in spellings.items()}
        listed = dict(zip(forms, self._search(list(forms.values()), _LISTED), strict=True))
        possible, frequent = set[str](), list[str]()
        for text, of_text in pausing(words_of.items()):
            content = [word for word in of_text if word not in NO_MATTER]
            rarest = min((listed[word] for word in content if word in listed), key=len, default=[])
            if len(of_text) == 1:
                names = [name for name in near[of_text[0]] if len(without_legal_forms(name.words)) == 1]
            elif not all(span.shape in LOOSE for span in spans[text]):
                names = list(chain.from_iterable(listed[word] for word in content))
            elif len(rarest) >= _LISTED:
                frequent.append(text)
                continue
            else:
                names = [name for name in rarest if _has(name, content, forms)]
            if any(may(text, spans[text], name.point, name.words == of_text) for name in names):
                possible.add(text)
        contents = [[word for word in words_of[text] if word not in NO_MATTER] for text in frequent]
        together = [[*chain.from_iterable(forms[word] for word in content)] for content in contents]
        for text, content, names in zip(frequent, contents, self._search(together, _TOGETHER), strict=True):
            names = [name for name in names if _has(name, content, forms)]
            if any(may(text, spans[text], name.point, name.words == words_of[text]) for name in names):
                possible.add(text)
        return possible

    def _search(self, wanted: Sequence[Iterable[str]], limit: int, *, by_ngrams: bool = False) -> list[list[_Name]]:
        """Names for each of n lists of words: at most `limit` that have one, or an n-gram, of it."""
        found: list[list[_Name]] = [[] for _ in wanted]
        for target in self._targets if wanted else ():
            if by_ngrams:
                weighted = target.idf.weighted(folded_rows([" ".join(words) for words in wanted]))
                rows = target.idf.weighted(top_weighted_features(weighted, QUERY_FEATURES))
            else:
                of_words = [np.unique(word_indices([*words])) if words else _NO_WORDS for words in wanted]
                rows = equal_rows(of_words)
            results = names_sharing(target.collection, rows, limit, types=self._types)
            for names, more in zip(found, results, strict=True):
                names += [_Name(point, _folded_words(point.name)) for point in more]
        return found

    def _known(self, words: set[str]) -> set[str]:
        """Those of some folded words that a name may have."""
        if not self._is_counted:
            return words
        return {word for word, frequency in word_frequencies(self._targets, words).items() if frequency > 0}


def _like(word: str, near: Iterable[_Name]) -> set[str]:
    """The words of some names that are like a word."""
    return {one for name in near for one in name.words if is_like(word, one)}


def _has(name: _Name, words: Sequence[str], forms: Mapping[str, frozenset[str]]) -> bool:
    """Whether a name has all of some words, each in one of its forms, or a word like it."""
    missing = [word for word in words if forms[word].isdisjoint(name.words)]
    return not missing or (len(missing) < len(words) and has_words(missing, name.words))


@lru_cache(maxsize=16_384)
def _folded_words(name: str) -> list[str]:
    return fold_name(name).split()
