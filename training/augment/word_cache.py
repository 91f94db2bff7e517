"""Tokenise phrases with a cache of words: the words that a variant shares with its phrase cost a look-up.

BERT's tokenizers work word by word: their normaliser works on single characters, their pre-tokenizer splits at spaces.
So the ids of a phrase are the ids of its words, in order. With any other tokenizer (byte-level BPE or Unigram, where
the pieces of a word depend on the space before it), whole phrases are tokenised.

Cost: 2 to 4 microseconds per phrase of known words, a quarter of the tokenizer's time.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pearl_qdrant.encoder.json_files import read_json
from pearl_qdrant.encoder.tokens import Batch, NameTokenizer, open_tokenizer

_MAX_WORDS = 500_000  # about 200 bytes each


class PhraseTokenizer:
    """Returns the token ids of `NameTokenizer`, faster if words are independent.

    Args:
        folder: Has tokenizer.json.
        max_tokens: Longer phrases are truncated, special tokens included.

    Raises:
        CheckpointError: If tokenizer.json is missing or cannot be read.
    """

    def __init__(self, folder: Path, *, max_tokens: int) -> None:
        self._whole = NameTokenizer(folder, max_length=max_tokens)
        self._max_tokens = max_tokens
        self._words: dict[str, list[int]] = {}
        self._one: Any = None
        if _is_by_word(folder / "tokenizer.json"):
            self._one = open_tokenizer(folder / "tokenizer.json")
            self._start, self._end = _special_ids(self._one)

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text, special tokens included."""
        if self._one is None:
            return self._whole.token_ids(texts)[0]
        if len(self._words) > _MAX_WORDS:
            self._words.clear()
        known, room = self._words, self._max_tokens - len(self._start) - len(self._end)
        found = []
        for text in texts:
            ids: list[int] = []
            # Split only at spaces: tokenizers and Python differ on other white space.
            for word in text.split(" "):
                pieces = known.get(word)
                if pieces is None:
                    pieces = known[word] = self._one.encode(word, add_special_tokens=False).ids
                ids += pieces
            found.append([*self._start, *ids[:room], *self._end])
        return found

    def batch(self, token_ids: Sequence[list[int]]) -> Batch:
        """Pad phrases to the longest one."""
        return self._whole.batch(token_ids)


def _is_by_word(path: Path) -> bool:
    """Return whether a tokenizer works word by word, according to its file."""
    declared = read_json(path)
    parts = {name: (declared.get(name) or {}).get("type") for name in ("normalizer", "pre_tokenizer", "model")}
    expected = {"normalizer": "BertNormalizer", "pre_tokenizer": "BertPreTokenizer", "model": "WordPiece"}
    return parts == expected and not any(" " in token["content"] for token in declared.get("added_tokens", []))


def _special_ids(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Return the ids before and after the words of a phrase."""
    bare, whole = tokenizer.encode("a", add_special_tokens=False).ids, tokenizer.encode("a").ids
    at = next(i for i in range(len(whole)) if whole[i : i + len(bare)] == bare)
    return whole[:at], whole[at + len(bare) :]
