"""What `train_ulr` is asked to do, and the settings of its loop; imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from pearl_qdrant.errors import OptionError
from pearl_qdrant.options import Count, Device, Natural, Options
from pearl_qdrant.settings import DEFAULT_DEVICE, DEFAULT_MAX_ERRORS
from training.options import (
    DEFAULT_FIELD,
    Paths,
    Rate,
    Sampling,
    Share,
    StrPath,
    Weight,
    as_paths,
)

Pooling = Literal["mean", "cls", "max"]
"""How the vectors of tokens become one vector."""

_MAY_CHANGE = frozenset({"save_every", "save_seconds", "micro_batch"})
"""Settings that do not affect what is learnt, so that a run may resume with other values."""


class UlrSettings(Options):
    """What a request and the loop share. Settings without a remark are the paper's (section 4)."""

    batch_size: Count = 64
    """Sequences per step."""
    learning_rate: Rate = 5e-5
    """Peak learning rate of encoder and MLM head."""
    warmup: Share = 0.1
    """Share of the steps over which the rate grows to its peak."""
    schedule: Literal["linear", "constant"] = "linear"
    """"linear" falls to zero after the peak, as BERT does; "constant" stays. The paper does not say."""
    head_learning_rate: Rate = 1e-3
    """Learning rate of the first steps, which train the MLM head alone."""
    misad_weight: Weight = 1.0
    """Weight of MiSAD; without it no n-gram is chosen and any token may be masked."""
    mlm_weight: Weight = 1.0
    """Weight of the MLM loss; without it no token is masked."""
    renormalise: bool = False
    """Scale the sum of n-gram and rest to unit length, as the published code does."""
    hold: Weight = 0.0
    """Hold whole sequences where the base has them: weight, beside MiSAD, of their square error; these vectors
    are the target of MiSAD then. 0 for neither, as in the paper."""
    mask_share: Annotated[float, Field(gt=0, lt=1)] = 0.15
    """Share of the tokens outside the n-gram that the MLM loss predicts."""
    n_scored: Count = 8
    """n-grams of a sequence that are scored, at most; drawn at random."""
    dropout: bool = True
    """Whether the network's dropout is on."""
    max_tokens: Annotated[int, Field(ge=4)] = 128
    """Longer sequences are truncated."""
    micro_batch: Count = 16
    """Sequences per forward pass."""
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    """"bf16" autocast, "fp32", or "auto": bf16 where the device computes in it."""
    save_every: Count = 500
    """Steps between two saved states, at most; one is written every five minutes too."""
    seed: int = 0
    """Determines batches, n-grams, masks and dropout."""


class UlrConfig(UlrSettings):
    """Settings of the loop: those of `UlrSettings`, and these."""

    steps: Count  # of the optimizer, those that train the MLM head alone included
    # the first steps train the MLM head alone, with the encoder fixed; not in the paper, whose checkpoints have heads
    head_steps: Natural = 0
    pooling: Pooling = "mean"
    sampling: Sampling = "random_span"
    clip: Weight = 1.0  # largest norm of the gradient; 0 for no limit. As BERT; the paper does not say
    save_seconds: Rate = 300.0  # between two saved states, at most, plus one step

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
        return {name: value for name, value in self.model_dump().items() if name not in may_change}


class UlrRequest(UlrSettings):
    """A run of ULR training, from texts to an encoder: these arguments, and those of `UlrSettings`."""

    base: StrPath
    """Encoder to start from: a folder or a hub id. Of a PEARL checkpoint the phrase encoder is trained; type
    head and character encoder are left out."""
    out: StrPath
    """Folder to write; state and log go into its folder `training`."""
    texts: Paths = ()
    """Plain text, one text a line, or JSON Lines; compressed or not. Either these or `ngrams`."""
    field: str = DEFAULT_FIELD
    """Field of JSON Lines that holds the text."""
    ngrams: StrPath | None = None
    """Folder that `train ngrams` wrote: its sequences with their n-grams, in place of `texts`."""
    sampling: Sampling | None = None
    """Choose the n-gram that the MLM head predicts worst, any, or a random span; by default "lowest_score" with
    `ngrams`, and "random_span" without."""
    pooling: Pooling | None = None
    """Instead of the base model's own. With max only sentence-transformers opens the result."""
    max_words: Annotated[int, Field(ge=3)] = 96
    """Words of a sequence at most."""
    sequences: Count = 1_000_000
    """At most this many sequences of all texts, drawn at random; they are kept in memory."""
    steps: Count | None = None
    """Optimizer steps; by default those of `epochs`."""
    epochs: Rate = 1.0
    """How often each sequence is seen."""
    head_steps: Natural | None = None
    """The first steps train the MLM head alone; by default a tenth of the steps if the base has no head, and
    none if it has one."""
    restart: bool = False
    """Start over, even if `out` holds the state of a run; by default the run resumes."""
    max_errors: Natural | None = DEFAULT_MAX_ERRORS
    """Bad rows that all inputs together may have; None for any number."""
    device: Device = DEFAULT_DEVICE
    """auto, cpu, cuda or cuda:N."""

    def check(self) -> None:
        """Raise OptionError if two arguments contradict each other, or one needs another."""
        if (self.ngrams is None) != bool(as_paths(self.texts)):
            raise OptionError(
                "texts", "Give either 'texts', or the folder of 'ngrams', which has sequences of its own."
            )
        if self.ngrams is None and self.sampling not in (None, "random_span"):
            raise OptionError("sampling", f"'sampling' {self.sampling} needs 'ngrams'; without them spans are random.")
        if self.misad_weight == self.mlm_weight == 0:
            raise OptionError("misad_weight", "'misad_weight' and 'mlm_weight' are both 0: there is nothing to learn.")
        if self.hold and not self.misad_weight:
            raise OptionError("hold", "'hold' is part of MiSAD, which 'misad_weight' 0 leaves out.")
        if self.head_steps and not self.mlm_weight:
            raise OptionError("head_steps", "'head_steps' trains the MLM head, which 'mlm_weight' 0 leaves out.")
        if self.find_sampling() == "lowest_score" and not self.mlm_weight:
            raise OptionError(
                "mlm_weight", "'mlm_weight' 0 leaves the MLM head out, by which 'sampling' lowest_score chooses."
            )
        if self.steps is not None and (self.head_steps or 0) >= self.steps:
            raise OptionError("head_steps", f"'head_steps' {self.head_steps} leaves none of {self.steps} 'steps'.")

    def find_sampling(self) -> Sampling:
        """Return how n-grams are chosen."""
        return self.sampling or ("random_span" if self.ngrams is None else "lowest_score")


@dataclass(frozen=True, slots=True)
class UlrResult:
    """What a run of ULR training left.

    Attributes:
        encoder: The folder written.
        steps: Optimizer steps of the whole run.
        head_steps: Those that trained the MLM head alone.
        sequences: Sequences it learnt from.
        made_head: Whether the base had no MLM head, so that one was made.
        pooling: How the encoder pools.
    """

    encoder: Path
    steps: int
    head_steps: int
    sequences: int
    made_head: bool
    pooling: Pooling
