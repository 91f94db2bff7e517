"""Writes a checkpoint folder from its parts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pearl_qdrant.encoder.checkpoint import (
    CHARACTER_TENSORS,
    HEAD_FILE,
    HEAD_TENSOR,
    ONNX_FILE,
    TORCH_FILE,
    PearlConfig,
    VerifiedCheckpoint,
    seal,
    write_config,
)
from pearl_qdrant.encoder.json_files import read_json
from pearl_qdrant.encoder.protocol import FloatArray
from pearl_qdrant.encoder.verify import verify

_NOTICES = ("NOTICE*", "LICENSE*")
"""Files that licences require in every copy of a model, changed or not."""

_SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def write_checkpoint(
    folder: Path,
    config: PearlConfig,
    *,
    transformer: Path,
    type_head: FloatArray,
    character: Mapping[str, FloatArray] | None = None,
    onnx_path: Path | None = None,
    torch_path: Path | None = None,
    model_card: str = "",
) -> VerifiedCheckpoint:
    """Write and verify a checkpoint folder. Raises CheckpointError if the parts do not match; OSError if a part is
    missing.

    Args:
        folder: Created if necessary; the files of a checkpoint in it are replaced.
        config: Content of pearl.json; `files` and `weights_hash` are filled in.
        transformer: Folder with config.json and tokenizer files of the phrase encoder; its notices are copied too.
        type_head: W of the type head, (95, dim).
        character: Tensors of the character encoder by name. Needed with `torch_path` if the config has a character
            encoder; optional if the weights are only in the ONNX graph.
        onnx_path: The ONNX graph, or None.
        torch_path: Safetensors of the phrase encoder, or None. One of the two paths is needed.
        model_card: Text of README.md.
    """
    from safetensors.numpy import save

    (folder / "1_Pooling").mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "tokenizer.json"):
        _copy(transformer / name, folder / name)
    _write_json(folder / "tokenizer_config.json", _tokenizer_config(transformer, config.max_length))
    _write_json(folder / "special_tokens_map.json", _special_tokens(transformer))
    _write_json(folder / "modules.json", _MODULES)
    _write_json(folder / "1_Pooling" / "config.json", _pooling(config))
    tensors = {HEAD_TENSOR: type_head} | {CHARACTER_TENSORS + name: array for name, array in (character or {}).items()}
    tensors = {name: np.ascontiguousarray(array, dtype=np.float32) for name, array in tensors.items()}
    # Not save_file, which creates files that other users cannot read.
    (folder / HEAD_FILE).write_bytes(save(tensors))
    for source, name in ((onnx_path, ONNX_FILE), (torch_path, TORCH_FILE)):
        if source is None:
            (folder / name).unlink(missing_ok=True)
        else:
            _copy(source, folder / name)
    for path in sorted(path for name in _NOTICES for path in transformer.glob(name)):
        _copy(path, folder / path.name)
    (folder / "README.md").write_text(model_card, encoding="utf-8", newline="\n")
    write_config(folder, config)
    seal(folder)
    return verify(folder)


_MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
]


def _pooling(config: PearlConfig) -> dict[str, Any]:
    """1_Pooling/config.json in a form that old and new versions of sentence-transformers can read."""
    return {
        "word_embedding_dimension": config.phrase_dim,
        "pooling_mode_cls_token": config.pooling == "cls",
        "pooling_mode_mean_tokens": config.pooling == "mean",
        "pooling_mode_max_tokens": False,
        "pooling_mode_mean_sqrt_len_tokens": False,
    }


def _tokenizer_config(transformer: Path, max_length: int) -> dict[str, Any]:
    """tokenizer_config.json with the maximum length that fastembed and sentence-transformers use."""
    return {**read_json(transformer / "tokenizer_config.json"), "model_max_length": max_length}


def _special_tokens(transformer: Path) -> dict[str, Any]:
    """special_tokens_map.json; rebuilt if missing, since new versions of transformers do not write it."""
    path = transformer / "special_tokens_map.json"
    if path.exists():
        return read_json(path)
    declared = read_json(transformer / "tokenizer_config.json")
    return {key: declared[key] for key in _SPECIAL_TOKENS if declared.get(key)}


def _copy(source: Path, target: Path) -> None:
    """Copy a file, unless source and target are the same."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.resolve() != target.resolve():
        shutil.copyfile(source, target)


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8", newline="\n")
