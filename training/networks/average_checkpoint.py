"""Weight averaging from folder to folder."""

from __future__ import annotations

from pathlib import Path

from pearl_qdrant.encoder.checkpoint import is_checkpoint
from pearl_qdrant.encoder.find import MODELS_DIR
from pearl_qdrant.encoder.plain import read_plain_model
from pearl_qdrant.encoder.runtime.transformer import load_transformer
from pearl_qdrant.errors import ModelError
from training.networks.torch_checkpoint import read_network, write_network
from training.networks.weight_average import average_weights


def average_checkpoint(base: Path, tuned: Path, out: Path, *, ratio: float) -> None:
    """Write `tuned` with its phrase encoder averaged with `base`.

    Args:
        base: The encoder before fine-tuning: a folder of transformers or sentence-transformers, or a checkpoint.
        tuned: A checkpoint folder with weights for torch.
        out: The folder to write.
        ratio: Share of `tuned`, in [0, 1].

    Raises:
        ModelError: If the two are not of one shape.
        CheckpointError: If a folder is broken or has no weights for torch.
        ValueError: If the ratio is out of range, or `out` lies within the package.
    """
    if out.resolve().is_relative_to(MODELS_DIR.resolve()):
        raise ValueError(f"{out} belongs to the package: write to another folder")
    network, config = read_network(tuned)
    original = load_transformer(base if is_checkpoint(base) else read_plain_model(base).folder)
    if not 0 <= ratio <= 1:
        raise ValueError(f"ratio is in [0, 1], not {ratio}")
    try:
        average_weights(original, network, ratio=ratio)
    except ValueError as error:
        raise ModelError(f"{base} and {tuned} cannot be averaged: {error}") from error
    # What was fitted to the scores of other vectors does not hold any more.
    config = config.model_copy(update={"training": {**config.training, "average_ratio": ratio}, "weights_hash": ""})
    write_network(out, network, config, transformer=tuned)
