"""What a step of ULR learns from: sequences that are drawn, an n-gram of each, and masks.

All of it is a function of seed and step, so that a resumed run sees the same.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from training.networks.phrase_vectors import device_of, find_precision
from training.ngrams.files import MarkedSequence
from training.ngrams.sampling import choose_spans
from training.ulr.network import UlrNetwork
from training.ulr.request import UlrConfig
from training.ulr.scoring import NetworkScorer
from training.ulr.views import Masking, TokenisedSequence, Views, make_views, tokenise


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


class ViewDrawer:
    """Draws what the network sees in a step.

    Args:
        network: Scores n-grams, where they are chosen by their score.
        data: The sequences.
        config: How many are drawn, and how n-grams are chosen.
    """

    def __init__(self, network: UlrNetwork, data: UlrData, config: UlrConfig) -> None:
        self._network, self._data, self._config = network, data, config
        self._precision = find_precision(config.precision, device_of(network))

    def views(self, step: int, *, head_only: bool) -> list[Views]:
        """Draw the sequences of a step, from 1, choose their n-grams and mask them.

        Args:
            step: Its number and the seed decide everything.
            head_only: Choose no n-grams, as while the encoder is fixed.
        """
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


def _covered(
    marked: MarkedSequence, sequence: TokenisedSequence, most: int | None, rng: random.Random
) -> MarkedSequence:
    """Return the part of a sequence that its tokens cover, with at most so many of its n-grams."""
    spans = tuple(span for span in marked.spans if span.end <= len(sequence.text))
    if most is not None and len(spans) > most:
        spans = tuple(spans[i] for i in sorted(rng.sample(range(len(spans)), most)))
    return replace(marked, text=sequence.text, spans=spans)
