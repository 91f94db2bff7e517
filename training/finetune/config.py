"""Settings of fine-tuning, and the learning rate at each step."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

_MAY_CHANGE = frozenset({"save_every", "save_seconds", "evaluate_every", "workers"})
"""Settings that do not affect what is learnt, so that a run may resume with other values."""


def default_micro_batch(device: str, *, cached: bool = False) -> int:
    """Return the phrases per forward pass that suit a device.

    A CPU gains from little padding. A GPU waits for each operation to be started: on an H100, 1,024 pairs took 0.205 s
    a step in passes of 640 phrases, and 0.070 s in one pass.

    Args:
        device: "cpu", "cuda" or "cuda:N".
        cached: Whether gradients are cached; then a pass must fit into memory.
    """
    if device == "cpu":
        return 64
    return 1024 if cached else 8192


@dataclass(frozen=True, slots=True)
class FitConfig:
    """Settings of fine-tuning.

    Attributes:
        steps: Optimizer steps.
        learning_rate: Peak learning rate of the phrase encoder.
        head_rate: Learning rate of the type head as a multiple of the encoder's; the head starts from random weights.
        character_rate: Learning rate of the character encoder, as a multiple too.
        schedule: "exponential" multiplies the rate by `decay` after every `decay_every` steps (the paper); "cosine"
            warms up over the first 5 % of the steps and falls to zero.
        decay, decay_every: Factor and interval of the exponential schedule. PEARL: 0.98 and 2,000.
        optimizer: "adamw", or "adam" (the paper).
        objective: "nt-xent" (Eq. 2) or "multi-similarity" (SapBERT).
        temperature: Temperature of NT-Xent. PEARL: 0.07.
        type_weight: Weight of the type loss. PEARL: 1.
        mask: "label": rows with the same entity or string are not negatives of each other; "none": the paper.
        teacher_floor: Two rows with a teacher cosine up to this value always count as different; needs a teacher.
        distil_weight: Weight of the distillation loss of the plain phrases: one minus the cosine with their old vector.
        misad_weight: Weight of MiSAD, which needs texts; see `training.ulr.terms`.
        mlm_weight: Weight of masked language modelling, which needs them too.
        clip: Largest norm of the gradient; 0 for no limit.
        dropout: Whether the network's dropout is on.
        freeze_words: Whether the word embeddings stay fixed.
        max_tokens: Longer phrases are truncated.
        micro_batch: Phrases per forward pass; they are sorted by length first, so that there is little padding. See
            `default_micro_batch`.
        cache_gradients: Keep the activations of one micro-batch only, at the price of a second forward pass.
        precision: "bf16" autocast, "fp32", or "auto": bf16 where the device computes in it.
        workers: Processes that draw, augment and tokenise; 0 does this between the steps.
        save_every: Steps between two saved states, at most.
        save_seconds: Seconds between two saved states, at most, plus one step.
        evaluate_every: Steps between evaluations; 0 evaluates only at the end.
        seed: Seed of the dropout.
    """

    steps: int
    learning_rate: float = 3e-5
    head_rate: float = 30.0
    character_rate: float = 10.0
    schedule: Literal["exponential", "cosine"] = "exponential"
    decay: float = 0.98
    decay_every: int = 2000
    optimizer: Literal["adamw", "adam"] = "adamw"
    objective: Literal["nt-xent", "multi-similarity"] = "nt-xent"
    temperature: float = 0.07
    type_weight: float = 1.0
    mask: Literal["label", "none"] = "label"
    teacher_floor: float = 0.0
    distil_weight: float = 2.0
    misad_weight: float = 0.0
    mlm_weight: float = 0.0
    clip: float = 1.0
    dropout: bool = False
    freeze_words: bool = True
    max_tokens: int = 24
    micro_batch: int = 64
    cache_gradients: bool = False
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    workers: int = 0
    save_every: int = 500
    save_seconds: float = 300.0
    evaluate_every: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        positive = ("steps", "learning_rate", "temperature", "decay_every", "micro_batch", "save_every", "save_seconds")
        for name in positive:
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, not {getattr(self, name)}")
        for name in ("misad_weight", "mlm_weight"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, but is {getattr(self, name)}")
        if not 0 < self.decay <= 1:
            raise ValueError(f"decay must be in (0, 1], not {self.decay}")
        if self.max_tokens < 3:
            raise ValueError(
                f"max_tokens must be at least 3 (one token between two special ones), not {self.max_tokens}"
            )

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
        """Return the settings that affect what is learnt; a run resumes only with the same ones.

        A saved state stores them by field name, so renaming a field would break old states.
        """
        may_change = _MAY_CHANGE | ({"steps"} if self.schedule == "exponential" else set())
        # Without the terms of ULR, states from before there were any can be resumed.
        unused = {name for name in ("misad_weight", "mlm_weight") if not getattr(self, name)}
        return {name: value for name, value in asdict(self).items() if name not in may_change | unused}


def paper_config(*, steps: int) -> FitConfig:
    """Return the settings of the paper (section 4.2): Adam with one rate for all parameters, no masking."""
    return FitConfig(
        steps=steps,
        learning_rate=3e-5,
        head_rate=1.0,
        character_rate=1.0,
        schedule="exponential",
        optimizer="adam",
        objective="nt-xent",
        temperature=0.07,
        type_weight=1.0,
        mask="none",
        clip=0.0,
        dropout=True,
        freeze_words=False,
    )
