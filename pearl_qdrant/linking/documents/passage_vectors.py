"""Vectors of the passages of a document, compared with those of entities.

A passage is a mention with the words around it. Mentions that are near each other share one.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence

from pearl_qdrant.linking.documents.model import FloatArray
from pearl_qdrant.store.schema import NamePoint

WORDS = 20
"""Words on each side of a mention."""

SHARED = 10
"""A mention at most this many words after the one in the middle of a passage shares the passage."""

Vectors = Callable[[Sequence[str]], FloatArray]
"""Vectors of texts, (n, dim), L2-normalised or zero."""

EntityVectors = Callable[[Sequence[NamePoint]], FloatArray]
"""Vectors of the descriptions of entities, or of their canonical names, (n, dim), L2-normalised or zero."""

_WORD = re.compile(r"\S+")


class Passages:
    """The passages of one text.

    Attributes:
        encode: Encodes passages.
        entity_vectors: Finds the vectors of entities.
    """

    def __init__(self, text: str, encode: Vectors, entity_vectors: EntityVectors) -> None:
        self._text = text
        words = [(found.start(), found.end()) for found in _WORD.finditer(text)]
        self._starts = [start for start, _ in words]
        self._ends = [end for _, end in words]
        self.encode = encode
        self.entity_vectors = entity_vectors
        self._known: dict[str, FloatArray] = {}  # mentions of one context are compared one by one

    def compare(self, requests: Sequence[tuple[int, Sequence[NamePoint]]]) -> list[FloatArray]:
        """Cosines of passages to entities.

        Args:
            requests: The offset of a mention in characters, and entities; mentions in the order of the text.

        Returns:
            The cosines of the entities of each request.
        """
        of_request: list[str] = []
        passage, at = "", None
        for start, _ in requests:
            word = max(0, bisect_right(self._starts, start) - 1)
            if at is None or not 0 <= word - at <= SHARED:
                passage, at = self._around(word), word
            of_request.append(passage)
        points: dict[tuple[str, str], NamePoint] = {}
        for _, candidates in requests:
            for point in candidates:
                points.setdefault((point.kb, point.entity_id), point)
        number = {key: i for i, key in enumerate(points)}
        new = list(dict.fromkeys(text for text in of_request if text not in self._known))
        if new:
            self._known |= zip(new, self.encode(new), strict=True)
        entities = self.entity_vectors(list(points.values()))
        return [
            entities[[number[point.kb, point.entity_id] for point in candidates]] @ self._known[text]
            for text, (_, candidates) in zip(of_request, requests, strict=True)
        ]

    def _around(self, word: int) -> str:
        """The words around one of them."""
        if not self._starts:
            return self._text
        first, last = max(0, word - WORDS), min(len(self._starts) - 1, word + WORDS)
        return " ".join(self._text[self._starts[first] : self._ends[last]].split())
