"""Encode with torch: a GPU, or a processor with bfloat16; weights from safetensors only.

The phrase encoder runs in bfloat16 where that is fast in hardware, pooling, normalisation and head in float32.
Batches are of like length, so that next to no padding is computed; on a GPU two workers take turns, one preparing
its batch while the other's is computed.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pearl_qdrant.encoder.batching import BatchEncoder, BatchLimits
from pearl_qdrant.encoder.checkpoint import HEAD_TENSOR
from pearl_qdrant.encoder.network import PearlNetwork, new_type_head, pool_tokens
from pearl_qdrant.encoder.protocol import BoolArray, Encoded, FloatArray, ModelInfo
from pearl_qdrant.encoder.tokens import Batch, NameTokenizer
from pearl_qdrant.errors import CheckpointError, DeviceError, ModelError

CPU_LIMITS = BatchLimits(max_tokens=2048, max_names=256, workers=1)
GPU_LIMITS = BatchLimits(max_tokens=32768, max_names=2048, workers=2)


class TorchEncoder:
    """An `Encoder` over a torch module.

    Args:
        network: The PEARL network, in float32; it is moved and its phrase encoder cast in place.
        tokenizer: The model's tokenizer.
        info: Which model this is, with the device and precision ("fp32" or "bf16") to run in.
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
        limits = CPU_LIMITS if self._device.type == "cpu" else GPU_LIMITS
        self._batches = BatchEncoder(tokenizer, self._run, dim=info.dim, never_seen=never_seen, limits=limits)

    @property
    def info(self) -> ModelInfo:
        """Which model this is."""
        return self._info

    def encode(self, names: Sequence[str]) -> Encoded:
        """Encode names; see `Encoder.encode`."""
        return self._batches.encode(names)

    def _run(self, batch: Batch) -> tuple[FloatArray, FloatArray | None]:
        # Inference mode belongs to a thread, so it is entered here and not around all batches.
        with torch.inference_mode():
            ids, mask = self._to_device(batch.input_ids), self._to_device(batch.attention_mask)
            hidden = self._network.phrase_encoder(input_ids=ids, attention_mask=mask).last_hidden_state
            pooled = pool_tokens(hidden.float(), mask, pooling=self._network.pooling)
            embedding = nn.functional.normalize(pooled, dim=-1)
            head = self._network.type_head
            logits = None if head is None else head(pooled).cpu().numpy()
            return embedding.cpu().numpy(), logits

    def _to_device(self, array: np.ndarray[Any, np.dtype[np.int64]]) -> Tensor:
        return torch.from_numpy(array).to(self._device)


def resolve_cuda(device: str) -> str:
    """The CUDA device of that name, as "cuda:N".

    Args:
        device: "cuda" for the current one, or "cuda:N".

    Raises:
        DeviceError: If this torch has no CUDA, or the machine no such device.
    """
    if not torch.cuda.is_available():
        built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
        raise DeviceError(
            device,
            f"Device '{device}' was asked for, but torch {torch.__version__} ({built}) finds no CUDA device. Use "
            f"--device cpu, or install the driver and a torch built for CUDA.",
        )
    index = int(device.partition(":")[2]) if ":" in device else torch.cuda.current_device()
    if index >= torch.cuda.device_count():
        raise DeviceError(
            device, f"Device '{device}' was asked for, but there are only {torch.cuda.device_count()} (from cuda:0)."
        )
    return f"cuda:{index}"


def fast_precision(device: str) -> str:
    """The precision to run in: "bf16" where the hardware computes in it, else "fp32"."""
    if device == "cpu":
        cpu: Any = torch.cpu
        probes = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
        return "bf16" if any(getattr(cpu, probe, bool)() for probe in probes) else "fp32"
    # Before Ampere bf16 is emulated.
    return "bf16" if torch.cuda.get_device_capability(device) >= (8, 0) else "fp32"


def load_network(folder: Path, *, pooling: str, head_path: Path | None) -> PearlNetwork:
    """The network of a folder, in float32 on the CPU.

    Args:
        folder: config.json and safetensors of the transformer.
        pooling: "mean" or "cls".
        head_path: The type head's safetensors, or None for a plain encoder.

    Raises:
        CheckpointError: If weights are missing, or the files do not fit each other.
        ModelError: If the architecture is not supported.
    """
    encoder = _load_transformer(folder)
    if head_path is None:
        return PearlNetwork(encoder, None, pooling=pooling)
    from safetensors.torch import load_file

    head = new_type_head(_width(encoder))
    try:
        head.load_state_dict({"weight": load_file(head_path)[HEAD_TENSOR]})
    except Exception as error:  # safetensors' own, KeyError, RuntimeError for another shape
        raise CheckpointError(str(head_path), f"no type head for this encoder ({error})") from error
    return PearlNetwork(encoder, head, pooling=pooling)


def network_width(network: PearlNetwork) -> int:
    """Width of the vectors that a network gives."""
    return _width(network.phrase_encoder)


def _width(encoder: nn.Module) -> int:
    """Width of a transformer's last layer, whatever its family calls it."""
    config: Any = encoder.config
    return int(config.hidden_size)


def _load_transformer(folder: Path) -> nn.Module:
    """The transformer of a folder; refuses one whose weights are not all there, which would start at random."""
    from transformers import AutoConfig, AutoModel

    try:
        with _quiet_transformers():
            config: Any = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
            if config.is_encoder_decoder:
                raise ModelError(f"{folder}: {config.model_type} has a decoder; only encoders are supported.")
            model, report = AutoModel.from_pretrained(
                folder,
                config=config,
                use_safetensors=True,
                trust_remote_code=False,
                local_files_only=True,
                dtype=torch.float32,
                output_loading_info=True,
            )
    except (OSError, ValueError, RuntimeError, KeyError, ImportError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise CheckpointError(str(folder), f"transformers cannot load it ({reason})") from error
    missing = sorted(str(key) for key in report["missing_keys"] if "pooler" not in str(key))
    wrong = sorted(str(key) for key in report.get("mismatched_keys", ()))
    if missing or wrong:
        raise CheckpointError(
            str(folder), f"its weights do not fill the model: {len(missing)} missing {missing[:3]}, wrong {wrong[:3]}"
        )
    network: nn.Module = model.eval()
    return network


@contextlib.contextmanager
def _quiet_transformers() -> Iterator[None]:
    """Keep its report of an unused pooler or language-model head from a user who can do nothing about it."""
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
