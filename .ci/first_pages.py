"""Time the pages of ten minutes, each from an empty folder: a new environment, the installation, all that it says.

    python .ci/first_pages.py               the four tutorials of a newcomer
    python .ci/first_pages.py companies     one of docs/tutorials

The wheel of this clone stands for the `.` of `pip install .`; whether the answers are those of the page is tested by
`tests/commands/test_getting_started.py`. Prints seconds by the clock and of processor time as Markdown.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("companies", "notes", "duckdb", "rag")

RUN = """
import json, subprocess, sys

names = {"__name__": "__main__"}
for language, block in json.load(sys.stdin):
    if language == "python":
        exec(compile(block, "page", "exec"), names)
    else:
        for line in block.splitlines():
            subprocess.run(line, shell=True, check=True, stdin=subprocess.DEVNULL)
"""
"""What reads a page: one interpreter, as at a prompt, and the lines for a shell."""


def time_page(page: str, wheel: Path) -> tuple[float, float, float]:
    """Seconds of the installation, of the rest, and of processor time for both. Raises CalledProcessError if a line of
    the page fails.
    """
    text = (ROOT / "docs" / "tutorials" / f"{page}.md").read_text("utf-8")
    blocks = re.findall(r"^```(sh|python)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (first, install), rest = blocks[0], blocks[1:]
    assert (first, install.count("\n")) == ("sh", 1), f"{page} begins with another block than one line that installs"
    began = os.times()
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PATH": f"{folder}/.venv/bin:{os.environ['PATH']}"}
        environment.pop("PYTHONPATH", None)
        subprocess.run([sys.executable, "-m", "venv", ".venv"], cwd=folder, check=True)
        line = re.sub(r"(?<= )'?\.((?:\[[\w,-]+\])?)'?$", rf"'{wheel}\1'", install.strip())
        subprocess.run(line, shell=True, cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=True)
        installed = os.times()
        command = [".venv/bin/python", "-c", RUN]
        given = json.dumps(rest)
        subprocess.run(
            command, cwd=folder, env=environment, input=given, text=True, stdout=subprocess.DEVNULL, check=True
        )
    ended = os.times()
    spent = (ended.children_user + ended.children_system) - (began.children_user + began.children_system)
    return installed.elapsed - began.elapsed, ended.elapsed - installed.elapsed, spent


def main() -> None:
    """Build the wheel and print the table."""
    with tempfile.TemporaryDirectory() as folder:
        build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT]
        subprocess.run(build, check=True)
        (wheel,) = Path(folder).glob("*.whl")
        print("| page | installation, s | the rest, s | processor, s |\n|---|---|---|---|", flush=True)
        for page in sys.argv[1:] or PAGES:
            print(f"| {page} | {' | '.join(f'{one:.0f}' for one in time_page(page, wheel))} |", flush=True)


if __name__ == "__main__":
    main()
