"""What a task is: a name, what it reads, what it needs of a method, and how it is scored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from training.evaluation.datasets.data import Data
from training.evaluation.defaults import (
    DEFAULT_DISTRACTORS,
    DEFAULT_EPOCHS,
    DEFAULT_FOLDS,
    DEFAULT_MENTIONS,
    DEFAULT_NIL_SHARES,
    DEFAULT_SEEDS,
)
from training.evaluation.methods import Need
from training.evaluation.outcome import Outcome


@dataclass(frozen=True, slots=True)
class LinkingOptions:
    """What holds for the tasks of linking.

    Attributes:
        folds: Of the entities whose aliases are asked for, 0 to 9: the SHA-1 of their id mod 10.
        n_mentions: Of each base at most; fuzzy joins are taken whole.
        nil_shares: Shares of NIL mentions that probabilities are measured at, in [0, 1).

    Raises:
        ValueError: If one is out of range.
    """

    folds: tuple[int, ...] = DEFAULT_FOLDS
    n_mentions: int = DEFAULT_MENTIONS
    nil_shares: tuple[float, ...] = DEFAULT_NIL_SHARES

    def __post_init__(self) -> None:
        if not self.folds or not set(self.folds) <= set(range(10)):
            raise ValueError(f"folds are some of 0 to 9, not {', '.join(map(str, self.folds)) or 'none'}")
        if self.n_mentions < 1:
            raise ValueError(f"mentions must be at least 1, not {self.n_mentions}")
        if not all(0 <= share < 1 for share in self.nil_shares):
            raise ValueError(f"shares of NIL lie in [0, 1), not {', '.join(map(str, self.nil_shares))}")


@dataclass(frozen=True, slots=True)
class EvaluationOptions:
    """What holds for all tasks.

    Attributes:
        n_seeds: Runs of what is random: splits, initial weights, typos.
        n_distractors: Names at most that are added to the dictionary of entity retrieval.
        max_epochs: Of the classifiers on frozen vectors.
        linking: Of the tasks of linking.

    Raises:
        ValueError: If one is out of range.
    """

    n_seeds: int = DEFAULT_SEEDS
    n_distractors: int = DEFAULT_DISTRACTORS
    max_epochs: int = DEFAULT_EPOCHS
    linking: LinkingOptions = LinkingOptions()

    def __post_init__(self) -> None:
        if self.n_seeds < 1:
            raise ValueError(f"seeds must be at least 1, not {self.n_seeds}")
        if self.n_distractors < 0:
            raise ValueError(f"distractors must be at least 0, not {self.n_distractors}")
        if self.max_epochs < 1:
            raise ValueError(f"epochs must be at least 1, not {self.max_epochs}")


@dataclass(frozen=True, slots=True)
class Task:
    """A task of the evaluation.

    Attributes:
        name: As in `--task`.
        head: Short name above its column.
        group: Its family, as in the paper's Table 3; tasks of one group stand side by side.
        metric: What the figure is; always in percent.
        needs: What a method must offer.
        reads: Tables without which it is skipped; a pattern needs one match.
        run: From data, a method that offers what is needed, and options, to the outcome. The items and their order
            depend on data and options alone, so that two methods can be compared item by item.
        paper: The paper's figures, by model.
        in_table_3: Whether the group's mean counts it: once for each data set, by the paper's protocol.
    """

    name: str
    head: str
    group: str
    metric: str
    needs: Need
    reads: tuple[str, ...]
    run: Callable[[Data, Any, EvaluationOptions], Outcome]
    paper: Mapping[str, float] = field(default_factory=dict)
    in_table_3: bool = False
