"""Loads a network with the library transformers and encodes with torch, on a GPU or a CPU; only from safetensors.

The phrase encoder runs in bfloat16 if the hardware supports it; pooling, character encoder and head run in float32. On
a GPU two workers take turns: one prepares its batch while the other's batch is computed.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pearl_qdrant.encoder.batching import (
    Batch,
    BatchEncoder,
    BatchLimits,
    NameTokenizer,
    batch_failure,
    first_line,
    is_out_of_memory,
)
from pearl_qdrant.encoder.character.network import CharacterEncoder
from pearl_qdrant.encoder.character.table import CharacterConfig, check_alphabet, check_tensors, read_character_table
from pearl_qdrant.encoder.checkpoint import CHARACTER_TENSORS, HEAD_TENSOR, VerifiedCheckpoint
from pearl_qdrant.encoder.protocol import BoolArray, FloatArray, ModelInfo
from pearl_qdrant.errors import CheckpointError, DeviceError, ModelError
from pearl_qdrant.phrase_types import PHRASE_TYPES

CPU_LIMITS = BatchLimits(max_tokens=2048, max_names=256, workers=1)
GPU_LIMITS = BatchLimits(max_tokens=32768, max_names=2048, workers=2)


def torch_encoder(
    folder: Path,
    tokenizer: NameTokenizer,
    *,
    info: ModelInfo,
    never_seen: BoolArray | None,
    threads: int | None,
    checkpoint: VerifiedCheckpoint | None,
    precision: str,
) -> BatchEncoder:
    """An encoder over the network of a folder, on the device of `info`; raises as `load_network`.

    `never_seen` are the labels that get probability 0, (95,); None without a head. `threads` are those of torch on a
    CPU, for the whole process.
    """
    device = torch.device(info.device)
    if threads is not None and device.type == "cpu":
        torch.set_num_threads(threads)
    network = load_network(folder, pooling=info.pooling, checkpoint=checkpoint).to(device).eval()
    precision = encoding_precision(network, info.device) if precision == "auto" else precision
    info = replace(info, dim=network_width(network), precision=precision)
    encoder: Any = network.phrase_encoder
    if precision == "bf16":
        encoder.to(torch.bfloat16)
    n_rows = len(encoder.get_input_embeddings().weight)
    if tokenizer.n_ids > n_rows:  # on a GPU such an id is fatal
        raise CheckpointError(
            info.name,
            f"its tokenizer has {tokenizer.n_ids:,} tokens, but its weights {n_rows:,}: it belongs to another model. "
            f"Fetch both again",
        )

    def run(batch: Batch) -> tuple[FloatArray, FloatArray | None]:
        # Inference mode is local to a thread, so each worker enters it here.
        try:
            with torch.inference_mode():
                embedding, logits = network(*(torch.from_numpy(array).to(device) for array in batch))
                return embedding.cpu().numpy(), None if logits is None else logits.cpu().numpy()
        except Exception as error:
            if is_out_of_memory(error):
                raise
            raise CheckpointError(info.name, batch_failure(batch, error)) from error

    limits = CPU_LIMITS if device.type == "cpu" else GPU_LIMITS
    return BatchEncoder(tokenizer, run, info=info, never_seen=never_seen, limits=limits)


def resolve_cuda(device: str) -> str:
    """The full name of "cuda", the current device, or "cuda:N". Raises DeviceError if torch finds no such device."""
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
    is_narrow = _width(network.phrase_encoder) < 768
    return "fp32" if is_narrow and device != "cpu" else fast_precision(device)


def load_network(folder: Path, *, pooling: str, checkpoint: VerifiedCheckpoint | None) -> PearlNetwork:
    """Load the network of a folder, in float32 on the CPU; of a checkpoint with type head and character encoder. Raises
    CheckpointError if weights are missing, or the files do not match; ModelError if the architecture is not supported.
    """
    encoder = load_transformer(folder)
    if checkpoint is None:
        return PearlNetwork(encoder, None, pooling=pooling)
    from safetensors.torch import load_file

    config = checkpoint.config
    head = new_type_head(_width(encoder) + config.char_dim)
    try:
        tensors = load_file(checkpoint.head_path)
        head.load_state_dict({"weight": tensors[HEAD_TENSOR]})
    except Exception as error:  # an error of safetensors, KeyError, or RuntimeError for another shape
        raise CheckpointError(str(checkpoint.head_path), f"not a type head for this encoder ({error})") from error
    branch = None
    if config.character is not None:
        prefix = CHARACTER_TENSORS
        own = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
        branch = load_character_encoder(folder, config.character, config.char_dim, own)
    return PearlNetwork(encoder, head, pooling=pooling, character_encoder=branch)


def load_character_encoder(
    folder: Path, config: CharacterConfig, char_dim: int, tensors: Mapping[str, Tensor]
) -> CharacterEncoder:
    """Load a character encoder from its weights by name, and the folder of the tokenizer that defines its characters.
    Raises CheckpointError if the tokenizer or the weights belong to another model.
    """
    table = read_character_table(folder / "tokenizer.json")
    check_alphabet(folder, config, table)
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    check_tensors(str(folder), shapes, config, char_dim=char_dim, n_tokens=len(table.special))
    encoder = CharacterEncoder(table, config, char_dim)
    encoder.load_state_dict(dict(tensors))
    return encoder.eval()


def network_width(network: PearlNetwork) -> int:
    """Width of the embeddings of a network."""
    character = network.character_encoder
    return _width(network.phrase_encoder) + (character.char_dim if character is not None else 0)


def _width(encoder: Any) -> int:
    """Width of the last layer of a transformer."""
    return int(encoder.config.hidden_size)


_MAX_LAYERS = 1000
"""Encoders have up to 48 layers. A damaged config with more would build them all before any weight is read."""


def load_transformer(folder: Path) -> nn.Module:
    """Load the transformer of a folder from its safetensors alone, in float32 on the CPU, without a pooler. Raises
    CheckpointError if weights are missing (they would be random) or do not match; ModelError if it has a decoder.
    """
    from transformers import AutoConfig, AutoModel

    try:
        with _quiet_transformers():
            safe = {"trust_remote_code": False, "local_files_only": True}
            config: Any = AutoConfig.from_pretrained(folder, **safe)
            if config.is_encoder_decoder:
                raise ModelError(f"{folder}: {config.model_type} has a decoder; only encoders are supported.")
            n_layers = getattr(config, "num_hidden_layers", 0)
            if isinstance(n_layers, int) and n_layers > _MAX_LAYERS:
                raise CheckpointError(
                    str(folder / "config.json"), f"num_hidden_layers is {n_layers:,}; at most {_MAX_LAYERS:,} are built"
                )
            model, report = AutoModel.from_pretrained(
                folder, config=config, use_safetensors=True, dtype=torch.float32, output_loading_info=True, **safe
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


@contextlib.contextmanager
def _quiet_transformers() -> Iterator[None]:
    """Suppress reports about an unused pooler or language-model head, which users cannot act on."""
    from transformers.utils import logging as transformers_logging

    bars: Any = transformers_logging
    logger = logging.getLogger("transformers")
    before, shown = logger.level, bars.is_progress_bar_enabled()
    logger.setLevel(logging.ERROR)
    bars.disable_progress_bar()
    try:
        yield
    finally:
        logger.setLevel(before)
        if shown:
            bars.enable_progress_bar()


class PearlNetwork(nn.Module):
    """Phrase encoder with pooling, optional character encoder, and the type head on both.

    u = mean over the real tokens of the phrase encoder's last layer            (b, phrase_dim)
    v = the character encoder's vector                                          (b, char_dim)
    f = (u, r |u| v / |v|),     r = sqrt(s / (1 - s))                           (b, dim)
    embedding = f / |f|         type_logits = f W                               (b, dim), (b, 95)   Eq. 1

    So the cosine of two embeddings is (1 - s) cos(u, u') + s cos(v, v') for all lengths of u and v. The weight s of the
    characters is `CharacterConfig.share`, stored in pearl.json. The paper concatenates u and v unchanged, so that their
    lengths decide. `pool` returns f; without a character encoder (char_dim 0) f is u.

    Source: PEARL (Chen et al. 2024), sections 3.2 and 3.3.
    """

    def __init__(
        self,
        phrase_encoder: nn.Module,  # any transformer that returns `last_hidden_state`, (b, t, phrase_dim)
        type_head: nn.Linear | None,  # (dim -> 95) without bias, or None for a plain encoder
        *,
        pooling: str = "mean",  # over the real tokens, or "cls"
        character_encoder: CharacterEncoder | None = None,  # maps token ids to v
    ) -> None:
        super().__init__()
        self.phrase_encoder = phrase_encoder
        self.type_head = type_head
        self.pooling = pooling
        self.character_encoder = character_encoder

    def pool(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """The vector f of each phrase before normalisation, (b, dim), float32; the input of the type head.

        Ids and mask, 1 for a real token, are (b, t), int64.
        """
        hidden = self.phrase_encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        phrase = pool_tokens(hidden.float(), attention_mask, pooling=self.pooling)
        if self.character_encoder is None:
            return phrase
        character = self.character_encoder(input_ids, attention_mask).float()
        return join_parts(phrase, character, share=self.character_encoder.config.share)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor | None]:
        """The embedding, (b, dim), L2-normalised, and the logits of the phrase types, (b, 95), or None."""
        pooled = self.pool(input_ids, attention_mask)
        embedding = nn.functional.normalize(pooled, dim=-1)
        return embedding, None if self.type_head is None else self.type_head(pooled)


def join_parts(phrase: Tensor, character: Tensor, *, share: float | Tensor) -> Tensor:
    """The vector f, (b, phrase_dim + char_dim): u, (b, phrase_dim), and v, (b, char_dim), of any lengths, concatenated.

    v, unless it is zero, has the given share of the squared length, in (0, 1); one, or one a phrase, (b, 1).
    """
    ratio = (share / (1 - share)) ** 0.5
    # Not detached: the embedding does not depend on the length of u, and its gradient must not either.
    length = phrase.norm(dim=-1, keepdim=True)
    return torch.cat([phrase, nn.functional.normalize(character, dim=-1) * (ratio * length)], dim=-1)


def pool_tokens(hidden: Tensor, attention_mask: Tensor, *, pooling: str) -> Tensor:
    """One vector per phrase, (b, dim), from those of its tokens, (b, t, dim), and their mask; "mean" or "cls"."""
    if pooling == "cls":
        return hidden[:, 0]
    weights = attention_mask.unsqueeze(-1).to(hidden.dtype)
    return (hidden * weights).sum(1) / weights.sum(1).clamp(min=1.0)


def new_type_head(dim: int) -> nn.Linear:
    """An untrained type head: W of Eq. 1, (95, dim), without bias."""
    return nn.Linear(dim, len(PHRASE_TYPES), bias=False)
