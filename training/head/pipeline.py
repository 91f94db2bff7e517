"""A type head from files to a checkpoint in one call: what `pearl-qdrant train head` does.

from pearl_qdrant import train_head

train_head("averaged/", "typed/", typed_names="names.tsv")
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pearl_qdrant.settings import DEFAULT_DEVICE, DEFAULT_MAX_ERRORS
from training.data.inputs import read_training_files
from training.defaults import MIN_COUNT
from training.events import TrainingEvents
from training.head.evaluate_types import TypeScores
from training.head.options import HeadOptions
from training.head.run import run_head
from training.networks.base_network import find_device, open_base_model
from training.paths import Paths, StrPath, as_paths, refuse_overwriting


def train_head(
    base_model: StrPath,
    out: StrPath,
    *,
    phrases: Paths = (),
    aliases: Paths = (),
    typed_names: Paths = (),
    options: HeadOptions | None = None,
    name: str | None = None,
    pooling: Literal["mean", "cls"] | None = None,
    prefix: str | None = None,
    min_count: int = MIN_COUNT,
    max_errors: int | None = DEFAULT_MAX_ERRORS,
    device: str = DEFAULT_DEVICE,
    events: TrainingEvents | None = None,
) -> TypeScores | None:
    """Fit a type head on a frozen encoder, and write both as a checkpoint.

    Args:
        base_model: The encoder, which stays unchanged: a folder or a hub id.
        out: The checkpoint to write.
        phrases, aliases, typed_names, min_count, max_errors: As for `read_training_files`.
        options: How to fit.
        name: Name of the model; by default that of the folder `out`.
        pooling: "mean" or "cls", instead of the base model's own.
        prefix: Text before each name, instead of the base model's own.
        device: auto, cpu, cuda or cuda:N.
        events: Gets `examples_read`.

    Returns:
        Scores on the names held out, or None if there are none.

    Raises:
        OptionError: If there is no input or no entity type in it, or `out` is an input.
        InputError: If an input cannot be read, or has too many bad rows.
        ModelError: If the base model cannot be loaded.
    """
    refuse_overwriting(out, base_model, *as_paths(phrases))
    place = find_device(device)
    options = options or HeadOptions()
    examples = read_training_files(
        phrases, aliases, typed_names=typed_names, min_count=min_count, max_errors=max_errors, events=events
    )
    base = open_base_model(
        str(base_model), name=name or Path(out).name, pooling=pooling, prefix=prefix, seed=options.seed
    )
    return run_head(base, examples, options, Path(out), device=place)
