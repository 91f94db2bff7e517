"""The tasks of the evaluation, in the order of the tables of both papers; a new one is a module here and an entry."""

from __future__ import annotations

from training.evaluation.task import Task
from training.evaluation.tasks.classification import PARAPHRASE_TASKS, SHORT_TEXT_TASKS, TYPE_TASKS
from training.evaluation.tasks.linking import EVERYDAY, EVERYDAY_TASKS, LINKING, LINKING_TASKS
from training.evaluation.tasks.phrases import JOIN_TASKS, PHRASE_TASKS
from training.evaluation.tasks.universal import ANALOGY_TASKS, QUESTION_TASKS

TASKS: tuple[Task, ...] = (
    *PARAPHRASE_TASKS,
    *PHRASE_TASKS,
    *JOIN_TASKS,
    *SHORT_TEXT_TASKS,
    *TYPE_TASKS,
    *ANALOGY_TASKS,
    *QUESTION_TASKS,
)
"""Tasks that run by default."""

GROUPS = {LINKING: LINKING_TASKS, EVERYDAY: EVERYDAY_TASKS}
"""Names that stand for several tasks."""

ON_REQUEST: tuple[Task, ...] = tuple(task for tasks in GROUPS.values() for task in tasks)
"""Tasks that take minutes each, to load bases: they run only if named."""


def find_tasks(names: tuple[str, ...]) -> tuple[Task, ...]:
    """The tasks with these names, in the order of the tables; without names, the default ones. Raises ValueError if a
    task does not exist.
    """
    known = {task.name: task for task in (*TASKS, *ON_REQUEST)}
    wanted = set(names) - GROUPS.keys()
    if unknown := sorted(wanted - known.keys()):
        raise ValueError(f"no task {', '.join(unknown)}; there are: {', '.join((*known, *GROUPS))}")
    wanted |= {task.name for group in set(names) & GROUPS.keys() for task in GROUPS[group]}
    return tuple(task for task in known.values() if task.name in wanted) or TASKS
