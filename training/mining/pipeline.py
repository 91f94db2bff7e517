"""Mining of hard negatives from files to a file in one call: what `pearl-qdrant train negatives` does.

from pearl_qdrant import mine_negatives

mine_negatives("corpus/hard_negative.txt", phrases="corpus")
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.settings import DEFAULT_DEVICE, DEFAULT_MAX_ERRORS, DEFAULT_MODEL
from training.data.inputs import read_training_files
from training.data.negative_table import write_hard_negatives
from training.data.training_files import as_phrases
from training.defaults import MIN_COUNT
from training.events import TrainingEvents
from training.mining.hard_negatives import Encode, FloatArray, mine_hard_negatives
from training.mining.options import MiningConfig
from training.paths import Paths, StrPath, as_paths, refuse_overwriting

_CHUNK = 1024  # names between two reports of progress


def mine_negatives(
    out: StrPath,
    *,
    phrases: Paths = (),
    aliases: Paths = (),
    model: StrPath = DEFAULT_MODEL,
    teacher: StrPath | None = None,
    config: MiningConfig | None = None,
    min_count: int = MIN_COUNT,
    max_errors: int | None = DEFAULT_MAX_ERRORS,
    device: str = DEFAULT_DEVICE,
    events: TrainingEvents | None = None,
) -> int:
    """Find phrases that are spelled almost like a phrase and mean something else, and write them to a file.

    Args:
        out: hard_negative.txt, or JSON Lines if the name ends in .jsonl; its folder is created if absent.
        phrases, aliases, min_count, max_errors: As for `read_training_files`.
        model: Encoder whose lowest cosines are kept.
        teacher: Encoder that decides what means the same; by default `model`.
        config: What counts as a hard negative.
        device: auto, cpu, cuda or cuda:N.
        events: Gets `examples_read` and `names_encoded`.

    Returns:
        Phrases with hard negatives, the rows of the file.

    Raises:
        OptionError: If there is no input, or `out` is one.
        InputError: If an input cannot be read, or has too many bad rows.
        ModelError: If a model cannot be loaded.
    """
    refuse_overwriting(out, *as_paths(phrases), *as_paths(aliases))
    events = events or TrainingEvents()
    examples = read_training_files(phrases, aliases, min_count=min_count, max_errors=max_errors, events=events)
    encode_as_teacher = None if teacher is None else _load(teacher, device, "teacher", events)
    encode = _load(model, device, "encode", events)
    found = mine_hard_negatives(list(as_phrases(examples)), encode, teacher=encode_as_teacher, config=config)
    path = Path(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_hard_negatives(path, found)


def _load(model: StrPath, device: str, task: str, events: TrainingEvents) -> Encode:
    """Load a model as a function that reports its progress."""
    encoder = load_encoder(str(model), device=device)

    def encode(names: Sequence[str]) -> FloatArray:
        parts = []
        for start in range(0, len(names), _CHUNK):
            parts.append(encoder.encode(names[start : start + _CHUNK]).vectors)
            events.names_encoded(task, len(parts[-1]))
        return np.concatenate(parts)

    return encode
