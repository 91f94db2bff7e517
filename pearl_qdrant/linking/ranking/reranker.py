"""Reranking: an optional second scoring of the best candidates, by a model that reads mention and name together.

Use it as `EntityLinker.open(..., reranker=CrossEncoder(HUB_ID))`. Its scores are centred on their mean and added to the
candidates' logits. So it changes the order of the candidates and not their odds as a group against NIL. A calibration
stored in the collection was fitted without a reranker.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from pearl_qdrant.errors import ModelError
from pearl_qdrant.installing import install_command
from pearl_qdrant.linking.ranking.model import ScoredMention
from pearl_qdrant.linking.ranking.scoring import in_order

if TYPE_CHECKING:
    from pearl_qdrant.store.schema import NamePoint

TOP = 10  # candidates per mention that are reranked
MAX_TOKENS = 128  # tokens of a pair of mention and name; longer pairs are truncated


class Reranker(Protocol):
    """Scores candidates for a mention. Safe to call from several threads."""

    def score(self, mention: str, candidates: Sequence[NamePoint]) -> Sequence[float]:
        """Score each candidate in logits: one more makes it e times as likely.

        Args:
            mention: The string to link.
            candidates: The best name of each entity, with types and description; at most `TOP`.
        """
        ...


class CrossEncoder:
    """A sequence classifier of transformers that reads a pair of texts; its last logit means that they are the same.
    Needs the extra `torch`. `model` is a folder or hub id, and `device` one of torch. Raises ModelError if the model
    cannot be loaded.
    """

    def __init__(self, model: str, *, revision: str | None = None, device: str = "cpu") -> None:
        try:
            from transformers import AutoModelForSequenceClassification, AutoTokenizer
        except ImportError as error:
            raise ModelError(f"A cross-encoder needs torch. Install it with: {install_command('torch')}") from error
        kwargs: dict[str, Any] = {"revision": revision} if revision else {}
        try:
            self._tokenizer = AutoTokenizer.from_pretrained(model, trust_remote_code=False, **kwargs)
            network = AutoModelForSequenceClassification.from_pretrained(
                model, use_safetensors=True, trust_remote_code=False, **kwargs
            )
        except (OSError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise ModelError(
                f"Cross-encoder '{model}' cannot be loaded ({reason}). Pass a folder or a hub id."
            ) from error
        self._network = network.eval().to(device)
        self._device = device

    def score(self, mention: str, candidates: Sequence[NamePoint]) -> list[float]:
        """See `Reranker.score`. The model reads the name of a candidate, and its description if it has one."""
        import torch

        texts = [f"{p.name}: {p.description}" if p.description else p.name for p in candidates]
        batch = self._tokenizer(
            [mention] * len(texts), texts, padding=True, truncation=True, max_length=MAX_TOKENS, return_tensors="pt"
        )
        with torch.inference_mode():
            logits = self._network(**batch.to(self._device)).logits
        scores: list[float] = logits[:, -1].float().tolist()
        return scores


def rerank(scored: ScoredMention, reranker: Reranker, mention: str) -> ScoredMention:
    """Add a reranker's scores to the logits of the first candidates, and sort all candidates again.

    A mention that a rule has decided keeps its order; of namesakes that nothing separates, the reranker chooses one.
    The scores are centred on their mean. So the reranker changes the order of the candidates that it read, and does
    not change their odds as a group against NIL and against the candidates that it did not read. Raises ModelError if
    it does not return one finite score per candidate.
    """
    first = scored.found[:TOP]
    if len(first) < 2 or (scored.certainty < 1 and not first[0].tie):
        return scored
    scores = reranker.score(mention, [entity.point for entity in first])
    if len(scores) != len(first) or not all(map(math.isfinite, scores)):
        raise ModelError(
            f"The reranker read {len(first)} candidates and returned the scores {list(scores)}. It must return one "
            f"finite number for each."
        )
    mean = math.fsum(scores) / len(scores)
    moved = [replace(entity, logit=entity.logit + score - mean) for entity, score in zip(first, scores, strict=True)]
    return replace(scored, found=in_order([*moved, *scored.found[TOP:]]))
