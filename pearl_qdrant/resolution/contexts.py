"""What contexts say of names: whether two of them are about one thing.

    logit = SLOPE * cosine - LEVEL        of the vectors of the contexts, without the name itself and small words

fitted to sentences of one article of an encyclopedia, and of two articles that share a word of their title
(docs/experiments/resolution.md). Contexts of one name that are about other things make it several names (`senses`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.lexical.words import SMALL_WORDS

SLOPE, LEVEL = 5.3, 1.64
APART = -0.8
"""Logit below which two contexts are about two things: of 20 pairs of short descriptions of namesakes 17, of 20 of one
thing 4. Both are asked.
"""
ALIKE = 2.0  # Logit from which contexts count for names that have no word in common
MOST = 16  # Contexts that are remembered of a name
LONGEST = 300  # Characters of each

FloatArray = npt.NDArray[np.float32]


def shortened(context: str) -> str:
    """A context as it is kept."""
    return " ".join(context.split())[:LONGEST]


class Contexts:
    """The vectors of contexts, each made once, when it is needed; `encoder` gives the encoder."""

    def __init__(self, encoder: Callable[[], Encoder]) -> None:
        self._encoder = encoder
        self._known: dict[str, FloatArray] = {}

    def vectors(self, given: Sequence[tuple[str, str]]) -> FloatArray:
        """Vectors of contexts, each with the name that it is of, (n, dim); zero where nothing but the name is said."""
        texts = [_without(text, name) for name, text in given]
        if missing := [text for text in dict.fromkeys(texts) if text not in self._known]:
            vectors = np.asarray(self._encoder().encode(missing).vectors, np.float32)
            self._known.update(zip(missing, vectors * np.array([[bool(text)] for text in missing]), strict=True))
        return np.stack([self._known[text] for text in texts]) if texts else np.empty((0, 0), np.float32)

    def senses(self, name: str, contexts: Sequence[str], held: Mapping[str, str]) -> list[list[str]]:
        """The contexts of a name by what they are about: the two nearest groups are one until none is above `APART`.
        Those that have different nodes in `held` stay apart.
        """
        groups = [[one] for one in contexts]
        sums = list(self.vectors([(name, one) for one in contexts]))
        while len(groups) > 1:
            cosines = np.array([_unit(one) for one in sums]) @ np.array([_unit(one) for one in sums]).T
            for i, ours in enumerate(groups):
                for j, theirs in enumerate(groups):
                    if i == j or len({held[one] for one in (*ours, *theirs) if one in held}) > 1:
                        cosines[i, j] = -np.inf
            i, j = sorted(divmod(int(cosines.argmax()), len(groups)))
            if cosines[i, j] * SLOPE - LEVEL < APART:
                break
            groups[i] += groups.pop(j)
            sums[i] = sums[i] + sums.pop(j)
        return sorted(sorted(group) for group in groups)

    def logit(self, one: Sequence[tuple[str, str]], other: Sequence[tuple[str, str]]) -> float:
        """What the contexts of two names say, each with the name; 0 where those of one say nothing but the name."""
        sides = [_unit(self.vectors(given).sum(axis=0)) for given in (one, other)]
        return float(sides[0] @ sides[1]) * SLOPE - LEVEL if all(side.any() for side in sides) else 0.0


def _without(text: str, name: str) -> str:
    """A context without the name and small words."""
    words = re.findall(r"\w+", re.sub(re.escape(name), " ", text, flags=re.IGNORECASE))
    return " ".join(word for word in words if word.lower() not in SMALL_WORDS)


def _unit(vector: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    return vector / max(float(np.linalg.norm(vector)), 1e-9)
