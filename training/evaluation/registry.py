"""All tasks, in the order of the paper's tables. A new task is one more tuple here."""

from __future__ import annotations

from training.evaluation import clustering, entity_types, fuzzy_join, paraphrase, retrieval, short_text, similarity
from training.evaluation.task import Task

TASKS: tuple[Task, ...] = (
    *paraphrase.TASKS,
    *similarity.TASKS,
    *retrieval.TASKS,
    *clustering.TASKS,
    *fuzzy_join.TASKS,
    *short_text.TASKS,
    *entity_types.TASKS,
)


def find_tasks(names: tuple[str, ...]) -> tuple[Task, ...]:
    """The tasks of these names, in the order of the tables; all if there are none.

    Raises:
        ValueError: If there is no such task.
    """
    known = {task.name: task for task in TASKS}
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"no task {', '.join(unknown)}; there are: {', '.join(known)}")
    return tuple(task for task in TASKS if task.name in names) or TASKS
