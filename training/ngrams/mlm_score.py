r"""The normalised score of an n-gram by a masked language model (ULR, section 3.3).

    score(w) = 1/|w| sum over k of P(x_k | S without w)

All tokens of the n-gram are replaced by the mask token at once, and the probabilities that the model gives to the true
tokens are averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pearl_qdrant.encoder.tokens import open_tokenizer
from pearl_qdrant.errors import CheckpointError, ModelError
from training.paths import StrPath

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer
    from typing_extensions import Self

MAX_TOKENS = 128
"""Tokens of a sequence, special ones included: ULR, section 4."""

_BATCH = 64


class MlmScorer:
    """Scores spans by a model with a masked language modelling head, such as `AutoModelForMaskedLM`.

    It is a `training.ngrams.sampling.SpanScorer`. The model is used in evaluation mode, which is restored afterwards,
    and without gradients, so that a model can score its own next training examples.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        tokenizer: Tokenizer,
        *,
        mask_id: int,
        pad_id: int = 0,
        max_tokens: int = MAX_TOKENS,
        batch: int = _BATCH,
    ) -> None:
        """Take a model and its tokenizer.

        Args:
            model: Takes `input_ids` and `attention_mask`, (b, t), and returns an object with `logits`, (b, t, v).
            tokenizer: Of the model, without padding and truncation.
            mask_id, pad_id: Ids of the mask token, and of what fills shorter rows.
            max_tokens: Longer sequences are truncated, before their last token; a span beyond has no score.
            batch: Spans of a forward pass.
        """
        self._model, self._tokenizer = model, tokenizer
        self._mask_id, self._pad_id, self._max_tokens, self._batch = mask_id, pad_id, max_tokens, batch

    @classmethod
    def open(cls, folder: StrPath, *, device: str = "cpu", max_tokens: int = MAX_TOKENS, batch: int = _BATCH) -> Self:
        """Load a model with its head from a folder in the form of transformers, with safetensors and tokenizer.json.

        Raises:
            CheckpointError: If a file is missing, or the checkpoint has no such head.
            ModelError: If the tokenizer has no mask token.
        """
        from transformers import AutoModelForMaskedLM

        tokenizer = open_tokenizer(Path(folder) / "tokenizer.json")
        try:
            model, report = AutoModelForMaskedLM.from_pretrained(
                folder,
                use_safetensors=True,
                trust_remote_code=False,
                local_files_only=True,
                dtype=torch.float32,
                output_loading_info=True,
            )
        except (OSError, ValueError, KeyError) as error:
            raise CheckpointError(str(folder), f"cannot be loaded as a masked language model: {error}") from error
        if missing := sorted(report["missing_keys"]):
            raise CheckpointError(
                str(folder), f"has no trained head of a masked language model: {missing[0]} is missing"
            )
        mask_id = next((i for token in ("[MASK]", "<mask>") if (i := tokenizer.token_to_id(token)) is not None), None)
        if mask_id is None:
            raise ModelError(f"{folder}: its tokenizer has no mask token, [MASK] or <mask>")
        pad_id = model.config.pad_token_id or 0
        longest = min(max_tokens, int(getattr(model.config, "max_position_embeddings", max_tokens)))
        return cls(model.to(device), tokenizer, mask_id=mask_id, pad_id=pad_id, max_tokens=longest, batch=batch)

    def __call__(self, texts: Sequence[str], spans: Sequence[tuple[int, int]]) -> list[float]:
        """Return the score of a span of each text, in [0, 1]; NaN if it has no token, or was truncated.

        Args:
            texts: Any number of texts.
            spans: First character of the span in each text, and the first one after it.
        """
        encoded = {text: self._tokenizer.encode(text) for text in dict.fromkeys(texts)}
        rows = [(encoded[text].ids, _tokens_of(encoded[text], span)) for text, span in zip(texts, spans, strict=True)]
        scores = [float("nan")] * len(rows)
        # Rows of like length share a batch, so that little is padded.
        good = [i for i, (_, (first, last)) in enumerate(rows) if first < last < self._max_tokens]
        good.sort(key=lambda i: (len(rows[i][0]), i))
        was_training = self._model.training
        self._model.eval()
        try:
            for start in range(0, len(good), self._batch):
                some = good[start : start + self._batch]
                for i, score in zip(some, self._score([rows[i] for i in some]), strict=True):
                    scores[i] = score
        finally:
            self._model.train(was_training)
        return scores

    @torch.no_grad()
    def _score(self, rows: Sequence[tuple[list[int], tuple[int, int]]]) -> list[float]:
        """Return the mean probabilities of the tokens of rows of one batch."""
        device = next(self._model.parameters()).device
        n_tokens = min(self._max_tokens, max(len(ids) for ids, _ in rows))
        ids = torch.full((len(rows), n_tokens), self._pad_id)
        mask = torch.zeros((len(rows), n_tokens), dtype=torch.long)
        inside = torch.zeros((len(rows), n_tokens), dtype=torch.bool)
        for row, (all_ids, (first, last)) in enumerate(rows):
            some = all_ids if len(all_ids) <= n_tokens else [*all_ids[: n_tokens - 1], all_ids[-1]]
            ids[row, : len(some)] = torch.tensor(some)
            mask[row, : len(some)] = 1
            inside[row, first:last] = True
        masked = ids.masked_fill(inside, self._mask_id)
        output: Any = self._model(input_ids=masked.to(device), attention_mask=mask.to(device))
        logits = output.logits[inside.to(device)].float()  # (k, v): the masked tokens of all rows
        true = torch.gather(torch.softmax(logits, -1), 1, ids[inside].to(device)[:, None])[:, 0].cpu()
        of_rows = torch.repeat_interleave(torch.arange(len(rows)), inside.sum(1))
        sums = torch.zeros(len(rows), dtype=true.dtype).index_add(0, of_rows, true)
        means: list[float] = (sums / inside.sum(1)).tolist()
        return means


def _tokens_of(encoding: Encoding, span: tuple[int, int]) -> tuple[int, int]:
    """Return the first token of a span, and the first one after it; equal if there is none."""
    inside = [
        i
        for i, (start, end) in enumerate(encoding.offsets)
        if start < end and start < span[1] and end > span[0] and not encoding.special_tokens_mask[i]
    ]
    return (inside[0], inside[-1] + 1) if inside else (0, 0)
