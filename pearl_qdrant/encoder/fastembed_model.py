"""Runs PEARL models in fastembed, from the same ONNX file and with the same vectors.

fastembed uses the `embedding` output of the graph unchanged, and ignores the type logits. `text_embedding` registers a
model and passes its folder to fastembed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pearl_qdrant.encoder.checkpoint import ONNX_FILE, VerifiedCheckpoint, is_checkpoint, open_checkpoint
from pearl_qdrant.encoder.loading import find_model
from pearl_qdrant.encoder.runtime.onnx_runtime import EMBEDDING
from pearl_qdrant.errors import ModelError
from pearl_qdrant.settings import DEFAULT_MODEL

if TYPE_CHECKING:
    from fastembed import TextEmbedding


def register_with_fastembed(model: str = DEFAULT_MODEL) -> str:
    """Register a PEARL checkpoint with fastembed; repeated calls change nothing. Returns the name of the model in
    fastembed, such as "pearl-qdrant/pearl-mini". Raises ModelError if the model is not a PEARL checkpoint, has no
    ONNX graph, or needs a prefix, which fastembed does not add; or if fastembed knows another model of that name with
    another width.

    Args:
        model: A shipped name, a folder, or a hub id of a PEARL checkpoint.
    """
    return _register(_checkpoint(model))


def text_embedding(model: str = DEFAULT_MODEL, *, threads: int | None = None) -> TextEmbedding:
    """A `TextEmbedding` of fastembed for a PEARL checkpoint; registers it if necessary, with the same errors.

    Args:
        threads: Threads of onnxruntime; None for the default of fastembed.
    """
    from fastembed import TextEmbedding

    checkpoint = _checkpoint(model)
    return TextEmbedding(_register(checkpoint), threads=threads, specific_model_path=str(checkpoint.folder))


def _checkpoint(model: str) -> VerifiedCheckpoint:
    """The checkpoint of a model that fastembed can run."""
    found = find_model(model)
    if not is_checkpoint(found.folder):
        raise ModelError(f"Model '{model}' is not a PEARL checkpoint: it has no pearl.json.")
    checkpoint = open_checkpoint(found.folder)
    if checkpoint.onnx_path is None:
        raise ModelError(f"Model '{model}' has no ONNX graph, and fastembed runs nothing else.")
    if checkpoint.config.prefix:
        raise ModelError(
            f"Model '{model}' needs the prefix {checkpoint.config.prefix!r} before each name, which fastembed does "
            f"not add: its vectors would differ."
        )
    return checkpoint


def _register(checkpoint: VerifiedCheckpoint) -> str:
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    config = checkpoint.config
    name = f"pearl-qdrant/{config.name}"  # as of the hub, from where nothing is fetched, since the folder is given
    known = {model["model"].lower(): model["dim"] for model in TextEmbedding.list_supported_models()}
    if name.lower() in known:
        if known[name.lower()] != config.dim:
            raise ModelError(
                f"fastembed already has a {known[name.lower()]}-dim model '{name}', this one has {config.dim} dims. "
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
