"""Writes a checkpoint folder from its parts, and verifies every file of one: slower than the checks of a load."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pearl_qdrant.encoder.character.table import check_alphabet, check_tensors, read_character_table
from pearl_qdrant.encoder.checkpoint import (
    CHARACTER_TENSORS,
    HEAD_FILE,
    HEAD_TENSOR,
    ONNX_FILE,
    TORCH_FILE,
    PearlConfig,
    VerifiedCheckpoint,
    open_checkpoint,
    seal,
    write_config,
)
from pearl_qdrant.encoder.json_files import read_json
from pearl_qdrant.encoder.protocol import FloatArray
from pearl_qdrant.errors import CheckpointError
from pearl_qdrant.phrase_types import PHRASE_TYPES


def verify(folder: Path) -> VerifiedCheckpoint:
    """Verify sizes, hashes, formats and shapes of a checkpoint folder. Raises CheckpointError if a file is wrong."""
    checkpoint = open_checkpoint(folder)
    config = checkpoint.config
    for name, key, expected in (
        ("config.json", "hidden_size", config.phrase_dim),
        ("tokenizer_config.json", "model_max_length", config.max_length),
    ):
        found = read_json(folder / name).get(key)
        if found != expected:
            raise CheckpointError(str(folder / name), f"{key} is {found}, but {expected} in pearl.json")
    shapes = safetensors_shapes(checkpoint.head_path)
    if shapes.get(HEAD_TENSOR) != (len(PHRASE_TYPES), config.dim):
        raise CheckpointError(
            str(checkpoint.head_path),
            f"tensor {HEAD_TENSOR} has shape {shapes.get(HEAD_TENSOR)}, ({len(PHRASE_TYPES)}, {config.dim}) expected",
        )
    if checkpoint.torch_path is not None:
        safetensors_shapes(checkpoint.torch_path)
    own = {n.removeprefix(CHARACTER_TENSORS): s for n, s in shapes.items() if n.startswith(CHARACTER_TENSORS)}
    path = str(checkpoint.head_path)
    if config.character is not None:
        table = read_character_table(folder / "tokenizer.json")
        check_alphabet(folder, config.character, table)
        if own or checkpoint.torch_path is not None:
            check_tensors(path, own, config.character, char_dim=config.char_dim, n_tokens=len(table.special))
    elif own:
        raise CheckpointError(
            path, f"has {CHARACTER_TENSORS}{min(own)}, but pearl.json has no character encoder. Fetch it again"
        )
    if checkpoint.onnx_path is not None:
        from pearl_qdrant.encoder.runtime.onnx_runtime import OnnxGraph

        OnnxGraph(checkpoint.onnx_path).check_pearl_outputs(config.dim)
    return checkpoint


def safetensors_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the tensors in a safetensors file, from its header. Raises CheckpointError if it is none."""
    size = path.stat().st_size
    with path.open("rb") as file:
        n_header = int.from_bytes(file.read(8), "little")
        if size < 8 or n_header > min(size - 8, 100_000_000):
            raise CheckpointError(str(path), "truncated, or not a safetensors file. Fetch it again")
        try:
            header = json.loads(file.read(n_header))
            tensors = {name: tensor for name, tensor in header.items() if name != "__metadata__"}
            shapes = {name: tuple(map(int, tensor["shape"])) for name, tensor in tensors.items()}
            end = max((int(tensor["data_offsets"][1]) for tensor in tensors.values()), default=0)
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError) as error:
            raise CheckpointError(str(path), "not a safetensors file: its header cannot be read") from error
    if size != 8 + n_header + end:
        raise CheckpointError(
            str(path), f"truncated: {size:,} bytes, {8 + n_header + end:,} by its header. Fetch it again"
        )
    return shapes


_MODELS = "sentence_transformers.models"
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
    """Write and verify a checkpoint folder from its parts. Raises CheckpointError if they do not match; OSError if a
    part is missing.

    Args:
        folder: Created if necessary; the files of a checkpoint in it are replaced.
        config: Content of pearl.json; `files` and `weights_hash` are filled in.
        transformer: Folder with config.json and tokenizer files of the phrase encoder; its notices are copied too.
        type_head: W of the type head, (95, dim).
        character: Tensors of the character encoder by name, which safetensors for torch need beside them.
        onnx_path, torch_path: The ONNX graph and the safetensors of the phrase encoder; one of them is needed.
    """
    from safetensors.numpy import save

    for name in ("config.json", "tokenizer.json"):
        copy_file(transformer / name, folder / name)
    declared = read_json(transformer / "tokenizer_config.json")
    special = transformer / "special_tokens_map.json"  # which new versions of transformers do not write
    written = {key: declared[key] for key in _SPECIAL_TOKENS if declared.get(key)}
    # The maximum length that fastembed and sentence-transformers use.
    write_json(folder / "tokenizer_config.json", {**declared, "model_max_length": config.max_length})
    write_json(folder / "special_tokens_map.json", read_json(special) if special.exists() else written)
    write_modules(folder, dim=config.phrase_dim, pooling=config.pooling)
    tensors = {HEAD_TENSOR: type_head} | {CHARACTER_TENSORS + name: array for name, array in (character or {}).items()}
    tensors = {name: np.ascontiguousarray(array, dtype=np.float32) for name, array in tensors.items()}
    # Not save_file, which creates files that other users cannot read.
    (folder / HEAD_FILE).write_bytes(save(tensors))
    for source, name in ((onnx_path, ONNX_FILE), (torch_path, TORCH_FILE)):
        if source is None:
            (folder / name).unlink(missing_ok=True)
        else:
            copy_file(source, folder / name)
    copy_notices(transformer, folder)
    (folder / "README.md").write_text(model_card, encoding="utf-8", newline="\n")
    write_config(folder, config)
    seal(folder)
    return verify(folder)


def copy_file(source: Path, target: Path) -> None:
    """Copy a file, unless source and target are the same."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.resolve() != target.resolve():
        shutil.copyfile(source, target)


def copy_notices(source: Path, target: Path) -> None:
    """Copy NOTICE and LICENSE files: licences require them in every copy of a model, changed or not."""
    for path in sorted([*source.glob("NOTICE*"), *source.glob("LICENSE*")]):
        copy_file(path, target / path.name)


def write_modules(folder: Path, *, dim: int, pooling: str) -> None:
    """Write what sentence-transformers, old or new, opens a folder by: transformer, pooling and normalisation."""
    (folder / "1_Pooling").mkdir(parents=True, exist_ok=True)
    parts = enumerate((("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")))
    modules = [{"idx": i, "name": str(i), "path": path, "type": f"{_MODELS}.{kind}"} for i, (kind, path) in parts]
    write_json(folder / "modules.json", modules)
    modes = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens"}
    config = {"word_embedding_dimension": dim}
    config |= {f"pooling_mode_{name}": mode == pooling for mode, name in modes.items()}
    write_json(folder / "1_Pooling" / "config.json", {**config, "pooling_mode_mean_sqrt_len_tokens": False})


def write_json(path: Path, content: Any) -> None:
    """Write indented JSON."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8", newline="\n")
