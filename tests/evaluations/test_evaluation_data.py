"""Evaluation sets from a folder and from the hub, broken ones too."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from evaluation_data import OPTIONS, Letters, run_tasks, write_table

from pearl_qdrant.errors import FormatError, SettingsError
from training.evaluation.data import HubData
from training.evaluation.methods import EncoderMethod
from training.evaluation.registry import find_tasks
from training.evaluation.run import evaluate


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


class Frame:
    """The part of a pandas table that the reader uses."""

    def __init__(self, *records: Mapping[str, Any]) -> None:
        self.records = list(records)

    def to_dict(self, orient: str) -> list[Mapping[str, Any]]:
        assert orient == "records"
        return self.records


def hub(repository: str, config: str, split: str) -> list[Mapping[str, Any]]:
    """Tables with the benchmark's columns; UMLS has a split of another name."""
    assert repository == "Lihuchen/pearl_benchmark"
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
        ("autofj", "test"): [{"Dataset": "A"}],
    }
    if (config, split) not in tables:
        raise ValueError(f'Unknown split "{split}".')
    return tables[config, split]


def test_sets_from_the_hub_look_like_a_folder() -> None:
    """Configurations, columns, numbered labels and missing names are mapped to the folder layout."""
    join = (
        Frame({"id": 0, "title": "abcd"}, {"id": 1, "title": "xyz"}),
        Frame({"id": 0, "title": "dcba"}),
        Frame({"title_l": "abcd", "title_r": "dcba"}),
    )
    data = HubData(load=hub, load_join=lambda name: join)
    names = ("turney", "bird", "umls_local", "conll", "autofj")
    report = evaluate(data, EncoderMethod(Letters()), [], find_tasks(names), OPTIONS)
    values = {result.task.name: result.outcomes["letters"] for result in report.results}

    assert values["turney"].value == values["autofj"].value == values["umls_local"].value == 100
    assert values["umls_local"].details["n_names"] == 3
    assert values["conll"].n == 4
    assert data.rows("pearl_bench/conll2003.tsv", "mention", "type")[3] == ("NA", "PER")
    with pytest.raises(SettingsError, match="ppdb has no split test"):
        data.rows("pearl_bench/ppdb.tsv", "phrase1")


def test_the_error_for_a_missing_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `datasets` or a network there is an error with a fix; without `autofj` its tasks are skipped."""
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in ("datasets", "autofj") else find_spec(name)
    )
    with pytest.raises(SettingsError, match=r"needs the datasets library: pip install .*\[hub\]"):
        HubData().rows("pearl_bench/bird.tsv", "term1")
    assert HubData().paths("autofj/left.tsv") == []

    def offline(repository: str, config: str, split: str) -> list[Mapping[str, Any]]:
        raise ConnectionError("no route")

    with pytest.raises(SettingsError, match="could not be fetched"):
        HubData(load=offline).rows("pearl_bench/bird.tsv", "term1")
