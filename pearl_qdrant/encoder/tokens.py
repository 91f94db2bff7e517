"""Names to token ids, without transformers.

`tokenizer.json` is read by the `tokenizers` library. Names are stripped and cut before they are tokenised; equal
names are tokenised once; names of like length share a batch, so that next to no padding is computed.

`tokenizers` spreads a list over its own threads (it heeds TOKENIZERS_PARALLELISM, which we leave to the caller). It
then warns in a child made by a bare fork(); start children with "spawn" or through `subprocess`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from pearl_qdrant.encoder.json_files import read_json
from pearl_qdrant.encoder.protocol import BoolArray
from pearl_qdrant.errors import CheckpointError

IntArray = npt.NDArray[np.int64]

CHARACTERS_PER_TOKEN = 16
"""A name is cut at this many characters for each token that the model reads: 1,024 for 64 tokens. Names
have four to six characters a token; what is cut would have been truncated, at the cost of tokenising it."""

# A token for the space alone tells nothing: SentencePiece's and byte-level BPE's marks.
_SPACE_MARKS = ("\u2581", "\u0120")


@dataclass(frozen=True, slots=True)
class Batch:
    """Names of like length, padded to the longest.

    Attributes:
        input_ids: (b, t), int64.
        attention_mask: (b, t), int64; 1 for a real token.
    """

    input_ids: IntArray
    attention_mask: IntArray


class NameTokenizer:
    """The tokenizer of one model, with its maximum length and prefix. Safe to use from several threads.

    Args:
        folder: Where tokenizer.json lies.
        max_length: Tokens that the model reads, special ones included; the rest of a name is cut off.
        prefix: Text put before each name ("query: " for E5).
        lowercase: Whether to lower-case names first (sentence-transformers' `do_lower_case`).

    Raises:
        CheckpointError: If tokenizer.json is missing or cannot be read, or `max_length` leaves no room for a token.
    """

    def __init__(self, folder: Path, *, max_length: int, prefix: str = "", lowercase: bool = False) -> None:
        path = folder / "tokenizer.json"
        tokenizer = open_tokenizer(path)
        n_special = tokenizer.num_special_tokens_to_add(False)
        if max_length <= n_special:
            raise CheckpointError(
                str(path), f"a maximum length of {max_length} leaves no room beside its {n_special} special tokens"
            )
        tokenizer.enable_truncation(max_length)
        self._path = path
        self.n_ids = tokenizer.get_vocab_size(with_added_tokens=True)
        self.max_length = max_length
        self.prefix = prefix
        self.max_characters = max_length * CHARACTERS_PER_TOKEN
        self.pad_id = _pad_id(folder, tokenizer)
        self._lowercase = lowercase
        self._tokenizer = tokenizer
        self._special_ids = {i for i, token in tokenizer.get_added_tokens_decoder().items() if token.special}
        marks = {tokenizer.token_to_id(mark) for mark in _SPACE_MARKS}
        self._blank_ids = self._special_ids | {_unk_id(path, tokenizer)} | marks
        with in_words(path, f"cannot take the prefix {prefix!r}"):
            prefix_ids = tokenizer.encode(prefix.rstrip(), add_special_tokens=False).ids
        self._n_prefix = sum(i not in self._special_ids for i in prefix_ids)

    def distinct(self, names: Sequence[str]) -> tuple[list[str], IntArray]:
        """Strip and cut names, equal ones once.

        Returns:
            The distinct texts, and for each name its place among them, (n,).

        Raises:
            ValueError: If a name holds a lone surrogate, with its position.
        """
        places: dict[str, int] = {}
        inverse = np.empty(len(names), dtype=np.int64)
        for i, name in enumerate(names):
            text = name.strip()[: self.max_characters].rstrip()
            place = places.setdefault(text, len(places))
            if place == len(places) - 1 and not text.isascii():
                _check_unicode(text, i)
            inverse[i] = place
        return list(places), inverse

    def token_ids(self, texts: Sequence[str]) -> tuple[list[list[int]], BoolArray]:
        """Tokenise what `distinct` gave.

        Returns:
            Token ids of each text, special tokens included, and which texts are encodable: false where there is no
            token besides special ones and [UNK], (n,).

        Raises:
            CheckpointError: If the tokenizer fails, as one does whose regular expression takes too long.
        """
        if self._lowercase:
            texts = [text.lower() for text in texts]
        with in_words(self._path, f"cannot take one of {len(texts):,} names, the first {texts[:1]!r:.80}"):
            encodings = self._tokenizer.encode_batch_fast([self.prefix + text for text in texts])
        ids = [encoding.ids for encoding in encodings]
        return ids, np.fromiter(map(self._is_encodable, ids), dtype=np.bool_, count=len(ids))

    def _is_encodable(self, ids: list[int]) -> bool:
        """Whether a token is left when special ones, the prefix's, spaces and [UNK] are taken away."""
        if self._n_prefix:
            ids = [i for i in ids if i not in self._special_ids][self._n_prefix :]
        return not self._blank_ids.issuperset(ids)

    def batch(self, token_ids: Sequence[list[int]]) -> Batch:
        """Pad names to the longest of them."""
        width = max(map(len, token_ids))
        input_ids = np.full((len(token_ids), width), self.pad_id, dtype=np.int64)
        attention_mask = np.zeros((len(token_ids), width), dtype=np.int64)
        for i, ids in enumerate(token_ids):
            input_ids[i, : len(ids)] = ids
            attention_mask[i, : len(ids)] = 1
        return Batch(input_ids, attention_mask)


def plan_batches(
    lengths: IntArray, *, max_tokens: int, max_names: int, min_names: int = 32, max_padding: float = 0.1
) -> Iterator[IntArray]:
    """Split names into batches, the longest names first.

    Args:
        lengths: Tokens of each name, (n,).
        max_tokens: Bound of a batch's names times its longest one; a single longer name goes alone.
        max_names: Bound of a batch's names.
        min_names: Below this a batch is not cut to save padding: small matrices cost more than padding.
        max_padding: Share of a batch that may be padding before it is cut.

    Yields:
        Positions in `lengths`; together each position once.
    """
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        width = int(lengths[order[start]])
        end = start + min(max_names, max(1, max_tokens // width), len(order) - start)
        padding = np.cumsum(width - lengths[order[start:end]])
        cells = width * np.arange(1, end - start + 1)
        wasteful = np.flatnonzero(padding > max_padding * cells)
        wasteful = wasteful[wasteful >= min_names]
        if len(wasteful):
            end = start + int(wasteful[0])
        yield order[start:end]
        start = end


def _check_unicode(text: str, position: int) -> None:
    """Refuse what is no valid text: the tokenizer and the store cannot take it."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"name {position} holds a lone surrogate ({text[error.start]!a} at character {error.start}), which is no "
            f"valid text: {text[:40]!a}. Decode its source with errors='replace'."
        ) from error


def open_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a tokenizer.json, without padding and truncation.

    Raises:
        CheckpointError: If it is missing or cannot be read.
    """
    hint = "" if path.exists() else ". Save it with transformers' AutoTokenizer(...).save_pretrained(folder)"
    with in_words(path, "no readable tokenizer", hint):
        tokenizer = Tokenizer.from_file(str(path))
        tokenizer.no_padding()
        tokenizer.no_truncation()
    return tokenizer


@contextmanager
def in_words(path: Path | str, what: str, hint: str = "") -> Iterator[None]:
    """Turn what the library raises into a `CheckpointError`: bare `Exception`s, and the panics of its Rust code."""
    try:
        yield
    except BaseException as error:
        # A panic is a BaseException of a class that cannot be imported.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise CheckpointError(str(path), f"{what} ({error}){hint}") from error


def _unk_id(path: Path, tokenizer: Tokenizer) -> int | None:
    """Id of [UNK]; None for a tokenizer that knows every byte."""
    token = getattr(tokenizer.model, "unk_token", None)
    if token is not None:
        unk_id: int | None = tokenizer.token_to_id(token)
        return unk_id
    # A Unigram model gives its unk_id in the file alone.
    model = read_json(path).get("model")
    unk_id = model.get("unk_id") if isinstance(model, dict) else None
    return unk_id if isinstance(unk_id, int) else None


def _pad_id(folder: Path, tokenizer: Tokenizer) -> int:
    """Id to pad with; it is masked, but RoBERTa counts positions by it."""
    names = []
    path = folder / "tokenizer_config.json"
    if path.exists():
        declared = read_json(path).get("pad_token")
        names.append(declared.get("content") if isinstance(declared, dict) else declared)
    for token in (*names, "[PAD]", "<pad>"):
        pad_id = tokenizer.token_to_id(token) if isinstance(token, str) else None
        if pad_id is not None:
            return int(pad_id)
    return 0
