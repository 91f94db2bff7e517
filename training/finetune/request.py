"""What `fit_model` is asked to do, and the settings of its loop; imports nothing heavy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from pearl_qdrant.errors import OptionError
from pearl_qdrant.options import Count, Device, Natural, Options
from pearl_qdrant.settings import DEFAULT_DEVICE, DEFAULT_MAX_ERRORS
from training.options import (
    MIN_COUNT,
    Paths,
    Rate,
    StrPath,
    Weight,
    project,
)

_MAY_CHANGE = frozenset({"save_every", "save_seconds", "workers"})
"""Settings that do not affect what is learnt, so that a run may resume with other values."""


class FitSettings(Options):
    """What a request and the loop share."""

    learning_rate: Rate = 3e-5
    """Peak learning rate of the phrase encoder."""
    schedule: Literal["exponential", "cosine"] = "exponential"
    """"exponential" multiplies the rate by 0.98 after every 2,000 steps (the paper); "cosine" warms up over the
    first 5 % of the steps and falls to zero."""
    temperature: Rate = 0.07
    """Temperature of NT-Xent, the contrastive loss (Eq. 2). PEARL: 0.07."""
    type_weight: Weight = 1.0
    """Weight of the type loss. PEARL: 1."""
    mask: Literal["label", "none"] = "label"
    """"label": names of one entity or string are not negatives of each other; "none": the paper."""
    distil_weight: Rate = 2.0
    """Weight of the distillation loss: one minus the cosine of these phrases with their old vector."""
    dropout: bool = False
    """Leave the encoder's dropout on."""
    cache_gradients: bool = False
    """Keep the activations of one micro-batch only: large batches in little memory, for one more forward pass."""
    max_tokens: Annotated[int, Field(ge=3)] = 24
    """Longer phrases are truncated."""
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    """"bf16" autocast, "fp32", or "auto": bf16 where the device computes in it."""
    workers: Natural = 0
    """Processes that draw, augment and tokenise; 0 does this between the steps."""
    save_every: Count = 500
    """Steps between two saved states, at most; one is written every five minutes too."""
    seed: int = 0
    """Determines everything."""


class FitConfig(FitSettings):
    """Settings of the loop: those of `FitSettings`, and what else a recipe may set."""

    steps: Count  # of the optimizer
    # learning rates as multiples of the encoder's; the type head starts from random weights
    head_rate: float = 30.0
    character_rate: float = 10.0
    decay: Annotated[float, Field(gt=0, le=1)] = 0.98  # of the exponential schedule. PEARL: 0.98 and 2,000
    decay_every: Count = 2000
    optimizer: Literal["adamw", "adam"] = "adamw"  # "adam" in the paper
    clip: Weight = 1.0  # largest norm of the gradient; 0 for no limit
    freeze_words: bool = True  # whether the word embeddings stay fixed
    micro_batch: Count = 64  # phrases per forward pass, sorted by length first, so that there is little padding
    save_seconds: Rate = 300.0  # between two saved states, at most, plus one step

    def rate(self, step: int) -> float:
        """Return the share of the peak learning rate at a step, from 1."""
        done = step - 1
        if self.schedule == "exponential":
            return float(self.decay ** (done // self.decay_every))
        warm = max(1, self.steps // 20)
        if done < warm:
            return step / warm
        return 0.5 * (1 + math.cos(math.pi * (done - warm) / max(1, self.steps - warm)))

    def identity(self) -> dict[str, Any]:
        """Return the settings that affect what is learnt; a run resumes only with the same ones."""
        may_change = _MAY_CHANGE | ({"steps"} if self.schedule == "exponential" else set())
        return {name: value for name, value in self.model_dump().items() if name not in may_change}


PAPER: dict[str, Any] = {
    "learning_rate": 3e-5,
    "head_rate": 1.0,
    "character_rate": 1.0,
    "schedule": "exponential",
    "optimizer": "adam",
    "temperature": 0.07,
    "type_weight": 1.0,
    "mask": "none",
    "clip": 0.0,
    "dropout": True,
    "freeze_words": False,
}
"""Settings of the paper (section 4.2): Adam with one rate for all parameters, no masking."""

FIXED_BY_PAPER = tuple("learning_rate schedule temperature type_weight mask distil distil_weight".split())
"""Arguments that contradict `paper_settings`."""


class FitRequest(FitSettings):
    """A fine-tuning run, from files to a checkpoint: these arguments, and those of `FitSettings`."""

    base_model: StrPath
    """Encoder to start from: a folder or a hub id."""
    out: StrPath
    """Checkpoint folder to write; state and log go into its folder `training`."""
    phrases: Paths = ()
    """Corpus folders, freq_phrase.txt, phrase_with_etype.txt or entities.jsonl."""
    aliases: Paths = ()
    """Bases in any format that ingest reads; the names of one entity are positives of each other."""
    hard_negatives: StrPath | None = None
    """File that `train negatives` wrote."""
    wordnet: StrPath | None = None
    """WordNet's dict folder, for synonyms."""
    character_encoder: StrPath | None = None
    """Folder that `train love` wrote."""
    paper_settings: bool = False
    """Train as in the paper: Adam at 3e-5 for all parameters, temperature 0.07, dropout, no masking, no aliases,
    each hard negative with a variant of its own. Fixes the arguments in `FIXED_BY_PAPER`."""
    epochs: Rate = 2.0
    """How often each phrase is an anchor. PEARL: 2."""
    steps: Count | None = None
    """Optimizer steps, instead of `epochs`."""
    batch_size: Annotated[int, Field(ge=4)] = 512
    """Phrases per step on all processes, variants and hard negatives included. PEARL: 512."""
    n_negatives: Natural = 2
    """Hard negatives drawn for each anchor. PEARL: 2."""
    distil: Paths = ()
    """Phrases, as for `phrases`, whose vectors stay where the base model has them."""
    micro_batch: Count | None = None
    """Phrases per forward pass; by default 64 on a CPU and the whole batch on a GPU."""
    name: str | None = None
    """Name of the model; by default that of the folder `out`."""
    pooling: Literal["mean", "cls"] | None = None
    """Instead of the base model's own."""
    prefix: str | None = None
    """Text before each phrase, instead of the base model's own."""
    restart: bool = False
    """Start over, even if `out` holds the state of a run; by default the run resumes."""
    min_count: Count = MIN_COUNT
    """Phrases that occur less often in a corpus are skipped."""
    max_errors: Natural | None = DEFAULT_MAX_ERRORS
    """Bad rows that all inputs together may have; None for any number."""
    device: Device = DEFAULT_DEVICE
    """auto, cpu, cuda or cuda:N."""

    def check(self) -> None:
        """Refuse arguments that contradict `paper_settings`. Raises OptionError."""
        fields = type(self).model_fields
        set_here = [name for name in fields if name in FIXED_BY_PAPER and getattr(self, name) != fields[name].default]
        if self.paper_settings and set_here:
            named = ", ".join(f"'{name}'" for name in set_here)
            raise OptionError("paper_settings", f"'paper_settings' fixes {named}. Leave out the one or the other.")

    def n_pairs(self, *, world_size: int) -> int:
        """Anchors per batch and process: 85 for a batch of 512 with two hard negatives that have variants."""
        each = self.n_negatives if self.hard_negatives is not None else 0
        phrases_each = 2 * (1 + each) if self.paper_settings else 2 + each
        return max(2, self.batch_size // (phrases_each * world_size))

    def fit_config(self, *, steps: int, device: str = "cpu") -> FitConfig:
        """Return the settings of the training loop for a number of steps on a device."""
        # A CPU gains from little padding. A GPU waits for each operation to be started: on an H100, 1,024 pairs took
        # 0.205 s a step in passes of 640 phrases, and 0.070 s in one pass, which must fit into memory if it is cached.
        fitting = 64 if device == "cpu" else 1024 if self.cache_gradients else 8192
        size = self.micro_batch or fitting
        config = project(FitConfig, self, steps=steps, micro_batch=size)
        return config.model_copy(update=PAPER) if self.paper_settings else config


@dataclass(frozen=True, slots=True)
class FitResult:
    """What a fine-tuning run left.

    Attributes:
        checkpoint: The folder written.
        steps: Optimizer steps of the whole run.
        examples: Examples it learnt from.
        wrote: Whether this process wrote the checkpoint; of several processes only the first does.
    """

    checkpoint: Path
    steps: int
    examples: int
    wrote: bool
