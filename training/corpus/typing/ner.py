"""Assign entity types by a token-classification model, as in the paper (DeBERTa on OntoNotes)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from pearl_qdrant.errors import DeviceError, ModelError, ModelNotFoundError
from training.corpus.chunking.function_words import EMPTY_WORDS
from training.corpus.files import entity_type_of

MAX_TOKENS = 64


class NerTyper:
    """A `PhraseTyper` that uses a NER model.

    A phrase gets the most frequent type of its content words, if at least half of these words have it.
    """

    def __init__(self, model: str, *, revision: str | None = None, device: str = "cpu", batch_size: int = 256) -> None:
        """Load a model.

        Args:
            model: Folder or hub id of a token-classification model with OntoNotes labels, weights in safetensors.
            revision: Commit, tag or branch of a hub id.
            device: Device, as torch names it.
            batch_size: Phrases per forward pass.

        Raises:
            ModelNotFoundError: If there is no such model.
            ModelError: If its labels are not entity types, or its tokenizer does not know words.
            DeviceError: If torch has no such device.
        """
        import torch
        from transformers import AutoModelForTokenClassification, AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(model, revision=revision, add_prefix_space=True)
            network = AutoModelForTokenClassification.from_pretrained(model, revision=revision, use_safetensors=True)
        except Exception as error:  # a damaged file can raise anything in transformers and safetensors
            message = f"'{model}' cannot be loaded as a token-classification model: {error}"
            raise ModelNotFoundError(model, message) from error
        if not tokenizer.is_fast:
            raise ModelError(f"The tokenizer of '{model}' has no tokenizer.json, which maps tokens to words")
        self._types = _types_of(model, network.config.id2label)
        try:
            self._network: Any = network.eval().to(torch.device(device))
        except (RuntimeError, AssertionError) as error:
            raise DeviceError(device, f"Device '{device}' is not available: {error}. Use device cpu") from error
        self._tokenizer: Any = tokenizer
        self._device = device
        self._batch_size = batch_size

    def type_phrases(self, phrases: Sequence[str]) -> list[str | None]:
        """Return the type of each phrase; OTHER if the model finds no entity."""
        order = sorted(range(len(phrases)), key=lambda i: len(phrases[i]))
        found: list[str | None] = [None] * len(phrases)
        for start in range(0, len(order), self._batch_size):
            chosen = order[start : start + self._batch_size]
            words = [phrases[i].split() or [phrases[i]] for i in chosen]
            for i, kind in zip(chosen, self._types_of_words(words), strict=True):
                found[i] = kind
        return found

    def _types_of_words(self, phrases: list[list[str]]) -> list[str]:
        import torch

        batch = self._tokenizer(
            phrases, is_split_into_words=True, padding=True, truncation=True, max_length=MAX_TOKENS, return_tensors="pt"
        )
        inputs = {name: tensor.to(self._device) for name, tensor in batch.items()}
        with torch.inference_mode():
            labels = self._network(**inputs).logits.argmax(-1).tolist()  # (b, t)
        found = []
        for i, words in enumerate(phrases):
            kinds: dict[int, str] = {}
            for place, word in enumerate(batch.word_ids(i)):
                if word is not None:
                    kinds.setdefault(word, self._types[labels[i][place]])  # the first token decides
            found.append(type_of_words(words, [kinds.get(j, "OTHER") for j in range(len(words))]))
        return found


def type_of_words(words: Sequence[str], kinds: Sequence[str]) -> str:
    """Return the type of a phrase: the most frequent type if at least half of the content words have it."""
    content = [kind for word, kind in zip(words, kinds, strict=True) if word.lower() not in EMPTY_WORDS]
    content = content or list(kinds)
    named = Counter(kind for kind in content if kind != "OTHER").most_common(1)
    return named[0][0] if named and 2 * named[0][1] >= len(content) else "OTHER"


def _types_of(model: str, labels: dict[int, str]) -> dict[int, str]:
    """Return the entity type of each label id."""
    known = {i: entity_type_of(label) for i, label in labels.items()}
    # Labels such as CoNLL's MISC are not OntoNotes types; a model without any entity type is not a NER model.
    if not any(kind not in (None, "OTHER") for kind in known.values()):
        shown = ", ".join(list(labels.values())[:8])
        raise ModelError(f"The labels of '{model}' ({shown}) are not entity types. Use a model trained on OntoNotes")
    return {i: kind or "OTHER" for i, kind in known.items()}
