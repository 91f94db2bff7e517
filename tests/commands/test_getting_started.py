"""docs/getting-started.md, done as it says."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest
from cli_runner import Run

PAGE = Path(__file__).resolve().parents[2] / "docs" / "getting-started.md"

BLOCKS = re.findall(r"^```(sh|python|text)\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)

INSTALLING = ("python3 -m venv .venv", ". .venv/bin/activate", "pip install .")
"""What the tests' own environment stands for."""


def run_block(language: str, block: str, run: Run) -> str:
    """Standard output of a block of commands or of Python."""
    if language == "python":
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block, str(PAGE), "exec"), {})
        return printed.getvalue()
    printed_by_commands = ""
    for line in block.splitlines():
        if line in INSTALLING:
            continue
        program, *words = shlex.split(line)
        assert program == "pearl-qdrant", line
        outcome = run(*words)
        assert outcome.status == 0, outcome.err
        printed_by_commands += outcome.out
    return printed_by_commands


def without_fractions(text: str) -> str:
    """Scores differ in their last digits from one processor to another."""
    return re.sub(r"\d\.\d+", "#", text)


def test_getting_started_runs_and_shows_what_it_says(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Following the page from top to bottom works, and each answer that it shows is the one that I get."""
    monkeypatch.chdir(tmp_path)
    printed, shown = "", 0
    for language, block in BLOCKS:
        if language == "text":
            assert without_fractions(printed) == without_fractions(block)
            shown += 1
        else:
            printed = run_block(language, block, run)

    assert shown > 4
