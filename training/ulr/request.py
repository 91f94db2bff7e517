"""What `train_ulr` is asked to do, and the settings of its loop; imports nothing heavy."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from pearl_qdrant.errors import OptionError
from pearl_qdrant.settings import DEFAULT_DEVICE, DEFAULT_MAX_ERRORS
from training.options import DEFAULT_FIELD, Paths, StrPath, as_paths, project

Pooling = Literal["mean", "cls", "max"]
"""How the vectors of tokens become one vector."""

Sampling = Literal["lowest_score", "random_ngram", "random_span", "entity"]
"""How the n-gram of a sequence is chosen; see `training.ngrams.files`."""

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


HEAD_SHARE = 0.1
"""Share of the steps that train a new MLM head alone, by default."""

_CONFIG = UlrConfig(steps=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class UlrRequest:
    """A run of ULR training, from texts to an encoder.

    Attributes:
        base: Encoder to start from: a folder or a hub id. Of a PEARL checkpoint the phrase encoder is trained; type
            head and character encoder are left out.
        out: Folder to write; state, log and curves go into its folder `training`.
        texts: Plain text, one text a line, or JSON Lines; compressed or not. Either these or `ngrams`.
        field: Field of JSON Lines that holds the text.
        ngrams: Folder that `find_ngrams` wrote: its sequences with their n-grams, in place of `texts`.
        sampling: How the n-gram of a sequence is chosen, see `training.ngrams.files`; by default "lowest_score" with
            `ngrams`, and "random_span" without.
        pooling: Instead of the base model's own.
        cutting: "sentence": a sequence is a sentence; "packed": neighbouring sentences of a text together.
        max_words: Words of a sequence at most.
        sequences: At most this many sequences of all texts, drawn at random; they are kept in memory.
        steps: Optimizer steps; by default those of `epochs`.
        epochs: How often each sequence is seen.
        head_steps: The first steps train the MLM head alone; by default a tenth of the steps if the base has no head,
            and none if it has one.
        batch_size, learning_rate, warmup, schedule, head_learning_rate: As in `UlrConfig`.
        misad_weight, mlm_weight, renormalise, hold, mlm_on_rest, mask_share, n_scored: As in `UlrConfig`.
        dropout, max_tokens, micro_batch, precision, save_every, seed: As in `UlrConfig`.
        tensorboard: Write TensorBoard event files too.
        restart: Start over, even if `out` holds the state of a run; by default the run resumes.
        max_errors: Bad rows that all inputs together may have; None for any number.
        device: auto, cpu, cuda or cuda:N.
    """

    base: StrPath
    out: StrPath
    texts: Paths = ()
    field: str = DEFAULT_FIELD
    ngrams: StrPath | None = None
    sampling: Sampling | None = None
    pooling: Pooling | None = None
    cutting: Literal["sentence", "packed"] = "sentence"
    max_words: int = 96
    sequences: int = 1_000_000
    steps: int | None = None
    epochs: float = 1.0
    head_steps: int | None = None
    batch_size: int = _CONFIG.batch_size
    learning_rate: float = _CONFIG.learning_rate
    warmup: float = _CONFIG.warmup
    schedule: Literal["linear", "constant"] = _CONFIG.schedule
    head_learning_rate: float = _CONFIG.head_learning_rate
    misad_weight: float = _CONFIG.misad_weight
    mlm_weight: float = _CONFIG.mlm_weight
    renormalise: bool = _CONFIG.renormalise
    hold: float = _CONFIG.hold
    mlm_on_rest: bool = _CONFIG.mlm_on_rest
    mask_share: float = _CONFIG.mask_share
    n_scored: int = _CONFIG.n_scored
    dropout: bool = _CONFIG.dropout
    max_tokens: int = _CONFIG.max_tokens
    micro_batch: int = _CONFIG.micro_batch
    precision: Literal["auto", "bf16", "fp32"] = _CONFIG.precision
    save_every: int = _CONFIG.save_every
    tensorboard: bool = False
    seed: int = _CONFIG.seed
    restart: bool = False
    max_errors: int | None = DEFAULT_MAX_ERRORS
    device: str = DEFAULT_DEVICE

    def check(self) -> None:
        """Refuse arguments that contradict each other, before anything is read.

        Raises:
            OptionError: If two arguments contradict each other, or one needs another.
        """
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

    def find_head_steps(self, steps: int, *, has_head: bool) -> int:
        """Return how many of the steps train the MLM head alone."""
        if self.head_steps is not None:
            return self.head_steps
        return 0 if has_head or not self.mlm_weight else round(HEAD_SHARE * steps)

    def config(
        self, *, steps: int, head_steps: int, pooling: Pooling, max_tokens: int, dropout: bool | None = None
    ) -> UlrConfig:
        """Return the settings of the training loop."""
        return project(
            UlrConfig,
            self,
            steps=steps,
            head_steps=head_steps,
            pooling=pooling,
            max_tokens=max_tokens,
            sampling=self.find_sampling(),
            dropout=self.dropout if dropout is None else dropout,
        )


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
