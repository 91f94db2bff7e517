"""A run over several tasks, and its report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from evaluation_data import OPTIONS, Letters, run_tasks

from pearl_qdrant.errors import OptionError, SettingsError
from training.evaluation.data import FolderData
from training.evaluation.methods import EncoderMethod, StringMethod
from training.evaluation.registry import TASKS, find_tasks
from training.evaluation.run import as_record, evaluate, report_as_text, short_names
from training.options import EvaluationOptions


def test_each_string_is_encoded_once_across_tasks(folder: Path) -> None:
    """All tasks together never encode a string twice."""
    encoder = Letters()
    tasks = [task for task in TASKS if "ppdb" not in task.name and "_s" not in task.name]
    report = evaluate(FolderData(folder), EncoderMethod(encoder), [], tasks, OPTIONS)

    assert len(encoder.calls) == len(set(encoder.calls)) > 500
    assert {result.task.name for result in report.results} == {task.name for task in tasks} - set(report.skipped)


def test_tasks_without_data_are_skipped_and_named(folder: Path) -> None:
    """The report names the missing sets with their files; other tasks run."""
    report = run_tasks(folder, baselines=[StringMethod("jaccard"), StringMethod("tfidf")])

    assert report.skipped == {
        "ppdb_filtered": "no pearl_bench/ppdb_filtered.tsv",
        "ppdb_filtered_by_pair": "no pearl_bench/ppdb_filtered.tsv",
        "umls_local": "no pearl_bench/umls_test.tsv",
        "bc5cdr": "no pearl_bench/bc5cdr.tsv",
    }
    text = report_as_text(report)
    assert "bc5cdr: no pearl_bench/bc5cdr.tsv" in text
    for head in ("PPDB by pair", "Turney", "AutoFJ typos", "Twitter-S", "ATIS-L", "balanced", "PEARL-small (paper)"):
        assert head in text
    assert "letters above jaccard" in text


def test_a_model_without_a_head_skips_the_types(folder: Path) -> None:
    """An encoder without types runs all other tasks."""
    method = EncoderMethod(Letters(has_head=False))
    report = evaluate(FolderData(folder), method, [], find_tasks(("bird", "types_natural")), OPTIONS)

    assert [result.task.name for result in report.results] == ["bird"]
    assert report.skipped == {"types_natural": "letters does not support types"}


def test_the_json_record_has_the_documented_fields(folder: Path) -> None:
    """It has model, tasks, metric, value, n, deviation, differences and the paper's figures."""
    record: Any = as_record(run_tasks(folder, "conll", "autofj", baselines=[StringMethod("tfidf")]))

    assert record["model"] == "letters"
    assert list(record["tasks"]) == ["conll", "autofj"]
    conll, autofj = record["tasks"]["conll"], record["tasks"]["autofj"]
    assert conll["metric"].startswith("NMI")
    assert conll["paper"]["PEARL-small"] == 48.7
    assert conll["deviation"] == 0
    assert autofj["n"] == 5
    assert set(autofj["baselines"]["tfidf"]) >= {"value", "difference", "interval", "significant"}


def test_methods_and_options_are_checked(folder: Path) -> None:
    """A repeated name, no seed, an unknown task and a missing folder are errors."""
    with pytest.raises(ValueError, match="a name of its own"):
        run_tasks(folder, "bird", baselines=[StringMethod("jaccard"), StringMethod("jaccard")])
    for wrong in ("n_seeds", "max_epochs"):
        with pytest.raises(OptionError, match=f"'{wrong}' is 0, but must be at least 1"):
            EvaluationOptions(**{wrong: 0})
    with pytest.raises(ValueError, match="no task nope; there are: ppdb, "):
        find_tasks(("nope", "bird"))
    with pytest.raises(SettingsError, match="No folder"):
        FolderData(folder / "absent")


def test_folders_are_shown_by_the_shortest_unique_path() -> None:
    """Two folders with the same name are shown with their parents."""
    assert short_names(["/a/x/model", "/b/y/model", "tiny", "owner/name"]) == {
        "/a/x/model": "x/model",
        "/b/y/model": "y/model",
        "tiny": "tiny",
        "owner/name": "owner/name",
    }
