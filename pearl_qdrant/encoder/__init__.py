"""Encoding: names to vectors and phrase types, by a shipped model, a folder or a model of the Hugging Face hub."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pearl_qdrant._lazy import lazy_exports

if TYPE_CHECKING:
    from pearl_qdrant.encoder.loading import describe_model, list_models, load_encoder
    from pearl_qdrant.encoder.protocol import Encoded, Encoder

__all__ = ["Encoded", "Encoder", "describe_model", "list_models", "load_encoder"]

__getattr__, __dir__ = lazy_exports(__name__)
