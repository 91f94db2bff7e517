"""What the contexts of names say: whether two of them are about one thing.

They are compared by the cosine of their vectors, without the name itself. Little likeness makes two things of one name
if both contexts say what the thing is: `a chemist`, `X is a chemist`. Where words of the name are in the middle, or a
common word is first (`he`, `in`), they say what happens.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.lexical.words import IGNORED, SMALL_WORDS, word_rarity
from pearl_qdrant.linking.ranking.model import baseline_similarity

APART, ALIKE = 0.16, 0.6  # Likeness below which contexts are about two things, from which about one (docs/experiments)
MOST, LONGEST = 16, 300  # Contexts that are remembered of a name, and characters of each

_COMMON = 0.005  # Rarity of the words of English text that may join a name to what it is: `is`, `was`, `a`, `of`
_LITTLE = IGNORED | SMALL_WORDS

FloatArray = npt.NDArray[np.float32]


def shortened(context: str) -> str:
    """A context as it is kept."""
    return " ".join(context.split())[:LONGEST]


class Contexts:
    """Compares contexts; vectors are made once, when they are needed, by the encoder that `encoder` gives."""

    def __init__(self, encoder: Callable[[], Encoder]) -> None:
        self._encoder = encoder
        self._known: dict[str, FloatArray] = {}

    def encode(self, given: Sequence[tuple[str, str]]) -> list[FloatArray]:
        """Vectors of contexts, each with the name that it is of; zero where nothing but the name is said."""
        texts = [_without(text, name) for name, text in given]
        if missing := [text for text in dict.fromkeys(texts) if text not in self._known]:
            vectors = np.asarray(self._encoder().encode(missing).vectors, np.float32)
            self._known.update(zip(missing, vectors * np.array([[bool(text)] for text in missing]), strict=True))
        return [self._known[text] for text in texts]

    def likeness(self, one: Sequence[tuple[str, str]], other: Sequence[tuple[str, str]]) -> float:
        """How alike the contexts of two names are, each with its name: 1 for equal ones, about 0 for any; at least
        `APART` where those of one do not say what it is.
        """
        found = self._alike(*(np.sum(self.encode(given), axis=0) for given in (one, other)))
        return max(found, *(-1.0 if any(_describes(*a) for a in given) else APART for given in (one, other)))

    def senses(self, name: str, contexts: Sequence[str], nodes: Mapping[str, str]) -> list[list[str]]:
        """The contexts of a name by the thing that they are about; those of two nodes are about two things."""
        said = [one for one in contexts if one in nodes or _describes(name, one)]
        is_one = len(self._groups(name, said, nodes)) < 2
        return [list(contexts)] if is_one else self._groups(name, contexts, nodes)

    def _groups(self, name: str, contexts: Sequence[str], nodes: Mapping[str, str]) -> list[list[str]]:
        """The nearest two groups become one until none are alike."""
        groups, sums = [[one] for one in contexts], self.encode([(name, one) for one in contexts])
        while True:
            every = [(self._alike(sums[i], sums[j]), i, j) for j in range(len(groups)) for i in range(j)]
            may_be = [one for one in every if len({nodes.get(x) for k in one[1:] for x in groups[k]} - {None}) < 2]
            best, i, j = max(may_be, default=(-1.0, 0, 0))
            if best < APART:
                return groups
            groups[i] += groups.pop(j)
            sums[i] = sums[i] + sums.pop(j)

    def _alike(self, one: FloatArray, other: FloatArray) -> float:
        cosine = float(one @ other) / max(float(np.linalg.norm(one) * np.linalg.norm(other)), 1e-9)
        return (cosine - self._baseline) / (1 - self._baseline)

    @cached_property
    def _baseline(self) -> float:
        return baseline_similarity(self._encoder())


def _without(text: str, name: str) -> str:
    """A context without the name and small words."""
    words = re.findall(r"\w+", re.sub(re.escape(name), " ", text, flags=re.IGNORECASE))
    return " ".join(word for word in words if word.lower() not in SMALL_WORDS)


def _describes(name: str, text: str) -> bool:
    """Whether a context says what the thing is."""
    named, words = (re.findall(r"\w+", re.sub(r"\(.*?\)", " ", one).casefold()) for one in (name, text))
    n_first = next((i for i, word in enumerate(words) if word not in named), len(words))
    if n_first == len(words) or set(named) & set(words[n_first:]) - _LITTLE:
        return False
    is_common = word_rarity(words[n_first]) < _COMMON
    return is_common if n_first else not is_common or words[0] in _LITTLE
