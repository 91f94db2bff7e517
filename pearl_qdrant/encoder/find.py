"""Find a model: by a shipped name, a folder, or a hub id."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path

from pearl_qdrant.encoder.checkpoint import PearlConfig, is_checkpoint, read_config
from pearl_qdrant.errors import ModelNotFoundError

MODELS_DIR = Path(__file__).parent / "models"
"""Where the shipped checkpoints lie, one folder each."""

_HUB_ID = re.compile(r"(?P<repo>[\w-][\w.-]*/[\w-][\w.-]*)(@(?P<revision>[\w./-]+))?")

# No pickle, no code. Of the ONNX forms only the plain one: the others can be several GB.
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
    """Where a model lies.

    Attributes:
        name: As the user would type it, from any folder.
        folder: Its files; in the hub's cache for a hub id.
    """

    name: str
    folder: Path


def list_models(models_dir: Path = MODELS_DIR) -> list[PearlConfig]:
    """The shipped models, by name; reads pearl.json only.

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
    """Find a model's folder; fetches from the hub what its cache does not hold.

    Args:
        name: A shipped name, a folder, or a hub id as `owner/name` or `owner/name@revision`. Pin the revision of a
            hub id: without it the model can change under a collection.
        models_dir: Where the shipped models lie.

    Raises:
        ModelNotFoundError: If there is no such model, or the hub cannot be reached and has not been before.
    """
    shipped = shipped_names(models_dir)
    if name in shipped:
        return FoundModel(name, models_dir / name)
    if name and Path(name).expanduser().is_dir():
        # The whole path: a manifest keeps the name, and is read from elsewhere.
        folder = Path(name).expanduser().resolve()
        return FoundModel(str(folder), folder)
    if match := _HUB_ID.fullmatch(name):
        return FoundModel(name, _fetch(name, match["repo"], match["revision"], shipped))
    near = difflib.get_close_matches(name, shipped, n=3, cutoff=0.5)
    hint = f"Did you mean {' or '.join(near)}?" if near else _shipped_hint(shipped)
    raise ModelNotFoundError(name, f"No model '{name}': not shipped, no folder, and no hub id (owner/name). {hint}")


def _fetch(name: str, repo: str, revision: str | None, shipped: list[str]) -> Path:
    """The hub's files of a model, from its cache where they are there."""
    import httpx
    from huggingface_hub.errors import LocalEntryNotFoundError, RepositoryNotFoundError, RevisionNotFoundError

    try:
        return _snapshot(repo, revision)
    except RevisionNotFoundError as error:
        raise ModelNotFoundError(name, f"Hub model '{repo}' has no revision '{revision}'.") from error
    except RepositoryNotFoundError as error:
        raise ModelNotFoundError(
            name,
            f"No model '{repo}' on the hub, or it is private (then log in with: hf auth login), and no folder of "
            f"that name. {_shipped_hint(shipped)}",
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
    """Fetch what the cache does not hold; without a network, what the cache holds."""
    import httpx
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import OfflineModeIsEnabled

    files = list(_HUB_FILES)
    try:
        return Path(snapshot_download(repo, revision=revision, allow_patterns=files))
    except (OfflineModeIsEnabled, httpx.TransportError):
        # For a commit that an older version cached, it asks the network for the listing, and does not fall back.
        return Path(snapshot_download(repo, revision=revision, allow_patterns=files, local_files_only=True))


def _shipped_hint(shipped: list[str]) -> str:
    return f"Shipped models, which need no network: {', '.join(shipped) or 'none'}."
