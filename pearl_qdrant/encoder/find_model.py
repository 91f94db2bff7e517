"""Finds the folder of a model, by shipped name, folder or hub id."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path

from pearl_qdrant.encoder.checkpoint import PearlConfig, is_checkpoint, read_config
from pearl_qdrant.errors import ModelNotFoundError

MODELS_DIR = Path(__file__).parent / "models"
"""Folder of the shipped checkpoints, one subfolder each."""

_HUB_ID = re.compile(r"(?P<repo>[\w-][\w.-]*/[\w-][\w.-]*)(@(?P<revision>[\w./-]+))?")

# No pickles and no code. Only the plain ONNX file: the other forms can have several GB.
_HUB_FILES = (
    "*.json",
    "tokenizer*",
    "model*.safetensors",
    "pearl.safetensors",
    "0_Transformer/model*.safetensors",
    "onnx/model.onnx",
    "onnx/model.onnx_data",
    "onnx/model.onnx.data",
)


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model and its folder.

    Attributes:
        name: The name to find it by, from any working directory.
        folder: Its files; for a hub id in the hub's cache.
    """

    name: str
    folder: Path


def list_models(models_dir: Path = MODELS_DIR) -> list[PearlConfig]:
    """The shipped models, sorted by name; reads only their pearl.json.

    Raises:
        CheckpointError: If one of them is broken.
    """
    return [read_config(models_dir / name) for name in shipped_names(models_dir)]


def shipped_names(models_dir: Path = MODELS_DIR) -> list[str]:
    """Names of the shipped models, sorted."""
    if not models_dir.is_dir():
        return []
    return sorted(folder.name for folder in models_dir.iterdir() if is_checkpoint(folder))


def find_model(name: str, *, models_dir: Path = MODELS_DIR) -> FoundModel:
    """Find the folder of a model; downloads files of the hub that are not in its cache. Raises ModelNotFoundError if
    the model does not exist, or is not in the cache and the hub cannot be reached.

    Args:
        name: A shipped name, a folder, or a hub id such as `owner/name` or `owner/name@revision`. Pin the revision of a
            hub id, because without it the model can change while a collection uses it.
        models_dir: Folder of the shipped models.
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
    except RepositoryNotFoundError as error:
        raise ModelNotFoundError(
            name,
            f"No model '{repo}' on the hub, or it is private (then log in with: hf auth login), and there is no "
            f"folder of that name. {_shipped_hint(shipped)}",
        ) from error
    except LocalEntryNotFoundError as error:
        raise ModelNotFoundError(
            name,
            f"Hub model '{name}' is not in the local cache and the hub cannot be reached. Connect once, or copy "
            f"the model's folder here and name the folder. {_shipped_hint(shipped)}",
        ) from error
    except (OSError, ValueError, httpx.HTTPError) as error:  # refused, interrupted, disk full, malformed id
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ModelNotFoundError(
            name, f"Hub model '{name}' could not be fetched ({reason}). {_shipped_hint(shipped)}"
        ) from error


def _snapshot(repo: str, revision: str | None) -> Path:
    """The folder of a hub model: complete its cache, or use the cache alone without a network."""
    import httpx
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import OfflineModeIsEnabled

    files = list(_HUB_FILES)
    try:
        return Path(snapshot_download(repo, revision=revision, allow_patterns=files))
    except (OfflineModeIsEnabled, httpx.TransportError):
        # For a commit that an older version of the library cached, it needs the network for a listing, and does not
        # fall back to the cache by itself.
        return Path(snapshot_download(repo, revision=revision, allow_patterns=files, local_files_only=True))


def _shipped_hint(shipped: list[str]) -> str:
    return f"Shipped models, which need no network: {', '.join(shipped) or 'none'}."
