"""Loads an encoder by the name of its model, on the runtime that suits the machine.

Torch is imported only if a GPU is requested or its driver is present.
"""

from __future__ import annotations

import difflib
import importlib.util
import logging
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from pearl_qdrant.encoder.batching import NameTokenizer, first_line
from pearl_qdrant.encoder.checkpoint import (
    ONNX_FILE,
    TORCH_FILE,
    PearlConfig,
    VerifiedCheckpoint,
    is_checkpoint,
    open_checkpoint,
    read_config,
)
from pearl_qdrant.encoder.plain_model import read_plain_model
from pearl_qdrant.encoder.protocol import FASTEMBED, BoolArray, Encoder, ModelInfo
from pearl_qdrant.encoder.write_checkpoint import verify
from pearl_qdrant.errors import DeviceError, ModelError, ModelNotFoundError
from pearl_qdrant.installing import install_command
from pearl_qdrant.settings import DEFAULT_DEVICE, DEFAULT_MODEL

Precision = Literal["auto", "fp32", "bf16"]
Runtime = Literal["auto", "onnx", "torch"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _LoadOptions:
    """Checked options of `load_encoder`."""

    device: str
    pooling: str | None
    prefix: str | None
    threads: int | None
    runtime: Runtime
    precision: Precision

    def __post_init__(self) -> None:
        check_device(self.device)
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"threads must be at least 1, not {self.threads}")
        for name, given, allowed in (
            ("pooling", "mean" if self.pooling is None else self.pooling, ("mean", "cls")),
            ("runtime", self.runtime, get_args(Runtime)),
            ("precision", self.precision, get_args(Precision)),
        ):
            if given not in allowed:
                raise ValueError(f"{name} is {', '.join(allowed[:-1])} or {allowed[-1]}, not {given!r}")


def load_encoder(
    model: str = DEFAULT_MODEL,
    *,
    device: str = DEFAULT_DEVICE,
    pooling: str | None = None,
    prefix: str | None = None,
    threads: int | None = None,
    runtime: Runtime = "auto",
    precision: Precision = "auto",
) -> Encoder:
    """Load a model. Raises ModelNotFoundError if the model does not exist; CheckpointError if one of its files is
    missing, truncated, changed, or belongs to another model; DeviceError if the device does not exist, or torch is not
    installed for it; ModelError if the model cannot run with these options; ValueError if an argument has an invalid
    value.

    Args:
        model: A shipped name, a folder, a hub id such as `owner/name[@revision]`, or `fastembed:NAME`.
        device: "cpu", "cuda", "cuda:N", or "auto": a GPU if there is one and torch and weights for it are available.
        pooling: "mean" or "cls"; replaces the pooling of a plain encoder's folder. A PEARL checkpoint has its own.
        prefix: Text put before each name; replaces the model's own ("query: " for E5).
        threads: Number of batches that ONNX runs at once, by default one per core. For torch on a CPU it sets the
            threads of torch, for the whole process.
        runtime: "onnx" or "torch"; "auto" is ONNX on a CPU if the model has it, else torch.
        precision: Precision of torch: "bf16", "fp32", or "auto" for the faster one
            (see `torch_runtime.encoding_precision`).
    """
    options = _LoadOptions(device, pooling, prefix, threads, runtime, precision)
    if model.startswith(FASTEMBED):
        return _load_fastembed(model, options)
    found = find_model(model)
    return _load_pearl(found, options) if is_checkpoint(found.folder) else _load_plain(found, options)


def _load_fastembed(model: str, options: _LoadOptions) -> Encoder:
    """Load a model of fastembed."""
    if options.device.startswith("cuda"):
        raise DeviceError(options.device, f"Model '{model}' runs on the CPU alone. Use device cpu or auto.")
    if options.runtime == "torch":
        raise ModelError(f"Model '{model}' has no weights for torch. Use runtime auto or onnx.")
    if importlib.util.find_spec("fastembed") is None:
        raise ModelError(f"Model '{model}' needs fastembed, which is not installed: {install_command('fastembed')}")
    from pearl_qdrant.encoder.runtime.fastembed_runtime import fastembed_encoder

    name = model.removeprefix(FASTEMBED)
    return fastembed_encoder(name, pooling=options.pooling, prefix=options.prefix, threads=options.threads)


def _load_pearl(found: FoundModel, options: _LoadOptions) -> Encoder:
    """Load a PEARL checkpoint."""
    config = read_config(found.folder)
    if options.pooling not in (None, config.pooling):
        raise ModelError(
            f"Model '{found.name}' was trained with {config.pooling} pooling, which cannot be changed to "
            f"{options.pooling}. Omit the option pooling."
        )
    runtime, device = plan_device(
        found.name, options, has_onnx=ONNX_FILE in config.files, has_torch=TORCH_FILE in config.files
    )
    other_runtime = [name for name in config.files if name.startswith("onnx/")]
    checkpoint = open_checkpoint(found.folder, skip=other_runtime if runtime == "torch" else [TORCH_FILE])
    # A head without a single training example would only predict noise.
    has_head = any(config.label_counts)
    never_seen = np.array(config.label_counts) == 0 if has_head else None
    prefix = config.prefix if options.prefix is None else options.prefix
    precision = "int8" if config.precision.startswith("int8") else config.precision
    identity = (found.name, config.weights_hash, config.dim, config.pooling, prefix, has_head)
    info = ModelInfo(*identity, device=device, precision=precision, runtime=runtime)
    tokenizer = NameTokenizer(found.folder, max_length=config.max_length, prefix=prefix)
    return _encoder(found.folder, found.folder / ONNX_FILE, tokenizer, info, options, checkpoint, never_seen)


def _load_plain(found: FoundModel, options: _LoadOptions) -> Encoder:
    """Load an encoder without a type head from a sentence-transformers or transformers folder."""
    plain = read_plain_model(found.folder, pooling=options.pooling, prefix=options.prefix)
    runtime, device = plan_device(
        found.name, options, has_onnx=plain.onnx_path is not None, has_torch=bool(plain.safetensors)
    )
    logger.info("Model '%s' has no type head: names get vectors, but no phrase types.", found.name)
    # The width is set when the weights are loaded.
    identity = (found.name, plain.weights_hash(), 0, plain.pooling, plain.prefix, False)
    info = ModelInfo(*identity, device=device, precision="fp32", runtime=runtime)
    tokenizer = NameTokenizer(plain.folder, max_length=plain.max_length, prefix=plain.prefix, lowercase=plain.lowercase)
    return _encoder(plain.folder, plain.onnx_path, tokenizer, info, options)


def _encoder(
    folder: Path,
    onnx_path: Path | None,
    tokenizer: NameTokenizer,
    info: ModelInfo,
    options: _LoadOptions,
    checkpoint: VerifiedCheckpoint | None = None,
    never_seen: BoolArray | None = None,
) -> Encoder:
    """Load the weights on the runtime that was planned."""
    how: dict[str, Any] = {"info": info, "never_seen": never_seen, "threads": options.threads}
    if info.runtime == "torch":
        from pearl_qdrant.encoder.runtime.torch_runtime import torch_encoder

        return torch_encoder(folder, tokenizer, checkpoint=checkpoint, precision=options.precision, **how)
    from pearl_qdrant.encoder.runtime.onnx_runtime import onnx_encoder

    assert onnx_path is not None
    return onnx_encoder(onnx_path, tokenizer, **how)


def check_device(device: str) -> None:
    """Check the name of a device. Raises ValueError if it is not auto, cpu, cuda or cuda:N."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", device):
        raise ValueError(f"device is auto, cpu, cuda or cuda:N, not {device!r}")


def plan_device(name: str, options: _LoadOptions, *, has_onnx: bool, has_torch: bool) -> tuple[str, str]:
    """The runtime, "onnx" or "torch", and the device for a model. Raises DeviceError if the device does not exist, or
    torch is not installed for it; ModelError if the model has no weights for that runtime, or torch is not installed.
    """
    device, runtime = options.device, options.runtime
    if device.startswith("cuda"):
        wanted = f"Device '{device}' was requested, but"
        if runtime == "onnx":
            raise DeviceError(device, f"{wanted} ONNX graphs run only on the CPU. Use runtime torch.")
        if not torch_is_installed():
            raise DeviceError(device, f"{wanted} torch is not installed: {install_command('torch')}")
        from pearl_qdrant.encoder.runtime.torch_runtime import resolve_cuda

        resolved = resolve_cuda(device)
        if not has_torch:
            raise ModelError(_no_torch_weights(name))
        return "torch", resolved
    if device == "auto" and runtime != "onnx" and (gpu := _free_gpu(name, has_torch)):
        return "torch", gpu
    if has_onnx and runtime != "torch":
        return "onnx", "cpu"
    if runtime == "onnx":
        raise ModelError(f"Model '{name}' has no ONNX graph. Use runtime auto or torch.")
    if not has_torch:
        raise ModelError(_no_torch_weights(name))
    if not torch_is_installed():
        raise ModelError(f"Model '{name}' has no ONNX graph, and torch is not installed: {install_command('torch')}")
    return "torch", "cpu"


def torch_is_installed() -> bool:
    """Whether torch and transformers can be imported; imports neither."""
    return all(importlib.util.find_spec(name) is not None for name in ("torch", "transformers"))


def gpu_driver_is_present() -> bool:
    """Whether an NVIDIA driver is loaded; checks for files, because importing torch takes a second."""
    if sys.platform == "win32":
        return Path(r"C:\Windows\System32\nvcuda.dll").exists()
    return any(Path(path).exists() for path in ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg"))


def _free_gpu(name: str, has_torch: bool) -> str | None:
    """A GPU for `auto`; None, with a log message, if something is missing that a present GPU needs."""
    if not gpu_driver_is_present():
        return None
    if not torch_is_installed():
        logger.info(
            "There is a GPU, but torch is not installed: %s runs on the CPU. %s", name, install_command("torch")
        )
    elif not has_torch:
        logger.info("There is a GPU, but %s", _no_torch_weights(name))
    else:
        from pearl_qdrant.encoder.runtime.torch_runtime import resolve_cuda

        try:
            return resolve_cuda("cuda")
        except DeviceError as error:
            logger.info("There is a GPU driver, but %s", error)
    return None


def _no_torch_weights(name: str) -> str:
    return f"model '{name}' has no weights for torch. Rebuild them with: pearl-qdrant models export {name} DIR"


MODELS_DIR = Path(__file__).parent / "models"  # folder of the shipped checkpoints, one subfolder each
_HUB_ID = re.compile(r"(?P<repo>[\w-][\w.-]*/[\w-][\w.-]*)(@(?P<revision>[\w./-]+))?")

# No pickles and no code. Only the plain ONNX file: the other forms can have several GB.
_HUB_FILES = (
    "*.json tokenizer* model*.safetensors pearl.safetensors 0_Transformer/model*.safetensors onnx/model.onnx"
    " onnx/model.onnx_data onnx/model.onnx.data"
).split()


class FoundModel(NamedTuple):
    """The name to find a model by, from any working directory, and its folder; for a hub id in the hub's cache."""

    name: str
    folder: Path


def list_models(models_dir: Path = MODELS_DIR) -> list[PearlConfig]:
    """The shipped models, sorted by name, by their pearl.json. Raises CheckpointError if one of them is broken."""
    return [read_config(models_dir / name) for name in shipped_names(models_dir)]


def shipped_names(models_dir: Path = MODELS_DIR) -> list[str]:
    """Names of the shipped models, sorted."""
    return sorted(folder.name for folder in models_dir.glob("*") if is_checkpoint(folder))


def find_model(name: str, *, models_dir: Path = MODELS_DIR) -> FoundModel:
    """Find the folder of a model; downloads files of the hub that are not in its cache. Raises ModelNotFoundError if
    the model does not exist, or is not in the cache and the hub cannot be reached.

    It is a shipped name, a folder, or a hub id such as `owner/name` or `owner/name@revision`. Pin the revision of a hub
    id, because without it the model can change while a collection uses it.
    """
    shipped = shipped_names(models_dir)
    if name in shipped:
        return FoundModel(name, models_dir / name)
    if name and Path(name).expanduser().is_dir():
        # The absolute path, because a manifest stores the name and may be read from another working directory.
        folder = Path(name).expanduser().resolve()
        return FoundModel(str(folder), folder)
    if match := _HUB_ID.fullmatch(name):
        return FoundModel(name, _fetch(name, match["repo"], match["revision"], shipped))
    near = difflib.get_close_matches(name, shipped, n=3, cutoff=0.5)
    hint = f"Did you mean {' or '.join(near)}?" if near else _shipped_hint(shipped)
    raise ModelNotFoundError(name, f"No model '{name}': not shipped, no folder, and no hub id (owner/name). {hint}")


def _fetch(name: str, repo: str, revision: str | None, shipped: list[str]) -> Path:
    """Download the files of a model from the hub, or take them from its cache."""
    import httpx
    from huggingface_hub.errors import LocalEntryNotFoundError, RepositoryNotFoundError, RevisionNotFoundError

    try:
        return _snapshot(repo, revision)
    except RevisionNotFoundError as error:
        raise ModelNotFoundError(name, f"Hub model '{repo}' has no revision '{revision}'.") from error
    except (OSError, ValueError, httpx.HTTPError) as error:  # refused, interrupted, disk full, malformed id
        message = f"Hub model '{name}' could not be fetched ({first_line(error)})."
        if isinstance(error, RepositoryNotFoundError):
            message = (
                f"No model '{repo}' on the hub, or it is private (then log in with: hf auth login), and there is no "
                f"folder of that name."
            )
        elif isinstance(error, LocalEntryNotFoundError):
            message = (
                f"Hub model '{name}' is not in the local cache and the hub cannot be reached. Connect once, or copy "
                f"the model's folder here and name the folder."
            )
        raise ModelNotFoundError(name, f"{message} {_shipped_hint(shipped)}") from error


def _snapshot(repo: str, revision: str | None) -> Path:
    """The folder of a hub model: complete its cache, or use the cache alone without a network."""
    import httpx
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import OfflineModeIsEnabled

    try:
        return Path(snapshot_download(repo, revision=revision, allow_patterns=_HUB_FILES))
    except (OfflineModeIsEnabled, httpx.TransportError):
        # For a commit that an older version of the library cached, it needs the network for a listing, and does not
        # fall back to the cache by itself.
        return Path(snapshot_download(repo, revision=revision, allow_patterns=_HUB_FILES, local_files_only=True))


def _shipped_hint(shipped: list[str]) -> str:
    return f"Shipped models, which need no network: {', '.join(shipped) or 'none'}."


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """The facts about a model, as loaded on the CPU; of a checkpoint also the bytes of each file, and its training."""

    info: ModelInfo
    files: Mapping[str, int] | None = None
    training: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return all facts as one JSON object; `files` and `training` only for a PEARL checkpoint."""
        facts = asdict(self.info)
        if self.files is not None:
            facts |= {"files": dict(self.files), "training": self.training}
        return facts


def describe_model(model: str) -> ModelDescription:
    """A model's facts, its files verified. Raises ModelNotFoundError, or CheckpointError if a file is damaged."""
    folder = None if model.startswith(FASTEMBED) else find_model(model).folder
    config = verify(folder).config if folder is not None and is_checkpoint(folder) else None
    info = load_encoder(model, device="cpu").info
    if config is None:
        return ModelDescription(info)
    return ModelDescription(info, {name: one.bytes for name, one in config.files.items()}, config.training)
