"""`Task` and the options of all tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from training.evaluation.data import Data
from training.evaluation.methods import Need
from training.evaluation.outcome import Outcome
from training.options import (
    DEFAULT_DISTRACTORS,
    DEFAULT_EPOCHS,
    DEFAULT_MENTIONS,
    DEFAULT_NIL_SHARES,
    DEFAULT_SEEDS,
    DEFAULT_SPLITS,
)


@dataclass(frozen=True, slots=True)
class LinkingOptions:
    """Options of the linking tasks.

    Attributes:
        splits: Splits (0 to 9, the SHA-1 of the id mod 10) of the entities whose aliases are the mentions.
        n_mentions: At most this many mentions of each base; fuzzy joins use all, and everyday mentions of a large base
            are fewer.
        nil_shares: Shares of NIL mentions, in [0, 1), at which probabilities are measured.

    Raises:
        ValueError: If one is out of range.
    """

    splits: tuple[int, ...] = DEFAULT_SPLITS
    n_mentions: int = DEFAULT_MENTIONS
    nil_shares: tuple[float, ...] = DEFAULT_NIL_SHARES

    def __post_init__(self) -> None:
        if not self.splits or not set(self.splits) <= set(range(10)):
            raise ValueError(f"splits are some of 0 to 9, not {', '.join(map(str, self.splits)) or 'none'}")
        if self.n_mentions < 1:
            raise ValueError(f"mentions must be at least 1, not {self.n_mentions}")
        if not all(0 <= share < 1 for share in self.nil_shares):
            raise ValueError(f"shares of NIL must be in [0, 1), not {', '.join(map(str, self.nil_shares))}")


@dataclass(frozen=True, slots=True)
class EvaluationOptions:
    """Options of all tasks.

    Attributes:
        n_seeds: Number of runs with other random splits, initial weights and typos.
        n_distractors: At most this many names are added to the dictionary of entity retrieval.
        max_epochs: Maximum number of epochs of the classifiers on frozen vectors.
        linking: Options of the linking tasks.

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
        name: Name by which a user selects it.
        head: Short name, the heading of its column.
        group: Its family, as in PEARL's Table 3. Tasks of one group share a table.
        metric: Name of the figure, which is in percent.
        needs: What a method must support.
        reads: Tables that it needs; a pattern needs at least one match. If one is missing, the task is skipped.
        run: Computes the outcome from data, a method that supports `needs`, and options. The items and their order
            depend on data and options only, so that methods can be compared item by item.
        paper: The paper's figures, by model.
        in_table_3: Whether it counts in the mean of its group: one task for each data set, the one with the paper's
            protocol.
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

    @property
    def is_linking(self) -> bool:
        """Whether it measures linking methods, not encoders or string similarities."""
        return self.needs in ("linking", "large_linking")

    @property
    def description(self) -> str:
        """Group, metric and files, in one line."""
        return f"{self.group}: {self.metric}. Reads {', '.join(self.reads)}"
