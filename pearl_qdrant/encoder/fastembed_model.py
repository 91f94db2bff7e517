"""PEARL models in fastembed: the same ONNX file, the same vectors.

fastembed takes the graph's `embedding` output as it is; the type logits stay unused. A registered model lies in a
folder, so fastembed must be told where: `text_embedding` does both.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pearl_qdrant.encoder.checkpoint import ONNX_FILE, VerifiedCheckpoint, is_checkpoint, open_checkpoint
from pearl_qdrant.encoder.find import MODELS_DIR, find_model
from pearl_qdrant.encoder.runtime.onnx_graph import EMBEDDING
from pearl_qdrant.errors import ModelError
from pearl_qdrant.settings import DEFAULT_MODEL

if TYPE_CHECKING:
    from fastembed import TextEmbedding

# fastembed demands a place to download from; the models that ship have none, and no download takes place.
_NAMESPACE = "pearl-qdrant"


def register_with_fastembed(model: str = DEFAULT_MODEL, *, models_dir: Path = MODELS_DIR) -> str:
    """Make a PEARL checkpoint known to fastembed; doing it again changes nothing.

    Args:
        model: A shipped name, a folder, or a hub id of a PEARL checkpoint.
        models_dir: Where the shipped models lie.

    Returns:
        The name that fastembed knows it by, as "pearl-qdrant/pearl-mini-en".

    Raises:
        ModelError: If it is no PEARL checkpoint, has no ONNX graph, or wants a prefix, which fastembed does not add;
            or if fastembed knows another model of that name and width.
    """
    return _register(_checkpoint(model, models_dir))


def text_embedding(
    model: str = DEFAULT_MODEL, *, threads: int | None = None, models_dir: Path = MODELS_DIR
) -> TextEmbedding:
    """A `TextEmbedding` of fastembed over a PEARL checkpoint, registered if it is not yet.

    Args:
        model: As for `register_with_fastembed`.
        threads: onnxruntime's threads; fastembed's default if None.
        models_dir: Where the shipped models lie.

    Raises:
        ModelError: As for `register_with_fastembed`.
    """
    from fastembed import TextEmbedding

    checkpoint = _checkpoint(model, models_dir)
    return TextEmbedding(_register(checkpoint), threads=threads, specific_model_path=str(checkpoint.folder))


def _checkpoint(model: str, models_dir: Path) -> VerifiedCheckpoint:
    """The checkpoint, if fastembed can run it."""
    found = find_model(model, models_dir=models_dir)
    if not is_checkpoint(found.folder):
        raise ModelError(f"Model '{model}' is no PEARL checkpoint: it has no pearl.json.")
    checkpoint = open_checkpoint(found.folder)
    if checkpoint.onnx_path is None:
        raise ModelError(f"Model '{model}' has no ONNX graph, which is all that fastembed runs.")
    if checkpoint.config.prefix:
        raise ModelError(
            f"Model '{model}' wants the prefix {checkpoint.config.prefix!r} before each name, which fastembed does "
            f"not add: its vectors would differ."
        )
    return checkpoint


def _register(checkpoint: VerifiedCheckpoint) -> str:
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    config = checkpoint.config
    name = f"{_NAMESPACE}/{config.name}"
    known = {model["model"].lower(): model["dim"] for model in TextEmbedding.list_supported_models()}
    if name.lower() in known:
        if known[name.lower()] != config.dim:
            raise ModelError(
                f"fastembed knows a {known[name.lower()]}-dim model '{name}' already, this one has {config.dim}. "
                f"Give it another name in pearl.json."
            )
        return name
    TextEmbedding.add_custom_model(
        model=name,
        pooling=PoolingType.DISABLED,
        normalization=True,
        sources=ModelSource(hf=name),
        dim=config.dim,
        model_file=ONNX_FILE,
        description="PEARL phrase embeddings",
        output_name=EMBEDDING,
    )
    return name
