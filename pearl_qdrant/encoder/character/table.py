"""The configuration of a character encoder, and the characters of its vocabulary.

Reads the characters of every token of a vocabulary from tokenizer.json.

    token        characters          continues a word
    ##ing        i n g               yes                 WordPiece: marked by ##
    ing          i n g               no
    ĠYork   y o r k             no                  byte-level BPE: the mark of a space starts a word
    ▁York   y o r k             no                  SentencePiece: the same
    [CLS]        none                                    special: not part of a word

So the character encoder needs only token ids, and no text. Characters are lower-cased as in LOVE. A byte that is not a
whole character becomes a private one (U+E000 + byte). Costs 0.3 s for the 30,522 tokens of BERT, once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from pearl_qdrant.encoder.json_files import read_json
from pearl_qdrant.encoder.protocol import BoolArray
from pearl_qdrant.errors import CheckpointError
from pearl_qdrant.settings import DEFAULT_CHARACTER_SHARE

PAD, BEGIN, END = 0, 1, 2  # rows of the embeddings that are not characters: padding, and the marks around a word
N_MARKS = 3


class CharacterConfig(BaseModel):
    """Widths and limits of a character encoder; the defaults cost about a tenth of a 6 x 384 phrase encoder.

    With BERT's 30,522 wordpieces it has 2.1 million parameters, nearly all of them in the wordpieces.

    Attributes:
        share: Share of the character parts in the cosine of two embeddings, in (0, 1):
            cos(h, h') = (1 - share) cos(u, u') + share cos(v, v').
        embedding_dim: Width of the embeddings of characters and wordpieces; even.
        attention_dim: Width of queries and keys of the content attention; 32 in LOVE.
        max_characters, max_pieces: Characters and wordpieces of a word that are read; no pieces: characters only.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    alphabet: tuple[str, ...] = Field(min_length=1)
    share: float = Field(default=DEFAULT_CHARACTER_SHARE, gt=0, lt=1)
    embedding_dim: int = Field(default=64, gt=0, multiple_of=2)
    attention_dim: int = Field(default=32, gt=0)
    word_dim: int = Field(default=128, gt=0)
    max_characters: int = Field(default=32, gt=0, le=1000)
    max_pieces: int = Field(default=8, ge=0, le=1000)

    @property
    def max_places(self) -> int:
        """Maximum number of positions of a word: characters, two marks and wordpieces."""
        return self.max_characters + 2 + self.max_pieces


def tensor_shapes(config: CharacterConfig, *, char_dim: int, n_tokens: int) -> dict[str, tuple[int, ...]]:
    """Shapes of the tensors of a character encoder of this width and a vocabulary of this size, by name in torch."""
    e, a, w = config.embedding_dim, config.attention_dim, config.word_dim
    n_rows = N_MARKS + len(config.alphabet) + (n_tokens if config.max_pieces else 0)
    return {
        "embeddings.weight": (n_rows, e),
        "position.weight": (e, e),
        "query.weight": (a, e),
        "key.weight": (a, e),
        "output.weight": (w, 2 * e),
        "output.bias": (w,),
        "projection.weight": (char_dim, w),
    }


def check_tensors(
    path: str, found: Mapping[str, tuple[int, ...]], config: CharacterConfig, *, char_dim: int, n_tokens: int
) -> None:
    """Raise a CheckpointError about a file unless the tensors that it has, by name in torch, have these shapes."""
    expected = tensor_shapes(config, char_dim=char_dim, n_tokens=n_tokens)
    for name in sorted({*found, *expected}):
        if found.get(name) != expected.get(name):
            raise CheckpointError(
                path,
                f"tensor character_encoder.{name} has shape {found.get(name)}, {expected.get(name)} expected. Fetch it "
                f"again",
            )


MAX_PIECE_CHARACTERS = 20
"""Characters of a token; the rest is cut. BERT's longest has 18; byte-level vocabularies have runs of 100 dashes."""

_MOST_ROWS = 100  # maximum ratio of the highest id to the number of tokens, because ids are indices of an array
_BYTE_SPACE, _SENTENCE_SPACE = "\u0120", "\u2581"


@dataclass(frozen=True, slots=True, eq=False)
class CharacterTable:
    """The characters of a vocabulary, as the character encoder uses them.

    Attributes:
        codes: Rows of the embeddings, (vocabulary, characters), int32: `N_MARKS` + index in the sorted alphabet;
            0 after the last character.
        continuation: Whether a token continues the word before it, (vocabulary,).
        special: Whether a token is not part of a word, such as [CLS], [PAD] and [UNK], (vocabulary,).
    """

    alphabet: tuple[str, ...]
    codes: npt.NDArray[np.int32]
    continuation: BoolArray
    special: BoolArray


def read_character_table(path: Path) -> CharacterTable:
    """The table of a tokenizer.json. Raises CheckpointError if it cannot be read, or its tokens do not mark words."""
    loaded = read_json(path)
    try:
        model, added = loaded["model"], loaded.get("added_tokens") or []
        kind = _kind(loaded)
        if kind is None:
            raise CheckpointError(
                str(path),
                f"a {model.get('type')} tokenizer that does not mark words: a character encoder needs WordPiece, "
                f"byte-level BPE or SentencePiece. Train without one (char_dim 0)",
            )
        special = {int(token["id"]) for token in added if token.get("special")}
        unknown = model.get("unk_id")
        if unknown is None and isinstance(model["vocab"], dict):
            unknown = model["vocab"].get(model.get("unk_token"))
        if unknown is not None:
            special.add(int(unknown))
        prefix = str(model.get("continuing_subword_prefix") or "##")
        return _table(_tokens(model, added), special, kind=kind, prefix=prefix)
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError) as error:
        raise CheckpointError(str(path), f"not a readable tokenizer ({error!r}). Fetch it again") from error


def check_alphabet(folder: Path, config: CharacterConfig, table: CharacterTable) -> None:
    """Raise a CheckpointError unless the tokenizer has the alphabet that the encoder was trained with."""
    if config.alphabet != table.alphabet:
        pairs = enumerate(zip(config.alphabet, table.alphabet, strict=False))
        where = next((f"character {i} is {b!r}, not {a!r}" for i, (a, b) in pairs if a != b), "one alphabet is longer")
        raise CheckpointError(
            str(folder / "tokenizer.json"),
            f"its {len(table.alphabet)} characters are not the {len(config.alphabet)} of pearl.json: {where}. It "
            f"belongs to another model; fetch the checkpoint again",
        )


def _table(tokens: dict[int, str], special: set[int], *, kind: str, prefix: str) -> CharacterTable:
    """The table of these tokens."""
    n = max(tokens) + 1
    texts: list[str] = [""] * n
    is_special, continuation = np.ones(n, dtype=np.bool_), np.zeros(n, dtype=np.bool_)  # unused ids are special, too
    for token_id in tokens.keys() - special:
        text, continuation[token_id] = _characters(tokens[token_id], kind, prefix)
        texts[token_id], is_special[token_id] = text.lower()[:MAX_PIECE_CHARACTERS], False
    alphabet = tuple(sorted({character for text in texts for character in text}))
    code_of = {character: N_MARKS + i for i, character in enumerate(alphabet)}
    codes = np.zeros((n, max(1, *map(len, texts))), dtype=np.int32)
    for token_id, text in enumerate(texts):
        codes[token_id, : len(text)] = [code_of[character] for character in text]
    return CharacterTable(alphabet, codes, continuation, is_special)


def _characters(token: str, kind: str, prefix: str) -> tuple[str, bool]:
    """The text of a token, and whether it continues the word before it."""
    if kind == "wordpiece":
        return (token[len(prefix) :], True) if token.startswith(prefix) and token != prefix else (token, False)
    mark = _BYTE_SPACE if kind == "bytes" else _SENTENCE_SPACE
    text = token.replace(mark, "")
    if kind == "bytes":
        text = _decoded(bytes(_BYTE_OF[character] for character in text if character in _BYTE_OF))
    elif len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        text = _decoded(bytes.fromhex(token[3:5]))
    return "".join(text.split()), not token.startswith(mark)


def _decoded(raw: bytes) -> str:
    """Decode UTF-8; bytes that are not a whole character become private characters, which JSON can store."""
    text = raw.decode("utf-8", "surrogateescape")
    return "".join(chr(0xE000 + (ord(c) & 0xFF)) if "\udc80" <= c <= "\udcff" else c for c in text)


_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(0x100) if byte not in _PRINTABLE]
_BYTE_OF = {**{chr(b): b for b in _PRINTABLE}, **{chr(0x100 + i): b for i, b in enumerate(_OTHERS)}}
"""The byte of each character in a byte-level vocabulary; printable Latin-1 characters are their own bytes.

Source: GPT-2 (Radford et al. 2019), its byte encoder."""


def _kind(loaded: dict[str, Any]) -> str | None:
    """The way tokens mark words: "wordpiece", "bytes" or "sentencepiece"; None if they do not."""
    if loaded["model"].get("type") == "WordPiece":
        return "wordpiece"
    steps = json.dumps([loaded.get(part) for part in ("normalizer", "pre_tokenizer", "decoder")], ensure_ascii=False)
    if '"ByteLevel"' in steps:
        return "bytes"
    if '"Metaspace"' in steps or _SENTENCE_SPACE in steps:
        return "sentencepiece"
    return None


def _tokens(model: dict[str, Any], added: list[dict[str, Any]]) -> dict[int, str]:
    """Tokens by id, including added ones."""
    vocabulary = model["vocab"]
    if isinstance(vocabulary, list):  # Unigram: pairs of token and log-probability
        tokens = {i: str(pair[0]) for i, pair in enumerate(vocabulary)}
    else:
        tokens = {int(i): str(token) for token, i in vocabulary.items()}
    tokens.update({int(token["id"]): str(token["content"]) for token in added})
    if not tokens:
        raise ValueError("an empty vocabulary")
    if min(tokens) < 0 or max(tokens) >= _MOST_ROWS * len(tokens):
        raise ValueError(f"{len(tokens)} tokens with ids from {min(tokens)} to {max(tokens)}")
    return tokens
