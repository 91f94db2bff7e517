"""Average a fine-tuned phrase encoder with the one that it started from, against forgetting: `train average`.

Type head and character encoder are not averaged: the original may have neither, and half of a random head is useless.
The fine-tuned head loses a few points on the averaged vectors (`training.head` fits a new one). A head that
was not trained (type_weight 0) fits the averaged vectors better.

Source: PEARL (Chen et al. 2024), section 3.4.

from pearl_qdrant import average_checkpoint

average_checkpoint("all-MiniLM-L6-v2/", "fitted/", "averaged/")
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from pearl_qdrant.encoder.checkpoint import TORCH_FILE, is_checkpoint
from pearl_qdrant.encoder.find_model import MODELS_DIR
from pearl_qdrant.encoder.plain_model import read_plain_model
from pearl_qdrant.encoder.runtime.network import PearlNetwork
from pearl_qdrant.encoder.runtime.transformer import load_transformer
from pearl_qdrant.errors import ModelError, OptionError
from training.networks.checkpoints import phrase_tensors, read_network, write_network
from training.options import AVERAGE_RATIO, StrPath, refuse_overwriting


def average_weights(original: nn.Module, tuned: nn.Module, *, ratio: float) -> None:
    """Set `tuned` to ratio x tuned + (1 - ratio) x original, in place.

    Args:
        original: The phrase encoder before fine-tuning.
        tuned: The phrase encoder after fine-tuning, of the same shape; or its network, of which nothing else changes.
        ratio: In [0, 1]. PEARL: 0.5.

    Raises:
        ValueError: If the two have different tensors.
    """
    before, after = _phrase_encoder(original).state_dict(), _phrase_encoder(tuned).state_dict()
    if before.keys() != after.keys():
        raise ValueError(f"the encoders differ in {sorted(before.keys() ^ after.keys())[:5]}")
    for name, tensor in after.items():
        if tensor.shape != before[name].shape:
            raise ValueError(f"the encoders differ: {name} is {tuple(before[name].shape)} and {tuple(tensor.shape)}")
    with torch.no_grad():
        for name, tensor in after.items():
            if tensor.is_floating_point():
                tensor.lerp_(before[name].to(tensor), 1 - ratio)


def _phrase_encoder(module: nn.Module) -> nn.Module:
    return module.phrase_encoder if isinstance(module, PearlNetwork) else module


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
