"""Reads and seals a checkpoint folder; `write_checkpoint.py` writes and verifies one.

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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from pearl_qdrant.encoder.character.table import CharacterConfig
from pearl_qdrant.encoder.json_files import read_json, validated
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
