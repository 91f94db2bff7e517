"""What a task is: a name, what it reads, what it needs of a method, and how it is scored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from training.evaluation.data import Data
from training.evaluation.defaults import DEFAULT_DISTRACTORS, DEFAULT_EPOCHS, DEFAULT_SEEDS
from training.evaluation.methods import Need
from training.evaluation.outcome import Outcome


@dataclass(frozen=True, slots=True)
class EvaluationOptions:
    """What holds for all tasks.

    Attributes:
        n_seeds: Runs of what is random: splits, initial weights, typos.
        n_distractors: Names at most that are added to the dictionary of entity retrieval.
        max_epochs: Of the classifiers on frozen vectors.

    Raises:
        ValueError: If one is out of range.
    """

    n_seeds: int = DEFAULT_SEEDS
    n_distractors: int = DEFAULT_DISTRACTORS
    max_epochs: int = DEFAULT_EPOCHS

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
