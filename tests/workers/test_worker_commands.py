"""The option `--workers` of `link` and `annotate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_runner import Run
from worker_cases import CLOSE

ROWS = "id\tname\taliases\nnyc\tNew York\tNYC|Big Apple\nnyt\tThe New York Times\tNYTimes\nmi\theart attack\t\n"
LINES = "NYC\n\nheart atack\nNYTimes\nnothing of it\nBig Apple\nNew York\nNYC\nnyt\n"


@pytest.fixture
def base(run: Run, tmp_path: Path, model: Path) -> None:
    """The collection `base`."""
    (tmp_path / "base.tsv").write_text(ROWS)
    assert run("ingest", str(tmp_path / "base.tsv"), "--collection", "base", "--model", str(model)).status == 0


def without_numbers(value: Any) -> Any:
    """A JSON value with its floating-point numbers cut to what does not depend on the batch."""
    if isinstance(value, float):
        return round(value / CLOSE / 100)
    if isinstance(value, dict):
        return {key: without_numbers(one) for key, one in value.items()}
    return [without_numbers(one) for one in value] if isinstance(value, list) else value


@pytest.mark.usefixtures("base")
@pytest.mark.parametrize("command", ["link", pytest.param("annotate", marks=pytest.mark.slow)])
def test_a_file_is_answered_the_same_by_workers(run: Run, tmp_path: Path, command: str) -> None:
    """With --workers the command prints what it prints without."""
    (tmp_path / "mentions.txt").write_text(LINES)
    options = (command, "--file", str(tmp_path / "mentions.txt"), "--json", "--threshold", "0")

    alone = run(*options, "--workers", "1")
    found = run(*options, "--workers", "2")

    assert (alone.status, found.status, found.err) == (0, 0, alone.err)
    ours, theirs = ([json.loads(line) for line in out.splitlines()] for out in (found.out, alone.out))
    assert without_numbers(ours) == without_numbers(theirs)
    assert len(ours) > 3


def test_workers_are_for_many_mentions(run: Run, tmp_path: Path) -> None:
    """--workers without a file, with documents, or below 1 is a wrong use that says why."""
    (tmp_path / "documents.jsonl").write_text("")

    assert "--workers is for --file" in run("link", "NYC", "--workers", "2").err
    assert "--workers is for --file" in run("annotate", "NYC", "--workers", "2").err
    documents = run("link", "--file", str(tmp_path / "documents.jsonl"), "--workers", "2")
    assert "documents are linked one after the other" in documents.err
    assert run("link", "--file", "-", "--workers", "0").status == 2
