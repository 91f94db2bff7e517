"""What `train_ulr` is asked to do; imports nothing heavy, so that the command line can show the defaults."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pearl_qdrant.errors import OptionError
from pearl_qdrant.settings import DEFAULT_DEVICE, DEFAULT_MAX_ERRORS
from training.paths import Paths, StrPath, as_paths
from training.ulr.config import Pooling, Sampling, UlrConfig

DEFAULT_FIELD = "text"
"""Field of JSON Lines that holds the text."""

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
        sampling: How the n-gram of a sequence is chosen, see `training.ngrams.sampling`; by default "lowest_score" with
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
        return UlrConfig(
            steps=steps,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            warmup=self.warmup,
            schedule=self.schedule,
            head_steps=head_steps,
            head_learning_rate=self.head_learning_rate,
            pooling=pooling,
            misad_weight=self.misad_weight,
            mlm_weight=self.mlm_weight,
            renormalise=self.renormalise,
            hold=self.hold,
            mlm_on_rest=self.mlm_on_rest,
            mask_share=self.mask_share,
            sampling=self.find_sampling(),
            n_scored=self.n_scored,
            dropout=self.dropout if dropout is None else dropout,
            max_tokens=max_tokens,
            micro_batch=self.micro_batch,
            precision=self.precision,
            save_every=self.save_every,
            seed=self.seed,
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
