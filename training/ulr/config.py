"""Settings of ULR training, and the learning rate at each step; imports nothing heavy."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Pooling = Literal["mean", "cls", "max"]
"""How the vectors of tokens become one vector."""

Sampling = Literal["lowest_score", "random_ngram", "random_span", "entity"]
"""How the n-gram of a sequence is chosen; see `training.ngrams.sampling`."""

_MAY_CHANGE = frozenset({"save_every", "save_seconds", "micro_batch"})
"""Settings that do not affect what is learnt, so that a run may resume with other values."""


@dataclass(frozen=True, slots=True)
class UlrConfig:
    """Settings of ULR training. Those without a remark are the paper's (section 4).

    Attributes:
        steps: Optimizer steps, those that train the MLM head alone included.
        batch_size: Sequences per step.
        learning_rate: Peak learning rate of encoder and MLM head.
        warmup: Share of the steps over which the rate grows to its peak.
        schedule: "linear" falls to zero after the peak, as BERT does; "constant" stays. The paper does not say.
        head_steps: The first steps train the MLM head alone, with the encoder fixed. Not in the paper, whose
            checkpoints have heads.
        head_learning_rate: Learning rate of these steps.
        pooling: "mean" over all tokens, "cls" or "max".
        misad_weight, mlm_weight: Weights of the two terms; without MiSAD no n-gram is chosen and any token may be
            masked, without MLM none is.
        renormalise: Scale E_w + E_R to unit length, as the published code does.
        hold: Weight, beside MiSAD, of the square error of whole sequences to the vectors that they had before training;
            these are the target of MiSAD then. 0 for neither, as in the paper.
        mlm_on_rest: The rest R has the masks of S too, and its masked tokens count in the MLM loss.
        mask_share: Share of the tokens of S outside the n-gram that the MLM loss predicts.
        sampling: How the n-gram of a sequence is chosen.
        n_scored: n-grams of a sequence that "lowest_score" scores, at most; drawn at random.
        dropout: Whether the network's dropout is on.
        max_tokens: Longer sequences are truncated.
        micro_batch: Sequences per forward pass.
        clip: Largest norm of the gradient; 0 for no limit. As BERT; the paper does not say.
        precision: "bf16" autocast, "fp32", or "auto": bf16 where the device computes in it.
        save_every: Steps between two saved states, at most.
        save_seconds: Seconds between two saved states, at most, plus one step.
        seed: Determines batches, n-grams, masks and dropout.
    """

    steps: int
    batch_size: int = 64
    learning_rate: float = 5e-5
    warmup: float = 0.1
    schedule: Literal["linear", "constant"] = "linear"
    head_steps: int = 0
    head_learning_rate: float = 1e-3
    pooling: Pooling = "mean"
    misad_weight: float = 1.0
    mlm_weight: float = 1.0
    renormalise: bool = False
    hold: float = 0.0
    mlm_on_rest: bool = False
    mask_share: float = 0.15
    sampling: Sampling = "random_span"
    n_scored: int = 8
    dropout: bool = True
    max_tokens: int = 128
    micro_batch: int = 16
    clip: float = 1.0
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    save_every: int = 500
    save_seconds: float = 300.0
    seed: int = 0

    def __post_init__(self) -> None:
        positive = ("steps", "batch_size", "learning_rate", "head_learning_rate", "n_scored", "micro_batch")
        for name in (*positive, "save_every", "save_seconds"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, not {getattr(self, name)}")
        for name in ("misad_weight", "mlm_weight", "hold", "head_steps", "clip"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, but is {getattr(self, name)}")
        if not 0 <= self.warmup <= 1:
            raise ValueError(f"warmup must be in [0, 1], not {self.warmup}")
        if not 0 < self.mask_share < 1:
            raise ValueError(f"mask_share must be in (0, 1), not {self.mask_share}")
        if self.misad_weight == self.mlm_weight == 0:
            raise ValueError("misad_weight and mlm_weight are both 0: there is nothing to learn")
        if self.head_steps and not self.mlm_weight:
            raise ValueError("head_steps trains the MLM head, which mlm_weight 0 leaves out")
        if self.max_tokens < 4:
            raise ValueError(f"max_tokens must be at least 4 (two between two special tokens), not {self.max_tokens}")

    def is_head_step(self, step: int) -> bool:
        """Whether a step, from 1, trains the MLM head alone."""
        return step <= self.head_steps

    def rate(self, step: int) -> float:
        """Return the learning rate of a step, from 1."""
        if self.is_head_step(step):
            return self.head_learning_rate
        done, steps = step - self.head_steps - 1, self.steps - self.head_steps
        warm = round(self.warmup * steps)
        if done < warm:
            return self.learning_rate * (done + 1) / warm
        return self.learning_rate * (1.0 if self.schedule == "constant" else (steps - done) / max(1, steps - warm))

    def identity(self) -> dict[str, Any]:
        """Return the settings that affect what is learnt; a run resumes only with the same ones."""
        may_change = _MAY_CHANGE | ({"steps"} if self.schedule == "constant" and not self.warmup else set())
        return {name: value for name, value in asdict(self).items() if name not in may_change}
