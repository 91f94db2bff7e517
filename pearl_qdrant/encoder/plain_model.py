"""Reads plain encoders: any sentence-transformers or transformers folder, without either library.

It reads modules.json (folder of the transformer), 1_Pooling/config.json, sentence_bert_config.json (maximum length,
lower-casing), config_sentence_transformers.json (default prompt), tokenizer_config.json and config.json. It refuses
modules other than Transformer, Pooling (mean or cls) and Normalize, because vectors without them would be different.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import BaseModel, ConfigDict

from pearl_qdrant.encoder.checkpoint import MAX_TOKENS, combined_sha256, file_sha256
from pearl_qdrant.encoder.json_files import load_json, read_settings, validated
from pearl_qdrant.errors import CheckpointError, ModelError

_ONNX_FILES = ("onnx/model.onnx", "model.onnx")

# Families whose first position is not 0: the first padding_idx + 1 positions of their table are unused.
_OFFSET_POSITIONS = ("roberta", "xlm-roberta", "camembert", "mpnet", "xlm-roberta-xl", "xmod", "longformer")


@dataclass(frozen=True, slots=True)
class PlainModel:
    """The settings to run a plain encoder with, its ONNX graph, and its weights for torch."""

    folder: Path
    pooling: str
    prefix: str
    max_length: int
    lowercase: bool
    onnx_path: Path | None
    safetensors: tuple[Path, ...]

    def weights_hash(self) -> str:
        """Hash of the safetensors, or of the ONNX graph if there are none; the same for both runtimes."""
        if len(self.safetensors) == 1:
            return "sha256:" + file_sha256(self.safetensors[0])
        if self.safetensors:
            return combined_sha256({path.name: file_sha256(path) for path in self.safetensors})
        assert self.onnx_path is not None
        graphs = [path for path in sorted(self.onnx_path.parent.glob(self.onnx_path.name + "*")) if path.is_file()]
        return combined_sha256({path.name: file_sha256(path) for path in graphs})


class _Settings(BaseModel):
    """What is read from the files of a folder; None if a file lacks it, and other fields as they are."""

    model_config = ConfigDict(frozen=True, extra="allow")

    # config.json
    model_type: str | None = None
    max_position_embeddings: int | None = None
    pad_token_id: int | None = None
    # sentence_bert_config.json, tokenizer_config.json
    max_seq_length: int | float | None = None
    do_lower_case: bool | None = None
    model_max_length: int | float | None = None
    # config_sentence_transformers.json
    prompts: dict[str, str | None] | None = None
    default_prompt_name: str | None = None
    # 1_Pooling/config.json; old versions have `pooling_mode_cls_token` and similar fields
    include_prompt: bool | None = None
    pooling_mode: str | list[str] | None = None


class _Module(BaseModel):
    type: str
    path: str


class _Modules(BaseModel):
    modules: list[_Module]


def read_plain_model(root: Path, *, pooling: str | None = None, prefix: str | None = None) -> PlainModel:
    """Read the settings of a sentence-transformers or transformers folder. Raises CheckpointError if a file is missing
    or broken, or there are no weights in a safe format; ModelError if the model needs a step that is not supported.

    `pooling` and `prefix` replace the pooling and the default prompt of the folder.
    """
    folder, pooling_folder = _modules(root)
    if not (folder / "config.json").is_file():
        raise CheckpointError(str(folder), "not a model folder: it has neither pearl.json nor config.json")
    declared = read_settings(pooling_folder / "config.json", _Settings) if pooling_folder else _Settings()
    prompts = read_settings(root / "config_sentence_transformers.json", _Settings)
    if prefix is None:
        prefix = (prompts.prompts or {}).get(prompts.default_prompt_name or "") or ""
    if prefix and declared.include_prompt is False:
        raise ModelError(f"{root}: excluding the prompt from the pooling is not supported. Set an empty prefix")
    bert = read_settings(folder / "sentence_bert_config.json", _Settings)
    onnx = [path for path in (root / name for name in _ONNX_FILES) if path.is_file()]
    weights = tuple(sorted(folder.glob("model*.safetensors")))
    if not onnx and not weights:
        raise CheckpointError(
            str(folder),
            "has no model.safetensors and no onnx/model.onnx. Pickled weights (.bin, .pt) are not loaded, because "
            "they can run code; save the model again with save_pretrained of transformers",
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
    """Folders of the transformer and of its pooling by modules.json; without it, the folder itself and None."""
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
            f"Normalize are supported, and vectors without the others would be wrong. Choose another model."
        )
    return folders["Transformer"], folders.get("Pooling")


def _pooling(root: Path, declared: _Settings) -> str:
    """The pooling by 1_Pooling/config.json, old or new; mean without that file, as in sentence-transformers."""
    modes = declared.pooling_mode
    if modes is None:
        names = {"cls_token": "cls", "mean_tokens": "mean"}
        extra: dict[str, Any] = declared.model_extra or {}
        active = [key for key, value in extra.items() if key.startswith("pooling_mode_") and value is True]
        modes = [names.get(mode, mode) for mode in (key.removeprefix("pooling_mode_") for key in active)]
    modes = [modes] if isinstance(modes, str) else modes or ["mean"]
    if modes not in (["mean"], ["cls"]):
        raise ModelError(
            f"{root}: its pooling is {' + '.join(map(str, modes))}; supported are mean and cls. "
            f"Set the option pooling to use one of them anyway."
        )
    return str(modes[0])


def _max_length(folder: Path, bert: _Settings) -> int:
    """Maximum number of tokens: the declared one, limited by the size of the table of positions."""
    path = folder / "config.json"
    config = read_settings(path, _Settings)
    tokenizer = read_settings(folder / "tokenizer_config.json", _Settings)
    declared = _limit(bert.max_seq_length) or _limit(tokenizer.model_max_length)
    positions = _limit(config.max_position_embeddings)
    if positions and config.model_type in _OFFSET_POSITIONS:
        # Their padding_idx is 1 if config.json has none.
        positions -= (config.pad_token_id or 1) + 1
        if _limit(positions) is None:
            raise CheckpointError(
                str(path),
                f"{config.max_position_embeddings} positions and pad_token_id {config.pad_token_id} leave no room for "
                f"a token",
            )
    return min((limit for limit in (declared, positions) if limit), default=512)


def _limit(value: float | None) -> int | None:
    """A limit of tokens; None for no limit, which transformers writes as 1e30."""
    return int(value) if value is not None and 2 < value < MAX_TOKENS else None
