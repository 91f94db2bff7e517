"""The steps of ULR training.

    each step: draw sequences -> choose an n-gram of each (`training.ngrams.sampling`) -> mask
               -> L = MiSAD + MLM, part by part -> Adam

Batches, n-grams, masks and dropout are functions of seed and step, so that a resumed run ends with the same weights.

Cost: a step of 64 sentences (28 tokens each) through 6 layers of 384 with a vocabulary of 30,522 takes 7 to 10 s of one
core in fp32; with 8 n-grams of each scored, about 15 s.
"""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from tqdm import tqdm

from pearl_qdrant.errors import TrainingError
from training.loop.curves import RunLog
from training.loop.interruption import StopRequest, deferred_stop
from training.loop.run_state import RunState, is_due
from training.networks.phrase_vectors import device_of, find_precision
from training.ngrams.files import MarkedSequence
from training.ngrams.sampling import choose_spans
from training.ulr.config import UlrConfig
from training.ulr.network import UlrNetwork
from training.ulr.objective import UlrLosses, backward
from training.ulr.scoring import NetworkScorer
from training.ulr.views import Masking, TokenisedSequence, Views, make_views, tokenise

STATE = "state.safetensors"


@dataclass(frozen=True, slots=True)
class UlrRecord:
    """Figures of one step.

    Attributes:
        step: From 1.
        misad: MiSAD before its weight; 0 while the head is trained alone.
        mlm: MLM loss in nats, before its weight.
        learning_rate: Learning rate of what is trained.
        seconds: Duration of the step.
        sequences: Sequences of the step.
        spans: Those with an n-gram.
    """

    step: int
    misad: float
    mlm: float
    learning_rate: float
    seconds: float
    sequences: int
    spans: int


@dataclass(frozen=True, slots=True)
class UlrData:
    """What a run learns from.

    Attributes:
        sequences: The texts with their n-grams.
        tokenizer: A `tokenizers.Tokenizer` without padding and truncation.
        masking: How tokens are masked.
        prefix: Text before each sequence, n-gram and rest.
        lowercase: Whether texts are lower-cased first.
        digest: Identifies the sequences, so that a run resumes with the same ones.
        limit: At most this many of the sequences, drawn at random; None for all.
    """

    sequences: Sequence[MarkedSequence]
    tokenizer: Any
    masking: Masking
    prefix: str = ""
    lowercase: bool = False
    digest: str = ""
    limit: int | None = None

    def __len__(self) -> int:
        return len(self.sequences) if self.limit is None else min(self.limit, len(self.sequences))

    def draw(self, step: int, n: int, *, seed: int) -> list[MarkedSequence]:
        """Return the sequences of a step, from 1: each once an epoch, in another order every epoch."""
        chosen = _chosen(len(self.sequences), len(self), seed)
        places = (divmod(place, len(self)) for place in range((step - 1) * n, step * n))
        return [self.sequences[int(chosen[_order(len(self), seed, epoch)[i]])] for epoch, i in places]

    def identity(self) -> dict[str, Any]:
        """Return what identifies the data."""
        return {"sequences": self.digest, "n_sequences": len(self), "prefix": self.prefix}


@functools.lru_cache(maxsize=1)
def _chosen(total: int, n: int, seed: int) -> npt.NDArray[np.int64]:
    """The numbers of n sequences of all, in order."""
    if n == total:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(total, n, replace=False))


@functools.lru_cache(maxsize=2)
def _order(n: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """The order of n sequences in an epoch."""
    return np.random.default_rng([seed, epoch]).permutation(n)


def fit_ulr(
    network: UlrNetwork,
    data: UlrData,
    config: UlrConfig,
    folder: Path,
    *,
    resume: bool = True,
    tensorboard: bool = False,
    on_step: Callable[[UlrRecord], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Train `network` in place, on the device where it is.

    Writes state.safetensors (to resume), log.csv and curves.png. On Ctrl-C or SIGTERM it finishes its step and writes
    its state before it stops.

    Args:
        network: Its encoder and its MLM head are trained.
        data: What to learn from.
        config: How to train.
        folder: Created if absent.
        resume: Resume from the state in `folder`, if there is one; otherwise the state is removed.
        tensorboard: Write event files too.
        on_step: Called with the figures of each step.
        clock: Returns seconds; decides when a state is due by time.

    Raises:
        TrainingError: If the state in `folder` is of another run, or a loss is not finite.
        SettingsError: If TensorBoard is requested but not installed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    optimizer = torch.optim.Adam(network.parameters(), lr=config.learning_rate)
    state = RunState(folder / STATE, network, optimizer, {**config.identity(), **data.identity()})
    done = state.load() if resume else state.clear()
    loop = _Loop(network, data, config, optimizer)
    with deferred_stop() as stop, ExitStack() as stack:
        log = stack.enter_context(RunLog(folder, done=done, tensorboard=tensorboard, record=UlrRecord))
        bar = stack.enter_context(tqdm(desc="ulr", unit="step", initial=done, total=config.steps))
        saver = _Saver(state, log, config, stop, clock)
        for step in range(done + 1, config.steps + 1):
            record = loop.step(step)
            log.step(record)
            bar.update()
            bar.set_postfix(misad=f"{record.misad:.5f}", mlm=f"{record.mlm:.3f}", refresh=False)
            on_step(record)
            saver.after(step)
            if stop:
                break
    network.requires_grad_(True)
    network.eval()


class _Saver:
    """Writes the state when it is due: every few steps, every few minutes, at the end and on a stop request."""

    def __init__(
        self, state: RunState, log: RunLog, config: UlrConfig, stop: StopRequest, clock: Callable[[], float]
    ) -> None:
        self._state, self._log, self._config, self._stop, self._clock = state, log, config, stop, clock
        self._saved_at = clock()

    def after(self, step: int) -> None:
        """Save after a step if it is due."""
        is_last = step == self._config.steps
        is_overdue = self._clock() - self._saved_at >= self._config.save_seconds
        if is_last or self._stop or is_overdue or is_due(step, self._config.save_every):
            self._state.save(step)
            self._saved_at = self._clock()
            self._log.plot(final=is_last)


class _Loop:
    """The steps of a run."""

    def __init__(self, network: UlrNetwork, data: UlrData, config: UlrConfig, optimizer: torch.optim.Optimizer) -> None:
        self._network, self._data, self._config, self._optimizer = network, data, config, optimizer
        self._precision = find_precision(config.precision, device_of(network))

    def step(self, step: int) -> UlrRecord:
        """Take a step."""
        began = time.perf_counter()
        network, config = self._network, self._config
        head_only = config.is_head_step(step)
        # In these steps the encoder has no dropout either: the head learns to read the vectors that it will see.
        network.train(config.dropout and not head_only)
        network.encoder.requires_grad_(not head_only)
        torch.manual_seed(hash((config.seed, step)))  # of integers: the same in every process
        for group in self._optimizer.param_groups:
            group["lr"] = config.rate(step)
        self._optimizer.zero_grad()
        views = self._views(step, head_only=head_only)
        losses = backward(network, views, config, precision=self._precision, head_only=head_only)
        self._check(step, losses)
        if config.clip:
            nn.utils.clip_grad_norm_(network.parameters(), config.clip)
        self._optimizer.step()
        return UlrRecord(
            step=step,
            misad=losses.misad,
            mlm=losses.mlm,
            learning_rate=config.rate(step),
            seconds=time.perf_counter() - began,
            sequences=len(views),
            spans=losses.n_spans,
        )

    def _views(self, step: int, *, head_only: bool) -> list[Views]:
        """Draw the sequences of a step, choose their n-grams and mask them."""
        data, config = self._data, self._config
        drawn = data.draw(step, config.batch_size, seed=config.seed)
        sequences = tokenise(
            data.tokenizer,
            [marked.text for marked in drawn],
            prefix=data.prefix,
            max_tokens=config.max_tokens,
            lowercase=data.lowercase,
        )
        spans: list[tuple[int, int] | None] = [None] * len(sequences)
        if config.misad_weight and not head_only:
            spans = self._choose(drawn, sequences, random.Random(f"spans {config.seed} {step}"))
        rng = np.random.default_rng([config.seed, step])
        return [make_views(one, span, data.masking, rng) for one, span in zip(sequences, spans, strict=True)]

    def _choose(
        self, drawn: Sequence[MarkedSequence], sequences: Sequence[TokenisedSequence], rng: random.Random
    ) -> list[tuple[int, int] | None]:
        """Choose the n-gram of each sequence: its tokens, or None."""
        config = self._config
        # Only scoring costs a forward pass for each n-gram.
        most = config.n_scored if config.sampling == "lowest_score" else None
        candidates = [_covered(*pair, most, rng) for pair in zip(drawn, sequences, strict=True)]
        scorer = NetworkScorer(
            self._network,
            {sequence.text: sequence for sequence in sequences},
            mask_id=self._data.masking.mask_id,
            batch=config.micro_batch,
            precision=self._precision,
        )
        chosen = choose_spans(candidates, config.sampling, rng=rng, score=scorer)
        return [
            None if span is None else sequence.token_span((span.start, span.end))
            for sequence, span in zip(sequences, chosen, strict=True)
        ]

    def _check(self, step: int, losses: UlrLosses) -> None:
        """Stop where a loss is not finite."""
        if not abs(losses.misad + losses.mlm) < float("inf"):
            raise TrainingError(
                f"step {step}: the loss is {losses.misad} (MiSAD) and {losses.mlm} (MLM). Start over with a learning "
                f"rate below {self._config.learning_rate}, or in fp32"
            )


def _covered(
    marked: MarkedSequence, sequence: TokenisedSequence, most: int | None, rng: random.Random
) -> MarkedSequence:
    """Return the part of a sequence that its tokens cover, with at most so many of its n-grams."""
    spans = tuple(span for span in marked.spans if span.end <= len(sequence.text))
    if most is not None and len(spans) > most:
        spans = tuple(spans[i] for i in sorted(rng.sample(range(len(spans)), most)))
    return replace(marked, text=sequence.text, spans=spans)
