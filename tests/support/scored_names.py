"""Names as rows of n-grams, and a mention with names scored, each in one call."""

from __future__ import annotations

from collections.abc import Sequence

from pearl_qdrant.lexical.ngrams import SparseRows, fold_name, folded_rows
from pearl_qdrant.linking.ranking.model import LinkQuery, MatchedName, ScoredMention, Scorer
from pearl_qdrant.linking.ranking.scoring import ask_judge, compare_names, score_compared


def ngram_rows(names: Sequence[str]) -> SparseRows:
    """The n-grams of names."""
    return folded_rows([fold_name(name) for name in names])


def score_names(mention: str, names: Sequence[MatchedName], link_query: LinkQuery, scorer: Scorer) -> ScoredMention:
    """A mention whose types do not count, with the judge's scores where the scorer has a judge."""
    compared = compare_names(mention, names, None, link_query, scorer)
    ask_judge([compared], scorer)
    return score_compared(compared, link_query, scorer)
