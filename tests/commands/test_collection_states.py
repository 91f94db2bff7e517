"""Incomplete collections and empty mentions on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_runner import Run
from edge_cases import copy_files
from linker_base import ENTITIES, fill

from pearl_qdrant import EntityLinker
from pearl_qdrant.errors import IncompleteError
from pearl_qdrant.store import open_store


@pytest.fixture(scope="module")
def filled_store(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A store with a complete collection and one whose load did not finish."""
    path = tmp_path_factory.mktemp("filled")
    for name in ("whole", "part"):
        fill(path, name, str(model), ENTITIES, is_loaded=name == "whole")
    store = open_store(path)
    part = store.open("part")
    part.write_manifest(part.manifest.model_copy(update={"state": "loading"}))
    store.close()
    return path


@pytest.fixture
def loaded(run: Run, filled_store: Path, tmp_path: Path) -> Run:
    """The command line with a copy of the store."""
    copy_files(filled_store, tmp_path / "store")
    return run


WARNING = "Collection 'part' is incomplete, so answers may be missing or wrong: its load did not finish."


@pytest.mark.parametrize("words", [("link", "NYTimes"), ("annotate", "NYTimes is here.")])
def test_an_incomplete_collection_is_a_warning_or_an_error(
    loaded: Run, caplog: pytest.LogCaptureFixture, tmp_path: Path, words: tuple[str, ...]
) -> None:
    """The answer is on stdout, the warning on stderr with what to do; in Python it can be an error."""
    found = loaded(*words, "--collection", "part", "--threshold", "0", "--json")
    assert found.status == 0
    assert WARNING in caplog.text  # which a command shows on stderr
    assert "Run the same ingest command again" in caplog.text
    assert all(str(line["warnings"]).count(WARNING) == 1 for line in found.lines())
    assert WARNING not in loaded(*words, "--collection", "part", "--threshold", "0").out

    with pytest.raises(IncompleteError, match=WARNING):
        EntityLinker.open("part", store=str(tmp_path / "store"), strict=True)


def test_the_list_is_a_table_of_states_and_counts(loaded: Run, model: Path) -> None:
    """I see at once which collections are complete, how large they are, and what made them."""
    found = loaded("collections", "list")
    header, part, whole = (line.split() for line in found.out.splitlines())

    assert header == ["collection", "state", "kb", "entities", "names", "model", "calibrated"]
    assert whole == ["whole", "ready", "whole", "7", "16", str(model), "no"]
    assert part == ["part", "unfinished", "part", "7", "16", str(model), "no"]
    assert found.err.splitlines() == [
        "part: its load did not finish. Run the same ingest command again; it resumes where it stopped."
    ]
    records = loaded("collections", "list", "--json").lines()
    assert [(one["collection"], one["state"], one["names"]) for one in records] == [
        ("part", "unfinished", 16),
        ("whole", "ready", 16),
    ]


def test_show_says_what_is_unfinished(loaded: Run) -> None:
    """The facts of a collection come with what to do; a complete one needs nothing, and its links have no warnings."""
    shown = loaded("collections", "show", "part")
    assert "part: its load did not finish." in shown.err
    assert str(loaded("collections", "show", "part", "--json").lines()[0]["problem"]).startswith("its load did not")
    verified = loaded("collections", "verify", "part")
    assert (verified.status, "Run the same ingest command again" in verified.out) == (1, True)
    assert loaded("collections", "show", "whole").err == ""
    found = loaded("link", "NYTimes", "--collection", "whole", "--json")
    assert (found.status, found.err) == (0, "")
    assert "warnings" not in found.lines()[0]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_answers_match_the_lines_of_a_file(loaded: Run, tmp_path: Path, end: str) -> None:
    """An empty line of a file, or of standard input, gets an empty answer, so that I can paste the two together."""
    text = end.join(["NYTimes", "", "  ", "NYC", "", ""]).encode()
    path = tmp_path / "mentions.txt"
    path.write_bytes(text)
    options = ("--collection", "whole", "--threshold", "0", "--limit", "1")

    found = loaded("link", "--file", str(path), "--json", *options)
    assert [(one["mention"], one["entity_id"]) for one in found.lines()] == [
        ("NYTimes", "nyt"),
        ("", None),
        ("  ", None),
        ("NYC", "nyc"),
        ("", None),
    ]
    assert found.lines()[1] == {
        "mention": "",
        "entity_id": None,
        "canonical_name": None,
        "probability": None,
        "nil_reason": "no_candidates",
        "candidates": [],
        "kb": None,
        "rule": None,
    }
    assert loaded("link", "--file", "-", "--json", *options, stdin=text).out == found.out
    heads = [line for line in loaded("link", "--file", str(path), *options).out.split("\n") if line[:4] != "    "]
    assert [line.split("  ->")[0] for line in heads] == ["NYTimes", "", "", "NYC", "", ""]
    assert json.loads(loaded("link", "", "--json", *options).out)["entity_id"] is None
