"""The list of all tasks, in the order of the tables of both papers.

To add a task, write a module in `tasks/` that exports `TASKS`, and add it here.
"""

from __future__ import annotations

from training.evaluation.task import Task
from training.evaluation.tasks import (
    analogy,
    classification,
    entity_types,
    everyday,
    fuzzy_join,
    geogranno,
    glue,
    linking,
    phrases,
    squad,
)

TASKS: tuple[Task, ...] = (
    *classification.PARAPHRASE_TASKS,
    *phrases.TASKS,
    *fuzzy_join.TASKS,
    *classification.SHORT_TEXT_TASKS,
    *entity_types.TASKS,
    *analogy.TASKS,
    *geogranno.TASKS,
)
"""Tasks that run by default."""

ON_REQUEST: tuple[Task, ...] = (*linking.TASKS, *everyday.TASKS, *glue.TASKS, *squad.TASKS)
"""Tasks that take minutes each, to load bases or to encode long texts: they run only if named."""

GROUPS = {
    linking.GROUP: linking.TASKS,
    everyday.GROUP: everyday.TASKS,
    glue.GROUP: glue.TASKS,
    squad.GROUP: squad.TASKS,
}
"""Names that stand for several tasks."""


def find_tasks(names: tuple[str, ...]) -> tuple[Task, ...]:
    """The tasks with these names, in the order of the tables; without names, the default ones.

    Raises:
        ValueError: If a task does not exist.
    """
    known = {task.name: task for task in (*TASKS, *ON_REQUEST)}
    wanted = set(names) - GROUPS.keys()
    if unknown := sorted(wanted - known.keys()):
        raise ValueError(f"no task {', '.join(unknown)}; there are: {', '.join((*known, *GROUPS))}")
    wanted |= {task.name for group in set(names) & GROUPS.keys() for task in GROUPS[group]}
    return tuple(task for task in known.values() if task.name in wanted) or TASKS
