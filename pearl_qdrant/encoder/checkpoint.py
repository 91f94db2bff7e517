"""Reads, writes, seals and verifies a checkpoint folder.

    config.json, tokenizer.json, tokenizer_config.json, special_tokens_map.json     as transformers writes them
    modules.json, 1_Pooling/config.json     for sentence-transformers, which opens the phrase encoder
    pearl.json            `PearlConfig`: dims, labels, alphabet, training record, size and SHA-256 of every other file
    pearl.safetensors     the type head: `type_head.weight`, (95, dim), float32; and `character_encoder.*`, if any
    model.safetensors     the phrase encoder for torch
    onnx/model.onnx       input_ids, attention_mask (b, t) int64 -> embedding (b, dim), type_logits (b, 95)
    README.md             the model card; not verified, so that it can be edited

A small checkpoint stores its weights only in the ONNX graph: it has no model.safetensors and no `character_encoder.*`.
Each load computes the SHA-256 of the files that it loads: 23 MB take about 60 ms.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, field_validator

from pearl_qdrant.encoder.character.table import CharacterConfig, check_alphabet, check_tensors, read_character_table
from pearl_qdrant.encoder.json_files import read_json, validated
from pearl_qdrant.encoder.protocol import FloatArray
from pearl_qdrant.errors import CheckpointError
from pearl_qdrant.phrase_types import PHRASE_TYPES

FORMAT_VERSION = 1
PEARL_JSON = "pearl.json"
ONNX_FILE = "onnx/model.onnx"
TORCH_FILE = "model.safetensors"
HEAD_FILE = "pearl.safetensors"
HEAD_TENSOR = "type_head.weight"
CHARACTER_TENSORS = "character_encoder."  # prefix of the names of the character encoder's tensors
MAX_TOKENS = 1_000_000
"""No model reads this many tokens; a higher limit means that there is none, like the 1e30 of transformers."""

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
REQUIRED_FILES = ("config.json", *TOKENIZER_FILES, "modules.json", "1_Pooling/config.json", HEAD_FILE)
"""Required files; `ONNX_FILE` or `TORCH_FILE` is required too."""


class FileRecord(BaseModel):
    """Size and hash of a file when the checkpoint was sealed."""

    model_config = ConfigDict(frozen=True)

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    bytes: int = Field(ge=0)


class PearlConfig(BaseModel):
    """pearl.json.

    Attributes:
        dim: Width of the embedding: that of the phrase encoder plus `char_dim`, 0 without a character encoder.
        labels: Phrase types in the order of the head's rows.
        label_counts: Number of training examples of each label; a label without any is never predicted.
        pooling: "mean" or "cls", over the phrase encoder's last layer.
        max_length: Maximum number of tokens, including special ones.
        precision: Precision of the weights in ONNX: "fp32", "int8-block32", ...
        weights_hash: "sha256:..." that identifies this model in manifests; the same for its ONNX and torch forms.
        files: Size and hash of each file of the folder except this one and README.md, by POSIX path.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    format_version: int = FORMAT_VERSION
    name: str = Field(min_length=1)
    dim: int = Field(gt=0)
    phrase_dim: int = Field(gt=0)
    char_dim: int = Field(default=0, ge=0)
    character: CharacterConfig | None = None
    labels: tuple[str, ...] = PHRASE_TYPES
    label_counts: tuple[int, ...]
    pooling: str = Field(default="mean", pattern="^(mean|cls)$")
    prefix: str = ""
    max_length: int = Field(default=64, gt=2, lt=MAX_TOKENS)
    precision: str = "fp32"
    weights_hash: str = Field(default="", pattern=r"^(sha256:[0-9a-f]{64})?$")
    files: dict[str, FileRecord] = Field(default_factory=dict)
    training: dict[str, Any] = Field(default_factory=dict)

    @field_validator("files")
    @classmethod
    def _inside_the_folder(cls, files: dict[str, FileRecord]) -> dict[str, FileRecord]:
        for name in files:
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or not {"\\", ":", "\0"}.isdisjoint(name):
                raise ValueError(f"'{name}' is not a path inside the folder")
        return files


@dataclass(frozen=True, slots=True)
class VerifiedCheckpoint:
    """A checkpoint folder whose files match pearl.json."""

    folder: Path
    config: PearlConfig

    @property
    def onnx_path(self) -> Path | None:
        """The ONNX graph, if the folder has one."""
        return self.folder / ONNX_FILE if ONNX_FILE in self.config.files else None

    @property
    def torch_path(self) -> Path | None:
        """The phrase encoder's weights for torch, if the folder has them."""
        return self.folder / TORCH_FILE if TORCH_FILE in self.config.files else None

    @property
    def head_path(self) -> Path:
        """The type head's weights."""
        return self.folder / HEAD_FILE


def is_checkpoint(folder: Path) -> bool:
    """Whether the folder has a pearl.json."""
    return (folder / PEARL_JSON).is_file()


def read_config(folder: Path) -> PearlConfig:
    """Read and check pearl.json alone. Raises CheckpointError if it is missing, broken, newer or inconsistent."""
    path = folder / PEARL_JSON
    loaded = read_json(path)
    version = loaded.get("format_version")
    if isinstance(version, int) and version > FORMAT_VERSION:  # before its fields are read
        raise CheckpointError(
            str(path),
            f"format version {version}, but this program supports {FORMAT_VERSION}: the model needs a newer version of "
            f"pearl-qdrant. Upgrade it",
        )
    config = validated(path, loaded, PearlConfig)
    if config.labels != PHRASE_TYPES:
        pairs = enumerate(zip(config.labels, PHRASE_TYPES, strict=False))
        where = next((f"label {i} is {a}, not {b}" for i, (a, b) in pairs if a != b), "one list is longer")
        raise CheckpointError(
            str(path), f"its {len(config.labels)} labels are not the {len(PHRASE_TYPES)} phrase types: {where}"
        )
    if len(config.label_counts) != len(PHRASE_TYPES):
        raise CheckpointError(str(path), f"{len(config.label_counts)} label counts for {len(PHRASE_TYPES)} labels")
    if bool(config.char_dim) != (config.character is not None):
        has = "no character encoder" if config.character is None else "a character encoder"
        raise CheckpointError(str(path), f"char_dim is {config.char_dim}, but the file describes {has}. Fetch it again")
    if config.dim != config.phrase_dim + config.char_dim:
        raise CheckpointError(
            str(path), f"dim {config.dim} is not phrase_dim {config.phrase_dim} + char_dim {config.char_dim}"
        )
    return config


def open_checkpoint(folder: Path, *, skip: Iterable[str] = ()) -> VerifiedCheckpoint:
    """Read a checkpoint for loading: every file's size, and the hash of those that will be loaded (not in `skip`).
    Raises CheckpointError if a file is missing, truncated or changed, or pearl.json is invalid.
    """
    config = read_config(folder)
    missing = [name for name in REQUIRED_FILES if name not in config.files]
    if missing:
        raise CheckpointError(str(folder / PEARL_JSON), f"does not list {', '.join(missing)}. Seal the folder again")
    if ONNX_FILE not in config.files and TORCH_FILE not in config.files:
        raise CheckpointError(str(folder / PEARL_JSON), f"lists neither {ONNX_FILE} nor {TORCH_FILE}")
    if not config.weights_hash:
        raise CheckpointError(str(folder / PEARL_JSON), "has no weights_hash. Seal the folder again")
    for name, record in config.files.items():
        try:
            _compare(folder / name, record, hashed=name not in skip)
        except (OSError, ValueError) as error:
            reason = f"missing or unreadable ({error.strerror})" if isinstance(error, OSError) else str(error)
            raise CheckpointError(str(folder / name), f"{reason}. Fetch or export the checkpoint again") from error
    return VerifiedCheckpoint(folder, config)


def _compare(path: Path, record: FileRecord, *, hashed: bool) -> None:
    """Raise a ValueError if a file is not as recorded; the size is compared first, since that is cheap."""
    size = path.stat().st_size
    if size != record.bytes:
        what = "truncated" if size < record.bytes else "too long"
        raise ValueError(f"{what}: {size:,} bytes, {record.bytes:,} expected")
    if hashed and (found := file_sha256(path)) != record.sha256:
        raise ValueError(f"changed: SHA-256 is {found[:12]}..., {record.sha256[:12]}... expected")


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, 64 hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def combined_sha256(hashes: Mapping[str, str]) -> str:
    """One hash for several files, independent of their order: "sha256:" over the sorted lines of path and hash."""
    lines = "".join(f"{name}\0{sha256}\n" for name, sha256 in sorted(hashes.items()))
    return "sha256:" + hashlib.sha256(lines.encode()).hexdigest()


def seal(folder: Path, *, weights_hash: str | None = None) -> PearlConfig:
    """Write size and hash of every file into the folder's pearl.json; the last step of writing a checkpoint. Returns
    the written configuration. Raises CheckpointError if pearl.json is missing or invalid.

    `weights_hash` is that of an existing model, if this is another form of it; by default it is computed over the ONNX
    files, or over the safetensors if there are none, so that adding `model.safetensors` to ONNX does not change it.
    """
    config = read_config(folder)
    names = [*REQUIRED_FILES, TORCH_FILE]
    names += [path.relative_to(folder).as_posix() for path in sorted((folder / "onnx").glob("*")) if path.is_file()]
    files = {
        name: FileRecord(sha256=file_sha256(folder / name), bytes=(folder / name).stat().st_size)
        for name in names
        if (folder / name).is_file()
    }
    onnx = {name: record.sha256 for name, record in files.items() if name.startswith("onnx/")}
    torch = {name: record.sha256 for name, record in files.items() if name.endswith(".safetensors")}
    sealed = config.model_copy(update={"files": files, "weights_hash": weights_hash or combined_sha256(onnx or torch)})
    write_config(folder, sealed)
    return sealed


def write_config(folder: Path, config: PearlConfig) -> None:
    """Write pearl.json atomically."""
    path = folder / PEARL_JSON
    partial = path.with_suffix(".json.part")
    text = json.dumps(config.model_dump(mode="json"), indent=1, ensure_ascii=False)
    partial.write_text(text + "\n", encoding="utf-8", newline="\n")
    partial.replace(path)


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
