"""Encodes with torch, on a GPU or a CPU; loads weights only from safetensors.

The phrase encoder runs in bfloat16 if the hardware supports it; pooling, character encoder and head run in float32. On
a GPU two workers take turns: one prepares its batch while the other's batch is computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pearl_qdrant.encoder.batching import (
    Batch,
    BatchEncoder,
    BatchLimits,
    NameTokenizer,
    batch_failure,
    is_out_of_memory,
)
from pearl_qdrant.encoder.character.network import CharacterEncoder
from pearl_qdrant.encoder.character.table import CharacterConfig, check_alphabet, read_character_table, tensor_shapes
from pearl_qdrant.encoder.checkpoint import CHARACTER_TENSORS, HEAD_TENSOR
from pearl_qdrant.encoder.protocol import BoolArray, Encoded, FloatArray, ModelInfo
from pearl_qdrant.encoder.runtime.network import PearlNetwork, new_type_head
from pearl_qdrant.encoder.runtime.transformer import load_transformer
from pearl_qdrant.errors import CheckpointError, DeviceError

CPU_LIMITS = BatchLimits(max_tokens=2048, max_names=256, workers=1)
MIN_BF16_WIDTH = 768
"""Columns of a phrase encoder from which on a GPU encodes in bf16."""
GPU_LIMITS = BatchLimits(max_tokens=32768, max_names=2048, workers=2)


class TorchEncoder:
    """An `Encoder` over a torch module.

    Args:
        network: The PEARL network in float32; it is moved to the device, and its phrase encoder is cast, in place.
        info: Identity of the model, with the device and the precision ("fp32" or "bf16") to use.
        never_seen: (95,), labels that get probability 0; None without a head.
    """

    def __init__(
        self, network: PearlNetwork, tokenizer: NameTokenizer, *, info: ModelInfo, never_seen: BoolArray | None
    ) -> None:
        self._info = info
        self._device = torch.device(info.device)
        self._network = network.to(self._device).eval()
        if info.precision == "bf16":
            self._network.phrase_encoder.to(torch.bfloat16)
        _check_tokens(self._info.name, network, tokenizer)
        limits = CPU_LIMITS if self._device.type == "cpu" else GPU_LIMITS
        self._batches = BatchEncoder(tokenizer, self._run, dim=info.dim, never_seen=never_seen, limits=limits)

    @property
    def info(self) -> ModelInfo:
        """The identity of the model."""
        return self._info

    def encode(self, names: Sequence[str]) -> Encoded:
        """Encode names; see `Encoder.encode`."""
        return self._batches.encode(names)

    def _run(self, batch: Batch) -> tuple[FloatArray, FloatArray | None]:
        # Inference mode is local to a thread, so each worker enters it here.
        try:
            with torch.inference_mode():
                ids, mask = self._to_device(batch.input_ids), self._to_device(batch.attention_mask)
                embedding, logits = self._network(ids, mask)
                return embedding.cpu().numpy(), None if logits is None else logits.cpu().numpy()
        except Exception as error:
            if is_out_of_memory(error):
                raise
            raise CheckpointError(self._info.name, batch_failure(batch, error)) from error

    def _to_device(self, array: np.ndarray[Any, np.dtype[np.int64]]) -> Tensor:
        return torch.from_numpy(array).to(self._device)


def _check_tokens(name: str, network: PearlNetwork, tokenizer: NameTokenizer) -> None:
    """Refuse a tokenizer with more tokens than the network has embeddings, because on a GPU such an id is fatal."""
    encoder: Any = network.phrase_encoder
    n_rows = len(encoder.get_input_embeddings().weight)
    if tokenizer.n_ids > n_rows:
        raise CheckpointError(
            name,
            f"its tokenizer has {tokenizer.n_ids:,} tokens, but its weights {n_rows:,}: it belongs to another model. "
            f"Fetch both again",
        )


def resolve_cuda(device: str) -> str:
    """The full name of a CUDA device, "cuda:N". Raises DeviceError if torch has no CUDA support, or the device does not
    exist.

    Args:
        device: "cuda" for the current one, or "cuda:N".
    """
    if not torch.cuda.is_available():
        built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
        raise DeviceError(
            device,
            f"Device '{device}' was requested, but torch {torch.__version__} ({built}) finds no CUDA device. Use "
            f"device cpu, or install the driver and a torch built for CUDA.",
        )
    index = int(device.partition(":")[2]) if ":" in device else torch.cuda.current_device()
    if index >= torch.cuda.device_count():
        raise DeviceError(
            device, f"Device '{device}' was requested, but there are only {torch.cuda.device_count()} (from cuda:0)."
        )
    return f"cuda:{index}"


def fast_precision(device: str) -> str:
    """The fastest precision: "bf16" if the hardware supports it, else "fp32"."""
    if device == "cpu":
        cpu: Any = torch.cpu
        probes = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
        return "bf16" if any(getattr(cpu, probe, bool)() for probe in probes) else "fp32"
    # GPUs before Ampere only emulate bf16.
    return "bf16" if torch.cuda.get_device_capability(device) >= (8, 0) else "fp32"


def encoding_precision(network: PearlNetwork, device: str) -> str:
    """The faster precision to encode names in: "bf16" or "fp32".

    Names are short, so a GPU that runs a narrow network waits for its operations to be started, and bf16 adds
    conversions: on one H100, 384 columns are slower in bf16 than in fp32 (docs/experiments/large-batches.md).
    """
    is_narrow = _width(network.phrase_encoder) < MIN_BF16_WIDTH
    return "fp32" if is_narrow and device != "cpu" else fast_precision(device)


def load_network(
    folder: Path, *, pooling: str, head_path: Path | None, character: CharacterConfig | None = None, char_dim: int = 0
) -> PearlNetwork:
    """Load the network of a folder, in float32 on the CPU. Raises CheckpointError if weights are missing, or the files
    do not match; ModelError if the architecture is not supported.

    Args:
        folder: Folder with config.json, safetensors and tokenizer.json.
        pooling: "mean" or "cls".
        head_path: Safetensors of type head and character encoder, or None for a plain encoder.
        character: Widths of the character encoder, or None without one.
        char_dim: Width of its part of the embedding.
    """
    encoder = load_transformer(folder)
    if head_path is None:
        return PearlNetwork(encoder, None, pooling=pooling)
    from safetensors.torch import load_file

    head = new_type_head(_width(encoder) + char_dim)
    try:
        tensors = load_file(head_path)
        head.load_state_dict({"weight": tensors[HEAD_TENSOR]})
    except Exception as error:  # an error of safetensors, KeyError, or RuntimeError for another shape
        raise CheckpointError(str(head_path), f"not a type head for this encoder ({error})") from error
    if character is None:
        return PearlNetwork(encoder, head, pooling=pooling)
    n = len(CHARACTER_TENSORS)
    own = {name[n:]: tensor for name, tensor in tensors.items() if name.startswith(CHARACTER_TENSORS)}
    branch = load_character_encoder(folder, character, char_dim, own)
    return PearlNetwork(encoder, head, pooling=pooling, character_encoder=branch)


def load_character_encoder(
    folder: Path, config: CharacterConfig, char_dim: int, tensors: Mapping[str, Tensor]
) -> CharacterEncoder:
    """Load a character encoder from its weights. Raises CheckpointError if the tokenizer or the weights belong to
    another model.

    Args:
        folder: Folder of the tokenizer.json that defines its characters.
        config: Widths of the encoder.
        char_dim: Width of its part of the embedding.
        tensors: Weights by name in torch.
    """
    table = read_character_table(folder / "tokenizer.json")
    check_alphabet(folder, config, table)
    expected = tensor_shapes(config, char_dim=char_dim, n_tokens=len(table.special))
    for name in sorted({*tensors, *expected}):
        found = tuple(tensors[name].shape) if name in tensors else None
        if found != expected.get(name):
            raise CheckpointError(
                str(folder),
                f"no weights of its character encoder (tensor {name} has shape {found}, {expected.get(name)} expected)",
            )
    encoder = CharacterEncoder(table, config, char_dim)
    encoder.load_state_dict(dict(tensors))
    return encoder.eval()


def network_width(network: PearlNetwork) -> int:
    """Width of the embeddings of a network."""
    character = network.character_encoder
    return _width(network.phrase_encoder) + (character.char_dim if character is not None else 0)


def _width(encoder: nn.Module) -> int:
    """Width of the last layer of a transformer."""
    config: Any = encoder.config
    return int(config.hidden_size)
