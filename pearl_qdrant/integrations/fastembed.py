"""fastembed: the models of this package under their names, from their own files and with the same vectors.

    from pearl_qdrant.integrations.fastembed import register
    register()
    client.query_points("phrases", query=models.Document(text="heart attack", model="pearl-mini"))

`fastembed.TextEmbedding("pearl-mini")` and qdrant-client's `Document` know the name afterwards; nothing is downloaded.
fastembed uses the `embedding` output of the graph unchanged, and ignores the type logits. Needs the extra `fastembed`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from fastembed import TextEmbedding
from fastembed.common.model_description import DenseModelDescription, ModelSource, PoolingType
from fastembed.text.custom_text_embedding import CustomTextEmbedding, PostprocessingConfig

from pearl_qdrant.encoder.checkpoint import ONNX_FILE, is_checkpoint, open_checkpoint
from pearl_qdrant.encoder.loading import find_model
from pearl_qdrant.errors import ModelError
from pearl_qdrant.settings import DEFAULT_MODEL

_OUTPUT = "embedding"  # of the graph; normalised, pooled


class PearlEmbedding(CustomTextEmbedding):
    """A model of fastembed whose files are in a folder of this machine, which is no download to it."""

    SUPPORTED_MODELS: list[DenseModelDescription] = []  # noqa: RUF012 - as the base class declares them
    POSTPROCESSING_MAPPING: dict[str, PostprocessingConfig] = {}  # noqa: RUF012
    FOLDERS: ClassVar[dict[str, Path]] = {}

    def __init__(self, model_name: str, **named: Any) -> None:
        named["specific_model_path"] = named.get("specific_model_path") or str(self.FOLDERS[model_name.lower()])
        super().__init__(model_name, **named)


def register(model: str = DEFAULT_MODEL) -> str:
    """Make a PEARL checkpoint known to fastembed in this process; returns its name there, such as "pearl-mini". Again,
    it does nothing.

    The model is a shipped name, a folder or a hub id. Raises ModelError if it is not a PEARL checkpoint, has no ONNX
    graph, or needs a prefix, which fastembed does not add; or if fastembed knows another model of that name.
    """
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
    key = config.name.lower()
    known = key in {one["model"].lower() for one in TextEmbedding.list_supported_models()}
    if known and PearlEmbedding.FOLDERS.get(key) != folder:
        other = PearlEmbedding.FOLDERS.get(key, "its own")
        raise ModelError(
            f"fastembed already has a model '{config.name}' ({other}). Give this one another name in pearl.json."
        )
    if not known:
        PearlEmbedding.FOLDERS[key] = folder
        PearlEmbedding.add_model(
            DenseModelDescription(
                model=config.name,
                sources=ModelSource(hf=f"pearl-qdrant/{config.name}"),  # one is demanded; nothing is fetched from it
                dim=config.dim,
                model_file=ONNX_FILE,
                description="Names and phrases, by meaning, with PEARL",
                license="apache-2.0",
                size_in_GB=checkpoint.onnx_path.stat().st_size / 1e9,
            ),
            pooling=PoolingType.DISABLED,
            normalization=True,
            output_name=_OUTPUT,
        )
    if PearlEmbedding not in TextEmbedding.EMBEDDINGS_REGISTRY:
        TextEmbedding.EMBEDDINGS_REGISTRY.append(PearlEmbedding)
    return config.name


def text_embedding(model: str = DEFAULT_MODEL, *, threads: int | None = None) -> TextEmbedding:
    """A `TextEmbedding` of fastembed for a PEARL checkpoint, which it registers first; errors as of `register`."""
    return TextEmbedding(register(model), threads=threads)
