"""Deprecated: `CrossEncoder` is in `pearl_qdrant.linking.ranking.reranker`."""

from __future__ import annotations

from pearl_qdrant._lazy import moved_names

__getattr__ = moved_names(__name__, {"CrossEncoder": "pearl_qdrant.linking.ranking.reranker"})
