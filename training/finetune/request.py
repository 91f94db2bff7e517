"""What `fit_model` is asked to do, and the settings of its loop; imports nothing heavy."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from pearl_qdrant.errors import OptionError
from pearl_qdrant.settings import DEFAULT_DEVICE, DEFAULT_MAX_ERRORS
from training.options import MIN_COUNT, BatchOptions, Paths, StrPath, as_paths, project
from training.ulr.request import Sampling, UlrRequest

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
        misad_weight: Weight of MiSAD, which needs texts; see `training.ulr.objective`.
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
        """Return the settings that affect what is learnt; a run resumes only with the same ones."""
        may_change = _MAY_CHANGE | ({"steps"} if self.schedule == "exponential" else set())
        return {name: value for name, value in asdict(self).items() if name not in may_change}


PAPER: dict[str, Any] = {
    "learning_rate": 3e-5,
    "head_rate": 1.0,
    "character_rate": 1.0,
    "schedule": "exponential",
    "optimizer": "adam",
    "objective": "nt-xent",
    "temperature": 0.07,
    "type_weight": 1.0,
    "mask": "none",
    "clip": 0.0,
    "dropout": True,
    "freeze_words": False,
}
"""Settings of the paper (section 4.2): Adam with one rate for all parameters, no masking."""


_CONFIG = FitConfig(steps=1)
_BATCHES = BatchOptions()

FIXED_BY_PAPER = (
    "learning_rate",
    "schedule",
    "temperature",
    "objective",
    "type_weight",
    "mask",
    "teacher",
    "distil",
    "distil_weight",
    "distil_misspelt",
    "neighbours",
)
"""Arguments that contradict `paper_settings`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitRequest:
    """A fine-tuning run, from files to a checkpoint.

    Attributes:
        base_model: Encoder to start from: a folder or a hub id.
        out: Checkpoint folder to write; state, log and curves go into its folder `training`.
        phrases: Corpus folders, freq_phrase.txt, phrase_with_etype.txt or entities.jsonl.
        aliases: Bases in any format that `ingest` reads; the names of one entity are positives of each other.
        hard_negatives: File that `mine_negatives` wrote.
        paraphrases: Files in the format of phrase_aug.jsonl.
        token_variants: Files in the format of token_aug.jsonl.
        wordnet: WordNet's `dict` folder, for synonyms.
        character_encoder: Folder that `pretrain_character_encoder` wrote.
        paper_settings: Train as in the paper: Adam at 3e-5 for all parameters, temperature 0.07, dropout, no masking,
            no aliases, each hard negative with a variant of its own. Fixes the arguments in `FIXED_BY_PAPER`.
        epochs: How often each phrase is an anchor.
        steps: Optimizer steps, instead of `epochs`.
        batch_size: Phrases per step on all processes, variants and hard negatives included.
        n_negatives: Hard negatives drawn for each anchor.
        neighbours: Alphabetical neighbours drawn together; they are hard negatives at no cost.
        learning_rate, schedule, temperature, objective, type_weight, mask: As in `FitConfig`.
        teacher: Encoder that masks the phrases it finds closer than the pair (GIST).
        distil: Phrases, as for `phrases`, whose vectors stay where the base model has them.
        distil_weight: Weight of their distance.
        distil_misspelt: Share of them that the network sees with one character edited.
        misad_weight: Weight of ULR's MiSAD beside PEARL's losses; it needs `texts` or `ngrams`. MiSAD and MLM are both
            losses of the phrase encoder alone, see `training.ulr`.
        mlm_weight: Weight of masked language modelling on them.
        texts: Their texts: plain text, one text a line, or JSON Lines with a field `text`; n-grams are random spans.
        ngrams: Folder that `find_ngrams` wrote, in place of `texts`. Its n-grams are chosen by their score, or at
            random without MLM.
        sampling: How the n-gram of a sequence is chosen, instead, see `training.ngrams.files`.
        text_batch: Sequences per step.
        text_tokens: Longer sequences are truncated.
        renormalise: Scale the sum of the vectors of n-gram and rest to unit length.
        dropout, cache_gradients, max_tokens, precision, workers: As in `FitConfig`.
        micro_batch: As there; None for what suits the device.
        train_words: Train the word embeddings too.
        save_every: Steps between two saved states; one is written every five minutes too.
        evaluation_data: Folder of evaluation sets, or "hub", to evaluate on between the steps.
        evaluation_tasks: Only these tasks.
        evaluate_every: Steps between evaluations, if there is `evaluation_data`.
        tensorboard: Write TensorBoard event files too.
        name: Name of the model; by default that of the folder `out`.
        pooling: "mean" or "cls", instead of the base model's own.
        prefix: Text before each phrase, instead of the base model's own.
        seed: Determines everything.
        restart: Start over, even if `out` holds the state of a run; by default the run resumes.
        min_count: Phrases that occur less often in a corpus are skipped.
        max_errors: Bad rows that all inputs together may have; None for any number.
        device: auto, cpu, cuda or cuda:N.
    """

    base_model: StrPath
    out: StrPath
    phrases: Paths = ()
    aliases: Paths = ()
    hard_negatives: StrPath | None = None
    paraphrases: Paths = ()
    token_variants: Paths = ()
    wordnet: StrPath | None = None
    character_encoder: StrPath | None = None
    paper_settings: bool = _BATCHES.paper_settings
    epochs: float = _BATCHES.epochs
    steps: int | None = None
    batch_size: int = _BATCHES.batch_size
    n_negatives: int = _BATCHES.n_negatives
    neighbours: int = _BATCHES.neighbours
    learning_rate: float = _CONFIG.learning_rate
    schedule: Literal["exponential", "cosine"] = _CONFIG.schedule
    temperature: float = _CONFIG.temperature
    objective: Literal["nt-xent", "multi-similarity"] = _CONFIG.objective
    type_weight: float = _CONFIG.type_weight
    mask: Literal["label", "none"] = _CONFIG.mask
    teacher: str | None = None
    distil: Paths = ()
    distil_weight: float = _CONFIG.distil_weight
    distil_misspelt: float = _BATCHES.misspelt_plain
    misad_weight: float = _CONFIG.misad_weight
    mlm_weight: float = _CONFIG.mlm_weight
    texts: Paths = ()
    ngrams: StrPath | None = None
    sampling: Sampling | None = None
    text_batch: int = 32
    text_tokens: int = 64
    renormalise: bool = False
    dropout: bool = _CONFIG.dropout
    train_words: bool = not _CONFIG.freeze_words
    cache_gradients: bool = _CONFIG.cache_gradients
    micro_batch: int | None = None
    max_tokens: int = _CONFIG.max_tokens
    precision: Literal["auto", "bf16", "fp32"] = _CONFIG.precision
    workers: int = _CONFIG.workers
    save_every: int = _CONFIG.save_every
    evaluation_data: str | None = None
    evaluation_tasks: tuple[str, ...] = ()
    evaluate_every: int = 1000
    tensorboard: bool = False
    name: str | None = None
    pooling: Literal["mean", "cls"] | None = None
    prefix: str | None = None
    seed: int = _CONFIG.seed
    restart: bool = False
    min_count: int = MIN_COUNT
    max_errors: int | None = DEFAULT_MAX_ERRORS
    device: str = DEFAULT_DEVICE

    def set_arguments(self) -> set[str]:
        """Return the names of the arguments that differ from their defaults."""
        return {field.name for field in fields(self) if getattr(self, field.name) != field.default}

    def check(self, given: Collection[str] | None = None) -> None:
        """Refuse arguments that contradict each other, before anything is read.

        Args:
            given: Names of the arguments that the caller set; by default those that differ from their defaults.

        Raises:
            OptionError: If two arguments contradict each other, or one needs another.
        """
        given = self.set_arguments() if given is None else given
        fixed = [name for name in sorted(FIXED_BY_PAPER) if name in given]
        if self.paper_settings and fixed:
            named = ", ".join(f"'{name}'" for name in fixed)
            raise OptionError("paper_settings", f"'paper_settings' fixes {named}. Leave out the one or the other.")
        if self.evaluation_tasks and not self.evaluation_data:
            raise OptionError("evaluation_tasks", "'evaluation_tasks' needs 'evaluation_data'.")
        for name in ("distil_misspelt", "distil_weight"):
            if name in given and not self.distil:
                raise OptionError(name, f"'{name}' needs 'distil'.")
        self._check_ulr(given)

    def _check_ulr(self, given: Collection[str]) -> None:
        """Refuse terms of ULR without texts, and texts without a term."""
        weighted = [name for name in ("misad_weight", "mlm_weight") if getattr(self, name)]
        if not weighted:
            for name in ("texts", "ngrams", "sampling", "text_batch", "text_tokens", "renormalise"):
                if name in given:
                    raise OptionError(name, f"'{name}' needs 'misad_weight' or 'mlm_weight'.")
        elif (self.ngrams is None) != bool(as_paths(self.texts)):
            raise OptionError(weighted[0], f"'{weighted[0]}' needs either 'texts', or the folder of 'ngrams'.")

    def ulr_request(self) -> UlrRequest | None:
        """Return what MiSAD and MLM are asked to do; None if they have no weight."""
        if not (self.misad_weight or self.mlm_weight):
            return None
        sampling = self.sampling
        if sampling is None and self.ngrams is not None and not self.mlm_weight:
            sampling = "random_ngram"  # no head that could score
        return UlrRequest(
            base=self.base_model,
            out=self.out,
            texts=self.texts,
            ngrams=self.ngrams,
            sampling=sampling,
            misad_weight=self.misad_weight,
            mlm_weight=self.mlm_weight,
            renormalise=self.renormalise,
            batch_size=self.text_batch,
            max_tokens=self.text_tokens,
            precision=self.precision,
            seed=self.seed,
            max_errors=self.max_errors,
        )

    def batch_options(self) -> BatchOptions:
        """Return how batches are made."""
        return project(BatchOptions, self, misspelt_plain=self.distil_misspelt)

    def fit_config(self, *, steps: int, device: str = "cpu") -> FitConfig:
        """Return the settings of the training loop for a number of steps on a device."""
        config = project(
            FitConfig,
            self,
            steps=steps,
            freeze_words=not self.train_words,
            micro_batch=self.micro_batch or default_micro_batch(device, cached=self.cache_gradients),
            evaluate_every=self.evaluate_every if self.evaluation_data else 0,
        )
        return replace(config, **PAPER) if self.paper_settings else config


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
