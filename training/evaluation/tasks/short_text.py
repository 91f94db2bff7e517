"""Short text classification, as in the paper's Table 2: accuracy of a classifier on the frozen vector of a text.

S and L are short and long texts. The paper does not state the limit; here a tweet is short up to 10 words, a query up
to 7. Tweets are TweetEval's without the neutral ones, not the paper's corpus. ATIS is limited to its eight most
frequent single intents. The split is random; equal texts stay on the same side.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from pearl_qdrant.errors import FormatError
from training.evaluation.data import Data
from training.evaluation.methods import EncoderMethod
from training.evaluation.outcome import Outcome, mean_outcome
from training.evaluation.paper import paper_figures
from training.evaluation.task import EvaluationOptions, Task
from training.evaluation.tasks.probe import probe, split_rows

_TWITTER = ("tweets/sentiment.tsv", "label", ("0", "2"), 10)
_INTENTS = "flight airfare ground_service airline abbreviation aircraft flight_time quantity".split()
_ATIS = ("intent/atis.tsv", "intent", tuple(f"atis_{intent}" for intent in _INTENTS), 7)
_FEWEST = 20
"""Minimum number of texts to train a classifier."""


def _run(
    path: str, column: str, labels: tuple[str, ...], longest_short: int, *, short: bool
) -> Callable[[Data, EncoderMethod, EvaluationOptions], Outcome]:
    def run(data: Data, method: EncoderMethod, options: EvaluationOptions) -> Outcome:
        rows = [
            (text, label)
            for text, label in data.rows(path, "text", column)
            if label in labels and (len(text.split()) <= longest_short) == short
        ]
        if len({text.casefold() for text, _ in rows}) < _FEWEST:
            raise FormatError(path, None, f"{len(rows)} {'short' if short else 'long'} texts are too few to classify.")
        targets = np.array([labels.index(label) for _, label in rows], dtype=np.int64)
        features = torch.from_numpy(method.vectors([text for text, _ in rows]))
        groups = [text.casefold() for text, _ in rows]
        by_seed = []
        for seed in range(options.n_seeds):
            split = split_rows(groups, np.random.default_rng(seed))
            correct = probe(features, targets, split, seed=seed, max_epochs=options.max_epochs)
            by_seed.append((split.test, correct))
        return mean_outcome(by_seed)

    return run


def _task(name: str, head: str, group: str, source: tuple[str, str, tuple[str, ...], int]) -> tuple[Task, Task]:
    path, column, labels, longest = source
    short, long = (
        Task(
            f"{name}_{size.lower()}",
            f"{head}-{size}",
            group,
            "accuracy",
            "vectors",
            (path,),
            _run(path, column, labels, longest, short=size == "S"),
            paper_figures(f"{name}_{size.lower()}"),
        )
        for size in "SL"
    )
    return short, long


TASKS = (
    *_task("twitter", "Twitter", "Sentiment Analysis", _TWITTER),
    *_task("atis", "ATIS", "Intent Classification", _ATIS),
)
