"""Measures an encoder on the paper's tasks, on entity types and on linking.

    from pearl_qdrant import evaluate_model, report_as_text

    print(report_as_text(evaluate_model("data/", "pearl-mini", tasks=["bird"])))

A new task is a module in `tasks/` and an entry in `tasks/__init__.py`. Names are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pearl_qdrant._lazy import lazy_exports

if TYPE_CHECKING:
    from training.evaluation.run import Report, as_record
    from training.evaluation.task import Task

__all__ = ["Report", "Task", "as_record"]

__getattr__, __dir__ = lazy_exports(__name__)
