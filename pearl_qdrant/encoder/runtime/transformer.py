"""Loads the transformer of a folder with the library transformers."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pearl_qdrant.encoder.batching import first_line
from pearl_qdrant.errors import CheckpointError, ModelError

_MAX_LAYERS = 1000
"""Encoders have up to 48 layers. A damaged config with more would build them all before any weight is read."""


def load_transformer(folder: Path) -> nn.Module:
    """Load the transformer of a folder, in float32 on the CPU, without the pooler that some models have. Raises
    CheckpointError if weights are missing (they would be random) or do not match; ModelError if the model has a
    decoder.

    Args:
        folder: Folder with config.json and safetensors. Pickled weights and code in it are ignored.
    """
    from transformers import AutoConfig, AutoModel

    try:
        with _quiet_transformers():
            config: Any = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
            _check_config(folder, config)
            model, report = AutoModel.from_pretrained(
                folder,
                config=config,
                use_safetensors=True,
                trust_remote_code=False,
                local_files_only=True,
                dtype=torch.float32,
                output_loading_info=True,
            )
    except ModelError:
        raise
    except Exception as error:  # a damaged file can raise almost anything in transformers and safetensors
        reason = first_line(error)
        if "ignore_mismatched_sizes" in reason:  # the names of the tensors are in a report that is printed
            reason = "config.json describes other shapes than the weights have"
        raise CheckpointError(str(folder), f"transformers cannot load it ({reason}). Fetch it again") from error
    missing = sorted(str(key) for key in report["missing_keys"] if "pooler" not in str(key))
    wrong = sorted(str(key) for key in report.get("mismatched_keys", ()))
    if missing or wrong:
        raise CheckpointError(
            str(folder), f"its weights do not match the model: {len(missing)} missing {missing[:3]}, wrong {wrong[:3]}"
        )
    # A layer on the first token, trained for another task; not used here.
    if getattr(model, "pooler", None) is not None:
        model.pooler = None
    network: nn.Module = model.eval()
    return network


def _check_config(folder: Path, config: Any) -> None:
    """Refuse a model that is not an encoder, or that would take very long to build."""
    if config.is_encoder_decoder:
        raise ModelError(f"{folder}: {config.model_type} has a decoder; only encoders are supported.")
    n_layers = getattr(config, "num_hidden_layers", 0)
    if isinstance(n_layers, int) and n_layers > _MAX_LAYERS:
        raise CheckpointError(
            str(folder / "config.json"), f"num_hidden_layers is {n_layers:,}; at most {_MAX_LAYERS:,} are built"
        )


@contextlib.contextmanager
def _quiet_transformers() -> Iterator[None]:
    """Suppress reports about an unused pooler or language-model head, which users cannot act on."""
    from transformers.utils import logging as transformers_logging

    bars: Any = transformers_logging
    logger = logging.getLogger("transformers")
    before = logger.level
    shown = bars.is_progress_bar_enabled()
    logger.setLevel(logging.ERROR)
    bars.disable_progress_bar()
    try:
        yield
    finally:
        logger.setLevel(before)
        if shown:
            bars.enable_progress_bar()
