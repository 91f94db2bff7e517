"""The one command of docs/figures.md."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from evaluation_data import write_table

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_one_command_draws_the_figures_of_a_set(tmp_path: Path) -> None:
    """A set in a folder becomes one plot a file, with the set and what it is compared with in the legend; the page
    shows files of these names.
    """
    lines = (ROOT / "examples" / "sample_base.tsv").read_text("utf-8").splitlines()[1:201]
    entities = [tuple(line.split("\t")[:2]) for line in lines]
    folder, out = tmp_path / "toy-names", tmp_path / "pictures"
    write_table(folder, "base.tsv", "id name", entities)
    mentions = [(name[:-1], one) for one, name in entities] + [(f"Qwertz {n} Ltd", "NIL") for n in range(40)]
    write_table(folder, "mentions.tsv", "mention gold", mentions)
    script, environment = ROOT / "benchmarks" / "linking" / "figures.py", {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(script), str(folder), "--out", str(out)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    shown = re.findall(r"\]\(pictures/([\w-]+)\.svg\)", (ROOT / "docs" / "figures.md").read_text("utf-8"))

    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"toy-names: at 0\.5 precision (0\.9\d\d|1\.000), recall 0\.\d{3}\n", done.stdout)
    drawn = {path.stem: path.read_text("utf-8") for path in out.glob("*.svg")}
    assert sorted([*drawn, "time-by-size"]) == sorted(shown)  # the last with --base
    assert all("toy-names" in text for text in drawn.values())
    assert "the same by WRatio" in drawn["precision-recall"]
