"""Encoders and names in few bytes, as they travel to the machine with the GPU and back.

    matrices              int8, one scale a row
    word embeddings       4-bit blocks (`training.export.graph_builder.read_blocks`) or int8 rows, as they ship: exact
    all else              float32

Tensors of a packed encoder are numpy arrays in one dictionary: `NAME.q` and `NAME.s` of a matrix, `NAME.n` (nibbles,
the even columns in the lower half) and `NAME.s` of 4-bit blocks, `NAME` of any other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Arrays = dict[str, npt.NDArray[Any]]
BLOCK = 32
POSITIONS = 72
"""Positions that travel: the longest text that is learned has 64 tokens."""


def pack_rows(name: str, matrix: npt.NDArray[Any]) -> Arrays:
    """Pack a matrix as int8 with a scale a row."""
    scales = np.maximum(np.abs(matrix).max(axis=1), 1e-12) / 127
    whole = np.rint(matrix / scales[:, None]).astype(np.int8)
    return {f"{name}.q": whole, f"{name}.s": scales.astype(np.float32)}


def pack_blocks(name: str, whole: npt.NDArray[np.int8], scales: npt.NDArray[np.float16]) -> Arrays:
    """Pack whole numbers from -8 to 7, (rows, k), and scales, (rows, k / 32)."""
    high = (whole + 8).astype(np.uint8)
    return {f"{name}.n": high[:, ::2] | high[:, 1::2] << 4, f"{name}.s": scales}


def unpack(packed: Mapping[str, npt.NDArray[Any]]) -> Arrays:
    """Return the tensors as float32, by name."""
    found: Arrays = {}
    for key, array in packed.items():
        name, _, kind = key.rpartition(".")
        if kind == "q":
            found[name] = array.astype(np.float32) * packed[f"{name}.s"][:, None]
        elif kind == "n":
            whole = np.stack([array & 15, array >> 4], axis=2).reshape(len(array), -1).astype(np.float32) - 8
            found[name] = whole * np.repeat(packed[f"{name}.s"].astype(np.float32), BLOCK, axis=1)
        elif kind != "s":
            found[key] = array.astype(np.float32)
    return found


def trim_tokenizer(tokenizer: dict[str, Any], kept: list[int]) -> dict[str, Any]:
    """Return a unigram tokenizer with some of its pieces, in the order of `kept`, which has all special ones."""
    pieces, number = tokenizer["model"]["vocab"], {old: new for new, old in enumerate(kept)}
    added = [{**token, "id": number[token["id"]]} for token in tokenizer["added_tokens"]]
    model = {**tokenizer["model"], "vocab": [pieces[i] for i in kept], "unk_id": number[tokenizer["model"]["unk_id"]]}
    processor = tokenizer.get("post_processor")
    if processor and processor["type"] == "TemplateProcessing":
        for token in processor["special_tokens"].values():
            token["ids"] = [number[i] for i in token["ids"]]
    return {**tokenizer, "model": model, "added_tokens": added}


def pieces_to_keep(tokenizer: dict[str, Any], used: Iterable[int], n_likeliest: int) -> list[int]:
    """Return the special pieces, those that are used, all single characters, and the likeliest ones, sorted."""
    pieces = tokenizer["model"]["vocab"]
    special = {token["id"] for token in tokenizer["added_tokens"]} | {tokenizer["model"]["unk_id"]}
    single = {i for i, (piece, _) in enumerate(pieces) if len(piece.replace("▁", "")) <= 1}
    likeliest = sorted(range(len(pieces)), key=lambda i: -pieces[i][1])[: n_likeliest + len(special)]
    return sorted({*special, *single, *used, *likeliest})


def write_json(path: Path, content: Any) -> None:
    """Write JSON without spaces."""
    path.write_text(json.dumps(content, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")
