"""All tasks, in the order of the paper's tables. A new task is one more tuple here."""

from __future__ import annotations

from training.evaluation.linking import (
    task as linking,
)
from training.evaluation.task import Task
from training.evaluation.tasks import (
    clustering,
    entity_types,
    fuzzy_join,
    paraphrase,
    retrieval,
    short_text,
    similarity,
)

TASKS: tuple[Task, ...] = (
    *paraphrase.TASKS,
    *similarity.TASKS,
    *retrieval.TASKS,
    *clustering.TASKS,
    *fuzzy_join.TASKS,
    *short_text.TASKS,
    *entity_types.TASKS,
)

ON_REQUEST: tuple[Task, ...] = linking.TASKS
"""Tasks that load bases, minutes each: only run where they are named."""


def find_tasks(names: tuple[str, ...]) -> tuple[Task, ...]:
    """The tasks of these names, in the order of the tables; all but those on request if there are none.

    Raises:
        ValueError: If there is no such task.
    """
    known = {task.name: task for task in (*TASKS, *ON_REQUEST)}
    wanted = {name for name in names if name != linking.GROUP}
    if unknown := sorted(wanted - known.keys()):
        raise ValueError(f"no task {', '.join(unknown)}; there are: {', '.join((*known, linking.GROUP))}")
    if linking.GROUP in names:
        wanted |= {task.name for task in linking.TASKS}
    return tuple(task for task in known.values() if task.name in wanted) or TASKS
