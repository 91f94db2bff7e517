"""Entities as terms of a sparse vector, beside words: what each counts in a document, and in a question.

An entity is a term, and so is each word by which the document names it; Qdrant gives all their IDF: what is in many
documents tells little.

    lexical(q, d) = BM25(q, d) + sum over entities e of w(q, e) ((1 + share(q, e)) p(d, e) IDF(e) - named(q, d, e))
    named(q, d, e) = sum over words w of q of p(d, e) IDF(e, w) / words of the mention in d, where w is one of them
    w(q, e) = p(q, e) sqrt(words of the mention in q)
    share(q, e) = min(1, 3 w(q, e)^2 / words of q)

p is the probability of the surest mention. An entity whose name the document has anyway adds nothing to the words that
have matched already, unless the question is about it: the greater its share of the question, the more of the other
documents have only the words of its name. Most of a question says what is asked, so that a third is all of it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any
from zlib import crc32

from pearl_qdrant.integrations.metadata import ENTITY_IDS, ENTITY_NAMES, MENTIONS

if TYPE_CHECKING:
    from qdrant_client.models import SparseVector

_K1, _B = 1.2, 0.75  # BM25, as in Lucene
_WHOLE = 1 / 3  # share of a question's words that names all it is about
_WORD = re.compile(r"\w+")


def mention_weight(text: str, probability: float | None) -> float:
    """What a mention counts in a question."""
    return float(len(_words(text)) ** 0.5 * (probability or 0.0))


def document_terms(text: str, tags: Mapping[str, Any], mean_words: float) -> SparseVector:
    """Words with the saturated counts of BM25, and entities with their probabilities, which are 1 where the mentions
    are not known. `mean_words` are those of an average document.
    """
    words = _words(text)
    norm = _K1 * (1 - _B + _B * len(words) / mean_words)
    terms = {word: n * (_K1 + 1) / (n + norm) for word, n in Counter(words).items()}
    mentions = [(one["entity_id"], one["text"], one.get("probability") or 0.0) for one in tags.get(MENTIONS, ())]
    placed = {entity_id for entity_id, _, _ in mentions}
    names = chain(tags.get(ENTITY_NAMES, ()), repeat(""))
    mentions += [(*one, 1.0) for one in zip(tags.get(ENTITY_IDS, ()), names, strict=False) if one[0] not in placed]
    for entity_id, name, probability in mentions:
        parts = _words(name)
        weights = {_term(entity_id): probability}
        weights |= {_term(entity_id, word): probability / len(parts) for word in set(parts).intersection(words)}
        terms |= {term: max(weight, terms.get(term, 0.0)) for term, weight in weights.items()}
    return _sparse(terms)


def question_terms(
    question: str, entities: Mapping[str, float], *, weight: float = 1.0, has_words: bool = True
) -> SparseVector:
    """Words, and entities by id with what their mentions count, times `weight`; or entities alone, without words."""
    words = _words(question)
    terms: dict[str, float] = dict(Counter(words)) if has_words else {}
    for entity_id, n in entities.items():
        share = min(1.0, n * n / (_WHOLE * max(1, len(words))))
        terms[_term(entity_id)] = (1 + share) * n * weight
        if has_words:
            terms |= {_term(entity_id, word): -n * weight for word in words}
    return _sparse(terms)


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _term(entity_id: str, word: str = "") -> str:
    """An entity, or that it is named with a word; no word has a line break."""
    return f"\n{entity_id}\n{word}"


def _sparse(terms: Mapping[str, float]) -> SparseVector:
    """Terms, hashed to 32 bits; the weights of those with an equal hash are added."""
    from qdrant_client.models import SparseVector

    by_index: dict[int, float] = {}
    for term, weight in terms.items():
        index = crc32(term.encode())
        by_index[index] = by_index.get(index, 0.0) + weight
    return SparseVector(indices=list(by_index), values=list(by_index.values()))
