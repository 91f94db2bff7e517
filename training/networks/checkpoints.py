"""Checkpoints of networks between the stages of training: opened, written and averaged.

A character encoder has character.json (`CharacterConfig`, char_dim, a record of the training) and character.safetensors
before it joins a network. `train average` averages a fine-tuned phrase encoder with the one that it started from,
against forgetting; type head and character encoder are not averaged (`training.head` fits a new head to the averaged
vectors). Source: PEARL (Chen et al. 2024), section 3.4.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from pearl_qdrant.encoder.batching import open_tokenizer
from pearl_qdrant.encoder.character.network import CharacterEncoder
from pearl_qdrant.encoder.character.table import CharacterConfig
from pearl_qdrant.encoder.checkpoint import TORCH_FILE, PearlConfig, VerifiedCheckpoint, is_checkpoint, open_checkpoint
from pearl_qdrant.encoder.json_files import read_json
from pearl_qdrant.encoder.loading import MODELS_DIR, check_device, find_model
from pearl_qdrant.encoder.plain_model import read_plain_model
from pearl_qdrant.encoder.protocol import FloatArray
from pearl_qdrant.encoder.runtime.torch_runtime import (
    PearlNetwork,
    load_character_encoder,
    load_network,
    load_transformer,
    network_width,
    new_type_head,
    resolve_cuda,
)
from pearl_qdrant.encoder.write_checkpoint import write_checkpoint
from pearl_qdrant.errors import CheckpointError, DeviceError, ModelError, ModelNotFoundError, OptionError
from pearl_qdrant.phrase_types import PHRASE_TYPES
from training.options import AVERAGE_RATIO, StrPath, refuse_overwriting


def model_card(config: PearlConfig) -> str:
    """Make a model card from pearl.json."""

    def shown(value: object) -> str:
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    character = "none"
    if config.character is not None:
        own = config.character
        character = (
            f"{config.char_dim} dimensions, {own.share:.0%} of the cosine: {len(own.alphabet):,} characters"
            f"{' and wordpieces' if own.max_pieces else ''}, {own.embedding_dim} wide"
        )
    template = Path(__file__).with_name("model_card.md").read_text("utf-8")
    return template.format(
        name=config.name,
        dim=config.dim,
        phrase_dim=config.phrase_dim,
        pooling=config.pooling,
        character=character,
        n_seen=sum(count > 0 for count in config.label_counts),
        n_labels=len(config.labels),
        max_length=config.max_length,
        prefix=repr(config.prefix) if config.prefix else "none",
        precision=config.precision,
        phrase_only=", the phrase part alone" if config.char_dim else "",
        training="\n".join(f"- {key}: {shown(value)}" for key, value in config.training.items()) or "Not recorded.",
    )


CONFIG_FILE = "character.json"
WEIGHTS_FILE = "character.safetensors"


def write_character_encoder(folder: Path, encoder: CharacterEncoder, *, training: Mapping[str, Any]) -> None:
    """Write an encoder; `training` is the record of its training, serialisable as JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in encoder.state_dict().items()}
    save_file(tensors, folder / WEIGHTS_FILE)
    record = {"char_dim": encoder.char_dim, "character": encoder.config.model_dump(mode="json"), "training": training}
    text = json.dumps(record, indent=1, ensure_ascii=False)
    (folder / CONFIG_FILE).write_text(text + "\n", encoding="utf-8", newline="\n")


def read_character_encoder(folder: Path, *, tokenizer_folder: Path) -> CharacterEncoder:
    """Read an encoder that `write_character_encoder` wrote, for the tokenizer of a network. Raises CheckpointError if
    the folder has none, or it belongs to another tokenizer.
    """
    for name in (CONFIG_FILE, WEIGHTS_FILE):
        if not (folder / name).exists():
            raise CheckpointError(str(folder), f"has no character encoder: {name} is missing")
    record = read_json(folder / CONFIG_FILE)
    config = CharacterConfig.model_validate(record["character"])
    return load_character_encoder(tokenizer_folder, config, record["char_dim"], load_file(folder / WEIGHTS_FILE))


def open_for_torch(folder: Path) -> tuple[VerifiedCheckpoint, Path]:
    """Open a checkpoint folder, and its weights for torch. Raises CheckpointError if it is broken, or has none."""
    checkpoint = open_checkpoint(folder)
    if checkpoint.torch_path is None:
        hint = f"has no {TORCH_FILE}. Rebuild it from the graph with: pearl-qdrant models export {folder} DIR"
        raise CheckpointError(str(folder), hint)
    return checkpoint, checkpoint.torch_path


def read_network(folder: Path) -> tuple[PearlNetwork, PearlConfig]:
    """Read the network of a checkpoint folder, in float32 on the CPU, and its pearl.json. Raises CheckpointError if the
    folder is not a checkpoint, is broken, or has no weights for torch.
    """
    checkpoint, _ = open_for_torch(folder)
    config = checkpoint.config
    return load_network(folder, pooling=config.pooling, checkpoint=checkpoint), config


def write_network(
    folder: Path,
    network: PearlNetwork,
    config: PearlConfig,
    *,
    transformer: Path,
    onnx_path: Path | None = None,
    with_torch: bool = True,
) -> VerifiedCheckpoint:
    """Write a network as a checkpoint folder, with its weights for torch or with a graph alone. Raises CheckpointError
    if the parts do not match. The network has a type head, and gives the widths of the config; `transformer` is the
    folder with the phrase encoder's config.json and tokenizer files.
    """
    assert network.type_head is not None
    config = with_widths(config, network)
    with tempfile.TemporaryDirectory() as scratch:
        weights = Path(scratch) / TORCH_FILE
        if with_torch:
            save_file(phrase_tensors(network.phrase_encoder), weights, metadata={"format": "pt"})
        return write_checkpoint(
            folder,
            config,
            transformer=transformer,
            type_head=network.type_head.weight.detach().float().cpu().numpy(),
            character=_character_arrays(network) if with_torch else None,
            onnx_path=onnx_path,
            torch_path=weights if with_torch else None,
            model_card=model_card(config),
        )


def with_widths(config: PearlConfig, network: PearlNetwork) -> PearlConfig:
    """Return the config with the widths, pooling and character encoder of a network."""
    encoder: Any = network.phrase_encoder
    phrase_dim, character = int(encoder.config.hidden_size), network.character_encoder
    char_dim = character.char_dim if character is not None else 0
    return config.model_copy(
        update={
            "dim": phrase_dim + char_dim,
            "phrase_dim": phrase_dim,
            "char_dim": char_dim,
            "character": character.config if character is not None else None,
            "pooling": network.pooling,
        }
    )


def phrase_tensors(encoder: nn.Module) -> dict[str, torch.Tensor]:
    """Return the phrase encoder's weights without shared memory, as safetensors requires."""
    return {name: tensor.detach().float().cpu().clone().contiguous() for name, tensor in encoder.state_dict().items()}


def _character_arrays(network: PearlNetwork) -> dict[str, FloatArray]:
    """The character encoder's weights; empty if there is no character encoder."""
    if network.character_encoder is None:
        return {}
    state = network.character_encoder.state_dict()
    return {name: tensor.detach().float().cpu().numpy() for name, tensor in state.items()}


MAX_LENGTH = 64
"""Tokens that a checkpoint made here reads; names are short."""


@dataclass(frozen=True, slots=True)
class BaseModel:
    """A network to train."""

    network: PearlNetwork  # in float32 on the CPU, with a type head
    config: PearlConfig  # pearl.json of the new model, except for what training changes
    folder: Path  # has config.json and the tokenizer files of its phrase encoder
    tokenizer: Any  # a `tokenizers.Tokenizer` without padding and truncation
    has_trained_head: bool  # whether the head is that of the model; otherwise it has random weights


def open_base_model(
    model: str,  # a folder or a hub id, of a plain encoder or of a PEARL checkpoint with weights for torch
    *,
    name: str,  # name of the new model
    character: Path | None = None,  # folder of a pre-trained character encoder; a checkpoint may have its own
    pooling: str | None = None,  # "mean" or "cls", instead of the setting of a plain encoder
    prefix: str | None = None,  # text before each name, instead of the setting of the model
    seed: int = 0,  # seed of a new head
) -> BaseModel:
    """Load the network that a run starts from.

    Raises:
        ModelNotFoundError: If there is no such model.
        CheckpointError: If it has no weights for torch, or is broken.
        ModelError: If it cannot be trained.
    """
    folder = find_model(model).folder
    if is_checkpoint(folder):
        network, config = read_network(folder)
        if pooling not in (None, config.pooling):
            raise CheckpointError(str(folder), f"was trained with {config.pooling} pooling. Leave out 'pooling'")
        config = config.model_copy(update={"name": name, "weights_hash": ""})
        if prefix is not None:
            config = config.model_copy(update={"prefix": prefix})
    else:
        plain = read_plain_model(folder, pooling=pooling, prefix=prefix)
        folder = plain.folder
        network = PearlNetwork(load_transformer(folder), None, pooling=plain.pooling)
        width = network_width(network)
        config = PearlConfig(
            name=name,
            dim=width,
            phrase_dim=width,
            label_counts=(0,) * len(PHRASE_TYPES),
            pooling=plain.pooling,
            prefix=plain.prefix,
            max_length=min(MAX_LENGTH, plain.max_length),
        )
    if character is not None:
        network.character_encoder = read_character_encoder(character, tokenizer_folder=folder)
        network.type_head = None
    has_trained_head = network.type_head is not None
    if network.type_head is None:
        network.type_head = new_type_head(network_width(network))
        torch.nn.init.normal_(network.type_head.weight, std=0.02, generator=torch.Generator().manual_seed(seed))
    return BaseModel(network, config, folder, open_tokenizer(folder / "tokenizer.json"), has_trained_head)


def find_device(requested: str) -> torch.device:  # "cpu", "cuda", "cuda:N", or "auto": a GPU if there is one
    """Return the device to train on. Raises DeviceError if there is no such device."""
    try:
        check_device(requested)
    except ValueError as error:
        raise DeviceError(requested, str(error)) from error
    if requested == "cpu" or (requested == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    return torch.device(resolve_cuda("cuda" if requested == "auto" else requested))


def open_transformers_model(auto: Any, model: str, *, kind: str, device: str, **how: Any) -> tuple[Any, Any]:
    """Load the tokenizer and the network of a folder or a hub id, OWNER/NAME[@REVISION], with weights in safetensors,
    by a class of transformers. Raises ModelNotFoundError if it is not of this kind; DeviceError if torch lacks the
    device.
    """
    from transformers import AutoTokenizer

    name, _, revision = model.partition("@")
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, revision=revision or None, **how)
        network = auto.from_pretrained(name, revision=revision or None, use_safetensors=True).eval()
    except Exception as error:  # a damaged file can raise anything in transformers and safetensors
        raise ModelNotFoundError(model, f"'{model}' cannot be loaded as a {kind} model: {error}") from error
    try:
        return tokenizer, network.to(torch.device(device))
    except (RuntimeError, AssertionError) as error:
        raise DeviceError(device, f"Device '{device}' is not available: {error}. Use device cpu") from error


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
    ours, theirs = after.state_dict(), original.state_dict()
    unshared = sorted(theirs.keys() ^ ours.keys())[:5]
    shapes = ((name, theirs[name].shape, tensor.shape) for name, tensor in ours.items())
    unequal = (f": {name} is {tuple(one)} and {tuple(other)}" for name, one, other in shapes if one != other)
    if differ := f" in {unshared}" if unshared else next(unequal, ""):
        raise ModelError(f"{base} and {tuned} cannot be averaged: the encoders differ{differ}")
    with torch.no_grad():
        for name, tensor in ours.items():
            if tensor.is_floating_point():
                tensor.lerp_(theirs[name].to(tensor), 1 - ratio)
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
