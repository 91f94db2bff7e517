"""Files of a character encoder between its pre-training and the network that it joins.

character.json              `CharacterConfig`, char_dim and a record of the training
character.safetensors       its weights
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pearl_qdrant.encoder.character.config import CharacterConfig
from pearl_qdrant.encoder.character.network import CharacterEncoder
from pearl_qdrant.encoder.json_files import read_json
from pearl_qdrant.encoder.runtime.torch_runtime import load_character_encoder
from pearl_qdrant.errors import CheckpointError

CONFIG_FILE = "character.json"
WEIGHTS_FILE = "character.safetensors"


def write_character_encoder(folder: Path, encoder: CharacterEncoder, *, training: Mapping[str, Any]) -> None:
    """Write an encoder; `training` is the record of its training, serialisable as JSON."""
    from safetensors.torch import save

    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in encoder.state_dict().items()}
    (folder / WEIGHTS_FILE).write_bytes(save(tensors))
    record = {"char_dim": encoder.char_dim, "character": encoder.config.model_dump(mode="json"), "training": training}
    text = json.dumps(record, indent=1, ensure_ascii=False)
    (folder / CONFIG_FILE).write_text(text + "\n", encoding="utf-8", newline="\n")


def read_character_encoder(folder: Path, *, tokenizer_folder: Path, share: float | None = None) -> CharacterEncoder:
    """Read an encoder that `write_character_encoder` wrote.

    Args:
        folder: The folder of the encoder.
        tokenizer_folder: Has the tokenizer.json of the network.
        share: Share of the cosine, instead of the stored one.

    Raises:
        CheckpointError: If a file is missing or broken, or belongs to another tokenizer.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = folder / CONFIG_FILE
    record = read_json(path)
    try:
        described = dict(record["character"])
        config = CharacterConfig.model_validate(described if share is None else {**described, "share": share})
        char_dim = int(record["char_dim"])
    except (KeyError, TypeError, ValueError, ValidationError) as error:
        raise CheckpointError(str(path), f"does not describe a character encoder ({error})") from error
    try:
        tensors = load_file(folder / WEIGHTS_FILE)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(str(folder / WEIGHTS_FILE), f"has no readable weights ({error})") from error
    return load_character_encoder(tokenizer_folder, config, char_dim, tensors)
