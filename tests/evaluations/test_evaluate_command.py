"""`pearl-qdrant evaluate` and its twin in Python."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from cli_runner import Run

from pearl_qdrant.errors import OptionError
from training.evaluation.evaluate_model import evaluate_model
from training.evaluation.registry import ON_REQUEST, TASKS
from training.evaluation.run import as_record
from training.options import EvaluationOptions


def test_the_command_prints_tables_or_json(run: Run, model: Path, folder: Path) -> None:
    """`evaluate` measures a checkpoint: a table with the paper's figures, or one line of JSON."""
    words = (
        "evaluate",
        "--model",
        str(model),
        "--data",
        str(folder),
        "--task",
        "bird",
        "--task",
        "autofj",
        "--seeds",
        "1",
    )
    shown = run(*words)

    assert shown.status == 0
    assert "PEARL-small (paper)" in shown.out
    assert "tiny above jaccard" in shown.out
    found: Any = run(*words, "--baseline", "tfidf", "--json").lines()
    assert len(found) == 1
    assert found[0]["model"] == str(model)
    assert set(found[0]["tasks"]) == {"bird", "autofj"}
    assert list(found[0]["tasks"]["bird"]["baselines"]) == ["tfidf"]


def test_the_command_lists_its_tasks_and_rejects_unknown_ones(run: Run, model: Path, folder: Path) -> None:
    """`--list` needs no other option; the usage error for an unknown task lists all tasks."""
    listed = run("evaluate", "--list")
    assert [line.split()[0] for line in listed.out.splitlines()] == [task.name for task in (*TASKS, *ON_REQUEST)]

    wrong = run("evaluate", "--model", str(model), "--data", str(folder), "--task", "birds")
    assert wrong.status == 2
    assert "there are: ppdb" in wrong.err
    absent = run("evaluate", "--model", str(model), "--data", str(folder / "absent"))
    assert absent.status == 1
    assert "No folder" in absent.err


def test_missing_libraries_are_reported_first(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without scikit-learn the command names the extra."""
    find_spec = importlib.util.find_spec
    excluded = {"sklearn"}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in excluded else find_spec(name))
    assert "needs sklearn" in run("evaluate", "--data", str(folder), "--task", "bird").err


def test_a_program_can_evaluate_like_the_command(run: Run, model: Path, folder: Path) -> None:
    """One call returns the report that the command prints, and passes progress to a callback."""
    lines: list[str] = []
    one = EvaluationOptions(n_seeds=1)
    report = evaluate_model(folder, str(model), tasks=["bird"], baselines=["tfidf"], options=one, progress=lines.append)
    words = f"--task bird --baseline tfidf --seeds 1 --json --model {model} --data {folder}".split()
    command = run("evaluate", *words)

    def timeless(record: Any) -> Any:
        return [{key: value for key, value in task.items() if key != "seconds"} for task in record["tasks"].values()]

    assert timeless(as_record(report)) == timeless(command.lines()[0])
    assert any(line.startswith("bird: ") for line in lines)
    with pytest.raises(OptionError, match="there are: ppdb"):
        evaluate_model(folder, str(model), tasks=["birds"])
