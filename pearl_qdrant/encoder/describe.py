"""Load a model, verify its files, and return its facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pearl_qdrant.encoder.checkpoint import is_checkpoint
from pearl_qdrant.encoder.find_model import find_model
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import ModelInfo
from pearl_qdrant.encoder.verify import verify


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """The facts about a model.

    Attributes:
        info: Name, width, runtime and hash, as loaded on the CPU.
        files: Size in bytes of each file; None for a plain encoder.
        training: How it was trained, as recorded in pearl.json; None for a plain encoder.
    """

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
    """Load a model, verify its files, and return its facts.

    Args:
        model: A shipped name, a folder, or a hub id as `owner/name[@revision]`.

    Raises:
        ModelNotFoundError: If there is no such model.
        CheckpointError: If a file is missing or damaged.
    """
    folder = find_model(model).folder
    if not is_checkpoint(folder):
        return ModelDescription(load_encoder(model, device="cpu").info)
    config = verify(folder).config
    files = {name: record.bytes for name, record in config.files.items()}
    return ModelDescription(load_encoder(model, device="cpu").info, files, config.training)
