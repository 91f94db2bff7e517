"""Runs PEARL models in fastembed, from the same ONNX file and with the same vectors.

fastembed uses the `embedding` output of the graph unchanged, and ignores the type logits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pearl_qdrant.encoder.checkpoint import ONNX_FILE, is_checkpoint, open_checkpoint
from pearl_qdrant.encoder.loading import find_model
from pearl_qdrant.encoder.runtime.onnx_runtime import EMBEDDING
from pearl_qdrant.errors import ModelError
from pearl_qdrant.settings import DEFAULT_MODEL

if TYPE_CHECKING:
    from fastembed import TextEmbedding


def text_embedding(model: str = DEFAULT_MODEL, *, threads: int | None = None) -> TextEmbedding:
    """A `TextEmbedding` of fastembed for a PEARL checkpoint; registers it first, as "pearl-qdrant/pearl-mini".

    The model is a shipped name, a folder or a hub id. Raises ModelError if it is not a PEARL checkpoint, has no ONNX
    graph, or needs a prefix, which fastembed does not add; or if fastembed knows a model of that name of another width.
    """
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    folder = find_model(model).folder
    if not is_checkpoint(folder):
        raise ModelError(f"Model '{model}' is not a PEARL checkpoint: it has no pearl.json.")
    checkpoint = open_checkpoint(folder)
    config = checkpoint.config
    if checkpoint.onnx_path is None:
        raise ModelError(f"Model '{model}' has no ONNX graph, and fastembed runs nothing else.")
    if config.prefix:
        raise ModelError(
            f"Model '{model}' needs the prefix {config.prefix!r} before each name, which fastembed does not add: its "
            f"vectors would differ."
        )
    name = f"pearl-qdrant/{config.name}"  # as of the hub, from where nothing is fetched, since the folder is given
    known = {one["model"].lower(): one["dim"] for one in TextEmbedding.list_supported_models()}
    if known.get(name.lower(), config.dim) != config.dim:
        raise ModelError(
            f"fastembed already has a {known[name.lower()]}-dim model '{name}', this one has {config.dim} dims. Give "
            f"it another name in pearl.json."
        )
    if name.lower() not in known:
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
    return TextEmbedding(name, threads=threads, specific_model_path=str(folder))
