"""What a command says where a stream is closed or full, a path is too long, or memory runs out: one line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cli_runner import Run

from pearl_qdrant import EntityLinker

LONG = "/".join(["x" * 200] * 25)
"""A path that no system takes."""

pytestmark = pytest.mark.skipif(os.name != "posix", reason="streams are closed by the shell")


def shell(arguments: str, folder: Path) -> tuple[int, str]:
    """Status and standard error of the command line, with the redirections of a shell."""
    command = f"'{sys.executable}' -m pearl_qdrant {arguments}"
    found = subprocess.run(
        ["/bin/sh", "-c", command], cwd=folder, stderr=subprocess.PIPE, text=True, check=False, timeout=600
    )
    return found.returncode, found.stderr


def assert_one_line(status: int, written: str, error: str) -> None:
    """No traceback: the error is the last line of standard error, and the status is 1."""
    assert (status, error in written) == (1, True), written
    assert "Traceback" not in written
    assert "Exception ignored" not in written
    assert written.splitlines()[-1].startswith("Error: ")
    assert len(written.splitlines()[-1]) < 400


@pytest.mark.parametrize(
    "arguments, error",
    [
        ("models list > /dev/full", "Standard output cannot be written: No space left on device."),
        ("models list >&-", "Standard output cannot be written"),
        ("annotate --file - --collection base <&-", "standard input is closed"),
    ],
)
def test_a_broken_stream_is_one_line(tmp_path: Path, arguments: str, error: str) -> None:
    """Whether it is full or closed, a stream ends the command with an error and no traceback."""
    assert_one_line(*shell(arguments, tmp_path), error)


@pytest.mark.parametrize(
    "words, error",
    [
        (("ingest", LONG, "--dry-run"), "File name too long: xxxx"),
        (("link", "--file", LONG, "--collection", "base"), "File name too long: xxxx"),
        (("models", "show", LONG), "File name too long: xxxx"),
        (("resolve", "names.txt", "--out", "nowhere/nodes.tsv"), "No such file or directory: nowhere/"),
    ],
)
def test_a_path_that_cannot_be_is_one_line(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], error: str
) -> None:
    """Too long for the system, or in no folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "names.txt").write_text("New York\n")
    outcome = run(*words)

    assert_one_line(outcome.status, outcome.err, error)


def test_all_streams_may_be_closed(tmp_path: Path) -> None:
    """With nothing to read from or write to, only the status says that it failed; `| head` ends it without a word."""
    assert shell("models list <&- >&- 2>&-", tmp_path) == (1, "")
    assert shell("models list | head -0", tmp_path) == (0, "")


_MAPPING = "x.so: failed to map segment from shared object"


def test_too_little_address_space_is_said_before_a_library_ends_the_process() -> None:
    """With `ulimit -v` far below what the engine maps, one line says how much there is; help works."""
    if shutil.which("bash") is None:
        pytest.skip("needs bash")
    command = f"ulimit -v 300000 && exec {sys.executable} -c 'from pearl_qdrant.cli import main; main()' "
    done, helped = (
        subprocess.run(["bash", "-c", command + words], capture_output=True, text=True, check=False)
        for words in ("collections list", "link --help")
    )

    assert (done.returncode, helped.returncode) == (1, 0)
    assert done.stderr.startswith("Error: this process may use 307 MB of address space, and needs 1,500 at least.")
    assert done.stderr.endswith("Allow more: ulimit -v unlimited\n")


@pytest.mark.parametrize(
    "problem, said",
    [
        (MemoryError(), "memory ran out; what was stored is kept. Free some, or take less at once"),
        (ImportError(_MAPPING), f"memory ran out while a library was loaded ({_MAPPING}). Free some, or allow more"),
    ],
)
def test_memory_that_runs_out_is_one_line(
    run: Run, monkeypatch: pytest.MonkeyPatch, problem: Exception, said: str
) -> None:
    """A ledger or file that is larger than memory, or a library that is (`ulimit -v`), ends in a line that says so."""

    def grow(*names: str, **options: object) -> EntityLinker:
        raise problem

    monkeypatch.setattr(EntityLinker, "open", grow)
    outcome = run("link", "NYC", "--collection", "base")

    assert outcome.status == 1
    assert outcome.err.startswith(f"Error: {said}")
    assert outcome.err.count("\n") == 1
