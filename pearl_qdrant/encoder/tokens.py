"""Tokenises names, without transformers.

The library `tokenizers` reads `tokenizer.json`. Names are stripped and cut before they are tokenised, and equal names
are tokenised once. Names of similar length share a batch, so that little padding is computed.

`tokenizers` distributes a list over its own threads (TOKENIZERS_PARALLELISM is left to the caller). It then warns in a
child process made by a bare fork(); start children with "spawn" or through `subprocess`.
"""

from __future__ import annotations

import re
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
"""A name is cut at this many characters per token of the maximum length: 1,024 for 64 tokens. Names have four to six
characters per token, so the model would not read the rest anyway; cutting saves tokenising it."""

# Tokens that only mark a space, in SentencePiece and in byte-level BPE, carry no information.
_SPACE_MARKS = ("\u2581", "\u0120")

_UNK_ID = re.compile(rb'(?<!\\)"unk_id"\s*:\s*(\d+)')


@dataclass(frozen=True, slots=True)
class Batch:
    """Names of similar length, padded to the longest.

    Attributes:
        input_ids: (b, t), int64.
        attention_mask: (b, t), int64; 1 for a real token.
    """

    input_ids: IntArray
    attention_mask: IntArray


class NameTokenizer:
    """The tokenizer of one model, with its maximum length and prefix. Safe to use from several threads. Raises
    CheckpointError if tokenizer.json is missing or cannot be read, or `max_length` leaves no room for a token.

    Args:
        folder: Folder of tokenizer.json.
        max_length: Maximum number of tokens, including special ones; the rest of a name is cut off.
        prefix: Text put before each name ("query: " for E5).
        lowercase: Whether to lower-case names first (`do_lower_case` of sentence-transformers).
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
        with tokenizer_errors(path, f"cannot tokenise the prefix {prefix!r}"):
            prefix_ids = tokenizer.encode(prefix.rstrip(), add_special_tokens=False).ids
        self._n_prefix = sum(i not in self._special_ids for i in prefix_ids)

    def distinct(self, names: Sequence[str]) -> tuple[list[str], IntArray]:
        """Strip and cut names, and remove duplicates. Returns the distinct texts, and the index of each name's text
        among them, (n,). Raises ValueError if a name has a lone surrogate; names its position.
        """
        indices: dict[str, int] = {}
        inverse = np.empty(len(names), dtype=np.int64)
        for i, name in enumerate(names):
            text = name.strip()[: self.max_characters].rstrip()
            index = indices.setdefault(text, len(indices))
            if index == len(indices) - 1 and not text.isascii():
                _check_unicode(text, i)
            inverse[i] = index
        return list(indices), inverse

    def token_ids(self, texts: Sequence[str]) -> tuple[list[list[int]], BoolArray]:
        """Tokenise texts from `distinct`. Returns token ids of each text, including special tokens; and whether each
        text is encodable, (n,): false if it has no token except special ones and [UNK]. Raises CheckpointError if the
        tokenizer fails, for example because its regular expression takes too long.
        """
        if self._lowercase:
            texts = [text.lower() for text in texts]
        with tokenizer_errors(self._path, f"cannot tokenise one of {len(texts):,} names, the first {texts[:1]!r:.80}"):
            encodings = self._tokenizer.encode_batch_fast([self.prefix + text for text in texts])
        ids = [encoding.ids for encoding in encodings]
        return ids, np.fromiter(map(self._is_encodable, ids), dtype=np.bool_, count=len(ids))

    def _is_encodable(self, ids: list[int]) -> bool:
        """Whether there is a token that is not special, from the prefix, a space or [UNK]."""
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
        max_tokens: Maximum of the number of names times the longest one; a longer single name gets its own batch.
        max_names: Maximum number of names in a batch.
        min_names: A batch with fewer names is not cut to save padding, because small matrices cost more.
        max_padding: Maximum share of padding; a batch with more is cut.

    Yields:
        Indices into `lengths`; every index occurs once.
    """
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        width = int(lengths[order[start]])
        end = start + min(max_names, max(1, max_tokens // width), len(order) - start)
        padding = np.cumsum(width - lengths[order[start:end]])
        cells = width * np.arange(1, end - start + 1)
        too_padded = np.flatnonzero(padding > max_padding * cells)
        too_padded = too_padded[too_padded >= min_names]
        if len(too_padded):
            end = start + int(too_padded[0])
        yield order[start:end]
        start = end


def _check_unicode(text: str, position: int) -> None:
    """Refuse invalid Unicode, which neither the tokenizer nor the store can handle."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"name {position} has a lone surrogate ({text[error.start]!a} at character {error.start}), which is not "
            f"valid text: {text[:40]!a}. Decode its source with errors='replace'."
        ) from error


def open_tokenizer(path: Path) -> Tokenizer:
    """Open a tokenizer.json, without padding and truncation. Raises CheckpointError if that is not possible."""
    hint = "" if path.exists() else ". Save it with transformers' AutoTokenizer(...).save_pretrained(folder)"
    with tokenizer_errors(path, "not a readable tokenizer", hint):
        tokenizer = Tokenizer.from_file(str(path))
        tokenizer.no_padding()
        tokenizer.no_truncation()
    return tokenizer


@contextmanager
def tokenizer_errors(path: Path | str, what: str, hint: str = "") -> Iterator[None]:
    """Turn errors of the library into a `CheckpointError`: bare `Exception`s, and panics of its Rust code."""
    try:
        yield
    except BaseException as error:
        # A panic is a BaseException of a class that cannot be imported.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise CheckpointError(str(path), f"{what} ({error}){hint}") from error


def _unk_id(path: Path, tokenizer: Tokenizer) -> int | None:
    """Id of [UNK]; None for a byte-level tokenizer, which has none."""
    token = getattr(tokenizer.model, "unk_token", None)
    if token is not None:
        unk_id: int | None = tokenizer.token_to_id(token)
        return unk_id
    # The unk_id of a Unigram model is only in the file, whose 250,000 pieces take a third of a second to parse.
    found = _UNK_ID.search(path.read_bytes())
    return int(found[1]) if found else None


def _pad_id(folder: Path, tokenizer: Tokenizer) -> int:
    """Id of the padding token. It is masked, but RoBERTa computes positions from it."""
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
