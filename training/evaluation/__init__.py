"""Measures an encoder on the paper's tasks, on entity types and on linking.

    from training.evaluation import as_text
    from training.evaluation.evaluate_model import evaluate_model

    print(as_text(evaluate_model("data/", "pearl-mini-en", tasks=["bird"])))

A new task is a module in `tasks/` and an entry in `registry.py`. Names are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pearl_qdrant._lazy import lazy_exports

if TYPE_CHECKING:
    from training.evaluation.evaluate_model import list_tasks
    from training.evaluation.reports.table import as_text
    from training.evaluation.run import Report, as_record
    from training.evaluation.task import Task

__all__ = ["Report", "Task", "as_record", "as_text", "list_tasks"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "Report": "training.evaluation.run",
        "Task": "training.evaluation.task",
        "as_record": "training.evaluation.run",
        "as_text": "training.evaluation.reports.table",
        "list_tasks": "training.evaluation.evaluate_model",
    },
)
