"""ULR training from texts to an encoder in one call: what `pearl-qdrant train ulr` does.

The folder written is one of sentence-transformers: transformer, pooling and normalisation. Its weights are those of the
model with its MLM head, under the names of transformers, so that a later run has a head to start from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pearl_qdrant.encoder.batching import open_tokenizer
from pearl_qdrant.encoder.checkpoint import PEARL_JSON, is_checkpoint
from pearl_qdrant.encoder.json_files import read_json
from pearl_qdrant.encoder.loading import find_model
from pearl_qdrant.encoder.plain_model import PlainModel, read_plain_model
from pearl_qdrant.encoder.runtime.torch_runtime import load_transformer
from pearl_qdrant.encoder.write_checkpoint import copy_file, copy_notices, write_json, write_modules
from pearl_qdrant.errors import CheckpointError, OptionError, TrainingError
from training.networks.checkpoints import find_device, open_for_torch, phrase_tensors
from training.options import TrainingEvents, as_paths, project, refuse_overwriting
from training.training_loop import TrainingLoop, shard_of_environment
from training.ulr.drawing import open_data
from training.ulr.network import UlrNetwork, head_names, head_tensors, open_head
from training.ulr.objective import UlrObjective, UlrRecord
from training.ulr.request import Pooling, UlrConfig, UlrRequest, UlrResult

_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
)


@dataclass(frozen=True, slots=True)
class UlrBase:
    """The encoder to start from."""

    network: UlrNetwork  # in float32 on the CPU
    tokenizer: Any  # a `tokenizers.Tokenizer` without padding and truncation
    model: PlainModel  # its files and settings
    has_head: bool  # whether its MLM head is that of the checkpoint


def open_ulr_base(model: str, *, pooling: Pooling | None, seed: int) -> UlrBase:
    """Load the encoder to start from: a folder or a hub id, of a plain encoder or of a PEARL checkpoint with weights
    for torch. The seed is that of a new MLM head. Raises ModelNotFoundError if there is no such model; CheckpointError
    if it has no weights for torch, or is broken; ModelError if its family cannot be trained.
    """
    folder = find_model(model).folder
    if is_checkpoint(folder):
        checkpoint, torch_path = open_for_torch(folder)
        config = checkpoint.config
        start = PlainModel(folder, config.pooling, config.prefix, config.max_length, False, None, (torch_path,))
    else:
        start = read_plain_model(folder, pooling=None if pooling is None else "mean")
    encoder = load_transformer(start.folder)
    head, has_head = open_head(encoder, start.safetensors, seed=seed)
    chosen: Any = pooling or start.pooling
    network = UlrNetwork(encoder, head, pooling=chosen)
    tokenizer = open_tokenizer(start.folder / "tokenizer.json")
    if tokenizer.get_vocab_size(with_added_tokens=True) > len(head.bias):
        raise CheckpointError(
            str(start.folder),
            f"its tokenizer has {tokenizer.get_vocab_size(with_added_tokens=True):,} tokens, but its weights "
            f"{len(head.bias):,}: it belongs to another model. Fetch both again",
        )
    return UlrBase(network, tokenizer, start, has_head)


def write_encoder(folder: Path, base: UlrBase, *, training: Mapping[str, Any]) -> None:
    """Write the trained network of `base` as a folder that loads as a plain encoder, with a record for ulr.json."""
    from safetensors.torch import save_file

    (folder / "2_Normalize").mkdir(parents=True, exist_ok=True)
    network = base.network.cpu()
    encoder: Any = network.encoder
    names = head_names(encoder.config.model_type)
    tensors = {f"{encoder.base_model_prefix}.{name}": tensor for name, tensor in phrase_tensors(encoder).items()}
    part = folder / "model.safetensors.part"
    save_file(tensors | head_tensors(network.head, names), part, metadata={"format": "pt"})
    part.replace(folder / "model.safetensors")
    for name in _TOKENIZER_FILES:
        if (base.model.folder / name).is_file():
            copy_file(base.model.folder / name, folder / name)
    copy_notices(base.model.folder, folder)
    config = read_json(base.model.folder / "config.json") | {
        "architectures": [names.model_class],
        "tie_word_embeddings": True,
        "dtype": "float32",
    }
    config.pop("torch_dtype", None)
    write_json(folder / "config.json", config)
    write_modules(folder, dim=int(encoder.config.hidden_size), pooling=network.pooling)
    settings = {"max_seq_length": base.model.max_length, "do_lower_case": base.model.lowercase}
    write_json(folder / "sentence_bert_config.json", settings)
    prompts = folder / "config_sentence_transformers.json"
    if base.model.prefix:
        write_json(prompts, {"prompts": {"default": base.model.prefix}, "default_prompt_name": "default"})
    else:
        prompts.unlink(missing_ok=True)
    write_json(folder / "ulr.json", dict(training))


HEAD_SHARE = 0.1
"""Share of the steps that train a new MLM head alone, by default."""


def train_ulr(
    request: UlrRequest, *, events: TrainingEvents | None = None, on_step: Callable[[UlrRecord], None] = lambda _: None
) -> UlrResult:
    """Train an encoder with ULR; the same call resumes a run that was interrupted.

    Args:
        request: What to train on, how, and where to write.
        events: Gets `examples_read`: the sequences, and the rows that were skipped.
        on_step: Called with the figures of each step.

    Raises:
        OptionError: If arguments contradict each other, or `out` is an input.
        InputError: If an input cannot be read, or has too many bad rows.
        ModelError: If the base cannot be loaded or trained.
        TrainingError: If `out` holds the state of another run, the loss diverges, or there are several processes.
    """
    request.check()
    refuse_overwriting(request.out, request.base, request.ngrams, *as_paths(request.texts))
    if shard_of_environment().world_size > 1:
        raise TrainingError("ULR training runs in one process. Start it without torchrun")
    out, device = Path(request.out), find_device(request.device)
    for name in (PEARL_JSON, "onnx/model.onnx", "model.onnx"):
        if (out / name).exists():  # it would be loaded in place of what is written there
            raise OptionError("out", f"{out} holds another model ({name}). Write to another folder.")
    base = open_ulr_base(str(request.base), pooling=request.pooling, seed=request.seed)
    events = events or TrainingEvents()
    data = open_data(request, base.tokenizer, events, prefix=base.model.prefix, lowercase=base.model.lowercase)
    config = _config(request, base, len(data))
    TrainingLoop(
        name="ulr",
        objective=UlrObjective(base.network.to(device), data, config),
        steps=config.steps,
        folder=out / "training",
        resume=not request.restart,
        save_every=config.save_every,
        save_seconds=config.save_seconds,
        on_step=on_step,
    ).run()
    record = {"base": str(request.base), **data.identity(), **config.model_dump()}
    write_encoder(out, base, training=record)
    return UlrResult(out, config.steps, config.head_steps, len(data), not base.has_head, pooling=config.pooling)


def _config(request: UlrRequest, base: UlrBase, n_sequences: int) -> UlrConfig:
    """The settings of the loop for a model and a number of sequences."""
    steps = request.steps or max(1, math.ceil(request.epochs * n_sequences / request.batch_size))
    head_steps = request.head_steps
    if head_steps is None:
        head_steps = 0 if base.has_head or not request.mlm_weight else round(HEAD_SHARE * steps)
    if head_steps >= steps:
        raise OptionError("head_steps", f"'head_steps' {head_steps} leaves none of {steps} steps.")
    max_tokens = min(request.max_tokens, base.model.max_length)
    n_frame = len(base.tokenizer.encode(base.model.prefix).ids)
    if max_tokens < n_frame + 2:
        raise OptionError(
            "max_tokens", f"'max_tokens' {max_tokens} leaves no room beside {n_frame} special tokens and prefix tokens."
        )
    changes = {"pooling": base.network.pooling, "max_tokens": max_tokens, "sampling": request.find_sampling()}
    return project(UlrConfig, request, steps=steps, head_steps=head_steps, **changes)
