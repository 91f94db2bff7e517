"""Evaluation sets from a folder and from the hub, broken ones too.
A run over several tasks, and its report.
`pearl-qdrant evaluate` and its twin in Python.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_runner import Run
from evaluation_data import OPTIONS, Letters, run_tasks, write_table

from pearl_qdrant.errors import FormatError, OptionError, SettingsError
from training.evaluation.data import FolderData, HubData
from training.evaluation.methods import EncoderMethod, StringMethod, WordVectors
from training.evaluation.run import as_record, evaluate, evaluate_model, report_as_text, short_names
from training.evaluation.tasks import ON_REQUEST, TASKS, find_tasks


@pytest.mark.parametrize(
    "content, message",
    [
        (b"term1\tterm2\nx\ty\n", "no column relatedness; its header is term1, term2"),
        (b"", "header is empty"),
        (b"term1\tterm2\trelatedness\n", "has no rows"),
        (b"term1\tterm2\trelatedness\na\tb\n", ":2: expected 3 fields, found 2"),
        (b"term1\tterm2\trelatedness\na\tb\tmuch\n", "a relatedness is 'much', not a number"),
        (b"term1\tterm2\trelatedness\na\tb\tnan\n", "not a number"),
        (b"term1\tterm2\trelatedness\na\tb\t1\nc\t\xff\t1\n", ":3: not UTF-8"),
    ],
)
def test_the_error_for_a_broken_table_names_file_and_line(folder: Path, content: bytes, message: str) -> None:
    """The message has the file, the line if there is one, and the problem."""
    (folder / "pearl_bench" / "bird.tsv").write_bytes(content)
    with pytest.raises(FormatError) as error:
        run_tasks(folder, "bird")
    assert "bird.tsv" in str(error.value)
    assert message in str(error.value)


@pytest.mark.parametrize(
    "task, path, header, rows, message",
    [
        ("ppdb", "pearl_bench/ppdb.tsv", "phrase1 phrase2 label", [("a", "b", "maybe")], "not maybe"),
        ("conll", "pearl_bench/conll2003.tsv", "split type mention", [("train", "PER", "a")], "too few mentions"),
        ("autofj", "autofj/gt.tsv", "dataset title_l title_r", [("A", "x", "y")], "no right title has a match"),
        ("atis_s", "intent/atis.tsv", "text intent", [("a", "atis_flight")], "too few to classify"),
        (
            "types_natural",
            "typed_names/onto_typed_names.tsv",
            "name onto_type",
            [("a", "PLACE")],
            "not one of CARDINAL",
        ),
    ],
)
def test_a_table_with_impossible_values_is_an_error(
    folder: Path, task: str, path: str, header: str, rows: Sequence[Sequence[object]], message: str
) -> None:
    """Labels, types and matches are checked; the message says which are wrong."""
    write_table(folder, path, header, rows)
    with pytest.raises(FormatError, match=message):
        run_tasks(folder, task)


def hub(config: str, split: str) -> list[Mapping[str, Any]]:
    """Tables with the benchmark's columns; UMLS has a split of another name."""
    tables: dict[tuple[str, str], list[Mapping[str, Any]]] = {
        ("bird", "test"): [
            {"term1": "abc", "term2": "cba", "relatedness score": 0.9},
            {"term1": "abc", "term2": "xyz", "relatedness score": 0.1},
        ],
        ("turney", "test"): [
            {"query": "ab", "label": "ba", **{f"candidate_{i}": "xyz" + "z" * i for i in range(1, 5)}}
        ],
        ("umls", "umls"): [{"query": "abc", "label": "cba"}],
        ("kb", "umls"): [{"entity_name": "cba"}, {"entity_name": "xyz"}, {"entity_name": None}],
        ("conll", "test"): [
            {"entity": entity, "label": label} for entity, label in (("aa", 0), ("xx", 1), ("kk", 2), (None, 0))
        ],
    }
    if (config, split) not in tables:
        raise ValueError(f'Unknown split "{split}".')
    return tables[config, split]


def test_sets_from_the_hub_look_like_a_folder() -> None:
    """Configurations, columns, numbered labels and missing names are mapped to the folder layout."""
    data = HubData(load=hub)
    names = ("turney", "bird", "umls_local", "conll", "autofj")
    report = evaluate(data, EncoderMethod(Letters()), [], find_tasks(names), OPTIONS)
    values = {result.task.name: result.outcomes["letters"] for result in report.results}

    assert values["turney"].value == values["umls_local"].value == 100
    assert report.skipped["autofj"].startswith("no autofj/left.tsv")
    assert values["umls_local"].details["n_names"] == 3
    assert values["conll"].n == 4
    assert data.rows("pearl_bench/conll2003.tsv", "mention", "type")[3] == ("NA", "PER")
    with pytest.raises(SettingsError, match="ppdb has no split test"):
        data.rows("pearl_bench/ppdb.tsv", "phrase1")


def without(monkeypatch: pytest.MonkeyPatch, *libraries: str) -> None:
    """From here on these libraries are not installed."""
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in libraries else find_spec(name))


def test_the_error_for_a_missing_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `datasets` or a network there is an error with a fix."""
    without(monkeypatch, "datasets")
    with pytest.raises(SettingsError, match=r"needs the datasets library: pip install .*\[hub\]"):
        HubData().rows("pearl_bench/bird.tsv", "term1")

    def offline(config: str, split: str) -> list[Mapping[str, Any]]:
        raise ConnectionError("no route")

    with pytest.raises(SettingsError, match="could not be fetched"):
        HubData(load=offline).rows("pearl_bench/bird.tsv", "term1")


def test_tasks_without_data_are_skipped_and_named(folder: Path) -> None:
    """The report names the missing sets with their files, and what an encoder without types cannot do. The others run,
    and encode no string twice.
    """
    methods, encoder = [StringMethod("jaccard"), StringMethod("tfidf")], Letters(has_head=False)
    report = evaluate(FolderData(folder), EncoderMethod(encoder), methods, TASKS, OPTIONS)

    assert len(encoder.calls) == len(set(encoder.calls)) > 100
    assert {result.task.name for result in report.results} == {task.name for task in TASKS} - set(report.skipped)
    assert report.skipped == {
        "types_natural": "letters does not support types",
        "ppdb_filtered": "no pearl_bench/ppdb_filtered.tsv",
        "ppdb_filtered_by_pair": "no pearl_bench/ppdb_filtered.tsv",
        "umls_local": "no pearl_bench/umls_test.tsv",
        "bc5cdr": "no pearl_bench/bc5cdr.tsv",
    }
    text = report_as_text(report)
    assert "bc5cdr: no pearl_bench/bc5cdr.tsv" in text
    for head in ("PPDB by pair", "Turney", "AutoFJ typos", "Twitter-S", "ATIS-L", "PEARL-small (paper)"):
        assert head in text
    assert "letters above jaccard" in text
    with pytest.raises(ValueError, match="a name of its own"):
        evaluate(FolderData(folder), methods[0], methods, TASKS, OPTIONS)


def test_folders_are_shown_by_the_shortest_unique_path() -> None:
    """Two folders with the same name are shown with their parents."""
    assert short_names(["/a/x/model", "/b/y/model", "tiny", "owner/name"]) == {
        "/a/x/model": "x/model",
        "/b/y/model": "y/model",
        "tiny": "tiny",
        "owner/name": "owner/name",
    }


def test_the_command_prints_what_a_program_gets(run: Run, model: Path, folder: Path) -> None:
    """`evaluate` measures a checkpoint: a table with the paper's figures, or one line of JSON, which is the report that
    one call in Python returns; that passes progress to a callback.
    """
    words = ("evaluate", "--model", str(model), "--data", str(folder), "--task", "bird", "--task", "autofj")
    shown = run(*words)

    assert shown.status == 0
    assert "PEARL-small (paper)" in shown.out
    assert "tiny above jaccard" in shown.out
    (found,) = run(*words, "--task", "conll", "--baseline", "tfidf", "--json").lines()
    lines: list[str] = []
    tasks = ["bird", "conll", "autofj"]
    record: Any = as_record(evaluate_model(folder, str(model), tasks=tasks, baselines=["tfidf"], progress=lines.append))
    for task in (*found["tasks"].values(), *record["tasks"].values()):
        del task["seconds"]
    assert found == record
    assert any(line.startswith("bird: ") for line in lines)
    bird, conll, autofj = found["tasks"].values()
    assert list(found["tasks"]) == ["bird", "conll", "autofj"]
    assert bird["paper"]["PEARL-small"] == 69.7
    assert conll["metric"].startswith("NMI")
    assert bird["deviation"] is None
    assert conll["deviation"] is not None
    assert autofj["n"] == 5
    assert set(autofj["baselines"]["tfidf"]) >= {"value", "difference", "interval", "significant"}


def test_word_vectors_are_a_baseline_and_settings_are_options(run: Run, model: Path, folder: Path) -> None:
    """A name is the sum of its words' vectors, in small letters where the file has no others; `--set` has the seeds."""
    path = folder / "words.vec"
    path.write_text("heart 3 0\nattack 0 1\nHeart 0 -2\n", encoding="utf-8")
    vectors = WordVectors(path).encode(["Heart", "HEART", "heart-attack", "unknown"])
    np.testing.assert_allclose(vectors.vectors, [[0, -1], [1, 0], [0.5**0.5, 0.5**0.5], [0, 0]], atol=1e-6)
    assert vectors.encodable.tolist() == [True, True, True, False]

    words = ("evaluate", "--model", str(model), "--data", str(folder), "--task", "ppdb", "--set", "n_seeds=4")
    (found,) = run(*words, "--baseline", str(path), "--json").lines()
    assert len(found["tasks"]["ppdb"]["baselines"][str(path)]["values"]) == 4


def test_the_command_lists_its_tasks_and_rejects_unknown_ones(
    run: Run, model: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--task help` needs no other option; the error for an unknown task lists them; a missing library is named."""
    listed = run("evaluate", "--task", "help")
    assert [line.split()[0] for line in listed.out.splitlines()] == [task.name for task in (*TASKS, *ON_REQUEST)]

    wrong = run("evaluate", "--model", str(model), "--data", str(folder), "--task", "birds")
    assert wrong.status == 2
    assert "--task: no task birds; there are: ppdb" in wrong.err
    same = run("evaluate", "--model", str(model), "--data", str(folder), "--baseline", str(model))
    assert same.status == 2
    assert "--baseline: " in same.err
    absent = run("evaluate", "--model", str(model), "--data", str(folder / "absent"))
    assert absent.status == 1
    assert "No folder" in absent.err
    with pytest.raises(OptionError, match="there are: ppdb"):
        evaluate_model(folder, str(model), tasks=["birds"])
    without(monkeypatch, "sklearn")
    assert "needs sklearn" in run("evaluate", "--data", str(folder), "--task", "bird").err
