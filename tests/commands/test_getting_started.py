"""docs/getting-started.md and the tutorials, done as they say."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
from pathlib import Path

import pytest
from cli_runner import Run
from printed_output import assert_shown

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = [DOCS / "getting-started.md", *sorted((DOCS / "tutorials").glob("*.md"))]

INSTALLING = ("python3 -m venv .venv", ". .venv/bin/activate", "pip install .")
"""What the tests' own environment stands for."""

TEN_MINUTES = ("companies", "notes", "duckdb", "rag")
"""The pages of a newcomer with a table, a biologist, a data engineer and a developer of a RAG."""


@pytest.mark.parametrize("name", TEN_MINUTES)
def test_a_page_of_ten_minutes_is_short_and_begins_with_the_installation(name: str) -> None:
    """README leads there; what I copy first installs the package; the page ends within 60 lines."""
    text = (DOCS / "tutorials" / f"{name}.md").read_text("utf-8")

    assert f"](docs/tutorials/{name}.md)" in (DOCS.parent / "README.md").read_text("utf-8")
    assert len(text.splitlines()) <= 60
    assert text.partition("```sh\n")[2].startswith("pip install ")


def run_block(language: str, block: str, run: Run, names: dict[str, object]) -> str:
    """Standard output of a block of commands, or of Python with the names of the blocks before."""
    if language == "python":
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block, "block", "exec"), names)
        return printed.getvalue()
    printed_by_commands = ""
    for line in block.splitlines():
        if line in INSTALLING or line.startswith("pip install '.["):
            continue
        program, *words = shlex.split(line)
        assert program == "pearl-qdrant", line
        outcome = run(*words)
        assert outcome.status == 0, outcome.err
        printed_by_commands += outcome.out
    return printed_by_commands


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_runs_and_shows_what_it_says(
    page: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Following it from top to bottom works, and each answer that it shows is the one that I get."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```(sh|python|text)\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    printed, names = "", {"__name__": "__main__"}
    for language, block in blocks:
        if language == "text":
            assert_shown(printed, block)
        else:
            printed = run_block(language, block, run, names)

    assert {language for language, _ in blocks} == {"sh", "python", "text"}


SKILL = DOCS.parent / "skills" / "pearl-qdrant" / "SKILL.md"

NAMES = {"nyt": "The New York Times", "mi": "myocardial infarction"}


@pytest.mark.slow
def test_an_agent_can_follow_the_skill(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command of the skill works as it stands, one after the other, on files of the names that it has."""
    monkeypatch.chdir(tmp_path)
    pairs = [(f"{name[:-1]}{letter}", one) for one, name in NAMES.items() for letter in "abcdefgh"]
    pairs += [(f"qwertz {n}", "") for n in range(16)]
    for name, lines in (
        ("names.csv", ["id,name,aliases", *(f"{one},{name}," for one, name in NAMES.items())]),
        ("names.txt", NAMES.values()),
        ("notes.jsonl", [json.dumps({"id": "n1", "text": "She denies asthma."})]),
        ("hp.obo", ["format-version: 1.2", "", "[Term]", "id: HP:0002099", "name: Asthma"]),
        ("pairs.tsv", map("\t".join, pairs)),
    ):
        Path(name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    text = re.sub(r"\n +", " ", SKILL.read_text("utf-8"))
    lines = re.findall(r"`pearl-qdrant ([^`]* --[^`]*)`", text)
    failed = {line: outcome.err for line in lines if (outcome := run(*shlex.split(line))).status != 0}

    assert {line.split()[0] for line in lines} >= {"ingest", "link", "annotate", "learn", "calibrate"}
    assert len(lines) >= 8
    assert failed == {}
