"""Settings and fixtures for all tests."""

from __future__ import annotations

import io
import os
import signal
import sys
from pathlib import Path

# The models of the tests are tiny: torch is faster on one thread, above all where the cores are shared.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from cli_runner import Outcome, Run
from tiny_models import make_pearl

from pearl_qdrant.cli import main


def pytest_configure() -> None:
    """Take Ctrl-C as a terminal gives it: a shell lets what it starts in the background ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny checkpoint."""
    folder = tmp_path_factory.mktemp("model") / "tiny"
    make_pearl(folder)
    return folder


@pytest.fixture
def run(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `pearl-qdrant` with a store and a model of its own."""
    for name in ("QDRANT_URL", "QDRANT_API_KEY", "PEARL_QDRANT_DEVICE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PEARL_QDRANT_STORE", str(tmp_path / "store"))

    def call(*words: str, stdin: bytes = b"") -> Outcome:
        monkeypatch.setattr(sys, "argv", ["pearl-qdrant", *words])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        return Outcome(int(stop.value.code or 0), captured.out, captured.err)

    return call
