"""What the texts around names say: whether a name in two texts is of one thing, and whether two names are.

A text is read without the words of its name; the cosine of two texts, above that of unrelated ones, speaks for one
thing or against it. Of mentions of one string in news (AIDA, 500 pairs of one entity and 500 of two), it puts the pair
of one entity first in 80 % of the comparisons, in 89 % where texts have less than 20 words. Names that one text has
beside each other are no more alike by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.lexical.words import SMALL_WORDS, variant_words
from pearl_qdrant.linking.ranking.model import baseline_similarity
from pearl_qdrant.resolution.names import FormKey, Forms

SLOPE, EVEN = 5.6, 0.38
"""Log odds for one thing, by the cosine above that of unrelated texts, and the cosine that says nothing (AIDA)."""

MOST_AGAINST, MOST_FOR = -3.0, 2.0  # Log odds that texts add to those of two names

LEAST_OF_ONE = 0.26
"""Mean cosine from which the texts of one name are about one thing: 7 of 100 pairs that are lie below it, and 6 of 10
of those that are not, where texts are short (AIDA)."""

MOST_READ = 4  # Texts of a form that are read

FloatArray = npt.NDArray[np.float64]


class TextVectors:
    """Vectors of texts without the words of a name; each text is encoded once."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._baseline = baseline_similarity(encoder)
        self._known: dict[tuple[str, str], npt.NDArray[np.float32] | None] = {}

    def add(self, texts: Iterable[tuple[str, str]]) -> None:
        """Encode texts with the names that they are of, all in one call."""
        words = {key: _other_words(*key) for key in dict.fromkeys(texts) if key not in self._known}
        new = [key for key, found in words.items() if found]
        self._known.update(dict.fromkeys(words))
        if new:
            encoded = self._encoder.encode([words[key] for key in new])
            vectors = np.asarray(encoded.vectors, np.float32)
            self._known.update((key, vectors[i]) for i, key in enumerate(new) if encoded.encodable[i])

    def mean(self, texts: Iterable[tuple[str, str]]) -> npt.NDArray[np.float32] | None:
        """The vector of unit length of several texts that were added; None if none of them says anything."""
        found = [vector for key in texts if (vector := self._known[key]) is not None]
        if not found:
            return None
        total: npt.NDArray[np.float32] = np.sum(found, axis=0)
        return total / max(float(np.linalg.norm(total)), 1e-9)

    def above_baseline(self, cosines: npt.NDArray[np.floating]) -> FloatArray:
        """Cosines on the scale where unrelated texts have 0, and equal ones 1."""
        above: FloatArray = (cosines.astype(np.float64) - self._baseline) / (1 - self._baseline)
        return above


def _other_words(name: str, text: str) -> str:
    """The words of a text that its name does not have, folded; small ones left out."""
    own = {*variant_words(fold_name(name).split()), *SMALL_WORDS}
    said = fold_name(text.encode("utf-8", "replace").decode())
    return " ".join(word for word in variant_words(said.split()) if word not in own)


def tell_apart(pools: Mapping[FormKey, Sequence[str]], encoder: Encoder) -> dict[FormKey, dict[str, str]]:
    """The texts of names that are of several things: each with the first text of its own thing. A text that says
    nothing beside the name has no thing. Texts are put together by their mean cosine, the most alike first.
    """
    vectors = TextVectors(encoder)
    vectors.add((key[0], text) for key, texts in pools.items() for text in texts)
    found = {}
    for key, texts in pools.items():
        said = [(text, vector) for text in sorted(texts) if (vector := vectors.mean([(key[0], text)])) is not None]
        groups = _grouped(vectors.above_baseline(_cosines([vector for _, vector in said])))
        if len(groups) > 1:
            found[key] = {said[i][0]: said[group[0]][0] for group in groups for i in group}
    return found


def _cosines(vectors: Sequence[npt.NDArray[np.float32]]) -> npt.NDArray[np.float32]:
    return np.stack(vectors) @ np.stack(vectors).T if vectors else np.zeros((0, 0), np.float32)


def _grouped(cosines: FloatArray) -> list[list[int]]:
    """Groups of n texts by average linkage of their cosines, (n, n), down to `LEAST_OF_ONE`."""
    groups = [[i] for i in range(len(cosines))]
    while len(groups) > 1:
        means = {(i, j): cosines[np.ix_(groups[i], groups[j])].mean() for j in range(len(groups)) for i in range(j)}
        (i, j), best = max(means.items(), key=lambda one: one[1])
        if best < LEAST_OF_ONE:
            break
        groups[i] = sorted(groups[i] + groups.pop(j))
    return groups


class Contexts:
    """What the texts of forms say of pairs of them."""

    def __init__(self, forms: Forms, encoder: Encoder) -> None:
        self._forms = forms
        self._vectors = TextVectors(encoder) if forms.contexts else None

    def evidence(self, pairs: Sequence[tuple[int, int]]) -> FloatArray:
        """Log odds that the texts of p pairs of forms add to those of their names, (p,); 0 where they say nothing."""
        found, texts = np.zeros(len(pairs)), self._forms.contexts
        said = [i for i, (a, b) in enumerate(pairs) if a in texts and b in texts and texts[a].isdisjoint(texts[b])]
        if self._vectors is None or not said:
            return found
        read = {form: self._read(form) for i in said for form in pairs[i]}
        self._vectors.add(one for every in read.values() for one in every)
        of_form = {form: self._vectors.mean(every) for form, every in read.items()}
        for i in said:
            ours, theirs = (of_form[form] for form in pairs[i])
            if ours is not None and theirs is not None:
                found[i] = SLOPE * (float(self._vectors.above_baseline(ours @ theirs)) - EVEN)
        return np.clip(found, MOST_AGAINST, MOST_FOR)

    def _read(self, form: int) -> list[tuple[str, str]]:
        return [(self._forms.keys[form][0], text) for text in sorted(self._forms.contexts[form])[:MOST_READ]]
