"""Which strings of a text names may have, by their words: what a text is searched for before anything is encoded.

Most runs of words of a text are in no name. So each distinct word is looked up once, in any language: names that are
spelled like it, and names that have it, or a word like it. A string is possible if it is one word and such a name is a
form of it, or if one name has all its words. Names with a frequent word are not listed: a string of frequent words alone
is looked up as a whole. A word costs a tenth of what a string costs that is linked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np

from pearl_qdrant.lexical.ngrams import SparseRows, fold_name, folded_rows, latin, top_weighted_features, word_indices
from pearl_qdrant.lexical.words import other_spellings, without_legal_forms
from pearl_qdrant.linking.candidates import QUERY_FEATURES, SearchTarget
from pearl_qdrant.linking.mention_detection.name_policy import NO_MATTER, has_words, is_like, may_be_form
from pearl_qdrant.pieces import pausing
from pearl_qdrant.store.protocol import ScoredName

_NEAR = 20  # names that are spelled most like a word
_LISTED = 64  # names with a word; one that so many have is frequent, and of a string's words the rarest counts
_TOGETHER = 20  # names looked at for a string of frequent words


class WordSearch:
    """Looks up strings in some collections by their words; `types` as in `Collection.search_hybrid`."""

    def __init__(self, targets: Sequence[SearchTarget], *, dim: int, types: Sequence[str] = ()) -> None:
        self._targets, self._dim, self._types = targets, dim, types
        self._folded: dict[str, list[str]] = {}

    def possible(self, written: Iterable[str]) -> set[str]:
        """Those of some strings that are one word and like a name, or whose words one name has."""
        words_of = {text: fold_name(text).split() for text in written}
        single = {words[0] for words in words_of.values() if len(words) == 1}
        several = {word for words in words_of.values() if len(words) > 1 for word in words} - NO_MATTER
        words = sorted(single | several)
        near = dict(zip(words, self._search([[latin(word)] for word in words], _NEAR, by_ngrams=True), strict=True))
        forms = {word: self._forms(word, near[word]) for word in several}
        listed = dict(zip(forms, self._search(list(forms.values()), _LISTED), strict=True))
        possible, frequent = set[str](), list[str]()
        for text, of_text in pausing(words_of.items()):
            if len(of_text) == 1:
                if any(may_be_form(of_text[0], " ".join(without_legal_forms(name))) for name in near[of_text[0]]):
                    possible.add(text)
                continue
            content = [word for word in of_text if word not in NO_MATTER]
            rarest = min((listed[word] for word in content), key=len, default=[])
            if len(rarest) >= _LISTED:
                frequent.append(text)
            elif any(self._has(name, content, forms) for name in rarest):
                possible.add(text)
        contents = [[word for word in words_of[text] if word not in NO_MATTER] for text in frequent]
        asked = [[*chain.from_iterable(forms[word] for word in content)] for content in contents]
        for text, content, names in zip(frequent, contents, self._search(asked, _TOGETHER), strict=True):
            if any(self._has(name, content, forms) for name in names):
                possible.add(text)
        return possible

    def _forms(self, word: str, near: Sequence[Sequence[str]]) -> set[str]:
        """A word as names may have it: in its spellings, and what is like it in names that are spelled like it."""
        return {*other_spellings(word), *(one for name in near for one in name if is_like(word, one))}

    def _has(self, name: Sequence[str], words: Sequence[str], forms: dict[str, set[str]]) -> bool:
        """Whether a name has all of some words."""
        missing = [word for word in words if forms[word].isdisjoint(name)]
        return not missing or (len(missing) < len(words) and has_words(missing, name))

    def _search(
        self, wanted: Sequence[Iterable[str]], limit: int, *, by_ngrams: bool = False
    ) -> list[list[list[str]]]:
        """The folded words of names for each of n lists of words: at most `limit` that have one, or an n-gram, of it."""
        found: list[list[list[str]]] = [[] for _ in wanted]
        for target in self._targets if wanted else ():
            if by_ngrams:
                weighted = target.idf.weighted(folded_rows([" ".join(words) for words in wanted]))
                rows = target.idf.weighted(top_weighted_features(weighted, QUERY_FEATURES))
            else:
                rows = _word_rows(wanted)
            no_vectors = np.zeros((len(wanted), self._dim), np.float32)
            results = target.collection.search_hybrid(
                no_vectors, rows, limit=1, lexical_limit=limit, types=self._types
            )
            for names, more in zip(found, results, strict=True):
                names += map(self._words, more)
        return found

    def _words(self, found: ScoredName) -> list[str]:
        name = found.point.name
        if name not in self._folded:
            self._folded[name] = fold_name(name).split()
        return self._folded[name]


def _word_rows(wanted: Sequence[Iterable[str]]) -> SparseRows:
    """Sparse vectors of lists of folded words, each word as important as the others."""
    rows = [np.unique(word_indices([*words])) if words else np.empty(0, np.uint32) for words in wanted]
    indices = np.concatenate([np.empty(0, np.uint32), *rows])
    offsets = np.cumsum([0, *map(len, rows)])
    return SparseRows(indices, np.ones(len(indices), np.float32), offsets.astype(np.int64))
