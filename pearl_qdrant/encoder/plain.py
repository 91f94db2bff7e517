"""Encoders of others: any sentence-transformers or transformers folder, read without either library.

Read are modules.json (where the transformer lies), 1_Pooling/config.json, sentence_bert_config.json (maximum length,
lower-casing), config_sentence_transformers.json (default prompt), tokenizer_config.json and config.json. Modules other
than Transformer, Pooling (mean or cls) and Normalize are refused: leaving one out would give other vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import BaseModel, ConfigDict

from pearl_qdrant.encoder.checkpoint import MAX_TOKENS, file_sha256, joint_sha256
from pearl_qdrant.encoder.json_files import load_json, read_settings, validated
from pearl_qdrant.errors import CheckpointError, ModelError

DEFAULT_MAX_LENGTH = 512
"""Tokens, where a folder names no limit."""

_ONNX_FILES = ("onnx/model.onnx", "model.onnx")

# Families whose first position is not 0: their table holds padding_idx + 1 positions that no token takes.
_OFFSET_POSITIONS = ("roberta", "xlm-roberta", "camembert", "mpnet", "xlm-roberta-xl", "xmod", "longformer")


@dataclass(frozen=True, slots=True)
class PlainModel:
    """How a plain encoder is to be run.

    Attributes:
        folder: Where config.json, tokenizer and safetensors lie.
        pooling: "mean" or "cls".
        prefix: Text put before each name.
        max_length: Tokens that the model reads, special ones included.
        lowercase: Whether names are lower-cased before the tokenizer.
        onnx_path: Its ONNX graph, or None.
        safetensors: Its weights for torch, sorted; empty if there are none.
    """

    folder: Path
    pooling: str
    prefix: str
    max_length: int
    lowercase: bool
    onnx_path: Path | None
    safetensors: tuple[Path, ...]

    def weights_hash(self) -> str:
        """Hash of the safetensors, or of the ONNX graph where there are none: the same for both runtimes."""
        if len(self.safetensors) == 1:
            return "sha256:" + file_sha256(self.safetensors[0])
        if self.safetensors:
            return joint_sha256({path.name: file_sha256(path) for path in self.safetensors})
        assert self.onnx_path is not None
        graphs = [path for path in sorted(self.onnx_path.parent.glob(self.onnx_path.name + "*")) if path.is_file()]
        return joint_sha256({path.name: file_sha256(path) for path in graphs})


class _Settings(BaseModel):
    """What is read of a file; the rest of it is not looked at. None stands for what is not said."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class _Config(_Settings):
    """config.json."""

    model_type: str | None = None
    max_position_embeddings: int | None = None
    pad_token_id: int | None = None


class _Bert(_Settings):
    """sentence_bert_config.json."""

    max_seq_length: int | float | None = None
    do_lower_case: bool | None = None


class _TokenizerConfig(_Settings):
    """tokenizer_config.json."""

    model_max_length: int | float | None = None


class _Prompts(_Settings):
    """config_sentence_transformers.json."""

    prompts: dict[str, str | None] | None = None
    default_prompt_name: str | None = None


class _Pooling(_Settings):
    """1_Pooling/config.json: `pooling_mode` in its new form, `pooling_mode_cls_token` and the like in its old one."""

    model_config = ConfigDict(frozen=True, extra="allow")

    include_prompt: bool | None = None
    pooling_mode: str | list[str] | None = None


class _Module(_Settings):
    """An item of modules.json."""

    type: str
    path: str


class _Modules(_Settings):
    """modules.json."""

    modules: list[_Module]


def read_plain_model(root: Path, *, pooling: str | None = None, prefix: str | None = None) -> PlainModel:
    """Read the settings of a sentence-transformers or transformers folder.

    Args:
        root: The folder.
        pooling: "mean" or "cls", in place of what the folder says.
        prefix: In place of the folder's default prompt.

    Raises:
        CheckpointError: If a file is missing or broken, or there are no weights that may be read.
        ModelError: If the model needs a step that is not supported.
    """
    folder, pooling_folder = _modules(root)
    if not (folder / "config.json").is_file():
        raise CheckpointError(str(folder), "no model folder: it has neither pearl.json nor config.json")
    declared = read_settings(pooling_folder / "config.json", _Pooling) if pooling_folder else _Pooling()
    prompts = read_settings(root / "config_sentence_transformers.json", _Prompts)
    if prefix is None:
        prefix = (prompts.prompts or {}).get(prompts.default_prompt_name or "") or ""
    if prefix and declared.include_prompt is False:
        raise ModelError(f"{root}: leaving the prompt out of the pooling is not supported. Pass --prefix ''")
    bert = read_settings(folder / "sentence_bert_config.json", _Bert)
    onnx = [path for path in (root / name for name in _ONNX_FILES) if path.is_file()]
    weights = tuple(sorted(folder.glob("model*.safetensors")))
    if not onnx and not weights:
        raise CheckpointError(
            str(folder),
            "has no model.safetensors and no onnx/model.onnx. Pickled weights (.bin, .pt) are not read, since they "
            "can run code; save the model again with transformers' save_pretrained",
        )
    return PlainModel(
        folder=folder,
        pooling=pooling or _pooling(root, declared),
        prefix=prefix,
        max_length=_max_length(folder, bert),
        lowercase=bool(bert.do_lower_case),
        onnx_path=onnx[0] if onnx else None,
        safetensors=weights,
    )


def _modules(root: Path) -> tuple[Path, Path | None]:
    """Folders of the transformer and of its pooling, by modules.json; the folder itself without one."""
    path = root / "modules.json"
    if not path.is_file():
        return root, None
    listed = validated(path, {"modules": load_json(path)}, _Modules).modules
    modules = [(module.type.rsplit(".", 1)[-1], module.path) for module in listed]
    for _, name in modules:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts or "\0" in name:
            raise CheckpointError(str(path), f"'{name}' is not a path inside the folder")
    folders = {kind: root / name for kind, name in modules}
    extra = [kind for kind, _ in modules if kind not in ("Transformer", "Pooling", "Normalize")]
    if extra or "Transformer" not in folders:
        raise ModelError(
            f"{root}: its modules are {', '.join(kind for kind, _ in modules)}; only Transformer, Pooling and "
            f"Normalize are supported, and vectors without the others would be wrong. Take another model."
        )
    return folders["Transformer"], folders.get("Pooling")


def _pooling(root: Path, declared: _Pooling) -> str:
    """What 1_Pooling/config.json says, in its old or new form; mean without one, as sentence-transformers does."""
    modes = declared.pooling_mode
    if modes is None:
        prefix = "pooling_mode_"
        names = {"cls_token": "cls", "mean_tokens": "mean"}
        said: dict[str, Any] = declared.model_extra or {}
        active = [key[len(prefix) :] for key, value in said.items() if key.startswith(prefix) and value is True]
        modes = [names.get(mode, mode) for mode in active]
    modes = [modes] if isinstance(modes, str) else modes or ["mean"]
    if modes not in (["mean"], ["cls"]):
        raise ModelError(
            f"{root}: its pooling is {' + '.join(map(str, modes))}; supported are mean and cls. "
            f"Pass --pooling to take one of them all the same."
        )
    return str(modes[0])


def _max_length(folder: Path, bert: _Bert) -> int:
    """Tokens that the model reads: what the folder declares, and never more than its table of positions holds."""
    path = folder / "config.json"
    config = read_settings(path, _Config)
    tokenizer = read_settings(folder / "tokenizer_config.json", _TokenizerConfig)
    declared = _limit(bert.max_seq_length) or _limit(tokenizer.model_max_length)
    positions = _limit(config.max_position_embeddings)
    if positions and config.model_type in _OFFSET_POSITIONS:
        # 1 is their padding_idx where config.json names none.
        positions -= (config.pad_token_id or 1) + 1
        if _limit(positions) is None:
            raise CheckpointError(
                str(path),
                f"{config.max_position_embeddings} positions and pad_token_id {config.pad_token_id} leave no room for "
                f"a token",
            )
    return min((limit for limit in (declared, positions) if limit), default=DEFAULT_MAX_LENGTH)


def _limit(value: float | None) -> int | None:
    """A number of tokens; None where there is none, which transformers writes as 1e30."""
    return int(value) if value is not None and 2 < value < MAX_TOKENS else None
