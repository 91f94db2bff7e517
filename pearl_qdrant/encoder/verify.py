"""Verifies every file of a checkpoint: hashes, formats and shapes. Slower than the checks of a load."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from pearl_qdrant.encoder.character.table import check_alphabet, read_character_table, tensor_shapes
from pearl_qdrant.encoder.checkpoint import CHARACTER_TENSORS, HEAD_TENSOR, VerifiedCheckpoint, open_checkpoint
from pearl_qdrant.encoder.json_files import read_json
from pearl_qdrant.errors import CheckpointError
from pearl_qdrant.phrase_types import PHRASE_TYPES

# The limit of the library safetensors.
_MAX_HEADER_BYTES = 100_000_000


def verify(folder: Path) -> VerifiedCheckpoint:
    """Verify sizes, hashes and formats of a checkpoint folder, and that all shapes agree with pearl.json. Raises
    CheckpointError if a file is wrong; names the file and the fault.
    """
    checkpoint = open_checkpoint(folder)
    config = checkpoint.config
    _check_json(folder, "config.json", "hidden_size", config.phrase_dim)
    _check_json(folder, "tokenizer_config.json", "model_max_length", config.max_length)
    shapes = safetensors_shapes(checkpoint.head_path)
    if shapes.get(HEAD_TENSOR) != (len(PHRASE_TYPES), config.dim):
        raise CheckpointError(
            str(checkpoint.head_path),
            f"tensor {HEAD_TENSOR} has shape {shapes.get(HEAD_TENSOR)}, ({len(PHRASE_TYPES)}, {config.dim}) expected",
        )
    if checkpoint.torch_path is not None:
        safetensors_shapes(checkpoint.torch_path)
    _check_character_encoder(checkpoint, shapes)
    if checkpoint.onnx_path is not None:
        from pearl_qdrant.encoder.runtime.onnx_runtime import OnnxGraph

        OnnxGraph(checkpoint.onnx_path).check_pearl_outputs(config.dim)
    return checkpoint


def _check_character_encoder(checkpoint: VerifiedCheckpoint, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Check that the alphabet matches the tokenizer, and the tensors, if there are any, match pearl.json."""
    config, path = checkpoint.config, str(checkpoint.head_path)
    found = {name: shape for name, shape in shapes.items() if name.startswith(CHARACTER_TENSORS)}
    if config.character is None:
        if found:
            raise CheckpointError(path, f"has {min(found)}, but pearl.json has no character encoder. Fetch it again")
        return
    table = read_character_table(checkpoint.folder / "tokenizer.json")
    check_alphabet(checkpoint.folder, config.character, table)
    expected = tensor_shapes(config.character, char_dim=config.char_dim, n_tokens=len(table.special))
    expected = {CHARACTER_TENSORS + name: shape for name, shape in expected.items()}
    if not found and checkpoint.torch_path is None:
        return
    for name in sorted({*found, *expected}):
        if found.get(name) != expected.get(name):
            raise CheckpointError(
                path, f"tensor {name} has shape {found.get(name)}, {expected.get(name)} expected. Fetch it again"
            )


def safetensors_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the tensors in a safetensors file, from its header, without the library. Raises
    CheckpointError if the file is truncated, or not a safetensors file.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        n_header = int.from_bytes(file.read(8), "little")
        if size < 8 or n_header > min(size - 8, _MAX_HEADER_BYTES):
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


def _check_json(folder: Path, name: str, key: str, expected: int) -> None:
    """Check that a number has the same value in two files."""
    found = read_json(folder / name).get(key)
    if found != expected:
        raise CheckpointError(str(folder / name), f"{key} is {found}, but {expected} in pearl.json")
