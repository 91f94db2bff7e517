"""Ranking: features of candidates, the linear model over them, the optional cross-encoder, and explanations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pearl_qdrant._lazy import lazy_exports

if TYPE_CHECKING:
    from pearl_qdrant.linking.ranking.explain import explain_link
    from pearl_qdrant.linking.ranking.model import Calibration, RankingModel
    from pearl_qdrant.linking.ranking.reranker import CrossEncoder, Reranker

__all__ = ["Calibration", "CrossEncoder", "RankingModel", "Reranker", "explain_link"]

__getattr__, __dir__ = lazy_exports(__name__)
