"""Weight averaging in one call: what `pearl-qdrant train average` does.

from pearl_qdrant import average_checkpoint

average_checkpoint("all-MiniLM-L6-v2/", "fitted/", "averaged/")
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from pearl_qdrant.encoder.checkpoint import TORCH_FILE, is_checkpoint
from pearl_qdrant.encoder.find_model import MODELS_DIR
from pearl_qdrant.encoder.plain_model import read_plain_model
from pearl_qdrant.encoder.runtime.transformer import load_transformer
from pearl_qdrant.errors import ModelError, OptionError
from training.defaults import AVERAGE_RATIO
from training.networks.torch_checkpoint import phrase_tensors, read_network, write_network
from training.networks.weight_average import average_weights
from training.paths import StrPath, refuse_overwriting


def average_checkpoint(base_model: StrPath, tuned: StrPath, out: StrPath, *, ratio: float = AVERAGE_RATIO) -> None:
    """Write `tuned` with its phrase encoder averaged with that of `base_model`.

    Args:
        base_model: The encoder before fine-tuning: a folder of transformers or sentence-transformers, or a checkpoint.
        tuned: A checkpoint folder with weights for torch; or a plain encoder, as `train ulr` writes it, which gives a
            plain encoder.
        out: The folder to write.
        ratio: Share of `tuned`, in [0, 1].

    Raises:
        OptionError: If `out` is an input or lies within the package.
        ModelError: If the two encoders do not have the same shape.
        CheckpointError: If a folder is broken or has no weights for torch.
        ValueError: If the ratio is out of range.
    """
    refuse_overwriting(out, base_model, tuned)
    base, target = Path(base_model), Path(out)
    if target.resolve().is_relative_to(MODELS_DIR.resolve()):
        raise OptionError("out", f"{out} belongs to the package. Write to another folder.")
    is_plain = not is_checkpoint(Path(tuned)) and (Path(tuned) / TORCH_FILE).is_file()
    if not is_plain:
        network, config = read_network(Path(tuned))
    after = load_transformer(Path(tuned)) if is_plain else network.phrase_encoder
    original = load_transformer(base if is_checkpoint(base) else read_plain_model(base).folder)
    if not 0 <= ratio <= 1:
        raise ValueError(f"ratio must be in [0, 1], not {ratio}")
    try:
        average_weights(original, after, ratio=ratio)
    except ValueError as error:
        raise ModelError(f"{base} and {tuned} cannot be averaged: {error}") from error
    if is_plain:
        _write_plain(target, after, Path(tuned))
        return
    # Anything fitted to the vectors before the average is no longer valid, so the hash of the weights is removed.
    config = config.model_copy(update={"training": {**config.training, "average_ratio": ratio}, "weights_hash": ""})
    write_network(target, network, config, transformer=Path(tuned))


def _write_plain(folder: Path, encoder: Any, tuned: Path) -> None:
    """Write the encoder with all else that is in the folder `tuned`, such as an MLM head, but no ONNX graph of it."""
    prefix = f"{encoder.base_model_prefix}."
    averaged = phrase_tensors(encoder)
    tensors = {
        name: averaged.get(name.removeprefix(prefix), tensor) for name, tensor in load_file(tuned / TORCH_FILE).items()
    }
    others = shutil.ignore_patterns("training", TORCH_FILE, "*.bin", "*.onnx", "onnx", "openvino")
    shutil.copytree(tuned, folder, ignore=others, dirs_exist_ok=True)
    part = folder / f"{TORCH_FILE}.part"
    save_file(tensors, part, metadata={"format": "pt"})
    part.replace(folder / TORCH_FILE)
